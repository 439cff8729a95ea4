//! Makes reports of a database whose protocol is not known.

use weft::protocol::Protocol;
use weft::{Database, Failure};

use crate::{InspectDatabase, Report};

/// Makes reports of a database, and keeps it open.
pub struct Source(Box<dyn Fn() -> Result<Report, Failure> + Send>);

impl Source {
    pub fn of<P: Protocol>(database: &Database<P>) -> Self {
        let database = database.clone();
        Source(Box::new(move || database.contention()))
    }

    /// # Errors
    /// Those of [`InspectDatabase::contention`].
    pub fn report(&self) -> Result<Report, Failure> {
        (self.0)()
    }
}
