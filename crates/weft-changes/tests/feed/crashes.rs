//! The power fails at any operation on the disk. A reader that has stored its position goes on after that, and misses
//! nothing.

use std::sync::Arc;

use weft::durability::SimulatedDisk;
use weft::protocol::{Dbx, Protocol, TwoPhaseLocking};
use weft::{Acknowledge, Database, DurabilityOptions, Error};
use weft_changes::{ChangeFeed, ChangesError};
use weft_protocols::TimestampOrdering;
use weft_tests::stress;

use crate::bank::{Bank, Follower};

/// What happens in a run of one thread.
#[derive(Clone, Copy, Debug)]
struct Shape {
    loggers: usize,
    is_durable: bool,
    keeps_log: bool,
}

fn open<P: Protocol>(disk: &SimulatedDisk, shape: Shape) -> Result<Bank<P>, weft::Failure> {
    let acknowledge = if shape.is_durable { Acknowledge::Durable } else { Acknowledge::Committed };
    let options = DurabilityOptions::new()
        .acknowledge(acknowledge)
        .loggers(shape.loggers)
        .segment_bytes(700)
        .keep_log_bytes(if shape.keeps_log { 1 << 30 } else { 0 })
        .threads(1);
    let builder = Database::builder().protocol::<P>().directory("/db").durability(options);
    Bank::open(builder.backend(Arc::new(disk.clone()), true))
}

fn failure(error: Error) -> ChangesError {
    match error {
        Error::Failure(failure) => failure.into(),
        Error::Conflict(conflict) => unreachable!("only one thread: {conflict}"),
    }
}

/// Runs transactions, and reads some of the feed. The reader keeps its position and its copy in `follower`, which the
/// crash does not touch.
fn run<P: Protocol>(
    disk: &SimulatedDisk,
    shape: Shape,
    random: &mut fastrand::Rng,
    follower: &mut Follower,
    resumed: &mut u32,
) -> Result<(), ChangesError> {
    let bank = open::<P>(disk, shape)?;
    let mut changes = match bank.database.changes(follower.position) {
        Err(ChangesError::FellBehind { .. }) if !shape.keeps_log => {
            resume(&bank, follower)?;
            *resumed += 1;
            bank.database.changes(follower.position)?
        }
        changes => changes?,
    };
    for _ in 0..30 {
        match random.u8(..12) {
            0 => {
                bank.database.checkpoint()?;
            }
            1 => bank.database.flush()?,
            2 => {
                resume(&bank, follower)?;
                changes = bank.database.changes(follower.position)?;
            }
            3..6 if shape.keeps_log || random.u8(..4) == 0 => {
                for _ in 0..random.u8(1..6) {
                    match changes.try_next() {
                        Ok(Some(transaction)) => follower.follow(&transaction),
                        Ok(None) => break,
                        Err(ChangesError::FellBehind { .. }) if !shape.keeps_log => {
                            resume(&bank, follower)?;
                            *resumed += 1;
                            changes = bank.database.changes(follower.position)?;
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            _ => bank.transfer(random.u32(..2), random).map_err(failure)?,
        }
    }
    Ok(bank.database.close()?)
}

/// Takes a snapshot, with the position that continues it.
fn resume<P: Protocol>(bank: &Bank<P>, follower: &mut Follower) -> Result<(), ChangesError> {
    let (snapshot, position) = bank.database.snapshot_with_position()?;
    *follower = Follower { position, copied: bank.rows(&snapshot) };
    Ok(())
}

/// Reads the rest of the feed, and compares the copy with the database.
fn check<P: Protocol>(
    disk: &SimulatedDisk,
    shape: Shape,
    follower: &mut Follower,
    circumstances: &str,
) {
    let bank = open::<P>(disk, shape).unwrap_or_else(|error| panic!("{error}: {circumstances}"));
    // Epochs after the crash, so that numbers which were used again would show.
    let mut random = fastrand::Rng::with_seed(9);
    for _ in 0..2 {
        bank.transfer(0, &mut random).unwrap();
    }
    bank.database.flush().unwrap();
    let mut changes = match bank.database.changes(follower.position) {
        Err(ChangesError::FellBehind { .. }) if !shape.keeps_log => return,
        changes => changes.unwrap_or_else(|error| panic!("{error}: {circumstances}")),
    };
    while let Some(transaction) =
        changes.try_next().unwrap_or_else(|error| panic!("{error}: {circumstances}"))
    {
        follower.follow(&transaction);
    }
    assert_eq!(follower.copied, bank.state(), "{circumstances}");
}

fn campaign<P: Protocol>(seed: u64, every: u64) -> (u64, u32) {
    let shape = Shape {
        loggers: (seed % 2) as usize + 1,
        is_durable: seed % 4 < 2,
        keeps_log: !seed.is_multiple_of(3),
    };
    let (mut crashes, mut resumed) = (0, 0);
    let scenario = |disk: &SimulatedDisk, follower: &mut Follower, resumed: &mut u32| {
        let mut random = fastrand::Rng::with_seed(seed);
        run::<P>(disk, shape, &mut random, follower, resumed)?;
        let other = Shape { loggers: shape.loggers % 2 + 1, ..shape };
        run::<P>(disk, other, &mut random, follower, resumed)
    };
    let undisturbed = SimulatedDisk::new(seed);
    let mut follower = Follower::new();
    scenario(&undisturbed, &mut follower, &mut resumed)
        .unwrap_or_else(|error| panic!("{error}: {}, seed {seed}", P::NAME));
    check::<P>(&undisturbed, shape, &mut follower, &format!("{}, seed {seed}", P::NAME));
    for stop in (1..=undisturbed.operations()).step_by(every as usize) {
        let disk = SimulatedDisk::new(seed);
        disk.stop_at(stop);
        let mut follower = Follower::new();
        let _ = scenario(&disk, &mut follower, &mut resumed);
        for crash in 0..2 {
            let circumstances =
                format!("{}, seed {seed}, {shape:?}, operation {stop}, crash {crash}", P::NAME);
            check::<P>(&disk.crash(crash), shape, &mut follower.clone(), &circumstances);
            crashes += 1;
        }
    }
    (crashes, resumed)
}

#[test]
fn crash_at_any_operation_loses_and_doubles_nothing() {
    let (mut crashes, mut resumed) = (0, 0);
    for seed in 0..3 * stress() as u64 {
        let (tried, behind) = campaign::<Dbx>(seed, 1);
        crashes += tried;
        resumed += behind;
    }
    println!("{crashes} crashes, {resumed} readers resumed from a snapshot");
    assert!(crashes > 250 * stress() as u64 && resumed > 0, "{crashes} crashes, {resumed} resumed");
}

#[test]
fn crash_loses_and_doubles_nothing_under_other_protocols() {
    for seed in 0..3 * stress() as u64 {
        campaign::<TwoPhaseLocking>(seed, 5);
        campaign::<TimestampOrdering>(seed, 5);
    }
}
