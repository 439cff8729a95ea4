//! The frequencies of the five transactions (clauses 5.2.3 and 5.2.4).
//!
//! Each draw is independent, by weight. This is one of the two ways of clause 5.2.4; the other is to deal from a
//! shuffled deck of cards. The standard mix is that of the papers. It has the largest share of New-Order that the
//! specification's minimum shares of the other four allow.

use crate::mix::Transactions;

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

    /// The names in results and in [`Mix`]es, in the same order.
    pub const NAMES: [&'static str; 5] =
        ["neworder", "payment", "orderstatus", "delivery", "stocklevel"];
}

impl Transactions<5> for TransactionType {
    const BENCHMARK: &'static str = "TPC-C";
    const ALL: [Self; 5] = TransactionType::ALL;
    const NAMES: [&'static str; 5] = TransactionType::NAMES;
    /// 45 % New-Order, 43 % Payment, 4 % of each of the others.
    const STANDARD: [u32; 5] = [45, 43, 4, 4, 4];

    fn position(self) -> usize {
        self as usize
    }
}

/// The weights of the transactions.
pub type Mix = crate::mix::Mix<TransactionType, 5>;

#[cfg(test)]
mod tests {
    use super::*;

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
