//! Loading of tables, one after the other, by several threads.
//!
//! [`Loading::fill`] gets the source of the rows as data and function pointers. So the code that draws rows, and
//! the threads that run it, are compiled once, not for each protocol.

use std::ops::Range;

use weft::protocol::Protocol;
use weft::schema::Record;
use weft::{Database, Failure, Table};

use crate::workload::{LoadOptions, Progress};

/// A load in progress.
pub(crate) struct Loading<'a> {
    threads: usize,
    progress: Progress<'a>,
    /// The number of rows loaded, and the approximate number of all rows.
    done: u64,
    rows: u64,
}

impl<'a> Loading<'a> {
    /// Begins a load of about `rows` rows.
    pub(crate) fn new(options: &LoadOptions<'a>, rows: u64) -> Self {
        Loading { threads: options.threads, progress: options.progress, done: 0, rows }
    }

    /// Fills a table with the rows of units, such as districts. `draw` returns the rows of one unit, counted from
    /// 0. Each thread loads a range of units of about the same length.
    pub(crate) fn fill<'s, P: Protocol, R, S, I>(
        &mut self,
        database: &Database<P>,
        table: &Table<R>,
        (source, units): (&'s S, u64),
        draw: fn(&'s S, u64) -> I,
    ) -> Result<(), Failure>
    where
        R: Record,
        S: Sync,
        I: IntoIterator<Item = R, IntoIter: Send>,
    {
        let Loading { progress, done, rows, .. } = *self;
        let report: &(dyn Fn(u64) + Sync) = &|loaded| progress((done + loaded).min(rows), rows);
        self.done += database.load(table, parts(source, units, self.threads, draw), report)?;
        Ok(())
    }

    /// Reports that everything is loaded.
    pub(crate) fn finish(self) {
        if self.done < self.rows {
            (self.progress)(self.rows, self.rows);
        }
    }
}

/// Returns the rows of the units, divided into one part for each thread.
fn parts<'s, R, S: Sync, I: IntoIterator<Item = R>>(
    source: &'s S,
    units: u64,
    threads: usize,
    draw: fn(&'s S, u64) -> I,
) -> Vec<impl Iterator<Item = Result<R, Failure>> + use<'s, R, S, I>> {
    let rows = |units: Range<u64>| units.flat_map(move |unit| draw(source, unit)).map(Ok);
    shares(units, threads).map(rows).collect()
}

/// Returns the numbers below `count`, divided into one range for each thread.
pub(crate) fn shares(count: u64, threads: usize) -> impl Iterator<Item = Range<u64>> {
    let threads = threads.max(1) as u64;
    (0..threads).map(move |share| count * share / threads..count * (share + 1) / threads)
}
