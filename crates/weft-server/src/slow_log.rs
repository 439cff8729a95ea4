//! The slow log: commands that took long.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weft::htm::word::{Ordering, Word};

use crate::clients::Client;

/// The most arguments of a command that are kept, and the most bytes of each.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;

/// A command that took long.
#[derive(Clone, Debug)]
pub struct SlowCommand {
    /// Its number in the log.
    pub id: u64,
    /// When it ended, in seconds since 1970.
    pub at: u64,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// Its arguments, or the beginning of them.
    pub arguments: Vec<Vec<u8>>,
    /// The address of the client.
    pub address: String,
    /// The name of the client.
    pub name: String,
}

/// The slow log.
#[derive(Debug)]
pub struct SlowLog {
    /// Commands that take at least so many microseconds are kept. The greatest number keeps none.
    pub threshold_micros: Word,
    /// How many commands are kept.
    pub length_max: Word,
    kept: Mutex<(u64, VecDeque<SlowCommand>)>,
}

impl Default for SlowLog {
    fn default() -> Self {
        let (threshold_micros, length_max) = (Word::new(10_000), Word::new(128));
        SlowLog { threshold_micros, length_max, kept: Mutex::default() }
    }
}

impl SlowLog {
    fn lock(&self) -> MutexGuard<'_, (u64, VecDeque<SlowCommand>)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a command that took so long is kept.
    pub fn wants(&self, took: Duration) -> bool {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let threshold = self.threshold_micros.load(Ordering::Relaxed);
        threshold != u64::MAX && micros >= threshold
    }

    /// Keeps a command.
    pub fn add(&self, arguments: &[&[u8]], took: Duration, client: &Client) {
        let cut = |argument: &&[u8]| argument[..argument.len().min(ARGUMENT_BYTES_MAX)].to_vec();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut kept = self.lock();
        let id = kept.0;
        kept.0 += 1;
        kept.1.push_front(SlowCommand {
            id,
            at: now.as_secs(),
            micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            arguments: arguments.iter().take(ARGUMENTS_MAX).map(cut).collect(),
            address: client.addresses.0.clone(),
            name: client.texts().name.clone(),
        });
        let length_max = self.length_max.load(Ordering::Relaxed);
        kept.1.truncate(usize::try_from(length_max).unwrap_or(usize::MAX));
    }

    /// Returns the newest commands.
    pub fn newest(&self, count: usize) -> Vec<SlowCommand> {
        self.lock().1.iter().take(count).cloned().collect()
    }

    /// Returns how many commands are kept.
    pub fn len(&self) -> usize {
        self.lock().1.len()
    }

    /// Returns whether no command is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all commands.
    pub fn clear(&self) {
        self.lock().1.clear();
    }
}
