//! The operations in hardware regions. These are the machine's own RTM or, if it has none, the emulator's.
//! The emulator injects conflicts, so some operations end in the software twin.

use std::sync::Arc;
use std::sync::mpsc::channel;

use proptest::collection::vec;
use proptest::prelude::*;
use weft_htm::Htm;

use super::super::test_machine::Machine;
use super::super::test_memory::{TestMemory, TestWorker};
use super::super::{IndexWorker, Insertion, LongKey, Lookup, RunInsertion};
use super::node::unlock_unchanged;
use super::search::{Access, DescentTarget, OptimisticAccess};
use super::stress::{interleaved_keys, noted_versions_mean_what_they_say};
use super::testing::scan;
use super::tests::against_a_model::{check, operation};
use super::{BPlusTree, Direction, LeafHint};

fn machine(conflict: u32) -> Option<Machine> {
    Machine::with_rtm::<1_000>(conflict)
}

/// Looks up a key in a region, or in software if the region gives up.
fn look_up(
    tree: &BPlusTree<u64>,
    key: &u64,
    hint: &mut LeafHint<u64>,
    worker: &TestWorker,
) -> Lookup {
    let in_region = worker.regions().run(
        |region| tree.get_in(region, key, hint),
        || tree.find_leaf(&OptimisticAccess, DescentTarget::At(key), &LeafHint::new()).is_none(),
    );
    in_region.unwrap_or_else(|| tree.get(key, hint))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1, ..ProptestConfig::default() })]

    #[test]
    fn regions_agree_with_a_model(operations in vec(operation(), 10..40)) {
        if let Some(machine) = machine(2) {
            let _thread = (machine.begin_thread)(0);
            check::<u64>(&operations, &machine.htm);
            check::<u128>(&operations, &machine.htm);
            check::<LongKey>(&operations, &machine.htm);
        }
    }
}

/// Regions and twins run side by side.
#[test]
fn regions_run_beside_twins() {
    let Some(machine) = machine(2) else { return };
    let more = if machine.is_native { 200 } else { 1 }; // emulation is slow
    let mut total = interleaved_keys::<u64>(&machine, 40, 6 * more);
    total += interleaved_keys::<LongKey>(&machine, 40, 4 * more);
    total += noted_versions_mean_what_they_say::<u64>(&machine, 2_000, 5 * more);
    // Emulated regions take so long that those of two threads often conflict: about half of the thousand operations commit.
    let expected = if machine.is_native { 500 } else { 100 };
    assert!(total.committed > expected * more as u64, "{total:?}");
    assert!(total.fallbacks > 0 || machine.is_native, "{total:?}");
}

/// An operation that changes one leaf is one region, and leaves what its twin leaves: the same answers and
/// the same versions.
#[test]
fn a_region_and_its_twin_have_the_same_effect() {
    let Some(machine) = machine(1_000) else { return };
    let _thread = (machine.begin_thread)(0);
    let trace = |htm: &Htm| {
        let memory = Arc::new(TestMemory::default());
        let worker = memory.worker_with(htm);
        let _pin = worker.pin();
        let mut tree = BPlusTree::<u64>::new(&worker);
        let mut hint = LeafHint::new();
        let mut trace = Vec::new();
        for number in (0..60).rev() {
            match look_up(&tree, &number, &mut hint, &worker) {
                Lookup::Absent(noted) => trace.push(noted.version),
                Lookup::Found(_) => unreachable!("not inserted yet"),
            }
            match tree.get_or_insert(&number, number + 1, &mut hint, &worker) {
                Insertion::Inserted { change, .. } => trace.extend([change.before, change.after]),
                Insertion::Found(_) => unreachable!("not inserted yet"),
            }
            let again = tree.get_or_insert(&number, 7, &mut hint, &worker);
            assert_eq!(again, Insertion::Found(number + 1));
            let found = look_up(&tree, &number, &mut hint, &worker);
            assert_eq!(found, Lookup::Found(number + 1));
            if number % 3 == 0 {
                assert!(!tree.remove(&number, number, &worker));
                assert!(tree.remove(&number, number + 1, &worker));
            }
        }
        // Runs of five, each in place of a number that was removed and behind the last.
        for first in [0, 100, 110, 120] {
            let run: Vec<(u64, u64)> = (first..first + 5).map(|key| (key * 2, key + 1)).collect();
            let mut rest = run.as_slice();
            while !rest.is_empty() {
                match tree.insert_run(rest, &mut hint, &worker) {
                    RunInsertion::Inserted { count, change, .. } => {
                        trace.extend([count as u64, change.before, change.after]);
                        rest = &rest[count..];
                    }
                    RunInsertion::Found(address) => {
                        trace.push(address);
                        rest = &rest[1..];
                    }
                }
            }
        }
        for direction in [Direction::Forward, Direction::Reverse] {
            use std::ops::Bound::{Excluded, Included, Unbounded};
            let scan = scan(&tree, Unbounded, Unbounded, direction, &mut hint, &worker);
            trace.extend(scan.addresses);
            trace.extend(scan.versions.iter().map(|noted| noted.version));
            let (low, high) = (Excluded(&10), Included(&50));
            let (from, to) =
                if direction == Direction::Forward { (low, high) } else { (high, low) };
            trace.extend(
                super::testing::scan(&tree, from, to, direction, &mut hint, &worker).addresses,
            );
        }
        tree.clear(&worker);
        (trace, worker.regions().statistics())
    };
    let (in_software, none) = trace(&Htm::software());
    assert_eq!(none.started, 0);
    let mut last = None;
    let each_was_a_region = (0..machine.tries()).any(|_| {
        let (in_hardware, statistics) = trace(&machine.htm);
        assert_eq!(in_hardware, in_software);
        last = Some(statistics);
        statistics.committed >= 60 * 4 && statistics.fallbacks == 0
    });
    assert!(each_was_a_region, "{last:?}");
}

/// A region never reads a leaf that a twin has locked: it aborts and waits.
#[test]
fn a_region_waits_for_a_locked_leaf() {
    let Some(machine) = machine(1_000) else { return };
    let _thread = (machine.begin_thread)(0);
    let memory = Arc::new(TestMemory::default());
    let worker = memory.worker();
    let _pin = worker.pin();
    let mut tree = BPlusTree::<u64>::new(&worker);
    tree.get_or_insert(&1, 10, &mut LeafHint::new(), &worker);
    // Each operation comes with one that undoes it, so that it can be tried again.
    type Operation = fn(&BPlusTree<u64>, &TestWorker);
    let operations: [(Operation, Operation); 3] = [
        (
            |tree, worker| {
                let found = look_up(tree, &1, &mut LeafHint::new(), worker);
                assert_eq!(found, Lookup::Found(10));
            },
            |_, _| {},
        ),
        (
            |tree, worker| {
                let done = tree.get_or_insert(&2, 20, &mut LeafHint::new(), worker);
                assert!(matches!(done, Insertion::Inserted { .. }));
            },
            |tree, worker| assert!(tree.remove(&2, 20, worker)),
        ),
        (
            |tree, worker| assert!(tree.remove(&1, 10, worker)),
            |tree, worker| {
                tree.get_or_insert(&1, 10, &mut LeafHint::new(), worker);
            },
        ),
    ];
    for (operation, undo) in operations {
        let met_the_lock = (0..machine.tries()).any(|_| {
            let place =
                tree.find_leaf(&OptimisticAccess, DescentTarget::At(&1), &LeafHint::new()).unwrap();
            assert!(OptimisticAccess.lock(&place.leaf.node.version, place.version));
            let met_the_lock = std::thread::scope(|scope| {
                let (send, statistics) = channel();
                let thread = scope.spawn({
                    let (memory, machine, tree) = (&memory, &machine, &tree);
                    move || {
                        let _thread = (machine.begin_thread)(1);
                        let worker = memory.worker_with(&machine.htm);
                        send.send(worker.regions().reader()).unwrap();
                        let _pin = worker.pin();
                        operation(tree, &worker);
                    }
                });
                let statistics = statistics.recv().unwrap();
                // An operation that has fallen back waits for the leaf without a region.
                while statistics.statistics().aborted_explicit == 0
                    && statistics.statistics().fallbacks == 0
                {
                    assert!(!thread.is_finished(), "it did not wait");
                    std::thread::yield_now();
                }
                unlock_unchanged(&place.leaf.node.version, place.version);
                statistics.statistics().aborted_explicit > 0
            });
            undo(&tree, &worker);
            met_the_lock
        });
        assert!(met_the_lock, "all of {} fell back before", machine.tries());
    }
    tree.clear(&worker);
}
