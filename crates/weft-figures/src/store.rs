//! Results that are kept, so that a run goes on where another stopped.
//!
//! There is one file for each call, whichever figures it belongs to: several figures of a paper show the same
//! points. Its name ends in a hash of the call; in it stands the whole call, so that two calls with one hash
//! are but one too many runs. A file is there whole or not at all.

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

/// What a file holds.
#[derive(Debug, Deserialize, Serialize)]
pub struct Kept {
    /// The call, as one repeats it.
    pub command: String,
    /// What build of the program was run.
    pub build: String,
    /// How long it took.
    pub seconds: f64,
    /// What it reported.
    pub report: Value,
}

impl Store {
    /// The results in a directory, which is made if there is none. Those of other builds of the programs
    /// count only if `any_build`.
    ///
    /// # Errors
    /// The system's.
    pub fn open(directory: &Path, any_build: bool) -> io::Result<Store> {
        fs::create_dir_all(directory)?;
        Ok(Store { directory: directory.to_owned(), any_build })
    }

    /// The result of a call by this build, if it is there.
    pub fn get(&self, call: &Call, build: &str) -> Option<Kept> {
        let text = fs::read_to_string(self.path(call)).ok()?;
        // One that is damaged is as good as none.
        let kept: Kept = serde_json::from_str(&text).ok()?;
        let is_same_build = self.any_build || kept.build == build;
        (kept.command == call.to_string() && is_same_build).then_some(kept)
    }

    /// Keeps a result.
    ///
    /// # Errors
    /// The system's.
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

/// Writes a file so that whoever reads it sees all of it, or what was there before.
///
/// # Errors
/// The system's.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".part");
    let temporary = PathBuf::from(temporary);
    fs::write(&temporary, text)?;
    fs::rename(&temporary, path)
}

/// FNV-1a: names of files have to be the same with every version of Rust.
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

    /// A directory of this test's own.
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
        // Damaged, or under a hash that is another's as well.
        store.put(&here, &kept(&other, "one")).unwrap();
        assert!(store.get(&here, "one").is_none());
        fs::write(directory.join(&names[0]), "{").unwrap();
        assert!(store.get(&here, "one").is_none());
        fs::remove_dir_all(directory).unwrap();
    }
}
