//! The report as JSON. [`super`] describes its content.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::stop::Stop;

use super::Report;

/// A map whose keys keep the order of their insertion.
#[derive(Clone, Debug)]
pub struct InOrder<K, V>(pub Vec<(K, V)>);

impl<K: Serialize, V: Serialize> Serialize for InOrder<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// The reports of all protocols, as one JSON array.
#[derive(Serialize)]
#[serde(transparent)]
pub struct JsonOutput<'a>(pub &'a [Report<'a>]);

/// The destination of the JSON.
#[derive(Debug)]
pub enum JsonTarget {
    /// `-`: standard output, instead of the report.
    StandardOutput,
    /// A file, which keeps its content until the results are there.
    File(PathBuf),
}

impl JsonTarget {
    /// Returns the target of `--json`. The path is tried before the run, so that no results are lost because it
    /// cannot be written.
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

    /// Returns whether the JSON replaces the report.
    pub fn is_standard_output(&self) -> bool {
        matches!(self, JsonTarget::StandardOutput)
    }

    /// Writes the results. `out` is the destination of reports.
    ///
    /// # Errors
    /// The system's error, with the path.
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

/// Tests whether the file can be opened for writing. Leaves its content unchanged, and removes it if it did not
/// exist.
///
/// # Errors
/// The file cannot be written.
pub fn try_to_write(path: &Path) -> io::Result<()> {
    match path.metadata() {
        // Opening a pipe or a device has effects: do not try it here.
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
