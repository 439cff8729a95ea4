//! Tests of the history recorder. It must record exactly what happened, or a checker's verdict means nothing.

use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

use weft::history::{History, HistoryKey, Operation, Status, Transaction};
use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Record, Table, column_of};
use weft_tests::{Seed, for_each_executor, on_threads, stress, threads};

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "items")]
struct Item {
    #[record(key)]
    id: u32,
    value: u64,
}

/// Owns heap memory, so that no row is stored inline, and has secondary indexes.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "people", key(town, number))]
#[record(index(name = by_name, columns(name)))]
#[record(index(name = by_phone, columns(phone), unique))]
struct Person {
    town: String,
    number: i16,
    name: String,
    phone: u32,
}

fn person(number: i16, name: &str, phone: u32) -> Person {
    Person { town: "Ulm".into(), number, name: name.into(), phone }
}

struct Recorded<P: Protocol> {
    database: Database<P>,
    items: Table<Item>,
}

fn open<P: Protocol>() -> Recorded<P> {
    let database = Database::builder()
        .protocol::<P>()
        .table::<Item>()
        .record_history(true)
        .open()
        .expect("opens");
    let items = database.table().expect("registered");
    Recorded { database, items }
}

fn people<P: Protocol>() -> (Database<P>, Table<Person>) {
    let builder = Database::builder().protocol::<P>().table::<Item>().table::<Person>();
    let database = builder.record_history(true).open().expect("opens");
    let people = database.table().expect("registered");
    (database, people)
}

fn integer(value: impl Into<i128>) -> HistoryKey {
    HistoryKey::Integer(value.into())
}

fn ulm(number: i16) -> HistoryKey {
    HistoryKey::Tuple(vec![HistoryKey::Text("Ulm".into()), integer(number)])
}

fn read(id: u32, version: impl Into<Option<u64>>) -> Operation {
    Operation::Read { table: "items".into(), key: integer(id), version: version.into() }
}

fn write(id: u32, version: u64) -> Operation {
    Operation::Write { table: "items".into(), key: integer(id), version }
}

fn delete(id: u32, version: u64) -> Operation {
    Operation::Delete { table: "items".into(), key: integer(id), version }
}

fn scan(from: Bound<u32>, to: Bound<u32>, rows: &[(u32, u64)]) -> Operation {
    Operation::Scan {
        table: "items".into(),
        from: from.map(integer),
        to: to.map(integer),
        rows: rows.iter().map(|&(id, version)| (integer(id), version)).collect(),
    }
}

/// Returns the status of each transaction, and its operations.
fn outline(history: &History) -> Vec<(Status, &[Operation])> {
    let transactions = history.transactions.iter();
    transactions.map(|transaction| (transaction.status, &transaction.operations[..])).collect()
}

/// Returns the operations of the last transaction.
fn last(history: &History) -> &[Operation] {
    &history.transactions.last().expect("a transaction was recorded").operations
}

/// Returns whether a protocol allows more than one operation in a transaction.
fn takes_many<P: Protocol>() -> bool {
    !P::SINGLE_KEY
}

#[test]
fn script_produces_exactly_this_history() {
    fn run<P: Protocol>() -> Result<(), Error> {
        if !takes_many::<P>() {
            return Ok(());
        }
        let Recorded { database, items } = open::<P>();
        database.transact(|tx| {
            tx.insert(&items, Item { id: 1, value: 10 })?;
            tx.insert(&items, Item { id: 2, value: 20 })
        })?;
        database.transact(|tx| {
            assert_eq!(tx.get(&items, &1)?.expect("is there").value, 10);
            assert_eq!(tx.get(&items, &9)?, None);
            tx.update(&items, &1, |item| item.value += 1)?;
            // Reads the version that this transaction has written.
            assert_eq!(tx.get(&items, &1)?.expect("is there").value, 11);
            tx.update(&items, &9, |_| ())?;
            let duplicate = tx.insert(&items, Item { id: 2, value: 0 });
            assert!(matches!(duplicate, Err(Error::Failure(Failure::DuplicateKey { .. }))));
            Ok::<_, Error>(())
        })?;
        database.transact(|tx| {
            assert!(tx.upsert(&items, Item { id: 2, value: 22 })?);
            assert!(!tx.upsert(&items, Item { id: 3, value: 30 })?);
            assert!(tx.delete(&items, &1)?);
            assert!(!tx.delete(&items, &1)?);
            tx.insert(&items, Item { id: 1, value: 111 })
        })?;
        let history = database.take_history();
        let first = [read(1, None), write(1, 1), read(2, None), write(2, 2)];
        let second = [
            read(1, 1),
            read(9, None),
            read(1, 1),
            write(1, 3),
            read(1, 3),
            read(9, None),
            read(2, 2),
        ];
        let third = [
            // An upsert reads twice: first it tries to insert and finds the duplicate, then it updates.
            read(2, 2),
            read(2, 2),
            write(2, 4),
            read(3, None),
            write(3, 5),
            read(1, 3),
            delete(1, 6),
            read(1, None),
            read(1, None),
            write(1, 7),
        ];
        let expected: [(Status, &[Operation]); 3] = [
            (Status::Committed, &first),
            (Status::Committed, &second),
            (Status::Committed, &third),
        ];
        assert_eq!(outline(&history), expected);
        let mut clock = 0;
        for (id, transaction) in (1..).zip(&history.transactions) {
            assert_eq!((transaction.id, transaction.session), (id, 0));
            assert!(clock <= transaction.invoke_ns);
            assert!(transaction.invoke_ns <= transaction.complete_ns);
            clock = transaction.complete_ns;
        }
        assert_eq!(database.take_history(), History::default(), "taking a history empties it");
        Ok(())
    }
    for_each_executor!(|P| run::<P>().unwrap());
}

#[test]
fn uncommitted_transactions_are_listed_and_numbered() {
    fn run<P: Protocol>() -> Result<(), Error> {
        if !takes_many::<P>() {
            return Ok(());
        }
        let Recorded { database, items } = open::<P>();
        let transaction = database.begin()?;
        transaction.insert(&items, Item { id: 1, value: 10 })?;
        transaction.rollback();
        let refused = database.transact(|tx| {
            tx.insert(&items, Item { id: 1, value: 11 })?;
            Err::<(), Error>(Failure::Closed.into())
        });
        assert!(refused.is_err());
        database.transact(|tx| tx.insert(&items, Item { id: 1, value: 12 }))?;
        assert_eq!(
            outline(&database.take_history()),
            [
                (Status::RolledBack, &[read(1, None), write(1, 1)][..]),
                (Status::RolledBack, &[read(1, None), write(1, 2)]),
                (Status::Committed, &[read(1, None), write(1, 3)]),
            ]
        );
        // A version that is older than the history has the number 0.
        database.transact(|tx| tx.get(&items, &1).map(|_| ()))?;
        database.transact(|tx| tx.update(&items, &1, |_| ()))?;
        assert_eq!(
            outline(&database.take_history()),
            [
                (Status::Committed, &[read(1, 0)][..]),
                (Status::Committed, &[read(1, 0), write(1, 1)]),
            ]
        );
        Ok(())
    }
    for_each_executor!(|P| run::<P>().unwrap());
}

#[test]
fn conflict_is_recorded_as_an_aborted_transaction() {
    use weft::protocol::Dbx;
    let Recorded { database, items } = open::<Dbx>();
    database.transact(|tx| tx.insert(&items, Item { id: 1, value: 0 })).unwrap();
    let loser = database.begin().unwrap();
    loser.update(&items, &1, |item| item.value = 1).unwrap();
    on_threads(1, |_| database.transact(|tx| tx.update(&items, &1, |item| item.value = 2)))
        .into_iter()
        .for_each(|result| assert_eq!(result.unwrap(), Some(())));
    assert!(matches!(loser.commit(), Err(Error::Conflict(_))));
    let history = database.take_history();
    assert_eq!(
        outline(&history),
        [
            (Status::Committed, &[read(1, None), write(1, 1)][..]),
            (Status::Aborted, &[read(1, 1), write(1, 3)]),
            (Status::Committed, &[read(1, 1), write(1, 2)]),
        ]
    );
    let sessions: Vec<u32> = history.transactions.iter().map(|ended| ended.session).collect();
    assert_eq!(sessions, [0, 0, 1]);
}

/// A commit by columns relies on the present versions of rows. So the history has these, and not those that were read.
#[test]
fn accesses_by_columns_have_the_versions_that_were_validated() {
    #[derive(Clone, Record)]
    #[record(table = "items")]
    struct Pair {
        #[record(key)]
        id: u32,
        one: u64,
        other: u64,
    }
    for_each_executor!(
        [Dbx, DbxSpin, Silo, Occ, Htcc, Doppel, DbxTc, Adaptive] | P | {
            let builder = Database::builder().protocol::<P>().table::<Pair>();
            let database = builder.record_history(true).open().expect("opens");
            let pairs = database.table::<Pair>().expect("registered");
            let filled: Result<(), Error> = database.transact(|tx| {
                [1, 2]
                    .into_iter()
                    .try_for_each(|id| tx.insert(&pairs, Pair { id, one: 0, other: 0 }))
            });
            filled.unwrap();
            let moved = database.begin().unwrap();
            assert_eq!(moved.get_columns(&pairs, &1, column_of!(Pair.one)).unwrap(), Some(&0));
            assert_eq!(moved.range(&pairs, ..).count_rows().unwrap(), 2);
            moved.update_columns(&pairs, &2, column_of!(Pair.one), |one| *one += 1).unwrap();
            let changed = on_threads(1, |_| {
                database.transact(|tx| {
                    [1, 2]
                        .into_iter()
                        .try_for_each(|id| tx.update(&pairs, &id, |pair| pair.other += 1).map(drop))
                })
            });
            changed.into_iter().for_each(|result: Result<(), Error>| result.unwrap());
            moved.commit().unwrap();
            let history = database.take_history();
            let counted = scan(Unbounded, Unbounded, &[(1, 3), (2, 4)]);
            assert_eq!(
                outline(&history)[1..],
                [
                    (Status::Committed, &[read(1, 3), counted, read(2, 4), write(2, 5)][..]),
                    (Status::Committed, &[read(1, 1), write(1, 3), read(2, 2), write(2, 4)]),
                ],
                "{}",
                P::NAME
            );
        }
    );
}

#[test]
fn scans_cover_exactly_what_was_read() {
    fn run<P: Protocol>() -> Result<(), Error> {
        if !takes_many::<P>() {
            return Ok(());
        }
        let Recorded { database, items } = open::<P>();
        database.transact(|tx| {
            (1..=5).try_for_each(|n| tx.insert(&items, Item { id: 10 * n, value: 0 }))
        })?;
        let scanned = |range: (Bound<u32>, Bound<u32>), descending: bool, rows: usize| {
            database.transact(|tx| {
                let scan = tx.range(&items, range);
                let scan = if descending { scan.descending() } else { scan };
                scan.take(rows).try_for_each(|row| row.map(|_| ()))
            })?;
            Ok::<_, Error>(last(&database.take_history()).to_vec())
        };
        // Each scan's history is taken separately, so all rows are older than it and have version 0.
        database.take_history();
        const ALL: usize = usize::MAX;
        let all = scanned((Unbounded, Unbounded), false, ALL)?;
        let rows = [(10, 0), (20, 0), (30, 0), (40, 0), (50, 0)];
        assert_eq!(all, [scan(Unbounded, Unbounded, &rows)]);
        let two = scanned((Included(5), Unbounded), false, 2)?;
        assert_eq!(two, [scan(Included(5), Included(20), &rows[..2])]);
        let two_down = scanned((Included(5), Excluded(50)), true, 2)?;
        assert_eq!(two_down, [scan(Included(30), Excluded(50), &[(40, 0), (30, 0)])]);
        let gap = scanned((Excluded(10), Excluded(20)), false, ALL)?;
        assert_eq!(gap, [scan(Excluded(10), Excluded(20), &[])]);
        assert_eq!(scanned((Excluded(10), Included(10)), false, ALL)?, [], "nothing is read");
        assert_eq!(scanned((Unbounded, Unbounded), false, 0)?, [], "nothing is read");
        // The scan stops at the fifth row, before it knows that this is the last one.
        let five = scanned((Unbounded, Unbounded), false, 5)?;
        assert_eq!(five, [scan(Unbounded, Included(50), &rows)]);
        Ok(())
    }
    for_each_executor!(|P| run::<P>().unwrap());
}

#[test]
fn own_writes_divide_a_scan() {
    fn run<P: Protocol>() -> Result<(), Error> {
        if !takes_many::<P>() {
            return Ok(());
        }
        let Recorded { database, items } = open::<P>();
        database.transact(|tx| {
            (1..=4).try_for_each(|n| tx.insert(&items, Item { id: 10 * n, value: 0 }))
        })?;
        database.take_history();
        database.transact(|tx| {
            let mut scan = tx.range(&items, 5..=45);
            assert_eq!(scan.next().transpose()?.expect("there").id, 10);
            // A read does not end the scan's part.
            tx.get(&items, &40)?;
            assert_eq!(scan.next().transpose()?.expect("there").id, 20);
            tx.delete(&items, &30)?;
            tx.delete(&items, &10)?;
            assert_eq!(scan.next().transpose()?.expect("there").id, 40);
            // The scan does not show this row, because it has read the leaf already.
            tx.insert(&items, Item { id: 45, value: 0 })?;
            assert_eq!(scan.next().transpose()?, None);
            Ok::<_, Error>(())
        })?;
        assert_eq!(
            last(&database.take_history()),
            [
                scan(Included(5), Included(20), &[(10, 0), (20, 0)]),
                read(40, 0),
                read(30, 0),
                delete(30, 1),
                read(10, 0),
                delete(10, 2),
                // The scan does not show 30, which was deleted. The gap still ends at 30, because the recorder
                // does not ask whether the scan passed 30 before or after its deletion.
                scan(Excluded(20), Excluded(30), &[]),
                scan(Excluded(30), Included(40), &[(40, 0)]),
                read(45, None),
                write(45, 3),
                scan(Excluded(40), Excluded(45), &[]),
            ]
        );
        // Writes before the scan began do not divide it.
        database.transact(|tx| {
            tx.insert(&items, Item { id: 30, value: 0 })?;
            tx.delete(&items, &20)?;
            tx.range(&items, 15..35).descending().try_for_each(|row| row.map(|_| ()))
        })?;
        assert_eq!(
            last(&database.take_history()),
            [
                read(30, None),
                write(30, 1),
                read(20, 0),
                delete(20, 2),
                scan(Included(15), Excluded(35), &[(30, 1)]),
            ]
        );
        Ok(())
    }
    for_each_executor!(|P| run::<P>().unwrap());
}

#[test]
fn a_prefix_is_the_range_of_its_continuations() {
    let (database, people) = people::<weft::protocol::Dbx>();
    database.transact(|tx| tx.insert(&people, person(-3, "Ada", 1))).unwrap();
    database.take_history();
    let scan = |tx: &weft::Transaction<'_>| {
        tx.prefix(&people, &"Ulm".to_owned()).try_for_each(|row| row.map(|_| ()))
    };
    database.transact(scan).unwrap();
    let text = |text: &str| HistoryKey::Tuple(vec![HistoryKey::Text(text.into())]);
    let expected = Operation::Scan {
        table: "people".into(),
        from: Included(text("Ulm")),
        to: Excluded(text("Ulm\0")),
        rows: vec![(ulm(-3), 0)],
    };
    assert_eq!(last(&database.take_history()), [expected]);
}

/// Returns the operations on one table.
fn on<'h>(table: &str, operations: &'h [Operation]) -> Vec<&'h Operation> {
    let is_on = |operation: &&Operation| match operation {
        Operation::Read { table: its, .. }
        | Operation::Write { table: its, .. }
        | Operation::Delete { table: its, .. }
        | Operation::Scan { table: its, .. } => **its == *table,
    };
    operations.iter().filter(is_on).collect()
}

#[test]
fn a_secondary_index_is_a_table_of_its_own() {
    fn run<P: Protocol>() -> Result<(), Error> {
        if !takes_many::<P>() {
            return Ok(());
        }
        let (database, people) = people::<P>();
        let phone = |phone: u32| HistoryKey::Text(format!("{:016x}", u64::from(phone) << 32));
        database.transact(|tx| {
            tx.insert(&people, person(1, "Ada", 5))?;
            tx.insert(&people, person(2, "Bob", 6))
        })?;
        let history = database.take_history();
        let version = |table: &str, key: &HistoryKey| {
            let found = last(&history).iter().find_map(|operation| match operation {
                Operation::Write { table: its, key: its_key, version }
                    if **its == *table && its_key == key =>
                {
                    Some(*version)
                }
                _ => None,
            });
            found.expect("was written")
        };
        let numbers = [ulm(1), ulm(2)].map(|key| version("people", &key));
        let numbers = [numbers[0], numbers[1], version("people.by_phone", &phone(5))];
        assert_eq!(
            numbers,
            [1, 4, 3],
            "each person takes three writes: the row and two index entries"
        );

        // The first update moves the row to another entry. The second is refused, because that entry exists.
        database.transact(|tx| tx.update(&people, &("Ulm".into(), 1), |ada| ada.phone = 7))?;
        let refused = database
            .transact(|tx| tx.update(&people, &("Ulm".into(), 1), |ada| ada.phone = 6).map(|_| ()));
        assert!(matches!(refused, Err(Error::Failure(Failure::DuplicateKey { .. }))));
        let table = "people.by_phone";
        let history = database.take_history();
        let [moved, refused] = &history.transactions[..] else { panic!("two: {history:?}") };
        let read = |key, version| Operation::Read { table: table.into(), key, version };
        assert_eq!(
            on(table, &moved.operations),
            [
                &read(phone(7), None),
                &Operation::Write { table: table.into(), key: phone(7), version: 1 },
                &read(phone(5), Some(0)),
                &Operation::Delete { table: table.into(), key: phone(5), version: 2 },
            ]
        );
        let row = Operation::Write { table: "people".into(), key: ulm(1), version: 3 };
        assert_eq!(on("people", &moved.operations)[1..], [&row]);
        assert_eq!(on(table, &refused.operations), [&read(phone(6), Some(0))]);
        assert_eq!(refused.status, Status::RolledBack);

        // A scan records entries and rows. A look-up in a unique index records a scan that ends at the entry it
        // finds.
        database.transact(|tx| {
            let rows =
                tx.range_by(&people, Person::BY_PHONE, 6..9).collect::<Result<Vec<_>, _>>()?;
            assert_eq!(rows.len(), 2);
            assert!(tx.get_by(&people, Person::BY_PHONE, &7)?.is_some());
            assert!(tx.get_by(&people, Person::BY_PHONE, &5)?.is_none());
            Ok::<_, Error>(())
        })?;
        let history = database.take_history();
        let scan = |from, to, rows: &[u32]| Operation::Scan {
            table: table.into(),
            from,
            to,
            rows: rows.iter().map(|&number| (phone(number), 0)).collect(),
        };
        let end = |number: u32| HistoryKey::Text(format!("{:08x}ffffffff", number));
        assert_eq!(
            on(table, last(&history)),
            [
                &scan(Included(phone(6)), Excluded(phone(9)), &[6, 7]),
                &scan(Included(phone(7)), Included(phone(7)), &[7]),
                &scan(Included(phone(5)), Included(end(5)), &[]),
            ]
        );
        let rows = on("people", last(&history));
        let row =
            |number| Operation::Read { table: "people".into(), key: ulm(number), version: Some(0) };
        assert_eq!(rows, [&row(2), &row(1), &row(1)]);
        Ok(())
    }
    for_each_executor!(|P| run::<P>().unwrap());
}

#[test]
fn a_refused_insert_is_written_and_deleted() {
    let (database, people) = people::<weft::protocol::Dbx>();
    database.transact(|tx| tx.insert(&people, person(1, "Ada", 5))).unwrap();
    database.take_history();
    database
        .transact(|tx| {
            assert!(tx.insert(&people, person(2, "Bob", 5)).is_err());
            assert_eq!(tx.get(&people, &("Ulm".into(), 2))?, None);
            Ok::<_, Error>(())
        })
        .unwrap();
    let history = database.take_history();
    let table = || "people".into();
    let absent = Operation::Read { table: table(), key: ulm(2), version: None };
    assert_eq!(
        on("people", last(&history)),
        [
            &absent,
            &Operation::Write { table: table(), key: ulm(2), version: 1 },
            &Operation::Delete { table: table(), key: ulm(2), version: 4 },
            &absent,
        ]
    );
}

#[test]
#[should_panic(expected = "record_history(true)")]
fn a_history_that_was_not_recorded_cannot_be_taken() {
    Database::builder().table::<Item>().open().unwrap().take_history();
}

// ---- several threads --------------------------------------------------------------------------

/// Returns a value that identifies the step that wrote it: no other step writes the same value.
fn unique(thread: usize, step: usize) -> u64 {
    (thread as u64 + 1) << 32 | step as u64
}

const IDS: u32 = 6;

/// What a thread observed itself, without the recorder: for each committed replacement the row's key, the value
/// that was replaced, and the value that was written.
type Replacements = Vec<(u32, Option<u64>, u64)>;

fn contend<P: Protocol>(recorded: &Recorded<P>, seed: &Seed, steps: usize) -> Replacements {
    let Recorded { database, items } = recorded;
    let work = |thread: usize| {
        let mut random = seed.random(thread);
        let mut replaced = Vec::new();
        for step in 0..steps {
            let (id, value) = (random.u32(..IDS), unique(thread, step));
            let what = random.u32(..6);
            let replacement = database.transact(|tx| match what {
                0 if takes_many::<P>() => {
                    tx.range(items, id..).take(3).try_for_each(|row| row.map(|_| ()))?;
                    Ok(None)
                }
                1 => tx.delete(items, &id).map(|_| None),
                2 if takes_many::<P>() => {
                    let before = tx.get(items, &id)?.map(|item| item.value);
                    tx.upsert(items, Item { id, value })?;
                    Ok(Some((id, before, value)))
                }
                3 => match tx.insert(items, Item { id, value }) {
                    Ok(()) => Ok(Some((id, None, value))),
                    Err(Error::Failure(Failure::DuplicateKey { .. })) => Ok(None),
                    Err(error) => Err(error),
                },
                _ => {
                    let replace = |item: &mut Item| std::mem::replace(&mut item.value, value);
                    let before = tx.update(items, &id, replace)?;
                    Ok(before.map(|before| (id, Some(before), value)))
                }
            });
            replaced.extend(replacement.unwrap());
        }
        replaced
    };
    on_threads(threads::<P>(), work).into_iter().flatten().collect()
}

/// For each key, the committed versions in order: the version that each replaced, as its transaction has read it
/// (`None`: no row), and whether it is a row (or else a deletion).
type Versions = BTreeMap<HistoryKey, BTreeMap<u64, (Option<u64>, bool)>>;

fn committed_versions(history: &History) -> Versions {
    let mut versions = Versions::new();
    for transaction in &history.transactions {
        let mut seen = BTreeMap::new();
        for operation in &transaction.operations {
            let (key, version, is_row) = match operation {
                Operation::Read { key, version, .. } => {
                    seen.insert(key, *version);
                    continue;
                }
                Operation::Write { key, version, .. } => (key, *version, true),
                Operation::Delete { key, version, .. } => (key, *version, false),
                Operation::Scan { .. } => continue,
            };
            if transaction.status == Status::Committed {
                let replaced = seen[key];
                let before =
                    versions.entry(key.clone()).or_default().insert(version, (replaced, is_row));
                assert_eq!(before, None, "two writes of version {version}");
            }
        }
    }
    versions
}

#[test]
fn version_order_matches_the_rows() {
    fn run<P: Protocol>(seed: &Seed) {
        let recorded = open::<P>();
        let steps = 300 * stress();
        let replacements = contend(&recorded, seed, steps);
        let history = recorded.database.take_history();
        let versions = committed_versions(&history);
        // By the recorded reads, each version replaced the one before it.
        for (key, versions) in &versions {
            let mut newest = None;
            for (version, &(replaced, is_row)) in versions {
                assert_eq!(replaced, newest, "{key:?}, version {version}");
                newest = is_row.then_some(*version);
            }
        }
        // The rows themselves, which the recorder does not read, agree: from each insertion on, the values that threads
        // observed form a chain, and the recorded versions form chains of the same lengths.
        for id in 0..IDS {
            let own = || replacements.iter().filter(|replacement| replacement.0 == id);
            let by_replaced: BTreeMap<u64, u64> =
                own().filter_map(|&(_, before, value)| Some((before?, value))).collect();
            let mut chains: Vec<usize> = own()
                .filter(|replacement| replacement.1.is_none())
                .map(|&(_, _, first)| {
                    std::iter::successors(Some(first), |value| by_replaced.get(value).copied())
                        .count()
                })
                .collect();
            chains.sort_unstable();
            let empty = BTreeMap::new();
            let of_id = versions.get(&integer(id)).unwrap_or(&empty);
            let mut recorded = Vec::new();
            for &(replaced, is_row) in of_id.values() {
                match (replaced, is_row) {
                    (None, true) => recorded.push(1),
                    (Some(_), true) => *recorded.last_mut().expect("inserted before") += 1,
                    (_, false) => {}
                }
            }
            recorded.sort_unstable();
            assert_eq!(recorded, chains, "key {id}");
        }
        assert_times_and_scans(&history);
    }
    let seed = Seed::draw();
    for_each_executor!(|P| run::<P>(&seed));
}

/// Checks that a session runs one transaction at a time, that transactions are numbered without gaps, and that
/// each scan lists rows of its range, in order.
fn assert_times_and_scans(history: &History) {
    let mut ends = BTreeMap::new();
    for (id, transaction) in (1..).zip(&history.transactions) {
        assert_eq!(transaction.id, id);
        assert!(transaction.invoke_ns <= transaction.complete_ns);
        let end = ends.insert(transaction.session, transaction.complete_ns);
        assert!(end.unwrap_or(0) <= transaction.invoke_ns, "transactions of a session overlap");
        for operation in &transaction.operations {
            if let Operation::Scan { from, to, rows, .. } = operation {
                assert!(rows.is_sorted_by(|one, other| one.0 < other.0), "{operation:?}");
                let range = (from.clone(), to.clone());
                let inside =
                    |row: &(HistoryKey, u64)| std::ops::RangeBounds::contains(&range, &row.0);
                assert!(rows.iter().all(inside), "{operation:?}");
            }
        }
    }
}

#[test]
fn histories_of_ended_threads_are_kept() {
    let recorded = open::<weft::protocol::Dbx>();
    let seed = Seed::draw();
    for _ in 1..=3 {
        contend(&recorded, &seed, 20);
        let history = recorded.database.take_history();
        assert_times_and_scans(&history);
        assert!(committed(&history).count() >= 20 * threads::<weft::protocol::Dbx>());
    }
}

fn committed(history: &History) -> impl Iterator<Item = &Transaction> {
    history.transactions.iter().filter(|transaction| transaction.status == Status::Committed)
}

// ---- JSON -------------------------------------------------------------------------------------

fn lines(history: &History) -> Vec<serde_json::Value> {
    let mut out = Vec::new();
    history.write_json_lines(&mut out).expect("writing to memory succeeds");
    let text = String::from_utf8(out).expect("JSON is UTF-8");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("each line is a JSON value"))
        .collect()
}

#[test]
fn json_lines_are_as_documented() {
    use serde_json::json;
    let text = |text: &str| HistoryKey::Text(text.into());
    let strange = "a\"b\\c\n\u{1}\u{7f}é😀";
    let table = || -> std::sync::Arc<str> { "t.i".into() };
    let scan = |from, to, rows| Operation::Scan { table: table(), from, to, rows };
    let operations = vec![
        Operation::Read { table: table(), key: integer(-5), version: Some(0) },
        Operation::Read { table: table(), key: text(strange), version: None },
        Operation::Write { table: table(), key: ulm(7), version: 3 },
        Operation::Delete { table: table(), key: HistoryKey::Tuple(vec![]), version: 4 },
        scan(Unbounded, Unbounded, vec![]),
        scan(Included(integer(1)), Excluded(integer(2)), vec![(integer(1), 9)]),
        scan(Excluded(text("a")), Included(text("b")), vec![(text("b"), 1), (text("a\u{2}"), 2)]),
    ];
    let transaction = |id, status, operations| Transaction {
        id,
        session: 2,
        invoke_ns: 10,
        complete_ns: 11,
        status,
        operations,
    };
    let history = History {
        transactions: vec![
            transaction(1, Status::Committed, operations),
            transaction(2, Status::Aborted, vec![]),
            transaction(3, Status::RolledBack, vec![]),
        ],
    };
    let aborted = |id: u64| json!({"id": id, "session": 2, "invoke": 10, "complete": 11, "status": "aborted", "ops": []});
    assert_eq!(
        lines(&history),
        [
            json!({"format": "weft-history", "version": 1}),
            json!({"id": 1, "session": 2, "invoke": 10, "complete": 11, "status": "committed", "ops": [
                ["read", "t.i", -5, 0],
                ["read", "t.i", strange, null],
                ["write", "t.i", ["Ulm", 7], 3],
                ["delete", "t.i", [], 4],
                ["scan", "t.i", {}, []],
                ["scan", "t.i", {"from": 1, "to": 2}, [[1, 9]]],
                ["scan", "t.i", {"after": "a", "through": "b"}, [["b", 1], ["a\u{2}", 2]]],
            ]}),
            aborted(2),
            aborted(3),
        ]
    );
}

#[test]
fn a_recorded_history_has_a_line_for_each_transaction() {
    let recorded = open::<weft::protocol::Dbx>();
    contend(&recorded, &Seed::draw(), 20);
    let history = recorded.database.take_history();
    let lines = lines(&history);
    assert_eq!(lines.len(), history.transactions.len() + 1);
    for (line, transaction) in lines[1..].iter().zip(&history.transactions) {
        assert_eq!(line["id"], transaction.id);
        assert_eq!(line["ops"].as_array().map(Vec::len), Some(transaction.operations.len()));
    }
}
