//! Tests of operations that a commit applies again, since another transaction has changed their rows in the meantime.
//! Each transaction here runs beside another one, which commits in the middle of the first attempt.

use std::cell::Cell;
use std::thread::scope;

use weft::operation::{BoundedSet, Ordered, TopK};
use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Record, Table, Transaction, Violation, column_of};
use weft_protocols::with_protocol;

/// The protocols that apply operations again.
const REAPPLYING: [&str; 4] = ["dbx", "silo", "occ", "dbx-spin"];

#[derive(Clone, Debug, PartialEq, Record)]
#[record(check = Page::check_score)]
struct Page {
    #[record(key)]
    id: u32,
    likes: u8,
    score: i64,
    #[record(index)]
    rank: i64,
    title: String,
    last_like: Ordered<i64, u32>,
    top: TopK<i64, u32, 3>,
    tags: BoundedSet<u16, 4>,
}

impl Page {
    fn new(id: u32) -> Page {
        Page {
            id,
            likes: 100,
            score: 10,
            rank: 0,
            title: "first".to_owned(),
            last_like: Ordered::default(),
            top: TopK::default(),
            tags: BoundedSet::default(),
        }
    }

    fn check_score(&self) -> Result<(), Violation> {
        if self.score > 1000 { Err("a score is at most 1000".into()) } else { Ok(()) }
    }
}

fn tags<const N: usize>(tags: [u16; N]) -> BoundedSet<u16, 4> {
    BoundedSet::of(tags).expect("there are few")
}

/// A database with two pages, 1 and 2.
struct Store<P: Protocol> {
    database: Database<P>,
    pages: Table<Page>,
}

/// How a transaction has ended that ran beside another one.
struct Ended {
    result: Result<(), Error>,
    /// How often its closure has run.
    runs: u32,
    aborted: u64,
    reapplied: u64,
}

impl Ended {
    /// Asserts that the transaction has committed at once, after it has applied its operations again.
    fn expect_reapplied(self, protocol: &str) {
        self.result.expect("the transaction commits");
        assert_eq!((self.runs, self.aborted, self.reapplied), (1, 0, 1), "{protocol}");
    }

    /// Asserts that the transaction was run again.
    fn expect_run_again(self, protocol: &str) {
        self.result.expect("the transaction commits");
        assert_eq!((self.runs, self.aborted, self.reapplied), (2, 1, 0), "{protocol}");
    }
}

impl<P: Protocol> Store<P> {
    fn open() -> Self {
        let database: Database<P> =
            Database::builder().protocol::<P>().table::<Page>().open().expect("it opens");
        let pages = database.table::<Page>().expect("the table is registered");
        let store = Store { database, pages };
        store.commit(|tx, pages| {
            tx.insert(pages, Page::new(1))?;
            tx.insert(pages, Page::new(2))
        });
        store
    }

    fn commit(&self, body: impl Fn(&Transaction<'_, P>, &Table<Page>) -> Result<(), Error>) {
        self.database.transact(|tx| body(tx, &self.pages)).expect("the transaction commits");
    }

    fn page(&self, id: u32) -> Page {
        let read: Result<_, Error> = self.database.transact(|tx| tx.get(&self.pages, &id).cloned());
        read.expect("a read commits").expect("the page is there")
    }

    /// Runs `own` as a transaction. In its first attempt `other` commits where `own` calls its last argument.
    fn beside(
        &self,
        other: impl Fn(&Transaction<'_, P>, &Table<Page>) -> Result<(), Error> + Sync,
        own: impl Fn(&Transaction<'_, P>, &Table<Page>, &dyn Fn()) -> Result<(), Error>,
    ) -> Ended {
        let before = self.database.metrics();
        let runs = Cell::new(0);
        let result = self.database.transact(|tx| {
            runs.set(runs.get() + 1);
            own(tx, &self.pages, &|| {
                if runs.get() == 1 {
                    scope(|scope| {
                        scope.spawn(|| self.commit(&other));
                    });
                }
            })
        });
        let after = self.database.metrics();
        let aborted = after.aborted_total() - before.aborted_total();
        Ended { result, runs: runs.get(), aborted, reapplied: after.reapplied - before.reapplied }
    }
}

/// As `Option::cloned`, inside a result.
trait Cloned<T> {
    fn cloned(self) -> Result<Option<T>, Error>;
}

impl<T: Clone> Cloned<T> for Result<Option<&T>, Error> {
    fn cloned(self) -> Result<Option<T>, Error> {
        self.map(Option::<&T>::cloned)
    }
}

macro_rules! each_protocol {
    ($run:ident) => {
        for name in REAPPLYING {
            with_protocol!(name, |P| $run::<P>());
        }
    };
}

#[test]
fn adders_do_not_abort_each_other() {
    fn run<P: Protocol>() {
        let store = Store::<P>::open();
        let ended = store.beside(
            |tx, pages| tx.add(pages, &1, column_of!(Page.likes), 7),
            |tx, pages, other| {
                tx.add(pages, &1, column_of!(Page.likes), 1)?;
                other();
                Ok(())
            },
        );
        ended.expect_reapplied(P::NAME);
        assert_eq!(store.page(1).likes, 108, "{}", P::NAME);
    }
    each_protocol!(run);
}

#[test]
fn operations_go_on_top_of_an_update_of_the_whole_row() {
    fn run<P: Protocol>() {
        let store = Store::<P>::open();
        let ended = store.beside(
            |tx, pages| {
                let updated = tx.update(pages, &1, |page| {
                    (page.title, page.score, page.rank) = ("second".to_owned(), 5, 9);
                    page.tags = tags([8]);
                })?;
                updated.expect("the page is there");
                Ok(())
            },
            |tx, pages, other| {
                tx.add(pages, &1, column_of!(Page.score), 1)?;
                tx.ordered_put(pages, &1, column_of!(Page.last_like), 4, 40)?;
                tx.top_k_insert(pages, &1, column_of!(Page.top), 6, 60)?;
                other();
                tx.mul(pages, &1, column_of!(Page.score), 2)?;
                tx.union(pages, &1, column_of!(Page.tags), tags([3]))?;
                tx.min(pages, &2, column_of!(Page.score), -3)
            },
        );
        ended.expect_reapplied(P::NAME);
        let page = store.page(1);
        assert_eq!((page.title.as_str(), page.score, page.rank), ("second", 12, 9), "{}", P::NAME);
        assert_eq!((page.last_like.value(), page.top.values().next()), (Some(&40), Some(&60)));
        assert!(page.tags.elements().eq(&[3, 8]), "{}", P::NAME);
        assert_eq!(store.page(2).score, -3);
        // The index leads to the row with the other transaction's rank.
        let ranked: Result<Vec<_>, Error> = store.database.transact(|tx| {
            tx.prefix_by(&store.pages, Page::RANK, &9).map(|page| Ok(page?.score)).collect()
        });
        assert_eq!(ranked.expect("a scan commits"), [12], "{}", P::NAME);
    }
    each_protocol!(run);
}

#[test]
fn operations_on_several_rows_are_applied_again_together() {
    fn run<P: Protocol>() {
        let store = Store::<P>::open();
        let ended = store.beside(
            |tx, pages| {
                tx.add(pages, &1, column_of!(Page.likes), 2)?;
                tx.add(pages, &2, column_of!(Page.likes), 3)
            },
            |tx, pages, other| {
                tx.add(pages, &2, column_of!(Page.likes), 10)?;
                tx.add(pages, &1, column_of!(Page.likes), 20)?;
                tx.insert(pages, Page::new(3))?;
                other();
                Ok(())
            },
        );
        ended.expect_reapplied(P::NAME);
        let likes = [1, 2, 3].map(|id| store.page(id).likes);
        assert_eq!(likes, [122, 113, 100], "{}", P::NAME);
    }
    each_protocol!(run);
}

#[test]
fn overflow_at_the_commit_is_the_error_of_the_operation() {
    fn run<P: Protocol>() {
        let store = Store::<P>::open();
        let add_100 = |tx: &Transaction<'_, P>, pages: &Table<Page>, other: &dyn Fn()| {
            tx.add(pages, &2, column_of!(Page.likes), 1)?;
            tx.add(pages, &1, column_of!(Page.likes), 100)?;
            other();
            Ok(())
        };
        let ended =
            store.beside(|tx, pages| tx.add(pages, &1, column_of!(Page.likes), 60), add_100);
        assert_eq!((ended.runs, ended.aborted, ended.reapplied), (2, 1, 0), "{}", P::NAME);
        match ended.result {
            Err(Error::Failure(Failure::OutOfRange { message, .. })) => {
                assert_eq!(message, "160 + 100 is no u8", "{}", P::NAME);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!([1, 2].map(|id| store.page(id).likes), [160, 100], "{}", P::NAME);
        // There is room again.
        store.commit(|tx, pages| tx.min(pages, &1, column_of!(Page.likes), 0));
        let ended = store.beside(|tx, pages| tx.add(pages, &1, column_of!(Page.likes), 1), add_100);
        ended.expect_reapplied(P::NAME);
        assert_eq!(store.page(1).likes, 101, "{}", P::NAME);
    }
    each_protocol!(run);
}

#[test]
fn broken_constraint_at_the_commit_is_the_error_of_the_operation() {
    fn run<P: Protocol>() {
        let store = Store::<P>::open();
        let ended = store.beside(
            |tx, pages| tx.add(pages, &1, column_of!(Page.score), 900),
            |tx, pages, other| {
                tx.add(pages, &1, column_of!(Page.score), 500)?;
                other();
                Ok(())
            },
        );
        assert!(
            matches!(ended.result, Err(Error::Failure(Failure::Constraint { .. }))),
            "{:?} under {}",
            ended.result,
            P::NAME
        );
        assert_eq!(store.page(1).score, 910, "{}", P::NAME);
    }
    each_protocol!(run);
}

#[test]
fn row_deleted_before_the_commit_is_missing() {
    fn run<P: Protocol>() {
        let store = Store::<P>::open();
        let add = |tx: &Transaction<'_, P>, pages: &Table<Page>, other: &dyn Fn()| {
            tx.add(pages, &1, column_of!(Page.likes), 1)?;
            other();
            Ok(())
        };
        let ended = store.beside(|tx, pages| tx.delete(pages, &1).map(drop), add);
        assert_eq!((ended.runs, ended.aborted), (2, 1), "{}", P::NAME);
        assert!(
            matches!(ended.result, Err(Error::Failure(Failure::NoSuchRow { .. }))),
            "{:?} under {}",
            ended.result,
            P::NAME
        );
        // If the row is deleted and inserted again, the operation applies to the new row.
        let ended = store.beside(
            |tx, pages| {
                tx.delete(pages, &2)?;
                tx.insert(pages, Page { likes: 3, ..Page::new(2) })
            },
            |tx, pages, other| {
                tx.add(pages, &2, column_of!(Page.likes), 1)?;
                other();
                Ok(())
            },
        );
        ended.result.expect("the transaction commits");
        assert_eq!(store.page(2).likes, 4, "{}", P::NAME);
    }
    each_protocol!(run);
}

/// What a transaction does before and after the other one commits.
type Part<P> = fn(&Transaction<'_, P>, &Table<Page>) -> Result<(), Error>;

#[test]
fn transaction_that_depends_on_the_row_is_run_again() {
    fn run<P: Protocol>() {
        let add: Part<P> = |tx, pages| tx.add(pages, &1, column_of!(Page.likes), 1);
        let read: Part<P> = |tx, pages| tx.get(pages, &1).map(drop);
        let scan: Part<P> = |tx, pages| tx.range(pages, 0..5).try_for_each(|page| page.map(drop));
        let update: Part<P> = |tx, pages| tx.update(pages, &1, |page| page.score += 1).map(drop);
        let replace: Part<P> = |tx, pages| tx.upsert(pages, Page::new(1)).map(drop);
        let delete: Part<P> = |tx, pages| tx.delete(pages, &1).map(drop);
        let insert: Part<P> = |tx, pages| tx.insert(pages, Page::new(1)).or(Ok(()));
        let move_entry: Part<P> = |tx, pages| tx.add(pages, &1, column_of!(Page.rank), 1);
        let overflow: Part<P> =
            |tx, pages| tx.add(pages, &1, column_of!(Page.likes), 200).or(Ok(()));
        let parts: [(&str, &[Part<P>]); 13] = [
            ("read before", &[read, add]),
            ("scan before", &[scan, add]),
            ("read after", &[add, read]),
            ("scan after", &[add, scan]),
            ("read between", &[add, read, add]),
            ("update before", &[update, add]),
            ("update after", &[add, update]),
            ("update between", &[add, update, add]),
            ("replaced", &[add, replace, add]),
            ("deleted", &[add, delete]),
            ("duplicate", &[add, insert]),
            ("indexed column", &[add, move_entry]),
            ("overflow that is ignored", &[add, overflow]),
        ];
        for (name, parts) in parts {
            let store = Store::<P>::open();
            let ended = store.beside(
                |tx, pages| {
                    tx.add(pages, &1, column_of!(Page.likes), 60)?;
                    // Its entry moves, too.
                    tx.add(pages, &1, column_of!(Page.rank), 1)
                },
                |tx, pages, other| {
                    parts.iter().try_for_each(|part| part(tx, pages))?;
                    other();
                    Ok(())
                },
            );
            ended.expect_run_again(&format!("{name}, {}", P::NAME));
        }
    }
    each_protocol!(run);
}

#[test]
fn read_sees_the_operation_of_its_own_transaction() {
    fn run<P: Protocol>() {
        let store = Store::<P>::open();
        let seen = Cell::new([0; 2]);
        let ended = store.beside(
            |tx, pages| tx.add(pages, &1, column_of!(Page.likes), 50),
            |tx, pages, other| {
                tx.add(pages, &1, column_of!(Page.likes), 1)?;
                let first = tx.get(pages, &1)?.expect("the page is there").likes;
                tx.add(pages, &1, column_of!(Page.likes), 1)?;
                other();
                seen.set([first, tx.get(pages, &1)?.expect("the page is there").likes]);
                Ok(())
            },
        );
        ended.expect_run_again(P::NAME);
        assert_eq!((seen.get(), store.page(1).likes), ([151, 152], 152), "{}", P::NAME);
    }
    each_protocol!(run);
}

#[test]
fn conflict_in_another_row_is_a_conflict() {
    fn run<P: Protocol>() {
        let store = Store::<P>::open();
        let ended = store.beside(
            |tx, pages| {
                tx.add(pages, &1, column_of!(Page.likes), 5)?;
                tx.add(pages, &2, column_of!(Page.likes), 5)
            },
            |tx, pages, other| {
                let likes = tx.get(pages, &2)?.expect("the page is there").likes;
                tx.add(pages, &1, column_of!(Page.likes), likes)?;
                other();
                Ok(())
            },
        );
        ended.expect_run_again(P::NAME);
        assert_eq!(store.page(1).likes, 210, "{}", P::NAME);
    }
    each_protocol!(run);
}

#[test]
fn snapshot_keeps_what_an_operation_applied_again_has_replaced() {
    fn run<P: Protocol>() {
        let store = Store::<P>::open();
        let snapshot = Cell::new(None);
        let ended = store.beside(
            |tx, pages| tx.add(pages, &1, column_of!(Page.likes), 7),
            |tx, pages, other| {
                tx.add(pages, &1, column_of!(Page.likes), 1)?;
                other();
                scope(|scope| {
                    let opened = scope.spawn(|| store.database.open_snapshot());
                    snapshot.set(Some(opened.join().expect("no panic").expect("it opens")));
                });
                Ok(())
            },
        );
        ended.expect_reapplied(P::NAME);
        let snapshot = snapshot.take().expect("it was opened");
        let seen = snapshot.get(&store.pages, &1).expect("no failure").expect("a page").likes;
        assert_eq!((seen, store.page(1).likes), (107, 108), "{}", P::NAME);
    }
    each_protocol!(run);
}

#[test]
fn panic_of_a_row_at_the_commit_rolls_back() {
    #[derive(Debug, Record)]
    struct Fragile {
        #[record(key)]
        id: u32,
        sum: i64,
        owned: String,
    }
    thread_local!(static CLONES_LEFT: Cell<u32> = const { Cell::new(u32::MAX) });
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            let left = CLONES_LEFT.get().checked_sub(1).expect("no clones are left");
            CLONES_LEFT.set(left);
            Fragile { owned: self.owned.clone(), ..*self }
        }
    }
    fn run<P: Protocol>() {
        let database: Database<P> =
            Database::builder().protocol::<P>().table::<Fragile>().open().expect("it opens");
        let rows = database.table::<Fragile>().expect("the table is registered");
        let row = || Fragile { id: 1, sum: 0, owned: "owned".repeat(20) };
        let inserted: Result<(), Error> = database.transact(|tx| tx.insert(&rows, row()));
        inserted.expect("the table is empty");
        let add = |tx: &Transaction<'_, P>| tx.add(&rows, &1, column_of!(Fragile.sum), 1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            database.transact(|tx| {
                CLONES_LEFT.set(1);
                add(tx)?;
                scope(|scope| scope.spawn(|| database.transact(add)).join()).expect("no panic")
            })
        }));
        CLONES_LEFT.set(u32::MAX);
        assert!(panicked.is_err(), "{}", P::NAME);
        let added: Result<(), Error> = database.transact(add);
        added.expect("the row is not locked");
        let sum: Result<_, Error> =
            database.transact(|tx| Ok(tx.get(&rows, &1)?.map(|row| row.sum)));
        assert_eq!(sum.expect("a read commits"), Some(2), "{}", P::NAME);
    }
    each_protocol!(run);
}

/// An operation of a random transaction.
#[derive(Clone, Copy, Debug)]
enum Random {
    Add(u32, i64),
    Mul(u32, i64),
    Max(u32, i64),
    Min(u32, i64),
    Put(u32, i64, u32),
    Insert(u32, i64, u32),
    Union(u32, u16),
}

impl Random {
    fn draw(random: &mut fastrand::Rng) -> Self {
        let (id, number) = (random.u32(1..3), random.i64(-9..10));
        match random.u8(0..7) {
            0 => Random::Add(id, number),
            // The score stays within its constraint.
            1 => Random::Mul(id, number % 2),
            2 => Random::Max(id, number),
            3 => Random::Min(id, number),
            // Orders differ, since the number of the worker decides between equal ones.
            4 => Random::Put(id, random.i64(..), random.u32(..)),
            5 => Random::Insert(id, random.i64(..), random.u32(..)),
            _ => Random::Union(id, random.u16(0..4)),
        }
    }

    fn run<P: Protocol>(self, tx: &Transaction<'_, P>, pages: &Table<Page>) -> Result<(), Error> {
        let score = column_of!(Page.score);
        match self {
            Random::Add(id, number) => tx.add(pages, &id, score, number),
            Random::Mul(id, number) => tx.mul(pages, &id, score, number),
            Random::Max(id, number) => tx.max(pages, &id, score, number),
            Random::Min(id, number) => tx.min(pages, &id, score, number),
            Random::Put(id, order, value) => {
                tx.ordered_put(pages, &id, column_of!(Page.last_like), order, value)
            }
            Random::Insert(id, order, value) => {
                tx.top_k_insert(pages, &id, column_of!(Page.top), order, value)
            }
            Random::Union(id, tag) => tx.union(pages, &id, column_of!(Page.tags), tags([tag])),
        }
    }
}

#[test]
fn random_operations_have_the_outcome_of_a_serial_order() {
    fn run<P: Protocol>() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (store, serial) = (Store::<P>::open(), Store::<P>::open());
            for _ in 0..4 {
                let [own, others] =
                    [(); 2].map(|()| Vec::from_iter((0..6).map(|_| Random::draw(&mut random))));
                let at = random.usize(0..=own.len());
                let run = |part: &[Random], tx: &Transaction<'_, P>, pages: &Table<Page>| {
                    part.iter().try_for_each(|operation| operation.run(tx, pages))
                };
                let ended = store.beside(
                    |tx, pages| run(&others, tx, pages),
                    |tx, pages, other| {
                        run(&own[..at], tx, pages)?;
                        other();
                        run(&own[at..], tx, pages)
                    },
                );
                ended.result.expect("the transaction commits");
                assert_eq!((ended.runs, ended.aborted), (1, 0), "seed {seed}, {}", P::NAME);
                serial.commit(|tx, pages| run(&others, tx, pages));
                serial.commit(|tx, pages| run(&own, tx, pages));
            }
            for id in 1..3 {
                let [page, expected] = [&store, &serial].map(|store| store.page(id));
                assert_eq!(page.last_like.value(), expected.last_like.value(), "seed {seed}");
                assert!(page.top.values().eq(expected.top.values()), "seed {seed}, {}", P::NAME);
                assert!(page.tags.elements().eq(expected.tags.elements()), "seed {seed}");
                assert_eq!(page.score, expected.score, "seed {seed}, {}", P::NAME);
            }
        }
    }
    each_protocol!(run);
}
