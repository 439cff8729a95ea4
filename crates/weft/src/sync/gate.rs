//! The gate: keeps procedures in pieces apart from all transactions that the chopping analysis does not know.
//!
//! The pieces of a procedure may safely run beside those of other registered procedures, and only beside
//! those. A closure, a procedure that is not registered, or a snapshot could see half of a transaction. They
//! are called *outsiders*. So
//!
//! - an outsider waits when it begins, until no procedure is between two pieces; and
//! - a procedure that begins while there are outsiders does not wait, but runs as one piece. To run one
//!   procedure as a single piece beside others in several pieces is safe, too: merging pieces creates no new
//!   SC-cycle.
//!
//! ```text
//!   procedure in pieces                         outsider
//!     begin: word := odd                          outsiders += 1
//!     outsiders == 0, or else word := even        wait until no word is odd that was odd just now
//!     its pieces                                  reads and writes
//!     end: word := even                           outsiders -= 1
//! ```
//!
//! The first two steps on each side are sequentially consistent, so one of the two sees the other. If a
//! outsider sees that a procedure has ended, it also sees everything that the procedure did. Hence each
//! procedure in pieces lies, in time, either entirely before or entirely after each outsider. Now take a
//! cycle of transactions in which each comes before the next because of what two of their pieces do. It
//! contains no outsider: no path leads from what comes after an outsider to what comes before it. And the
//! analysis has excluded cycles without outsiders.

use weft_htm::word::{Ordering, Word};

use crate::sync::clock::ActivityWords;

/// Keeps procedures in pieces and outsiders apart: see the [module](self).
#[derive(Debug)]
pub struct Gate {
    outsiders: OutsiderCount,
    /// Which workers are in a procedure that runs in pieces.
    in_pieces: ActivityWords,
    /// Whether outsiders always pass: a deliberate bug for the canary.
    #[cfg(feature = "canary")]
    is_open: bool,
}

/// The number of outsiders, on a cache line of its own.
#[repr(align(64))]
#[derive(Debug, Default)]
struct OutsiderCount(Word);

impl Gate {
    /// Creates a gate for up to `workers_max` workers.
    pub fn new(workers_max: usize) -> Gate {
        Gate {
            outsiders: OutsiderCount::default(),
            in_pieces: ActivityWords::new(workers_max),
            #[cfg(feature = "canary")]
            is_open: false,
        }
    }

    /// Lets outsiders always pass.
    #[cfg(feature = "canary")]
    pub fn leave_open(&mut self) {
        self.is_open = true;
    }

    /// Begins a procedure in pieces, of the worker in `slot`. Returns false if it must run as one piece.
    #[inline(always)]
    pub fn begin_pieces(&self, slot: usize) -> bool {
        self.in_pieces.begin(slot);
        let is_alone = self.outsiders.0.load(Ordering::SeqCst) == 0;
        if !is_alone {
            self.in_pieces.end(slot);
        }
        is_alone
    }

    /// Ends the procedure in pieces.
    #[inline(always)]
    pub fn end_pieces(&self, slot: usize) {
        self.in_pieces.end(slot);
    }

    /// Returns whether the worker in `slot`, which is the caller's, is in a procedure in pieces.
    pub fn is_in_pieces(&self, slot: usize) -> bool {
        self.in_pieces.is_begun(slot)
    }

    /// Lets an outsider enter, once all procedures that are running in pieces have ended. `slots_used` returns
    /// how many slots have, or had, workers. It is called only when no further procedure can begin in pieces,
    /// so that no such procedure is in a later slot. A procedure may take long between two pieces, so an
    /// error of `keep_waiting` ends the wait. In that case the outsider has already left.
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
        self.outsiders.0.fetch_add(1, Ordering::SeqCst);
        self.in_pieces.wait_while(slots_used(), keep_waiting).inspect_err(|_| self.leave())
    }

    /// Waits until all procedures have ended that are running in pieces now. Others may begin in the meantime.
    /// `slots_used` is as for [`Gate::enter`]: a procedure that begins in a later slot begins after this call.
    ///
    /// # Errors
    /// Those of `keep_waiting`.
    pub fn await_pieces<E>(
        &self,
        slots_used: usize,
        keep_waiting: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        self.in_pieces.wait_while(slots_used, keep_waiting)
    }

    /// Notes that an outsider has ended.
    #[inline]
    pub fn leave(&self) {
        #[cfg(feature = "canary")]
        if self.is_open {
            return;
        }
        self.outsiders.0.fetch_add(1_u64.wrapping_neg(), Ordering::SeqCst);
    }
}

/// An outsider. It leaves when this is dropped.
pub struct Outsider<'g>(&'g Gate);

impl<'g> Outsider<'g> {
    /// Enters the gate: as [`Gate::enter`].
    pub fn enter<E>(
        gate: &'g Gate,
        slots_used: impl FnOnce() -> usize,
        keep_waiting: impl Fn() -> Result<(), E>,
    ) -> Result<Self, E> {
        gate.enter(slots_used, keep_waiting).map(|()| Outsider(gate))
    }
}

impl Drop for Outsider<'_> {
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

    /// An outsider sees both of two pieces, or neither.
    #[test]
    fn loom_gate_an_outsider_sees_no_procedure_by_halves() {
        loom::model(|| procedures_beside_an_outsider(1));
    }

    /// The worker begins a second procedure, and the outsider may see the beginning of the second instead of
    /// the end of the first.
    #[test]
    fn loom_gate_an_outsider_sees_neither_of_two_procedures_by_halves() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| procedures_beside_an_outsider(2));
    }

    fn procedures_beside_an_outsider(procedures: u64) {
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
        let outsider = Outsider::enter(&gate, || 1, || Ok::<(), ()>(())).unwrap();
        let seen = [0, 1].map(|row: usize| rows[row].load(Ordering::Relaxed));
        drop(outsider);
        assert_eq!(seen[0], seen[1]);
        worker.join().unwrap();
    }
}
