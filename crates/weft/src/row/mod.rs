//! Rows as data, without transactions: columns, the encoding of keys, table schemas, commutative
//! operations on columns, and descriptions of all these for the log and for other programs.

pub mod column;
pub mod description;
pub mod encoding;
pub(crate) mod generated;
pub mod operation;
mod parts;
pub mod schema;
pub mod timestamp;
