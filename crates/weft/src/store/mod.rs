//! Where rows lie: records and their versions, tables over indexes, and the memory of the workers that change them.
//!
//! Nothing here decides what a transaction sees. That is the part of the layer above, `commit`.
#![allow(rustdoc::private_intra_doc_links, reason = "hidden: whoever reads it reads the source")]

pub mod deadline;
pub mod garbage;
pub mod ranges;
pub mod recent;
pub mod record;
pub mod retention;
pub mod table;
pub mod worker;

/// Whether memory is freed, and old versions let go of, after a few entries: for tests, whose runs are short.
pub const IS_HASTY: bool = cfg!(feature = "hasty-reclamation");
