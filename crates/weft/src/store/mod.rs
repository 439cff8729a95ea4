//! Storage of rows: records and their versions, tables over indexes, and the memory of the workers.
//!
//! This layer does not decide what a transaction sees. The layer above it, `commit`, does.
#![allow(rustdoc::private_intra_doc_links, reason = "hidden: its readers have the source")]

pub mod ages;
pub mod deadline;
pub mod eventual;
pub mod garbage;
pub mod observer;
pub mod ranges;
pub mod recent;
pub mod record;
pub mod retention;
pub mod table;
pub mod worker;

/// True if memory is freed, and old versions are handed over, after only a few entries: for tests, whose runs
/// are short.
pub const RECLAIMS_EARLY: bool = cfg!(feature = "hasty-reclamation");
