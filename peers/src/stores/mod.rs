//! The compared systems, one file each.

pub mod lmdb;
pub mod mutex;
pub mod redb;
pub mod sharded;
pub mod sqlite;
pub mod stm;
pub mod surrealmx;
pub mod weft;

#[cfg(test)]
mod tests;
