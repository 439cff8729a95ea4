//! A table of subscribers under one lock.

use std::hint::black_box;

use weft::Failure;
use weft::htm::Regions;
use weft::htm::lock::{Elidable, Lock, Mode};

use super::{Draws, Ran, Row, Structure};
use crate::finding::Finding;
use crate::workload::Condition;

/// All rows, under one lock of kind `L`. A transaction is one section, which is shared if it only reads and the
/// lock supports sharing.
#[derive(Debug)]
pub struct Register<L> {
    lock: Elidable<L>,
    is_elided: bool,
    rows: Box<[Row]>,
}

impl<L: Lock> Register<L> {
    /// Creates `subscribers` rows, with a lock that is elided or not.
    pub fn new(subscribers: u32, is_elided: bool) -> Self {
        let lock = Elidable::new(is_elided);
        Register { lock, is_elided, rows: (1..=subscribers).map(Row::new).collect() }
    }

    #[cfg(test)]
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn row(&self, s_id: u32) -> &Row {
        &self.rows[s_id as usize - 1]
    }
}

impl<L: Lock> Structure for Register<L> {
    const TRANSACTIONS: &'static [&'static str] = &["getsubdata", "update"];
    type Worker = ();

    fn worker(&self, _seed: u64, _thread: usize, _threads: usize) -> Result<(), Failure> {
        Ok(())
    }

    fn is_elided(&self) -> bool {
        self.is_elided
    }

    #[inline]
    fn execute(&self, (): &mut (), regions: &Regions, draws: &mut Draws) -> Ran {
        let row = self.row(draws.subscriber());
        let is_update = draws.is_update();
        if is_update {
            self.lock.section(Mode::Exclusive, regions, || row.update());
        } else {
            black_box(self.lock.section(Mode::Shared, regions, || row.digest()));
        }
        Ran::updating(usize::from(is_update), is_update.into())
    }

    fn conditions(&self, updates: u64) -> Vec<Condition> {
        let mut whole = Finding::new("every row matches its subscriber and its number of updates");
        let mut found = 0;
        for (s_id, row) in (1..).zip(&self.rows) {
            let words = row.words();
            found += words[1];
            whole.check(row.is_whole() && words[0] == s_id, format_args!("{s_id}: {words:?}"));
        }
        let mut counted = Finding::new("the rows were updated as often as transactions say");
        counted.check(found == updates, format_args!("{found} and {updates}"));
        vec![whole.into_condition(), counted.into_condition()]
    }
}

/// No lock, for comparison: every section runs at once.
#[derive(Debug, Default)]
pub struct Unlocked;

impl Lock for Unlocked {
    const NAME: &'static str = "none";
    const SHARES: bool = true;

    fn excludes(&self, _mode: Mode) -> bool {
        false
    }

    #[inline(always)]
    fn hold<R>(&self, _mode: Mode, section: impl FnOnce() -> R) -> R {
        black_box(section())
    }

    fn try_hold<R>(&self, mode: Mode, section: impl FnOnce() -> R) -> Option<R> {
        Some(self.hold(mode, section))
    }
}
