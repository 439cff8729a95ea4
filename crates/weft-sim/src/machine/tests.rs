//! Tests of each mechanism alone, and of the working-set curves that result from them together.

use super::*;
use crate::profile::Latencies;
use crate::status::{CAPACITY, CONFLICT, EXPLICIT, NESTED, RETRY, explicit};

const PAGE: u64 = 4096;
const LINE: u64 = 64;
/// The hardware thread that shares its core with thread 0 on `haswell-4c8t`.
const SIBLING: usize = 4;

/// An action of thread 0.
type Step = fn(&mut Machine) -> Result<(), Abort>;

fn haswell() -> Machine {
    Machine::new(Profile::named("haswell-4c8t").unwrap(), 1)
}

fn latencies() -> Latencies {
    haswell().profile().latencies
}

/// Returns the cycles until an access is done.
fn cost(machine: &mut Machine, thread: usize, address: u64, access: Access) -> u64 {
    let before = machine.clock(thread);
    machine.access(thread, address, access).unwrap();
    machine.wait_for_accesses(thread);
    machine.clock(thread) - before
}

fn load(machine: &mut Machine, thread: usize, address: u64) -> u64 {
    cost(machine, thread, address, Access::Load)
}

fn store(machine: &mut Machine, thread: usize, address: u64) -> u64 {
    cost(machine, thread, address, Access::Store)
}

/// Protects the counts of lines that regions have read and written: only committed regions count.
#[test]
fn lines_of_committed_regions_are_counted() {
    let mut machine = haswell();
    let access = |machine: &mut Machine, line: u64, access| {
        machine.access(0, line * LINE, access).unwrap();
        machine.access(0, line * LINE + 8, access).unwrap();
    };
    // Outside of regions nothing is counted.
    (100..105).for_each(|line| access(&mut machine, line, Access::Store));
    machine.begin(0).unwrap();
    (0..7).for_each(|line| access(&mut machine, line, Access::Load));
    // Lines that are first read and then written count in both.
    (5..8).for_each(|line| access(&mut machine, line, Access::Store));
    access(&mut machine, 7, Access::Load);
    machine.abort(0, 1);
    assert_eq!((machine.counts(0).lines_read, machine.counts(0).lines_written), (0, 0));
    for _ in 0..2 {
        machine.begin(0).unwrap();
        (0..7).for_each(|line| access(&mut machine, line, Access::Load));
        (5..8).for_each(|line| access(&mut machine, line, Access::Store));
        machine.commit(0).unwrap();
    }
    assert_eq!((machine.counts(0).lines_read, machine.counts(0).lines_written), (14, 6));
}

/// Protects the levels: an access costs what the nearest level that holds the line costs.
#[test]
fn a_line_is_fetched_from_the_nearest_level() {
    let mut machine = haswell();
    let costs = latencies();
    assert_eq!(load(&mut machine, 0, 0), costs.memory);
    assert_eq!(load(&mut machine, 0, 8), costs.first_level, "the same line");
    assert_eq!(load(&mut machine, 0, LINE), costs.streamed, "the next line is under way");
    assert_eq!(load(&mut machine, 0, 5 * LINE), costs.memory);
    assert_eq!(load(&mut machine, 0, 4 * LINE), costs.memory, "downwards nothing is prefetched");
    // Eight more lines of the same set of the first level, in pages with arbitrary frames.
    for page in 1..=8 {
        load(&mut machine, 0, page * PAGE);
    }
    assert_eq!(load(&mut machine, 0, 0), costs.second_level);
    // More lines than the second level holds.
    for line in 0..2 * u64::from(machine.profile().second_level.sets) * 8 {
        load(&mut machine, 0, (100 << 20) + line * LINE);
    }
    assert_eq!(load(&mut machine, 0, 0), costs.last_level);
}

/// Protects the states of a line (exclusive, modified, shared), and the cost of each change.
#[test]
fn lines_change_hands() {
    let mut machine = haswell();
    let costs = latencies();
    load(&mut machine, 0, 0);
    assert_eq!(store(&mut machine, 0, 0), costs.first_level, "exclusive lines are written freely");
    assert_eq!(load(&mut machine, 1, 0), costs.other_core, "from the one who has modified it");
    assert_eq!(load(&mut machine, 0, 0), costs.first_level, "whose copy is now a shared one");
    assert_eq!(
        load(&mut machine, 2, 0),
        costs.last_level,
        "of a shared line the last level has one"
    );
    assert_eq!(
        store(&mut machine, 0, 0),
        costs.other_core,
        "to write, it is taken from all others"
    );
    assert_eq!(load(&mut machine, 1, 0), costs.other_core);
    assert_eq!(machine.counts(1).transfers, 2);
    let exchange = cost(&mut machine, 1, 0, Access::Exchange);
    assert_eq!(exchange, costs.other_core + costs.locked);
}

/// Protects sockets: lines and memory of another socket cost more.
#[test]
fn another_socket_is_farther() {
    let profile = Profile::named("xeon-e7-4x10").unwrap();
    let mut machine = Machine::new(profile, 1);
    let costs = profile.latencies;
    assert_eq!(store(&mut machine, 0, 0), costs.memory);
    assert_eq!(load(&mut machine, 9, 0), costs.other_core, "core 9 is on the first socket");
    assert_eq!(load(&mut machine, 10, 0), costs.other_socket);
    assert_eq!(load(&mut machine, 11, 0), costs.last_level, "the second socket has it as well");
    // Evict the line from everywhere: it lies in the memory of the socket that touched it first.
    let held = profile.last_level.bytes() / LINE;
    for line in 0..3 * held {
        load(&mut machine, 20, (1 << 30) + line * LINE);
    }
    load(&mut machine, 20, 1 << 20);
    for line in 0..3 * held {
        load(&mut machine, 20, (4 << 30) + line * LINE);
    }
    assert_eq!(load(&mut machine, 30, 1 << 20), costs.other_memory);
}

/// Protects hyper-threads: two threads of a core share its caches and its computing time.
#[test]
fn siblings_share_a_core() {
    let mut machine = haswell();
    let costs = latencies();
    load(&mut machine, 0, 0);
    machine.sleep_until(SIBLING, machine.clock(0));
    assert_eq!(store(&mut machine, SIBLING, 0), costs.first_level);
    machine.compute(0, 1000).unwrap();
    let alone = machine.clock(0);
    machine.set_running(SIBLING, true);
    machine.compute(0, 1000).unwrap();
    assert_eq!(machine.clock(0) - alone, 1600);
}

/// Protects page faults: each is paid once, and never inside a region, which it aborts.
#[test]
fn the_first_touch_of_a_page_is_a_fault() {
    let mut machine = haswell();
    machine.declare_absent(0, 2 * PAGE);
    machine.begin(0).unwrap();
    let aborted = machine.access(0, 8, Access::Store);
    assert_eq!(aborted, Err(Abort { status: 0 }));
    assert_eq!(machine.counts(0).page_faults, 0);
    machine.begin(0).unwrap();
    assert_eq!(machine.access(0, 8, Access::Load), Err(Abort { status: 0 }), "still absent");
    assert!(load(&mut machine, 0, 8) > latencies().page_fault);
    assert_eq!(machine.counts(0).page_faults, 1);
    assert_eq!(load(&mut machine, 0, 8), latencies().first_level);
    machine.begin(0).unwrap();
    machine.access(0, 16, Access::Store).unwrap();
    machine.commit(0).unwrap();
}

/// Protects the timer: its period, its phase by the seed, and that it aborts a region.
#[test]
fn the_timer_interrupts() {
    let mut machine = haswell();
    let period = machine.profile().timer_period;
    for _ in 0..100 {
        machine.compute(0, period / 10).unwrap();
    }
    assert!((9..=11).contains(&machine.counts(0).interrupts));
    machine.begin(1).unwrap();
    let status = machine.compute(1, 2 * period).unwrap_err().status;
    assert_eq!(status, 0);
    assert_eq!(machine.counts(1).aborted_other, 1);
    assert_eq!(machine.counts(1).interrupts, 1, "one for all that were due");
}

/// Protects rollback: overwritten values are returned newest first, and only once.
#[test]
fn an_abort_gives_back_what_was_overwritten() {
    let mut machine = haswell();
    machine.note_overwritten(0, 0, 99);
    machine.begin(0).unwrap();
    for value in 1..4 {
        machine.access(0, 8 * value, Access::Store).unwrap();
        machine.note_overwritten(0, 8 * value, value);
    }
    assert!(!machine.has_rolled_back());
    assert_eq!(machine.abort(0, 0x2a).status, explicit(0x2a));
    let back: Vec<_> = machine.take_rolled_back().map(|back| (back.address, back.value)).collect();
    assert_eq!(back, [(24, 3), (16, 2), (8, 1)]);
    assert!(!machine.has_rolled_back() && !machine.is_inside(0));
    assert_eq!(machine.counts(0).aborted_explicit, 1);
    machine.begin(0).unwrap();
    machine.access(0, 8, Access::Store).unwrap();
    machine.note_overwritten(0, 8, 1);
    machine.commit(0).unwrap();
    assert!(!machine.has_rolled_back(), "a commit keeps what it wrote");
    assert_eq!((machine.counts(0).begun, machine.counts(0).committed), (2, 1));
}

/// Protects conflicts, case by case: what a region did to a line, and what another thread then does to it, in a
/// region or outside (strong atomicity), on the same core or another.
#[test]
fn requester_of_a_line_wins() {
    use Access::{Exchange, Load, Store};
    for other in [1, SIBLING] {
        for in_region in [false, true] {
            for (mine, theirs, conflict) in [
                (Load, Load, false),
                (Load, Store, true),
                (Load, Exchange, true),
                (Store, Load, true),
                (Store, Store, true),
                (Exchange, Load, true),
            ] {
                let mut machine = haswell();
                machine.begin(0).unwrap();
                machine.access(0, 0, mine).unwrap();
                if in_region {
                    machine.begin(other).unwrap();
                }
                machine.access(other, 56, theirs).unwrap();
                let case = format!("{mine:?}, {theirs:?}, thread {other}, in region: {in_region}");
                let status = machine.commit(0).map_err(|aborted| aborted.status);
                assert_eq!(status, if conflict { Err(CONFLICT | RETRY) } else { Ok(()) }, "{case}");
                if in_region {
                    machine.commit(other).unwrap();
                }
                assert_eq!(machine.counts(0).aborted_conflict, u64::from(conflict), "{case}");
            }
        }
    }
}

/// Protects against false conflicts: with other lines, and with lines of a region that has ended.
#[test]
fn regions_without_shared_lines_do_not_conflict() {
    let mut machine = haswell();
    machine.begin(0).unwrap();
    machine.access(0, 0, Access::Store).unwrap();
    machine.access(1, LINE, Access::Store).unwrap();
    machine.commit(0).unwrap();
    machine.begin(0).unwrap();
    machine.access(1, 0, Access::Store).unwrap();
    machine.commit(0).unwrap();
}

/// Protects an aborted region from doing anything more: its next step, of any kind, reports the abort and does
/// not take place.
#[test]
fn a_region_learns_at_its_next_step() {
    let steps: [Step; 6] = [
        |machine| machine.access(0, 1 << 20, Access::Store),
        |machine| machine.compute(0, 1),
        |machine| machine.fence(0),
        |machine| machine.begin(0),
        |machine| machine.commit(0),
        |machine| Err(machine.abort(0, 7)),
    ];
    for step in steps {
        let mut machine = haswell();
        machine.begin(0).unwrap();
        machine.access(0, 0, Access::Store).unwrap();
        machine.note_overwritten(0, 0, 5);
        machine.access(1, 0, Access::Load).unwrap();
        assert_eq!(machine.take_rolled_back().count(), 1, "at once");
        assert!(machine.is_inside(0));
        assert_eq!(step(&mut machine).unwrap_err().status, CONFLICT | RETRY);
        assert!(!machine.is_inside(0));
        assert_eq!(load(&mut machine, 1, 1 << 20), latencies().memory, "nothing was fetched");
    }
}

/// Protects nesting: only the outermost region commits, seven levels fit, and the status tells that it was
/// nested.
#[test]
fn nesting_is_flat_and_seven_deep() {
    let mut machine = haswell();
    for _ in 0..7 {
        machine.begin(0).unwrap();
    }
    machine.access(0, 0, Access::Store).unwrap();
    for _ in 0..6 {
        machine.commit(0).unwrap();
    }
    assert!(machine.is_inside(0));
    assert_eq!(machine.counts(0).committed, 0);
    machine.commit(0).unwrap();
    assert_eq!((machine.counts(0).begun, machine.counts(0).committed), (1, 1));
    for _ in 0..7 {
        machine.begin(0).unwrap();
    }
    assert_eq!(machine.begin(0), Err(Abort { status: NESTED }));
    assert!(!machine.is_inside(0));
    machine.begin(0).unwrap();
    machine.begin(0).unwrap();
    assert_eq!(machine.abort(0, 1).status, NESTED | EXPLICIT | 1 << 24);
}

/// Protects forbidden instructions: a pause and a system call abort without a status bit of their own.
#[test]
fn forbidden_instructions_abort() {
    let steps: [Step; 2] = [|machine| machine.pause(0), |machine| machine.system_call(0, 500)];
    for step in steps {
        let mut machine = haswell();
        step(&mut machine).unwrap();
        machine.begin(0).unwrap();
        assert_eq!(step(&mut machine), Err(Abort { status: 0 }));
    }
}

/// Protects the bound of a set: eight written lines of one set of the first level fit, a ninth does not.
#[test]
fn a_set_holds_as_many_written_lines_as_it_has_ways() {
    let mut machine = haswell();
    machine.begin(0).unwrap();
    for page in 0..8 {
        machine.access(0, page * PAGE, Access::Store).unwrap();
    }
    assert_eq!(machine.access(0, 8 * PAGE, Access::Store), Err(Abort { status: CAPACITY }));
    // Lines that were only read may be evicted.
    machine.begin(0).unwrap();
    for page in 0..100 {
        machine.access(0, page * PAGE, Access::Load).unwrap();
    }
    machine.commit(0).unwrap();
    // The other thread of the core may evict written lines as well.
    machine.begin(0).unwrap();
    machine.access(0, 0, Access::Store).unwrap();
    for page in 200..208 {
        load(&mut machine, SIBLING, page * PAGE);
    }
    assert_eq!(machine.commit(0), Err(Abort { status: CAPACITY }));
}

/// Protects the order that DBX recommends (Figure 1c): reads after a write may evict the written line, but
/// reads before it do no harm.
#[test]
fn reads_before_writes_fit_better() {
    let region = |writes_first: bool| {
        let mut machine = haswell();
        machine.begin(0).unwrap();
        let parts: [(u64, u64, Access); 2] =
            [(0, 28 << 10, Access::Store), (1 << 30, 1 << 20, Access::Load)];
        let order = if writes_first { [0, 1] } else { [1, 0] };
        for part in order {
            let (start, bytes, access) = parts[part];
            for line in 0..bytes / LINE {
                machine.access(0, start + line * LINE, access)?;
            }
        }
        machine.commit(0)
    };
    assert_eq!(region(false), Ok(()));
    assert_eq!(region(true), Err(Abort { status: CAPACITY }));
}

/// Protects the promise that a seed determines the run: the same accesses at other addresses cost the same.
#[test]
fn a_run_depends_on_its_seed_and_nothing_else() {
    let run = |seed: u64, base: u64| {
        let mut machine = Machine::new(Profile::named("haswell-4c8t").unwrap(), seed);
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let thread = random.usize(0..8);
            let address = base + random.u64(0..8 << 20);
            match random.u8(0..10) {
                0 => _ = machine.begin(thread),
                1 if machine.is_inside(thread) => _ = machine.commit(thread),
                choice => {
                    let access = if choice < 8 { Access::Load } else { Access::Store };
                    _ = machine.access(thread, address, access);
                }
            }
        }
        let state = |thread| (machine.clock(thread), machine.counts(thread));
        (0..8).map(state).collect::<Vec<_>>()
    };
    let first = run(1, 0);
    assert_eq!(first, run(1, 0x5555_5000_0000));
    assert_ne!(first, run(2, 0));
    assert!(first.iter().any(|(_, counts)| counts.aborted_conflict > 0));
}

mod overlap {
    use super::*;

    /// Returns the cycles until all accesses of `accesses` are done, each to a line that no cache holds.
    fn time(machine: &mut Machine, accesses: &[Access]) -> u64 {
        let before = machine.clock(0);
        for (page, &access) in accesses.iter().enumerate() {
            machine.access(0, page as u64 * PAGE, access).unwrap();
        }
        machine.wait_for_accesses(0);
        machine.clock(0) - before
    }

    /// Protects overlap: misses that do not depend on each other are in progress together, up to the number of
    /// fill buffers.
    #[test]
    fn independent_misses_overlap() {
        let (costs, profile) = (latencies(), haswell().profile());
        for access in [Access::Load, Access::Store] {
            let filled = vec![access; profile.fill_buffers];
            let starts = (filled.len() as u64 - 1) * costs.first_level;
            assert_eq!(time(&mut haswell(), &filled), starts + costs.memory, "{access:?}");
            let mut more = filled.clone();
            more.push(access);
            assert_eq!(time(&mut haswell(), &more), 2 * costs.memory, "{access:?}");
        }
    }

    /// Protects dependence: the address behind a pointer is not known before the pointer is there.
    #[test]
    fn pointers_are_awaited() {
        let costs = latencies();
        assert_eq!(time(&mut haswell(), &[Access::LoadPointer; 3]), 3 * costs.memory);
        // Also if another load has fetched the line already.
        let mut machine = haswell();
        machine.access(0, 0, Access::Load).unwrap();
        machine.access(0, 8, Access::LoadPointer).unwrap();
        assert_eq!(machine.clock(0), costs.memory);
        // A miss in progress does not delay the pointers behind it.
        let mut machine = haswell();
        load(&mut machine, 0, 0);
        let before = machine.clock(0);
        machine.access(0, PAGE, Access::Load).unwrap();
        machine.access(0, 0, Access::LoadPointer).unwrap();
        assert_eq!(machine.clock(0) - before, 2 * costs.first_level);
    }

    /// Protects the reorder window: computing hides a miss only as far as the window reaches. Two threads of a
    /// core have half of it each.
    #[test]
    fn reorder_window_limits_what_a_load_hides() {
        let costs = latencies();
        let window = haswell().profile().reorder_window / 2;
        for (is_alone, window) in [(true, window), (false, window / 2)] {
            let mut machine = haswell();
            machine.set_running(SIBLING, !is_alone);
            machine.access(0, 0, Access::Load).unwrap();
            machine.issue(0, window);
            assert_eq!(machine.clock(0), costs.first_level + window, "{is_alone}");
            machine.issue(0, 10);
            assert_eq!(machine.clock(0), costs.memory + 10, "{is_alone}");
        }
        // A load that the window hides entirely costs nothing more.
        let mut machine = haswell();
        machine.access(0, 0, Access::Load).unwrap();
        machine.wait_for_accesses(0);
        machine.access(1, 0, Access::Load).unwrap();
        machine.access(1, 0, Access::Load).unwrap();
        machine.issue(1, 1000);
        assert_eq!(machine.clock(1), 2 * costs.first_level + 1000);
    }

    /// Protects the store buffer: stores wait there for their lines, in order, until it is full.
    #[test]
    fn stores_wait_in_the_store_buffer() {
        let costs = latencies();
        let entries = haswell().profile().store_buffer;
        let mut machine = haswell();
        // The first store misses. The others hit, and leave the buffer behind it.
        load(&mut machine, 0, PAGE);
        let before = machine.clock(0);
        machine.access(0, 0, Access::Store).unwrap();
        for _ in 1..entries {
            machine.access(0, PAGE, Access::Store).unwrap();
        }
        assert_eq!(machine.clock(0) - before, entries * costs.first_level);
        machine.access(0, PAGE, Access::Store).unwrap();
        assert_eq!(machine.clock(0) - before, costs.memory, "the buffer was full");
    }

    /// Protects order: exchanges, fences, regions, and system calls wait for all accesses before them.
    #[test]
    fn ordering_steps_wait_for_all_accesses() {
        let costs = latencies();
        let steps: [(Step, u64); 5] = [
            (|machine| machine.access(0, PAGE, Access::Exchange), costs.first_level + costs.locked),
            (|machine| machine.fence(0), costs.fence),
            (|machine| machine.begin(0), costs.begin),
            (|machine| machine.system_call(0, 500), 500),
            (
                |machine| {
                    machine.set_running(0, false);
                    Ok(())
                },
                0,
            ),
        ];
        for (number, (step, cycles)) in steps.into_iter().enumerate() {
            for access in [Access::Load, Access::Store] {
                let mut machine = haswell();
                store(&mut machine, 0, PAGE);
                let before = machine.clock(0);
                machine.access(0, 0, access).unwrap();
                step(&mut machine).unwrap();
                assert_eq!(
                    machine.clock(0) - before,
                    costs.memory + cycles,
                    "{number}, {access:?}"
                );
            }
        }
        let mut machine = haswell();
        machine.begin(0).unwrap();
        let before = machine.clock(0);
        machine.access(0, 0, Access::Store).unwrap();
        machine.commit(0).unwrap();
        assert_eq!(machine.clock(0) - before, costs.memory + costs.commit);
    }

    /// Protects waiting loops: the load that ends one is not hidden, because its branch was predicted to go on.
    #[test]
    fn the_load_after_a_pause_is_awaited() {
        let mut machine = haswell();
        machine.pause(0).unwrap();
        let before = machine.clock(0);
        machine.access(0, 0, Access::Load).unwrap();
        assert_eq!(machine.clock(0) - before, latencies().memory);
        machine.access(0, PAGE, Access::Load).unwrap();
        assert_eq!(machine.clock(0) - before, latencies().memory + latencies().first_level);
    }

    /// Protects lines in a row: each arrives a fixed time after the one before it.
    #[test]
    fn lines_in_a_row_arrive_one_after_the_other() {
        let mut machine = haswell();
        for line in 0..5 {
            machine.access(0, line * LINE, Access::Load).unwrap();
        }
        machine.wait_for_accesses(0);
        assert_eq!(machine.clock(0), latencies().memory + 4 * latencies().streamed);
    }
}

mod working_set {
    use super::*;

    #[derive(Clone, Copy)]
    enum Pattern {
        Sequential,
        /// Lines drawn at random from 4 MiB.
        Random,
    }

    /// Returns the share of regions that abort if each of `threads` accesses `bytes` bytes of its own at the
    /// same time, and between these accesses two lines of its stack, which lies anywhere.
    fn abort_rate(threads: &[usize], bytes: u64, access: Access, pattern: Pattern) -> f64 {
        const TRIALS: u64 = 24;
        let (mut begun, mut committed) = (0, 0);
        for trial in 0..TRIALS {
            let mut machine = Machine::new(Profile::named("haswell-4c8t").unwrap(), trial);
            let mut random = fastrand::Rng::with_seed(trial);
            let base = |thread: usize| (thread as u64 + 1) << 32;
            let mut addresses = |line: u64| match pattern {
                Pattern::Sequential => line * LINE,
                Pattern::Random => random.u64(0..(4 << 20) / LINE) * LINE,
            };
            let lines: Vec<u64> = (0..bytes / LINE).map(&mut addresses).collect();
            let stack = random.u64(0..63) * LINE;
            let mut open: Vec<usize> = Vec::new();
            for &thread in threads {
                // Warm the caches, as in a benchmark that repeats its regions.
                for line in &lines {
                    machine.access(thread, base(thread) + line, Access::Load).unwrap();
                }
                machine.set_running(thread, true);
                machine.begin(thread).unwrap();
                open.push(thread);
            }
            for (position, line) in lines.iter().enumerate() {
                open.retain(|&thread| {
                    let stack = base(thread) - PAGE + stack + position as u64 % 2 * LINE;
                    machine.access(thread, stack, Access::Load).is_ok()
                        && machine.access(thread, base(thread) + line, access).is_ok()
                });
            }
            for &thread in &open {
                let _ = machine.commit(thread);
            }
            for &thread in threads {
                begun += machine.counts(thread).begun;
                committed += machine.counts(thread).committed;
            }
        }
        1.0 - committed as f64 / begun as f64
    }

    /// Returns the first of the sizes at which half of all regions abort.
    fn limit(
        threads: &[usize],
        sizes: impl Iterator<Item = u64>,
        access: Access,
        pattern: Pattern,
    ) -> u64 {
        let mut sizes = sizes;
        sizes
            .find(|&bytes| abort_rate(threads, bytes, access, pattern) > 0.5)
            .expect("some size is too large")
    }

    /// DBX, Figure 1a: at most 31 KB of sequential writes fit.
    #[test]
    fn writes_in_a_row_fill_the_first_level() {
        let kib = (16..40).map(|kib| kib << 10);
        let alone = limit(&[0], kib.clone(), Access::Store, Pattern::Sequential);
        assert!((30 << 10..=33 << 10).contains(&alone), "{alone}");
        // Figure 1b: less fits beside another thread on the core.
        let beside = limit(&[0, SIBLING], kib, Access::Store, Pattern::Sequential);
        assert!((16 << 10..=24 << 10).contains(&beside), "{beside}");
    }

    /// DBX-TC, Figure 1b: with random writes, far fewer lines fit.
    #[test]
    fn writes_at_random_collapse_far_earlier() {
        let sizes = (1..40).map(|kib| kib << 10);
        let random = limit(&[0], sizes, Access::Store, Pattern::Random);
        assert!((8 << 10..=18 << 10).contains(&random), "{random}");
    }

    /// DBX, Figure 1a and b: at most 4 MB of sequential reads fit, 2 MB beside another thread on the core.
    #[test]
    fn reads_are_tracked_outside_the_first_level() {
        let mib = |sizes: [u64; 3]| sizes.map(|mib| mib << 20).into_iter();
        let alone = limit(&[0], mib([3, 4, 5]), Access::Load, Pattern::Sequential);
        assert!((4 << 20..=5 << 20).contains(&alone), "{alone}");
        let four = limit(&[0, 1, 2, 3], mib([3, 4, 5]), Access::Load, Pattern::Sequential);
        assert!((4 << 20..=5 << 20).contains(&four), "{four}");
        let beside = limit(&[0, SIBLING], mib([1, 2, 3]), Access::Load, Pattern::Sequential);
        assert!((2 << 20..=3 << 20).contains(&beside), "{beside}");
    }
}
