//! Tests of operations that name columns: which commits of other transactions disturb them, and what is left when
//! two transactions have changed the same row.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::thread::scope;

use weft::operation::Columns;
use weft::protocol::Protocol;
use weft::{
    Database, Error, Failure, Record, Table, Transaction, Violation, column_of, columns_of,
};
use weft_protocols::{BuilderExt, HtccOptions};
use weft_tests::{Seed, TemporaryDirectory, for_each_executor, for_each_kind, stress};

/// A row with a column of each kind: plain numbers, a number that may be NaN, and text.
#[derive(Clone, Debug, Record)]
#[record(check = Item::check_left)]
struct Item {
    #[record(key)]
    id: u32,
    left: i64,
    weight: f64,
    name: String,
    mark: Option<u8>,
    #[record(index)]
    shelf: u8,
}

/// By bits, as columns are compared.
impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        let bits = |item: &Item| (item.id, item.left, item.weight.to_bits(), item.mark, item.shelf);
        bits(self) == bits(other) && self.name == other.name
    }
}

impl Item {
    fn new(id: u32) -> Item {
        Item { id, left: 10, weight: f64::NAN, name: "new".into(), mark: None, shelf: 1 }
    }

    fn check_left(&self) -> Result<(), Violation> {
        if self.left < 0 { Err("fewer than none are left".into()) } else { Ok(()) }
    }
}

/// A row whose columns cannot be compared.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(volatile)]
struct Fleeting {
    #[record(key)]
    id: u32,
    one: i64,
    two: i64,
}

struct Shop<P: Protocol> {
    database: Database<P>,
    items: Table<Item>,
    fleeting: Table<Fleeting>,
}

/// The rows that programs use, and a row that each transaction writes, so that it has to be validated.
const IDS: [u32; 2] = [1, 2];
const OWN: u32 = 3;

impl<P: Protocol> Shop<P> {
    fn open() -> Self {
        Self::of(Database::builder().protocol::<P>())
    }

    fn of(builder: weft::Builder<P>) -> Self {
        // Repairs would count as further runs.
        let builder = builder.htcc(HtccOptions::new().repairs(false));
        let database = builder.table::<Item>().table::<Fleeting>().open().expect("opens");
        let (items, fleeting) = (database.table().unwrap(), database.table().unwrap());
        let shop = Shop { database, items, fleeting };
        shop.fill();
        shop
    }

    fn fill(&self) {
        let filled: Result<(), Error> = self.database.transact(|tx| {
            for id in [IDS[0], IDS[1], OWN] {
                tx.upsert(&self.items, Item::new(id))?;
                tx.upsert(&self.fleeting, Fleeting { id, one: 0, two: 0 })?;
            }
            Ok(())
        });
        filled.expect("fills");
    }

    fn item(&self, id: u32) -> Item {
        let item = self.database.transact(|tx| tx.get(&self.items, &id).map(|row| row.cloned()));
        item.expect("is read").expect("the row exists")
    }

    /// Runs a transaction, and another on a second thread at the end of its first run. Returns how often it ran.
    fn beside(
        &self,
        body: impl Fn(&Transaction<'_, P>) -> Result<(), Error>,
        other: impl Fn(&Transaction<'_, P>) -> Result<(), Error> + Sync,
    ) -> Result<u32, Error> {
        let runs = Cell::new(0);
        self.database.transact(|tx| {
            tx.update(&self.items, &OWN, |own| own.left += 1)?;
            body(tx)?;
            runs.set(runs.get() + 1);
            if runs.get() == 1 {
                let run = || self.database.transact(&other).expect("the other transaction commits");
                scope(|scope| scope.spawn(run).join().expect("it does not panic"));
            }
            Ok::<(), Error>(())
        })?;
        Ok(runs.get())
    }
}

/// Runs an expression for each protocol that commits by columns.
macro_rules! for_each_optimistic {
    (|$parameter:ident| $body:expr) => {
        for_each_executor!(
            [Dbx, DbxSpin, Silo, Occ, Htcc, Doppel, DbxTc, Adaptive] | $parameter | $body
        )
    };
}

#[test]
fn results_are_those_of_whole_rows_under_every_protocol() {
    for_each_kind!(|P| {
        let shop = Shop::<P>::open();
        let left = shop.database.transact(|tx| {
            let missing = tx.get_columns(&shop.items, &9, column_of!(Item.left))?;
            assert_eq!(missing, None);
            let missing = tx.update_columns(&shop.items, &9, column_of!(Item.left), |_| ())?;
            assert_eq!(missing, None);
            let columns = columns_of!(Item.{left, name});
            let left = tx.update_columns(&shop.items, &1, columns, |(left, name)| {
                *left -= 3;
                name.push('!');
                *left
            })?;
            let (left_now, name) = tx.get_columns(&shop.items, &1, columns)?.expect("exists");
            assert_eq!((left, *left_now, name.as_str()), (Some(7), 7, "new!"));
            let row = tx.get(&shop.items, &1)?.expect("exists");
            assert_eq!((row.left, row.mark), (7, None));
            tx.update_columns(&shop.items, &1, column_of!(Item.shelf), |shelf| *shelf = 4)?;
            let found = tx.prefix_by(&shop.items, Item::SHELF, &4).next().expect("is found")?;
            Ok::<_, Error>(found.left)
        });
        assert_eq!(left.unwrap(), 7);
        let refused = shop.database.transact(|tx| {
            tx.update_columns(&shop.items, &2, column_of!(Item.left), |left| *left = -1)
        });
        assert!(matches!(refused, Err(Error::Failure(Failure::Constraint { .. }))), "{refused:?}");
        assert_eq!(shop.item(2), Item::new(2));
    });
}

#[test]
fn nan_is_the_same_nan() {
    for_each_optimistic!(|P| {
        let shop = Shop::<P>::open();
        let read = |tx: &Transaction<'_, P>| {
            tx.get_columns(&shop.items, &1, column_of!(Item.weight)).map(drop)
        };
        let other =
            |tx: &Transaction<'_, P>| tx.update(&shop.items, &1, |row| row.left = 3).map(drop);
        assert_eq!(shop.beside(read, other).unwrap(), 1);
        let other = |tx: &Transaction<'_, P>| {
            tx.update(&shop.items, &1, |row| row.weight = -f64::NAN).map(drop)
        };
        assert_eq!(shop.beside(read, other).unwrap(), 2);
    });
}

/// What was written before by another operation, or read as a whole, is not in the columns that are named later.
#[test]
fn row_that_was_also_written_otherwise_goes_as_a_whole() {
    for_each_optimistic!(|P| {
        let shop = Shop::<P>::open();
        let count = |tx: &Transaction<'_, P>| {
            tx.update_columns(&shop.items, &1, column_of!(Item.left), |left| *left += 1).map(drop)
        };
        let copy_mark = |item: &mut Item| item.weight = f64::from(item.mark.unwrap_or(0));
        let update_and_name = |tx: &Transaction<'_, P>| {
            tx.update(&shop.items, &1, copy_mark)?;
            count(tx)
        };
        let mark = |tx: &Transaction<'_, P>| {
            let mark = |mark: &mut Option<u8>| *mark = Some(mark.unwrap_or(0) + 1);
            tx.update_columns(&shop.items, &1, column_of!(Item.mark), mark).map(drop)
        };
        assert_eq!(shop.beside(update_and_name, mark).unwrap(), 2);
        let row = shop.item(1);
        assert_eq!((row.left, row.weight, row.mark), (11, 1.0, Some(1)));

        let add_and_name = |tx: &Transaction<'_, P>| {
            tx.add(&shop.items, &1, column_of!(Item.left), 100)?;
            mark(tx)
        };
        shop.beside(add_and_name, count).unwrap();
        let name_and_add = |tx: &Transaction<'_, P>| {
            mark(tx)?;
            tx.add(&shop.items, &1, column_of!(Item.left), 100)
        };
        shop.beside(name_and_add, count).unwrap();
        let row = shop.item(1);
        assert_eq!((row.left, row.mark), (213, Some(3)), "no addition is lost");
    });
}

/// Named columns and operations disturb each other no more than either alone: TPC-C's Payment does this.
#[test]
fn operations_beside_named_columns_are_applied_again() {
    for_each_executor!(
        [Dbx, DbxSpin, Silo, Occ] | P | {
            let shop = Shop::<P>::open();
            let pay = |tx: &Transaction<'_, P>| {
                let name = tx.get_columns(&shop.items, &1, column_of!(Item.name))?;
                assert_eq!(name.map(String::as_str), Some("new"));
                tx.add(&shop.items, &1, column_of!(Item.left), 7)?;
                tx.update_columns(&shop.items, &2, column_of!(Item.left), |left| *left += 1)
                    .map(drop)
            };
            let other = |tx: &Transaction<'_, P>| {
                tx.update_columns(&shop.items, &2, column_of!(Item.weight), |weight| {
                    *weight = 2.0
                })?;
                tx.add(&shop.items, &1, column_of!(Item.left), 7)
            };
            assert_eq!(shop.beside(pay, other).unwrap(), 1);
            let (one, two) = (shop.item(1), shop.item(2));
            assert_eq!((one.left, two.left, two.weight), (24, 11, 2.0));
        }
    );
}

/// An operation is applied again if the transaction has read other columns after it, and these have not changed.
#[test]
fn columns_read_after_an_operation_have_to_be_the_same() {
    for_each_executor!(
        [Dbx, DbxSpin, Silo, Occ] | P | {
            let shop = Shop::<P>::open();
            let count = |tx: &Transaction<'_, P>| tx.add(&shop.items, &1, column_of!(Item.left), 7);
            let mark = |tx: &Transaction<'_, P>| {
                tx.update_columns(&shop.items, &1, column_of!(Item.mark), |mark| *mark = Some(5))
                    .map(drop)
            };
            // The name has not changed: the sum is added on top of the other one.
            let read_name = |tx: &Transaction<'_, P>| {
                count(tx)?;
                let name = tx.get_columns(&shop.items, &1, column_of!(Item.name))?;
                assert_eq!(name.map(String::as_str), Some("new"));
                Ok(())
            };
            assert_eq!(shop.beside(read_name, count).unwrap(), 1);
            assert_eq!(shop.item(1).left, 24);
            // The mark has changed, and so has the sum: the transaction runs again.
            let read_mark = |tx: &Transaction<'_, P>| {
                count(tx)?;
                tx.get_columns(&shop.items, &1, column_of!(Item.mark)).map(drop)
            };
            assert_eq!(shop.beside(read_mark, mark).unwrap(), 2);
            let read_sum = |tx: &Transaction<'_, P>| {
                count(tx)?;
                tx.get_columns(&shop.items, &1, column_of!(Item.left)).map(drop)
            };
            assert_eq!(shop.beside(read_sum, count).unwrap(), 2);
            assert_eq!((shop.item(1).left, shop.item(1).mark), (45, Some(5)));
        }
    );
}

/// With this option nothing is carried over, and nothing is applied again.
#[test]
fn a_database_may_commit_by_rows_alone() {
    for_each_optimistic!(|P| {
        let builder = Database::builder().protocol::<P>();
        let shop = Shop::<P>::of(builder.protocol_options(weft::commit::CommitsByRows));
        let count = |tx: &Transaction<'_, P>| tx.add(&shop.items, &1, column_of!(Item.left), 7);
        let read_name = |tx: &Transaction<'_, P>| {
            tx.get_columns(&shop.items, &1, column_of!(Item.name))?;
            tx.add(&shop.items, &2, column_of!(Item.left), 1)
        };
        assert_eq!(shop.beside(read_name, count).unwrap(), 2, "{}", P::NAME);
        assert_eq!(shop.beside(count, count).unwrap(), 2, "{}", P::NAME);
        assert_eq!((shop.item(1).left, shop.item(2).left), (31, 11));
    });
}

/// A scan, or a batch, of columns depends on these columns, and on which rows there are.
#[test]
fn scans_and_batches_of_columns() {
    for_each_optimistic!(|P| {
        let shop = Shop::<P>::open();
        let scan = |tx: &Transaction<'_, P>| {
            let names = tx.range(&shop.items, ..OWN).columns(column_of!(Item.name));
            let names = names.map(|name| Ok(name?.clone())).collect::<Result<Vec<_>, Error>>()?;
            assert!(names.len() >= 2 && names[0].starts_with("new"), "{names:?}");
            Ok(())
        };
        let scan_by_shelf = |tx: &Transaction<'_, P>| {
            let rows = tx.prefix_by(&shop.items, Item::SHELF, &1).columns(column_of!(Item.name));
            assert!(
                rows.map(|name| name.map(String::len)).collect::<Result<Vec<_>, _>>()?.len() > 2
            );
            Ok(())
        };
        let batch = |tx: &Transaction<'_, P>| {
            let names = tx.get_many(&shop.items, [2, 9, 1])?.columns(column_of!(Item.name));
            let are_there =
                names.map(|name| Ok(name?.is_some())).collect::<Result<Vec<_>, Error>>();
            assert_eq!(are_there?, [true, false, true]);
            Ok(())
        };
        let count = |tx: &Transaction<'_, P>| {
            tx.update_columns(&shop.items, &1, column_of!(Item.left), |left| *left += 1).map(drop)
        };
        let rename = |tx: &Transaction<'_, P>| {
            tx.update_columns(&shop.items, &1, column_of!(Item.name), |name| name.push('!'))
                .map(drop)
        };
        assert_eq!(shop.beside(scan, count).unwrap(), 1, "{}", P::NAME);
        assert_eq!(shop.beside(scan_by_shelf, count).unwrap(), 1, "{}", P::NAME);
        assert_eq!(shop.beside(batch, count).unwrap(), 1, "{}", P::NAME);
        assert_eq!(shop.beside(scan, rename).unwrap(), 2, "{}", P::NAME);
        assert_eq!(shop.beside(scan_by_shelf, rename).unwrap(), 2, "{}", P::NAME);
        assert_eq!(shop.beside(batch, rename).unwrap(), 2, "{}", P::NAME);
        let insert = |tx: &Transaction<'_, P>| tx.upsert(&shop.items, Item::new(0)).map(drop);
        assert_eq!(shop.beside(scan, insert).unwrap(), 2, "{}", P::NAME);
        let delete = |tx: &Transaction<'_, P>| tx.delete(&shop.items, &0).map(drop);
        assert_eq!(shop.beside(scan, delete).unwrap(), 2, "{}", P::NAME);
    });
}

#[test]
fn rows_made_again_are_checked() {
    for_each_optimistic!(|P| {
        let shop = Shop::<P>::open();
        // Whether the row may be written depends on a column that the transaction does not name.
        let add = |amount| {
            move |tx: &Transaction<'_, P>, items: &Table<Item>| {
                tx.update_columns(items, &1, column_of!(Item.left), |left| *left += amount)
                    .map(drop)
            }
        };
        let sold = shop.beside(|tx| add(-6)(tx, &shop.items), |tx| add(-6)(tx, &shop.items));
        assert!(matches!(sold, Err(Error::Failure(Failure::Constraint { .. }))), "{sold:?}");
        assert_eq!(shop.item(1).left, 4);
    });
}

#[test]
fn indexed_columns_and_volatile_tables_go_by_rows() {
    for_each_optimistic!(|P| {
        let shop = Shop::<P>::open();
        let count = |tx: &Transaction<'_, P>| {
            tx.update_columns(&shop.items, &1, column_of!(Item.left), |left| *left += 1).map(drop)
        };
        let shelve = |tx: &Transaction<'_, P>| {
            tx.update_columns(&shop.items, &1, column_of!(Item.shelf), |shelf| *shelf += 1)
                .map(drop)
        };
        assert_eq!(shop.beside(count, shelve).unwrap(), 2);
        assert_eq!(shop.beside(shelve, count).unwrap(), 2);
        // A reader is not disturbed.
        let read = |tx: &Transaction<'_, P>| {
            tx.get_columns(&shop.items, &1, column_of!(Item.left)).map(drop)
        };
        assert_eq!(shop.beside(read, shelve).unwrap(), 1);
        let row = shop.item(1);
        assert_eq!((row.left, row.shelf), (12, 4));
        let found: Result<usize, Error> = shop
            .database
            .transact(|tx| Ok(tx.prefix_by(&shop.items, Item::SHELF, &4).flatten().count()));
        assert_eq!(found.unwrap(), 1, "it is on one shelf");

        let one = |tx: &Transaction<'_, P>| {
            tx.update_columns(&shop.fleeting, &1, column_of!(Fleeting.one), |one| *one += 1)
                .map(drop)
        };
        let two = |tx: &Transaction<'_, P>| {
            tx.update_columns(&shop.fleeting, &1, column_of!(Fleeting.two), |two| *two += 1)
                .map(drop)
        };
        assert_eq!(shop.beside(one, two).unwrap(), 2);
    });
}

#[test]
fn rows_made_again_are_logged_and_seen_by_snapshots() {
    for_each_optimistic!(|P| {
        let directory = TemporaryDirectory::new("columns");
        let open = || {
            let builder = Database::builder().protocol::<P>().directory(&directory.0);
            builder.table::<Item>().table::<Fleeting>()
        };
        let expected = Item { left: 11, mark: Some(7), name: "new, old".into(), ..Item::new(1) };
        {
            let shop = Shop::<P>::of(Database::builder().protocol::<P>().directory(&directory.0));
            let before = shop.database.open_snapshot().unwrap();
            let runs = shop.beside(
                |tx| {
                    tx.update_columns(&shop.items, &1, column_of!(Item.left), |it| *it += 1)
                        .map(drop)
                },
                |tx| {
                    tx.update_columns(
                        &shop.items,
                        &1,
                        columns_of!(Item.{mark, name}),
                        |(mark, name)| {
                            *mark = Some(7);
                            name.push_str(", old");
                        },
                    )
                    .map(drop)
                },
            );
            assert_eq!(runs.unwrap(), 1);
            assert_eq!(before.get(&shop.items, &1).unwrap(), Some(&Item::new(1)));
            let now = shop.database.open_snapshot().unwrap();
            assert_eq!(now.get(&shop.items, &1).unwrap(), Some(&expected));
            drop((before, now));
            shop.database.close().expect("closes");
        }
        let database = open().open().expect("opens again");
        let items = database.table::<Item>().unwrap();
        let read: Result<Option<Item>, Error> =
            database.transact(|tx| Ok(tx.get(&items, &1)?.cloned()));
        assert_eq!(read.unwrap(), Some(expected));
    });
}

// ---- random programs, compared with a model -----------------------------------------------------

#[derive(Clone, Copy, Debug)]
enum Step {
    Get(Used, By),
    Update(Used),
}

/// How a row is found.
#[derive(Clone, Copy, Debug)]
enum By {
    Key,
    Batch,
    Scan,
}

/// Reads columns of one row, which is found in this way.
fn columns_by<'tx, P: Protocol, C: Columns<Item>>(
    items: &'tx Table<Item>,
    tx: &'tx Transaction<'_, P>,
    id: u32,
    columns: C,
    by: By,
) -> Result<Option<C::Values<'tx>>, Error> {
    match by {
        By::Key => tx.get_columns(items, &id, columns),
        By::Batch => tx.get_many(items, [id])?.columns(columns).next().expect("one for each key"),
        By::Scan => tx.range(items, id..=id).columns(columns).next().transpose(),
    }
}

/// What a step names.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Used {
    Left,
    Weight,
    Name,
    Mark,
    LeftAndMark,
    WholeRow,
}

const USED: [Used; 6] =
    [Used::Left, Used::Weight, Used::Name, Used::Mark, Used::LeftAndMark, Used::WholeRow];

type Program = Vec<(u32, Step)>;

/// What programs do to columns.
fn change_left(left: &mut i64) {
    *left = (*left * 3 + 1) % 1000;
}
fn change_weight(weight: &mut f64) {
    *weight = if weight.is_nan() { 0.5 } else { *weight + 0.25 };
}
fn change_mark(mark: &mut Option<u8>) {
    *mark = mark.map_or(Some(0), |mark| Some(mark.wrapping_add(1)));
}

/// Changes what is named of a row.
fn change(row: &mut Item, used: Used) {
    if matches!(used, Used::Left | Used::LeftAndMark | Used::WholeRow) {
        change_left(&mut row.left);
    }
    if matches!(used, Used::Weight | Used::WholeRow) {
        change_weight(&mut row.weight);
    }
    if matches!(used, Used::Name | Used::WholeRow) {
        row.name.push('x');
    }
    if matches!(used, Used::Mark | Used::LeftAndMark | Used::WholeRow) {
        change_mark(&mut row.mark);
    }
}

/// Returns what is named of a row, as text.
fn show(row: &Item, used: Used) -> String {
    match used {
        Used::Left => format!("{}", row.left),
        Used::Weight => format!("{}", row.weight.to_bits()),
        Used::Name => row.name.clone(),
        Used::Mark => format!("{:?}", row.mark),
        Used::LeftAndMark => format!("{} {:?}", row.left, row.mark),
        Used::WholeRow => format!("{row:?}"),
    }
}

fn run<'tx, P: Protocol>(
    items: &'tx Table<Item>,
    tx: &'tx Transaction<'_, P>,
    program: &Program,
) -> Result<Vec<String>, Error> {
    let mut shown = Vec::new();
    for &(id, step) in program {
        match step {
            Step::Get(used, by) => shown.push(match used {
                Used::Left => {
                    let left = columns_by(items, tx, id, column_of!(Item.left), by)?;
                    left.unwrap().to_string()
                }
                Used::Weight => {
                    let weight = columns_by(items, tx, id, column_of!(Item.weight), by)?;
                    weight.unwrap().to_bits().to_string()
                }
                Used::Name => {
                    columns_by(items, tx, id, column_of!(Item.name), by)?.unwrap().clone()
                }
                Used::Mark => {
                    let mark = columns_by(items, tx, id, column_of!(Item.mark), by)?;
                    format!("{:?}", mark.unwrap())
                }
                Used::LeftAndMark => {
                    let both = columns_by(items, tx, id, columns_of!(Item.{left, mark}), by)?;
                    let (left, mark) = both.unwrap();
                    format!("{left} {mark:?}")
                }
                Used::WholeRow => show(tx.get(items, &id)?.unwrap(), used),
            }),
            Step::Update(used) => {
                match used {
                    Used::Left => tx.update_columns(items, &id, column_of!(Item.left), change_left),
                    Used::Weight => {
                        tx.update_columns(items, &id, column_of!(Item.weight), change_weight)
                    }
                    Used::Name => {
                        tx.update_columns(items, &id, column_of!(Item.name), |name| name.push('x'))
                    }
                    Used::Mark => tx.update_columns(items, &id, column_of!(Item.mark), change_mark),
                    Used::LeftAndMark => tx.update_columns(
                        items,
                        &id,
                        columns_of!(Item.{left, mark}),
                        |(left, mark)| {
                            change_left(left);
                            change_mark(mark);
                        },
                    ),
                    Used::WholeRow => tx.update(items, &id, |row| change(row, used)),
                }?;
            }
        }
    }
    Ok(shown)
}

fn replay(state: &mut BTreeMap<u32, Item>, program: &Program) -> Vec<String> {
    let mut shown = Vec::new();
    for (id, step) in program {
        let row = state.get_mut(id).unwrap();
        match step {
            Step::Get(used, _) => shown.push(show(row, *used)),
            Step::Update(used) => change(row, *used),
        }
    }
    shown
}

/// Returns whether a program goes through although another one has committed since it ran.
fn goes_through(
    program: &Program,
    other: &Program,
    before: &BTreeMap<u32, Item>,
    after: &BTreeMap<u32, Item>,
) -> bool {
    let is_update = |step: &Step| matches!(step, Step::Update(_));
    IDS.iter().all(|id| {
        let of = |program: &Program| -> Vec<Step> {
            program.iter().filter(|(row, _)| row == id).map(|(_, step)| *step).collect()
        };
        let (own, others) = (of(program), of(other));
        let is_same = own.iter().all(|step| {
            let (Step::Get(used, _) | Step::Update(used)) = *step;
            used != Used::WholeRow && show(&before[id], used) == show(&after[id], used)
        });
        let times_written = own.iter().filter(|step| is_update(step)).count();
        own.is_empty() || !others.iter().any(is_update) || (is_same && times_written <= 1)
    })
}

/// A program runs, another one commits, and then the first one commits. The first has the results that it has after
/// the second, and runs again exactly if it uses something that the second has changed.
#[test]
fn random_programs_depend_on_what_they_name() {
    let seed = Seed::draw();
    for_each_executor!(
        [Dbx, Silo, Occ, DbxTc] | P | {
            let shop = Shop::<P>::open();
            let mut random = seed.random(0);
            let mut state: BTreeMap<u32, Item> =
                IDS.iter().map(|&id| (id, Item::new(id))).collect();
            for turn in 0..400 * stress() {
                if turn % 8 == 0 {
                    shop.fill();
                    state = IDS.iter().map(|&id| (id, Item::new(id))).collect();
                }
                let mut draw = |steps_max| -> Program {
                    let mut program = Program::new();
                    for _ in 0..random.usize(1..=steps_max) {
                        // Whole rows are rare.
                        let kinds = if random.u8(..3) == 0 { USED.len() } else { USED.len() - 1 };
                        let used = USED[random.usize(..kinds)];
                        let by = [By::Key, By::Batch, By::Scan][random.usize(..3)];
                        let step =
                            if random.bool() { Step::Get(used, by) } else { Step::Update(used) };
                        program.push((IDS[random.usize(..IDS.len())], step));
                    }
                    program
                };
                let (program, other) = (draw(4), draw(2));
                let before = state.clone();
                replay(&mut state, &other);
                let goes_through = goes_through(&program, &other, &before, &state);
                let expected = replay(&mut state, &program);
                let shown = std::cell::RefCell::new(Vec::new());
                let runs = shop.beside(
                    |tx| {
                        *shown.borrow_mut() = run(&shop.items, tx, &program)?;
                        Ok(())
                    },
                    |tx| run(&shop.items, tx, &other).map(drop),
                );
                assert_eq!(shown.into_inner(), expected, "{program:?} beside {other:?}");
                let expected_runs = if goes_through { 1 } else { 2 };
                assert_eq!(runs.unwrap(), expected_runs, "{program:?} beside {other:?}");
                for (id, row) in &state {
                    assert_eq!(shop.item(*id), *row, "{program:?} beside {other:?}");
                }
            }
        }
    );
}
