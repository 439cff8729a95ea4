//! Tests that a FIFO, a directory or a socket in place of a database's file is refused, with its path in the
//! message. A FIFO must not block the thread that opens the database.

use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use weft::durability::StorageError;
use weft::{Database, Failure, Record};
use weft_tests::TemporaryDirectory;

#[derive(Clone, Copy, Record)]
struct Item {
    #[record(key)]
    id: u32,
    value: u64,
}

/// Opens a database on another thread, so that the test fails instead of blocking.
fn open(directory: &Path) -> Result<Database, Failure> {
    let (sender, receiver) = mpsc::channel();
    let directory = directory.to_owned();
    std::thread::spawn(move || {
        sender.send(Database::builder().table::<Item>().directory(&directory).open())
    });
    receiver.recv_timeout(Duration::from_secs(30)).expect("opening does not block")
}

fn put(database: &Database, id: u32) {
    let items = database.table::<Item>().unwrap();
    database.transact(|tx| tx.upsert(&items, Item { id, value: 7 })).unwrap();
}

/// Returns the files of a directory and of the directories in it.
fn files_in(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_in(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

/// Makes a directory with a manifest, a lock file, a checkpoint, and the log segments of two runs.
fn filled(name: &str) -> TemporaryDirectory {
    let directory = TemporaryDirectory::new(name);
    for run in 0..2 {
        let database = open(&directory.0).unwrap();
        put(&database, run);
        if run == 0 {
            database.checkpoint().unwrap();
            put(&database, 5);
        }
        database.close().unwrap();
    }
    directory
}

fn make_irregular(kind: &str, path: &Path) {
    match kind {
        "a FIFO" => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        "a directory" => std::fs::create_dir(path).unwrap(),
        _ => drop(UnixListener::bind(path).unwrap()),
    }
}

fn remove(path: &Path) {
    match path.is_dir() {
        true => std::fs::remove_dir(path).unwrap(),
        false => std::fs::remove_file(path).unwrap(),
    }
}

#[test]
fn irregular_file_is_refused_by_its_name() {
    // A socket's path has at most about 100 bytes, hence the short name.
    let directory = filled("irr");
    let files = files_in(&directory.0);
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    for expected in ["LOCK", "MANIFEST", "/log/", ".rows"] {
        assert!(names.iter().any(|name| name.contains(expected)), "no {expected} in {names:?}");
    }
    for path in &files {
        for kind in ["a FIFO", "a directory", "a socket"] {
            let saved = path.with_extension("saved");
            std::fs::rename(path, &saved).unwrap();
            // Outside of the directory, so that the engine does not list it.
            let saved_elsewhere = directory.0.with_extension("saved");
            std::fs::rename(&saved, &saved_elsewhere).unwrap();
            make_irregular(kind, path);
            let error = open(&directory.0).expect_err("an irregular file is refused");
            let message = error.to_string();
            let Failure::Storage(StorageError::NotAFile { path: named, found }) = error else {
                panic!("{kind} in place of {}: {message}", path.display());
            };
            assert_eq!((&named, found), (path, kind), "{message}");
            assert!(message.contains(&path.display().to_string()), "{message}");
            assert!(message.contains(kind) && message.contains("backup"), "{message}");
            remove(path);
            std::fs::rename(&saved_elsewhere, path).unwrap();
        }
    }
    let database = open(&directory.0).expect("every file is back in its place");
    put(&database, 9);
}

#[test]
fn fifo_in_place_of_the_new_manifest_is_replaced() {
    let directory = filled("irr-new");
    make_irregular("a FIFO", &directory.0.join("MANIFEST.new"));
    let database = open(&directory.0).expect("a leftover is removed");
    put(&database, 9);
    let files = files_in(&directory.0);
    let is_fifo = |path: &PathBuf| path.symlink_metadata().unwrap().file_type().is_fifo();
    assert!(!files.iter().any(is_fifo), "{files:?}");
}

#[test]
fn symbolic_link_to_a_file_is_followed() {
    let directory = filled("irr-link");
    let manifest = directory.0.join("MANIFEST");
    let elsewhere = TemporaryDirectory::new("irr-elsewhere");
    let moved = elsewhere.0.join("manifest");
    std::fs::rename(&manifest, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &manifest).unwrap();
    put(&open(&directory.0).expect("the link leads to a file"), 9);
}

#[test]
fn irregular_log_directory_is_refused() {
    for kind in ["a FIFO", "a socket"] {
        let directory = filled("irr-log");
        let log = directory.0.join("log");
        std::fs::remove_dir_all(&log).unwrap();
        make_irregular(kind, &log);
        let message = open(&directory.0).expect_err("the log is not a directory").to_string();
        assert!(message.contains(&log.display().to_string()), "{kind}: {message}");
    }
}
