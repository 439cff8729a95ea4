//! Tests of the exact messages when something is wrong with the files or the disk, and that such files are left
//! unchanged.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use weft::durability::{Backend, SimulatedDisk, inspect};
use weft::protocol::Dbx;
use weft::{Acknowledge, Builder, Database, DurabilityOptions, Failure, Record};

use super::accounts::{Account, Bank, Posting, State, builder};
use super::{DIRECTORY, place};

fn options() -> DurabilityOptions {
    // No spare, which would be one more file, and no zeros, which would be longer than the log.
    DurabilityOptions::new().threads(1).segment_bytes(1000).spare_bytes(0).reserve_bytes(0)
}

fn open_as(builder: Builder<Dbx>, disk: &SimulatedDisk) -> Result<Database<Dbx>, Failure> {
    place(builder, disk, options(), true).open()
}

fn open(disk: &SimulatedDisk) -> Result<Bank<Dbx>, Failure> {
    Ok(Bank::of(open_as(builder(), disk)?))
}

/// Commits the transactions `numbers`, and waits for each until it is durable.
fn work(bank: &Bank<Dbx>, state: &mut State, numbers: std::ops::Range<u32>) -> Result<(), Failure> {
    for number in numbers {
        let changes = match number {
            0 => State::founding(),
            _ => state.draw(&mut fastrand::Rng::with_seed(number.into()), number),
        };
        bank.database.transact(|tx| bank.change(tx, &changes)).map_err(|error| match error {
            weft::Error::Failure(failure) => failure,
            weft::Error::Conflict(conflict) => unreachable!("only one thread: {conflict}"),
        })?;
        state.apply(&changes);
    }
    Ok(())
}

/// Makes a database with a checkpoint and several log segments after it, and closes it normally.
fn closed() -> (SimulatedDisk, State) {
    let (disk, mut state) = (SimulatedDisk::new(1), State::default());
    let bank = open(&disk).unwrap();
    work(&bank, &mut state, 0..10).unwrap();
    bank.database.checkpoint().unwrap();
    work(&bank, &mut state, 10..40).unwrap();
    bank.database.close().unwrap();
    drop(bank);
    (disk, state)
}

/// Makes a database like `closed`, which is used again until the power fails.
fn crashed() -> (SimulatedDisk, State) {
    let (disk, _) = closed();
    let bank = open(&disk).unwrap();
    let mut state = bank.state();
    work(&bank, &mut state, 100..110).unwrap();
    (disk.crash(1), state)
}

fn files(disk: &SimulatedDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    disk.files().into_iter().map(|path| (path.clone(), disk.contents(&path))).collect()
}

/// Returns the error of opening, and checks that opening has changed no file.
fn refusal(disk: &SimulatedDisk) -> String {
    refusal_as(builder(), disk)
}

fn refusal_as(builder: Builder<Dbx>, disk: &SimulatedDisk) -> String {
    let before = files(disk);
    let refused = open_as(builder, disk).expect_err("opening fails");
    let mut after = files(disk);
    // Opening may create the lock file, which is empty.
    after.retain(|path, _| !path.ends_with("LOCK") || before.contains_key(path));
    assert!(after == before, "opening has changed files: {refused}");
    refused.to_string()
}

fn segments(disk: &SimulatedDisk) -> Vec<PathBuf> {
    disk.files().into_iter().filter(|path| path.starts_with("/db/log")).collect()
}

/// A process that is killed leaves the zeros into which it has not written yet.
#[test]
fn zeros_at_the_end_are_no_damage_and_are_cut_off() {
    let (disk, state) = crashed();
    let last = segments(&disk).pop().unwrap();
    let length = disk.contents(&last).len();
    disk.damage(&last, |bytes| bytes.resize(length + 100_000, 0));
    let report = inspect(&disk, Path::new(DIRECTORY), 1).unwrap();
    assert_eq!((report.problems, report.cuts), (vec![], vec![]));
    assert_eq!(report.segments.last().unwrap().bytes, length as u64);
    let bank = open(&disk).unwrap();
    assert_eq!(bank.state(), state);
    assert_eq!(bank.database.recovered().unwrap().cuts, []);
    assert_eq!(disk.contents(&last).len(), length);
    drop(bank);

    // Half a frame was written into them.
    let (disk, state) = crashed();
    disk.damage(&last, |bytes| {
        let frame = bytes[..70].to_vec();
        bytes.extend(frame);
        bytes.resize(length + 100_000, 0);
    });
    let filled = disk.contents(&last).iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let bank = open(&disk).unwrap();
    assert_eq!(bank.state(), state);
    let cuts = &bank.database.recovered().unwrap().cuts;
    let [cut] = &cuts[..] else { panic!("{cuts:?}") };
    assert_eq!((cut.offset, cut.bytes), (length as u64, (filled - length) as u64));
    assert!(cut.what.starts_with("a frame of 84 bytes whose checksum is "), "{}", cut.what);
    assert_eq!(disk.contents(&last).len(), length);
}

#[test]
fn a_torn_tail_is_cut_off_and_reported() {
    let (disk, state) = crashed();
    let last = segments(&disk).pop().unwrap();
    // The last acknowledged transaction is followed by half a frame.
    disk.damage(&last, |bytes| {
        let frame = bytes[..65].to_vec();
        bytes.extend(frame);
    });
    let length = disk.contents(&last).len() as u64;
    let bank = open(&disk).unwrap();
    assert_eq!(bank.state(), state);
    let cuts = &bank.database.recovered().unwrap().cuts;
    let [cut] = &cuts[..] else { panic!("{cuts:?}") };
    assert_eq!((&cut.path, cut.offset, cut.bytes), (&last, length - 65, 65));
    assert_eq!(cut.what, "a frame of 84 bytes, of which the file has 65");
    drop(bank);
    let bank = open(&disk).unwrap();
    assert_eq!(bank.state(), state);
    assert_eq!(bank.database.recovered().unwrap().cuts, []);
}

#[test]
fn changed_bit_is_reported() {
    let (disk, _) = closed();
    let first = segments(&disk).remove(0);
    disk.flip_bit(&first, 8 * 300 + 1);
    assert_eq!(
        refusal(&disk),
        "/db/log/0-0000000002.log is damaged at byte 223: \
         a frame of 167 bytes whose checksum is 9367c8f4 instead of a10bbdd1"
    );
    // With the bit restored, the database opens.
    disk.flip_bit(&first, 8 * 300 + 1);
    open(&disk).unwrap();
}

#[test]
fn missing_segment_is_reported() {
    let (disk, _) = closed();
    let second = segments(&disk).remove(1);
    disk.remove(&second).unwrap();
    assert_eq!(
        refusal(&disk),
        "/db/log/0-0000000003.log is damaged at byte 0: the file is missing"
    );
}

#[test]
fn missing_checkpoint_file_is_reported() {
    let (disk, _) = closed();
    let is_rows = |path: &PathBuf| path.extension().is_some_and(|end| end == "rows");
    let rows = disk.files().into_iter().find(is_rows).unwrap();
    disk.remove(&rows).unwrap();
    assert_eq!(
        refusal(&disk),
        "/db/checkpoint-00000000000000000011/0-0.rows is damaged at byte 0: the file is missing"
    );
}

#[test]
fn missing_manifest_is_reported() {
    let (disk, _) = closed();
    disk.remove(Path::new("/db/MANIFEST")).unwrap();
    assert_eq!(
        refusal(&disk),
        "/db is not a database: it holds `checkpoint-00000000000000000011`, but no MANIFEST: \
         that was lost, or this is a backup that was interrupted"
    );
}

#[test]
fn directory_of_other_files_is_refused() {
    let disk = SimulatedDisk::new(1);
    disk.create_directory(Path::new(DIRECTORY)).unwrap();
    let file = disk.create_new(Path::new("/db/holiday.jpg")).unwrap();
    file.write_at(b"the sea", 0).unwrap();
    assert_eq!(
        refusal(&disk),
        "/db is not a database: it holds `holiday.jpg`, and no MANIFEST; \
         a new database needs an empty directory"
    );
}

mod other {
    //! The tables as another program declares them.
    use super::Record;

    #[derive(Clone, Debug, Record)]
    #[record(table = "accounts")]
    pub struct Account {
        #[record(key)]
        pub id: u64,
        #[record(index)]
        pub branch: u8,
        #[record(unique)]
        pub label: String,
        pub owner: String,
    }
}

#[test]
fn tables_that_do_not_fit_are_refused() {
    let (disk, state) = closed();
    let builder = Database::builder().table::<other::Account>().table::<Posting>();
    assert_eq!(
        refusal_as(builder, &disk),
        "the tables differ from the stored ones: table `accounts`: \
         column `owner` is new, and has no default for the rows that are stored: \
         give it one with `#[record(default = …)]`, or compute it from the row with \
         `#[record(computed = …)]`; \
         column `balance` is stored, and the program does not have it. If it is not needed any \
         more, say so: `#[record(dropped(balance))]`. If the program is older than the directory: \
         rows that it inserts need a value for the column, and the newer program has declared no \
         default for it"
    );
    // A program without the table `postings` leaves it as it is.
    let builder = Database::builder().table::<Account>();
    drop(place(builder, &disk, options(), true).open().unwrap());
    assert_eq!(open(&disk).unwrap().state(), state);
}

#[test]
fn missing_epoch_cannot_be_opened() {
    let (disk, _) = closed();
    let before = files(&disk);
    let refused = place(builder::<Dbx>(), &disk, options(), true).at_epoch(3).open();
    assert_eq!(
        refused.expect_err("the epoch is gone").to_string(),
        "cannot open epoch 3: the checkpoint and the log hold the states from epoch 11 to 43"
    );
    assert!(files(&disk) == before);
}

const SYNC_FAILED: &str = "cannot sync /db/log/0-0000000006.log: simulated input/output error; \
     nothing committed since the last durable epoch is durable, \
     and nothing will be until the database is opened again";

/// After a failed sync, the commit that waited for it and every later call return the error.
#[test]
fn every_call_reports_a_failed_sync() {
    let (disk, mut state) = closed();
    let bank = open(&disk).unwrap();
    let before = state.clone();
    disk.fail_sync(disk.syncs() + 1);
    for attempt in 0..3 {
        let failed = work(&bank, &mut state, 50..60).expect_err("the sync fails").to_string();
        assert_eq!(failed, SYNC_FAILED, "attempt {attempt}");
    }
    assert_eq!(bank.database.flush().unwrap_err().to_string(), SYNC_FAILED);
    assert_eq!(bank.database.checkpoint().unwrap_err().to_string(), SYNC_FAILED);
    assert_eq!(bank.database.close().unwrap_err().to_string(), SYNC_FAILED);
    drop(bank);
    // After reopening, the state is the one that was durable before. It may include the transaction whose sync
    // failed.
    let bank = open(&disk).unwrap();
    let mut after = before.clone();
    let changes = before.draw(&mut fastrand::Rng::with_seed(50), 50);
    after.apply(&changes);
    assert!([before, after].contains(&bank.state()));
    work(&bank, &mut bank.state(), 50..60).unwrap();
}

/// On a full disk every commit returns an error. When there is space again, the same process goes on.
#[test]
fn full_disk_is_reported_until_there_is_space() {
    let (disk, mut state) = closed();
    // The log's threads try again here. A single segment holds everything.
    let options = options().segment_bytes(1 << 20);
    let bank = Bank::of(place(builder::<Dbx>(), &disk, options, false).open().unwrap());
    work(&bank, &mut state, 50..52).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + 10));
    let before = state.clone();
    let full = work(&bank, &mut state, 60..70).expect_err("the disk is full").to_string();
    assert_eq!(
        full,
        "no space left on the disk for /db/log/0-0000000006.log; reads go on, and writes once there is space: free \
         some"
    );
    // A new transaction is refused at its start.
    let changes = before.draw(&mut fastrand::Rng::with_seed(3), 80);
    let refused = bank.database.transact(|tx| bank.change(tx, &changes));
    assert_eq!(refused.expect_err("the disk is full").to_string(), full);
    disk.set_capacity(None);
    let mut looks = 0;
    while let Err(error) = bank.database.flush() {
        assert_eq!(error.to_string(), full);
        looks += 1;
        assert!(looks < 10_000, "writing does not resume");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut state = bank.state();
    work(&bank, &mut state, 90..100).unwrap();
    drop(bank);
    assert_eq!(open(&disk.crash(3)).unwrap().state(), state);
}

const HOLDER: &str = "WEFT_CRASHES_HOLD";

/// The body of a child process that holds the database open until it is killed.
#[test]
#[ignore = "another test runs it, as a process of its own"]
fn holds_a_database_open() {
    let Ok(directory) = std::env::var(HOLDER) else { return };
    let database = builder::<Dbx>().directory(directory).open().unwrap();
    println!("\nopen");
    loop {
        std::thread::sleep(Duration::from_secs(1));
        // Panics when the other end of the pipe is closed.
        println!("{:?}", database.durable_epoch());
    }
}

#[test]
fn a_second_process_is_refused() {
    let unique = format!("weft-crashes-{}-{:x}", std::process::id(), fastrand::u64(..));
    let directory = std::env::temp_dir().join(unique);
    let options = DurabilityOptions::new().acknowledge(Acknowledge::Committed);
    let open = || builder::<Dbx>().directory(&directory).durability(options.clone()).open();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "damage::holds_a_database_open", "--ignored", "--nocapture"])
        .env(HOLDER, &directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "open"), "the child has not opened the database");
    let refused = open().expect_err("the child has the database open");
    assert_eq!(
        refused.to_string(),
        format!("{} is open already; a database is open in one process, once", directory.display())
    );
    // The operating system releases the lock of a killed process.
    holder.kill().unwrap();
    holder.wait().unwrap();
    drop(open().unwrap());
    std::fs::remove_dir_all(&directory).unwrap();
}
