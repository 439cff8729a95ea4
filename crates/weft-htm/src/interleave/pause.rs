//! Pauses: a thread stops at one of its accesses, and others go on as if it had lost its core there.
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::Watch;

thread_local! {
    /// The pause that stops this thread, if there is one.
    static PAUSE: RefCell<Option<Pause>> = const { RefCell::new(None) };
}

/// Stops a thread before one of its accesses to shared words, until it is released.
///
/// With one pause for each access in turn, a test can inspect the shared state between any two accesses of a
/// piece of code:
///
/// ```
/// use weft_htm::interleave::Pause;
/// use weft_htm::word::{Ordering, Word};
///
/// let words = [Word::new(0), Word::new(0)];
/// let mut seen = Vec::new();
/// for access in 0.. {
///     let pause = Pause::before(access);
///     words.iter().for_each(|word| word.store(0, Ordering::Release));
///     let was_paused = std::thread::scope(|scope| {
///         scope.spawn(|| pause.run(|| words.iter().for_each(|word| word.store(1, Ordering::Release))));
///         let was_paused = pause.until_paused();
///         seen.push(words.each_ref().map(|word| word.load(Ordering::Acquire)));
///         pause.release();
///         was_paused
///     });
///     if !was_paused {
///         break;
///     }
/// }
/// assert_eq!(seen, [[0, 0], [1, 0], [1, 1]]);
/// ```
#[derive(Clone)]
pub struct Pause(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// How many accesses remain before the pause.
    left: u64,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    Paused,
    /// The body has ended, or was released.
    Released,
}

impl fmt::Debug for Pause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pause").finish_non_exhaustive()
    }
}

impl Pause {
    /// Makes a pause that stops a thread before the given access of the body that it [runs](Pause::run). The
    /// first access is 0.
    pub fn before(access: u64) -> Pause {
        let state = Mutex::new(State { left: access, stage: Stage::Running });
        Pause(Arc::new(Shared { state, changed: Condvar::new() }))
    }

    /// Runs `body` on this thread, which stops at the access. If `body` makes fewer accesses, it does not stop.
    pub fn run<R>(&self, body: impl FnOnce() -> R) -> R {
        /// Ends the counting, also after a panic.
        struct Counting(Pause);
        impl Drop for Counting {
            fn drop(&mut self) {
                PAUSE.with(|pause| *pause.borrow_mut() = None);
                self.0.release();
            }
        }

        let _watch = Watch::begin();
        let _counting = Counting(self.clone());
        PAUSE.with(|pause| *pause.borrow_mut() = Some(self.clone()));
        body()
    }

    /// Waits until the thread has stopped or its body has ended. Returns `true` if it has stopped.
    pub fn until_paused(&self) -> bool {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.stage == Stage::Running {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.stage == Stage::Paused
    }

    /// Lets the thread go on.
    pub fn release(&self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).stage = Stage::Released;
        self.0.changed.notify_all();
    }

    /// Counts an access of the thread that runs under this pause, and stops the thread if it is the one.
    fn point(&self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.left.checked_sub(1) {
            Some(left) => state.left = left,
            None if state.stage == Stage::Running => {
                state.stage = Stage::Paused;
                self.0.changed.notify_all();
                while state.stage == Stage::Paused {
                    state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
            None => {}
        }
    }
}

/// Counts an access of this thread, if it runs under a pause.
pub(super) fn point() {
    // An error means that the thread is about to end.
    let pause = PAUSE.try_with(|pause| pause.borrow().clone());
    if let Ok(Some(pause)) = pause {
        pause.point();
    }
}
