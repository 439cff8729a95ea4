//! Tests of how rows are found: by borrowed keys, by the beginning of a text, page by page, from either end, and how
//! they are counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use arrayvec::{ArrayString, ArrayVec};
use proptest::prelude::*;
use weft::protocol::{Dbx, Protocol};
use weft::{Database, Error, Record, Snapshot, Table, Transaction};
use weft_tests::{Seed, TemporaryDirectory, for_each_executor};

/// Counts the allocations of each thread.
struct CountingAllocator;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: passed on to the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Runs `work`, and returns how often it has allocated.
fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(index(name = by_town, columns(town)), index(name = by_badge, columns(badge), unique))]
struct Person {
    #[record(key)]
    name: String,
    town: String,
    badge: Vec<u8>,
    age: u32,
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Grade {
    #[record(key)]
    pupil: String,
    #[record(key)]
    year: u16,
    #[record(key)]
    subject: Option<String>,
    grade: u8,
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(storage = "hash")]
struct Blob {
    #[record(key)]
    name: Vec<u8>,
    number: u32,
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Code {
    #[record(key)]
    code: ArrayString<4>,
    number: u32,
}

struct School<P: Protocol> {
    database: Database<P>,
    people: Table<Person>,
    grades: Table<Grade>,
    blobs: Table<Blob>,
    codes: Table<Code>,
}

fn person(name: &str, town: &str, age: u32) -> Person {
    Person { name: name.into(), town: town.into(), badge: name.bytes().rev().collect(), age }
}

impl<P: Protocol> School<P> {
    fn new() -> Self {
        let database = Database::builder()
            .protocol::<P>()
            .table::<Person>()
            .table::<Grade>()
            .table::<Blob>()
            .table::<Code>()
            .open()
            .unwrap();
        let school = School {
            people: database.table().unwrap(),
            grades: database.table().unwrap(),
            blobs: database.table().unwrap(),
            codes: database.table().unwrap(),
            database,
        };
        let filled: Result<(), Error> = school.database.transact(|tx| {
            for (name, town) in [("Ada", "Ulm"), ("Adam", "Bonn"), ("Bob", "Ulm")] {
                tx.insert(&school.people, person(name, town, 30))?;
                for year in [1, 2] {
                    for subject in [None, Some("art")] {
                        let (pupil, subject) = (name.to_owned(), subject.map(str::to_owned));
                        let grade = Grade { pupil, year, subject, grade: year as u8 };
                        tx.insert(&school.grades, grade)?;
                    }
                }
                tx.insert(&school.blobs, Blob { name: name.into(), number: 7 })?;
            }
            for (code, number) in [("", 0), ("ab", 1), ("ab\0", 2), ("abcd", 3)] {
                tx.insert(&school.codes, Code { code: code.try_into().unwrap(), number })?;
            }
            Ok(())
        });
        filled.unwrap();
        school
    }
}

#[test]
fn rows_are_found_and_changed_by_borrowed_keys() {
    fn check<P: Protocol>() {
        let school = School::<P>::new();
        let School { database, people, grades, blobs, codes } = &school;
        let checked: Result<(), Error> = database.transact(|tx| {
            assert_eq!(tx.get(people, "Ada")?.map(|row| row.age), Some(30));
            assert_eq!(tx.get(people, "Ad")?, None);
            assert_eq!(tx.get(people, &"Ada".to_owned())?, tx.get(people, "Ada")?);
            assert!(tx.contains(people, "Bob")? && !tx.contains(people, "Eve")?);
            assert_eq!(tx.update(people, "Bob", |row| row.age = 31)?, Some(()));
            assert_eq!(tx.get(people, "Bob")?.map(|row| row.age), Some(31));
            assert!(tx.delete(people, "Adam")?);
            assert!(!tx.delete(people, "Adam")?);
            assert_eq!(
                tx.get_by(people, Person::BY_BADGE, b"adA")?.map(|row| &*row.name),
                Some("Ada")
            );
            assert_eq!(tx.get_by(people, Person::BY_BADGE, &b"adA"[..1])?, None);

            assert_eq!(tx.get(grades, ("Ada", 2, Some("art")))?.map(|row| row.grade), Some(2));
            assert_eq!(tx.get(grades, ("Ada", 2, None::<&str>))?.map(|row| row.grade), Some(2));
            assert_eq!(tx.get(grades, ("Ada", 3, None::<&str>))?, None);
            let (pupil, subject) = ("Bob".to_owned(), Some("art".to_owned()));
            assert!(tx.get(grades, (&pupil, 1, subject.clone()))?.is_some());
            assert!(tx.get(grades, &(pupil, 1, subject))?.is_some());
            assert_eq!(tx.update(grades, ("Ada", 1, Some("art")), |row| row.grade = 6)?, Some(()));
            assert!(tx.delete(grades, ("Ada", 1, Some("art")))?);

            assert_eq!(tx.get(blobs, b"Ada")?.map(|row| row.number), Some(7));
            assert_eq!(tx.get(blobs, "Bob".as_bytes())?.map(|row| row.number), Some(7));
            assert_eq!(tx.get(blobs, &b"Bob".to_vec())?.map(|row| row.number), Some(7));

            for (code, number) in
                [("", Some(0)), ("ab", Some(1)), ("ab\0", Some(2)), ("abcd", Some(3))]
            {
                assert_eq!(tx.get(codes, code)?.map(|row| row.number), number, "{code:?}");
            }
            assert_eq!(tx.get(codes, "abcde")?, None);

            let ages =
                tx.get_many(people, ["Bob", "Eve", "Ada"])?.map(|row| Ok(row?.map(|row| row.age)));
            assert_eq!(ages.collect::<Result<Vec<_>, Error>>()?, [Some(31), None, Some(30)]);
            let keys = [("Bob", 1, None), ("Bob", 2, Some("art"))];
            assert_eq!(
                tx.get_many(grades, &keys)?.filter(|row| matches!(row, Ok(Some(_)))).count(),
                2
            );
            assert_eq!(tx.update_many(people, ["Ada", "Eve"], |_, row| row.age += 1)?, 1);
            Ok(())
        });
        checked.unwrap();
        let snapshot = database.open_snapshot().unwrap();
        assert_eq!(snapshot.get(people, "Ada").unwrap().map(|row| row.age), Some(31));
        assert!(!snapshot.contains(people, "Adam").unwrap());
        assert!(snapshot.contains(grades, ("Bob", 1, None::<&str>)).unwrap());
        assert_eq!(snapshot.get(blobs, b"Ada").unwrap().map(|row| row.number), Some(7));
        assert!(snapshot.get_by(people, Person::BY_BADGE, b"adA").unwrap().is_some());
        assert_eq!(
            snapshot.get_many(people, ["Ada", "Adam"]).unwrap().flatten().flatten().count(),
            1
        );
    }
    for_each_executor!(|P| check::<P>());
}

#[test]
fn a_borrowed_key_is_looked_up_without_an_allocation() {
    let school = School::<Dbx>::new();
    let School { database, people, grades, .. } = &school;
    let look_up = || {
        let looked_up = database.transact(|tx| {
            let count = allocations(|| {
                for name in ["Ada", "Adam", "Somebody with a name that is rather long"] {
                    drop(tx.get(people, name));
                    drop(tx.get(grades, (name, 1, Some("art"))));
                    drop(tx.contains(people, name));
                }
            });
            Ok::<_, Error>(count)
        });
        looked_up.unwrap()
    };
    // The first time, the access set grows.
    look_up();
    assert_eq!(look_up(), 0);
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(index(name = by_price, columns(price)), index(name = by_shop, columns(shop, price)), index(name = by_code, columns(price, id), unique))]
struct Offer {
    #[record(key)]
    shop: u8,
    #[record(key)]
    id: u16,
    price: i32,
}

/// Reads a scan page by page, and returns the keys. `next` continues it after a row.
fn pages(mut page: impl FnMut(Option<Offer>) -> Vec<Offer>) -> Vec<(u8, u16)> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let rows = page(cursor);
        let Some(&last) = rows.last() else { return all };
        all.extend(rows.iter().map(|row| (row.shop, row.id)));
        cursor = Some(last);
    }
}

fn offers<P: Protocol>() -> (Database<P>, Table<Offer>, Vec<Offer>) {
    let database = Database::builder().protocol::<P>().table::<Offer>().open().unwrap();
    let offers = database.table::<Offer>().unwrap();
    let rows =
        (0..60_u8).map(|n| Offer { shop: n % 3, id: u16::from(n), price: i32::from(n) * 7 % 5 });
    let rows: Vec<Offer> = rows.collect();
    database.transact(|tx| tx.insert_many(&offers, rows.iter().copied())).unwrap();
    (database, offers, rows)
}

fn copied<'r, E: Into<Error>>(rows: impl Iterator<Item = Result<&'r Offer, E>>) -> Vec<Offer> {
    rows.map(|row| row.copied().map_err(Into::into)).collect::<Result<_, Error>>().unwrap()
}

#[test]
fn pages_cover_every_row_once_in_both_directions() {
    fn check<P: Protocol>() {
        let (database, offers, mut rows) = offers::<P>();
        let keys = |rows: &[Offer]| rows.iter().map(|row| (row.shop, row.id)).collect::<Vec<_>>();
        let reversed = |keys: Vec<_>| keys.into_iter().rev().collect::<Vec<_>>();
        rows.sort_by_key(|row| (row.shop, row.id));
        let by_key = keys(&rows);
        rows.sort_by_key(|row| (row.price, row.shop, row.id));
        let by_price = keys(&rows);
        rows.sort_by_key(|row| (row.shop, row.price, row.id));
        let by_shop = keys(&rows);
        for is_snapshot in [false, true] {
            let snapshot = database.open_snapshot().unwrap();
            macro_rules! page {
                (|$view:ident, $cursor:ident| $scan:expr) => {
                    pages(|$cursor| match is_snapshot {
                        false => database
                            .transact(|$view| Ok::<_, Error>(copied($scan.take(7))))
                            .unwrap(),
                        true => {
                            let $view: &Snapshot = &snapshot;
                            copied($scan.take(7))
                        }
                    })
                };
            }
            macro_rules! both {
                ($expected:expr, |$view:ident| $range:expr, |$scan:ident, $row:ident| $after:expr) => {
                    let up = page!(|$view, cursor| match cursor {
                        None => $range,
                        Some($row) => {
                            let $scan = $range;
                            $after
                        }
                    });
                    assert_eq!(up, $expected);
                    let down = page!(|$view, cursor| match cursor {
                        None => $range.descending(),
                        Some($row) => {
                            let $scan = $range.descending();
                            $after
                        }
                    });
                    assert_eq!(down, reversed($expected.clone()));
                };
            }
            both!(by_key, |view| view.range(&offers, ..), |scan, row| scan
                .after((row.shop, row.id)));
            both!(by_price, |view| view.range_by(&offers, Offer::BY_PRICE, ..), |scan, row| {
                scan.after_by(Offer::BY_PRICE, &row.price, &(row.shop, row.id))
            });
            both!(by_shop, |view| view.range_by(&offers, Offer::BY_SHOP, ..), |scan, row| {
                scan.after_by(Offer::BY_SHOP, (row.shop, row.price), &(row.shop, row.id))
            });
            let in_shop: Vec<_> = by_shop.iter().copied().filter(|key| key.0 == 1).collect();
            both!(in_shop, |view| view.prefix_by(&offers, Offer::BY_SHOP, &1_u8), |scan, row| {
                scan.after_by(Offer::BY_SHOP, &(row.shop, row.price), &(row.shop, row.id))
            });
        }
    }
    for_each_executor!(|P| check::<P>());
}

#[test]
fn a_position_outlives_its_row_and_never_widens_the_range() {
    let (database, offers, _) = offers::<Dbx>();
    let checked: Result<(), Error> = database.transact(|tx| {
        tx.delete(&offers, (1, 4))?;
        let keys = |rows: Vec<Offer>| rows.iter().map(|row| row.id).collect::<Vec<_>>();
        let range = || tx.range(&offers, (1, 0)..(1, 12));
        assert_eq!(keys(copied(range().after((1, 4)))), [7, 10]);
        assert_eq!(keys(copied(range().after((0, 0)))), [1, 7, 10]);
        assert_eq!(keys(copied(range().after((2, 0)))), []);
        assert_eq!(keys(copied(range().descending().after((1, 7)))), [1]);
        assert_eq!(keys(copied(range().descending().after((2, 0)))), [10, 7, 1]);
        assert_eq!(keys(copied(range().after((1, 4)).descending())), [10, 7]);
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn both_ends_of_a_scan_are_read_and_its_rows_are_counted() {
    fn check<P: Protocol>() {
        let (database, offers, _) = offers::<P>();
        let checked: Result<(), Error> = database.transact(|tx| {
            let id = |row: Option<&Offer>| row.map(|row| row.id);
            assert_eq!(id(tx.range(&offers, ..).first_row()?), Some(0));
            assert_eq!(id(tx.range(&offers, ..).last_row()?), Some(59));
            assert_eq!(id(tx.range(&offers, ..).descending().last_row()?), Some(0));
            assert_eq!(id(tx.range(&offers, (1, 5)..(2, 0)).first_row()?), Some(7));
            assert_eq!(id(tx.range(&offers, (1, 5)..(1, 6)).last_row()?), None);
            assert_eq!(id(tx.range_by(&offers, Offer::BY_PRICE, 1..=1).last_row()?), Some(53));
            assert_eq!(tx.len(&offers)?, 60);
            assert_eq!(tx.range(&offers, (1, 5)..(2, 0)).count_rows()?, 18);
            assert_eq!(tx.range_by(&offers, Offer::BY_PRICE, 1..=1).count_rows()?, 12);
            assert_eq!(tx.delete_range(&offers, (1, 0)..(2, 0))?, 20);
            assert_eq!(tx.len(&offers)?, 40);
            tx.insert(&offers, Offer { shop: 1, id: 1, price: 0 })?;
            assert_eq!(tx.len(&offers)?, 41);
            assert_eq!(id(tx.prefix(&offers, &1_u8).last_row()?), Some(1));
            Ok(())
        });
        checked.unwrap();
        let snapshot = database.open_snapshot().unwrap();
        assert_eq!(snapshot.len(&offers).unwrap(), 41);
        assert_eq!(snapshot.range(&offers, ..).last_row().unwrap().map(|row| row.id), Some(59));
        assert_eq!(snapshot.range(&offers, ..).first_row().unwrap().map(|row| row.id), Some(0));
        assert_eq!(snapshot.prefix(&offers, &1_u8).count_rows().unwrap(), 1);
    }
    for_each_executor!(|P| check::<P>());
}

/// Checks that `len` agrees with a scan, and returns it.
fn counted<P: Protocol>(tx: &Transaction<'_, P>, offers: &Table<Offer>) -> Result<usize, Error> {
    let rows = tx.len(offers)?;
    assert_eq!(rows, tx.range(offers, ..).count_rows()?);
    Ok(rows)
}

#[test]
fn rows_are_counted_after_every_kind_of_change() {
    fn check<P: Protocol>() {
        let (database, offers, _) = offers::<P>();
        let offer = |id| Offer { shop: 9, id, price: 0 };
        let run = |change: &dyn Fn(&Transaction<'_, P>) -> Result<(), Error>, rows: usize| {
            let changed: Result<(), Error> = database.transact(|tx| {
                change(tx)?;
                assert_eq!(counted(tx, &offers)?, rows, "before the commit");
                Ok(())
            });
            changed.unwrap();
            assert_eq!(database.transact(|tx| counted(tx, &offers)).unwrap(), rows);
        };
        run(&|tx| tx.insert(&offers, offer(1)), 61);
        run(&|tx| tx.upsert(&offers, offer(1)).map(drop), 61);
        run(&|tx| tx.upsert(&offers, offer(2)).map(drop), 62);
        run(&|tx| tx.delete(&offers, (9, 2)).map(drop), 61);
        run(&|tx| tx.delete(&offers, (9, 2)).map(drop), 61);
        let again = |tx: &Transaction<'_, P>| {
            tx.delete(&offers, (9, 1))?;
            tx.insert(&offers, offer(1))
        };
        run(&again, 61);
        let inserted_and_deleted = |tx: &Transaction<'_, P>| {
            tx.insert(&offers, offer(3))?;
            tx.delete(&offers, (9, 3)).map(drop)
        };
        run(&inserted_and_deleted, 61);
        let undone = |tx: &Transaction<'_, P>| {
            let undone: Result<(), Error> = tx.savepoint(|tx| {
                tx.delete(&offers, (9, 1))?;
                tx.insert(&offers, offer(4))?;
                tx.insert(&offers, offer(1))?;
                tx.insert(&offers, offer(4))
            });
            assert!(matches!(undone, Err(Error::Failure(_))), "{undone:?}");
            Ok(())
        };
        run(&undone, 61);
        let tx = database.begin().unwrap();
        tx.delete_range(&offers, ..).unwrap();
        assert_eq!(counted(&tx, &offers).unwrap(), 0);
        tx.rollback();
        run(&|_| Ok(()), 61);
        run(&|tx| tx.delete_range(&offers, ..).map(drop), 0);
    }
    for_each_executor!(|P| check::<P>());
}

/// Threads insert as long as there is room by `len`, and delete otherwise.
#[test]
fn threads_keep_within_a_limit_that_they_check_by_len() {
    const LIMIT: usize = 4;
    fn check<P: Protocol>(seed: &Seed) {
        let database = Database::builder().protocol::<P>().table::<Offer>().open().unwrap();
        let offers = database.table::<Offer>().unwrap();
        weft_tests::on_threads(weft_tests::threads::<P>().min(3), |thread| {
            let mut random = seed.random(thread);
            for _ in 0..150 * weft_tests::stress() {
                let id = 3 * random.u16(..20) + thread as u16;
                let offer = Offer { shop: thread as u8, id, price: 0 };
                let rows: Result<usize, Error> = database.transact(|tx| {
                    let rows = tx.len(&offers)?;
                    if rows < LIMIT {
                        tx.upsert(&offers, offer)?;
                    } else if let Some(first) = tx.range(&offers, ..).first_row()?.copied() {
                        tx.delete(&offers, (first.shop, first.id))?;
                    }
                    Ok(rows)
                });
                assert!(rows.unwrap() <= LIMIT);
            }
        });
        let rows = database.transact(|tx| counted(tx, &offers)).unwrap();
        assert!((1..=LIMIT).contains(&rows));
    }
    let seed = Seed::draw();
    for_each_executor!(|P| check::<P>(&seed));
}

#[test]
fn rows_are_counted_after_a_load_and_a_restart() {
    let directory = TemporaryDirectory::new("len");
    let open = || {
        let database = Database::builder().directory(&directory.0).table::<Offer>().open();
        let database = database.unwrap();
        let offers = database.table::<Offer>().unwrap();
        (database, offers)
    };
    let loaded = || (0..100).map(|id| Ok::<_, Error>(Offer { shop: 1, id, price: 0 }));
    let (database, offers) = open();
    let twice = [loaded(), loaded()];
    database.load(&offers, twice, |_| {}).unwrap_err();
    assert_eq!(database.transact(|tx| counted(tx, &offers)).unwrap(), 0);
    database.load(&offers, [loaded()], |_| {}).unwrap();
    let deleted = database.transact(|tx| {
        assert_eq!(counted(tx, &offers)?, 100);
        tx.delete_range(&offers, (1, 10)..(1, 30))
    });
    assert_eq!(deleted.unwrap(), 20);
    drop((offers, database));
    for expected in [80, 81] {
        let (database, offers) = open();
        let counted = database.transact(|tx| {
            let rows = counted(tx, &offers)?;
            tx.insert(&offers, Offer { shop: 2, id: 100 + rows as u16, price: 0 })?;
            Ok::<_, Error>(rows)
        });
        assert_eq!(counted.unwrap(), expected);
        if expected == 80 {
            database.checkpoint().unwrap();
        }
    }
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(index(name = by_group, columns(group, text)), index(name = by_code, columns(code)), index(name = by_bytes, columns(bytes)))]
struct Text {
    #[record(key)]
    text: String,
    group: u8,
    code: ArrayString<4>,
    bytes: ArrayVec<u8, 20>,
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Part {
    #[record(key)]
    group: Arc<str>,
    #[record(key)]
    code: ArrayString<4>,
    #[record(key)]
    bytes: Vec<u8>,
    #[record(key)]
    number: u8,
}

fn short_text() -> impl Strategy<Value = String> {
    "[a\\x00\\x01é\u{10FFFF}]{0,3}"
}

fn code_of(text: &str) -> ArrayString<4> {
    let mut code = ArrayString::new();
    for character in text.chars() {
        let _ = code.try_push(character);
    }
    code
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_rows_that_start_with_a_text_are_found(
        texts in proptest::collection::vec(short_text(), 0..20),
        start in short_text(),
    ) {
        let database = Database::builder()
            .table::<Text>()
            .table::<Part>()
            .record_history(true)
            .open()
            .unwrap();
        let (table, parts) = (database.table::<Text>().unwrap(), database.table::<Part>().unwrap());
        let found: Result<_, Error> = database.transact(|tx| {
            for (number, text) in texts.iter().enumerate() {
                let (group, code) = ((number % 2) as u8, code_of(text));
                let bytes: ArrayVec<u8, 20> = text.bytes().rev().collect();
                let row = Text { text: text.clone(), group, code, bytes: bytes.clone() };
                tx.upsert(&table, row)?;
                let group = Arc::from(["a", "aa"][number % 2]);
                tx.upsert(&parts, Part { group, code, bytes: bytes.to_vec(), number: 1 })?;
            }
            let rows = tx.range(&table, ..).map(|row| row.cloned()).collect::<Result<Vec<_>, _>>()?;
            let count = |matches: &dyn Fn(&Text) -> bool| rows.iter().filter(|row| matches(row)).count();
            let (start, bytes) = (start.as_str(), start.as_bytes());
            assert_eq!(
                tx.starts_with(&table, start).count_rows()?,
                count(&|row| row.text.starts_with(start))
            );
            assert_eq!(
                tx.starts_with_by(&table, Text::BY_GROUP, (1, start)).count_rows()?,
                count(&|row| row.group == 1 && row.text.starts_with(start))
            );
            assert_eq!(
                tx.starts_with_by(&table, Text::BY_CODE, start).count_rows()?,
                count(&|row| row.code.starts_with(start))
            );
            assert_eq!(
                tx.starts_with_by(&table, Text::BY_BYTES, bytes).count_rows()?,
                count(&|row| row.bytes.starts_with(bytes))
            );
            let rows = tx.range(&parts, ..).map(|row| row.cloned()).collect::<Result<Vec<_>, _>>()?;
            let count = |matches: &dyn Fn(&Part) -> bool| rows.iter().filter(|row| matches(row)).count();
            assert_eq!(
                tx.starts_with(&parts, start).count_rows()?,
                count(&|row| row.group.starts_with(start))
            );
            assert_eq!(
                tx.starts_with(&parts, ("a", start)).count_rows()?,
                count(&|row| &*row.group == "a" && row.code.starts_with(start))
            );
            let code = code_of(start);
            assert_eq!(
                tx.starts_with(&parts, ("a", code, bytes)).count_rows()?,
                count(&|row| &*row.group == "a" && row.code == code && row.bytes.starts_with(bytes))
            );
            assert_eq!(tx.prefix(&parts, "a").count_rows()?, count(&|row| &*row.group == "a"));
            Ok(())
        });
        found.unwrap();
        let snapshot = database.open_snapshot().unwrap();
        let rows: Vec<&Text> = snapshot.rows(&table).map(Result::unwrap).collect();
        let expected = rows.iter().filter(|row| row.text.starts_with(&start)).count();
        prop_assert_eq!(snapshot.starts_with(&table, &*start).count_rows().unwrap(), expected);
        let expected = rows.iter().filter(|row| row.group == 0 && row.text.starts_with(&start)).count();
        let found = snapshot.starts_with_by(&table, Text::BY_GROUP, (0, &*start)).count_rows().unwrap();
        prop_assert_eq!(found, expected);
    }
}

/// A key of the user's own, with a borrowed form that lies about its encoding.
#[derive(Clone, Debug, PartialEq)]
struct Name(String);

impl weft::encoding::Key for Name {
    const WIDTH_BYTES: Option<usize> = None;

    fn encode(&self, encoder: &mut impl weft::encoding::KeyEncoder) {
        self.0.encode(encoder);
    }
}

#[derive(Debug)]
struct Liar(Cell<u8>);

impl weft::encoding::KeyLookup<Name> for &Liar {
    fn encode_lookup(&self, encoder: &mut impl weft::encoding::KeyEncoder) {
        self.0.set(self.0.get() + 1);
        // (Not even the end of the text is marked.)
        encoder.push_slice(&[b'a' + self.0.get() % 3][..usize::from(self.0.get() % 2)]);
        if self.0.get().is_multiple_of(3) {
            encoder.push(0, 1);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(volatile)]
struct Named {
    #[record(key)]
    name: Name,
    #[record(index)]
    text: String,
}

#[test]
fn a_borrowed_form_that_lies_finds_other_rows_and_breaks_nothing() {
    fn check<P: Protocol>() {
        let database = Database::builder().protocol::<P>().table::<Named>().open().unwrap();
        let table = database.table::<Named>().unwrap();
        for round in 0..30 {
            let liar = Liar(Cell::new(round));
            let text = round.to_string();
            let ran: Result<(), Error> = database.transact(|tx| {
                for name in ["", "a", "b", "c"] {
                    tx.upsert(&table, Named { name: Name(name.into()), text: text.clone() })?;
                }
                tx.get(&table, &liar)?;
                tx.update(&table, &liar, |row| row.text.push('x'))?;
                tx.delete(&table, &liar)?;
                tx.insert(&table, Named { name: Name(format!("z{round}")), text: text.clone() })?;
                Ok(())
            });
            assert!(ran.is_ok() || matches!(ran, Err(Error::Failure(_))), "{ran:?}");
        }
        let found = database.open_snapshot().unwrap().rows(&table).map(Result::unwrap).count();
        assert!(found >= 30);
    }
    for_each_executor!(|P| check::<P>());
}
