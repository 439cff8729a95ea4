//! The gate between procedures in pieces and everything that the analysis does not know of.
//!
//! A procedure's pieces are beside those of registered procedures in order, and of these alone. A closure, a
//! procedure that is not registered, or a snapshot could see a transaction by halves. So
//!
//! - those, the *strangers*, wait when they begin until no procedure is between two pieces; and
//! - a procedure that begins while there are strangers does not wait, but runs as one piece. One piece beside
//!   others is as good as several: what is merged has no SC-cycle that was not there before.
//!
//! ```text
//!   procedure in pieces                         stranger
//!     begin: word := odd                          strangers += 1
//!     strangers == 0, or else word := even        wait until no word is odd that was odd just now
//!     its pieces                                  reads and writes
//!     end: word := even                           strangers -= 1
//! ```
//!
//! The first two lines are sequentially consistent, so that one of the two sees the other. Whoever is seen to
//! have ended has done so with all that it did. Hence each stranger has, in time, each procedure in pieces
//! either wholly before or wholly behind it. On a cycle of transactions, each of which comes before the next
//! by what two of their pieces do, there is then no stranger: from behind it no way leads to before it. And
//! those without strangers are what the analysis has excluded.

use weft_htm::word::{Ordering, Word};

use crate::sync::clock::Commits;

/// See the [module](self).
#[derive(Debug)]
pub struct Gate {
    strangers: Strangers,
    /// Which workers are in a procedure that runs in pieces.
    in_pieces: Commits,
    /// Whether strangers pass at any time, which is wrong.
    #[cfg(feature = "canary")]
    is_open: bool,
}

/// How many there are, on a cache line of its own.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Strangers(Word);

impl Gate {
    /// For up to `workers_max` workers.
    pub fn new(workers_max: usize) -> Gate {
        Gate {
            strangers: Strangers::default(),
            in_pieces: Commits::new(workers_max),
            #[cfg(feature = "canary")]
            is_open: false,
        }
    }

    /// Lets strangers pass at any time.
    #[cfg(feature = "canary")]
    pub fn leave_open(&mut self) {
        self.is_open = true;
    }

    /// Begins a procedure in pieces, of the worker in `slot`; false if it has to run as one.
    #[inline(always)]
    pub fn begin_pieces(&self, slot: usize) -> bool {
        self.in_pieces.begin(slot);
        let is_alone = self.strangers.0.load(Ordering::SeqCst) == 0;
        if !is_alone {
            self.in_pieces.end(slot);
        }
        is_alone
    }

    /// Ends it.
    #[inline(always)]
    pub fn end_pieces(&self, slot: usize) {
        self.in_pieces.end(slot);
    }

    /// Whether the worker in `slot`, which is the caller's, is in a procedure in pieces.
    pub fn is_in_pieces(&self, slot: usize) -> bool {
        self.in_pieces.is_begun(slot)
    }

    /// Lets a stranger in, when the procedures have ended that run in pieces. `slots_used` says how many slots
    /// have, or had, workers; it is asked when none begins in pieces any more, so that there is none in a later
    /// slot. A procedure may take long between two pieces, so an error of `keep_waiting` ends the wait; then the
    /// stranger has left.
    #[inline]
    pub fn enter<E>(
        &self,
        slots_used: impl FnOnce() -> usize,
        keep_waiting: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        #[cfg(feature = "canary")]
        if self.is_open {
            return Ok(());
        }
        self.strangers.0.fetch_add(1, Ordering::SeqCst);
        self.in_pieces.wait_while(slots_used(), keep_waiting).inspect_err(|_| self.leave())
    }

    /// The stranger has ended.
    #[inline]
    pub fn leave(&self) {
        #[cfg(feature = "canary")]
        if self.is_open {
            return;
        }
        self.strangers.0.fetch_add(1_u64.wrapping_neg(), Ordering::SeqCst);
    }
}

/// A stranger that leaves when this is dropped.
pub struct Stranger<'g>(&'g Gate);

impl<'g> Stranger<'g> {
    /// As [`Gate::enter`].
    pub fn enter<E>(
        gate: &'g Gate,
        slots_used: impl FnOnce() -> usize,
        keep_waiting: impl Fn() -> Result<(), E>,
    ) -> Result<Self, E> {
        gate.enter(slots_used, keep_waiting).map(|()| Stranger(gate))
    }
}

impl Drop for Stranger<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// A stranger sees both of two pieces, or neither.
    #[test]
    fn loom_gate_a_stranger_sees_no_procedure_by_halves() {
        loom::model(|| procedures_beside_a_stranger(1));
    }

    /// The worker begins a second procedure, and the stranger may see that one's beginning instead of the
    /// first one's end.
    #[test]
    fn loom_gate_a_stranger_sees_no_procedure_by_halves_when_another_follows() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| procedures_beside_a_stranger(2));
    }

    fn procedures_beside_a_stranger(procedures: u64) {
        let gate = Arc::new(Gate::new(1));
        let rows = Arc::new([Word::new(0), Word::new(0)]);
        let worker = {
            let (gate, rows) = (gate.clone(), rows.clone());
            thread::spawn(move || {
                for procedure in 1..=procedures {
                    if gate.begin_pieces(0) {
                        rows.iter().for_each(|row| row.store(procedure, Ordering::Relaxed));
                        gate.end_pieces(0);
                    }
                }
            })
        };
        let stranger = Stranger::enter(&gate, || 1, || Ok::<(), ()>(())).unwrap();
        let seen = [0, 1].map(|row: usize| rows[row].load(Ordering::Relaxed));
        drop(stranger);
        assert_eq!(seen[0], seen[1]);
        worker.join().unwrap();
    }
}
