//! The consistency conditions of clause 3.3.2, and further ones, checked on a database at rest.
//!
//! `verify` reads every row once, on one snapshot, and sums up as it reads (`survey`). So its time is linear in the
//! number of rows.
//!
//! A [`Rule`] holds after every correct execution, whatever the inputs. The first twelve are the specification's.
//! The others find errors that those do not: orders that remain after a roll-back, lost updates of stock, wrong
//! counters, rows that are missing in an index or exist only there. Each rule is checked in every place to which it
//! applies. The first place where it fails is described, with the values of both sides.

mod survey;
#[cfg(test)]
mod tests;

use std::fmt;

use weft::{Failure, Snapshot};

use super::{Parameters, Tables};
use crate::finding::Finding;
use crate::workload::{Condition, Progress};

/// One consistency condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// W_YTD = sum(D_YTD).
    Condition1,
    /// D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID).
    Condition2,
    /// New orders are numbered without gaps.
    Condition3,
    /// sum(O_OL_CNT) = number of order lines.
    Condition4,
    /// O_CARRIER_ID is null if and only if the order is a new order.
    Condition5,
    /// O_OL_CNT = number of the order's lines.
    Condition6,
    /// OL_DELIVERY_D is null if and only if O_CARRIER_ID is null.
    Condition7,
    /// W_YTD = sum(H_AMOUNT).
    Condition8,
    /// D_YTD = sum(H_AMOUNT).
    Condition9,
    /// C_BALANCE = sum(OL_AMOUNT of delivered lines) - sum(H_AMOUNT).
    Condition10,
    /// The orders that are not new are those that the load or a transaction delivered.
    Condition11,
    /// C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT of delivered lines).
    Condition12,
    /// Each order number is used once, and only by an order that was entered.
    OrdersCounted,
    /// The stock's counters equal the sums over the order lines.
    StockCounted,
    /// C_PAYMENT_CNT = rows of history.
    PaymentsCounted,
    /// No row is missing, and no row refers to a row that does not exist.
    References,
    /// Each secondary index leads to every row, once.
    Indexes,
}

impl Rule {
    /// Every rule, in the order of the report.
    pub const ALL: [Rule; 17] = [
        Rule::Condition1,
        Rule::Condition2,
        Rule::Condition3,
        Rule::Condition4,
        Rule::Condition5,
        Rule::Condition6,
        Rule::Condition7,
        Rule::Condition8,
        Rule::Condition9,
        Rule::Condition10,
        Rule::Condition11,
        Rule::Condition12,
        Rule::OrdersCounted,
        Rule::StockCounted,
        Rule::PaymentsCounted,
        Rule::References,
        Rule::Indexes,
    ];

    /// Returns the rule in words.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::Condition1 => "TPC-C consistency condition 1: W_YTD = sum(D_YTD)",
            Rule::Condition2 => {
                "TPC-C consistency condition 2: D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)"
            }
            Rule::Condition3 => {
                "TPC-C consistency condition 3: \
                 max(NO_O_ID) - min(NO_O_ID) + 1 = count(NEW-ORDER) of the district"
            }
            Rule::Condition4 => {
                "TPC-C consistency condition 4: sum(O_OL_CNT) = count(ORDER-LINE) of the district"
            }
            Rule::Condition5 => {
                "TPC-C consistency condition 5: O_CARRIER_ID is null if and only if the order is in \
                 NEW-ORDER"
            }
            Rule::Condition6 => {
                "TPC-C consistency condition 6: O_OL_CNT = count(ORDER-LINE) of the order"
            }
            Rule::Condition7 => {
                "TPC-C consistency condition 7: OL_DELIVERY_D is null if and only if O_CARRIER_ID \
                 is null"
            }
            Rule::Condition8 => "TPC-C consistency condition 8: W_YTD = sum(H_AMOUNT)",
            Rule::Condition9 => "TPC-C consistency condition 9: D_YTD = sum(H_AMOUNT)",
            Rule::Condition10 => {
                "TPC-C consistency condition 10: \
                 C_BALANCE = sum(OL_AMOUNT of delivered lines) - sum(H_AMOUNT)"
            }
            Rule::Condition11 => {
                "TPC-C consistency condition 11: count(ORDER) - count(NEW-ORDER) = those delivered \
                 by the load + sum(C_DELIVERY_CNT)"
            }
            Rule::Condition12 => {
                "TPC-C consistency condition 12: \
                 C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT of delivered lines)"
            }
            Rule::OrdersCounted => "orders: count(ORDER) of the district = D_NEXT_O_ID - 1",
            Rule::StockCounted => {
                "stock: S_ORDER_CNT, S_REMOTE_CNT and S_YTD = number, remote number and quantity of \
                 the lines ordered since the load"
            }
            Rule::PaymentsCounted => "payments: C_PAYMENT_CNT = count(HISTORY) of the customer",
            Rule::References => {
                "references: every warehouse, district, customer and stock exists, and no row refers to \
                 a row that does not exist"
            }
            Rule::Indexes => {
                "indexes: each leads to every customer, or to every order, once and in its order"
            }
        }
    }
}

/// Checks every rule.
pub(super) fn verify(
    snapshot: &Snapshot,
    tables: &Tables,
    parameters: &Parameters,
    progress: Progress<'_>,
) -> Result<Vec<Condition>, Failure> {
    Ok(survey::take(snapshot, tables, parameters, progress)?.into_conditions())
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

    /// Checks at `place` that two sides are equal. Each is given with its name.
    #[inline]
    fn check_equal<T: PartialEq + fmt::Display>(
        &mut self,
        rule: Rule,
        place: fmt::Arguments<'_>,
        (left_name, left): (&str, T),
        (right_name, right): (&str, T),
    ) {
        self.check(
            rule,
            left == right,
            format_args!("{place}: {left_name} is {left}, {right_name} is {right}"),
        );
    }

    fn into_conditions(self) -> Vec<Condition> {
        self.0.map(Finding::into_condition).into()
    }
}
