//! Keys that are not keys of the table, nor borrowed forms of one.

use weft::{Database, Error, Record};

#[derive(Clone, Record)]
struct Grade {
    #[record(key)]
    pupil: String,
    #[record(key)]
    year: u16,
    grade: u8,
}

#[derive(Clone, Record)]
struct Person {
    #[record(key)]
    name: String,
}

fn main() -> Result<(), Error> {
    let database = Database::builder().table::<Grade>().table::<Person>().open()?;
    let (grades, people) = (database.table::<Grade>()?, database.table::<Person>()?);
    database.transact(|tx| {
        tx.get(&people, &7)?;
        tx.get(&people, "Ada".to_owned())?;
        tx.get(&grades, &("Ada", 3))?;
        tx.get(&grades, ("Ada", "3"))?;
        tx.get(&grades, "Ada")?;
        tx.starts_with(&grades, ("Ada", 3)).first_row()?;
        tx.get_many(&people, [7])?;
        Ok::<_, Error>(())
    })
}
