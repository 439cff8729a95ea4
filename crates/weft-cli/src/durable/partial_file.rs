//! A file that gets its name once it is complete.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use weft_bench::stop::Stop;

/// A file that gets its name once it is complete, and then replaces a file of that name. If it is dropped before that,
/// it is removed. It is locked, so that no other program writes it at the same time.
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
    /// The name is that of a directory, another program writes the file, or the file cannot be created.
    pub fn create(name: &'a Path) -> Result<PartialFile<'a>, Stop> {
        let mut path = name.as_os_str().to_owned();
        path.push(".unfinished");
        let path = PathBuf::from(path);
        let cannot = |error: io::Error| Stop::Usage(format!("{}: {error}", name.display()));
        if name.is_dir() {
            return Err(cannot(io::ErrorKind::IsADirectory.into()));
        }
        match open_locked(&path).map_err(cannot)? {
            Some(file) => Ok(PartialFile { file, path, name, is_finished: false }),
            None => Err(Stop::Usage(format!(
                "{}: another program writes {}; wait until it has finished, or name another file",
                name.display(),
                path.display()
            ))),
        }
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

/// Opens a file, locks it, and makes it empty. Returns `None` if another program has locked it.
fn open_locked(path: &Path) -> io::Result<Option<File>> {
    loop {
        // The content is kept until the file is locked: it may be another program's.
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            // Some network file systems have no locks.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Before the lock was taken, another program may have finished this file, which has another name then.
        if is_at(&file, path)? {
            file.set_len(0)?;
            return Ok(Some(file));
        }
    }
}

/// Returns whether the file is the one at the path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let at_path = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        at_path => at_path?,
    };
    let opened = file.metadata()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        Ok((opened.dev(), opened.ino()) == (at_path.dev(), at_path.ino()))
    }
    // Elsewhere the standard library has no identities of files.
    #[cfg(not(unix))]
    Ok(opened.is_file() && at_path.is_file())
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A directory of a test, which is removed at its end.
    struct Directory(PathBuf);

    impl Directory {
        fn new(test: &str) -> Directory {
            let name = format!("weft-partial-file-{test}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).expect("the directory can be made");
            Directory(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Fault: two programs that wrote to one target shared its unfinished file. The first one reported success, and the
    /// second one then changed the finished file.
    #[test]
    fn second_writer_of_a_file_is_refused() {
        let directory = Directory::new("two");
        let name = directory.0.join("shop.dump");
        let mut first = PartialFile::create(&name).expect("no other program writes it");
        first.file.write_all(b"whole").expect("the file can be written");
        let Err(Stop::Usage(message)) = PartialFile::create(&name).map(|_| ()) else {
            panic!("a second writer is accepted");
        };
        assert!(message.contains("another program writes"), "{message}");
        first.finish().expect("the file gets its name");
        assert_eq!(fs::read(&name).expect("it is there"), b"whole");

        // A later writer replaces it, and a writer that does not finish leaves it as it is.
        drop(PartialFile::create(&name).expect("the first one has finished"));
        assert_eq!(fs::read(&name).expect("it is there"), b"whole");
        let mut later = PartialFile::create(&name).expect("no other program writes it");
        later.file.write_all(b"new").expect("the file can be written");
        later.finish().expect("the file gets its name");
        assert_eq!(fs::read(&name).expect("it is there"), b"new");
    }

    #[test]
    fn rest_of_a_killed_writer_is_overwritten() {
        let directory = Directory::new("rest");
        let name = directory.0.join("shop.dump");
        fs::write(directory.0.join("shop.dump.unfinished"), "a longer rest").expect("a file");
        let mut file = PartialFile::create(&name).expect("the rest is not locked");
        file.file.write_all(b"whole").expect("the file can be written");
        file.finish().expect("the file gets its name");
        assert_eq!(fs::read(&name).expect("it is there"), b"whole");
    }

    #[cfg(unix)]
    #[test]
    fn finished_file_is_not_at_the_unfinished_path() {
        let directory = Directory::new("identity");
        let (path, other) = (directory.0.join("one"), directory.0.join("other"));
        let file = File::create(&path).expect("the file can be made");
        assert!(is_at(&file, &path).expect("it has metadata"));
        fs::rename(&path, &other).expect("it can be renamed");
        assert!(!is_at(&file, &path).expect("there is no file"));
        fs::write(&path, "new").expect("the file can be made");
        assert!(!is_at(&file, &path).expect("it has metadata"));
    }
}
