//! Exporting tables of a running database through a snapshot, and importing them again.

use std::io::Cursor;

use weft::description::TableDescription;
use weft::protocol::Protocol;
use weft::{Database, Failure, Record};
use weft_exchange::{
    ExportError, Format, ImportError, Importer, Progress, export_table, import_table,
};

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "readings", key(sensor, number))]
struct Reading {
    sensor: String,
    number: u32,
    value: f64,
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "names", storage = "hash")]
struct Name {
    #[record(key)]
    id: u64,
    name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "sessions", volatile)]
struct Session {
    #[record(key)]
    id: u64,
    opened: std::time::Instant,
}

/// More than two batches.
const ROWS: u32 = 20_000;

fn database<P: Protocol>() -> Database<P> {
    let builder = Database::builder().protocol::<P>();
    builder.table::<Reading>().table::<Name>().table::<Session>().open().unwrap()
}

fn fill<P: Protocol>(database: &Database<P>) {
    let (readings, names) =
        (database.table::<Reading>().unwrap(), database.table::<Name>().unwrap());
    // Insert backwards, so that the order of keys is not the order of insertion.
    for number in (0..ROWS).rev() {
        let inserted = database.transact(|tx| {
            let sensor = ["north", "south"][number as usize % 2].to_owned();
            tx.insert(&readings, Reading { sensor, number, value: f64::from(number) / 3.0 })?;
            let name = (number % 3 > 0).then(|| format!("name {number}"));
            tx.insert(&names, Name { id: number.into(), name })
        });
        inserted.unwrap();
    }
}

fn import<T: Record>(format: Format, file: Vec<u8>) -> Vec<T> {
    let table = TableDescription::of::<T>().unwrap();
    let rows = Importer::new(&table, format, "file", Cursor::new(file)).unwrap();
    rows.map(|row| T::decode_row(&mut &row.unwrap()[..]).unwrap()).collect()
}

#[test]
fn export_shows_a_snapshot_during_writes() {
    let database = database::<weft::protocol::Dbx>();
    fill(&database);
    let readings = database.table::<Reading>().unwrap();
    let snapshot = database.open_snapshot().unwrap();
    let expected: Vec<Reading> = snapshot.rows(&readings).map(|row| row.unwrap().clone()).collect();
    assert_eq!(expected.len(), ROWS as usize);
    for format in Format::ALL {
        let mut told: Vec<Progress> = Vec::new();
        let file = export_table(&snapshot, &readings, format, Vec::new(), |progress| {
            // Between two batches, delete a row that is still to come, and insert another.
            database
                .transact(|tx| {
                    tx.delete(&readings, &("south".to_owned(), 19_999))?;
                    tx.upsert(&readings, Reading { sensor: "t".into(), number: 0, value: 0.0 })
                })
                .unwrap();
            told.push(progress);
        });
        let file = file.unwrap();
        assert!(told.len() >= 3, "{format}: {told:?}");
        let last = told.last().unwrap();
        assert_eq!((last.rows, last.bytes), (ROWS.into(), file.len() as u64), "{format}");
        assert_eq!(import::<Reading>(format, file), expected, "{format}");
    }
}

#[test]
fn hash_table_is_exported_in_some_order() {
    let database = database::<weft::protocol::TwoPhaseLocking>();
    fill(&database);
    let names = database.table::<Name>().unwrap();
    let snapshot = database.open_snapshot().unwrap();
    let file = export_table(&snapshot, &names, Format::Parquet, Vec::new(), |_| ()).unwrap();
    let mut rows = import::<Name>(Format::Parquet, file);
    rows.sort_by_key(|row| row.id);
    assert_eq!(rows.len(), ROWS as usize);
    for (id, row) in (0..).zip(&rows) {
        assert_eq!(row.id, id);
        assert_eq!(row.name, (id % 3 > 0).then(|| format!("name {id}")));
    }
}

#[test]
fn unexportable_tables_are_refused() {
    let database = database::<weft::protocol::Dbx>();
    let sessions = database.table::<Session>().unwrap();
    let session = Session { id: 1, opened: std::time::Instant::now() };
    database.transact(|tx| tx.insert(&sessions, session.clone())).unwrap();
    let snapshot = database.open_snapshot().unwrap();
    let error = export_table(&snapshot, &sessions, Format::Csv, Vec::new(), |_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "table `sessions` is volatile, and its columns have no stored form"
    );

    let foreign = self::database::<weft::protocol::Dbx>();
    let readings = foreign.table::<Reading>().unwrap();
    let error = export_table(&snapshot, &readings, Format::Csv, Vec::new(), |_| ()).unwrap_err();
    let is_foreign = matches!(
        &error,
        ExportError::Read { table, source: Failure::ForeignTable { .. } } if table == "readings"
    );
    assert!(is_foreign, "{error}");
}

/// Exported rows are imported again, by several threads, into a table of another database. Errors on the way
/// leave the table empty.
#[test]
fn exported_table_can_be_imported() {
    let source = database::<weft::protocol::Dbx>();
    fill(&source);
    let readings = source.table::<Reading>().unwrap();
    let snapshot = source.open_snapshot().unwrap();
    for format in Format::ALL {
        let file = export_table(&snapshot, &readings, format, Vec::new(), |_| ()).unwrap();
        let target = database::<weft::protocol::TwoPhaseLocking>();
        let imported = target.table::<Reading>().unwrap();
        let description = TableDescription::of::<Reading>().unwrap();
        let rows = |file: &[u8]| {
            Importer::new(&description, format, "readings", Cursor::new(file.to_vec()))
        };
        let damaged = rows(&file[..file.len() / 2]);
        let refused = damaged.and_then(|rows| import_table(&target, &imported, rows, 2));
        if format != Format::Csv {
            assert!(refused.is_err(), "{format}");
            assert_eq!(target.open_snapshot().unwrap().rows(&imported).count(), 0);
        }
        let target = database::<weft::protocol::TwoPhaseLocking>();
        let imported = target.table::<Reading>().unwrap();
        let count = import_table(&target, &imported, rows(&file).unwrap(), 3).unwrap();
        assert_eq!(count, u64::from(ROWS));
        let copy = target.open_snapshot().unwrap();
        let pairs = snapshot.rows(&readings).zip(copy.rows(&imported));
        assert!(pairs.into_iter().all(|(one, other)| one.unwrap() == other.unwrap()), "{format}");
        drop(copy);
        let again = import_table(&target, &imported, rows(&file).unwrap(), 3);
        assert!(matches!(again, Err(ImportError::Load(Failure::NotEmpty { .. }))), "{again:?}");
    }
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "seats")]
struct Seat {
    #[record(key)]
    id: u64,
    row: std::num::NonZeroU32,
}

/// Fault: a value that the stored form of a column can hold, and the type of the program's column cannot, ended the import by a
/// panic.
#[test]
fn a_value_that_the_column_refuses_is_an_error() {
    let database = Database::builder().table::<Seat>().open().unwrap();
    let seats = database.table::<Seat>().unwrap();
    let import = |csv: &str| {
        let table = TableDescription::of::<Seat>().unwrap();
        let rows = Importer::from_csv_stream(&table, "seats.csv", csv.as_bytes()).unwrap();
        import_table(&database, &seats, rows, 2)
    };
    let refused = import("id,row\n1,1\n2,0\n").unwrap_err();
    assert!(
        refused.to_string().starts_with("seats.csv, line 3: the row does not fit table `seats`: "),
        "{refused}"
    );
    // The table is empty again.
    assert_eq!(import("id,row\n1,1\n2,7\n").unwrap(), 2);
}
