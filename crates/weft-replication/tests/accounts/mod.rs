//! The table of the tests that need only one.

use weft::protocol::Dbx;
use weft::{Database, Record};
use weft_replication::NodeBuilder;

use crate::common::by_call;

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Record)]
pub struct Account {
    #[record(key)]
    pub id: u32,
    pub cents: i64,
}

/// Returns a builder of nodes that become the primary only when they are told.
pub fn builder() -> NodeBuilder<Dbx> {
    NodeBuilder::new(Database::builder).table::<Account>().options(by_call())
}
