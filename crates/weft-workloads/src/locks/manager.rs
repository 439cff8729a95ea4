//! A miniature of a storage manager: the critical sections that `GET_SUBSCRIBER_DATA` goes through
//! in Shore-MT, with the locks that Shore-MT has there.
//!
//! | step | lock | section |
//! | --- | --- | --- |
//! | begin | `occ_rwlock`, shared | reads the histogram, which a checkpoint would keep still |
//! | lock the row | `mcs` of a bucket of the lock table | counts a request |
//! | fix each page: from the root to the leaf, and that of the row | `tatas` of its frame | looks at the frame, marks it used |
//! | read in it | `srwlock` of the page, shared | searches, or reads the row; counts a visit |
//! | unlock the row | `mcs` of the bucket | takes the request back |
//! | end | `tatas` of the list of transactions | notes the transaction in the thread's place |
//!
//! The paper's four locks and what they protect are from its §3.2; that a latch's section counts a
//! visit is from §4.2, where such statistics make the elided latches collide. With a coarse latch
//! (§5) an `mcs` of the tree takes the place of the frames' and the pages' from the root to the
//! leaf; the visits are counted all the same.
//!
//! Sections are as short as they can be here, while Shore-MT runs hundreds of instructions under a
//! latch. [`working`](StorageManager::working) has the pages' sections compute as well, for as long as
//! one likes: how long a region lasts after its first store decides how often it collides.
//!
//! What is not there: lock inheritance (all locks above the row's are inherited in the paper's
//! runs, and are left out here), deadlock detection, the log, the buffer pool's replacement, and
//! threads that sleep. So sections are a larger part of the transaction than in Shore-MT, and gains
//! and losses larger.

#[cfg(not(weft_sim))]
use std::hint::black_box;

use weft::Failure;
use weft::htm::Regions;
use weft::htm::lock::{Elidable, Mcs, Mode, OccRwLock, SrwLock, Tatas};
use weft::htm::word::{Ordering, Word};

use super::{Row, Structure};
use crate::finding::Finding;
use crate::workload::Condition;

/// Entries of an inner page, and rows of one that holds rows.
const FANOUT: usize = 64;

/// Frames of the buffer pool that have a lock of their own.
const FRAMES: usize = 4096;

/// Buckets of the lock table.
const BUCKETS: usize = 4096;

/// Places in the list of transactions; threads may share one.
const PLACES: usize = 64;

/// Which of the locks are elided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// That of checkpoints and histograms.
    pub occ_rwlock: bool,
    /// Those of frames and of the list of transactions.
    pub tatas: bool,
    /// Those of the lock table, and the coarse latch.
    pub mcs: bool,
    /// The pages' latches.
    pub srwlock: bool,
}

/// The structures, and their locks.
#[derive(Debug)]
pub struct StorageManager {
    kinds: Kinds,
    checkpoint: Elidable<OccRwLock>,
    histogram: Row,
    buckets: Box<[Bucket]>,
    frames: Box<[Frame]>,
    transactions: Elidable<Tatas>,
    places: Box<[Row]>,
    next_place: Word,
    /// One page after the other, from the root to the leaves and the rows.
    levels: Vec<Box<[Page]>>,
    coarse: Option<Elidable<Mcs>>,
    work: u64,
}

/// Rows' locks, by the hash of their keys.
#[derive(Debug)]
struct Bucket {
    lock: Elidable<Mcs>,
    requests: Word,
}

/// A page's place in memory.
#[derive(Debug)]
struct Frame {
    lock: Elidable<Tatas>,
    is_used: Word,
}

/// A page of the tree, or of rows.
#[derive(Debug)]
struct Page {
    latch: Elidable<SrwLock>,
    /// A statistic. Readers share the latch, so that some visits may get lost.
    visits: Word,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// The first subscriber of each page below.
    Entries(Box<[Word]>),
    Rows(Box<[Row]>),
}

impl Page {
    fn new(content: Content, is_elided: bool) -> Page {
        Page { latch: Elidable::new(is_elided), visits: Word::new(0), content }
    }

    /// The position of the entry that leads to a subscriber.
    #[inline]
    fn search(&self, s_id: u32) -> usize {
        match &self.content {
            // Relaxed: nobody changes entries.
            Content::Entries(entries) => {
                entries.partition_point(|first| first.load(Ordering::Relaxed) <= s_id.into()) - 1
            }
            Content::Rows(_) => unreachable!("only pages above the rows are searched"),
        }
    }

    #[inline]
    fn row(&self, s_id: u32) -> &Row {
        match &self.content {
            Content::Rows(rows) => &rows[(s_id as usize - 1) % FANOUT],
            Content::Entries(_) => unreachable!("rows are in the last level"),
        }
    }

    /// Counts a visit, and does the work of one.
    #[inline]
    fn visit(&self, work: u64) {
        // Relaxed: see `visits`.
        self.visits.store(self.visits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        compute(work);
    }

    /// Runs a section under the latch.
    #[inline]
    fn latched<R>(&self, regions: &Regions, work: u64, mut section: impl FnMut() -> R) -> R {
        self.latch.section(Mode::Shared, regions, || {
            self.visit(work);
            section()
        })
    }
}

impl StorageManager {
    /// So many subscribers, with these kinds of locks elided; with `coarse`, the tree is probed
    /// under one latch.
    pub fn new(subscribers: u32, kinds: Kinds, coarse: bool) -> Self {
        let rows = (1..=subscribers).collect::<Vec<_>>();
        let page_of_rows = |s_ids: &[u32]| {
            let rows = s_ids.iter().map(|&s_id| Row::new(s_id)).collect();
            Page::new(Content::Rows(rows), kinds.srwlock)
        };
        let mut levels = vec![rows.chunks(FANOUT).map(page_of_rows).collect::<Box<[_]>>()];
        let mut firsts: Vec<u32> = rows.iter().copied().step_by(FANOUT).collect();
        // Leaves lead to pages of rows; then level upon level, up to a single page.
        loop {
            let page_of_entries = |firsts: &[u32]| {
                let entries = firsts.iter().map(|&first| Word::new(first.into())).collect();
                Page::new(Content::Entries(entries), kinds.srwlock)
            };
            levels.push(firsts.chunks(FANOUT).map(page_of_entries).collect());
            if firsts.len() <= FANOUT {
                break;
            }
            firsts = firsts.into_iter().step_by(FANOUT).collect();
        }
        levels.reverse();
        let bucket = |_| Bucket { lock: Elidable::new(kinds.mcs), requests: Word::new(0) };
        let frame = |_| Frame { lock: Elidable::new(kinds.tatas), is_used: Word::new(0) };
        StorageManager {
            kinds,
            checkpoint: Elidable::new(kinds.occ_rwlock),
            histogram: Row::new(0),
            buckets: (0..BUCKETS).map(bucket).collect(),
            frames: (0..FRAMES).map(frame).collect(),
            transactions: Elidable::new(kinds.tatas),
            places: (0..PLACES).map(|_| Row::new(0)).collect(),
            next_place: Word::new(0),
            levels,
            coarse: coarse.then(|| Elidable::new(kinds.mcs)),
            work: 0,
        }
    }

    /// The same, with so many steps of computing in each section of a page: cycles of the simulated
    /// machine; of a processor, turns of a loop, each about a cycle.
    pub fn working(self, work: u64) -> Self {
        StorageManager { work, ..self }
    }

    fn bucket(&self, s_id: u32) -> &Bucket {
        let hash = s_id.wrapping_mul(0x9E37_79B9) >> 20;
        &self.buckets[hash as usize % BUCKETS]
    }

    /// Finds a page in the buffer pool.
    #[inline]
    fn fix(&self, regions: &Regions, level: usize, position: usize) -> &Page {
        let frame = &self.frames[(position * 8 + level) % FRAMES];
        frame.lock.section(Mode::Exclusive, regions, || {
            // Relaxed: under the lock.
            if frame.is_used.load(Ordering::Relaxed) == 0 {
                frame.is_used.store(1, Ordering::Relaxed);
            }
        });
        &self.levels[level][position]
    }

    /// The position of the page that has a subscriber's row.
    #[inline]
    fn probe(&self, regions: &Regions, s_id: u32) -> usize {
        let leaves = self.levels.len() - 1;
        if let Some(coarse) = &self.coarse {
            return coarse.section(Mode::Exclusive, regions, || {
                (0..leaves).fold(0, |position, level| {
                    let page = &self.levels[level][position];
                    page.visit(self.work);
                    position * FANOUT + page.search(s_id)
                })
            });
        }
        (0..leaves).fold(0, |position, level| {
            let page = self.fix(regions, level, position);
            position * FANOUT + page.latched(regions, self.work, || page.search(s_id))
        })
    }
}

/// Computes, and touches no memory.
#[inline]
fn compute(steps: u64) {
    #[cfg(weft_sim)]
    weft::htm::simulation::compute(steps);
    #[cfg(not(weft_sim))]
    (0..steps).for_each(|step| _ = black_box(step));
}

impl Structure for StorageManager {
    /// The thread's place in the list of transactions.
    type Worker = usize;

    fn worker(&self) -> Result<usize, Failure> {
        // ORDERING: relaxed, since only the numbers' being different matters.
        Ok(self.next_place.fetch_add(1, Ordering::Relaxed) as usize % PLACES)
    }

    fn is_elided(&self) -> bool {
        self.kinds != Kinds::default()
    }

    #[inline]
    fn get(&self, place: &mut usize, regions: &Regions, s_id: u32) -> u64 {
        let histogram = self.checkpoint.section(Mode::Shared, regions, || self.histogram.digest());
        let bucket = self.bucket(s_id);
        let count = |change: u64| {
            // Relaxed: under the lock.
            let requests = bucket.requests.load(Ordering::Relaxed);
            bucket.requests.store(requests.wrapping_add(change), Ordering::Relaxed);
        };
        bucket.lock.section(Mode::Exclusive, regions, || count(1));
        let page = self.fix(regions, self.levels.len() - 1, self.probe(regions, s_id));
        let digest = page.latched(regions, self.work, || page.row(s_id).digest());
        bucket.lock.section(Mode::Exclusive, regions, || count(1_u64.wrapping_neg()));
        let noted = &self.places[*place];
        self.transactions.section(Mode::Exclusive, regions, || noted.update());
        digest ^ histogram
    }

    fn update(&self, _regions: &Regions, _s_id: u32) {
        panic!("the path is that of a transaction that reads");
    }

    fn conditions(&self, _updates: u64) -> Vec<Condition> {
        let mut requests = Finding::new("every request for a row's lock was taken back");
        for (position, bucket) in self.buckets.iter().enumerate() {
            let left = bucket.requests.load(Ordering::Relaxed);
            requests.check(left == 0, format_args!("bucket {position}: {left}"));
        }
        let mut transactions = Finding::new("every note of a transaction is whole");
        for (position, place) in self.places.iter().enumerate() {
            transactions.check(place.is_whole(), format_args!("{position}: {:?}", place.words()));
        }
        let mut rows = Finding::new("every row is where the tree leads to");
        let regions = Regions::new(&weft::htm::Htm::software());
        let pages = &self.levels[self.levels.len() - 1];
        let count = pages.iter().map(|page| match &page.content {
            Content::Rows(rows) => rows.len() as u32,
            Content::Entries(_) => 0,
        });
        for s_id in 1..=count.sum() {
            let words = pages[self.probe(&regions, s_id)].row(s_id).words();
            rows.check(words == Row::new(s_id).words(), format_args!("{s_id}: {words:?}"));
        }
        [requests, transactions, rows].map(Finding::into_condition).into()
    }
}
