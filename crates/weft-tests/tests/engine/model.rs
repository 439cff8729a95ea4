//! Compares random transactions of one thread with a model, a `BTreeMap`.
//!
//! The test compares the result of every operation, including reads of own writes and failures. After every
//! transaction it reads the whole database in every possible way. The row types cover all three forms of keys and
//! both kinds of storage, with and without heap memory.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use weft::encoding::Key;
use weft::protocol::Protocol;
use weft::schema::{Storage, Violation};
use weft::{Database, Error, Failure, Index, Record, Scan, Table, Transaction};

use weft_tests::{Seed, for_each_executor, stress};

/// The lowest payload that violates the rows' constraint.
const FORBIDDEN: u64 = 1000;

/// The interface of the test's row types. Small numbers stand for the values of columns.
trait Row: Record<Key = (Self::First, u8)> + Debug + PartialEq {
    type First: Key + Ord;
    type Badge: Key + Ord;
    const GROUP: Index<Self, u8>;
    const BADGE: Index<Self, Self::Badge>;

    fn make(values: &Values) -> Self;
    fn first(number: u8) -> Self::First;
    fn badge(number: u8) -> Self::Badge;
    fn columns(&mut self) -> (&mut Self::First, &mut u8, &mut Self::Badge);
    fn group_and_badge(&self) -> (u8, Self::Badge);
    fn set_payload(&mut self, payload: u64);

    /// Scans by the primary key; `None` in a hash table.
    fn scan<'tx, 'db, P: Protocol>(
        tx: &'tx Transaction<'db, P>,
        table: &'tx Table<Self>,
        range: (Bound<Self::Key>, Bound<Self::Key>),
    ) -> Option<Scan<'tx, 'db, Self, P>>;

    /// Scans a prefix of the primary key; `None` in a hash table.
    fn scan_prefix<'tx, 'db, P: Protocol>(
        tx: &'tx Transaction<'db, P>,
        table: &'tx Table<Self>,
        first: Self::First,
    ) -> Option<Scan<'tx, 'db, Self, P>>;
}

/// Evaluates to a scan in an ordered table, and to `None` in a hash table.
macro_rules! if_ordered {
    ("ordered", $scan:expr) => {
        Some($scan)
    };
    ("hash", $scan:expr) => {
        None
    };
}

/// A column type that small numbers can be converted to.
trait Column: Key + Ord {
    fn of(number: u64) -> Self;
    fn number(&self) -> u64;
}

impl Column for u8 {
    fn of(number: u64) -> u8 {
        number as u8
    }
    fn number(&self) -> u64 {
        u64::from(*self)
    }
}

impl Column for u64 {
    // One number stands for the largest value.
    fn of(number: u64) -> u64 {
        if number == 7 { u64::MAX } else { number * 0x0101_0101 }
    }
    fn number(&self) -> u64 {
        if *self == u64::MAX { 7 } else { *self / 0x0101_0101 }
    }
}

impl Column for String {
    // Covers empty, short and long strings, bytes that need an escape, and strings that are prefixes of others.
    fn of(number: u64) -> String {
        match number {
            0 => String::new(),
            1 => "\0".into(),
            2 => "\u{1}\0".into(),
            3 => "a".into(),
            4 => "a".repeat(9),
            5 => "a".repeat(200),
            6 => "a".repeat(200) + "b",
            _ => format!("{}{number:06}", "z".repeat(50)),
        }
    }
    fn number(&self) -> u64 {
        (0..FORBIDDEN * 2).find(|number| String::of(*number) == *self).expect("made by `of`")
    }
}

macro_rules! row {
    ($row:ident, $storage:tt, $first:ty, $badge:ty, $payload:ty) => {
        #[derive(Clone, Debug, PartialEq, Record)]
        #[record(storage = $storage, key(first, second))]
        #[record(check = $row::check_payload)]
        struct $row {
            first: $first,
            second: u8,
            #[record(index)]
            group: u8,
            #[record(unique)]
            badge: $badge,
            payload: $payload,
        }

        impl $row {
            fn check_payload(&self) -> Result<(), Violation> {
                match self.payload.number() {
                    FORBIDDEN.. => Err("the payload is forbidden".into()),
                    _ => Ok(()),
                }
            }
        }

        impl Row for $row {
            type First = $first;
            type Badge = $badge;
            const GROUP: Index<Self, u8> = $row::GROUP;
            const BADGE: Index<Self, $badge> = $row::BADGE;

            fn make(values: &Values) -> Self {
                $row {
                    first: Self::first(values.first),
                    second: values.second,
                    group: values.group,
                    badge: <Self as Row>::badge(values.badge),
                    payload: <$payload>::of(values.payload),
                }
            }
            fn first(number: u8) -> $first {
                <$first>::of(number.into())
            }
            fn badge(number: u8) -> $badge {
                <$badge>::of(number.into())
            }
            fn columns(&mut self) -> (&mut $first, &mut u8, &mut $badge) {
                (&mut self.first, &mut self.group, &mut self.badge)
            }
            fn group_and_badge(&self) -> (u8, $badge) {
                (self.group, self.badge.clone())
            }
            fn set_payload(&mut self, payload: u64) {
                self.payload = <$payload>::of(payload);
            }
            #[allow(unused_variables, reason = "a hash table has no scans")]
            fn scan<'tx, 'db, P: Protocol>(
                tx: &'tx Transaction<'db, P>,
                table: &'tx Table<Self>,
                range: (Bound<Self::Key>, Bound<Self::Key>),
            ) -> Option<Scan<'tx, 'db, Self, P>> {
                if_ordered!($storage, tx.range(table, range))
            }
            #[allow(unused_variables, reason = "a hash table has no scans")]
            fn scan_prefix<'tx, 'db, P: Protocol>(
                tx: &'tx Transaction<'db, P>,
                table: &'tx Table<Self>,
                first: Self::First,
            ) -> Option<Scan<'tx, 'db, Self, P>> {
                if_ordered!($storage, tx.prefix(table, &(first,)))
            }
        }
    };
}

// Each comment gives the forms of the primary key, and of the entries of `group` and `badge`.
row!(WordPlain, "ordered", u8, u8, u64); // one word; one word; one word
row!(WidePlain, "ordered", u64, u64, u64); // two words; two words; one word
row!(LongHeap, "ordered", String, String, String); // all long
row!(HashWordHeap, "hash", u8, String, String);
row!(HashWidePlain, "hash", u64, u8, u64);
row!(HashLongPlain, "hash", String, u64, u64);

#[derive(Clone, Debug)]
struct Values {
    first: u8,
    second: u8,
    group: u8,
    badge: u8,
    payload: u64,
}

/// An end of a range: the kind of bound, with the number that stands for its value.
#[derive(Clone, Copy, Debug)]
enum End {
    Unbounded,
    Included(u8),
    Excluded(u8),
}

impl End {
    fn bound<K>(self, of: impl Fn(u8) -> K) -> Bound<K> {
        match self {
            End::Unbounded => Bound::Unbounded,
            End::Included(number) => Bound::Included(of(number)),
            End::Excluded(number) => Bound::Excluded(of(number)),
        }
    }
}

#[derive(Clone, Debug)]
enum Range {
    Primary(End, End),
    Prefix(u8),
    Group(End, End),
    GroupPrefix(u8),
    Badge(End, End),
}

#[derive(Clone, Debug)]
enum Operation {
    Get(u8, u8),
    GetByBadge(u8),
    Insert(Values),
    Upsert(Values),
    /// Sets all columns except those of the key.
    Update(Values),
    /// Sets a column of the key, which is refused if it changes.
    UpdateKey(u8, u8, u8),
    Delete(u8, u8),
    Scan {
        range: Range,
        descending: bool,
        limit: usize,
    },
    /// Deletes the rows that a scan yields, while it runs.
    DeleteScanned {
        range: Range,
        descending: bool,
        limit: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Commit,
    UserError,
    Rollback,
    CommitByHand,
}

fn values() -> impl Strategy<Value = Values> {
    let payload = prop_oneof![9 => 0..100u64, 1 => FORBIDDEN..FORBIDDEN + 3];
    (0..8u8, 0..6u8, group(), 0..16u8, payload).prop_map(
        |(first, second, group, badge, payload)| Values { first, second, group, badge, payload },
    )
}

fn group() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0), Just(1), Just(254), Just(255)]
}

fn end(numbers: impl Strategy<Value = u8> + Clone) -> impl Strategy<Value = End> {
    prop_oneof![
        1 => Just(End::Unbounded),
        2 => numbers.clone().prop_map(End::Included),
        2 => numbers.prop_map(End::Excluded),
    ]
}

fn range() -> impl Strategy<Value = Range> {
    let groups = || prop_oneof![Just(0u8), Just(1), Just(254), Just(255)].boxed();
    let badges = || (0..16u8).boxed();
    let numbers = || (0..48u8).boxed();
    prop_oneof![
        (end(numbers()), end(numbers())).prop_map(|(from, to)| Range::Primary(from, to)),
        (0..8u8).prop_map(Range::Prefix),
        (end(groups()), end(groups())).prop_map(|(from, to)| Range::Group(from, to)),
        group().prop_map(Range::GroupPrefix),
        (end(badges()), end(badges())).prop_map(|(from, to)| Range::Badge(from, to)),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let limit = || prop_oneof![3 => Just(usize::MAX), 1 => 0..5usize];
    prop_oneof![
        3 => (0..8u8, 0..6u8).prop_map(|(first, second)| Operation::Get(first, second)),
        2 => (0..16u8).prop_map(Operation::GetByBadge),
        6 => values().prop_map(Operation::Insert),
        3 => values().prop_map(Operation::Upsert),
        5 => values().prop_map(Operation::Update),
        1 => (0..8u8, 0..6u8, 0..8u8).prop_map(|(a, b, c)| Operation::UpdateKey(a, b, c)),
        4 => (0..8u8, 0..6u8).prop_map(|(first, second)| Operation::Delete(first, second)),
        4 => (range(), any::<bool>(), limit())
            .prop_map(|(range, descending, limit)| Operation::Scan { range, descending, limit }),
        1 => (range(), any::<bool>(), limit()).prop_map(|(range, descending, limit)| {
            Operation::DeleteScanned { range, descending, limit }
        }),
    ]
}

fn transactions() -> impl Strategy<Value = Vec<(Vec<Operation>, Ending)>> {
    let ending = prop_oneof![
        4 => Just(Ending::Commit),
        1 => Just(Ending::UserError),
        1 => Just(Ending::Rollback),
        2 => Just(Ending::CommitByHand),
    ];
    prop::collection::vec((prop::collection::vec(operation(), 1..14), ending), 1..24)
}

// ---- the model --------------------------------------------------------------------------------

type Model<R> = BTreeMap<<R as Record>::Key, R>;

/// The result of an operation, in the engine or in the model.
#[derive(Debug, PartialEq)]
enum Outcome<R> {
    Rows(Vec<R>),
    Changed(bool),
    /// The table is a hash table, which has no scans of its primary key.
    Unordered,
    Failed(&'static str, Option<&'static str>),
}

/// Why the comparison of a transaction stopped.
enum Stopped {
    /// The model and the engine differ.
    Differ(TestCaseError),
    /// The transaction has to be retried.
    Conflict(Error),
}

impl From<TestCaseError> for Stopped {
    fn from(error: TestCaseError) -> Self {
        Stopped::Differ(error)
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Stopped::Conflict(error)
    }
}

fn failed<R>(error: Error) -> Result<Outcome<R>, Stopped> {
    let Error::Failure(failure) = error else { return Err(error.into()) };
    Ok(match failure {
        Failure::DuplicateKey { index, .. } => Outcome::Failed("duplicate", index),
        Failure::Constraint { .. } => Outcome::Failed("constraint", None),
        Failure::KeyChanged { .. } => Outcome::Failed("key changed", None),
        other => panic!("unexpected: {other}"),
    })
}

/// Returns the key with this number, in the order of keys.
fn primary<R: Row>(number: u8) -> (R::First, u8) {
    (R::first(number / 6), number % 6)
}

fn is_within<K: Ord>(key: &K, from: &Bound<K>, to: &Bound<K>) -> bool {
    let above = match from {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
    };
    let below = match to {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
    };
    above && below
}

fn model_scan<R: Row>(
    model: &Model<R>,
    range: &Range,
    descending: bool,
    limit: usize,
) -> Result<Vec<R>, Outcome<R>> {
    let ordered = R::STORAGE == Storage::Ordered;
    let mut rows: Vec<&R> = model.values().collect();
    match range {
        Range::Primary(..) | Range::Prefix(_) if !ordered => return Err(Outcome::Unordered),
        Range::Primary(from, to) => {
            let (from, to) = (from.bound(primary::<R>), to.bound(primary::<R>));
            rows.retain(|row| is_within(&row.key(), &from, &to));
        }
        Range::Prefix(first) => rows.retain(|row| row.key().0 == R::first(*first)),
        Range::Group(from, to) => {
            let (from, to) = (from.bound(|group| group), to.bound(|group| group));
            rows.retain(|row| is_within(&row.group_and_badge().0, &from, &to));
            rows.sort_by_key(|row| (row.group_and_badge().0, row.key()));
        }
        Range::GroupPrefix(group) => rows.retain(|row| row.group_and_badge().0 == *group),
        Range::Badge(from, to) => {
            let (from, to) = (from.bound(R::badge), to.bound(R::badge));
            rows.retain(|row| is_within(&row.group_and_badge().1, &from, &to));
            rows.sort_by_key(|row| row.group_and_badge().1);
        }
    }
    if descending {
        rows.reverse();
    }
    Ok(rows.into_iter().take(limit).cloned().collect())
}

/// Returns the failure of writing `row` in place of the row with the same key, if any.
fn model_write_failure<R: Row>(model: &Model<R>, row: &R) -> Option<Outcome<R>> {
    let badge = row.group_and_badge().1;
    let taken = |other: &R| other.key() != row.key() && other.group_and_badge().1 == badge;
    if row.check().is_err() {
        return Some(Outcome::Failed("constraint", None));
    }
    model.values().any(taken).then_some(Outcome::Failed("duplicate", Some("badge")))
}

fn apply_to_model<R: Row>(model: &mut Model<R>, operation: &Operation) -> Outcome<R> {
    match operation {
        Operation::Get(first, second) => {
            Outcome::Rows(model.get(&(R::first(*first), *second)).cloned().into_iter().collect())
        }
        Operation::GetByBadge(badge) => {
            let badge = R::badge(*badge);
            let rows = model.values().filter(|row| row.group_and_badge().1 == badge);
            Outcome::Rows(rows.cloned().collect())
        }
        Operation::Insert(values) => {
            let row = R::make(values);
            if row.check().is_ok() && model.contains_key(&row.key()) {
                return Outcome::Failed("duplicate", None);
            }
            model_write_failure(model, &row).unwrap_or_else(|| {
                model.insert(row.key(), row);
                Outcome::Changed(true)
            })
        }
        Operation::Upsert(values) => {
            let row = R::make(values);
            model_write_failure(model, &row)
                .unwrap_or_else(|| Outcome::Changed(model.insert(row.key(), row).is_some()))
        }
        Operation::Update(values) => {
            let row = R::make(values);
            if !model.contains_key(&row.key()) {
                return Outcome::Changed(false);
            }
            model_write_failure(model, &row).unwrap_or_else(|| {
                model.insert(row.key(), row);
                Outcome::Changed(true)
            })
        }
        Operation::UpdateKey(first, second, other) => {
            match model.contains_key(&(R::first(*first), *second)) {
                true if first != other => Outcome::Failed("key changed", None),
                there => Outcome::Changed(there),
            }
        }
        Operation::Delete(first, second) => {
            Outcome::Changed(model.remove(&(R::first(*first), *second)).is_some())
        }
        Operation::Scan { range, descending, limit } => {
            model_scan(model, range, *descending, *limit)
                .map_or_else(|failed| failed, Outcome::Rows)
        }
        Operation::DeleteScanned { range, descending, limit } => {
            match model_scan(model, range, *descending, *limit) {
                Ok(rows) => {
                    rows.iter().for_each(|row| drop(model.remove(&row.key())));
                    Outcome::Rows(rows)
                }
                Err(failed) => failed,
            }
        }
    }
}

// ---- the engine -------------------------------------------------------------------------------

fn scan<'tx, R: Row, P: Protocol>(
    tx: &'tx Transaction<'_, P>,
    table: &'tx Table<R>,
    range: &Range,
    descending: bool,
    limit: usize,
) -> Option<impl Iterator<Item = Result<&'tx R, Error>>> {
    let scan = match range {
        Range::Primary(from, to) => {
            R::scan(tx, table, (from.bound(primary::<R>), to.bound(primary::<R>)))?
        }
        Range::Prefix(first) => R::scan_prefix(tx, table, R::first(*first))?,
        Range::Group(from, to) => {
            tx.range_by(table, R::GROUP, (from.bound(|group| group), to.bound(|group| group)))
        }
        Range::GroupPrefix(group) => tx.prefix_by(table, R::GROUP, group),
        Range::Badge(from, to) => {
            tx.range_by(table, R::BADGE, (from.bound(R::badge), to.bound(R::badge)))
        }
    };
    Some(if descending { scan.descending() } else { scan }.take(limit))
}

/// Applies an operation. The rows that it reads are added to `held`, each with a copy.
fn apply<'tx, R: Row, P: Protocol>(
    tx: &'tx Transaction<'_, P>,
    table: &'tx Table<R>,
    operation: &Operation,
    held: &mut Vec<(&'tx R, R)>,
) -> Result<Outcome<R>, Error> {
    let mut hold = |rows: Vec<&'tx R>| {
        held.extend(rows.iter().map(|row| (*row, (*row).clone())));
        Outcome::Rows(rows.into_iter().cloned().collect())
    };
    Ok(match operation {
        Operation::Get(first, second) => {
            hold(tx.get(table, &(R::first(*first), *second))?.into_iter().collect())
        }
        Operation::GetByBadge(badge) => {
            hold(tx.get_by(table, R::BADGE, &R::badge(*badge))?.into_iter().collect())
        }
        Operation::Insert(values) => {
            tx.insert(table, R::make(values))?;
            Outcome::Changed(true)
        }
        Operation::Upsert(values) => Outcome::Changed(tx.upsert(table, R::make(values))?),
        Operation::Update(values) => {
            let new = R::make(values);
            let key = new.key();
            let updated = tx.update(table, &key, |row| {
                let (_, group, badge) = row.columns();
                (*group, *badge) = new.group_and_badge();
                row.set_payload(values.payload);
            })?;
            Outcome::Changed(updated.is_some())
        }
        Operation::UpdateKey(first, second, other) => {
            let updated = tx.update(table, &(R::first(*first), *second), |row| {
                *row.columns().0 = R::first(*other);
            })?;
            Outcome::Changed(updated.is_some())
        }
        Operation::Delete(first, second) => {
            Outcome::Changed(tx.delete(table, &(R::first(*first), *second))?)
        }
        Operation::Scan { range, descending, limit } => {
            match scan(tx, table, range, *descending, *limit) {
                Some(scan) => hold(scan.collect::<Result<_, _>>()?),
                None => Outcome::Unordered,
            }
        }
        Operation::DeleteScanned { range, descending, limit } => {
            let mut rows = Vec::new();
            let Some(scan) = scan(tx, table, range, *descending, *limit) else {
                return Ok(Outcome::Unordered);
            };
            for row in scan {
                let row = row?;
                assert!(tx.delete(table, &row.key())?, "{row:?} was read, but is not found");
                rows.push(row);
            }
            hold(rows)
        }
    })
}

/// Runs the operations of a transaction in the engine and in the model, and compares the results.
fn run<R: Row, P: Protocol>(
    tx: &Transaction<'_, P>,
    table: &Table<R>,
    operations: &[Operation],
    model: &mut Model<R>,
) -> Result<(), Stopped> {
    let mut held = Vec::new();
    for operation in operations {
        let outcome = apply(tx, table, operation, &mut held).or_else(failed)?;
        let expected = apply_to_model(model, operation);
        let differ =
            || TestCaseError::fail(format!("{outcome:?}, not {expected:?}: {operation:?}"));
        if outcome != expected {
            return Err(differ().into());
        }
    }
    for (row, copy) in held {
        if *row != copy {
            let text = format!("{copy:?} changed to {row:?} under a reference");
            return Err(TestCaseError::fail(text).into());
        }
    }
    Ok(())
}

fn compare<R: Row, P: Protocol>(
    database: &Database<P>,
    table: &Table<R>,
    model: &mut Model<R>,
) -> Result<(), TestCaseError> {
    let all = || (End::Unbounded, End::Unbounded);
    let mut reads = Vec::new();
    reads.extend((0..48u8).map(|number| Operation::Get(number / 6, number % 6)));
    reads.extend((0..16u8).map(Operation::GetByBadge));
    for descending in [false, true] {
        let ranges = [
            Range::Primary(all().0, all().1),
            Range::Group(all().0, all().1),
            Range::Badge(all().0, all().1),
        ];
        reads.extend(ranges.map(|range| Operation::Scan { range, descending, limit: usize::MAX }));
    }
    let tx = database.begin().unwrap();
    match run(&tx, table, &reads, model) {
        Err(Stopped::Differ(differ)) => Err(differ),
        Err(Stopped::Conflict(conflict)) => panic!("a conflict with one thread: {conflict}"),
        Ok(()) => Ok(()),
    }
}

/// Runs a transaction once. If it commits, `model` becomes the state after it.
fn attempt<R: Row, P: Protocol>(
    database: &Database<P>,
    table: &Table<R>,
    operations: &[Operation],
    ending: Ending,
    model: &mut Model<R>,
) -> Result<(), Stopped> {
    let mut after = model.clone();
    let tx = database.begin().unwrap();
    run(&tx, table, operations, &mut after)?;
    match ending {
        Ending::CommitByHand => {
            tx.commit()?;
            *model = after;
        }
        _ => tx.rollback(),
    }
    Ok(())
}

/// The most conflicts of a transaction. With a single thread there is only one cause: an insertion may make a hash
/// table grow, which moves the places of keys that the transaction found absent. The table does not shrink when
/// the transaction aborts, so this cannot repeat for ever.
const CONFLICTS_MAX: usize = 8;

fn check<R: Row, P: Protocol>(
    transactions: &[(Vec<Operation>, Ending)],
) -> Result<(), TestCaseError> {
    let database = Database::builder().protocol::<P>().table::<R>().open().unwrap();
    let table = database.table::<R>().unwrap();
    let mut model = Model::<R>::new();
    for (operations, ending) in transactions {
        let mut conflicts = 0;
        let mut meet_conflict = || {
            conflicts += 1;
            assert!(R::STORAGE == Storage::Hash && conflicts <= CONFLICTS_MAX, "a conflict");
        };
        match ending {
            Ending::Commit | Ending::UserError => {
                let mut after = Model::<R>::new();
                let result = database.transact(|tx| -> Result<(), Stopped> {
                    after = model.clone();
                    run(tx, &table, operations, &mut after)?;
                    match ending {
                        Ending::Commit => Ok(()),
                        _ => Err(TestCaseError::reject("the user's own").into()),
                    }
                });
                match (result, ending) {
                    (Ok(()), Ending::Commit) => model = after,
                    (Err(Stopped::Differ(TestCaseError::Reject(_))), Ending::UserError) => {}
                    (Err(Stopped::Differ(differ)), _) => return Err(differ),
                    (Err(Stopped::Conflict(error)), _) => panic!("{error}"),
                    (Ok(()), _) => panic!("the user's error was not returned"),
                }
            }
            Ending::Rollback | Ending::CommitByHand => loop {
                match attempt(&database, &table, operations, *ending, &mut model) {
                    Ok(()) => break,
                    Err(Stopped::Differ(differ)) => return Err(differ),
                    Err(Stopped::Conflict(_)) => meet_conflict(),
                }
            },
        }
        compare(&database, &table, &mut model)?;
    }
    Ok(())
}

fn test<R: Row>() {
    let seed = Seed::draw();
    let config = Config {
        cases: 60 * stress() as u32,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    for_each_executor!(|P| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.0.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let result = TestRunner::new_with_rng(config.clone(), random)
            .run(&transactions(), |transactions| check::<R, P>(&transactions));
        if let Err(TestError::Fail(why, transactions)) = result {
            panic!("{why}\nminimal transactions: {transactions:#?}");
        }
        result.unwrap();
    });
}

#[test]
fn ordered_with_one_word_keys() {
    test::<WordPlain>();
}

#[test]
fn ordered_with_two_word_keys() {
    test::<WidePlain>();
}

#[test]
fn ordered_with_long_keys_and_heap_memory() {
    test::<LongHeap>();
}

#[test]
fn hash_with_one_word_keys_and_heap_memory() {
    test::<HashWordHeap>();
}

#[test]
fn hash_with_two_word_keys() {
    test::<HashWidePlain>();
}

#[test]
fn hash_with_long_keys() {
    test::<HashLongPlain>();
}
