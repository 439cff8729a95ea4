//! The invariants of LIKE, checked on a database at rest.
//!
//! Every committed like has added 1 to the likes of a page, and 1 to the likes that a user gave. So the two sums
//! and the clients' account must agree. A like that was lost, done twice, or done by half breaks one of them.

use weft::{Failure, Snapshot, Table};

use super::client::Choice;
use super::{Page, Parameters, User};
use crate::finding::Finding;
use crate::walk;
use crate::workload::{Condition, Progress};

/// Checks every invariant.
pub(super) fn verify(
    snapshot: &Snapshot,
    (users, pages, choice): (&Table<User>, &Table<Page>, &Choice),
    parameters: &Parameters,
    progress: Progress<'_>,
) -> Result<Vec<Condition>, Failure> {
    let (likes, of_popular) = choice.ledgers.changes();
    let rows = parameters.users + parameters.pages;
    let report = |done: u64| {
        if done.is_multiple_of(4096) {
            progress(done, rows);
        }
    };

    let mut of_users =
        Finding::new("users: each exists, and has a last page if it has given any likes");
    let mut given = Finding::new("the sum of the likes that users gave is that of committed likes");
    let (mut sum, mut done) = (0_u128, 0);
    let visit = |id, row: Option<&User>| {
        let user = row.map(|row| (row.last_page, row.likes_given));
        let holds = user.is_some_and(|(last_page, likes_given)| {
            last_page.is_some() == (likes_given > 0)
                && last_page.is_none_or(|page| page < parameters.pages)
        });
        of_users.check(holds, format_args!("user {id}: {user:?}"));
        sum += user.map_or(0, |(_, likes_given)| u128::from(likes_given));
        done += 1;
        report(done);
    };
    walk::keys(snapshot, users, 0..parameters.users, visit)?;
    given.check(sum == u128::from(likes), format_args!("{sum} and {likes}"));

    let mut of_pages = Finding::new("pages: each exists, and has no negative number of likes");
    let mut received = Finding::new("the sum of the pages' likes is that of committed likes");
    let mut sum = 0_i128;
    let visit = |id, row: Option<&Page>| {
        let page = row.map(|row| row.likes);
        of_pages.check(page.is_some_and(|likes| likes >= 0), format_args!("page {id}: {page:?}"));
        sum += i128::from(page.unwrap_or(0));
        done += 1;
        report(done);
    };
    walk::keys(snapshot, pages, 0..parameters.pages, visit)?;
    received.check(sum == i128::from(likes), format_args!("{sum} and {likes}"));

    let mut each = Finding::new("each popular page's likes are the committed likes of it");
    let mut expected = of_popular.into_iter();
    let visit = |id, row: Option<&Page>| {
        let page = row.map(|row| row.likes);
        let likes = expected.next().expect("as many as there are popular pages");
        let holds = page.is_some_and(|page| u64::try_from(page) == Ok(likes));
        each.check(holds, format_args!("page {id}: {page:?} and {likes}"));
    };
    let popular = choice.popular.iter().copied();
    walk::keys(snapshot, pages, popular, visit)?;
    progress(rows, rows);
    Ok([of_users, given, of_pages, received, each].map(Finding::into_condition).into())
}
