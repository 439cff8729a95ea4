//! The clock of a database: snapshot numbers, and the epochs into which they are grouped.
//!
//! ```text
//!   63                                20 19                     0
//!  +------------------------------------+------------------------+
//!  |  epoch                             |  snapshots in it       |
//!  +------------------------------------+------------------------+
//! ```
//!
//! The whole word is DBX's global snapshot number *S* (§5.4). A thread that opens a snapshot takes the number
//! and increments it. A background thread starts a new epoch every 40 ms (or, if there is a log, whenever the
//! log asks for it). So the number at the end of an epoch is a snapshot that holds exactly what was committed
//! until then.
//!
//! A committing transaction draws the number once, at its serialization point: when it has locked what it
//! writes, and before it validates what it has read. The versions that it writes carry the number, and the
//! TID words the epoch (see `record::tid`). So if one transaction depends on another, its number is equal or
//! greater. This is what makes a snapshot consistent, and what lets group commit write whole epochs to the
//! log.
//!
//! A number says where a transaction belongs, but not that its writes are visible: the transaction may have
//! drawn its number and not installed its versions yet. Therefore a thread that opens a snapshot waits for
//! the commits under way: see [`ActivityWords`].

use std::convert::Infallible;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use weft_htm::blocking::{Condvar, Mutex};
use weft_htm::word::{Ordering, Word, fence, spin_loop, yield_now};

/// The time between two ticks of the global epoch.
pub const EPOCH_INTERVAL: Duration = Duration::from_millis(40);

/// The epoch with which a new database starts. Epoch 0 marks records that were never committed.
pub const FIRST_EPOCH: u64 = 1;

/// How many bits of a snapshot number count snapshots within an epoch. If there are more snapshots than fit,
/// the count carries over and so starts a new epoch.
pub const EPOCH_SHIFT: u32 = 20;

/// The last epoch. The log closes an epoch every 4 µs at most, so the epochs last for two years in which there is
/// always a caller that waits for a commit to become durable, and a sync costs nothing. Where a sync takes 100 µs they
/// last for 50 years.
pub const EPOCH_MAX: u64 = u64::MAX >> EPOCH_SHIFT;

/// Returns the epoch to which a snapshot number belongs.
#[inline(always)]
pub const fn epoch_of(number: u64) -> u64 {
    number >> EPOCH_SHIFT
}

/// Returns the last snapshot number of an epoch.
pub const fn last_number_of(epoch: u64) -> u64 {
    ((epoch + 1) << EPOCH_SHIFT) - 1
}

/// The global snapshot number of one database, on a cache line of its own.
#[repr(align(64))]
#[derive(Debug)]
pub struct Clock {
    number: Word,
}

impl Default for Clock {
    fn default() -> Self {
        Clock { number: Word::new(FIRST_EPOCH << EPOCH_SHIFT) }
    }
}

impl Clock {
    /// Sets the epoch with which the clock starts. Called before anything has happened.
    pub fn start_at(&self, epoch: u64) {
        self.number.store(epoch << EPOCH_SHIFT, Ordering::SeqCst);
    }

    /// Returns the current snapshot number.
    ///
    /// SeqCst: see [`ActivityWords`]. (It pairs with the increments as an acquire, too.)
    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }

    /// Returns the current epoch.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        epoch_of(self.number())
    }

    /// Takes the current number for a snapshot. Every transaction that draws a number from now on draws a
    /// greater one.
    pub fn take_number(&self) -> u64 {
        self.number.fetch_add(1, Ordering::SeqCst)
    }

    /// Starts the next epoch, and returns the one that has ended.
    ///
    /// # Panics
    /// At the [last epoch](EPOCH_MAX). A log fails then, and acknowledges nothing that is not durable.
    pub fn tick(&self) -> u64 {
        let mut number = self.number();
        loop {
            let epoch = epoch_of(number);
            assert!(epoch < EPOCH_MAX, "the database has used up the numbers of its epochs");
            let next = (epoch + 1) << EPOCH_SHIFT;
            match self.number.compare_exchange(number, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return epoch,
                Err(now) => number = now,
            }
        }
    }
}

/// A word for each worker that says whether the worker is committing, so that a snapshot can wait for it. (The
/// [gate](crate::sync::gate::Gate) has such words for procedures in pieces.)
///
/// ```text
///   committing worker                     thread that takes a snapshot number, or ends an epoch
///     begin: word := odd                    clock += 1 (or the next epoch)
///     draw the number from the clock        wait until no word is odd that was odd just now
///     install, and number, the versions
///     end: word := even
/// ```
///
/// The first two steps on each side are sequentially consistent. Say the worker has drawn a number from
/// before the increment. Then its word was odd before the increment. So the other thread sees that, and waits
/// until the versions are installed. When the wait is over, everything that belongs to the snapshot is
/// visible. (A fence between the worker's two steps does as well: see [`ActivityWords::announce`].) A worker that
/// commits inside a hardware region does its first three steps as one; the increment either makes the region abort,
/// or comes after it.
#[derive(Debug)]
pub struct ActivityWords {
    words: Box<[ActivityWord]>,
}

/// For so many pauses it is awaited that commits end soon. Most of them take no longer.
const SPINS_OF_COMMIT: u32 = 256;

/// A worker's count of commits begun and ended: odd during a commit. It lies on a cache line of its own.
#[repr(align(64))]
#[derive(Debug, Default)]
struct ActivityWord(Word);

impl ActivityWords {
    /// Creates the words of up to `workers_max` workers.
    pub fn new(workers_max: usize) -> Self {
        ActivityWords { words: (0..workers_max).map(|_| ActivityWord::default()).collect() }
    }

    /// Begins a commit of the worker in `slot`, as [`ActivityWords::begin`] does, for a worker that executes a
    /// sequentially consistent fence before it draws its number. With the locks that it takes in between, the fence
    /// costs nothing.
    #[inline(always)]
    pub fn announce(&self, slot: usize) {
        let word = &self.words[slot].0;
        // Relaxed: only this worker writes the word, and the fence orders the store before the draw.
        let count = word.load(Ordering::Relaxed);
        debug_assert!(count.is_multiple_of(2), "one commit at a time");
        word.store(count + 1, Ordering::Relaxed);
    }

    /// Begins a commit of the worker in `slot`. Must be called before the worker draws its number.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn begin(&self, slot: usize) {
        let word = &self.words[slot].0;
        // Relaxed: only this worker writes the word.
        let count = word.load(Ordering::Relaxed);
        debug_assert!(count.is_multiple_of(2), "one commit at a time");
        word.swap(count + 1, Ordering::SeqCst);
        // The swap and the load of the clock must be in one total order with the other side's steps.
        // Sequential consistency guarantees that, but loom treats it as acquire and release.
        if cfg!(loom) {
            fence(Ordering::SeqCst);
        }
    }

    /// Ends the commit of the worker in `slot`.
    #[inline(always)]
    pub fn end(&self, slot: usize) {
        let word = &self.words[slot].0;
        // Release: pairs with the acquire in `wait_while`, so a thread that has waited sees the versions.
        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Returns whether the worker in `slot`, which is the caller's, is committing.
    pub fn is_begun(&self, slot: usize) -> bool {
        // Relaxed: only this worker writes the word.
        !self.words[slot].0.load(Ordering::Relaxed).is_multiple_of(2)
    }

    /// Waits until all commits that are now under way in the first `slots_used` slots have ended.
    pub fn wait(&self, slots_used: usize) {
        let waited = self.wait_while(slots_used, || Ok::<(), Infallible>(()));
        waited.unwrap_or_else(|never| match never {});
    }

    /// As [`ActivityWords::wait`], but calls `keep_waiting` now and then, and ends the wait if that returns an
    /// error.
    pub fn wait_while<E>(
        &self,
        slots_used: usize,
        keep_waiting: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut spins = 0u32;
        self.wait_by(slots_used, || {
            spins += 1;
            if spins.is_multiple_of(64) {
                keep_waiting()?;
                yield_now();
            } else {
                spin_loop();
            }
            Ok(())
        })
    }

    /// Returns whether all commits that are now under way in the first `slots_used` slots end soon. One does not if its
    /// thread has lost its core.
    pub fn end_soon(&self, slots_used: usize) -> bool {
        let mut spins = 0..SPINS_OF_COMMIT;
        let pause = || spins.next().map(|_| spin_loop()).ok_or(());
        self.wait_by(slots_used, pause).is_ok()
    }

    /// Waits until all commits that are now under way in the first `slots_used` slots have ended, by `pause`, which may end
    /// the wait.
    fn wait_by<E>(
        &self,
        slots_used: usize,
        mut pause: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        if cfg!(loom) {
            fence(Ordering::SeqCst);
        }
        for word in &self.words[..slots_used] {
            // A word that is even, or that changes, does not matter any more: a later commit draws a later
            // number.
            let count = word.0.load(Ordering::SeqCst);
            while !count.is_multiple_of(2) && word.0.load(Ordering::Acquire) == count {
                pause()?;
            }
        }
        Ok(())
    }
}

/// A thread that does something at intervals. Dropping this value stops and joins the thread.
#[derive(Debug)]
pub struct Ticker {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Calls `tick` every `interval`.
    ///
    /// # Errors
    /// The operating system's error, if it cannot start a thread.
    pub fn start(
        interval: Duration,
        mut tick: impl FnMut() + Send + 'static,
    ) -> std::io::Result<Ticker> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("weft-epoch".into()).spawn(move || {
            let (flag, wake) = &*stopped;
            let mut stop = flag.lock().unwrap_or_else(PoisonError::into_inner);
            while !*stop {
                let (guard, timeout) =
                    wake.wait_timeout(stop, interval).unwrap_or_else(PoisonError::into_inner);
                stop = guard;
                if timeout.timed_out() {
                    tick();
                }
            }
        })?;
        Ok(Ticker { stop, thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread runs nothing that can panic, and there is no caller to report a panic to.
            let _ = thread.join();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    #[should_panic = "used up the numbers of its epochs"]
    fn the_clock_stops_at_the_last_epoch() {
        let clock = Clock::default();
        clock.start_at(EPOCH_MAX - 1);
        assert_eq!(clock.tick(), EPOCH_MAX - 1);
        assert_eq!(clock.epoch(), EPOCH_MAX);
        clock.tick();
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use weft_htm::word::fence_after_exchange;

    /// A snapshot sees all of a commit or nothing of it, depending on the numbers.
    #[test]
    fn loom_clock_a_commit_and_a_snapshot() {
        loom::model(|| commit_beside_a_snapshot(|commits| commits.begin(0)));
    }

    /// The same, if the commit is announced, and then takes a lock.
    #[test]
    fn loom_clock_an_announced_commit_and_a_snapshot() {
        loom::model(|| {
            commit_beside_a_snapshot(|commits| {
                commits.announce(0);
                Word::new(0).swap(1, Ordering::AcqRel);
                fence_after_exchange();
            });
        });
    }

    fn commit_beside_a_snapshot(begin: fn(&ActivityWords)) {
        let clock = loom::sync::Arc::new(Clock::default());
        let commits = loom::sync::Arc::new(ActivityWords::new(1));
        let installed = loom::sync::Arc::new([Word::new(0), Word::new(0)]);
        let writer = {
            let (clock, commits, installed) = (clock.clone(), commits.clone(), installed.clone());
            thread::spawn(move || {
                begin(&commits);
                let number = clock.number();
                installed.iter().for_each(|word| word.store(number, Ordering::Relaxed));
                commits.end(0);
                number
            })
        };
        let snapshot = clock.take_number();
        commits.wait(1);
        let sees = [0, 1].map(|word: usize| {
            let number = installed[word].load(Ordering::Relaxed);
            number != 0 && number <= snapshot
        });
        let is_due = writer.join().unwrap() <= snapshot;
        assert_eq!(sees, [is_due; 2]);
    }

    /// If the second of two commits depends on the first, no snapshot sees the second alone.
    #[test]
    fn loom_clock_two_commits_and_a_snapshot() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(2));
        model.check(|| {
            let clock = loom::sync::Arc::new(Clock::default());
            let commits = loom::sync::Arc::new(ActivityWords::new(2));
            let installed = loom::sync::Arc::new([Word::new(0), Word::new(0)]);
            let commit = |slot: usize| {
                let (clock, commits, installed) =
                    (clock.clone(), commits.clone(), installed.clone());
                move || {
                    // The second transaction commits only if it sees what the first has installed.
                    let goes = slot == 0 || installed[0].load(Ordering::Acquire) != 0;
                    if goes {
                        commits.begin(slot);
                        installed[slot].store(clock.number(), Ordering::Release);
                        commits.end(slot);
                    }
                }
            };
            let threads = [thread::spawn(commit(0)), thread::spawn(commit(1))];
            let snapshot = clock.take_number();
            commits.wait(2);
            let sees = [0, 1].map(|word: usize| {
                let number = installed[word].load(Ordering::Relaxed);
                number != 0 && number <= snapshot
            });
            assert!(sees[0] || !sees[1]);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
