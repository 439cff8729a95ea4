//! Errors of a database's files.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use crate::row::schema::Violation;

/// Why something could not be read from a database's directory, or could not be made durable in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The operating system refused an operation.
    #[error("cannot {operation} {}: {message}", path.display())]
    Io {
        /// What was attempted, as a verb.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's message.
        message: String,
    },
    /// The disk has no space left. No writing transaction begins until there is some again. Reads go
    /// on. If a commit returns this error, the transaction has committed in memory, and becomes
    /// durable once there is space.
    #[error(
        "no space left on the disk for {}; reads go on, and writes once there is space: free some",
        path.display()
    )]
    DiskFull {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// The operating system could not write a file to the disk. From now on it is unknown which of
    /// the file's contents the disk holds. So nothing becomes durable after this error. Open the
    /// database again.
    #[error(
        "cannot sync {}: {message}; nothing committed since the last durable epoch is durable, and \
         nothing will be until the database is opened again",
        path.display()
    )]
    SyncFailed {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's message.
        message: String,
    },
    /// A file holds bytes that Weft did not write this way, at a place where no crash can have left
    /// them.
    #[error("{} is damaged at byte {offset}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The place of the damage, in bytes from the start of the file.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// Something other than a regular file has the name of one of the database's files.
    #[error(
        "{} is {found}, and should be a regular file; remove it, and put the file back from a \
         backup",
        path.display()
    )]
    NotAFile {
        /// The file.
        path: PathBuf,
        /// The kind of file that was found, such as "a FIFO".
        found: &'static str,
    },
    /// Stored rows do not fit the program's row type: they break a constraint that was added after
    /// they were written, share the values of an index that is unique now, or have a value that the
    /// program's type does not have.
    #[error(
        "table `{table}`: {count} stored {} not fit the program: {}; correct them with the program \
         that wrote them, and open the database again",
        if *count == 1 { "row does" } else { "rows do" },
        in_words(rows, *count)
    )]
    Constraint {
        /// The table.
        table: String,
        /// The first of these rows, in the order of the encoded keys.
        rows: Vec<RowViolation>,
        /// How many there are.
        count: u64,
    },
    /// Code of a row type, such as a check, a default or a migration, panicked while the database
    /// was opened. The directory is unchanged.
    #[error(
        "code of the program panicked while the database was opened: {message}; the directory is unchanged"
    )]
    Panicked {
        /// The message of the panic.
        message: String,
    },
    /// The stored rows need more memory than the database may use.
    #[error(
        "the stored rows need more than {used_bytes} bytes of memory, and the limit is {limit_bytes}; raise \
         .memory_limit(bytes) in the builder"
    )]
    MemoryFull {
        /// How many bytes the database used when it reached the limit.
        used_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// A hook of [`Builder::migrate`](crate::Builder::migrate) failed. The directory is unchanged.
    #[error(
        "the migration from version {from} to {} failed: {message}; the directory is unchanged",
        u64::from(*from) + 1
    )]
    Migration {
        /// The version from which the hook leads to the next one.
        from: u32,
        /// The message of its error.
        message: String,
    },
    /// Another process, or another handle of this one, has the database open.
    #[error("{} is open already; a database is open in one process, once", directory.display())]
    AlreadyOpen {
        /// The directory of the database.
        directory: PathBuf,
    },
    /// The directory holds something other than a database.
    #[error("{} is not a database: {message}", directory.display())]
    NotADatabase {
        /// The directory.
        directory: PathBuf,
        /// What is there, or is missing.
        message: String,
    },
    /// Another version of Weft wrote a file, in a format that this version does not know.
    #[error("{} has format version {version}, which this version of Weft cannot read", path.display())]
    UnknownVersion {
        /// The file.
        path: PathBuf,
        /// The format version that the file names.
        version: u32,
    },
    /// The tables that the database was opened with do not match the stored ones.
    #[error("the tables differ from the stored ones: {message}")]
    SchemaMismatch {
        /// What differs, and what to do.
        message: String,
    },
    /// The caller requested the state at the end of an epoch, and the files do not hold that state.
    #[error(
        "cannot open epoch {epoch}: the checkpoint and the log hold the states from epoch {first} to {last}"
    )]
    EpochUnavailable {
        /// The epoch that was requested.
        epoch: u64,
        /// The first epoch that is available: the checkpoint's.
        first: u64,
        /// The last epoch that is available.
        last: u64,
    },
    /// Procedures under `dbx-tc` have deferred changes that cannot be made now: see
    /// [`Failure::DeferredOutOfRange`](crate::Failure::DeferredOutOfRange). They must be durable together with the
    /// procedures. If a commit returns this error, the transaction has committed in memory, and becomes durable when the
    /// changes have been made. If [`Database::close`](crate::Database::close) does, what was not yet durable is lost.
    #[error(
        "nothing becomes durable, because a change that a procedure has deferred cannot be made: its sum does not fit \
         its column, or code of a row's type panics; it waits until another procedure has changed the column so that \
         the sum fits"
    )]
    EpochHeld,
    /// The log was shut down.
    #[error("the log is closed")]
    Closed,
}

/// A stored row that does not fit the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowViolation {
    /// The row's primary key.
    pub key: String,
    /// Why the row is refused.
    pub violation: Violation,
}

/// How many rows [`StorageError::Constraint`] lists at most.
const ROWS_MAX: usize = 20;

/// Collects the rows that do not fit.
#[derive(Debug, Default)]
pub(crate) struct RowViolations {
    /// The first ones, in the order of the bytes that they are added with.
    first: BTreeMap<Vec<u8>, RowViolation>,
    count: u64,
}

impl RowViolations {
    /// Adds a row. A row that is added twice with the same `order` is listed once.
    pub fn add(&mut self, order: Vec<u8>, key: String, violation: Violation) {
        self.count += 1;
        self.first.insert(order, RowViolation { key, violation });
        if self.first.len() > ROWS_MAX {
            self.first.pop_last();
        }
    }

    /// Returns the error for these rows of `table`, if there are any.
    pub fn into_result(self, table: &str) -> Result<(), StorageError> {
        if self.count == 0 {
            return Ok(());
        }
        let rows = self.first.into_values().collect();
        Err(StorageError::Constraint { table: table.to_owned(), rows, count: self.count })
    }
}

fn in_words(rows: &[RowViolation], count: u64) -> String {
    let row = |RowViolation { key, violation }: &RowViolation| format!("row {key}: {violation}");
    let mut words: Vec<_> = rows.iter().map(row).collect();
    if count > rows.len() as u64 {
        words.push(format!("and {} more", count - rows.len() as u64));
    }
    words.join("; ")
}

impl StorageError {
    /// Returns the error for a failed operation of the operating system on `path`. A full disk
    /// becomes [`StorageError::DiskFull`], and a file that is not a regular file becomes
    /// [`StorageError::NotAFile`].
    pub fn io(operation: &'static str, path: &Path, error: &io::Error) -> StorageError {
        let path = path.to_owned();
        let not_regular = error.get_ref().and_then(|inner| inner.downcast_ref::<NotRegular>());
        if let Some(&NotRegular { found }) = not_regular {
            return StorageError::NotAFile { path, found };
        }
        if is_disk_full(error) {
            return StorageError::DiskFull { path };
        }
        StorageError::Io { operation, path, message: error.to_string() }
    }

    /// Returns the error for a failed sync of `path`, whether it failed for lack of space or for
    /// any other reason.
    pub fn sync(path: &Path, error: &io::Error) -> StorageError {
        StorageError::SyncFailed { path: path.to_owned(), message: error.to_string() }
    }

    /// Returns the error for a damaged file `path`.
    pub fn damaged(path: &Path, offset: u64, what: impl Display) -> StorageError {
        StorageError::Damaged { path: path.to_owned(), offset, what: what.to_string() }
    }
}

/// Returns whether an operation failed for lack of space, which may become available again.
pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Something other than a regular file has the name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is {found}, and not a regular file")]
pub struct NotRegular {
    /// The kind of file that was found, such as "a FIFO".
    pub found: &'static str,
}
