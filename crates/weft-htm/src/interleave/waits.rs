//! Waits: what they mean to a run, and how a test outside of a run detects one.
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::Arc;

use super::{Watch, baton, is_watched};
use crate::word::{Ordering, Word};

thread_local! {
    /// The counter of this thread's waits, if a test counts them.
    static COUNTER: RefCell<Option<SpinCounter>> = const { RefCell::new(None) };
    /// Waits since the last point: in these the thread did not even check whether it must go on waiting.
    static BLIND_WAITS: Cell<u64> = const { Cell::new(0) };
}

/// Waits for a moment. For a loop that checks each time whether it must still wait. In a run the baton passes
/// to another thread.
#[inline(always)]
#[track_caller]
pub fn spin_loop() {
    if !(is_watched() && wait(Location::caller())) {
        std::hint::spin_loop();
    }
}

/// Yields the processor to another thread, if one wants it. In a run the baton passes.
#[inline(always)]
#[track_caller]
pub fn yield_now() {
    if !(is_watched() && wait(Location::caller())) {
        std::thread::yield_now();
    }
}

/// Counts the wait. If this thread is in a run, passes the baton and returns `true`.
#[cold]
#[inline(never)]
fn wait(place: &'static Location<'static>) -> bool {
    // An error means that the thread is about to end, and its waits are no longer counted.
    let _ = COUNTER.try_with(|counter| {
        if let Some(counter) = &*counter.borrow() {
            // Relaxed: a number that says nothing about other memory. Partner: `get`.
            counter.0.fetch_add(1, Ordering::Relaxed);
        }
    });
    let is_running = baton::is_running();
    if is_running && is_worth_a_switch() {
        baton::wait(place);
    }
    is_running
}

/// Decides whether a wait passes the baton. A pause of thousands of spins after a conflict is there to let time
/// pass. In a run that means that others go on. It need not be thousands of switches: of the waits in which the
/// thread accesses nothing, the 1st, 2nd, 4th, … and every [`BLIND_WAITS_MAX`]th pass the baton.
fn is_worth_a_switch() -> bool {
    const BLIND_WAITS_MAX: u64 = 1024;
    if baton::has_looked() {
        BLIND_WAITS.set(0);
    }
    let waits = BLIND_WAITS.get() + 1;
    BLIND_WAITS.set(waits);
    waits.is_power_of_two() || waits.is_multiple_of(BLIND_WAITS_MAX)
}

/// Counts how often a thread waits, for other threads to read. It works in a run and without one.
///
/// With it a test that plays a schedule step by step can tell a step that waits for another transaction from
/// one that is merely slow:
///
/// ```
/// use std::sync::mpsc::channel;
/// use weft_htm::interleave::SpinCounter;
/// use weft_htm::word::{Ordering, Word, spin_loop};
///
/// let (lock, spins) = (Word::new(1), SpinCounter::new());
/// let (done, answer) = channel();
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         spins.count(|| {
///             while lock.load(Ordering::Acquire) != 0 {
///                 spin_loop();
///             }
///             done.send("through").unwrap();
///         })
///     });
///     assert!(spins.until_waiting(1000, || answer.try_recv().is_ok()));
///     lock.store(0, Ordering::Release);
///     assert!(!spins.until_waiting(1000, || answer.try_recv().is_ok()));
/// });
/// ```
#[derive(Clone, Debug, Default)]
pub struct SpinCounter(Arc<Word>);

impl SpinCounter {
    /// Makes a counter at 0. Clones count together.
    pub fn new() -> SpinCounter {
        SpinCounter::default()
    }

    /// Runs `body` on this thread, and counts the thread's waits during it here. (Counters that enclose this
    /// one do not count them.)
    pub fn count<R>(&self, body: impl FnOnce() -> R) -> R {
        /// Restores the counter that was there before, also after a panic.
        struct Counting(Option<SpinCounter>);
        impl Drop for Counting {
            fn drop(&mut self) {
                COUNTER.with(|counter| *counter.borrow_mut() = self.0.take());
            }
        }

        let _watch = Watch::begin();
        let _counting = Counting(COUNTER.replace(Some(self.clone())));
        body()
    }

    /// Returns how often the thread has waited so far.
    pub fn get(&self) -> u64 {
        // Relaxed: see `wait`.
        self.0.load(Ordering::Relaxed)
    }

    /// Returns `true` when the counted thread has waited `spins` more times than at the call. Returns `false`
    /// when `answered`, which is called repeatedly, returns `true` first. While all threads that could be
    /// waited for are idle, `true` means that the thread waits for one of them: a thousand spins are long
    /// enough.
    pub fn until_waiting(&self, spins: u64, mut answered: impl FnMut() -> bool) -> bool {
        let before = self.get();
        loop {
            // Read the counter before calling `answered`: a thread that answered and then spun on counts as
            // answered.
            let waits = self.get() - before >= spins;
            if answered() {
                return false;
            }
            if waits {
                return true;
            }
            std::thread::yield_now();
        }
    }
}
