//! Tests of databases with a directory when the power fails, when the disk lies, and when files are damaged.
//! Acknowledged transactions survive, only committed transactions appear, and every other fault is reported.
//!
//! The disk is simulated. Every failure prints the numbers that repeat it.

mod accounts;
mod concurrent;
mod damage;
mod every_operation;
mod once;
mod pieces;
mod reapplied;
mod reconciled;

use std::path::Path;
use std::sync::Arc;

use weft::durability::SimulatedDisk;
use weft::protocol::Protocol;
use weft::{Builder, DurabilityOptions};

/// The directory of the database on the simulated disk.
const DIRECTORY: &str = "/db";

/// Places a database on a simulated disk. If `manual`, the log has no threads of its own.
fn place<P: Protocol>(
    builder: Builder<P>,
    disk: &SimulatedDisk,
    options: DurabilityOptions,
    manual: bool,
) -> Builder<P> {
    // A limit, because opening takes time for each possible worker.
    let builder = builder.workers_max(8).directory(Path::new(DIRECTORY)).durability(options);
    builder.backend(Arc::new(disk.clone()), manual)
}
