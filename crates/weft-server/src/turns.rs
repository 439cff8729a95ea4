//! The order of clients at keys for which many `EXEC`s do nothing.
//!
//! A client changes a key optimistically by `WATCH`, `GET`, `MULTI`, `SET` and `EXEC`. If many clients do so with one key, nearly
//! all have done their work for nothing when they come to `EXEC`. So `WATCH` of a key for which an `EXEC` has lately done
//! nothing waits for its *turn*: the clients go one after the other, each from its `WATCH` to its `EXEC`.
//!
//! The order is advice. Whether `EXEC` runs its commands is decided by the [versions](crate::watch) of the keys alone. A turn
//! therefore ends early if its client keeps it for [`TURN_MAX`], and a client that has waited for [`WAIT_MAX`] goes ahead
//! without a turn. A client has one turn at most and does not wait while it has one, so no two wait for each other.
//!
//! A key is *hot* for a second after an `EXEC` that did nothing, or after a client has waited. There is a fixed number of lines,
//! each with one hot key. While no key is hot, `WATCH` looks at one word for that. If a turn takes too long, the clients are too
//! slow for an order, and the key is no longer hot. While a client waits it holds no thread: its connection's task awaits a
//! [`Notify`].
//!
//! All others wait while the client whose turn it is thinks, so its thread does not sleep if turns are
//! [quick](QUICK): waking a thread takes longer than such a client's commands.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use weft::htm::word::{Ordering, Word};

use crate::store::Key;

/// How many lines there are.
const LINES: usize = 256;
/// How long a key is hot after the last `EXEC` that did nothing, or the last client that had to wait.
const HOT_MILLIS: u64 = 1000;
/// How long a client may keep its turn.
pub const TURN_MAX: Duration = Duration::from_millis(5);
/// A turn that ends within this time is quick. For so long the thread of the next client stays awake.
const QUICK: Duration = Duration::from_micros(100);
/// How long a client waits for its turn.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// The clients at a hot key.
#[derive(Debug, Default)]
struct Queue {
    last: u64,
    /// The client whose turn it is, and until when.
    holder: Option<(u64, Instant)>,
    /// Whether the turn before this one was quick.
    was_quick: bool,
    waiting: VecDeque<(u64, Arc<Notify>)>,
}

impl Queue {
    /// Begins the turn of the client that has waited longest, if the one before has ended or taken too long. Returns whether
    /// it has taken too long.
    fn advance(&mut self, turn_max: Duration) -> bool {
        let now = Instant::now();
        if self.holder.is_some_and(|(_, until)| until > now) {
            return false;
        }
        let was_long = self.holder.is_some();
        self.was_quick &= !was_long;
        self.holder = self.waiting.pop_front().map(|(number, notify)| {
            notify.notify_one();
            (number, now + turn_max)
        });
        was_long
    }
}

#[derive(Debug)]
struct Line {
    /// The hash of the key that is hot.
    hot: Word,
    /// Until when, in milliseconds after the server was opened.
    hot_until: Word,
    queue: Mutex<Queue>,
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Queue::advance`]. A key whose clients are too slow for an order is hot no longer.
    fn advance(&self, queue: &mut Queue, turn_max: Duration) {
        if queue.advance(turn_max) {
            self.hot_until.store(0, Ordering::Relaxed);
        }
    }
}

/// The lines of all keys.
#[derive(Debug)]
pub struct Turns {
    opened: Instant,
    turn_max: Duration,
    /// Until when any key is hot; 0 if none is. As in [`Line::hot_until`].
    hot_until: Word,
    lines: Box<[Line]>,
}

impl Turns {
    /// Creates the lines, in which a client may keep its turn for so long: [`TURN_MAX`].
    pub fn new(turn_max: Duration) -> Self {
        let line = |_| Line { hot: Word::new(0), hot_until: Word::new(0), queue: Mutex::default() };
        Turns {
            opened: Instant::now(),
            turn_max,
            hot_until: Word::new(0),
            lines: (0..LINES).map(line).collect(),
        }
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns whether a key is hot. The words are advice, too, so they need no order.
    fn is_hot(&self, hash: u64) -> bool {
        let line = &self.lines[place_of(hash)];
        line.hot.load(Ordering::Relaxed) == hash
            && line.hot_until.load(Ordering::Relaxed) > self.millis()
    }

    fn heat(&self, hash: u64) {
        let (line, now) = (&self.lines[place_of(hash)], self.millis());
        if line.hot.load(Ordering::Relaxed) != hash {
            if line.hot_until.load(Ordering::Relaxed) > now {
                // The line has another key.
                return;
            }
            line.hot.store(hash, Ordering::Relaxed);
        }
        line.hot_until.store(now + HOT_MILLIS, Ordering::Relaxed);
        self.hot_until.store(now + HOT_MILLIS, Ordering::Relaxed);
    }

    /// Returns whether any key is hot.
    fn has_hot_keys(&self) -> bool {
        let until = self.hot_until.load(Ordering::Relaxed);
        if until != 0 && until <= self.millis() {
            // If another key has become hot, the word has changed.
            let _ = self.hot_until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
            return false;
        }
        until != 0
    }

    /// Notes that an `EXEC` did nothing, since this key has changed.
    pub fn note_lost(&self, key: &Key<'_>) {
        self.heat(key.hash());
    }

    /// Joins the line of a hot key, if one of these is hot. Clients that name the same keys together join the same line.
    pub fn join<'k>(self: &Arc<Self>, keys: impl Iterator<Item = Key<'k>>) -> Option<Turn> {
        if !self.has_hot_keys() {
            return None;
        }
        let hash = keys.map(|key| key.hash()).filter(|hash| self.is_hot(*hash)).min()?;
        let line = &self.lines[place_of(hash)];
        let mut queue = line.lock();
        queue.last += 1;
        let (number, notify) = (queue.last, Arc::new(Notify::new()));
        queue.waiting.push_back((number, Arc::clone(&notify)));
        line.advance(&mut queue, self.turn_max);
        drop(queue);
        Some(Turn { turns: Arc::clone(self), hash, number, notify })
    }
}

fn place_of(hash: u64) -> usize {
    hash as usize % LINES
}

/// A place in a line: that of a client which waits, or whose turn it is. Dropping it lets the next one go.
#[derive(Debug)]
pub struct Turn {
    turns: Arc<Turns>,
    hash: u64,
    number: u64,
    notify: Arc<Notify>,
}

impl Turn {
    fn line(&self) -> &Line {
        &self.turns.lines[place_of(self.hash)]
    }

    /// Returns `None` if the client's turn has come, or is over already. Otherwise returns when the turn of another client
    /// is over.
    fn ahead(&self) -> Option<Instant> {
        let mut queue = self.line().lock();
        self.line().advance(&mut queue, self.turns.turn_max);
        let waits = queue.waiting.front().is_some_and(|(first, _)| *first <= self.number);
        queue.holder.filter(|_| waits).map(|(_, until)| until)
    }

    /// Returns whether the client has to wait.
    pub fn has_to_wait(&self) -> bool {
        self.ahead().is_some()
    }

    /// Returns until when the client's thread is to stay awake for its next request, if others wait for the end of its turn, and
    /// the one before was quick.
    pub fn awake_until(&self) -> Option<Instant> {
        let queue = self.line().lock();
        let (number, until) = queue.holder?;
        let is_awaited = number == self.number && !queue.waiting.is_empty();
        (is_awaited && queue.was_quick).then(|| until - self.turns.turn_max + QUICK)
    }

    /// Waits until the client's turn comes. Returns `None` if the client has waited too long.
    pub async fn wait(self) -> Option<Self> {
        let limit = Instant::now() + WAIT_MAX;
        self.turns.heat(self.hash);
        while let Some(until) = self.ahead() {
            if limit <= Instant::now() {
                return None;
            }
            // If the time is over before the notification, this client or the one whose turn it is has taken too long.
            let notified = self.notify.notified();
            let _ = tokio::time::timeout_at(until.min(limit).into(), notified).await;
        }
        Some(self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queue = self.line().lock();
        match queue.holder {
            Some((number, until)) if number == self.number => {
                queue.was_quick = until + QUICK > Instant::now() + self.turns.turn_max;
                queue.holder = None;
            }
            _ => queue.waiting.retain(|(number, _)| *number != self.number),
        }
        self.line().advance(&mut queue, self.turns.turn_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time that no test takes.
    const LONG: Duration = Duration::from_secs(100_000);

    /// Creates lines in which the key `a` is hot for as long as the test runs.
    fn new() -> Arc<Turns> {
        let turns = Arc::new(Turns::new(LONG));
        let key = Key::new(0, b"a");
        turns.note_lost(&key);
        for word in [&turns.hot_until, &turns.lines[place_of(key.hash())].hot_until] {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        turns
    }

    fn join(turns: &Arc<Turns>, names: &[&str]) -> Option<Turn> {
        turns.join(names.iter().map(|name| Key::new(0, name.as_bytes())))
    }

    #[test]
    fn only_keys_whose_execs_were_lost_have_a_line() {
        let turns = new();
        assert!(join(&turns, &["a"]).is_some() && join(&turns, &["b", "a"]).is_some());
        assert!(join(&turns, &["b"]).is_none());
        assert!(turns.join([Key::new(1, b"a")].into_iter()).is_none());
    }

    #[test]
    fn turns_come_in_the_order_in_which_clients_joined() {
        let turns = new();
        let mut line: Vec<_> = (0..4).map(|_| join(&turns, &["a"])).collect();
        assert!(!line[0].as_ref().unwrap().has_to_wait());
        // The second leaves while it waits.
        line[1] = None;
        assert!(line[2].as_ref().unwrap().has_to_wait() && line[3].as_ref().unwrap().has_to_wait());
        line[0] = None;
        assert!(
            !line[2].as_ref().unwrap().has_to_wait() && line[3].as_ref().unwrap().has_to_wait()
        );
        line[2] = None;
        assert!(!line[3].as_ref().unwrap().has_to_wait());
    }

    #[test]
    fn a_thread_stays_awake_for_a_turn_that_is_awaited_after_a_quick_one() {
        let turns = new();
        let [first, second, third, last] = [(); 4].map(|()| join(&turns, &["a"]).unwrap());
        assert_eq!(first.awake_until(), None, "no turn has ended");
        // However slow the machine is, a turn that is yet to begin is quick, and one that began before is not.
        let begin = |turn: &Turn, begun: Instant| {
            turn.line().lock().holder = Some((turn.number, begun + LONG));
        };
        begin(&first, Instant::now() + LONG);
        drop(first);
        let until = second.awake_until().expect("others wait, and the turn before was quick");
        assert!(until <= Instant::now() + QUICK);
        assert_eq!(third.awake_until(), None, "it is the second one's turn");
        begin(&second, Instant::now() - QUICK);
        drop(second);
        assert_eq!(third.awake_until(), None, "the turn before was slow");
        begin(&third, Instant::now() + LONG);
        drop(third);
        assert_eq!(last.awake_until(), None, "no other client waits");
    }

    #[test]
    fn a_turn_that_takes_too_long_ends_and_cools_the_key() {
        let turns = new();
        let [silent, next, last] = [(); 3].map(|()| join(&turns, &["a"]).unwrap());
        assert!(next.has_to_wait());
        silent.line().lock().holder = Some((silent.number, Instant::now()));
        assert!(!next.has_to_wait() && last.has_to_wait());
        assert!(join(&turns, &["a"]).is_none());
        // The turn that is over takes nothing from the one that follows.
        drop(silent);
        assert!(last.has_to_wait());
        drop(next);
        assert!(!last.has_to_wait());
        turns.note_lost(&Key::new(0, b"a"));
        assert!(turns.is_hot(last.hash));
    }
}
