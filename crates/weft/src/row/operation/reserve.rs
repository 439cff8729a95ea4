//! The reserve of a split column: the room that no worker has for itself yet.

use weft_htm::word::{Ordering, Word};

/// By how much a split column may still move, beyond the shares that workers already have. A worker
/// whose share is too small draws a part of the reserve. So it need not know what others have
/// gathered: all shares and the reserve together are never more than the room that the row had when
/// it was split.
///
/// (A reserve has cache lines of its own: it is written while other workers look for their slices.)
#[derive(Debug)]
#[repr(align(128))]
pub struct Reserve {
    below: Word,
    above: Word,
}

/// A worker draws at least this part of the reserve, so that it seldom has to draw again.
const DRAWN_PART: u64 = 64;

impl Reserve {
    /// Returns the reserve of a column that all workers together may move by this much down, and up.
    pub fn new((below, above): (u64, u64)) -> Reserve {
        Reserve { below: Word::new(below), above: Word::new(above) }
    }

    /// Draws `least` or more of the room below the column, or above it. Returns what was drawn;
    /// `None` if there is less.
    pub fn draw(&self, is_below: bool, least: u64) -> Option<u64> {
        let reserve = if is_below { &self.below } else { &self.above };
        // Relaxed: the word is the only thing that is passed on. It was written before the phase
        // began, which has ordered that before everything that workers do in the phase.
        let mut present = reserve.load(Ordering::Relaxed);
        loop {
            let drawn = least.max(present / DRAWN_PART);
            let rest = present.checked_sub(drawn)?;
            let ordering = (Ordering::Relaxed, Ordering::Relaxed);
            match reserve.compare_exchange(present, rest, ordering.0, ordering.1) {
                Ok(_) => return Some(drawn),
                Err(changed) => present = changed,
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn loom_workers_draw_no_more_than_there_is() {
        loom::model(|| {
            let reserve = Arc::new(Reserve::new((3, 0)));
            let drawn = {
                let reserve = Arc::clone(&reserve);
                loom::thread::spawn(move || {
                    [1, 1].map(|least| reserve.draw(true, least).unwrap_or(0)).iter().sum::<u64>()
                })
            };
            let own = reserve.draw(true, 2).unwrap_or(0);
            let others = drawn.join().unwrap();
            assert!(own + others <= 3, "{own} and {others} of 3");
            // A worker that is refused has found less than it needs, and what is left is still there.
            let rest = reserve.draw(true, 3 - own - others);
            assert_eq!(rest, Some(3 - own - others));
            assert!(own == 2 || others == 2);
        });
    }
}
