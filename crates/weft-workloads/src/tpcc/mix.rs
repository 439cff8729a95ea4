//! How often each of the five transactions is drawn (clauses 5.2.3 and 5.2.4).
//!
//! Each draw is independent, by weight: one of the two ways of clause 5.2.4 (the other is to deal
//! from a shuffled deck of cards). The standard mix is that of the papers: as much New-Order as the
//! specification's minimum shares for the other four leave room for.

use std::fmt;
use std::str::FromStr;

use super::random::Random;

/// The five transactions, in the order of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionType {
    /// Clause 2.4.
    NewOrder,
    /// Clause 2.5.
    Payment,
    /// Clause 2.6.
    OrderStatus,
    /// Clause 2.7.
    Delivery,
    /// Clause 2.8.
    StockLevel,
}

impl TransactionType {
    /// Every type, in order.
    pub const ALL: [TransactionType; 5] =
        [Self::NewOrder, Self::Payment, Self::OrderStatus, Self::Delivery, Self::StockLevel];

    /// Their names in results and in [`Mix`]es, in the same order.
    pub const NAMES: [&'static str; 5] =
        ["neworder", "payment", "orderstatus", "delivery", "stocklevel"];

    /// The type's name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// The weights by which transactions are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    weights: [u32; 5],
    total: u32,
}

impl Mix {
    /// 45 % New-Order, 43 % Payment, 4 % of each of the others.
    pub const STANDARD: Mix = Mix { weights: [45, 43, 4, 4, 4], total: 100 };

    /// Only one type of transaction.
    pub const fn only(transaction: TransactionType) -> Mix {
        let mut weights = [0; 5];
        weights[transaction as usize] = 1;
        Mix { weights, total: 1 }
    }

    /// Any weights, in the order of [`TransactionType::ALL`].
    ///
    /// # Errors
    /// All of them are zero, or their sum is too large.
    pub fn weighted(weights: [u32; 5]) -> Result<Mix, MixError> {
        let total = weights.iter().try_fold(0_u32, |sum, &weight| sum.checked_add(weight));
        match total {
            Some(total) if total > 0 => Ok(Mix { weights, total }),
            _ => Err(MixError(format!("{weights:?}"))),
        }
    }

    /// The weights, in the order of [`TransactionType::ALL`].
    pub const fn weights(&self) -> [u32; 5] {
        self.weights
    }

    /// Draws the next transaction.
    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> TransactionType {
        let mut card = random.within(0, self.total - 1);
        for (transaction, &weight) in TransactionType::ALL.into_iter().zip(&self.weights) {
            if card < weight {
                return transaction;
            }
            card -= weight;
        }
        unreachable!("a card below the sum of the weights belongs to one of them")
    }
}

impl Default for Mix {
    fn default() -> Self {
        Mix::STANDARD
    }
}

impl fmt::Display for Mix {
    /// As [`FromStr`] reads it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Mix::STANDARD {
            return formatter.write_str("standard");
        }
        if let Some(only) = TransactionType::ALL.into_iter().find(|&t| *self == Mix::only(t)) {
            return formatter.write_str(only.name());
        }
        let [new_order, payment, order_status, delivery, stock_level] = self.weights;
        write!(formatter, "{new_order},{payment},{order_status},{delivery},{stock_level}")
    }
}

/// Text or weights that are no [`Mix`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MixError(String);

impl fmt::Display for MixError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "`{}` is not a mix of TPC-C transactions; use `standard` (45,43,4,4,4), one of `{}`, \
             or five weights that are not all 0, in this order, such as `50,0,0,0,50`",
            self.0,
            TransactionType::NAMES.join("`, `"),
        )
    }
}

impl std::error::Error for MixError {}

impl FromStr for Mix {
    type Err = MixError;

    /// `standard`, the name of a transaction, or five weights separated by commas.
    fn from_str(text: &str) -> Result<Mix, MixError> {
        if text == "standard" {
            return Ok(Mix::STANDARD);
        }
        if let Some(only) = TransactionType::ALL.into_iter().find(|t| t.name() == text) {
            return Ok(Mix::only(only));
        }
        let error = || MixError(text.to_owned());
        let mut weights = [0; 5];
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

    #[test]
    fn draws_follow_the_weights() {
        const SEED: u64 = 5;
        const DRAWS: u32 = 200_000;
        let mut random = Random::new(SEED, 0);
        for mix in [Mix::STANDARD, Mix::weighted([1, 0, 2, 0, 1]).unwrap()] {
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

    #[test]
    fn text_gives_the_mix_that_is_displayed() {
        for text in [
            "standard",
            "neworder",
            "payment",
            "orderstatus",
            "delivery",
            "stocklevel",
            "1,0,2,0,3",
        ] {
            assert_eq!(text.parse::<Mix>().unwrap().to_string(), text);
        }
        assert_eq!("45, 43, 4, 4, 4".parse(), Ok(Mix::STANDARD));
        assert_eq!("delivery".parse::<Mix>().unwrap().weights(), [0, 0, 0, 1, 0]);
    }

    #[test]
    fn other_text_is_refused_with_what_is_allowed() {
        for text in ["", "all", "1,2,3,4", "1,2,3,4,5,6", "1,2,3,4,-5", "0,0,0,0,0", "NewOrder"] {
            let message = text.parse::<Mix>().unwrap_err().to_string();
            assert!(message.contains(&format!("`{text}`")), "{message}");
            for allowed in ["standard", "neworder", "stocklevel", "50,0,0,0,50"] {
                assert!(message.contains(allowed), "{message}");
            }
        }
        assert!(format!("{0},{0},0,0,0", u32::MAX).parse::<Mix>().is_err());
    }
}
