//! A store of results, so that a command continues where another stopped.
//!
//! There is one file for each call, because several figures of a paper may show the same points. The file's name
//! ends in a hash of the call. The file contains the whole call, so a collision of two hashes only causes an
//! unnecessary run. A file is complete, or does not exist.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::Call;

/// A directory of results.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    any_build: bool,
}

/// The content of a file.
#[derive(Debug, Deserialize, Serialize)]
pub struct Kept {
    /// The call, as one types it.
    pub command: String,
    /// The build of the program that was run.
    pub build: String,
    /// How many seconds it took.
    pub seconds: f64,
    /// Its report.
    pub report: Value,
}

impl Store {
    /// Opens the results in a directory, which is created if it does not exist. Results of other builds of the
    /// programs are used only with `any_build`.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(directory: &Path, any_build: bool) -> io::Result<Store> {
        fs::create_dir_all(directory)?;
        Ok(Store { directory: directory.to_owned(), any_build })
    }

    /// Returns the stored result of a call by this build.
    pub fn get(&self, call: &Call, build: &str) -> Option<Kept> {
        let text = fs::read_to_string(self.path(call)).ok()?;
        // A damaged file counts as missing.
        let kept: Kept = serde_json::from_str(&text).ok()?;
        let is_same_build = self.any_build || kept.build == build;
        (kept.command == call.to_string() && is_same_build).then_some(kept)
    }

    /// Stores a result.
    ///
    /// # Errors
    /// The system's error.
    pub fn put(&self, call: &Call, kept: &Kept) -> io::Result<()> {
        let text = serde_json::to_string_pretty(kept).expect("plain values");
        write(&self.path(call), &format!("{text}\n"))
    }

    fn path(&self, call: &Call) -> PathBuf {
        let command = call.to_string();
        // `cargo simulate tpcc …`, `cargo lab bench tpcc …`
        let words = command.split(' ').skip(1).take_while(|word| !word.starts_with('-'));
        let words: Vec<&str> = words.collect();
        self.directory.join(format!("{}-{:016x}.json", words.join("-"), hash(&command)))
    }
}

/// Writes a file atomically: a reader sees all of it, or the previous content.
///
/// # Errors
/// The system's error.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".part");
    let temporary = PathBuf::from(temporary);
    fs::write(&temporary, text)?;
    fs::rename(&temporary, path)
}

/// Returns the FNV-1a hash: the names of files must be the same with every version of Rust.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::plan::Program;
    use serde_json::json;

    /// Returns the path of a directory for one test, which does not exist yet; each test uses a name of its own.
    pub fn scratch(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("weft-figures-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        directory
    }

    fn call(words: &[&str]) -> Call {
        let arguments = words.iter().map(|&word| word.to_owned()).collect();
        Call { program: Program::Simulator, arguments }
    }

    fn kept(call: &Call, build: &str) -> Kept {
        let report = json!({ "transactions_per_second": 5 });
        Kept { command: call.to_string(), build: build.to_owned(), seconds: 1.5, report }
    }

    #[test]
    fn a_result_is_found_by_its_call_and_its_build() {
        let directory = scratch("store");
        let store = Store::open(&directory, false).unwrap();
        let (here, other) = (call(&["tpcc", "--cores", "4"]), call(&["tpcc", "--cores", "8"]));
        store.put(&here, &kept(&here, "one")).unwrap();
        assert_eq!(store.get(&here, "one").unwrap().report["transactions_per_second"], 5);
        assert!(store.get(&other, "one").is_none(), "another call");
        assert!(store.get(&here, "two").is_none(), "another build");
        assert!(Store::open(&directory, true).unwrap().get(&here, "two").is_some());
        let names: Vec<String> = fs::read_dir(&directory)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        assert!(names.len() == 1 && names[0].starts_with("simulate-tpcc-"), "{names:?}");
        // A file of another call with the same hash, and a damaged file, count as missing.
        store.put(&here, &kept(&other, "one")).unwrap();
        assert!(store.get(&here, "one").is_none());
        fs::write(directory.join(&names[0]), "{").unwrap();
        assert!(store.get(&here, "one").is_none());
        fs::remove_dir_all(directory).unwrap();
    }
}
