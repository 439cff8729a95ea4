//! The engine's tests, in one program: most of its code is the engine's, compiled for each protocol, and is shared by
//! all of these modules.

#![cfg(not(any(loom, shuttle)))]

mod adaptive;
mod atomic;
mod chopping;
mod columns;
mod derive_record;
mod doppel;
mod durability;
mod escrow;
mod expiry;
mod generated;
mod history;
mod htcc;
#[cfg(unix)]
mod irregular_files;
mod locking;
mod many;
mod misuse;
mod model;
mod named_tables;
mod once;
mod operations;
mod paper_phases;
mod pool;
mod procedures;
mod reapply;
mod rebase;
mod repair;
mod row;
mod savepoints;
mod scans;
mod schema_versions;
mod schemas;
mod snapshot_reads;
mod stored_checks;
mod submissions;
mod workers;
