//! Rows by popularity: the k-th most popular row is drawn in proportion to 1 / k^0.99, as in YCSB, or with another
//! exponent.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::Distribution;

/// Draws keys that are ranks, quickly enough to do it while the clock runs: the most popular row has the key 0.
pub struct Ranks {
    random: SmallRng,
    law: Law,
}

/// How ranks are drawn.
enum Law {
    /// The generator of YCSB and of CCBench, which needs an exponent below 1. It computes one power for each rank.
    Gray(Gray),
    /// By rejection, with any exponent. It computes three powers for each rank.
    Rejection(rand_distr::Zipf<f64>),
}

impl Ranks {
    /// Creates the ranks that a thread draws, of this number of rows.
    ///
    /// # Panics
    /// There are no rows, or the exponent is negative.
    pub fn new(thread: usize, rows: u64, exponent: f64) -> Self {
        let law = if exponent < 1.0 {
            Law::Gray(Gray::new(rows, exponent))
        } else {
            let law = rand_distr::Zipf::new(rows as f64, exponent);
            Law::Rejection(law.expect("rows, and an exponent"))
        };
        Ranks { random: SmallRng::seed_from_u64(0x5EED + thread as u64), law }
    }

    /// Draws the key of a row.
    #[inline]
    pub fn draw(&mut self) -> u32 {
        match &self.law {
            Law::Gray(law) => law.rank(self.random.random()) as u32,
            Law::Rejection(law) => law.sample(&mut self.random) as u32 - 1,
        }
    }
}

/// Zipf's law after Gray et al., *Quickly Generating Billion-Record Synthetic Databases* (SIGMOD 1994): exact for the
/// two most popular ranks, and a continuous approximation for the others.
struct Gray {
    rows: f64,
    /// The sum of all weights, where the weight of the rank `k`, counted from 1, is `1 / k^exponent`.
    total: f64,
    /// The weights of the two most popular ranks together.
    first_two: f64,
    alpha: f64,
    eta: f64,
}

impl Gray {
    fn new(rows: u64, exponent: f64) -> Self {
        assert!(rows > 2 && (0.0..1.0).contains(&exponent), "{rows} rows, exponent {exponent}");
        let total: f64 = (1..=rows).map(|rank| (rank as f64).powf(-exponent)).sum();
        let first_two = 1.0 + 0.5_f64.powf(exponent);
        let rows = rows as f64;
        let eta = (1.0 - (2.0 / rows).powf(1.0 - exponent)) / (1.0 - first_two / total);
        Gray { rows, total, first_two, alpha: 1.0 / (1.0 - exponent), eta }
    }

    /// Returns the rank, counted from 0, for a number drawn from `0.0..1.0`.
    #[inline]
    fn rank(&self, drawn: f64) -> u64 {
        let weight = drawn * self.total;
        if weight < 1.0 {
            0
        } else if weight < self.first_two {
            1
        } else {
            let rank = self.rows * (self.eta * drawn - self.eta + 1.0).powf(self.alpha);
            (rank as u64).min(self.rows as u64 - 1)
        }
    }
}

const EXPONENT: f64 = 0.99;

/// Draws rows. Popular rows are spread over all keys.
pub struct Zipf {
    /// For each rank, the probability that the drawn rank is not greater.
    cumulative: Vec<f64>,
    /// A number without a common factor with the number of rows: multiplying by it spreads the ranks.
    factor: u64,
}

impl Zipf {
    /// Creates a distribution over this number of rows.
    ///
    /// # Panics
    /// There are no rows, or more than 2^32.
    pub fn new(rows: u64) -> Self {
        assert!((1..=1 << 32).contains(&rows), "{rows} rows");
        let weights = (1..=rows).map(|rank| (rank as f64).powf(-EXPONENT));
        let total: f64 = weights.clone().sum();
        let cumulative = weights.scan(0.0, |sum, weight| {
            *sum += weight / total;
            Some(*sum)
        });
        let is_coprime = |factor: &u64| gcd(*factor, rows) == 1;
        let factor = (rows * 5 / 8..).find(is_coprime).expect("some number is coprime");
        Zipf { cumulative: cumulative.collect(), factor }
    }

    /// Draws the key of a row.
    pub fn draw(&self, random: &mut fastrand::Rng) -> u32 {
        let drawn = random.f64();
        let rank = self.cumulative.partition_point(|probability| *probability <= drawn);
        self.key(rank.min(self.cumulative.len() - 1))
    }

    /// Returns the key of the row with this rank. The most popular row has rank 0.
    fn key(&self, rank: usize) -> u32 {
        (rank as u64 * self.factor % self.cumulative.len() as u64) as u32
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_a_key_of_its_own() {
        for rows in [1, 2, 10, 1_000, 1_024] {
            let zipf = Zipf::new(rows);
            let mut keys: Vec<u32> = (0..rows as usize).map(|rank| zipf.key(rank)).collect();
            keys.sort_unstable();
            assert!(keys.iter().copied().eq(0..rows as u32), "{rows} rows");
        }
    }

    #[test]
    fn ranks_follow_the_law() {
        for exponent in [0.99, 1.4] {
            let mut ranks = Ranks::new(0, 1_000, exponent);
            let mut counts = vec![0_u32; 1_000];
            (0..100_000).for_each(|_| counts[ranks.draw() as usize] += 1);
            for rank in [2_u32, 10] {
                let ratio = f64::from(counts[0]) / f64::from(counts[rank as usize - 1]);
                let expected = f64::from(rank).powf(exponent);
                assert!(
                    (0.8..1.25).contains(&(ratio / expected)),
                    "{exponent}: {ratio}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn popularity_follows_the_law() {
        let (zipf, mut random) = (Zipf::new(1_000), fastrand::Rng::with_seed(1));
        let mut counts = vec![0_u32; 1_000];
        for _ in 0..100_000 {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        let count = |rank| f64::from(counts[zipf.key(rank) as usize]);
        assert!((1.8..2.2).contains(&(count(0) / count(1))), "{} and {}", count(0), count(1));
        assert!((8.0..12.0).contains(&(count(0) / count(9))), "{} and {}", count(0), count(9));
    }
}
