//! A new version of the program, with another row type, replaces the old one on one node after the other.

use weft::{Database, Record, column_of};
use weft_replication::{Fault, Node, NodeBuilder, NodeRole, ReplicationError, SimulatedLog};

use common::{LONG, by_call, wait_until};

mod common;

/// The old program.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "accounts")]
struct OldAccount {
    #[record(key)]
    id: u32,
    owner: String,
    cents: i32,
}

/// The new program: a column has another name and a wider type, one is new, and the table has an index.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "accounts", index(name = by_owner, columns(owner)))]
struct NewAccount {
    #[record(key)]
    id: u32,
    owner: String,
    #[record(was = "cents")]
    balance_cents: i64,
    #[record(default = 500)]
    limit_cents: i64,
}

/// A table that only the new program has.
#[derive(Clone, Debug, PartialEq, Record)]
struct Limit {
    #[record(key)]
    id: u32,
}

fn start<T: Record>(
    log: &SimulatedLog,
    add: impl Fn(NodeBuilder<weft::protocol::Dbx>) -> NodeBuilder<weft::protocol::Dbx>,
) -> Node<weft::protocol::Dbx> {
    let builder = NodeBuilder::new(Database::builder).table::<T>().options(by_call());
    add(builder).start(log.connect()).expect("the node starts")
}

fn rows(node: &Node<weft::protocol::Dbx>) -> Vec<NewAccount> {
    let view = node.snapshot().expect("the node is there");
    let accounts = view.table::<NewAccount>().expect("the table is there");
    let rows = view.snapshot().rows(&accounts).map(|row| row.expect("it can be read").clone());
    rows.collect()
}

#[test]
fn nodes_are_upgraded_one_after_the_other() {
    let log = SimulatedLog::new(1);
    let old = start::<OldAccount>(&log, |builder| builder);
    let primary = old.promote(LONG).expect("it becomes the primary");
    let accounts = primary.database().table::<OldAccount>().expect("the table is there");
    // Each kind of change: whole rows, columns, an operation, a deletion.
    for id in 1..=3 {
        let inserted = primary.transact(|tx| {
            let account = OldAccount { id, owner: "ann".to_owned(), cents: 100 };
            Ok::<_, ReplicationError>(tx.insert(&accounts, account)?)
        });
        inserted.expect("it commits");
    }
    // A standby with the new program follows the old primary, and takes over.
    let new = start::<NewAccount>(&log, |builder| builder.table::<Limit>());
    let changed = primary.transact(|tx| {
        tx.update(&accounts, &1, |account| account.owner = "bob".to_owned())?;
        tx.add(&accounts, &1, column_of!(OldAccount.cents), 11)?;
        Ok::<_, ReplicationError>(tx.delete(&accounts, &3)?)
    });
    let (_, token) = changed.expect("it commits");
    new.wait_for(token, LONG).expect("it follows");
    let account = |id, owner: &str, balance_cents| NewAccount {
        id,
        owner: owner.to_owned(),
        balance_cents,
        limit_cents: 500,
    };
    assert_eq!(rows(&new), [account(1, "bob", 111), account(2, "ann", 100)]);
    let primary = new.promote(LONG).expect("it becomes the primary");
    let accounts = primary.database().table::<NewAccount>().expect("the table is there");
    let limits = primary.database().table::<Limit>().expect("the table is there");
    let changed = primary.transact(|tx| {
        tx.update(&accounts, &2, |account| account.limit_cents = 1 << 40)?;
        Ok::<_, ReplicationError>(tx.insert(&limits, Limit { id: 2 })?)
    });
    let (_, token) = changed.expect("it commits");
    // The old program cannot follow the new one: it stops, and invents nothing.
    wait_until("the end of the old program", || old.role() == NodeRole::Stopped);
    assert!(matches!(old.fault(), Some(Fault::Unfit { .. })), "{:?}", old.fault());
    drop(old);
    // Its node is started again with the new program, reads the log of both, and can take over.
    let again = start::<NewAccount>(&log, |builder| builder.table::<Limit>());
    again.wait_for(token, LONG).expect("it follows");
    assert_eq!(rows(&again), rows(&new));
    again.promote(LONG).expect("it becomes the primary");
}
