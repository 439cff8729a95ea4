//! A process that is killed, and the protocol by which it reports acknowledged transactions.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use weft::protocol::Protocol;
use weft::{Acknowledge, Builder, Database, DurabilityOptions};

/// The environment variables that control the process.
pub const DIRECTORY: &str = "WEFT_KILL_DIRECTORY";
pub const WORKLOAD: &str = "WEFT_KILL_WORKLOAD";
pub const PROTOCOL: &str = "WEFT_KILL_PROTOCOL";
pub const SEED: &str = "WEFT_KILL_SEED";

/// Returns a builder with small segments and frequent checkpoints, so that kills hit all kinds of work.
pub fn builder<P: Protocol>(directory: &Path, acknowledge: Acknowledge) -> Builder<P> {
    let options = DurabilityOptions::new()
        .acknowledge(acknowledge)
        .epoch_interval(Duration::from_millis(2))
        .loggers(2)
        .segment_bytes(64 << 10)
        .checkpoint_log_bytes(Some(100 << 10))
        .threads(2);
    Database::builder().protocol::<P>().directory(directory).durability(options)
}

/// Writes one line, immediately and in one piece.
pub fn say(line: &str) {
    let line = format!("{line}\n");
    let mut output = std::io::stdout().lock();
    let said = output.write_all(line.as_bytes()).and_then(|()| output.flush());
    said.expect("the test reads the output");
}

/// Reports that the database is open.
pub fn say_open() {
    say("\nopen");
}

/// A process that runs transactions.
struct Runner {
    child: Child,
    /// Receives a message when the database is open.
    open: Receiver<()>,
    /// Collects the later lines.
    reader: JoinHandle<Vec<String>>,
}

impl Runner {
    fn start(workload: &str, protocol: &str, directory: &Path, seed: u64) -> Runner {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "runs_until_it_is_killed", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory)
            .env(WORKLOAD, workload)
            .env(PROTOCOL, protocol)
            .env(SEED, seed.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (is_open, open) = channel();
        let reader = spawn(move || {
            let (mut said, mut line) = (Vec::new(), String::new());
            while output.read_line(&mut line).unwrap() > 0 {
                // Ignore a line that was not written to its end.
                match line.strip_suffix('\n') {
                    None => {}
                    Some("open") => is_open.send(()).unwrap(),
                    Some(line) => said.push(line.to_owned()),
                }
                line.clear();
            }
            said
        });
        Runner { child, open, reader }
    }

    fn wait_until_open(&self) {
        self.open.recv().expect("the process opens the database");
    }

    /// Sends SIGKILL, and returns the lines that the process wrote.
    fn kill(mut self) -> Vec<String> {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "it ended on its own: {ended:?}");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reader.join().unwrap()
    }
}

/// The state after a kill.
pub struct KilledRun<'a> {
    pub directory: &'a Path,
    /// The lines that the processes have written since the last check.
    pub said: Vec<String>,
    pub random: &'a mut Rng,
    /// A text by which the run can be repeated.
    pub circumstances: &'a str,
}

/// Kills `rounds` processes of a workload under a protocol, and lets `check` check the directory that they leave.
pub fn kill_again_and_again<P: Protocol>(
    workload: &str,
    rounds: u32,
    load: impl FnOnce(&Path),
    mut check: impl FnMut(KilledRun<'_>),
) {
    let seed = match std::env::var("WEFT_SEED") {
        Ok(seed) => seed.parse().expect("WEFT_SEED is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64,
    };
    let mut random = Rng::with_seed(seed);
    let directory = TemporaryDirectory::new(P::NAME);
    load(&directory.0);
    let mut said = Vec::new();
    for round in 0..rounds {
        let circumstances =
            format!("{workload} under {}, round {round}, WEFT_SEED={seed}", P::NAME);
        println!("{circumstances}");
        let runner = Runner::start(workload, P::NAME, &directory.0, random.u64(..));
        if random.u8(..5) == 0 {
            // Kill it during recovery.
            sleep(Duration::from_millis(random.u64(5..60)));
        } else {
            runner.wait_until_open();
            sleep(Duration::from_millis(random.u64(50..400)));
        }
        said.append(&mut runner.kill());
        if round + 1 < rounds && random.u8(..4) == 0 {
            // Leave the directory for the next process to recover.
            continue;
        }
        check(KilledRun {
            directory: &directory.0,
            said: std::mem::take(&mut said),
            random: &mut random,
            circumstances: &circumstances,
        });
    }
}

/// A directory that is removed after the test, unless the test fails.
struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    fn new(name: &str) -> Self {
        let unique = format!("weft-kill-{name}-{}-{:x}", std::process::id(), fastrand::u64(..));
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir(&path).unwrap();
        TemporaryDirectory(path)
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the database is in {}", self.0.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
