//! Rows as data, without transactions: what a column is, how keys are encoded, which tables there are, which
//! operations on columns commute, and how all of it is described for the log and for other programs.

pub mod column;
pub mod description;
pub mod encoding;
pub mod operation;
pub mod schema;
