//! A replicated log in memory, which fails as real ones do, for tests.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;

use crate::log::{LogError, LogRecord, ReplicatedLog};

/// How often appends fail, each in percent. By default they do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The append fails, and has no effect.
    pub lost: u8,
    /// The append fails, and has its effect all the same.
    pub unanswered: u8,
    /// The append fails, and has its effect later.
    pub late: u8,
    /// The record is appended a second time, later.
    pub doubled: u8,
}

/// A replicated log in memory. Each node of a test has a [connection](SimulatedLog::connect) of its own.
#[derive(Clone, Debug)]
pub struct SimulatedLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    grew: Condvar,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    faults: Faults,
    identity: String,
    /// The offset of the first record.
    first: u64,
    records: Vec<Arc<[u8]>>,
    /// Records that may be appended later.
    limbo: Vec<Arc<[u8]>>,
    /// Which connections are cut off.
    cut: Vec<bool>,
}

/// A node's connection to a [`SimulatedLog`].
#[derive(Debug)]
pub struct SimulatedConnection {
    shared: Arc<Shared>,
    number: usize,
}

impl SimulatedLog {
    /// Returns an empty log. The seed decides which appends fail.
    pub fn new(seed: u64) -> SimulatedLog {
        let state = State {
            rng: Rng::with_seed(seed),
            faults: Faults::default(),
            identity: format!("simulated {:032x}", fastrand::u128(..)),
            first: 0,
            records: Vec::new(),
            limbo: Vec::new(),
            cut: Vec::new(),
        };
        SimulatedLog { shared: Arc::new(Shared { state: Mutex::new(state), grew: Condvar::new() }) }
    }

    /// Returns a new connection.
    pub fn connect(&self) -> Arc<SimulatedConnection> {
        let mut state = self.shared.hold();
        state.cut.push(false);
        let number = state.cut.len() - 1;
        Arc::new(SimulatedConnection { shared: Arc::clone(&self.shared), number })
    }

    /// Makes appends fail from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.hold().faults = faults;
    }

    /// Removes the last `count` records, as if all machines had lost power.
    pub fn lose_tail(&self, count: usize) {
        let mut state = self.shared.hold();
        let length = state.records.len().saturating_sub(count);
        state.records.truncate(length);
    }
}

impl SimulatedConnection {
    /// Cuts the node off from the log, or connects it again.
    pub fn cut_off(&self, is_cut: bool) {
        self.shared.hold().cut[self.number] = is_cut;
        self.shared.grew.notify_all();
    }

    /// Returns the log's state, if the node is connected.
    fn reach(&self) -> Result<MutexGuard<'_, State>, LogError> {
        let state = self.shared.hold();
        match state.cut[self.number] {
            true => Err(LogError::Unavailable("the node is cut off".to_owned())),
            false => Ok(state),
        }
    }
}

impl Shared {
    fn hold(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn happens(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    fn push(&mut self, record: Arc<[u8]>) -> u64 {
        self.records.push(record);
        self.end() - 1
    }

    fn end(&self) -> u64 {
        self.first + self.records.len() as u64
    }
}

impl ReplicatedLog for SimulatedConnection {
    fn append(&self, record: &[u8]) -> Result<u64, LogError> {
        let mut state = self.reach()?;
        let record: Arc<[u8]> = record.into();
        if !state.limbo.is_empty() && state.rng.bool() {
            let late = state.limbo.remove(0);
            state.push(late);
        }
        let faults = state.faults;
        let no_answer = || LogError::Unavailable("no answer".to_owned());
        if state.happens(faults.lost) {
            return Err(no_answer());
        }
        if state.happens(faults.late) {
            state.limbo.push(record);
            return Err(no_answer());
        }
        if state.happens(faults.doubled) {
            state.limbo.push(Arc::clone(&record));
        }
        let offset = state.push(record);
        let is_unanswered = state.happens(faults.unanswered);
        drop(state);
        self.shared.grew.notify_all();
        if is_unanswered { Err(no_answer()) } else { Ok(offset) }
    }

    fn read(&self, from: u64, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
        let state = self.reach()?;
        let has_nothing = |state: &mut State| state.end() == from && !state.cut[self.number];
        let waited = self.shared.grew.wait_timeout_while(state, wait, has_nothing);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        let state = self.reach()?;
        let (first, end) = (state.first, state.end());
        if !(first..=end).contains(&from) {
            return Err(LogError::OutOfRange { offset: from, first, end });
        }
        let records = (from..end).zip(&state.records[(from - first) as usize..]);
        Ok(records
            .take(100)
            .map(|(offset, bytes)| LogRecord { offset, bytes: Arc::clone(bytes) })
            .collect())
    }

    fn range(&self) -> Result<(u64, u64), LogError> {
        let state = self.reach()?;
        Ok((state.first, state.end()))
    }

    fn identity(&self) -> Result<String, LogError> {
        Ok(self.reach()?.identity.clone())
    }

    fn truncate_before(&self, offset: u64) -> Result<(), LogError> {
        let mut state = self.reach()?;
        let count = offset.min(state.end()).saturating_sub(state.first);
        state.records.drain(..count as usize);
        state.first += count;
        Ok(())
    }
}
