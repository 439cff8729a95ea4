//! Explicit interleavings: each transaction runs on a thread of its own, one step at a time, in the order of a
//! schedule.
//!
//! A protocol may refuse a step, refuse the commit, or make the step wait for another transaction. A step that
//! waits goes on spinning while all others are idle, and the interleaving module counts that; no clock decides.
//! The schedule then goes on with the other transactions, and takes the answer of the waiting one when it
//! comes.
//!
//! A session may be a snapshot in place of a transaction. With regard to real time, it ends when it has been
//! opened: what begins later comes after it.
//!
//! Whatever the protocol does, two oracles judge the result: [`crate::oracle`] by what the transactions were
//! shown, and the checker by what the engine has recorded. They must agree.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use weft::Error;
use weft_htm::interleave::SpinCounter;

use crate::contents::{fill, rows};
use crate::oracle::{Log, is_serializable};
use crate::step::{State, Step, StepResult, state_of};
use crate::subject::{Moment, Store, Subject};
use crate::verdict::{Finding, judge};

/// If a thread has waited this many times since the last look, with all others idle, it waits for one of them.
const SPINS_OF_ONE_THAT_WAITS: u64 = 200;

/// If no thread has moved after this many rounds of looking at all that wait, it is a deadlock.
const ROUNDS_OF_A_DEADLOCK: usize = 100;

/// The results of a schedule.
#[derive(Debug)]
pub struct Run {
    /// The transactions, in the order of their numbers.
    pub logs: Vec<Log>,
    /// Whether some step had to wait for another transaction.
    pub any_waited: bool,
    /// The rows at the end.
    pub left: State,
}

impl Run {
    /// Returns which of the transactions committed.
    pub fn committed(&self) -> Vec<bool> {
        self.logs.iter().map(|log| log.committed).collect()
    }

    /// Returns whether the schedule went through as written.
    pub fn went_through(&self) -> bool {
        !self.any_waited && !self.committed().contains(&false)
    }
}

/// Runs the thread of one transaction: takes steps until the transaction commits or aborts.
fn session(store: &dyn Store, steps: &Receiver<Step>, shown: &Sender<StepResult>) {
    let mut transaction = None;
    for step in steps {
        let tx = transaction.take().unwrap_or_else(|| match step {
            Step::Snapshot => store.open_snapshot(Moment::Now),
            _ => store.begin(),
        });
        let result = match step {
            Step::Commit => tx.commit().map(|()| StepResult::Happened(true)),
            Step::Snapshot => {
                transaction = Some(tx);
                Ok(StepResult::Happened(true))
            }
            step => {
                let result = tx.take(step);
                transaction = Some(tx);
                result
            }
        };
        match result {
            Ok(what) => shown.send(what).expect("the director listens to the end"),
            Err(Error::Conflict(_)) => {
                drop(transaction.take());
                shown.send(StepResult::Aborted).expect("the director listens to the end");
                return;
            }
            Err(error) => panic!("{step:?}: {error}"),
        }
    }
}

/// The director's end of a session.
struct SessionHandle {
    steps: Option<Sender<Step>>,
    shown: Receiver<StepResult>,
    spins: SpinCounter,
    /// Steps that were sent and not answered, oldest first.
    open: Vec<Step>,
    log: Log,
    thread: Option<JoinHandle<()>>,
}

impl SessionHandle {
    fn begin(store: &Arc<dyn Store>) -> Self {
        let (step_sender, step_receiver) = channel();
        let (shown_sender, shown_receiver) = channel();
        let spins = SpinCounter::new();
        let (store, counter) = (Arc::clone(store), spins.clone());
        // Not a scope: in a deadlock the threads are left behind, and the test can report it.
        let thread = std::thread::spawn(move || {
            counter.count(|| session(&*store, &step_receiver, &shown_sender));
        });
        SessionHandle {
            steps: Some(step_sender),
            shown: shown_receiver,
            spins,
            open: Vec::new(),
            log: Log::default(),
            thread: Some(thread),
        }
    }

    /// Sends a step, unless the transaction has aborted.
    fn send(&mut self, step: Step, now: usize) {
        let Some(steps) = &self.steps else { return };
        if self.log.steps.is_empty() && self.open.is_empty() {
            self.log.began = now;
        }
        if steps.send(step).is_ok() {
            self.open.push(step);
        }
    }

    /// Takes answers as they come. Returns `true` when none is outstanding, `false` when the session waits for
    /// another.
    fn hear(&mut self, now: usize) -> bool {
        while let Some(&step) = self.open.first() {
            let mut answer = None;
            let waits = self.spins.until_waiting(SPINS_OF_ONE_THAT_WAITS, || {
                match self.shown.try_recv() {
                    Ok(shown) => answer = Some(shown),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => {
                        panic!("a session ended: {:?}, then {step:?}", self.log)
                    }
                }
                answer.is_some()
            });
            let Some(shown) = answer else {
                assert!(waits, "no answer without a wait");
                return false;
            };
            self.open.remove(0);
            if shown == StepResult::Aborted {
                // Later steps of an aborted transaction do not take place.
                self.steps = None;
                self.open.clear();
            }
            self.log.committed = step == Step::Commit && shown != StepResult::Aborted;
            if !self.log.is_snapshot() {
                self.log.ended = now;
            }
            self.log.steps.push((step, shown));
        }
        true
    }
}

/// The seed of what is forced on the protocol that adapts: schedules have no seed of their own.
const SEED: u64 = 0;

/// Runs a schedule: which transaction takes which step next. A transaction that does not commit in the schedule
/// is rolled back at its end. The second part of the result is the checker's verdict.
fn run(
    subject: &Subject,
    initial: &[(u64, i64)],
    schedule: &[(usize, Step)],
) -> Result<(Run, Result<(), Finding>), Finding> {
    let store: Arc<dyn Store> = Arc::from(subject.open_recorded(SEED));
    fill(&*store, initial);
    let transactions = 1 + schedule.iter().map(|(number, _)| *number).max().expect("some step");
    let mut lines: Vec<SessionHandle> =
        (0..transactions).map(|_| SessionHandle::begin(&store)).collect();
    let mut any_waited = false;
    for (now, &(number, step)) in schedule.iter().enumerate() {
        lines[number].send(step, now);
        // First take the answer of the transaction whose turn it is, and then of all that it may have released.
        any_waited |= !lines[number].hear(now);
        hear_all(&mut lines, now);
    }
    for _ in 0..ROUNDS_OF_A_DEADLOCK {
        // A transaction that has taken all its steps without a commit is rolled back. Others may wait for that.
        for line in lines.iter_mut().filter(|line| line.open.is_empty()) {
            line.steps = None;
        }
        if hear_all(&mut lines, schedule.len()) {
            break;
        }
    }
    if lines.iter().any(|line| !line.open.is_empty()) {
        let witness = lines.iter().map(|line| format!("{:#?}, then {:?}\n", line.log, line.open));
        return Err(Finding::new("schedule", "a deadlock", witness.collect::<String>()));
    }
    let ends = lines.iter_mut().filter_map(|line| {
        line.steps = None;
        line.thread.take()
    });
    for end in ends {
        end.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
    let Some(left) = rows_if_nothing_is_locked(&store) else {
        let witness = format!("all transactions have ended, and a row stays locked: {schedule:?}");
        return Err(Finding::new("schedule", "a deadlock", witness));
    };
    let verdict = judge("schedule", &store.take_history());
    let logs = lines.into_iter().map(|line| line.log).collect();
    Ok((Run { logs, any_waited, left }, verdict))
}

/// Takes all answers that come. Returns `true` if none is outstanding.
fn hear_all(lines: &mut [SessionHandle], now: usize) -> bool {
    let waiting = lines.iter_mut().map(|line| !line.hear(now)).filter(|&waits| waits);
    waiting.count() == 0
}

/// Returns all rows of a database, or `None` if the reader waits for ever.
fn rows_if_nothing_is_locked(store: &Arc<dyn Store>) -> Option<State> {
    let (sender, receiver) = channel();
    let spins = SpinCounter::new();
    let (store, counter) = (Arc::clone(store), spins.clone());
    std::thread::spawn(move || {
        let read = counter.count(|| rows(&*store));
        // If it took too long, the receiver no longer exists.
        drop(store);
        let _ = sender.send(read);
    });
    (0..ROUNDS_OF_A_DEADLOCK).find_map(|_| {
        let mut read = None;
        spins.until_waiting(SPINS_OF_ONE_THAT_WAITS, || {
            match receiver.try_recv() {
                Ok(rows) => read = Some(rows),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => panic!("the reader of the rows ended"),
            }
            read.is_some()
        });
        read
    })
}

/// Runs a schedule, and lets both oracles judge it.
///
/// # Errors
/// The findings of the oracles; a finding of one oracle that the other does not have; transactions that wait
/// for each other for ever.
///
/// # Panics
/// If a transaction fails for a reason other than a conflict.
pub fn check(
    subject: &Subject,
    initial: &[(u64, i64)],
    schedule: &[(usize, Step)],
) -> Result<Run, Finding> {
    let (run, verdict) = run(subject, initial, schedule)?;
    let is_explained = is_serializable(&state_of(initial), &run.logs, &run.left);
    match (is_explained, verdict) {
        (true, Ok(())) => Ok(run),
        (is_explained, Err(mut finding)) => {
            if is_explained {
                finding.what.push("though a serial order explains it".to_owned());
            }
            finding.witness = format!("{}\n{run:#?}", finding.witness);
            Err(finding)
        }
        (false, _) => {
            let what = "no serial order explains it, though the checker passes it";
            Err(Finding::new("schedule", what, format!("{run:#?}")))
        }
    }
}

/// The expected result of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedOutcome {
    /// No serial order explains the schedule as written, so some transaction must abort or wait.
    Anomaly,
    /// The schedule may go through.
    Harmless,
    /// The transactions come one after the other, and each commits immediately.
    Serial,
}

/// A schedule of the suite.
#[derive(Clone, Debug)]
pub struct Script {
    /// The script's name.
    pub name: &'static str,
    /// The expected result.
    pub expected: ExpectedOutcome,
    /// The initial rows.
    pub initial: Vec<(u64, i64)>,
    /// Which transaction takes which step next.
    pub schedule: Vec<(usize, Step)>,
}

impl Script {
    /// Returns whether some session is a snapshot.
    pub fn opens_snapshots(&self) -> bool {
        self.schedule.iter().any(|(_, step)| *step == Step::Snapshot)
    }

    /// Runs the script.
    ///
    /// # Errors
    /// The findings of the oracles; an anomaly that went through, or a serial execution that did not.
    ///
    /// # Panics
    /// As for [`check`].
    pub fn check(&self, subject: &Subject) -> Result<Run, Finding> {
        assert!(subject.has_snapshots || !self.opens_snapshots(), "{}", self.name);
        let judged = check(subject, &self.initial, &self.schedule);
        let run = judged.map_err(|mut finding| {
            finding.check = self.name;
            finding
        })?;
        let what = match (self.expected, run.went_through()) {
            (ExpectedOutcome::Anomaly, true) => "the schedule went through",
            (ExpectedOutcome::Serial, false) => {
                "transactions that were alone did not commit at once"
            }
            _ => return Ok(run),
        };
        Err(Finding::new(self.name, what, format!("{run:#?}")))
    }
}
