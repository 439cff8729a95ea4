//! What programs that run under all protocols instantiate, instantiated once. Only in builds without optimisation.
//!
//! The engine is generic over protocols, so such a program compiles much of the engine for each of them. Without
//! optimisation the compiler takes functions that a library has instantiated already from there. So the functions below are
//! never called: they only have the engine compiled here, once for all test programs. That takes a quarter of the time in
//! which the test programs of `weft-tests` compile.

use weft::protocol::Protocol;
use weft::{Database, Error, Record, Table, column_of};

/// A row with a key of one word, and a long index key.
#[derive(Clone, Copy, Debug, Record)]
#[record(index(name = by_value, columns(value, id)))]
struct Plain {
    #[record(key)]
    id: u32,
    #[record(unique)]
    value: u64,
}

/// A row with a key of two words, in a hash table.
#[derive(Clone, Copy, Debug, Record)]
#[record(storage = "hash")]
struct Wide {
    #[record(key)]
    group: u64,
    #[record(key)]
    id: u64,
    value: i64,
}

/// A row that owns memory, with a long key.
#[derive(Clone, Debug, Record)]
#[record(index(name = by_text, columns(text)))]
struct Owning {
    #[record(key)]
    name: String,
    text: String,
}

fn run<P: Protocol>(
    plain: &Table<Plain>,
    wide: &Table<Wide>,
    owning: &Table<Owning>,
    database: &Database<P>,
) -> Result<(), Error> {
    database.transact(|tx| {
        let row = Plain { id: 1, value: 1 };
        tx.insert(plain, row)?;
        tx.upsert(plain, row)?;
        tx.get(plain, &1)?;
        tx.update(plain, &1, |row| row.value = 2)?;
        tx.delete(plain, &1)?;
        for row in tx.range(plain, ..) {
            row?;
        }
        tx.add(plain, &1, column_of!(Plain.value), 1)?;
        let row = Wide { group: 1, id: 1, value: 1 };
        tx.insert(wide, row)?;
        tx.upsert(wide, row)?;
        tx.get(wide, &(1, 1))?;
        tx.update(wide, &(1, 1), |row| row.value = 2)?;
        tx.add(wide, &(1, 1), column_of!(Wide.value), 1)?;
        tx.delete(wide, &(1, 1))?;
        let row = Owning { name: String::new(), text: String::new() };
        tx.insert(owning, row.clone())?;
        tx.upsert(owning, row)?;
        tx.get(owning, "")?;
        tx.update(owning, "", |row| row.text.clear())?;
        tx.delete(owning, "")?;
        for row in tx.range(owning, ..) {
            row?;
        }
        Ok::<_, Error>(())
    })
}

fn open<P: Protocol>() -> Result<(), Error> {
    let database = Database::builder()
        .protocol::<P>()
        .table::<Plain>()
        .table::<Wide>()
        .table::<Owning>()
        .directory("/")
        .open()?;
    let (plain, wide, owning) = (database.table()?, database.table()?, database.table()?);
    run(&plain, &wide, &owning, &database)?;
    database.snapshot(|snapshot| snapshot.get(&plain, &1).map(drop).map_err(Error::from))?;
    database.checkpoint()?;
    let metrics = database.metrics();
    drop(metrics);
    Ok(database.close()?)
}

/// Uses every protocol.
///
/// # Errors
/// Those of the engine.
pub fn every_protocol() -> Result<(), Error> {
    for protocol in crate::PROTOCOLS {
        crate::with_protocol!(protocol.name, |P| open::<P>()?);
    }
    Ok(())
}
