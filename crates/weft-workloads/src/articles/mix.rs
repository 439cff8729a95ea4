//! The four transactions, and their weights.

use crate::mix::Transactions;

/// The four transactions, in the benchmark's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionType {
    /// `GetArticle`.
    GetArticle,
    /// `GetComments`.
    GetComments,
    /// `AddComment`.
    AddComment,
    /// `UpdateUserInfo`.
    UpdateUser,
}

impl TransactionType {
    /// Every type, in order.
    pub const ALL: [TransactionType; 4] =
        [Self::GetArticle, Self::GetComments, Self::AddComment, Self::UpdateUser];

    /// The names in results and in [`Mix`]es, in the same order.
    pub const NAMES: [&'static str; 4] = ["getarticle", "getcomments", "addcomment", "updateuser"];
}

impl Transactions<4> for TransactionType {
    const BENCHMARK: &'static str = "Articles";
    const ALL: [Self; 4] = TransactionType::ALL;
    const NAMES: [&'static str; 4] = TransactionType::NAMES;
    const STANDARD: [u32; 4] = [35, 35, 20, 10];

    fn position(self) -> usize {
        self as usize
    }
}

/// The weights of the transactions.
pub type Mix = crate::mix::Mix<TransactionType, 4>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_gives_the_mix_that_is_displayed() {
        for text in TransactionType::NAMES.into_iter().chain(["standard", "1,0,2,3"]) {
            assert_eq!(text.parse::<Mix>().unwrap().to_string(), text);
        }
        assert_eq!("35,35,20,10".parse(), Ok(Mix::STANDARD));
        let message = "neworder".parse::<Mix>().unwrap_err().to_string();
        for expected in ["`neworder`", "Articles", "getarticle", "50,0,0,50"] {
            assert!(message.contains(expected), "{message}");
        }
    }
}
