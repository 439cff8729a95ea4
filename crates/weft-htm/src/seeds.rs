//! Random seeds for tests of interleavings, on any machine: new ones each time, or the one that failed.

use std::hash::{BuildHasher, RandomState};
use std::thread::panicking;

/// The environment variable from which [`for_each_seed`] takes the one seed to repeat.
pub const SEED_VARIABLE: &str = "WEFT_SEED";

/// Calls `test` with `seeds` seeds, new ones each time, or with the one seed in the environment variable
/// [`SEED_VARIABLE`]. A panic in `test` prints the seed.
///
/// # Panics
///
/// If `test` panics, or if the variable does not hold a number.
pub fn for_each_seed(seeds: u64, mut test: impl FnMut(u64)) {
    /// Prints the seed if it is dropped by a panic.
    struct Seed(u64);
    impl Drop for Seed {
        fn drop(&mut self) {
            if panicking() {
                eprintln!("{SEED_VARIABLE}={} repeats this", self.0);
            }
        }
    }

    let (first, seeds) = match std::env::var(SEED_VARIABLE) {
        Ok(seed) => (seed.parse().expect("WEFT_SEED is a number"), 1),
        Err(_) => (RandomState::new().hash_one(()), seeds),
    };
    for offset in 0..seeds {
        let seed = Seed(first.wrapping_add(offset));
        test(seed.0);
    }
}
