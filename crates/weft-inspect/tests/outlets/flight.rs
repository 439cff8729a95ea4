//! What the flight recorder leaves behind.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use weft::{Database, Table};
use weft_inspect::{
    Entry, FLIGHT_FILE, Flight, FlightOptions, FlightRecorder, PREVIOUS_FLIGHT_FILE,
};

use crate::{Page, open, view};

/// Names the directory of a child, and what it does.
const CHILD: &str = "WEFT_FLIGHT_CHILD";

const FILE_BYTES: usize = 256 << 10;

/// A directory of a test, which is removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("weft-flight-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open_in(directory: &Path) -> (Database, Table<Page>) {
    let database = Database::builder().table::<Page>().directory(directory).open().unwrap();
    let pages = database.table::<Page>().unwrap();
    (database, pages)
}

fn often() -> FlightOptions {
    FlightOptions::new().bytes(FILE_BYTES).interval(Duration::from_millis(1))
}

fn committed(flight: &Flight) -> Vec<u64> {
    flight.reports().map(|report| report.totals.committed).collect()
}

/// Runs this program again, as a child that does what it is told.
fn start_child(what: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "flight::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{what} {}", directory.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// What a child does. In an ordinary run of the tests this does nothing.
#[test]
fn child() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (what, directory) = told.split_once(' ').unwrap();
    let directory = Path::new(directory);
    match what {
        "commit" => {
            let (database, pages) = open_in(&directory.join("data"));
            let recorder = often().start(&database).unwrap();
            for id in 0.. {
                view(&database, &pages, id % 10);
                println!("\ncommitted {}", id + 1);
                std::io::stdout().flush().unwrap();
            }
            drop(recorder);
        }
        "panic" => {
            let (database, pages) = open();
            let recorder = often().start(&database).unwrap();
            recorder.record_panics(Some(&directory.join("panic")));
            for id in 0..10 {
                view(&database, &pages, id);
            }
            while recorder_is_behind(&recorder, directory) {}
            panic!("the tide is out");
        }
        #[cfg(unix)]
        "fail" => {
            let (database, _) = open_in(&directory.join("data"));
            limit_files(FILE_BYTES / 2);
            let error = often().start(&database).unwrap_err();
            println!("\nrefused {error}");
            // The database cannot write its files either.
            std::process::exit(0);
        }
        _ => unreachable!("{what}"),
    }
}

/// Makes every write beyond this position of a file fail, as it does on a full disk.
#[cfg(unix)]
fn limit_files(bytes: usize) {
    let limit = libc::rlimit { rlim_cur: bytes as libc::rlim_t, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is valid, and the signal, whose handler is replaced, has none.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

fn recorder_is_behind(recorder: &FlightRecorder, directory: &Path) -> bool {
    let file = directory.join("looked at");
    recorder.save(&file).unwrap();
    committed(&Flight::read(&file).unwrap()).last() != Some(&10)
}

#[test]
fn after_a_kill_the_last_reports_are_true() {
    let directory = Directory::new("kill");
    let mut child = start_child("commit", &directory.0);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let counts = lines.filter_map(|line| line.unwrap().strip_prefix("committed ")?.parse().ok());
    let file = directory.file("data").join(FLIGHT_FILE);
    // Until a report has some of the commits.
    let mut acknowledged = 0_u64;
    for count in counts {
        acknowledged = count;
        if count >= 200
            && let Ok(flight) = Flight::read(&file)
            && committed(&flight).last().is_some_and(|&recorded| recorded >= 100)
        {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();

    let flight = Flight::read(&file).unwrap();
    let recorded = committed(&flight);
    assert!(recorded.is_sorted(), "{recorded:?}");
    assert!(flight.skipped.len() <= 1, "{:?}", flight.skipped);
    let (database, pages) = open_in(&directory.file("data"));
    let views: u64 = database
        .snapshot(|snapshot| {
            Ok::<_, weft::Error>(snapshot.rows(&pages).map(|page| page.unwrap().views).sum())
        })
        .unwrap();
    let last = *recorded.last().unwrap();
    assert!(acknowledged <= views && (100..=views).contains(&last), "{last} of {views}");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), FILE_BYTES as u64);

    // The next recorder keeps the file.
    let recorder = FlightRecorder::start(&database).unwrap();
    assert_eq!(recorder.file(), Some(&*file));
    let previous = Flight::read(directory.file("data").join(PREVIOUS_FLIGHT_FILE)).unwrap();
    assert_eq!(committed(&previous), recorded);
}

#[test]
fn at_a_panic_everything_is_saved_with_the_message() {
    let directory = Directory::new("panic");
    let mut child = start_child("panic", &directory.0);
    // What it prints must be read, or it would wait.
    let _ = BufReader::new(child.stdout.take().unwrap()).lines().count();
    assert!(!child.wait().unwrap().success());
    let flight = Flight::read(directory.file("panic")).unwrap();
    assert_eq!(flight.skipped, [""; 0]);
    assert_eq!(committed(&flight).last(), Some(&10));
    let (_, Entry::Panic(message)) = flight.entries.last().unwrap() else {
        panic!("{:?}", flight.entries.last());
    };
    assert!(message.contains("the tide is out") && message.contains("flight.rs"), "{message}");
}

#[test]
fn a_recorder_in_memory_is_bounded_and_saved_on_request() {
    let directory = Directory::new("memory");
    let (database, pages) = open();
    let recorder =
        FlightOptions::new().bytes(64 << 10).interval(Duration::from_micros(100)).start(&database);
    let recorder = recorder.unwrap();
    assert_eq!(recorder.file(), None);
    let file = directory.file("saved");
    // Until the ring has come round.
    loop {
        view(&database, &pages, 1);
        recorder.save(&file).unwrap();
        let flight = Flight::read(&file).unwrap();
        assert_eq!(flight.skipped, [""; 0]);
        if flight.reports().next().is_some_and(|report| report.totals.committed > 0) {
            break;
        }
    }
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 64 << 10);
}

#[test]
fn the_last_report_is_made_when_the_recorder_is_dropped() {
    let directory = Directory::new("end");
    let (database, pages) = open_in(&directory.file("data"));
    let recorder =
        FlightOptions::new().interval(Duration::from_secs(1000)).start(&database).unwrap();
    let file = recorder.file().unwrap().to_owned();
    for id in 0..7 {
        view(&database, &pages, id);
    }
    drop(recorder);
    assert_eq!(committed(&Flight::read(&file).unwrap()), [0, 7]);
}

#[test]
fn two_recorders_of_one_database_do_not_share_a_file() {
    let directory = Directory::new("two");
    let (database, _) = open_in(&directory.file("data"));
    let recorder = FlightRecorder::start(&database).unwrap();
    let error = FlightRecorder::start(&database).unwrap_err();
    assert!(error.to_string().contains("another flight recorder writes"), "{error}");
    drop(recorder);
    drop(FlightRecorder::start(&database).unwrap());
}

#[test]
fn a_directory_with_a_recording_is_a_sound_database() {
    let directory = Directory::new("sound");
    let path = directory.file("data");
    let (database, pages) = open_in(&path);
    drop(FlightRecorder::start(&database).unwrap());
    view(&database, &pages, 1);
    database.close().unwrap();
    drop((database, pages));
    let report = weft::durability::inspect(&weft::durability::FileSystem, &path, 1).unwrap();
    assert_eq!(report.leftovers, Vec::<PathBuf>::new());
    let (database, pages) = open_in(&path);
    view(&database, &pages, 1);
}

/// Fault: a recorder that could not fill its file left the file, and the next recorder renamed it over the recording of
/// the last crash.
#[test]
fn a_file_that_is_not_a_recording_does_not_replace_one() {
    let directory = Directory::new("partial");
    let data = directory.file("data");
    let (database, pages) = open_in(&data);
    let recorder = often().start(&database).unwrap();
    view(&database, &pages, 1);
    let file = recorder.file().unwrap().to_owned();
    drop(recorder);
    let previous = data.join(PREVIOUS_FLIGHT_FILE);
    std::fs::rename(&file, &previous).unwrap();
    let recorded = committed(&Flight::read(&previous).unwrap());
    assert_eq!(recorded.last(), Some(&1));
    for partial in [vec![0; 4096], Vec::new()] {
        std::fs::write(&file, partial).unwrap();
        drop(often().start(&database).unwrap());
        assert_eq!(committed(&Flight::read(&previous).unwrap()), recorded);
        std::fs::remove_file(&file).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_recorder_without_space_leaves_no_file() {
    let directory = Directory::new("full");
    let child = start_child("fail", &directory.0);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("\nrefused "), "{text}");
    assert!(!directory.file("data").join(FLIGHT_FILE).exists());
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_the_file() {
    use std::os::unix::fs::PermissionsExt;

    let directory = Directory::new("mode");
    let (database, _) = open_in(&directory.file("data"));
    let recorder = FlightRecorder::start(&database).unwrap();
    let file = std::fs::metadata(recorder.file().unwrap()).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
}
