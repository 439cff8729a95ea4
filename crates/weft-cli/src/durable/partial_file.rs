//! A file that gets its name once it is complete.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use weft_bench::stop::Stop;

/// A file that gets its name once it is complete, and then replaces a file of that name. If it is dropped before that,
/// it is removed.
pub struct PartialFile<'a> {
    pub file: File,
    path: PathBuf,
    name: &'a Path,
    is_finished: bool,
}

impl<'a> PartialFile<'a> {
    /// Creates the file, under another name.
    ///
    /// # Errors
    /// The name is that of a directory, or the file cannot be created.
    pub fn create(name: &'a Path) -> Result<PartialFile<'a>, Stop> {
        let mut path = name.as_os_str().to_owned();
        path.push(".unfinished");
        let path = PathBuf::from(path);
        let cannot = |error: io::Error| Stop::Usage(format!("{}: {error}", name.display()));
        if name.is_dir() {
            return Err(cannot(io::ErrorKind::IsADirectory.into()));
        }
        let file = File::create(&path).map_err(cannot)?;
        Ok(PartialFile { file, path, name, is_finished: false })
    }

    /// Syncs the file, and gives it its name.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn finish(mut self) -> Result<(), Stop> {
        let finished = self.file.sync_all().and_then(|()| fs::rename(&self.path, self.name));
        let finished = finished.and_then(|()| sync_parent(self.name));
        finished.map_err(|error| Stop::Failed(format!("{}: {error}", self.name.display())))?;
        self.is_finished = true;
        Ok(())
    }
}

/// Syncs the name of a file to the disk.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Only on Unix can a directory be opened as a file.
    if cfg!(unix) { File::open(parent)?.sync_all() } else { Ok(()) }
}

impl Drop for PartialFile<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            // The caller already reports why the file was not written; a failed removal adds nothing.
            let _ = fs::remove_file(&self.path);
        }
    }
}
