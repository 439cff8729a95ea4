//! How much memory a row takes, with its key, its index and its record: after the load, and after each row was updated
//! a few times. For rows of 16 bytes and of 108 (a key of eight bytes and a payload), in a B+-tree and in a hash table.
//!
//! ```console
//! $ cargo bench -p weft --bench bytes_per_row -- [ROWS]
//! ```
//!
//! Loaded and updated: resident memory of the process, less what it had before. Linux only, since the system has to
//! report it.

use weft::{Database, Record, Table};

/// How often each row is updated.
const UPDATES: u64 = 3;

macro_rules! rows {
    ($($name:ident, $words:literal, $storage:literal;)*) => {$(
        #[derive(Clone, Copy, Record)]
        #[record(table = "rows", storage = $storage)]
        struct $name {
            #[record(key)]
            key: u64,
            payload: [u8; $words],
        }

        impl Measured for $name {
            const NAME: &str = concat!("8 + ", $words, " bytes, ", $storage);
            fn new(key: u64) -> Self {
                $name { key, payload: [0; $words] }
            }
            fn change(&mut self) {
                self.payload[0] = self.payload[0].wrapping_add(1);
            }
        }
    )*};
}

/// A row type that is measured.
trait Measured: Record<Key = u64> {
    const NAME: &str;
    fn new(key: u64) -> Self;
    fn change(&mut self);
}

rows! {
    SmallOrdered, 8, "ordered";
    SmallHashed, 8, "hash";
    LargeOrdered, 100, "ordered";
    LargeHashed, 100, "hash";
}

fn resident_bytes() -> Result<u64, Box<dyn std::error::Error>> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).ok_or("no resident memory in /proc/self/statm")?;
    Ok(pages.parse::<u64>()? * 4096)
}

fn measure<T: Measured>(rows: u64) -> Result<(), Box<dyn std::error::Error>> {
    let before = resident_bytes()?;
    let database = Database::builder().table::<T>().open()?;
    let table: Table<T> = database.table()?;
    for first in (0..rows).step_by(1000) {
        let last = rows.min(first + 1000);
        database.transact(|tx| tx.insert_many(&table, (first..last).map(T::new)))?;
    }
    let taken = || -> Result<f64, Box<dyn std::error::Error>> {
        Ok((resident_bytes()? - before) as f64 / rows as f64)
    };
    let loaded = taken()?;
    // In an order that is not the one of the load.
    let step = (rows * 5 / 8) | 1;
    for number in 0..rows * UPDATES {
        let key = (number * step) % rows;
        database.transact(|tx| tx.update(&table, &key, T::change).map(drop))?;
    }
    let updated = taken()?;
    let memory = &database.metrics().memory.indexes[0];
    assert_eq!(memory.records, rows);
    let (record, node) = (memory.record_bytes / rows, memory.node_bytes as f64 / rows as f64);
    println!("| {} | {loaded:.0} | {updated:.0} | {record} | {node:.0} |", T::NAME);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter(|it| it != "--bench");
    let rows = arguments.next().map_or(Ok(1_000_000), |rows| rows.parse())?;
    println!("Bytes for each of {rows} rows");
    println!(
        "| key and payload, index | loaded | updated | of these the record | its share of the index |"
    );
    println!("| --- | ---: | ---: | ---: | ---: |");
    measure::<SmallOrdered>(rows)?;
    measure::<SmallHashed>(rows)?;
    measure::<LargeOrdered>(rows)?;
    measure::<LargeHashed>(rows)
}
