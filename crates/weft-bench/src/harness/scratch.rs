//! A directory for one database, for as long as the benchmark runs.

use std::path::{Path, PathBuf};

use crate::stop::Stop;

/// A directory that goes with what is in it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory in `parent` for the `number`-th database of this process.
    ///
    /// # Errors
    /// The system's, with the path.
    pub fn create(parent: &Path, number: usize) -> Result<Scratch, Stop> {
        let path = parent.join(format!("weft-bench-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| {
            Stop::Usage(format!(
                "cannot make '{}' for --directory: {error}; name a directory that is there and \
                 can be written",
                path.display()
            ))
        })?;
        Ok(Scratch(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left, and the next run is not disturbed by it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
