//! The report: what was sold, and whether the books are right. It reads a snapshot, so it delays no customer.

use serde::Serialize;
use weft::{Error, Snapshot};

use crate::orders::Sales;
use crate::shop::Tables;

/// The report of one moment.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The money in all accounts, in cents.
    pub cents_in_accounts: i64,
    /// The number of orders.
    pub orders: u64,
    /// What was sold of each item.
    pub sales: Vec<Sales>,
    /// Whether the sales are the sums of the orders.
    pub is_right: bool,
}

/// Makes the report.
///
/// # Errors
/// Those of a snapshot.
pub fn make(snapshot: &Snapshot, tables: &Tables) -> Result<Report, Error> {
    let mut report = Report { cents_in_accounts: 0, orders: 0, sales: Vec::new(), is_right: false };
    for account in snapshot.rows(&tables.accounts) {
        report.cents_in_accounts += account?.cents;
    }
    for sales in snapshot.rows(&tables.sales) {
        report.sales.push(sales?.clone());
    }
    let mut unexplained: i64 = report.sales.iter().map(|sales| sales.cents).sum();
    for order in snapshot.rows(&tables.orders) {
        report.orders += 1;
        unexplained -= order?.sold.iter().map(|sold| sold.cents).sum::<i64>();
    }
    report.is_right = unexplained == 0;
    Ok(report)
}
