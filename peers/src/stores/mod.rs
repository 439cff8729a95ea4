//! The compared systems, one file each.

pub mod lmdb;
pub mod mutex;
pub mod redb;
pub mod sqlite;
pub mod surrealmx;
pub mod weft;

#[cfg(test)]
mod tests;
