//! A B+-tree, probed under one coarse latch.

use std::hint::black_box;

use weft::Failure;
use weft::htm::lock::{Elidable, Lock, Mode};
use weft::htm::{Choice, Regions};
use weft::raw_tree::{RawTree, RawWorker};

use super::{Draws, ROW_WORDS, Ran, Row, Structure};
use crate::finding::Finding;
use crate::workload::Condition;

/// The engine's B+-tree of subscribers. Each look-up is one section of a lock of kind `L`.
///
/// The tree needs no latch, because its look-ups validate the versions of its nodes. So a comparison with
/// [`Unlocked`] shows what the latch costs. The tree does not use regions here, because they would become parts of
/// the latch's regions.
///
/// [`Unlocked`]: super::Unlocked
#[derive(Debug)]
pub struct Probe<L> {
    latch: Elidable<L>,
    is_elided: bool,
    tree: RawTree<[u64; ROW_WORDS]>,
    subscribers: u32,
}

impl<L: Lock> Probe<L> {
    /// Creates a tree of `subscribers` subscribers, with a latch that is elided or not.
    ///
    /// # Errors
    /// The engine's error.
    pub fn new(subscribers: u32, is_elided: bool) -> Result<Self, Failure> {
        let tree = RawTree::open(Choice::Software, 0)?;
        let mut worker = tree.worker()?;
        for s_id in 1..=subscribers {
            assert!(worker.insert(s_id.into(), Row::new(s_id).words()), "{s_id} comes once");
        }
        Ok(Probe { latch: Elidable::new(is_elided), is_elided, tree, subscribers })
    }
}

impl<L: Lock> Structure for Probe<L> {
    const TRANSACTIONS: &'static [&'static str] = &["getsubdata"];
    type Worker = RawWorker<[u64; ROW_WORDS]>;

    fn worker(&self, _seed: u64, _thread: usize, _threads: usize) -> Result<Self::Worker, Failure> {
        self.tree.worker()
    }

    fn is_elided(&self) -> bool {
        self.is_elided
    }

    #[inline]
    fn execute(&self, worker: &mut Self::Worker, regions: &Regions, draws: &mut Draws) -> Ran {
        let s_id = draws.subscriber();
        let found = self.latch.section(Mode::Shared, regions, || {
            worker.get(s_id.into(), |row| row.iter().fold(0, |sum, word| sum ^ word))
        });
        black_box(found.expect("every subscriber that is drawn is there"));
        Ran::updating(0, 0)
    }

    fn conditions(&self, _updates: u64) -> Vec<Condition> {
        let mut finding = Finding::new("every subscriber is in the tree, with a row of its own");
        let mut worker = self.tree.worker().expect("no client is running");
        for s_id in 1..=self.subscribers {
            let row = worker.get(s_id.into(), |row| *row);
            finding.check(row == Some(Row::new(s_id).words()), format_args!("{s_id}: {row:?}"));
        }
        vec![finding.into_condition()]
    }
}
