//! The workloads, one file each: what a thread asks of a store, and what the rows must be afterwards.

mod counter;
mod incr;
mod like;
mod points;
mod reads;
mod transfers;
mod zipf;

pub use counter::Counter;
pub use incr::Incr;
pub use like::Like;
pub use points::{Points, Rmw, Together, YcsbA, YcsbB};
pub use reads::Reads;
pub use transfers::Transfers;

use crate::store::{Result, Store};

/// The client of one thread. It remembers what its transactions have changed.
pub trait Workload: Send + Sized {
    /// The name in tables.
    const NAME: &'static str;

    /// The number of rows in a measurement.
    const ROWS: u64;

    /// Creates the client of a thread, for a store with this number of rows.
    ///
    /// The same thread makes the same requests to every system, because they depend on these two numbers alone.
    fn new(thread: usize, rows: u64) -> Self;

    /// Runs the next transaction.
    ///
    /// # Errors
    /// Those of the store; also if the transaction has read what it must not read.
    fn run(&mut self, store: &impl Store) -> Result<()>;

    /// Checks the numbers of all rows against what the clients have changed.
    ///
    /// # Errors
    /// A description of the first difference.
    fn verify(clients: &[&Self], numbers: &[i64]) -> Result<()>;
}

/// Returns the random numbers of a thread.
fn random(thread: usize) -> fastrand::Rng {
    fastrand::Rng::with_seed(0x5EED + thread as u64)
}

/// Returns an error unless the numbers are equal.
fn check_equal(what: std::fmt::Arguments<'_>, found: i64, expected: i64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(format!("wrong result: {what} is {found}, and must be {expected}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that returns what it must, and changes nothing.
    struct Forgetful;

    impl Store for Forgetful {
        fn open(_: u64) -> Result<Self> {
            Ok(Forgetful)
        }

        fn add_one(&self, _: u64) -> Result<()> {
            Ok(())
        }

        fn transfer(&self, _: u64, _: u64) -> Result<(i64, i64)> {
            Ok((0, 0))
        }

        fn perform(&self, _: &[crate::store::Operation]) -> Result<u32> {
            Ok(0)
        }

        fn numbers(&self) -> Result<Vec<i64>> {
            Ok(Vec::new())
        }
    }

    fn verify_after_one<W: Workload>(rows: u64) -> String {
        let mut client = W::new(0, rows);
        client.run(&Forgetful).expect("it reads nothing");
        let unchanged = vec![0; rows as usize];
        W::verify(&[&client], &unchanged).expect_err("a change was lost").to_string()
    }

    #[test]
    fn a_lost_change_is_an_error() {
        assert!(verify_after_one::<Counter>(1).contains("is 0, and must be 1"));
        assert!(verify_after_one::<Transfers>(2).contains("is 0, and must be"));
    }

    #[test]
    fn a_missing_row_is_an_error() {
        assert!(Transfers::verify(&[], &[0]).is_ok());
        let client = Transfers::new(0, 2);
        assert!(Transfers::verify(&[&client], &[0]).is_err());
        assert!(Counter::verify(&[], &[]).is_err());
    }

    #[test]
    fn a_wrong_payload_is_an_error() {
        let error = Reads::new(0, 10).run(&Forgetful).expect_err("the store read nothing");
        assert!(error.to_string().contains("checksum"), "{error}");
    }
}
