//! A disk whose syncs take as long as the test wants: `WAITAOF`, and a server that stops while replies wait for the disk.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weft::Database;
use weft::durability::{Backend, File, LockError, LockGuard, SimulatedDisk};
use weft::htm::word::{Ordering, Word};
use weft_server::{Options, Server};

use crate::client::TestServer;

/// What holds syncs back.
#[derive(Debug, Default)]
struct Hold {
    /// No sync ends while the test has this lock.
    lock: Mutex<()>,
    /// How many syncs have begun.
    begun: Word,
}

/// A disk that syncs nothing while the test holds its lock.
#[derive(Debug)]
struct HeldDisk {
    disk: SimulatedDisk,
    hold: Arc<Hold>,
}

#[derive(Debug)]
struct HeldFile {
    file: Box<dyn File>,
    hold: Arc<Hold>,
}

impl HeldDisk {
    fn hold(&self, file: io::Result<Box<dyn File>>) -> io::Result<Box<dyn File>> {
        Ok(Box::new(HeldFile { file: file?, hold: Arc::clone(&self.hold) }))
    }
}

impl Backend for HeldDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.create_directory(path)
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.disk.list(directory)
    }
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.hold(self.disk.create_new(path))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.hold(self.disk.open(path))
    }
    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.disk.open_read_only(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_directory(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_directory(path)
    }
    fn try_lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        self.disk.try_lock(path)
    }
}

impl File for HeldFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.file.allocate(bytes)
    }
    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }
    fn sync(&self) -> io::Result<()> {
        self.hold.begun.fetch_add(1, Ordering::Relaxed);
        let _held = self.hold.lock.lock();
        self.file.sync()
    }
}

/// Starts a server on a disk whose syncs the test can hold back. `waits` says whether replies wait for the disk.
fn server(waits: bool) -> (TestServer, Arc<Hold>) {
    server_on(SimulatedDisk::new(1), waits)
}

fn server_on(disk: SimulatedDisk, waits: bool) -> (TestServer, Arc<Hold>) {
    let hold = Arc::new(Hold::default());
    let disk = HeldDisk { disk, hold: Arc::clone(&hold) };
    let builder = weft_server::with_tables(Database::builder()).directory("/db");
    let database = builder.backend(Arc::new(disk), false).open().unwrap();
    let options = Options { waits, ..Options::default() };
    let server = Server::builder().options(options).database(database).open().unwrap();
    (TestServer::of(server), hold)
}

#[test]
fn waitaof_waits_for_the_disk_until_its_time_is_over() {
    let (server, hold) = server(false);
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(client.say("WAITAOF 1 0 0"), "*[:1, :0]");
    assert_eq!(client.say("SET k 1"), "+OK");
    assert_eq!(client.say("WAITAOF 1 0 0"), "*[:1, :0]");
    let held = hold.lock.lock().unwrap();
    assert_eq!(client.say("SET k 2"), "+OK");
    let start = Instant::now();
    assert_eq!(client.say("WAITAOF 1 0 50"), "*[:0, :0]");
    assert!(start.elapsed() >= Duration::from_millis(50));
    // Without replication there is nothing else to wait for.
    assert_eq!(client.say("WAITAOF 0 1 0"), "*[:0, :0]");
    assert_eq!(client.say("WAIT 1 0"), ":0");
    // A client that does not want the reply waits, too, and gets the next one.
    client.send(b"CLIENT REPLY SKIP\r\nWAITAOF 1 0 1\r\n");
    // Replies to the commands before are sent while the client waits.
    client.send(b"GET k\r\nWAITAOF 1 0 0\r\nECHO after\r\n");
    assert_eq!(client.read().unwrap().shown(), "\"2\"");
    assert_eq!(other.say("GET k"), "\"2\"");
    drop(held);
    assert_eq!(client.read().unwrap().shown(), "*[:1, :0]");
    assert_eq!(client.read().unwrap().shown(), "\"after\"");
    for (line, reply) in [
        ("WAIT x 0", "-ERR value is not an integer or out of range"),
        ("WAIT 1 x", "-ERR timeout is not an integer or out of range"),
        ("WAIT 1 -1", "-ERR timeout is negative"),
        ("WAIT -1 9223372036854775807", ":0"),
        ("WAITAOF x 0 0", "-ERR value is not an integer or out of range"),
        ("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1"),
        ("WAITAOF 0 x 0", "-ERR value is not an integer or out of range"),
        ("WAITAOF 0 -1 0", "-ERR value is out of range, must be positive"),
        ("WAITAOF 0 0 x", "-ERR timeout is not an integer or out of range"),
        ("WAITAOF 0 0 -1", "-ERR timeout is negative"),
        ("WAITAOF 1 0 9223372036854775807", "*[:1, :0]"),
    ] {
        assert_eq!(client.say(line), reply, "{line}");
    }
}

#[test]
fn waitaof_says_that_the_disk_has_failed() {
    let disk = SimulatedDisk::new(1);
    let (server, hold) = server_on(disk.clone(), false);
    let mut client = server.client();
    assert_eq!(client.say("SET k 1"), "+OK");
    assert_eq!(client.say("WAITAOF 1 0 0"), "*[:1, :0]");
    let held = hold.lock.lock().unwrap();
    assert_eq!(client.say("SET k 2"), "+OK");
    disk.fail_sync(disk.syncs() + 1);
    client.send(b"WAITAOF 1 0 1000000\r\n");
    drop(held);
    let reply = client.read().unwrap().shown();
    assert!(reply.starts_with("-MISCONF"), "{reply}");
    server.stop_with_failed_log();
}

#[test]
fn commands_in_flight_are_answered_when_the_server_stops() {
    for (waits, request, reply) in [(true, "SET k 2", "+OK"), (false, "WAITAOF 1 0 0", "*[:1, :0]")]
    {
        let (server, hold) = server(waits);
        let mut client = server.client();
        assert_eq!(client.say("SET k 1"), "+OK");
        assert_eq!(client.say("WAITAOF 1 0 0"), "*[:1, :0]");
        let held = hold.lock.lock().unwrap();
        let begun = hold.begun.load(Ordering::Relaxed);
        if !waits {
            assert_eq!(client.say("SET k 2"), "+OK");
        }
        client.send(format!("{request}\r\n").as_bytes());
        while hold.begun.load(Ordering::Relaxed) == begun {}
        let address = server.address;
        std::thread::scope(|scope| {
            scope.spawn(move || drop(server));
            // It stops when it accepts no connections.
            while TcpStream::connect(address).is_ok() {}
            drop(held);
            assert_eq!(client.read().unwrap().shown(), reply);
            assert!(client.read().is_none());
        });
    }
}
