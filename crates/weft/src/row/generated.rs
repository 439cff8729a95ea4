//! Keys that the database generates, and the numbers of which it makes them.
//!
//! A table hands out its numbers in blocks: a worker takes a block for itself, and uses it up in its transactions. So
//! the shared word is written once for [`BLOCK`] rows, and workers insert into different parts of the index.

use std::ops::Range;

use weft_htm::word::{Ordering, Word};

use crate::row::encoding::{Key, Newtype};

/// The number of the first key. (Applications often use 0 for no key.)
pub const FIRST_NUMBER: u64 = 1;

/// How many numbers a worker takes at a time.
const BLOCK: u64 = 64;

/// A type of primary keys that the database can generate: `u32`, `u64`, `i32`, `i64`, and, with the cargo feature
/// `uuid`, `Uuid`; also a struct with one field of such a type that derives [`Key`](macro@crate::Key).
///
/// Integers are counted from 1 on. Each `Uuid` is a new one of version 7, which begins with the present time.
#[diagnostic::on_unimplemented(
    message = "keys of type `{Self}` cannot be generated",
    label = "not a type of generated keys",
    note = "generated keys are `u32`, `u64`, `i32`, `i64`, `uuid::Uuid` with weft's feature `uuid`, or a struct with one such field that derives `weft::Key`"
)]
pub trait GeneratedKey: Key {
    /// Returns the number of the key, which is not generated any more once the key was inserted. Keys that are not made
    /// of numbers have the number 0.
    #[doc(hidden)]
    fn number(&self) -> u64;

    /// Generates a key. `draw` returns the next number up to its argument, or `None` if there isn't one.
    #[doc(hidden)]
    fn generate(draw: impl FnOnce(u64) -> Option<u64>) -> Option<Self>;
}

macro_rules! counted_keys {
    ($($integer:ident)*) => {$(
        impl GeneratedKey for $integer {
            #[inline]
            fn number(&self) -> u64 {
                // A negative key is below all that are generated.
                u64::try_from(*self).unwrap_or(0)
            }

            #[inline]
            fn generate(draw: impl FnOnce(u64) -> Option<u64>) -> Option<Self> {
                draw($integer::MAX as u64).map(|number| number as $integer)
            }
        }
    )*};
}

counted_keys!(u32 u64 i32 i64);

impl<K: Newtype<Inner: GeneratedKey>> GeneratedKey for K {
    #[inline]
    fn number(&self) -> u64 {
        self.inner().number()
    }

    #[inline]
    fn generate(draw: impl FnOnce(u64) -> Option<u64>) -> Option<Self> {
        K::Inner::generate(draw).map(K::wrap)
    }
}

#[cfg(feature = "uuid")]
impl GeneratedKey for uuid::Uuid {
    fn number(&self) -> u64 {
        0
    }

    fn generate(_draw: impl FnOnce(u64) -> Option<u64>) -> Option<Self> {
        Some(uuid::Uuid::now_v7())
    }
}

/// The numbers that a worker has taken and not used yet. Two words, so that they go back with a hardware region that is
/// rolled back, on the simulated machine as well.
#[derive(Debug)]
pub struct TakenNumbers {
    next: Word,
    end: Word,
}

impl TakenNumbers {
    /// There aren't any.
    pub fn none() -> Self {
        TakenNumbers { next: Word::new(0), end: Word::new(0) }
    }

    /// Returns the next number, or `None` if all are used.
    #[inline]
    pub fn draw(&self) -> Option<u64> {
        let next = self.next.load(Ordering::Relaxed);
        (next < self.end.load(Ordering::Relaxed)).then(|| {
            self.next.store(next + 1, Ordering::Relaxed);
            next
        })
    }

    /// Takes other numbers.
    pub fn take(&self, numbers: Range<u64>) {
        self.next.store(numbers.start, Ordering::Relaxed);
        self.end.store(numbers.end, Ordering::Relaxed);
    }

    /// Leaves a number out, and those before it.
    #[inline]
    pub fn pass(&self, number: u64) {
        let taken = self.next.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed);
        if taken.contains(&number) {
            self.next.store(number + 1, Ordering::Relaxed);
        }
    }
}

/// The numbers of a table's keys: the first one that was neither handed out nor inserted.
///
/// The accesses are relaxed. That no number is handed out twice rests on the exchange alone. A checkpoint reads the word
/// after it has waited for the commits of which it has the rows, and so sees what their workers had taken.
#[derive(Debug)]
pub struct KeyNumbers(Word);

impl KeyNumbers {
    /// Creates the numbers from `next` on.
    pub fn new(next: u64) -> KeyNumbers {
        KeyNumbers(Word::new(next))
    }

    /// Returns the first number that is still to be handed out.
    pub fn next(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes a block of numbers, none above `last`. Returns `None` if there are no more. (The greatest `u64` is never
    /// handed out.)
    pub fn take_block(&self, last: u64) -> Option<Range<u64>> {
        let mut block = None;
        self.advance(|next| {
            let end = next.saturating_add(BLOCK).min(last.saturating_add(1));
            block = (next < end).then_some(next..end);
            end
        });
        block
    }

    /// Moves past `number`.
    #[inline]
    pub fn pass(&self, number: u64) {
        if number >= self.next() {
            self.advance(|_| number.saturating_add(1));
        }
    }

    /// Moves on to what `target` returns for the present position, unless that is behind it.
    fn advance(&self, mut target: impl FnMut(u64) -> u64) {
        let mut next = self.next();
        loop {
            let advanced = target(next);
            if advanced <= next {
                return;
            }
            match self.0.compare_exchange(next, advanced, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(present) => next = present,
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other_and_what_was_inserted() {
        let numbers = KeyNumbers::new(1);
        assert_eq!(numbers.take_block(u64::MAX), Some(1..65));
        numbers.pass(3);
        assert_eq!(numbers.take_block(100), Some(65..101));
        assert_eq!(numbers.take_block(100), None);
        numbers.pass(1_000);
        assert_eq!((numbers.take_block(1_000), numbers.next()), (None, 1_001));
        assert_eq!(numbers.take_block(u64::MAX), Some(1_001..1_065));
    }

    #[test]
    fn the_last_numbers_are_handed_out_once() {
        let numbers = KeyNumbers::new(1);
        numbers.pass(u64::MAX - 2);
        assert_eq!(numbers.take_block(u64::MAX), Some(u64::MAX - 1..u64::MAX));
        assert_eq!(numbers.take_block(u64::MAX), None);
        numbers.pass(u64::MAX);
        assert_eq!((numbers.take_block(u64::MAX), numbers.next()), (None, u64::MAX));
        let keys = KeyNumbers::new(u64::from(u32::MAX));
        assert_eq!(u32::generate(|last| keys.take_block(last)?.next()), Some(u32::MAX));
        assert_eq!(u32::generate(|last| keys.take_block(last)?.next()), None);
        assert_eq!((-7_i64).number(), 0);
    }

    /// Two threads that take blocks while a third inserts keys get different numbers.
    #[test]
    fn threads_get_different_numbers() {
        let numbers = &KeyNumbers::new(1);
        let mut taken: Vec<u64> = std::thread::scope(|scope| {
            let takers = [(); 2].map(|()| {
                scope.spawn(|| {
                    let blocks = (0..200).flat_map(|_| numbers.take_block(u64::MAX).unwrap());
                    blocks.collect::<Vec<_>>()
                })
            });
            (0..5_000).step_by(7).for_each(|number| numbers.pass(number));
            takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
        });
        let count = taken.len();
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), count);
    }
}
