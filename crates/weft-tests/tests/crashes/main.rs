//! Databases with a directory, when the power fails, when the disk lies, and when files were damaged:
//! what was acknowledged is there, what is there was committed, and whatever else is wrong is said.
//!
//! The disk is a simulated one. Every failure names the numbers that repeat it.

mod accounts;
mod concurrent;
mod damage;
mod every_operation;
mod pieces;
mod reconciled;

use std::path::Path;
use std::sync::Arc;

use weft::durability::SimulatedDisk;
use weft::protocol::Protocol;
use weft::{Builder, DurabilityOptions};

/// Where the database lies on the simulated disk.
const DIRECTORY: &str = "/db";

/// Places a database on a simulated disk, with threads of its own unless `manual`.
fn place<P: Protocol>(
    builder: Builder<P>,
    disk: &SimulatedDisk,
    options: DurabilityOptions,
    manual: bool,
) -> Builder<P> {
    // Each opening takes time by the number of workers that there may be.
    let builder = builder.workers_max(8).directory(Path::new(DIRECTORY)).durability(options);
    builder.backend(Arc::new(disk.clone()), manual)
}
