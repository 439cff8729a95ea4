//! A directory for one database, removed at the end of the benchmark.

use std::path::{Path, PathBuf};

use crate::stop::Stop;

/// A directory that is removed, with its content, when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory in `parent` for the `number`-th database of this process.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn create(parent: &Path, number: usize) -> Result<Scratch, Stop> {
        let path = parent.join(format!("weft-bench-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| {
            Stop::Usage(format!(
                "cannot make '{}' for --directory: {error}; name a directory that exists and can be \
                 written",
                path.display()
            ))
        })?;
        Ok(Scratch(path))
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that cannot be removed is left; it does not disturb the next run.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
