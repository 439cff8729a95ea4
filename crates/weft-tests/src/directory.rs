//! Directories for tests that need the file system.

use std::path::PathBuf;

/// A temporary directory, which is deleted when this value is dropped.
pub struct TemporaryDirectory(pub PathBuf);

impl TemporaryDirectory {
    /// Creates one. `name` is part of its path.
    pub fn new(name: &str) -> Self {
        let unique = format!("weft-{name}-{}-{:x}", std::process::id(), fastrand::u64(..));
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir(&path).unwrap();
        TemporaryDirectory(path)
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
