//! A full disk: writes are refused, reads go on, and when there is space again, so do writes. Nothing that was
//! acknowledged is lost, reads included.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use weft::durability::{SimulatedDisk, StorageError};
use weft::protocol::Protocol;
use weft::{Database, DurabilityOptions, Error, Failure, Table};

use weft_tests::for_each_executor;

use super::{Text, eventually, failure, in_a_process};

struct Bank<P: Protocol> {
    database: Database<P>,
    texts: Table<Text>,
}

const SPARE_BYTES: u64 = 4096;

impl<P: Protocol> Bank<P> {
    fn open(disk: &SimulatedDisk) -> Result<Self, Failure> {
        Self::open_with(disk, true)
    }

    /// Opens a bank. Without a thread of the log, if it is `manual`.
    fn open_with(disk: &SimulatedDisk, manual: bool) -> Result<Self, Failure> {
        let options = DurabilityOptions::new().threads(1).spare_bytes(SPARE_BYTES);
        let options = options.segment_bytes(1500).checkpoint_log_bytes(None);
        let builder = Database::builder().protocol::<P>().directory("/db").table::<Text>();
        let database =
            builder.backend(Arc::new(disk.clone()), manual).durability(options).open()?;
        let texts = database.table().unwrap();
        Ok(Bank { database, texts })
    }

    fn put(&self, id: u64, bytes: usize) -> Result<(), Error> {
        let row = Text::new(id, bytes);
        self.database.transact(|tx| tx.upsert(&self.texts, row.clone()).map(drop))
    }

    /// Reads all rows in a transaction.
    fn read(&self) -> Result<BTreeMap<u64, usize>, Error> {
        self.database.transact(|tx| {
            let rows = tx.range(&self.texts, ..);
            rows.map(|row| row.map(|row| (row.id, row.text.len()))).collect()
        })
    }

    /// Reads all rows from a snapshot.
    fn read_snapshot(&self) -> Result<BTreeMap<u64, usize>, Error> {
        self.database.snapshot(|snapshot| {
            let rows = snapshot.range(&self.texts, ..);
            rows.map(|row| Ok(row.map(|row| (row.id, row.text.len()))?)).collect()
        })
    }
}

fn is_disk_full<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Failure(Failure::Storage(StorageError::DiskFull { .. }))))
}

/// The disk becomes full at every byte of a run. Each commit is acknowledged or refused; reads go on, and show what
/// survives a crash; with space again the same process writes on.
fn full_at_every_byte<P: Protocol>(step: usize) {
    let write = |bank: &Bank<P>, serial: u64| bank.put(serial % 5, 60 + serial as usize);
    let opened = SimulatedDisk::new(0);
    let bank = Bank::<P>::open(&opened).unwrap();
    let begin = opened.used_bytes();
    (0..14).for_each(|serial| write(&bank, serial).unwrap());
    let end = opened.used_bytes();
    drop(bank);
    let mut full = 0;
    for capacity in (begin..end).step_by(step) {
        let disk = SimulatedDisk::new(capacity);
        let bank = Bank::<P>::open(&disk).unwrap();
        disk.set_capacity(Some(capacity));
        let mut expected = BTreeMap::new();
        let mut refused = 0;
        for serial in 0..14 {
            match write(&bank, serial) {
                Ok(()) => {
                    assert_eq!(refused, 0, "capacity {capacity}: no write while the disk is full");
                    expected.insert(serial % 5, 60 + serial as usize);
                }
                result => {
                    assert!(is_disk_full(&result), "capacity {capacity}: {result:?}");
                    refused += 1;
                }
            }
            let read = bank.read().unwrap_or_else(|error| panic!("capacity {capacity}: {error}"));
            assert_eq!(read, expected, "capacity {capacity}");
            assert_eq!(bank.read_snapshot().unwrap(), expected, "capacity {capacity}");
            let crashed = Bank::<P>::open(&disk.crash(serial)).unwrap();
            assert_eq!(crashed.read().unwrap(), expected, "capacity {capacity}: after a crash");
        }
        if refused == 0 {
            continue; // It was full only when the other run was closed.
        }
        full += 1;
        // A checkpoint needs space, too.
        let checkpoint = bank.database.checkpoint();
        let metrics = bank.database.metrics().checkpoints.unwrap();
        assert_eq!(
            (metrics.written, metrics.failed),
            (u64::from(checkpoint.is_ok()), u64::from(checkpoint.is_err()))
        );
        assert_eq!(metrics.last_failure, checkpoint.err());
        // Space again.
        disk.set_capacity(None);
        bank.database.flush().unwrap();
        eventually("writing resumes", || write(&bank, 14).ok());
        expected.insert(4, 74);
        bank.database.checkpoint().unwrap();
        assert_eq!(bank.database.metrics().checkpoints.unwrap().last_failure, None);
        write(&bank, 15).unwrap();
        expected.insert(0, 75);
        assert_eq!(bank.read().unwrap(), expected);
        bank.database.close().unwrap();
        drop(bank);
        assert_eq!(Bank::<P>::open(&disk.crash(1)).unwrap().read().unwrap(), expected);
    }
    assert!(full as u64 >= (end - begin) / (2 * step as u64), "{full} full disks");
}

#[test]
fn a_disk_that_is_full_at_any_byte_refuses_writes_only() {
    full_at_every_byte::<weft::protocol::Dbx>(7);
}

#[test]
fn a_full_disk_refuses_writes_only_under_every_executor() {
    for_each_executor!(|P| full_at_every_byte::<P>(151));
}

/// A transaction that is larger than the spare commits in memory, and cannot be made durable.
#[test]
fn what_the_spare_has_no_room_for_is_not_acknowledged_nor_lost() {
    let disk = SimulatedDisk::new(1);
    let bank = Bank::<weft::protocol::Dbx>::open_with(&disk, false).unwrap();
    bank.put(1, 100).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + 100));
    assert!(is_disk_full(&bank.put(2, 3 * SPARE_BYTES as usize)));
    // Another transaction could read it, and a crash would lose it.
    assert!(is_disk_full(&bank.read()) && is_disk_full(&bank.read_snapshot()));
    let crashed = Bank::<weft::protocol::Dbx>::open(&disk.crash(1)).unwrap();
    assert_eq!(crashed.read().unwrap(), BTreeMap::from([(1, 100)]));
    disk.set_capacity(None);
    eventually("writing resumes", || bank.put(3, 10).ok());
    let all = BTreeMap::from([(1, 100), (2, 3 * SPARE_BYTES as usize), (3, 10)]);
    assert_eq!(bank.read().unwrap(), all);
    assert_eq!(Bank::<weft::protocol::Dbx>::open(&disk.crash(1)).unwrap().read().unwrap(), all);
}

#[test]
fn the_message_says_that_reads_go_on() {
    let disk = SimulatedDisk::new(1);
    let bank = Bank::<weft::protocol::Dbx>::open(&disk).unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    bank.put(1, 100).unwrap_or_else(|error| panic!("this one goes to the spare: {error}"));
    assert_eq!(
        failure(bank.put(2, 100)).to_string(),
        "no space left on the disk for /db/log/spare; reads go on, and writes once there is space: free \
         some"
    );
}

/// The body of a child process with a small disk of its own.
#[test]
#[ignore = "another test runs it, as a process of its own"]
fn fills_a_small_disk() {
    let Ok(directory) = std::env::var("WEFT_LIMITS_CASE") else { return };
    let directory = Path::new(&directory);
    let ballast = directory.join("ballast");
    let builder = Database::builder().directory(directory.join("db")).table::<Text>();
    let options = DurabilityOptions::new().spare_bytes(1 << 20).checkpoint_log_bytes(Some(1 << 20));
    let database = builder.durability(options).open().unwrap();
    let texts = database.table().unwrap();
    let bank = Bank { database, texts };
    bank.put(0, 100).unwrap();
    // Another program fills the disk.
    let mut pieces = 0;
    let fill = |file: &mut std::fs::File| std::io::Write::write_all(file, &[1; 1 << 16]);
    let mut file = std::fs::File::create(&ballast).unwrap();
    while fill(&mut file).is_ok() {
        pieces += 1;
    }
    drop(file);
    let mut acknowledged = 1;
    let refused = (1..).find_map(|id| match bank.put(id, 1000) {
        Ok(()) => {
            acknowledged += 1;
            None
        }
        Err(error) => Some(error),
    });
    let refused = refused.unwrap().to_string();
    for _ in 0..100 {
        assert_eq!(bank.read().unwrap().len(), acknowledged);
        assert_eq!(bank.read_snapshot().unwrap().len(), acknowledged);
        assert!(is_disk_full(&bank.put(9999, 1000)));
    }
    assert_eq!(bank.database.metrics().log.unwrap().state, weft::durability::LogState::DiskFull);
    std::fs::remove_file(&ballast).unwrap();
    let start = Instant::now();
    eventually("writing resumes", || bank.put(9999, 1000).ok());
    println!(
        "\nfull: {acknowledged} commits, then `{refused}`; reads go on; {:.0} ms after the other program has \
         removed {pieces} pieces of 64 KiB a write commits",
        start.elapsed().as_secs_f64() * 1e3
    );
    bank.database.close().unwrap();
    drop(bank);
    let database =
        Database::builder().directory(directory.join("db")).table::<Text>().open().unwrap();
    let texts = database.table().unwrap();
    assert_eq!(Bank { database, texts }.read().unwrap().len(), acknowledged + 1);
}

/// Uses a file system in memory, mounted in a name space of the child's own. Where the system does not allow that, the
/// test does nothing.
#[test]
#[cfg(target_os = "linux")]
fn a_small_file_system_that_fills_refuses_writes_until_there_is_space() {
    let place = weft_tests::TemporaryDirectory::new("limits-disk");
    let script = "mount -t tmpfs -o size=4m weft \"$WEFT_LIMITS_CASE\" && exec \"$0\" \"$@\"";
    let allowed = Command::new("unshare").args(["-Urm", "true"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        println!("this system does not let the test mount a file system");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
    let printed = in_a_process(command, "disk::fills_a_small_disk", &place.0.to_string_lossy());
    println!("{}", printed.lines().find(|line| line.starts_with("full:")).unwrap());
}
