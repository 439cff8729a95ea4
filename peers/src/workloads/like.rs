//! LIKE: a user likes a page, or looks at both. A like adds 1 to the page and writes the user's row, in one
//! transaction. Some pages are far more popular than others. The first half of the rows are pages, the second half
//! users.

use super::zipf::Ranks;
use super::{Workload, check_equal, random};
use crate::store::{self, Operation, Result, Store};

/// How much more popular some pages are, as in the paper on phase reconciliation.
const EXPONENT: f64 = 1.4;

/// A client that likes pages, every other time.
pub struct Like {
    random: fastrand::Rng,
    pages: u64,
    popularity: Ranks,
    likes: i64,
}

impl Workload for Like {
    const NAME: &'static str = "LIKE";
    const ROWS: u64 = 2_000_000;

    fn new(thread: usize, rows: u64) -> Self {
        let pages = rows / 2;
        let popularity = Ranks::new(thread, pages, EXPONENT);
        Like { random: random(thread), pages, popularity, likes: 0 }
    }

    #[inline]
    fn run(&mut self, store: &impl Store) -> Result<()> {
        let page = self.popularity.draw();
        let user = (self.pages + self.random.u64(..self.pages)) as u32;
        if self.random.bool() {
            store.perform(&[Operation::Update(page), Operation::Update(user)])?;
            self.likes += 1;
            return Ok(());
        }
        let read = store.perform(&[Operation::Read(page), Operation::Read(user)])?;
        let expected = [page, user].map(|key| store::payload_checksum(key.into()));
        match read == expected[0].wrapping_add(expected[1]) {
            true => Ok(()),
            false => Err("wrong result: the checksum of a page and a user".into()),
        }
    }

    fn verify(clients: &[&Self], numbers: &[i64]) -> Result<()> {
        let likes = clients.iter().map(|client| client.likes).sum();
        let (pages, users) = numbers.split_at(numbers.len() / 2);
        check_equal(format_args!("the number of likes of pages"), pages.iter().sum(), likes)?;
        check_equal(format_args!("the number of likes by users"), users.iter().sum(), likes)
    }
}
