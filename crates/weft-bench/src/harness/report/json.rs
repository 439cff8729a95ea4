//! The report for programs. [`super`] says what is in it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::stop::Stop;

use super::Report;

/// A map whose keys keep the order in which they are put in.
#[derive(Clone, Debug)]
pub struct InOrder<K, V>(pub Vec<(K, V)>);

impl<K: Serialize, V: Serialize> Serialize for InOrder<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// All protocols' reports, as one JSON array.
#[derive(Serialize)]
#[serde(transparent)]
pub struct JsonOutput<'a>(pub &'a [Report<'a>]);

/// Where the JSON goes to.
#[derive(Debug)]
pub enum JsonTarget {
    /// `-`: in place of the report.
    StandardOutput,
    /// A file. Until the results are there, it keeps what was in it before.
    File(PathBuf),
}

impl JsonTarget {
    /// The target of `--json`, tried before the run: nobody should spend minutes on results for a
    /// path that cannot be written.
    ///
    /// # Errors
    /// The path cannot be written.
    pub fn check(path: &Path) -> Result<Self, Stop> {
        if path == Path::new("-") {
            return Ok(JsonTarget::StandardOutput);
        }
        try_to_write(path).map_err(|error| {
            Stop::Usage(format!(
                "cannot write '{}' for --json: {error}; name a file in a directory that can be \
                 written, or '-' for standard output",
                path.display()
            ))
        })?;
        Ok(JsonTarget::File(path.to_owned()))
    }

    /// Whether the JSON takes the place of the report.
    pub fn is_standard_output(&self) -> bool {
        matches!(self, JsonTarget::StandardOutput)
    }

    /// Writes the results; `out` is what reports go to.
    ///
    /// # Errors
    /// The system's, with the path.
    pub fn write(&self, output: &impl Serialize, out: &mut impl Write) -> Result<(), Stop> {
        match self {
            JsonTarget::StandardOutput => Ok(write_to(out, output)?),
            JsonTarget::File(path) => {
                File::create(path).and_then(|file| write_to(file, output)).map_err(|error| {
                    Stop::Failed(format!("cannot write '{}': {error}", path.display()))
                })
            }
        }
    }
}

/// Opens the file for writing, changes nothing in it, and leaves none behind that was not there.
///
/// # Errors
/// It cannot be written.
pub fn try_to_write(path: &Path) -> io::Result<()> {
    match path.metadata() {
        // To open a pipe means to use it, so that is left for later, as with a device.
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => Ok(()),
        Ok(_) => OpenOptions::new().append(true).open(path).map(drop),
        Err(_) => {
            OpenOptions::new().append(true).create_new(true).open(path)?;
            std::fs::remove_file(path)
        }
    }
}

fn write_to(file: impl Write, output: &impl Serialize) -> io::Result<()> {
    let mut out = io::BufWriter::new(file);
    serde_json::to_writer_pretty(&mut out, output)?;
    writeln!(out)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order() {
        let map = InOrder(vec![("zebra", 1), ("ant", 2), ("mole", 3)]);
        assert_eq!(serde_json::to_string(&map).unwrap(), r#"{"zebra":1,"ant":2,"mole":3}"#);
    }
}
