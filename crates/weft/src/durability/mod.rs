//! Durability: what a database writes to its directory, so that a crash loses nothing that was
//! acknowledged as durable.
//!
//! ```text
//!   DIR/LOCK                              held by the process that has the database open
//!   DIR/MANIFEST                          what there is; replaced as a whole
//!   DIR/log/<logger>-<sequence>.log       segments of the log: frames, in the order of epochs
//!   DIR/checkpoint-<epoch>/<table>-<part>.rows
//!                                         all rows as they were at the end of an epoch
//! ```
//!
//! In reading order: [`backend`] is what is asked of a file system, and [`file_system`] and
//! [`simulated_disk`] are the two that there are; [`format`](mod@format) is how frames and entries
//! look; [`log`] writes them. [`error`] is what can go wrong.

pub mod backend;
pub mod error;
pub mod file_system;
pub mod format;
pub mod log;
pub mod simulated_disk;

pub use backend::{Backend, File, LockError, LockGuard};
pub use error::StorageError;
pub use file_system::FileSystem;
pub use log::{Epochs, Log, LogMetrics, LogOptions, LogState};
pub use simulated_disk::SimulatedDisk;
