//! Tests of commits by columns: a piece can commit although other transactions have changed its rows since.

use std::cell::Cell;
use std::thread::scope;

use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Record, Table, Transaction, Violation, column_of};
use weft_procedures::procedure;
use weft_procedures::{Execute, Procedure, Shape};
use weft_protocols::{BuilderExt, ChoppedDatabase, DbxTc, DbxTcOptions};

use super::{Meanwhile, NOTHING, at};

#[derive(Clone, Debug, PartialEq, Record)]
#[record(check = "Stock::check_left")]
struct Stock {
    #[record(key)]
    id: u32,
    #[record(index)]
    shelf: u32,
    price: i64,
    left: i64,
    sold: u8,
    note: String,
}

impl Stock {
    fn check_left(&self) -> Result<(), Violation> {
        if self.left < 0 { Err("the stock is not sufficient".into()) } else { Ok(()) }
    }
}

/// A row that the second piece of each procedure inserts, so that each procedure has two pieces.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
struct Note {
    #[record(key)]
    number: u64,
    price: i64,
}

/// Subtracts from a column by an update of the row.
#[procedure(Sell)]
fn sell<P: Protocol>(
    stock: &Table<Stock>,
    notes: &Table<Note>,
    tx: &Transaction<'_, P>,
    number: u64,
    count: i64,
    meanwhile: Meanwhile<'_>,
) -> Result<(), Error> {
    tx.update(stock, &1, |stock| stock.left -= count)?;
    meanwhile(1);
    tx.insert(notes, Note { number, price: 0 })
}

/// Adds to a column by a commutative operation.
#[procedure(Count)]
fn count<P: Protocol>(
    stock: &Table<Stock>,
    notes: &Table<Note>,
    tx: &Transaction<'_, P>,
    number: u64,
    count: u8,
    meanwhile: Meanwhile<'_>,
) -> Result<(), Error> {
    tx.add(stock, &1, column_of!(Stock.sold), count)?;
    meanwhile(1);
    tx.insert(notes, Note { number, price: 0 })
}

/// Replaces a column without reading it.
#[procedure(Reprice)]
fn reprice<P: Protocol>(
    stock: &Table<Stock>,
    notes: &Table<Note>,
    tx: &Transaction<'_, P>,
    number: u64,
    price: i64,
    meanwhile: Meanwhile<'_>,
) -> Result<(), Error> {
    tx.update(stock, &1, |stock| stock.price = price)?;
    meanwhile(1);
    tx.insert(notes, Note { number, price: 0 })
}

/// Changes two columns in two steps, and one of them depends on its old value.
#[procedure(Write)]
fn write<P: Protocol>(
    stock: &Table<Stock>,
    notes: &Table<Note>,
    tx: &Transaction<'_, P>,
    number: u64,
    shelf: u32,
    meanwhile: Meanwhile<'_>,
) -> Result<(), Error> {
    tx.update(stock, &1, |stock| stock.note.push('!'))?;
    tx.update(stock, &1, |stock| stock.shelf = shelf)?;
    meanwhile(1);
    tx.insert(notes, Note { number, price: 0 })
}

/// Reads one column.
#[procedure(Quote)]
fn quote<P: Protocol>(
    stock: &Table<Stock>,
    notes: &Table<Note>,
    tx: &Transaction<'_, P>,
    number: u64,
    more: i64,
    meanwhile: Meanwhile<'_>,
) -> Result<(), Error> {
    let row = tx.get(stock, &1)?.expect("the row exists");
    // A second read, because a piece that only reads one row needs no validation.
    tx.get(stock, &2)?;
    meanwhile(1);
    tx.insert(notes, Note { number, price: row.price + more })
}

/// Reads and then writes the same row.
#[procedure(Discount)]
fn discount<P: Protocol>(
    stock: &Table<Stock>,
    notes: &Table<Note>,
    tx: &Transaction<'_, P>,
    number: u64,
    rate: i64,
    meanwhile: Meanwhile<'_>,
) -> Result<(), Error> {
    let before = tx.get(stock, &1)?.expect("the row exists");
    tx.update(stock, &1, |stock| stock.price -= before.left * rate)?;
    let after = tx.get(stock, &1)?.expect("the row exists");
    meanwhile(1);
    tx.insert(notes, Note { number, price: after.price })
}

/// Deletes the row.
#[procedure(Remove)]
fn remove<P: Protocol>(
    stock: &Table<Stock>,
    notes: &Table<Note>,
    tx: &Transaction<'_, P>,
    number: u64,
    id: u32,
    meanwhile: Meanwhile<'_>,
) -> Result<(), Error> {
    tx.delete(stock, &id)?;
    meanwhile(1);
    tx.insert(notes, Note { number, price: 0 })
}

struct Shop {
    database: Database<DbxTc>,
    stock: Table<Stock>,
    notes: Table<Note>,
    number: Cell<u64>,
}

fn stock() -> Stock {
    Stock { id: 1, shelf: 5, price: 100, left: 10, sold: 200, note: "new".into() }
}

fn options() -> DbxTcOptions {
    let procedures: [&'static Shape; 7] = [
        Sell::<DbxTc>::shape(),
        Count::<DbxTc>::shape(),
        Reprice::<DbxTc>::shape(),
        Write::<DbxTc>::shape(),
        Quote::<DbxTc>::shape(),
        Discount::<DbxTc>::shape(),
        Remove::<DbxTc>::shape(),
    ];
    DbxTcOptions::new().procedures(procedures)
}

fn open(options: DbxTcOptions) -> Shop {
    let builder = Database::builder().protocol::<DbxTc>().table::<Stock>().table::<Note>();
    let database = builder.dbx_tc(options).open().expect("opens");
    let (stocks, notes) =
        (database.table().expect("registered"), database.table().expect("registered"));
    database.transact(|tx| tx.insert(&stocks, stock())).expect("fills");
    Shop { database, stock: stocks, notes, number: Cell::new(0) }
}

/// Executes a procedure with one argument of its own.
macro_rules! execute {
    ($shop:expr, $procedure:ident, $argument:expr, $meanwhile:expr) => {{
        let Shop { database, stock, notes, number } = $shop;
        number.set(number.get() + 1);
        let number = number.get();
        let mut procedure = $procedure::new(stock, notes, number, $argument, $meanwhile);
        database.execute(&mut procedure).map(|()| number)
    }};
}

/// Executes a procedure on another thread, and waits for it.
macro_rules! elsewhere {
    ($shop:expr, $procedure:ident, $argument:expr) => {{
        let Shop { database, stock, notes, number } = $shop;
        number.set(number.get() + 1);
        let number = number.get();
        let run = move || {
            let mut procedure = $procedure::new(stock, notes, number, $argument, NOTHING);
            database.execute(&mut procedure).expect("is executed");
        };
        scope(|scope| scope.spawn(run).join().expect("is executed"));
    }};
}

impl Shop {
    fn stock(&self) -> Option<Stock> {
        let row = self.database.transact(|tx| tx.get(&self.stock, &1).map(|row| row.cloned()));
        row.expect("is read")
    }

    fn noted(&self, number: u64) -> Option<i64> {
        let note = |row: Option<&Note>| row.map(|row| row.price);
        let price = self.database.transact(|tx| tx.get(&self.notes, &number).map(note));
        price.expect("is read")
    }

    fn on_shelf(&self, shelf: u32) -> usize {
        let rows = |tx: &Transaction<'_, DbxTc>| {
            let rows = tx.prefix_by(&self.stock, Stock::SHELF, &shelf);
            Ok::<_, Error>(rows.collect::<Result<Vec<_>, _>>()?.len())
        };
        self.database.transact(rows).expect("is read")
    }

    /// Returns the number of pieces that were carried over, and the number of pieces that were run again.
    fn counts(&self) -> (u64, u64) {
        let metrics = self.database.metrics();
        (metrics.carried_over, metrics.pieces_redone + metrics.aborted_total())
    }
}

const CARRIED_OVER: (u64, u64) = (1, 0);
const DONE_AGAIN: (u64, u64) = (0, 1);

/// Runs each test with the finest pieces, and with as few pieces as possible.
macro_rules! in_either_cut {
    ($($test:ident)*) => {
        mod in_pieces {
            $(
                #[test]
                fn $test() {
                    super::$test(|| super::options().finest(true));
                }
            )*
        }

        mod as_one_piece {
            $(
                #[test]
                fn $test() {
                    super::$test(super::options);
                }
            )*
        }
    };
}

in_either_cut! {
    each_procedure_has_two_pieces
    additions_to_a_column_add_up
    changes_of_different_columns_are_both_kept
    read_is_valid_while_its_columns_are_unchanged
    reads_before_and_after_own_writes_are_validated_by_column
    overflowing_sum_is_an_error
    carried_over_rows_are_checked
    index_changes_and_repeated_writes_are_not_carried_over
    deletions_are_not_carried_over
    carrying_over_can_be_switched_off
}

/// Guards the cost of notes: a procedure without recent conflicts takes none, so its first conflict makes it run
/// again. After that it takes notes.
#[test]
fn notes_are_taken_only_after_conflicts() {
    let shop = open(options());
    for _ in 0..20 {
        execute!(&shop, Reprice, 90, NOTHING).expect("is executed");
    }
    let meanwhile = at(1, 1, || elsewhere!(&shop, Sell, 2));
    execute!(&shop, Reprice, 91, &meanwhile).expect("is executed");
    assert_eq!(shop.counts(), DONE_AGAIN);
    let meanwhile = at(1, 1, || elsewhere!(&shop, Sell, 3));
    execute!(&shop, Reprice, 92, &meanwhile).expect("is executed");
    assert_eq!(shop.counts(), (1, 1));
    assert_eq!(shop.stock(), Some(Stock { price: 92, left: 5, ..stock() }));
}

fn each_procedure_has_two_pieces(options: fn() -> DbxTcOptions) {
    let shop = open(options());
    for procedure in &shop.database.chopping().procedures {
        assert_eq!(procedure.pieces.len(), 2, "{procedure:?}");
    }
}

fn additions_to_a_column_add_up(options: fn() -> DbxTcOptions) {
    for times in [1, 3] {
        let shop = open(options());
        let meanwhile = at(1, 1, || (0..times).for_each(|_| elsewhere!(&shop, Sell, 2)));
        execute!(&shop, Sell, 3, &meanwhile).expect("sells");
        assert_eq!(shop.stock(), Some(Stock { left: 10 - 3 - 2 * times, ..stock() }));
        assert_eq!(shop.counts(), CARRIED_OVER);
    }
    // The sums also add up by operations, and by operations and updates.
    let shop = open(options());
    let meanwhile = at(1, 1, || {
        elsewhere!(&shop, Count, 7);
        elsewhere!(&shop, Sell, 2);
    });
    execute!(&shop, Count, 5, &meanwhile).expect("counts");
    assert_eq!(shop.stock(), Some(Stock { sold: 212, left: 8, ..stock() }));
    assert_eq!(shop.counts(), CARRIED_OVER);
}

fn changes_of_different_columns_are_both_kept(options: fn() -> DbxTcOptions) {
    let shop = open(options());
    let meanwhile = at(1, 1, || elsewhere!(&shop, Sell, 2));
    execute!(&shop, Reprice, 90, &meanwhile).expect("is executed");
    assert_eq!(shop.stock(), Some(Stock { price: 90, left: 8, ..stock() }));
    assert_eq!(shop.counts(), CARRIED_OVER);
    // Another transaction writes the same column. Writing its old value back counts as a change.
    let meanwhile = at(1, 1, || elsewhere!(&shop, Reprice, 70));
    execute!(&shop, Reprice, 90, &meanwhile).expect("is executed");
    assert_eq!(shop.stock(), Some(Stock { price: 90, left: 8, ..stock() }));
    assert_eq!(shop.counts(), (1, 1), "the column has changed since it was read");
}

fn read_is_valid_while_its_columns_are_unchanged(options: fn() -> DbxTcOptions) {
    let shop = open(options());
    let meanwhile = at(1, 1, || elsewhere!(&shop, Sell, 2));
    let number = execute!(&shop, Quote, 1, &meanwhile).expect("is executed");
    assert_eq!((shop.noted(number), shop.counts()), (Some(101), CARRIED_OVER));
    // A value that is changed and restored counts as unchanged.
    let meanwhile = at(1, 1, || {
        elsewhere!(&shop, Reprice, 5);
        elsewhere!(&shop, Reprice, 100);
    });
    let number = execute!(&shop, Quote, 1, &meanwhile).expect("is executed");
    assert_eq!((shop.noted(number), shop.counts()), (Some(101), (2, 0)));
    let meanwhile = at(1, 1, || elsewhere!(&shop, Reprice, 5));
    let number = execute!(&shop, Quote, 1, &meanwhile).expect("is executed");
    assert_eq!((shop.noted(number), shop.counts()), (Some(6), (2, 1)));
}

fn reads_before_and_after_own_writes_are_validated_by_column(options: fn() -> DbxTcOptions) {
    // The procedure reads `left`, changes `price`, and then reads `price`.
    let shop = open(options());
    let meanwhile = at(1, 1, || elsewhere!(&shop, Count, 1));
    let number = execute!(&shop, Discount, 2, &meanwhile).expect("is executed");
    assert_eq!((shop.noted(number), shop.counts()), (Some(80), CARRIED_OVER));
    let meanwhile = at(1, 1, || elsewhere!(&shop, Sell, 5));
    let number = execute!(&shop, Discount, 2, &meanwhile).expect("is executed");
    assert_eq!((shop.noted(number), shop.counts()), (Some(70), (1, 1)));
    let meanwhile = at(1, 1, || elsewhere!(&shop, Discount, 3));
    let number = execute!(&shop, Discount, 2, &meanwhile).expect("is executed");
    assert_eq!((shop.noted(number), shop.counts()), (Some(45), (1, 2)));
    let expected = Stock { price: 45, left: 5, sold: 201, ..stock() };
    assert_eq!(shop.stock(), Some(expected));
}

fn overflowing_sum_is_an_error(options: fn() -> DbxTcOptions) {
    let shop = open(options());
    let meanwhile = at(1, 1, || elsewhere!(&shop, Count, 30));
    let counted = execute!(&shop, Count, 30, &meanwhile);
    assert!(matches!(counted, Err(Error::Failure(_))), "{counted:?}");
    assert_eq!(shop.stock(), Some(Stock { sold: 230, ..stock() }));
    assert_eq!(shop.counts(), DONE_AGAIN);
}

fn carried_over_rows_are_checked(options: fn() -> DbxTcOptions) {
    let shop = open(options());
    let meanwhile = at(1, 1, || elsewhere!(&shop, Sell, 6));
    let sold = execute!(&shop, Sell, 6, &meanwhile);
    assert!(matches!(sold, Err(Error::Failure(Failure::Constraint { .. }))), "{sold:?}");
    assert_eq!((shop.stock(), shop.counts()), (Some(Stock { left: 4, ..stock() }), DONE_AGAIN));
}

fn index_changes_and_repeated_writes_are_not_carried_over(options: fn() -> DbxTcOptions) {
    // Another transaction moves the index entry.
    let shop = open(options());
    let meanwhile = at(1, 1, || elsewhere!(&shop, Write, 6));
    execute!(&shop, Sell, 1, &meanwhile).expect("sells");
    assert_eq!((shop.on_shelf(5), shop.on_shelf(6), shop.counts()), (0, 1, DONE_AGAIN));
    // The procedure itself moves the index entry.
    let meanwhile = at(1, 1, || elsewhere!(&shop, Sell, 2));
    execute!(&shop, Write, 7, &meanwhile).expect("is executed");
    assert_eq!((shop.on_shelf(6), shop.on_shelf(7), shop.counts()), (0, 1, (0, 2)));
    // Two steps of the procedure write the row.
    let meanwhile = at(1, 1, || elsewhere!(&shop, Sell, 2));
    execute!(&shop, Write, 7, &meanwhile).expect("is executed");
    let expected = Stock { shelf: 7, left: 5, note: "new!!!".into(), ..stock() };
    assert_eq!((shop.stock(), shop.counts()), (Some(expected), (0, 3)));
}

fn deletions_are_not_carried_over(options: fn() -> DbxTcOptions) {
    let shop = open(options());
    let meanwhile = at(1, 1, || elsewhere!(&shop, Sell, 1));
    execute!(&shop, Remove, 1, &meanwhile).expect("is executed");
    assert_eq!((shop.stock(), shop.counts()), (None, DONE_AGAIN));
    let shop = open(options());
    let meanwhile = at(1, 1, || elsewhere!(&shop, Remove, 1));
    execute!(&shop, Reprice, 1, &meanwhile).expect("is executed");
    assert_eq!((shop.stock(), shop.counts()), (None, DONE_AGAIN));
}

fn carrying_over_can_be_switched_off(options: fn() -> DbxTcOptions) {
    let shop = open(options().by_columns(false));
    let meanwhile = at(1, 1, || elsewhere!(&shop, Sell, 2));
    execute!(&shop, Sell, 3, &meanwhile).expect("sells");
    assert_eq!((shop.stock(), shop.counts()), (Some(Stock { left: 5, ..stock() }), DONE_AGAIN));
}
