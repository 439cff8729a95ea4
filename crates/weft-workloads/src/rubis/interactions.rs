//! What users do, how often, and which transactions that takes.

use std::fmt;

use crate::random::Random;

/// The pages that a user of RUBiS can ask for: the 26 interactions, and the home page, where a session
/// begins.
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

/// What an interaction takes of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing: a page that is always the same.
    Nothing,
    /// A transaction.
    One(TransactionType),
    /// That which authenticates the user, and then another.
    Authenticated(TransactionType),
}

impl Interaction {
    /// Every interaction, how many of 10,000 steps of a client it is in the bidding mix, and what it
    /// takes. The [module above](super) has the sources. The rest of the steps, 1,459, go back to the
    /// page before, or end the session.
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

/// The 17 database transactions: those that only read, then those that write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionType {
    /// A user's identifier, by nickname and password.
    Authenticate,
    /// All categories.
    BrowseCategories,
    /// All regions.
    BrowseRegions,
    /// The newest items of a category, with their bids summed up.
    SearchItemsByCategory,
    /// The same of a category in a region.
    SearchItemsByRegion,
    /// An item, its seller, and its bids summed up.
    ViewItem,
    /// A user, and what others say of them.
    ViewUserInfo,
    /// The highest bids on an item, and whose they are.
    ViewBidHistory,
    /// The form to buy an item at once.
    BuyNow,
    /// The form to bid for an item.
    PutBid,
    /// The form to comment on a user.
    PutComment,
    /// What a user bids for, sells, has bought, and is told.
    AboutMe,
    /// A new user.
    RegisterUser,
    /// A new item: RUBiS's RegisterItem.
    StoreItem,
    /// An item is bought at once.
    StoreBuyNow,
    /// A bid.
    StoreBid,
    /// A comment.
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

    /// Their names in results, in the same order.
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

    /// Whether it writes.
    pub fn writes(self) -> bool {
        self as usize >= Self::RegisterUser as usize
    }
}

/// Which transactions run how often.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Mix {
    /// RUBiS-B: the bidding mix of RUBiS, all items alike.
    #[default]
    Bidding,
    /// RUBiS-C: half of the transactions are bids, on items of which some are far more popular than
    /// others; the rest are the others of the bidding mix.
    Contended {
        /// The `k`-th item is bid for in proportion to `1 / k^alpha`.
        alpha: f64,
    },
}

impl Mix {
    /// The popularity of the paper's Table 4.
    pub const ALPHA: f64 = 1.8;

    /// Bids in the contended mix, in percent.
    pub(super) const CONTENDED_BIDS: u32 = 50;

    /// Its name on the command line and in results.
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

/// How often an interaction is drawn that takes anything of the database.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    interactions: Vec<(u32, Interaction, Work)>,
    total: u32,
}

impl Draw {
    /// Of the bidding mix, or of its rest without bids.
    pub(super) fn new(with_bids: bool) -> Draw {
        let mut interactions: Vec<_> = Interaction::ALL
            .into_iter()
            .filter(|&(interaction, weight, work)| {
                let is_bid = interaction == Interaction::StoreBid;
                weight > 0 && work != Work::Nothing && (with_bids || !is_bid)
            })
            .map(|(interaction, weight, work)| (weight, interaction, work))
            .collect();
        // The frequent ones first, which are found soonest.
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
        // RUBiS calls 15 % of it read-write, which fits those and the forms that lead there.
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
