//! The mix of a benchmark's transactions: each is drawn independently, by weight.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use crate::random::Random;

/// The `N` transaction types of a benchmark.
pub trait Transactions<const N: usize>: Copy + PartialEq + fmt::Debug + 'static {
    /// The benchmark's name in messages.
    const BENCHMARK: &'static str;

    /// Every type, in order.
    const ALL: [Self; N];

    /// Their names, in the same order.
    const NAMES: [&'static str; N];

    /// Their weights in the standard mix, in the same order.
    const STANDARD: [u32; N];

    /// Returns the type's position in these lists.
    fn position(self) -> usize;
}

/// The weights by which transactions are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix<T, const N: usize> {
    weights: [u32; N],
    total: u32,
    types: PhantomData<T>,
}

impl<T: Transactions<N>, const N: usize> Mix<T, N> {
    /// The benchmark's own mix.
    pub const STANDARD: Self = Mix::new(T::STANDARD, sum(T::STANDARD));

    const fn new(weights: [u32; N], total: u32) -> Self {
        Mix { weights, total, types: PhantomData }
    }

    /// Returns a mix of only one transaction type.
    pub fn only(transaction: T) -> Self {
        let mut weights = [0; N];
        weights[transaction.position()] = 1;
        Mix::new(weights, 1)
    }

    /// Returns a mix with these weights, in the order of [`Transactions::ALL`].
    ///
    /// # Errors
    /// All weights are zero, or their sum is too large.
    pub fn weighted(weights: [u32; N]) -> Result<Self, MixError> {
        let total = weights.iter().try_fold(0_u32, |sum, &weight| sum.checked_add(weight));
        match total {
            Some(total) if total > 0 => Ok(Mix::new(weights, total)),
            _ => Err(MixError::new::<T, N>(format!("{weights:?}"))),
        }
    }

    /// Returns the weights, in the order of [`Transactions::ALL`].
    pub const fn weights(&self) -> [u32; N] {
        self.weights
    }

    /// Draws the next transaction.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Random) -> T {
        let mut card = random.within(0, self.total - 1);
        for (transaction, &weight) in T::ALL.into_iter().zip(&self.weights) {
            if card < weight {
                return transaction;
            }
            card -= weight;
        }
        unreachable!("a card below the sum of the weights belongs to one of them")
    }
}

const fn sum<const N: usize>(weights: [u32; N]) -> u32 {
    let (mut sum, mut position) = (0, 0);
    while position < N {
        sum += weights[position];
        position += 1;
    }
    sum
}

impl<T: Transactions<N>, const N: usize> Default for Mix<T, N> {
    fn default() -> Self {
        Mix::STANDARD
    }
}

impl<T: Transactions<N>, const N: usize> fmt::Display for Mix<T, N> {
    /// Writes the mix in the form that [`FromStr`] reads.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Mix::STANDARD {
            return formatter.write_str("standard");
        }
        if let Some(only) = T::ALL.into_iter().find(|&t| *self == Mix::only(t)) {
            return formatter.write_str(T::NAMES[only.position()]);
        }
        formatter.write_str(&in_order(self.weights))
    }
}

/// Formats the weights as text.
fn in_order<const N: usize>(weights: [u32; N]) -> String {
    weights.map(|weight| weight.to_string()).join(",")
}

/// The error for text or weights that are not a [`Mix`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MixError(String);

impl MixError {
    fn new<T: Transactions<N>, const N: usize>(text: String) -> Self {
        let mut example = [0; N];
        (example[0], example[N - 1]) = (50, 50);
        MixError(format!(
            "`{text}` is not a mix of {} transactions; use `standard` ({}), one of `{}`, or {N} \
             weights that are not all 0, in this order, such as `{}`",
            T::BENCHMARK,
            in_order(T::STANDARD),
            T::NAMES.join("`, `"),
            in_order(example),
        ))
    }
}

impl fmt::Display for MixError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for MixError {}

impl<T: Transactions<N>, const N: usize> FromStr for Mix<T, N> {
    type Err = MixError;

    /// Parses `standard`, the name of a transaction, or `N` weights separated by commas.
    fn from_str(text: &str) -> Result<Self, MixError> {
        if text == "standard" {
            return Ok(Mix::STANDARD);
        }
        if let Some(position) = T::NAMES.iter().position(|&name| name == text) {
            return Ok(Mix::only(T::ALL[position]));
        }
        let error = || MixError::new::<T, N>(text.to_owned());
        let mut weights = [0; N];
        let mut parts = text.split(',');
        for weight in &mut weights {
            let part = parts.next().ok_or_else(error)?;
            *weight = part.trim().parse().map_err(|_| error())?;
        }
        if parts.next().is_some() {
            return Err(error());
        }
        Mix::weighted(weights).map_err(|_| error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc;

    #[test]
    fn draws_follow_the_weights() {
        const SEED: u64 = 5;
        const DRAWS: u32 = 200_000;
        let mut random = Random::new(SEED, 0);
        for mix in [tpcc::Mix::STANDARD, Mix::weighted([1, 0, 2, 0, 1]).unwrap()] {
            let mut drawn = [0_u32; 5];
            for _ in 0..DRAWS {
                drawn[mix.draw(&mut random) as usize] += 1;
            }
            for (drawn, weight) in drawn.into_iter().zip(mix.weights()) {
                let share = f64::from(drawn) / f64::from(DRAWS);
                let expected = f64::from(weight) / f64::from(mix.total);
                assert!((share - expected).abs() < 0.005, "seed {SEED}: {mix}: {share} {expected}");
                assert_eq!(drawn == 0, weight == 0, "seed {SEED}: {mix}");
            }
        }
    }
}
