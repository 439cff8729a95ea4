//! The invariants of RUBiS, checked on a database at rest.
//!
//! Every sum beside the tables must equal the sum of the tables' rows, added up again without the engine's
//! operations. `verify` reads every row once (`survey`), so its time grows linearly with the number of rows. Loaded
//! rows are drawn again for the comparison; the clients count the rows stored later.

mod survey;
#[cfg(test)]
mod tests;

use std::fmt;

use weft::{Failure, Snapshot};

use super::client::Ledgers;
use super::{Parameters, Tables};
use crate::finding::Finding;
use crate::workload::{Condition, Progress};

/// The invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    BidsCounted,
    MaxBid,
    MaxBidder,
    TopBids,
    Ratings,
    CategoryItems,
    RegionItems,
    Quantities,
    Loaded,
    References,
    Counted,
    Indexes,
}

impl Rule {
    /// Every rule, in order.
    pub(super) const ALL: [Rule; 12] = [
        Rule::BidsCounted,
        Rule::MaxBid,
        Rule::MaxBidder,
        Rule::TopBids,
        Rule::Ratings,
        Rule::CategoryItems,
        Rule::RegionItems,
        Rule::Quantities,
        Rule::Loaded,
        Rule::References,
        Rule::Counted,
        Rule::Indexes,
    ];

    /// The rule in words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Rule::BidsCounted => "auctions: number_of_bids = count(bids) of the item",
            Rule::MaxBid => "auctions: max_bid = max(price) of the item's bids",
            Rule::MaxBidder => {
                "auctions: max_bidder has bid max_bid; by commutative operations, as the first of all who \
                 have"
            }
            Rule::TopBids => "auctions: top_bids are the ten highest bids on the item",
            Rule::Ratings => "ratings: rating = sum(rating) of the comments on the user",
            Rule::CategoryItems => "category_items: the ten newest items of the category",
            Rule::RegionItems => "region_items: the ten newest items of the region and category",
            Rule::Quantities => {
                "items: quantity = offered - sum(quantity) of the item's purchases, and a sold-out item ended \
                 with one of them"
            }
            Rule::Loaded => {
                "users, items, categories, regions: those that were loaded are unchanged"
            }
            Rule::References => {
                "references: every user has a rating, every item an auction, and no row refers to a row \
                 that does not exist"
            }
            Rule::Counted => "rows: as many as were loaded and stored",
            Rule::Indexes => {
                "indexes: every nickname leads to its user, every seller to the seller's items, once and in \
                 order"
            }
        }
    }
}

/// A database at rest, and what it should contain.
pub(super) struct AtRest<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) tables: &'a Tables,
    pub(super) parameters: &'a Parameters,
    /// The seed of the load.
    pub(super) seed: u64,
    pub(super) ledgers: &'a Ledgers,
}

/// Checks every rule.
pub(super) fn verify(
    rubis: &AtRest<'_>,
    progress: Progress<'_>,
) -> Result<Vec<Condition>, Failure> {
    let Findings(findings) = survey::take(rubis, progress)?;
    Ok(findings.map(Finding::into_condition).into())
}

/// The findings so far, one for each rule.
#[derive(Debug)]
struct Findings([Finding; Rule::ALL.len()]);

impl Default for Findings {
    fn default() -> Self {
        Findings(Rule::ALL.map(|rule| Finding::new(rule.name())))
    }
}

impl Findings {
    /// Records that `rule` was checked in one more place. `violation` describes the violation if the rule does not
    /// hold there.
    #[inline]
    fn check(&mut self, rule: Rule, holds: bool, violation: fmt::Arguments<'_>) {
        self.0[rule as usize].check(holds, violation);
    }

    /// Checks at `place` that the stored value equals the expected one.
    #[inline]
    fn check_equal<T: PartialEq + fmt::Debug>(
        &mut self,
        rule: Rule,
        place: fmt::Arguments<'_>,
        kept: T,
        expected: T,
    ) {
        let holds = kept == expected;
        self.check(rule, holds, format_args!("{place}: {kept:?}, not {expected:?}"));
    }
}
