//! The operations in hardware regions. These are the machine's own RTM or, if it has none, the emulator's.
//! The emulator injects conflicts, so some operations end in the software twin.

use std::sync::Arc;

use proptest::prelude::*;
use weft_htm::Htm;

use super::super::test_machine::Machine;
use super::super::test_memory::{TestMemory, TestWorker};
use super::super::{IndexKey, IndexWorker, Insertion, Lookup};
use super::tests::{
    CollidingKey, OutOfLineKey, agrees_with_a_map, nothing_is_lost_while_growing, steps,
};
use super::{CHANGE, HashTable};

fn machine(conflict: u32) -> Option<Machine> {
    Machine::with_rtm::<3_000>(conflict)
}

/// Looks up a key in a region, or in software if the region gives up.
fn look_up(table: &HashTable<u64>, key: &u64, worker: &TestWorker) -> Lookup {
    let hash = key.hash();
    let in_region =
        worker.regions().run(|region| table.get_in(region, key), || table.find(hash).is_locked());
    in_region.unwrap_or_else(|| table.get(key))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, ..ProptestConfig::default() })]

    #[test]
    fn regions_agree_with_a_map(steps in steps(40, 250)) {
        if let Some(machine) = machine(2) {
            agrees_with_a_map::<u64>(steps.clone(), &machine);
            agrees_with_a_map::<CollidingKey>(steps.clone(), &machine);
            agrees_with_a_map::<OutOfLineKey>(steps, &machine);
        }
    }
}

/// Regions and twins run side by side in a growing table, and lose nothing.
#[test]
fn nothing_is_lost_while_regions_run_beside_twins() {
    let Some(machine) = machine(2) else { return };
    let more = if machine.is_native { 100 } else { 1 }; // emulation is slow
    let mut total = nothing_is_lost_while_growing::<u64>(2, 120 * more, &machine);
    total += nothing_is_lost_while_growing::<OutOfLineKey>(2, 80 * more, &machine);
    assert!(total.committed > 500 * more, "{total:?}");
    assert!(total.fallbacks > 0 || machine.is_native, "{total:?}");
}

/// An operation that fits is one region, and leaves what its twin leaves: the same answers and the same
/// versions.
#[test]
fn a_region_and_its_twin_have_the_same_effect() {
    let Some(machine) = machine(1_000) else { return };
    let _thread = (machine.begin_thread)(0);
    let trace = |htm: &Htm| {
        let memory = Arc::new(TestMemory::default());
        let worker = memory.worker_with(htm);
        let _pin = worker.pin();
        let mut table = HashTable::<u64>::with_capacity(64, &worker);
        let mut trace = Vec::new();
        for number in 0..40 {
            match look_up(&table, &number, &worker) {
                Lookup::Absent(noted) => trace.push(noted.version),
                Lookup::Found(_) => unreachable!("not inserted yet"),
            }
            match table.get_or_insert(&number, number + 1, &worker) {
                Insertion::Inserted { change, .. } => trace.extend([change.before, change.after]),
                Insertion::Found(_) => unreachable!("not inserted yet"),
            }
            assert_eq!(table.get_or_insert(&number, 7, &worker), Insertion::Found(number + 1));
            assert_eq!(look_up(&table, &number, &worker), Lookup::Found(number + 1));
            if number % 3 == 0 {
                assert!(!table.remove(&number, number, &worker));
                assert!(table.remove(&number, number + 1, &worker));
            }
        }
        table.clear(&worker);
        (trace, worker.regions().statistics())
    };
    let (in_software, none) = trace(&Htm::software());
    assert_eq!(none.started, 0);
    let mut last = None;
    let most_were_regions = (0..machine.tries()).any(|_| {
        let (in_hardware, statistics) = trace(&machine.htm);
        assert_eq!(in_hardware, in_software);
        last = Some(statistics);
        statistics.committed >= 60 + 2 * 40
    });
    assert!(most_were_regions, "{last:?}");
}

/// A region never reads a bucket that a twin has locked: it aborts and waits.
#[test]
fn a_region_waits_for_a_locked_bucket() {
    let Some(machine) = machine(1_000) else { return };
    let _thread = (machine.begin_thread)(0);
    let memory = Arc::new(TestMemory::default());
    let worker = memory.worker();
    let _pin = worker.pin();
    let mut table = HashTable::<u64>::new(&worker);
    table.get_or_insert(&1, 10, &worker);
    let met_the_lock = (0..machine.tries()).any(|_| {
        let home = table.find(1_u64.hash());
        assert!(home.bucket.try_lock(home.version));
        let met_the_lock = std::thread::scope(|scope| {
            let (send, statistics) = std::sync::mpsc::channel();
            let thread = scope.spawn({
                let (memory, machine, table) = (&memory, &machine, &table);
                move || {
                    let _thread = (machine.begin_thread)(1);
                    let worker = memory.worker_with(&machine.htm);
                    send.send(worker.regions().reader()).unwrap();
                    let _pin = worker.pin();
                    assert!(table.remove(&1, 10, &worker));
                }
            });
            let statistics = statistics.recv().unwrap();
            // An operation that has fallen back waits for the bucket without a region.
            while statistics.statistics().aborted_explicit == 0
                && statistics.statistics().fallbacks == 0
            {
                assert!(!thread.is_finished(), "it did not wait");
                std::thread::yield_now();
            }
            home.bucket.unlock(home.version + CHANGE);
            statistics.statistics().aborted_explicit > 0
        });
        table.get_or_insert(&1, 10, &worker);
        met_the_lock
    });
    assert!(met_the_lock, "all of {} fell back before", machine.tries());
    table.clear(&worker);
}
