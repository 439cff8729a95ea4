//! Clients that wait for elements of keys: `BLPOP`, `XREAD BLOCK`, and their kin.
//!
//! A key has a *line* of waiters for each thing that can be waited for. The first of a line is served first, and only the
//! first looks at the key. When it leaves the line, for whatever reason, the next one is woken, and looks.
//!
//! No wake-up is lost:
//!
//! 1. A waiter joins its lines. Then it looks at its keys, in a transaction that also makes sure that each key has a row in
//!    the table `watched`.
//! 2. A transaction that lets a key appear looks its row in `watched` up, as all that change a key do for `WATCH`. If the
//!    row is there, it wakes the firsts of the key's lines after its commit.
//! 3. Transactions are serializable, so one of the two comes first. If it is the transaction, the waiter sees what it has
//!    written. If it is the waiter, the transaction finds the row, and it finds the waiter in line, since that joined before
//!    its own transaction began.
//! 4. The row is removed when the last client lets go of the key. A waiter may have looked at the key before the row was
//!    removed. So after the removal the firsts of the key's lines are woken, and look again.
//!
//! A waiter that cannot look holds up those behind it. So while a client does not take its output, it is in no line. When it
//! has taken it, it joins its lines again, at their end, and looks.
//!
//! While a client waits it holds no thread: its connection's task awaits a [`Notify`].

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use weft::htm::word::{Ordering, Word};

use crate::tables::Text;

/// The elements that a client waits for at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// An element of a list.
    List,
    /// A member of a sorted set.
    SortedSet,
    /// An entry of a stream. All who wait for it get it, so all are woken.
    Stream,
    /// An entry of a stream for a group of consumers.
    Group(Text),
}

/// What a command that finds nothing waits for.
#[derive(Debug)]
pub struct Wait {
    /// The keys, and the line at each.
    pub places: Vec<(Text, Line)>,
    /// How long; `None` for ever.
    pub timeout: Option<Duration>,
    /// The arguments with which the command looks again, if they are others.
    pub arguments: Option<Vec<Box<[u8]>>>,
}

/// A client that waits.
#[derive(Debug)]
pub struct Waiter {
    /// Waiters are served in the order of their numbers. The number changes under the lock of all lines.
    number: Word,
    /// The numbered database.
    pub space: u8,
    /// The keys, and the line at each.
    pub places: Vec<(Text, Line)>,
    /// Wakes the client's connection, which looks again.
    pub woken: Notify,
    unblocked: Word,
}

/// How `CLIENT UNBLOCK` ends the waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unblocked {
    /// As if the time were over.
    Timeout,
    /// With an error.
    Error,
}

/// What a waiter needs at a key besides its bytes: here, and among the watched keys. An estimate.
const PLACE_BYTES: usize = 512;

impl Waiter {
    fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Returns how many bytes of memory the waiter's places need, about.
    pub fn bytes(&self) -> usize {
        self.places.iter().map(|(key, _)| PLACE_BYTES + key.len()).sum()
    }

    /// Ends the waiting, unless an element is found first.
    pub fn unblock(&self, how: Unblocked) {
        // The notification orders this before what the woken task reads.
        self.unblocked.store(how as u64 + 1, Ordering::Relaxed);
        self.woken.notify_one();
    }

    /// Returns how the waiting was ended, if it was.
    pub fn unblocked(&self) -> Option<Unblocked> {
        match self.unblocked.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Unblocked::Timeout),
            _ => Some(Unblocked::Error),
        }
    }
}

/// The waiters of a line, in their order.
type Queue = BTreeMap<u64, Arc<Waiter>>;

/// All waiters.
#[derive(Debug)]
pub struct Waiters {
    inner: Mutex<Inner>,
    /// How many there are. It changes under the lock.
    count: Word,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    keys: HashMap<(u8, Text), Vec<(Line, Queue)>>,
}

impl Inner {
    fn queue(&self, space: u8, key: &Text, line: &Line) -> Option<&Queue> {
        let lines = self.keys.get(&(space, key.clone()))?;
        lines.iter().find(|(other, _)| other == line).map(|(_, queue)| queue)
    }
}

impl Default for Waiters {
    fn default() -> Self {
        Waiters { inner: Mutex::default(), count: Word::new(0) }
    }
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many clients wait.
    pub fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a waiter at the end of its lines.
    pub fn join(&self, space: u8, places: Vec<(Text, Line)>) -> Arc<Waiter> {
        let [number, unblocked] = [(); 2].map(|()| Word::new(0));
        let waiter = Arc::new(Waiter { number, space, places, woken: Notify::new(), unblocked });
        self.rejoin(&waiter);
        waiter
    }

    /// Adds a waiter that is in no line at the end of its lines. It then has to look at its keys, as after [`Self::join`].
    pub fn rejoin(&self, waiter: &Arc<Waiter>) {
        let mut inner = self.lock();
        inner.last += 1;
        let number = inner.last;
        waiter.number.store(number, Ordering::Relaxed);
        for (key, line) in &waiter.places {
            let lines = inner.keys.entry((waiter.space, key.clone())).or_default();
            let at = lines.iter().position(|(other, _)| other == line).unwrap_or_else(|| {
                lines.push((line.clone(), Queue::new()));
                lines.len() - 1
            });
            lines[at].1.insert(number, Arc::clone(waiter));
        }
        self.count.store(self.len() + 1, Ordering::Relaxed);
    }

    /// Removes a waiter from its lines, and wakes those who are first now.
    pub fn leave(&self, waiter: &Waiter) {
        let mut inner = self.lock();
        for (key, line) in &waiter.places {
            let key = (waiter.space, key.clone());
            let Some(lines) = inner.keys.get_mut(&key) else { continue };
            let Some(at) = lines.iter().position(|(other, _)| other == line) else { continue };
            let queue = &mut lines[at].1;
            let was_first = queue.keys().next() == Some(&waiter.number());
            queue.remove(&waiter.number());
            match queue.values().next() {
                Some(next) if was_first => next.woken.notify_one(),
                Some(_) => {}
                None => {
                    lines.swap_remove(at);
                    if lines.is_empty() {
                        inner.keys.remove(&key);
                    }
                }
            }
        }
        self.count.store(self.len() - 1, Ordering::Relaxed);
    }

    /// Wakes those who are served next at a key.
    pub fn wake(&self, space: u8, key: &Text) {
        let inner = self.lock();
        for (line, queue) in inner.keys.get(&(space, key.clone())).into_iter().flatten() {
            let served = if *line == Line::Stream { usize::MAX } else { 1 };
            queue.values().take(served).for_each(|waiter| waiter.woken.notify_one());
        }
    }

    /// Returns whether a client waits in a line.
    pub fn is_taken(&self, space: u8, key: &[u8], line: &Line) -> bool {
        // A client that begins to wait at the same time has come neither before nor after.
        self.len() > 0 && self.lock().queue(space, &key.into(), line).is_some()
    }

    /// Returns whether a waiter is the first of a line.
    pub fn is_first(&self, waiter: &Waiter, key: &[u8], line: &Line) -> bool {
        let inner = self.lock();
        let queue = inner.queue(waiter.space, &key.into(), line);
        queue.and_then(|queue| queue.keys().next()) == Some(&waiter.number())
    }
}
