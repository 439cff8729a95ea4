//! The suite must fail for every mutation of the canary, and pass for the intact one.
//!
//! Each test runs the suite's own checks on one mutation, with seeds from 0 on, until one of them finds the
//! break. So it fails if a check has become blind. The test fixes how many seeds that may take, and what the
//! finding says. The table is in `docs/planted-bugs.md`.

use weft_conformance::invariants::{self, Bank, IndexEntries, OnCall, Ring, RowCount};
use weft_conformance::random::{self, Size};
#[cfg(not(weft_sim))]
use weft_conformance::scripts;
use weft_conformance::subject::Subject;
use weft_conformance::threads::Mode;
use weft_conformance::verdict::Finding;
use weft_conformance::{copies, values};
use weft_protocols::canary::Mutation;

const SMALL: Size = Size { threads: 3, transactions: 2, steps_max: 4, readers: 0 };
const MEDIUM: Size = Size { threads: 4, transactions: 6, steps_max: 6, readers: 0 };

const WITH_SNAPSHOTS: Size = Size { threads: 3, transactions: 5, steps_max: 4, readers: 2 };

/// A check of the suite, as a function of a seed.
struct Check {
    name: &'static str,
    run: fn(&Subject, u64) -> Result<(), Finding>,
    /// After this many seeds without a finding the check counts as blind.
    seeds: u64,
}

/// Schedules of single steps have no interleavings of their own, so the simulated machine runs none.
const SCHEDULES: Check =
    Check { name: "schedules", run: schedules, seeds: if cfg!(weft_sim) { 0 } else { 200 } };
const SMALL_HISTORIES: Check = Check { name: "small histories", run: small_histories, seeds: 1000 };
const HISTORIES: Check = Check { name: "histories", run: histories, seeds: 3000 };
const SNAPSHOTS: Check = Check { name: "snapshots", run: snapshots, seeds: seeds(3000) };
const VALUES: Check = Check { name: "values", run: value_histories, seeds: 300 };
const BANK: Check = Check { name: "bank", run: bank, seeds: 300 };
const RING: Check = Check { name: "ring", run: ring, seeds: 300 };
const ON_CALL: Check = Check { name: "on call", run: on_call, seeds: 1000 };
const COUNTED: Check = Check { name: "counted rows", run: counted, seeds: seeds(600) };
const COPIES: Check = Check { name: "copies", run: copied, seeds: seeds(3000) };
const INDEXED: Check = Check { name: "indexes", run: indexed, seeds: 300 };

/// Returns how many seeds to try. The simulated machine draws other interleavings, and some are rare there.
const fn seeds(usual: u64) -> u64 {
    if cfg!(weft_sim) { 4 * usual } else { usual }
}

/// All checks.
const CHECKS: [Check; 11] = [
    SCHEDULES,
    SMALL_HISTORIES,
    HISTORIES,
    SNAPSHOTS,
    VALUES,
    BANK,
    RING,
    ON_CALL,
    COUNTED,
    INDEXED,
    COPIES,
];

#[cfg(weft_sim)]
fn schedules(_: &Subject, _: u64) -> Result<(), Finding> {
    unreachable!("no seed asks for it")
}

/// Runs one schedule. The seed is its number.
#[cfg(not(weft_sim))]
fn schedules(subject: &Subject, seed: u64) -> Result<(), Finding> {
    match scripts::all().get(seed as usize) {
        Some(script) if subject.has_snapshots || !script.opens_snapshots() => {
            script.check(subject).map(drop)
        }
        _ => Ok(()),
    }
}

fn small_histories(subject: &Subject, seed: u64) -> Result<(), Finding> {
    random::check(subject, Mode::Interleaved(seed), SMALL)
}

fn histories(subject: &Subject, seed: u64) -> Result<(), Finding> {
    random::check(subject, Mode::Interleaved(seed), MEDIUM)
}

/// Checks histories with snapshots, if the subject has snapshots.
fn snapshots(subject: &Subject, seed: u64) -> Result<(), Finding> {
    match subject.has_snapshots {
        true => random::check(subject, Mode::Interleaved(seed), WITH_SNAPSHOTS),
        false => Ok(()),
    }
}

fn value_histories(subject: &Subject, seed: u64) -> Result<(), Finding> {
    values::check(subject, Mode::Interleaved(seed), 3, 6)
}

/// Checks the copies, if the subject has snapshots.
fn copied(subject: &Subject, seed: u64) -> Result<(), Finding> {
    match subject.has_snapshots {
        true => copies::check(subject, Mode::Interleaved(seed), 2, 1, 3),
        false => Ok(()),
    }
}

fn bank(subject: &Subject, seed: u64) -> Result<(), Finding> {
    invariants::check(&Bank, subject, Mode::Interleaved(seed), 3, 8, 0)
}

fn ring(subject: &Subject, seed: u64) -> Result<(), Finding> {
    invariants::check(&Ring, subject, Mode::Interleaved(seed), 3, 8, 0)
}

fn on_call(subject: &Subject, seed: u64) -> Result<(), Finding> {
    invariants::check(&OnCall, subject, Mode::Interleaved(seed), 3, 8, 0)
}

fn counted(subject: &Subject, seed: u64) -> Result<(), Finding> {
    invariants::check(&RowCount, subject, Mode::Interleaved(seed), 3, 8, 0)
}

fn indexed(subject: &Subject, seed: u64) -> Result<(), Finding> {
    invariants::check(&IndexEntries, subject, Mode::Interleaved(seed), 3, 8, 0)
}

/// Returns the first seed at which a check finds what the caller looks for.
fn hunt(
    subject: &Subject,
    check: &Check,
    is_it: impl Fn(&Finding) -> bool,
) -> Option<(u64, Finding)> {
    let findings = (0..check.seeds).filter_map(|seed| {
        let finding = (check.run)(subject, seed).err()?;
        Some((seed, finding))
    });
    findings.into_iter().find(|(_, finding)| is_it(finding))
}

#[test]
fn the_intact_canary_passes() {
    let subject = Subject::canary(Mutation::Intact);
    for check in &CHECKS {
        let seeds = weft_conformance::threads::seeds(check.seeds.div_ceil(5));
        if let Some((seed, finding)) = hunt(&subject, &Check { seeds, ..*check }, |_| true) {
            panic!("{}, seed {seed}: {finding}", check.name);
        }
    }
}

fn expect_caught(mutation: Mutation, checks: &[(Check, &str)]) {
    let subject = Subject::canary(mutation);
    let checks = checks.iter().filter(|(check, _)| check.seeds > 0);
    assert!(checks.clone().count() > 0, "{mutation:?}: no check that can be run here");
    for (check, what) in checks {
        let caught = hunt(&subject, check, |finding| finding.names(what));
        assert!(caught.is_some(), "{mutation:?}: the {} find no {what:?}", check.name);
    }
}

/// Makes one test per mutation. It lists the checks that must catch the mutation, and the name that each must
/// give it.
macro_rules! mutations {
    ($($(#[$attribute:meta])* $test:ident: $mutation:ident, [$($check:ident: $what:literal),+];)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $test() {
                expect_caught(Mutation::$mutation, &[$(($check, $what)),+]);
            }
        )*

        /// The mutations that are caught.
        const CAUGHT: &[Mutation] = &[$(Mutation::$mutation),*];
    };
}

mutations! {
    no_read_validation: NoReadValidation,
        [SCHEDULES: "NonRepeatableRead", SMALL_HISTORIES: "ReadSkew", BANK: "broken invariant"];
    no_read_only_validation: NoReadOnlyValidation,
        [SCHEDULES: "NonRepeatableRead", HISTORIES: "ReadSkew", BANK: "broken invariant"];
    short_reads: ShortReads,
        [SCHEDULES: "NonRepeatableRead", VALUES: "ReadSkew", RING: "broken invariant"];
    absence_not_noted: AbsenceNotNoted,
        [SCHEDULES: "NonRepeatableRead", COUNTED: "broken invariant"];
    refused_write_not_noted: RefusedWriteNotNoted,
        [SCHEDULES: "WriteSkew", COUNTED: "broken invariant"];
    no_node_validation: NoNodeValidation,
        [SCHEDULES: "Phantom", COUNTED: "broken invariant", INDEXED: "broken invariant"];
    any_insertion_counts_as_own: AnyInsertionCountsAsOwn,
        [SCHEDULES: "Phantom", HISTORIES: "Phantom"];
    #[cfg_attr(weft_sim, ignore = "it takes a schedule")]
    split_not_noted: SplitNotNoted, [SCHEDULES: "Phantom"];
    no_write_validation: NoWriteValidation,
        [SCHEDULES: "LostUpdate", SMALL_HISTORIES: "LostUpdate", HISTORIES: "LostUpdate"];
    version_stays: VersionStays,
        [SCHEDULES: "LostUpdate", HISTORIES: "LostUpdate", BANK: "broken invariant"];
    validation_before_locks: ValidationBeforeLocks, [ON_CALL: "broken invariant"];
    locked_counts_as_unchanged: LockedCountsAsUnchanged,
        [ON_CALL: "broken invariant", RING: "broken invariant"];
    unlock_before_install: UnlockBeforeInstall,
        [HISTORIES: "LostUpdate", VALUES: "two writes replaced the same value",
         BANK: "broken invariant"];
    torn_read: TornRead,
        [SMALL_HISTORIES: "LostUpdate", HISTORIES: "LostUpdate", BANK: "broken invariant"];
    one_lock_at_a_time: OneLockAtATime,
        [HISTORIES: "LostUpdate", BANK: "broken invariant", RING: "broken invariant"];
    stale_snapshot: StaleSnapshot,
        [SCHEDULES: "StaleRead", HISTORIES: "StaleRead", BANK: "broken invariant"];
    dirty_read: DirtyRead,
        [SCHEDULES: "AbortedRead", SMALL_HISTORIES: "AbortedRead", BANK: "broken invariant"];
    aborted_write_stays: AbortedWriteStays,
        [SCHEDULES: "AbortedRead", SMALL_HISTORIES: "AbortedRead",
         VALUES: "the last value is not there"];
    conclusions_not_validated: ConclusionsNotValidated,
        [BANK: "broken invariant", INDEXED: "broken invariant"];
    entry_stays: EntryStays, [SCHEDULES: "AntiDependencyCycle", COUNTED: "broken invariant"];
    forgotten_unlock: ForgottenUnlock, [VALUES: "a panic"];
    number_before_locks: NumberBeforeLocks, [COPIES: "broken invariant"];
    number_after_installation: NumberAfterInstallation,
        [SNAPSHOTS: "ReadSkew", COPIES: "broken invariant"];
    savepoint_keeps_writes: SavepointKeepsWrites,
        [SMALL_HISTORIES: "no serial order explains it, though the checker passes it",
         HISTORIES: "OwnWriteNotSeen"];
    savepoint_forgets_reads: SavepointForgetsReads,
        [HISTORIES: "NonRepeatableRead", SNAPSHOTS: "ReadSkew"];
    own_rows_not_counted: OwnRowsNotCounted,
        [SMALL_HISTORIES: "no serial order explains it, though the checker passes it",
         COUNTED: "broken invariant"];
}

#[test]
fn every_mutation_is_caught() {
    assert_eq!(CAUGHT, &Mutation::ALL[1..]);
}

/// Prints what each check finds of each mutation, and after how many seeds. The table in `docs/planted-bugs.md`
/// comes from it. `WEFT_MUTATION` chooses some mutations.
#[test]
#[ignore = "a report; run it with --ignored --nocapture"]
fn table_of_mutations_and_checks() {
    let chosen = std::env::var("WEFT_MUTATION").unwrap_or_default();
    let subjects = CAUGHT.iter().map(|&mutation| Subject::canary(mutation));
    for subject in subjects.filter(|subject| subject.name.contains(&chosen)) {
        let name = subject.name;
        for check in &CHECKS {
            match hunt(&subject, check, |_| true) {
                Some((seed, finding)) => {
                    let what = finding.what.join(", ");
                    println!("{name} | {} | {} | {what} ({})", check.name, seed + 1, finding.check);
                }
                None => println!("{name} | {} | not in {} |", check.name, check.seeds),
            }
        }
    }
}
