//! Random numbers for the workloads: uniform ones, and the non-uniform ones of TPC-C and TATP.

use fastrand::Rng;

/// A source of random numbers, and of the text that a workload derives from them.
#[derive(Clone, Debug)]
pub struct Random(pub(crate) Rng);

impl Random {
    /// Creates the source for one purpose. `stream` distinguishes sources with the same seed.
    pub fn new(seed: u64, stream: u64) -> Random {
        // For similar seeds, the generator's first outputs are similar: scatter the seeds.
        let mut state = seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Random(Rng::with_seed(state ^ (state >> 31)))
    }

    /// Returns a uniform number from `low` to `high`, both included: `random(low .. high)` of the specification.
    #[inline]
    pub fn within(&mut self, low: u32, high: u32) -> u32 {
        self.0.u32(low..=high)
    }

    /// Returns a uniform number as a byte, both ends included.
    #[inline]
    pub fn within_u8(&mut self, low: u8, high: u8) -> u8 {
        self.within(low.into(), high.into()) as u8
    }

    /// Returns a uniform `i64`, such as cents, both ends included.
    #[inline]
    pub fn within_i64(&mut self, low: i64, high: i64) -> i64 {
        self.0.i64(low..=high)
    }

    /// Returns true in `percent` of all calls.
    #[inline]
    pub fn chance(&mut self, percent: u32) -> bool {
        self.within(1, 100) <= percent
    }

    /// Returns a number from `x` to `y`, some far more often than others: `((random(0 .. a) | random(x .. y)) + c)
    /// % (y - x + 1) + x`. This is `NURand` of TPC-C's clause 2.1.6. TATP has the same without `c`.
    #[inline]
    pub(crate) fn nurand(&mut self, a: u32, c: u32, x: u32, y: u32) -> u32 {
        (((self.within(0, a) | self.within(x, y)) + c) % (y - x + 1)) + x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares draws with a count of every pair of the definition, for a small range.
    #[test]
    fn nurand_has_the_distribution_of_its_definition() {
        const SEED: u64 = 17;
        let (a, c, x, y) = (7, 5, 3, 12);
        let mut expected = [0_u32; 13];
        for left in 0..=a {
            for right in x..=y {
                expected[((((left | right) + c) % (y - x + 1)) + x) as usize] += 1;
            }
        }
        let pairs: u32 = expected.iter().sum();
        let mut random = Random::new(SEED, 1);
        let mut drawn = [0_u32; 13];
        const DRAWS: u32 = 800_000;
        for _ in 0..DRAWS {
            drawn[random.nurand(a, c, x, y) as usize] += 1;
        }
        for (value, (&drawn, &expected)) in drawn.iter().zip(&expected).enumerate() {
            let share = f64::from(drawn) / f64::from(DRAWS);
            let expected = f64::from(expected) / f64::from(pairs);
            assert!((share - expected).abs() < 0.003, "seed {SEED}: {value}: {share} {expected}");
        }
    }

    #[test]
    fn sources_of_one_seed_differ_by_stream_and_repeat() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            std::array::from_fn::<u32, 8, _>(|_| random.within(0, u32::MAX))
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }
}
