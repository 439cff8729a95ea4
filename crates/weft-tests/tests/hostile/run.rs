//! Runs of the workload, one for each combination of an operation, a misbehaviour and a call.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weft::durability::SimulatedDisk;
use weft::protocol::Protocol;
use weft::{Error, Failure};
use weft_htm::blocking::{self, Mutex};
use weft_protocols::HtmNaive;

use crate::hook::{
    Calls, Misbehaviour, Operation, Plan, arm, await_block, disarm, quietly, release, set_act,
};
use crate::live;
use crate::live::violation;
use crate::workload::{World, open};

/// A lock for one run at a time, because the hook and the register of values belong to the process.
pub static ONE: Mutex<()> = Mutex::new(());

/// The longest time of a run. A run that takes longer is considered endless.
const RUN_MAX: Duration = Duration::from_secs(300);

/// The longest time for which another thread is held up while an operation blocks. (Under `doppel` the thread may
/// wait until the change to the next phase is given up, after a number of yields. On a loaded machine these take
/// seconds.)
const HELD_UP_MAX: Duration = Duration::from_secs(60);

/// The longest time that closing a database takes.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// The result of a run.
struct Ended {
    fired_at: Option<String>,
    recorded: Calls,
    violations: Vec<String>,
}

/// Runs something on another thread, and joins the thread.
fn on_a_thread<R: Send>(run: impl FnOnce() -> R + Send) -> thread::Result<R> {
    thread::scope(|scope| scope.spawn(run).join())
}

/// Runs the workload once.
fn run<P: Protocol>(is_durable: bool, plan: Option<Plan>) -> Ended {
    live::reset();
    arm(plan);
    let is_truthful = plan.is_none_or(|plan| !plan.misbehaviour.is_false());
    let disk = is_durable.then(|| Arc::new(SimulatedDisk::new(1)));
    let acknowledged = Arc::default();
    let database = open::<P>(disk.clone()).expect("an empty database opens");
    let world = World::of(database, Arc::clone(&acknowledged), is_truthful);
    set_act(Some(world.act()));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let ended = on_a_thread(|| world.run());
            is_over.store(true, SeqCst);
            ended
        });
        if await_block(|| is_over.load(SeqCst)) {
            while_blocked(&world, plan);
            release();
        }
        if running.join().is_ok_and(|ended| ended.is_err()) {
            violation("the workload panicked".to_owned());
        }
    });
    let verified = on_a_thread(|| {
        quietly(|| match world.probe() {
            Err(Error::Failure(Failure::Closed)) => {}
            _ => world.verify("before the end"),
        });
    });
    if verified.is_err() {
        violation("looking at the database panicked".to_owned());
    }
    // From here on, operations that block are released at once.
    let is_ending = AtomicBool::new(true);
    blocking::scope(|scope| {
        scope.spawn(|| {
            while is_ending.load(SeqCst) {
                if await_block(|| !is_ending.load(SeqCst)) {
                    release();
                }
            }
        });
        close(&world);
        set_act(None);
        if on_a_thread(|| drop(world)).is_err() {
            violation("dropping the database panicked".to_owned());
        }
        if let Some(disk) = &disk {
            // The plan may be carried out during recovery. Then the panic is that of the plan.
            let _ = on_a_thread(|| drop(open::<P>(Some(Arc::clone(disk)))));
        }
        is_ending.store(false, SeqCst);
    });
    let (fired_at, recorded) = disarm();
    if let Some(disk) = disk {
        match open::<P>(Some(disk)) {
            Ok(database) => {
                let world = World::of(database, acknowledged, is_truthful);
                let _ = on_a_thread(|| world.verify("after it was opened again"));
                close(&world);
            }
            Err(failure) if is_truthful => {
                violation(format!("the database cannot be opened again: {failure}"));
            }
            Err(_) => {}
        }
    }
    let alive = live::count_alive();
    if alive > 0 {
        violation(format!("{alive} values were never dropped"));
    }
    Ended { fired_at, recorded, violations: live::take_violations() }
}

fn close<P: Protocol>(world: &World<P>) {
    let begun = Instant::now();
    match on_a_thread(|| world.database.close_within(CLOSE_MAX)) {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => violation(format!("the database cannot be closed: {failure}")),
        Err(_) => violation("closing the database panicked".to_owned()),
    }
    if begun.elapsed() > CLOSE_MAX + Duration::from_secs(5) {
        violation(format!("closing the database took {:?}", begun.elapsed()));
    }
}

/// Checks that, while an operation blocks, other threads go on, and that closing succeeds or returns an error by
/// its deadline.
fn while_blocked<P: Protocol>(world: &World<P>, plan: Option<Plan>) {
    let begun = Instant::now();
    // Under `htm-naive` a transaction holds the lock of the whole database, and another waits for it without a
    // deadline.
    let probed = match P::NAME == HtmNaive::NAME {
        true => Ok(Ok(())),
        false => on_a_thread(|| quietly(|| world.probe())),
    };
    if begun.elapsed() > HELD_UP_MAX {
        violation(format!("another thread was held up for {:?}", begun.elapsed()));
    }
    match probed {
        Ok(Ok(()) | Err(Error::Failure(Failure::Closed))) => {}
        Ok(Err(error)) if World::<P>::lets_others_through() => {
            violation(format!("another thread's transaction failed: {error}"));
        }
        // Until the operation ends, phases cannot change, and other transactions wait for a procedure in pieces.
        Ok(Err(Error::Failure(_))) => {}
        Ok(Err(error)) => violation(format!("another thread's transaction got {error}")),
        Err(_) => violation("another thread's transaction panicked".to_owned()),
    }
    if plan.is_some_and(|plan| plan.number % 2 == 1) {
        return; // Closing is left out, so that the contents can be compared after the run.
    }
    let begun = Instant::now();
    let closed = on_a_thread(|| quietly(|| world.database.close_within(Duration::from_millis(20))));
    match closed {
        Ok(Ok(()) | Err(Failure::StillRunning { .. })) => {}
        Ok(Err(failure)) => violation(format!("closing failed: {failure}")),
        Err(_) => violation("closing panicked".to_owned()),
    }
    if begun.elapsed() > Duration::from_secs(5) {
        violation(format!("closing missed its deadline: it took {:?}", begun.elapsed()));
    }
}

/// Runs the workload once, and aborts the process if the run does not end in time.
fn run_watched<P: Protocol>(is_durable: bool, plan: Option<Plan>, name: &str) -> Ended {
    let (ended, has_ended) = channel();
    let running = thread::spawn(move || drop(ended.send(run::<P>(is_durable, plan))));
    match has_ended.recv_timeout(RUN_MAX) {
        Ok(ended) => {
            let _ = running.join();
            ended
        }
        Err(RecvTimeoutError::Disconnected) => panic!("the run of {name} panicked"),
        Err(RecvTimeoutError::Timeout) => {
            tell(&format!("the run of {name} does not end"));
            std::process::abort();
        }
    }
}

/// Writes a line to the standard error, which the test harness does not capture.
fn tell(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// An optimistic protocol. Every combination runs under it, and one of [`LOCKING_STEP`] under a protocol that locks.
const COMPLETE: &str = "dbx";
const LOCKING: &str = "2pl";
const LOCKING_STEP: usize = 6;

/// The other protocols. One of as many combinations as there are of them runs under each. `.ci/deep conformance` runs
/// all combinations under all protocols.
const OTHERS: usize = weft_protocols::NAMES.len() - 2;

/// Set in processes that run one test.
const IN_PROCESS: &str = "WEFT_HOSTILE_PROCESS";

/// Runs the test of this name alone in another process, which runs `suite`.
pub fn in_process_of_its_own(test: &str, suite: fn()) {
    if std::env::var_os(IN_PROCESS).is_some() {
        return suite();
    }
    let mut process = Command::new(std::env::current_exe().expect("this program is known"));
    process.args(["--exact", test, "--nocapture"]).env(IN_PROCESS, "1").stdout(Stdio::null());
    let status = process.status().expect("a process can be started");
    assert!(status.success(), "{test}: {status}");
}

/// Returns how many combinations come to one that runs under a protocol.
fn step_of(name: &str) -> usize {
    match name {
        COMPLETE => 1,
        LOCKING => LOCKING_STEP,
        _ => OTHERS,
    }
}

/// Returns the position of a protocol among the others, which is different for each of them.
fn turn_of(name: &str) -> usize {
    let mut others = weft_protocols::NAMES.iter().filter(|name| step_of(name) == OTHERS);
    others.position(|other| *other == name).unwrap_or(0)
}

pub fn suite<P: Protocol>() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    std::panic::set_hook(Box::new(|panic| {
        if !is_expected(panic) {
            tell(&format!("{panic}"));
        }
    }));
    let variable = |name: &str| std::env::var(name).ok();
    let amount = variable("WEFT_HOSTILE");
    let is_exhaustive = amount.as_deref() == Some("all");
    let only = variable("WEFT_HOSTILE_ONLY").unwrap_or_default();
    let step = if amount.is_some() || !only.is_empty() { 1 } else { step_of(P::NAME) };
    // Each protocol begins at another combination, so that together they run all of them.
    let mut turn = turn_of(P::NAME);
    let traces = variable("WEFT_HOSTILE_TRACE").is_some();
    let begun = Instant::now();
    let (mut failures, mut runs, mut missed) = (Vec::new(), 0, 0);
    let mut combinations: BTreeSet<(Operation, Misbehaviour, String)> = BTreeSet::new();
    let mut known: BTreeSet<(Operation, String)> = BTreeSet::new();
    for is_durable in [false, true] {
        let counted = run_watched::<P>(is_durable, None, "the workload without any misbehaviour");
        let place = if is_durable { "with a directory" } else { "in memory" };
        failures
            .extend(counted.violations.into_iter().map(|it| format!("{} {place}: {it}", P::NAME)));
        if !failures.is_empty() {
            break;
        }
        for ((operation, site), numbers) in counted.recorded {
            if !known.insert((operation, site.clone())) && !is_exhaustive {
                continue;
            }
            for misbehaviour in Misbehaviour::ALL.into_iter().filter(|it| it.suits(operation)) {
                for number in spread(&numbers, if is_exhaustive { 30 } else { 1 }) {
                    let name = format!(
                        "{misbehaviour:?} in call {number} of {operation:?} under {} {place}, from {site}",
                        P::NAME
                    );
                    turn += 1;
                    if !turn.is_multiple_of(step) {
                        continue;
                    }
                    let is_chosen =
                        |word: &str| word.split('|').any(|either| name.contains(either));
                    if !only.split(' ').all(is_chosen) {
                        continue;
                    }
                    if traces {
                        tell(&name);
                    }
                    let plan = Plan { operation, misbehaviour, number };
                    let ended = run_watched::<P>(is_durable, Some(plan), &name);
                    runs += 1;
                    for violation in ended.violations {
                        // Printed at once, because a later run may abort the process.
                        tell(&format!("{name}: {violation}"));
                        failures.push(format!("{name}: {violation}"));
                    }
                    match ended.fired_at {
                        Some(site) => {
                            combinations.insert((operation, misbehaviour, site));
                        }
                        None => missed += 1,
                    }
                }
            }
        }
    }
    assert!(
        !known.is_empty() || !failures.is_empty(),
        "no call site is known: the tests have to be compiled with line tables"
    );
    tell(&format!(
        "hostile types under {}: {} combinations of operation, misbehaviour and call site, in {runs} runs \
         ({missed} of them did not reach the call), {:?}",
        P::NAME,
        combinations.len(),
        begun.elapsed(),
    ));
    failures.truncate(100);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Selects `count` of the numbers, evenly spaced.
fn spread(numbers: &[u64], count: usize) -> Vec<u64> {
    if numbers.len() <= count {
        return numbers.to_vec();
    }
    if count == 1 {
        return vec![numbers[numbers.len() / 2]];
    }
    (0..count).map(|position| numbers[position * (numbers.len() - 1) / (count - 1)]).collect()
}

/// Returns whether a panic is expected: its message is that of a transaction that has caught a panic.
fn is_expected(panic: &std::panic::PanicHookInfo<'_>) -> bool {
    let text = panic.payload().downcast_ref::<&str>().copied();
    text.is_some_and(|text| text.contains("was left half done"))
}
