//! The interactions of users, their frequencies, and the transactions that they need.

use std::fmt;

use crate::random::Random;

/// The pages that a user of RUBiS can ask for: the 26 interactions, and the home page, where a session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of RUBiS's transition table")]
pub enum Interaction {
    Home,
    Register,
    RegisterUser,
    Browse,
    BrowseCategories,
    SearchItemsInCategory,
    BrowseRegions,
    BrowseCategoriesInRegion,
    SearchItemsInRegion,
    ViewItem,
    ViewUserInfo,
    ViewBidHistory,
    BuyNowAuth,
    BuyNow,
    StoreBuyNow,
    PutBidAuth,
    PutBid,
    StoreBid,
    PutCommentAuth,
    PutComment,
    StoreComment,
    Sell,
    SelectCategoryToSellItem,
    SellItemForm,
    RegisterItem,
    AboutMeAuth,
    AboutMe,
}

/// The database work of an interaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// No work: the page is always the same.
    Nothing,
    /// One transaction.
    One(TransactionType),
    /// The transaction that authenticates the user, and then another one.
    Authenticated(TransactionType),
}

impl Interaction {
    /// Every interaction with its frequency in 10,000 steps of a client in the bidding mix, and its work. The
    /// [module above](super) states the sources. The other 1,459 steps go back to the previous page, or end the
    /// session.
    pub const ALL: [(Interaction, u32, Work); 27] = {
        use Interaction::*;
        use TransactionType as T;
        use Work::{Authenticated, Nothing, One};
        [
            (Home, 184, Nothing),
            (Register, 96, Nothing),
            (RegisterUser, 107, One(T::RegisterUser)),
            (Browse, 765, Nothing),
            (BrowseCategories, 539, One(T::BrowseCategories)),
            (SearchItemsInCategory, 1594, One(T::SearchItemsByCategory)),
            (BrowseRegions, 192, One(T::BrowseRegions)),
            (BrowseCategoriesInRegion, 189, One(T::BrowseCategories)),
            (SearchItemsInRegion, 634, One(T::SearchItemsByRegion)),
            (ViewItem, 1417, One(T::ViewItem)),
            (ViewUserInfo, 248, One(T::ViewUserInfo)),
            (ViewBidHistory, 154, One(T::ViewBidHistory)),
            (BuyNowAuth, 142, Nothing),
            (BuyNow, 116, Authenticated(T::BuyNow)),
            (StoreBuyNow, 110, One(T::StoreBuyNow)),
            (PutBidAuth, 510, Nothing),
            (PutBid, 540, Authenticated(T::PutBid)),
            (StoreBid, 374, One(T::StoreBid)),
            (PutCommentAuth, 0, Nothing),
            (PutComment, 46, Authenticated(T::PutComment)),
            (StoreComment, 45, One(T::StoreComment)),
            (Sell, 53, Nothing),
            (SelectCategoryToSellItem, 52, Authenticated(T::BrowseCategories)),
            (SellItemForm, 51, Nothing),
            (RegisterItem, 53, One(T::StoreItem)),
            (AboutMeAuth, 159, Nothing),
            (AboutMe, 171, Authenticated(T::AboutMe)),
        ]
    };
}

/// The 17 database transactions: first those that only read, then those that write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionType {
    /// Finds a user's identifier, by nickname and password.
    Authenticate,
    /// Reads all categories.
    BrowseCategories,
    /// Reads all regions.
    BrowseRegions,
    /// Reads the newest items of a category, with the sums of their bids.
    SearchItemsByCategory,
    /// Reads the same for a category in a region.
    SearchItemsByRegion,
    /// Reads an item, its seller, and the sums of its bids.
    ViewItem,
    /// Reads a user, and the comments on the user.
    ViewUserInfo,
    /// Reads the highest bids on an item, and their bidders.
    ViewBidHistory,
    /// Reads what the form to buy an item at once shows.
    BuyNow,
    /// Reads what the form to bid for an item shows.
    PutBid,
    /// Reads what the form to comment on a user shows.
    PutComment,
    /// Reads a user's bids, purchases and sales, and the comments on the user.
    AboutMe,
    /// Inserts a user.
    RegisterUser,
    /// Inserts an item: RUBiS's RegisterItem.
    StoreItem,
    /// Buys an item at once.
    StoreBuyNow,
    /// Inserts a bid.
    StoreBid,
    /// Inserts a comment.
    StoreComment,
}

impl TransactionType {
    /// Every type, in order.
    pub const ALL: [TransactionType; 17] = [
        Self::Authenticate,
        Self::BrowseCategories,
        Self::BrowseRegions,
        Self::SearchItemsByCategory,
        Self::SearchItemsByRegion,
        Self::ViewItem,
        Self::ViewUserInfo,
        Self::ViewBidHistory,
        Self::BuyNow,
        Self::PutBid,
        Self::PutComment,
        Self::AboutMe,
        Self::RegisterUser,
        Self::StoreItem,
        Self::StoreBuyNow,
        Self::StoreBid,
        Self::StoreComment,
    ];

    /// The names in results, in the same order.
    pub const NAMES: [&'static str; 17] = [
        "auth",
        "categories",
        "regions",
        "searchcategory",
        "searchregion",
        "viewitem",
        "viewuser",
        "bidhistory",
        "buynow",
        "putbid",
        "putcomment",
        "aboutme",
        "registeruser",
        "storeitem",
        "storebuynow",
        "storebid",
        "storecomment",
    ];

    /// Returns whether it writes.
    pub fn writes(self) -> bool {
        self as usize >= Self::RegisterUser as usize
    }
}

/// The mix of transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Mix {
    /// RUBiS-B: the bidding mix of RUBiS, with uniformly drawn items.
    #[default]
    Bidding,
    /// RUBiS-C: half of the transactions are bids, on items some of which are far more popular than others. The
    /// rest are the others of the bidding mix.
    Contended {
        /// The skew: the `k`-th item is bid for in proportion to `1 / k^alpha`.
        alpha: f64,
    },
}

impl Mix {
    /// The skew in the paper's Table 4.
    pub const ALPHA: f64 = 1.8;

    /// The share of bids in the contended mix, in percent.
    pub(super) const CONTENDED_BIDS: u32 = 50;

    /// Returns the name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Mix::Bidding => "bidding",
            Mix::Contended { .. } => "contended",
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mix::Bidding => formatter.write_str("bidding"),
            Mix::Contended { alpha } => write!(formatter, "contended, alpha {alpha}"),
        }
    }
}

/// A weighted draw of the interactions that need the database.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    interactions: Vec<(u32, Interaction, Work)>,
    total: u32,
}

impl Draw {
    /// Creates the draw of the bidding mix, with or without bids.
    pub(super) fn new(with_bids: bool) -> Draw {
        let mut interactions: Vec<_> = Interaction::ALL
            .into_iter()
            .filter(|&(interaction, weight, work)| {
                let is_bid = interaction == Interaction::StoreBid;
                weight > 0 && work != Work::Nothing && (with_bids || !is_bid)
            })
            .map(|(interaction, weight, work)| (weight, interaction, work))
            .collect();
        // Frequent interactions come first, so that they are found soonest.
        interactions.sort_by_key(|&(weight, ..)| std::cmp::Reverse(weight));
        let total = interactions.iter().map(|(weight, ..)| weight).sum();
        Draw { interactions, total }
    }

    /// Draws the next interaction.
    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> (Interaction, Work) {
        let mut card = random.within(0, self.total - 1);
        for &(weight, interaction, work) in &self.interactions {
            if card < weight {
                return (interaction, work);
            }
            card -= weight;
        }
        unreachable!("a card below the sum of the weights belongs to one of them")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(of: impl Fn(Interaction, Work) -> bool) -> u32 {
        let chosen =
            Interaction::ALL.into_iter().filter(|&(interaction, _, work)| of(interaction, work));
        chosen.map(|(_, weight, _)| weight).sum()
    }

    /// The paper's §8.8: 7 % of the bidding mix write, and 93 % read.
    #[test]
    fn seven_percent_of_the_bidding_mix_write() {
        let writes = |_, work| matches!(work, Work::One(transaction) if transaction.writes());
        assert_eq!(weight(writes), 689, "of 10,000 steps of a client");
        assert_eq!(weight(|_, _| true), 10_000 - 1_459, "the rest goes back or ends the session");
        // RUBiS calls 15 % of the mix read-write; this fits the writes together with the forms that lead to them.
        let forms = |interaction, _| {
            use Interaction::*;
            matches!(interaction, Register | BuyNow | PutBid | PutComment | SellItemForm)
        };
        assert_eq!(weight(writes) + weight(forms), 1_538);
    }

    #[test]
    fn interactions_stand_in_order_and_every_transaction_is_run() {
        for (position, (interaction, ..)) in Interaction::ALL.into_iter().enumerate() {
            assert_eq!(interaction as usize, position);
        }
        for (position, transaction) in TransactionType::ALL.into_iter().enumerate() {
            assert_eq!(transaction as usize, position);
            let runs = |_, work| match work {
                Work::Nothing => false,
                Work::One(one) => one == transaction,
                Work::Authenticated(one) => {
                    assert!(!one.writes());
                    one == transaction || transaction == TransactionType::Authenticate
                }
            };
            assert!(weight(runs) > 0, "{transaction:?}");
        }
        let writing = TransactionType::ALL.into_iter().filter(|transaction| transaction.writes());
        assert_eq!(writing.count(), 5);
    }
}
