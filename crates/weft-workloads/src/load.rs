//! Loads: one table after the other, by several threads.
//!
//! [`Loading::fill`] is given what rows are drawn from as data and function pointers. So what draws them, and the
//! threads that do, are compiled once, whatever the protocols.

use std::ops::Range;

use weft::protocol::Protocol;
use weft::schema::Record;
use weft::{Database, Failure, Table};

use crate::workload::{LoadOptions, Progress};

/// A load of which some tables are filled.
pub(crate) struct Loading<'a> {
    threads: usize,
    progress: Progress<'a>,
    /// Rows that are loaded, and about all of them.
    done: u64,
    rows: u64,
}

impl<'a> Loading<'a> {
    /// A load of about so many rows.
    pub(crate) fn new(options: &LoadOptions<'a>, rows: u64) -> Self {
        Loading { threads: options.threads, progress: options.progress, done: 0, rows }
    }

    /// Fills a table with the rows of units, such as districts: `draw` makes those of one of them, counted from 0.
    /// Each thread has as many units as any other, in their order.
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

/// The rows of units, cut into as many parts as there are threads.
fn parts<'s, R, S: Sync, I: IntoIterator<Item = R>>(
    source: &'s S,
    units: u64,
    threads: usize,
    draw: fn(&'s S, u64) -> I,
) -> Vec<impl Iterator<Item = Result<R, Failure>> + use<'s, R, S, I>> {
    let rows = |units: Range<u64>| units.flat_map(move |unit| draw(source, unit)).map(Ok);
    shares(units, threads).map(rows).collect()
}

/// Numbers from 0, cut into as many ranges as there are threads.
pub(crate) fn shares(count: u64, threads: usize) -> impl Iterator<Item = Range<u64>> {
    let threads = threads.max(1) as u64;
    (0..threads).map(move |share| count * share / threads..count * (share + 1) / threads)
}
