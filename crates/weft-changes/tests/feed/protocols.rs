//! The feed under every protocol, with several writers at the same time.

use weft::durability::SimulatedDisk;
use weft::protocol::Protocol;
use weft::{Acknowledge, Database, DurabilityOptions, Error, Record};
use weft_changes::{ChangeFeed, Position};
use weft_protocols::{Atomic, NoControl};
use weft_tests::{for_each_protocol, stress};

use crate::bank::{Bank, Follower};

/// The number of writers that a protocol can have.
fn writers<P: Protocol>() -> u32 {
    match P::NAME {
        NoControl::NAME => 1,
        _ => 3.min(P::WORKERS_MAX as u32 - 1),
    }
}

fn follows_writers<P: Protocol>() {
    let transfers = 60 * stress() as u64;
    let disk = SimulatedDisk::new(1);
    let options = DurabilityOptions::new()
        .acknowledge(Acknowledge::Committed)
        .loggers(2)
        .segment_bytes(4000)
        .keep_log_bytes(1 << 30);
    let builder = Database::builder().protocol::<P>().directory("/db").durability(options);
    let bank = Bank::open(builder.backend(std::sync::Arc::new(disk), false)).unwrap();
    let mut changes = bank.database.changes(Position::START).unwrap();
    let follower = std::thread::scope(|scope| {
        for writer in 0..writers::<P>() {
            let bank = &bank;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(writer.into());
                for _ in 0..transfers {
                    bank.transfer(writer, &mut random).unwrap();
                }
            });
        }
        let mut follower = Follower::new();
        for _ in 0..u64::from(writers::<P>()) * transfers {
            follower.follow(&changes.next().expect("the database is open").unwrap());
        }
        follower
    });
    assert_eq!(changes.try_next().unwrap().map(|more| more.position()), None);
    assert_eq!(follower.copied, bank.state());
    assert_eq!(changes.position(), follower.position);
    assert!(!follower.position.to_string().is_empty());
    bank.database.close().unwrap();
    assert!(changes.next().is_none(), "the feed ends with the database");
}

#[test]
fn copy_made_of_the_feed_is_the_database() {
    for_each_protocol!(|P| follows_writers::<P>());
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Page {
    #[record(key)]
    id: u32,
    views: u64,
}

#[test]
fn single_operations_are_transactions_of_the_feed() {
    let builder = Database::builder().protocol::<Atomic>().table::<Page>().directory("/db");
    let disk = std::sync::Arc::new(SimulatedDisk::new(1));
    let database = builder.backend(disk, false).open().unwrap();
    let pages = database.table::<Page>().unwrap();
    let mut changes = database.changes(Position::START).unwrap();
    let insert = |tx: &weft::Transaction<'_, Atomic>| tx.insert(&pages, Page { id: 1, views: 0 });
    database.transact(insert).unwrap();
    for _ in 0..9 {
        let viewed: Result<_, Error> =
            database.transact(|tx| tx.update(&pages, &1, |page| page.views += 1));
        viewed.unwrap();
    }
    let mut page = None;
    for views in 0..10 {
        let transaction = changes.next().unwrap().unwrap();
        for change in transaction.changes() {
            page = change.apply(page.take()).unwrap();
        }
        assert_eq!(page, Some(Page { id: 1, views }));
    }
}
