//! The popularity of records: Zipf's law.
//!
//! Of `n` records, the one of rank `k`, from 1, is drawn with a probability proportional to `1 / k^theta`. With a
//! `theta` of 0 all are equally likely. At 0.99, YCSB's usual value, the first of a million gets 6.5 % of all
//! draws. At 2 it gets 61 %.
//!
//! The method is rejection-inversion: W. Hörmann, G. Derflinger, *Rejection-Inversion to Generate Variates from
//! Monotone Discrete Distributions*, ACM TOMACS 6 (1996). It is exact for every `theta` of at least 0, and needs no
//! tables. (YCSB's own generator needs a `theta` below 1 and is an approximation.) The curve `h(x) = x^-theta`,
//! moved to the left by a half, covers the histogram of the ranks. A draw inverts the integral `H` of `h`, rounds
//! to the nearest rank, and rejects the small part between the curve and the histogram.

use fastrand::Rng;

/// A Zipf distribution.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    ranks: f64,
    theta: f64,
    /// `H(3/2) - h(1)` and `H(n + 1/2)`, the bounds of the areas that are inverted. The lower bound is below the
    /// area at the first bar's right end, by the whole area of the bar.
    integral_first: f64,
    integral_last: f64,
    /// If a rank exceeds its `x` by at most this, it is accepted without further computation.
    distance_accepted: f64,
}

impl Zipf {
    /// Creates the distribution of the ranks from 0 to `ranks - 1`. Rank `k` has the weight `1 / (k + 1)^theta`.
    ///
    /// # Panics
    /// There are no ranks, or `theta` is negative, infinite or not a number.
    pub fn new(ranks: u64, theta: f64) -> Zipf {
        assert!(ranks > 0, "a distribution has at least one outcome");
        assert!(theta >= 0.0 && theta.is_finite(), "theta is {theta}");
        let ranks = ranks as f64;
        let second = integral(theta, 2.5) - density(theta, 2.0);
        Zipf {
            ranks,
            theta,
            integral_first: integral(theta, 1.5) - 1.0,
            integral_last: integral(theta, ranks + 0.5),
            distance_accepted: 2.0 - integral_inverse(theta, second),
        }
    }

    /// Draws a rank, counted from 0.
    #[inline]
    pub fn draw(&self, random: &mut Rng) -> u64 {
        if self.theta == 0.0 {
            return random.u64(0..self.ranks as u64);
        }
        loop {
            let area =
                self.integral_last + random.f64() * (self.integral_first - self.integral_last);
            let x = integral_inverse(self.theta, area);
            // Rounding errors may lead slightly out of the range.
            let rank = (x + 0.5).floor().clamp(1.0, self.ranks);
            if rank - x <= self.distance_accepted
                || area >= integral(self.theta, rank + 0.5) - density(self.theta, rank)
            {
                return rank as u64 - 1;
            }
        }
    }
}

/// Returns `h(x)`, which is `x^-theta`.
fn density(theta: f64, x: f64) -> f64 {
    (-theta * x.ln()).exp()
}

/// Returns `H(x)`, the integral of `h` from 1 to `x`. It is `(x^(1 - theta) - 1) / (1 - theta)`, and `ln x` at a
/// `theta` of 1. The formula stays exact near 1.
fn integral(theta: f64, x: f64) -> f64 {
    let log = x.ln();
    let exponent = (1.0 - theta) * log;
    log * if exponent.abs() > 1e-8 { exponent.exp_m1() / exponent } else { 1.0 + exponent / 2.0 }
}

/// Returns the inverse of `H`.
fn integral_inverse(theta: f64, area: f64) -> f64 {
    // A rounding error may lead out of the logarithm's domain. Then `x` is greater than every rank.
    let product = (area * (1.0 - theta)).max(-1.0);
    let ratio = if product.abs() > 1e-8 { product.ln_1p() / product } else { 1.0 - product / 2.0 };
    (ratio * area).exp()
}

/// A one-to-one map of the ranks to the numbers below `n` that puts popular records far from each other. Otherwise
/// they would be side by side in a few leaves of a tree.
///
/// Rank `k` becomes `k * step mod n`. The step has no common divisor with `n`, so no two ranks are mapped to the
/// same number. The step is close to `n` divided by the golden ratio. This spreads the first `m` ranks, for every
/// `m` up to about the square root of `n`, as evenly as possible: the distance between any two of them is at least
/// about `n / 2.6 m`.
#[derive(Clone, Copy, Debug)]
pub struct Scatter {
    records: u64,
    step: u64,
}

impl Scatter {
    /// Creates the map for `records` records.
    pub fn new(records: u64) -> Scatter {
        let golden = (records as f64 * 0.618_033_988_749_895) as u64;
        let step = (golden.max(1)..).find(|&step| divisor(step, records) == 1);
        Scatter { records, step: step.expect("there are primes above every number") }
    }

    /// Returns the record of a rank.
    #[inline]
    pub fn record(&self, rank: u64) -> u64 {
        (u128::from(rank) * u128::from(self.step) % u128::from(self.records)) as u64
    }
}

/// Returns the greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 1_000_000;

    /// Returns Pearson's statistic of draws, and the number of bins. Each bin is expected to hold at least 100
    /// draws.
    fn chi_squared(ranks: u64, theta: f64, seed: u64) -> (f64, usize) {
        let zipf = Zipf::new(ranks, theta);
        let mut random = Rng::with_seed(seed);
        let mut observed = vec![0_u64; ranks as usize];
        (0..DRAWS).for_each(|_| observed[zipf.draw(&mut random) as usize] += 1);
        let weights: Vec<f64> = (1..=ranks).map(|rank| (rank as f64).powf(-theta)).collect();
        let total: f64 = weights.iter().rev().sum();
        let (mut statistic, mut bins) = (0.0, 0);
        let (mut bin_expected, mut bin_observed) = (0.0, 0.0);
        for (rank, (weight, count)) in weights.iter().zip(observed).enumerate() {
            bin_expected += weight / total * DRAWS as f64;
            bin_observed += count as f64;
            if bin_expected >= 100.0 || rank as u64 == ranks - 1 {
                statistic += (bin_observed - bin_expected).powi(2) / bin_expected.max(1.0);
                bins += 1;
                (bin_expected, bin_observed) = (0.0, 0.0);
            }
        }
        (statistic, bins)
    }

    #[test]
    fn draws_follow_the_law_for_every_theta() {
        for ranks in [1, 2, 7, 1_000, 1_000_000] {
            for (seed, theta) in
                [0.0, 0.2, 0.5, 0.99, 1.0, 1.000_000_1, 1.2, 2.0, 5.0].into_iter().enumerate()
            {
                let (statistic, bins) = chi_squared(ranks, theta, seed as u64);
                // With d degrees of freedom, the mean is d and the variance 2 d. Allow five standard deviations,
                // and 20 more for few degrees, whose distribution has a longer tail.
                let freedom = (bins - 1) as f64;
                let bound = freedom + 5.0 * (2.0 * freedom).sqrt() + 20.0;
                assert!(
                    statistic < bound,
                    "{ranks} ranks, theta {theta}, seed {seed}: {statistic} in {bins} bins"
                );
            }
        }
    }

    /// Checks that the test above distinguishes similar laws.
    #[test]
    fn a_slightly_wrong_law_is_noticed() {
        let (zipf, ranks) = (Zipf::new(1_000, 0.98), 1_000);
        let mut random = Rng::with_seed(1);
        let first = (0..DRAWS).filter(|_| zipf.draw(&mut random) == 0).count() as f64;
        let total: f64 = (1..=ranks).map(|rank| f64::from(rank).powf(-0.99)).sum();
        let expected = DRAWS as f64 / total;
        assert!((first - expected).powi(2) / expected > 50.0, "{first} and {expected}");
    }

    #[test]
    fn scattering_is_one_to_one_and_parts_neighbours() {
        for records in (1..200).chain([1_000, 9_973, 65_536, 100_000]) {
            let scatter = Scatter::new(records);
            let mut found: Vec<u64> = (0..records).map(|rank| scatter.record(rank)).collect();
            for popular in [10, 100] {
                let mut first: Vec<u64> = found.iter().copied().take(popular).collect();
                first.sort_unstable();
                let nearest = first.windows(2).map(|pair| pair[1] - pair[0]).min();
                let holds_for = (popular * popular) as u64;
                assert!(
                    records < holds_for || nearest >= Some(records / (8 * popular as u64)),
                    "{records} records, the first {popular}: {nearest:?}"
                );
            }
            found.sort_unstable();
            assert!(found.iter().copied().eq(0..records), "{records} records");
        }
        // Without the wider product, this would overflow 64 bits.
        assert!(Scatter::new(1 << 40).record((1 << 40) - 1) < 1 << 40);
    }
}
