//! The invariants of the bank, checked on a database at rest.

use weft::{Failure, Snapshot, Table};

use super::client::RequestSource;
use super::{Account, Parameters};
use crate::finding::Finding;
use crate::workload::{Condition, Progress};

/// Checks every invariant.
pub(super) fn verify(
    snapshot: &Snapshot,
    accounts: &Table<Account>,
    parameters: &Parameters,
    source: &RequestSource,
    progress: Progress<'_>,
) -> Result<Vec<Condition>, Failure> {
    let mut of_accounts = Finding::new("accounts: each exists, and has no negative balance");
    let mut of_money = Finding::new("the sum of all balances is that of the load");
    let mut of_audits = Finding::new("every audit found the sum of the load");
    let mut expected = 0..parameters.accounts;
    let mut sum = 0;
    for row in snapshot.rows(accounts) {
        let row = row?;
        let holds = expected.next() == Some(row.id) && row.balance >= 0;
        of_accounts.check(holds, format_args!("{row:?}"));
        sum += row.balance;
        if row.id.is_multiple_of(4096) {
            progress(row.id, parameters.accounts);
        }
    }
    of_accounts.check(expected.is_empty(), format_args!("no accounts {expected:?}"));
    let total = parameters.total();
    of_money.check(sum == total, format_args!("{sum} and {total}"));
    let (audits, wrong) = source.audits();
    of_audits.check(wrong == 0, format_args!("{wrong} of {audits} did not"));
    progress(parameters.accounts, parameters.accounts);
    Ok([of_accounts, of_money, of_audits].map(Finding::into_condition).into())
}
