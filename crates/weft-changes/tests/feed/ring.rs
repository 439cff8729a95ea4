//! Databases in memory, whose changes are in a ring.

use weft::{Database, Error};
use weft_changes::{ChangeFeed, ChangeRing, ChangesError, Position};
use weft_tests::for_each_kind;

use crate::bank::{Bank, Copied, Follower, Receipt};

#[test]
fn ring_shows_what_has_committed() {
    for_each_kind!(|P| {
        let bank = Bank::open(Database::builder().protocol::<P>().change_ring(1 << 20)).unwrap();
        let mut changes = bank.database.changes(Position::START).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let mut follower = Follower::new();
        for _ in 0..30 {
            bank.transfer(0, &mut random).unwrap();
        }
        for _ in 0..30 {
            follower.follow(&changes.next().unwrap().unwrap());
        }
        assert_eq!(follower.copied, bank.state());
    });
}

#[test]
fn reader_that_the_ring_overtakes_resumes_from_a_snapshot() {
    let bank = Bank::open(Database::builder().change_ring(40_000)).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let mut slow = bank.database.changes_from_now().unwrap();
    for _ in 0..20 {
        // Many epochs, so that there are several segments.
        for _ in 0..30 {
            bank.transfer(0, &mut random).unwrap();
        }
        bank.database.flush().unwrap();
    }
    let mut seen = Copied::default();
    let behind = loop {
        match slow.try_next() {
            Ok(transaction) => seen.follow(&transaction.expect("it falls behind before")),
            Err(error) => break error,
        }
    };
    assert!(matches!(behind, ChangesError::FellBehind { is_unlogged: false, .. }), "{behind}");
    let (snapshot, position) = bank.database.snapshot_with_position().unwrap();
    let mut follower = Follower { position, copied: bank.rows(&snapshot) };
    let mut changes = bank.database.changes(position).unwrap();
    for _ in 0..5 {
        bank.transfer(0, &mut random).unwrap();
        follower.follow(&changes.next().unwrap().unwrap());
    }
    assert_eq!(follower.copied, bank.state());
    let logged = bank.database.metrics().log.expect("a ring is a log");
    assert!(logged.bytes_written > 40_000, "{} bytes", logged.bytes_written);
    assert!(logged.segments <= 10, "{} segments", logged.segments);
    // The log's first segments are gone, and nothing misses them.
    bank.database.checkpoint().unwrap();
    bank.database.close().unwrap();
}

#[test]
fn checkpoints_go_on_while_the_ring_drops_segments() {
    let bank = Bank::open(Database::builder().change_ring(8_000)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(1);
            for _ in 0..40 {
                for _ in 0..20 {
                    bank.transfer(0, &mut random).unwrap();
                }
                bank.database.flush().unwrap();
            }
        });
        for _ in 0..60 {
            bank.database.checkpoint().unwrap();
        }
    });
}

#[test]
fn position_of_an_earlier_ring_is_refused() {
    let open = || Bank::open(Database::builder().change_ring(1 << 20)).unwrap();
    let (bank, mut random) = (open(), fastrand::Rng::with_seed(1));
    bank.transfer(0, &mut random).unwrap();
    let (_, position) = bank.database.snapshot_with_position().unwrap();
    drop(bank);
    let refused = open().database.changes(position).unwrap_err();
    assert_eq!(refused, ChangesError::ForeignPosition { position });
}

#[test]
fn table_of_a_database_with_a_ring_can_be_loaded() {
    let bank = Bank::open(Database::builder().change_ring(1 << 20)).unwrap();
    let mut changes = bank.database.changes_from_now().unwrap();
    let receipts = (1..9).map(|number| Ok::<_, Error>(Receipt { writer: 1, number, cents: 1 }));
    assert_eq!(bank.database.load(&bank.receipts, [receipts], |_| {}).unwrap(), 8);
    assert!(matches!(changes.try_next(), Err(ChangesError::FellBehind { is_unlogged: true, .. })));
}
