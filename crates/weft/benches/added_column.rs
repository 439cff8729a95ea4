//! How long a directory takes to open for the program that has written it, and for the next version with one more
//! column:
//!
//! ```console
//! $ cargo bench -p weft --bench added_column -- DIR [ROWS [ROUNDS]]
//! ```
//!
//! It makes two databases in DIR, which must not exist: one whose rows are in a checkpoint, and one whose rows are in
//! the log. Each round opens a new copy of each with both programs, in turns.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weft::{Acknowledge, Builder, Database, DurabilityOptions, Error, Failure, Record};

#[derive(Clone, Record)]
#[record(table = "accounts")]
struct Account {
    #[record(key)]
    id: u64,
    owner: String,
    cents: i64,
    note: String,
}

/// The next version of the program.
mod next {
    use weft::Record;

    #[derive(Clone, Record)]
    #[record(table = "accounts")]
    pub struct Account {
        #[record(key)]
        pub id: u64,
        pub owner: String,
        pub cents: i64,
        pub note: String,
        #[record(default = 7)]
        pub rank: u32,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter(|it| it != "--bench");
    let parent = PathBuf::from(arguments.next().ok_or("name a directory that does not exist")?);
    let rows = arguments.next().map_or(Ok(1_000_000), |rows| rows.parse())?;
    let rounds = arguments.next().map_or(Ok(7), |rounds| rounds.parse())?;
    std::fs::create_dir(&parent)?;
    for source in ["checkpoint", "log"] {
        let directory = parent.join(source);
        fill(&directory, rows, source == "checkpoint")?;
        let (mut same, mut added) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let copy = parent.join("copy");
            copy_directory(&directory, &copy)?;
            same.push(opened(Database::builder().table::<Account>(), &copy)?);
            std::fs::remove_dir_all(&copy)?;
            copy_directory(&directory, &copy)?;
            added.push(opened(Database::builder().table::<next::Account>(), &copy)?);
            std::fs::remove_dir_all(&copy)?;
        }
        let (same, added) = (median(same), median(added));
        println!(
            "{rows} rows in the {source}: {:.3} s, with one more column {:.3} s, {:.3} times as long",
            same.as_secs_f64(),
            added.as_secs_f64(),
            added.as_secs_f64() / same.as_secs_f64()
        );
    }
    std::fs::remove_dir_all(&parent)?;
    Ok(())
}

fn options() -> DurabilityOptions {
    DurabilityOptions::new().acknowledge(Acknowledge::Committed).checkpoint_log_bytes(None)
}

fn fill(directory: &Path, rows: u64, has_checkpoint: bool) -> Result<(), Error> {
    let builder = Database::builder().table::<Account>().directory(directory);
    let database = builder.durability(options()).open()?;
    let accounts = database.table::<Account>()?;
    for first in (0..rows).step_by(1000) {
        database.transact(|tx| {
            for id in first..rows.min(first + 1000) {
                let (owner, note) = (format!("owner {id}"), "a note of some length".to_owned());
                tx.insert(&accounts, Account { id, owner, cents: id as i64, note })?;
            }
            Ok::<_, Error>(())
        })?;
    }
    if has_checkpoint {
        database.checkpoint()?;
    }
    Ok(database.close()?)
}

/// Opens a database, and returns how long that took.
fn opened(builder: Builder, directory: &Path) -> Result<Duration, Failure> {
    let start = Instant::now();
    let database = builder.directory(directory).durability(options()).open()?;
    let time = start.elapsed();
    drop(database);
    Ok(time)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn copy_directory(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
