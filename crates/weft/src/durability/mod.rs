//! Durability: the files that a database writes to its directory, so that a crash loses nothing
//! that was acknowledged as durable.
//!
//! ```text
//!   DIR/LOCK                              held by the process that has the database open
//!   DIR/MANIFEST                          what there is; replaced as a whole
//!   DIR/log/<logger>-<sequence>.log       segments of the log: frames, in the order of epochs
//!   DIR/checkpoint-<epoch>/<table>-<part>.rows
//!                                         all rows as they were at the end of an epoch
//! ```
//!
//! In reading order:
//!
//! - [`backend`] has the operations that durability needs of a file system. [`file_system`] and
//!   [`simulated_disk`] are the two implementations.
//! - [`format`](mod@format) is the layout of frames and entries, and [`log`] writes them. `acknowledger` does what has
//!   to be done when they are durable.
//! - [`manifest`] says what a directory holds.
//! - [`checkpoint`] writes all rows, `segments` reads the log, and [`recovery`] restores a database
//!   from both.
//! - [`backup`] and [`inspect`](mod@inspect) are for operators.
//! - [`StorageError`] is the type of errors.

mod acknowledger;
pub mod backend;
pub mod backup;
pub mod checkpoint;
mod directory;
pub mod file_system;
pub mod format;
pub mod inspect;
pub mod log;
pub mod manifest;
mod parallel;
pub mod recovery;
mod segments;
#[cfg(any(test, feature = "simulated-disk"))]
pub mod simulated_disk;

pub(crate) use acknowledger::Acknowledger;
pub use backend::{Backend, File, LockError, LockGuard};
pub use backup::write_backup;
pub use checkpoint::{
    CheckpointOptions, CheckpointOutcome, CheckpointProgress, CheckpointSource, write_checkpoint,
};
pub use directory::{ReadingLock, lock, lock_for_reading};
pub use file_system::FileSystem;
pub use inspect::{Report, SegmentReport, TableReport, checked_tables, inspect, verify};
pub use log::{Epochs, Log, LogMetrics, LogOptions, LogState};
pub use manifest::{Checkpoint, CheckpointFile, LoggerSegments, Manifest};
pub use recovery::{
    Durations, Phase, RecoveryOptions, RecoveryProgress, RecoveryReport, StagedTable, StoredTable,
    end_run, read_rows, recover,
};
pub(crate) use recovery::{Migrate, MigratedRows, ProgramVersion, recover_as};
pub use segments::LogCut;
#[cfg(any(test, feature = "simulated-disk"))]
pub use simulated_disk::SimulatedDisk;

pub use crate::error::{NotRegular, RowViolation, StorageError};
