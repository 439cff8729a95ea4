//! Crashes at every operation that changes the disk, in a deterministic run of one thread.

use weft::durability::{SimulatedDisk, StorageError};
use weft::protocol::{Dbx, Protocol, TwoPhaseLocking};
use weft::{Acknowledge, DurabilityOptions, Error, Failure, TransactionOptions};
use weft_protocols::TimestampOrdering;

use super::accounts::{Bank, State, builder};
use super::place;
use weft_tests::{Named, on_a_thread, stress};

/// The configuration of a run.
#[derive(Clone, Copy, Debug)]
struct Shape {
    loggers: usize,
    segment_bytes: u64,
    /// Whether every commit waits until it is durable. Otherwise only some wait.
    durable: bool,
}

impl Shape {
    fn of(seed: u64) -> Shape {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x5ba9e);
        Shape {
            loggers: (seed % 2) as usize + 1,
            segment_bytes: [400, 1500, 4000][random.usize(..3)],
            durable: seed % 4 < 2,
        }
    }
}

/// The record of what a run has done so far.
struct Run {
    /// The state after each number of transactions.
    states: Vec<State>,
    /// The number of transactions that were acknowledged as durable.
    acknowledged: usize,
}

impl Run {
    fn new() -> Run {
        Run { states: vec![State::default()], acknowledged: 0 }
    }

    fn last(&self) -> &State {
        self.states.last().expect("the first state is always there")
    }

    /// Returns the number of transactions that lead to `state`, if any number does.
    fn survived(&self, state: &State) -> Option<usize> {
        self.states.iter().rposition(|possible| possible == state)
    }

    fn acknowledge_all(&mut self) {
        self.acknowledged = self.states.len() - 1;
    }
}

fn open<P: Protocol>(disk: &SimulatedDisk, shape: Shape) -> Result<Bank<P>, Failure> {
    let acknowledge = if shape.durable { Acknowledge::Durable } else { Acknowledge::Committed };
    let options = DurabilityOptions::new()
        .acknowledge(acknowledge)
        .loggers(shape.loggers)
        .segment_bytes(shape.segment_bytes)
        .threads(1);
    Ok(Bank::of(place(builder::<P>(), disk, options, true).open()?))
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Failure(failure) => failure,
        Error::Conflict(conflict) => unreachable!("only one thread: {conflict}"),
    }
}

/// The number of transactions of a scenario's two runs.
const TRANSACTIONS: (u32, u32) = (22, 14);

/// Runs two runs one after the other. The first may end without closing the database.
fn scenario<P: Protocol>(
    disk: &SimulatedDisk,
    seed: u64,
    shape: Shape,
    run: &mut Run,
) -> Result<(), Failure> {
    let random = &mut fastrand::Rng::with_seed(seed);
    let bank = open::<P>(disk, shape)?;
    work(&bank, shape, random, run, TRANSACTIONS.0)?;
    if random.bool() {
        bank.database.close()?;
        run.acknowledge_all();
    }
    drop(bank);
    // The second run has another number of loggers.
    let shape = Shape { loggers: shape.loggers % 2 + 1, ..shape };
    let bank = open::<P>(disk, shape)?;
    // All transactions are there, unless the disk failed at the end, when no transaction waited for the error.
    let survived = run.survived(&bank.state()).expect("it is the state after some transaction");
    assert!(
        survived >= run.acknowledged,
        "seed {seed}: a restart without a crash lost transactions"
    );
    run.states.truncate(survived + 1);
    work(&bank, shape, random, run, TRANSACTIONS.1)?;
    bank.database.close()?;
    run.acknowledge_all();
    Ok(())
}

fn work<P: Protocol>(
    bank: &Bank<P>,
    shape: Shape,
    random: &mut fastrand::Rng,
    run: &mut Run,
    transactions: u32,
) -> Result<(), Failure> {
    for _ in 0..transactions {
        let number = run.states.len() as u32;
        let changes = match number {
            1 => State::founding(),
            _ => run.last().draw(random, number),
        };
        let mut after = run.last().clone();
        after.apply(&changes);
        // Two slots are needed to use both loggers. This thread keeps the first slot, since it runs the first
        // transaction. Others run on another thread.
        let elsewhere = number > 1 && random.bool();
        let in_slot = |commit: &(dyn Fn() -> Result<_, Failure> + Sync)| {
            if elsewhere { on_a_thread(commit) } else { commit() }
        };
        if shape.durable {
            // Recorded in advance, because a transaction that fails may still have committed and survive.
            run.states.push(after);
            in_slot(&|| {
                let done = bank.database.transact(|tx| bank.change(tx, &changes));
                done.map(|()| None).map_err(failure)
            })?;
            run.acknowledge_all();
        } else {
            let token = in_slot(&|| {
                let options = TransactionOptions::new();
                let done =
                    bank.database.transact_with_token(&options, |tx| bank.change(tx, &changes));
                done.map(|((), token)| Some(token)).map_err(failure)
            })?;
            run.states.push(after);
            if random.u8(..4) == 0 {
                bank.database.wait_durable(token.expect("the commit returned a token"))?;
                run.acknowledge_all();
            }
        }
        if random.u8(..16) == 0 {
            bank.database.checkpoint()?;
            run.acknowledge_all();
        }
    }
    Ok(())
}

/// Counts of what a test has covered.
#[derive(Debug, Default)]
struct Tried {
    crashes: u32,
    crashes_of_recovery: u32,
    failed_syncs: u32,
    with_cuts: u32,
    with_checkpoint: u32,
}

/// Opens a crashed disk, and checks that the state is a possible one that includes all acknowledged transactions.
fn check<P: Protocol>(
    disk: &SimulatedDisk,
    shape: Shape,
    run: &Run,
    circumstances: &str,
    tried: &mut Tried,
) -> State {
    let bank = open::<P>(disk, shape).unwrap_or_else(|error| panic!("{error}: {circumstances}"));
    let recovered = bank.database.recovered().expect("the database has a directory");
    tried.with_cuts += u32::from(!recovered.cuts.is_empty());
    tried.with_checkpoint += u32::from(recovered.checkpoint_epoch.is_some());
    let state = bank.state();
    assert_eq!(state.sum(), 0, "{circumstances}");
    let Some(survived) = run.survived(&state) else {
        panic!("{state:?}\nis not the state after any transaction: {circumstances}");
    };
    assert!(
        survived >= run.acknowledged,
        "{survived} transactions instead of {}: {circumstances}",
        run.acknowledged
    );
    state
}

/// Checks a crashed disk. Then crashes it again right after it was opened, and checks that opening it a second
/// time gives the same state and cuts nothing off.
fn check_crashed<P: Protocol>(
    crashed: &SimulatedDisk,
    shape: Shape,
    run: &Run,
    circumstances: &str,
    tried: &mut Tried,
) -> State {
    tried.crashes += 1;
    let disk = crashed.snapshot();
    let state = check::<P>(&disk, shape, run, circumstances, tried);
    let bank = open::<P>(&disk.crash(1), shape)
        .unwrap_or_else(|error| panic!("{error}: the second time: {circumstances}"));
    assert_eq!(bank.state(), state, "the second time: {circumstances}");
    let cuts = &bank.database.recovered().expect("the database has a directory").cuts;
    assert!(cuts.is_empty(), "the second opening cut off {cuts:?}: {circumstances}");
    state
}

/// Crashes at every operation of a recovery, and checks that the next recovery gives the same state.
fn crash_recovery<P: Protocol>(
    crashed: &SimulatedDisk,
    shape: Shape,
    run: &Run,
    circumstances: &str,
    tried: &mut Tried,
) {
    let whole = crashed.snapshot();
    let bank = open::<P>(&whole, shape).unwrap_or_else(|error| panic!("{error}: {circumstances}"));
    let (operations, state) = (whole.operations(), bank.state());
    drop(bank);
    for stop in 1..=operations {
        let circumstances = format!("operation {stop} of recovery: {circumstances}");
        let disk = crashed.snapshot();
        disk.stop_at(stop);
        assert!(open::<P>(&disk, shape).is_err(), "{circumstances}");
        tried.crashes_of_recovery += 1;
        let same = check::<P>(&disk.crash(stop), shape, run, &circumstances, tried);
        assert_eq!(same, state, "{circumstances}");
    }
}

/// Goes on after a crash, and checks that the new transactions survive the next crash.
fn go_on<P: Protocol>(crashed: &SimulatedDisk, shape: Shape, run: &Run, circumstances: &str) {
    let disk = crashed.snapshot();
    let bank = open::<P>(&disk, shape).unwrap();
    let state = bank.state();
    let mut after = Run { states: vec![state.clone()], acknowledged: 0 };
    // Continues with transaction numbers that no label and no posting has yet.
    after.states.resize(run.states.len() + 1, state);
    after.acknowledge_all();
    let random = &mut fastrand::Rng::with_seed(1);
    if !after.last().is_founded() {
        return;
    }
    work(&bank, Shape { durable: true, ..shape }, random, &mut after, 4).unwrap();
    bank.database.flush().unwrap();
    let later = open::<P>(&disk.crash(2), shape)
        .unwrap_or_else(|error| panic!("{error}: going on: {circumstances}"));
    assert_eq!(&later.state(), after.last(), "going on: {circumstances}");
}

/// Runs a scenario without faults, checks that everything is acknowledged, and returns the disk.
fn undisturbed<P: Protocol>(seed: u64, shape: Shape) -> SimulatedDisk {
    let disk = SimulatedDisk::new(seed);
    let mut run = Run::new();
    scenario::<P>(&disk, seed, shape, &mut run).unwrap();
    assert_eq!(run.acknowledged as u32, TRANSACTIONS.0 + TRANSACTIONS.1, "seed {seed}");
    disk
}

/// Runs one seed's scenario, and crashes it at every operation (or, if `every` is more than 1, at one in `every`).
/// For a few crashed disks, crashes the recovery, too.
fn campaign<P: Protocol>(seed: u64, every: u64, tried: &mut Tried) {
    let shape = Shape::of(seed);
    let operations = undisturbed::<P>(seed, shape).operations();
    for stop in (1..=operations).step_by(every as usize) {
        let disk = SimulatedDisk::new(seed);
        disk.stop_at(stop);
        let mut run = Run::new();
        let result = scenario::<P>(&disk, seed, shape, &mut run);
        assert!(
            result.is_err(),
            "{}, seed {seed}, operation {stop}: the crash went unnoticed",
            P::NAME
        );
        for crash in 0..3 {
            let circumstances =
                format!("{}, seed {seed}, {shape:?}, operation {stop}, crash {crash}", P::NAME);
            let crashed = disk.crash(crash);
            check_crashed::<P>(&crashed, shape, &run, &circumstances, tried);
            if stop % 4 == 0 && crash == 0 {
                go_on::<P>(&crashed, shape, &run, &circumstances);
            }
            if stop % 24 == 1 && crash == 1 {
                crash_recovery::<P>(&crashed, shape, &run, &circumstances, tried);
            }
        }
    }
}

fn report<P: Protocol>(tried: &Tried) {
    println!("{}: {tried:?}", P::NAME);
    assert!(tried.with_cuts > 0 && tried.with_checkpoint > 0, "{tried:?}");
}

/// A crash may follow any operation. In every case all acknowledged transactions survive, the state is that after
/// some number of transactions, and opening again gives the same state, even after a crash during recovery.
#[test]
fn crash_at_any_operation_loses_nothing_acknowledged() {
    let mut tried = Tried::default();
    for seed in 0..3 * stress() as u64 {
        campaign::<Dbx>(seed, 1, &mut tried);
    }
    report::<Dbx>(&tried);
    assert!(tried.crashes > 700 * stress() as u32, "{tried:?}");
}

#[test]
fn crash_loses_nothing_acknowledged_under_other_protocols() {
    fn some<P: Protocol>() {
        let _named = Named(P::NAME);
        let mut tried = Tried::default();
        for seed in 100..100 + 2 * stress() as u64 {
            campaign::<P>(seed, 3, &mut tried);
        }
        report::<P>(&tried);
    }
    some::<TwoPhaseLocking>();
    some::<TimestampOrdering>();
}

/// Any sync may fail. In every case everything that was acknowledged survives, both when the process goes on and
/// when the power fails.
#[test]
fn failed_sync_loses_nothing_acknowledged() {
    let mut tried = Tried::default();
    for seed in 0..4 * stress() as u64 {
        let shape = Shape::of(seed);
        let syncs = undisturbed::<Dbx>(seed, shape).syncs();
        for sync in 1..=syncs {
            let disk = SimulatedDisk::new(seed);
            disk.fail_sync(sync);
            let mut run = Run::new();
            let result = scenario::<Dbx>(&disk, seed, shape, &mut run);
            let circumstances = format!("seed {seed}, {shape:?}, sync {sync}: {result:?}");
            match result {
                // A commit that waits for the sync gets the error. A sync that no transaction waits for is
                // repeated by the next opening.
                Ok(()) | Err(Failure::Storage(StorageError::SyncFailed { .. })) => {}
                Err(error) => panic!("{error}: {circumstances}"),
            }
            tried.failed_syncs += 1;
            for crashed in [disk.crash(seed), disk.snapshot()] {
                check_crashed::<Dbx>(&crashed, shape, &run, &circumstances, &mut tried);
            }
        }
    }
    println!("{tried:?}");
    assert!(tried.failed_syncs > 100, "{tried:?}");
}
