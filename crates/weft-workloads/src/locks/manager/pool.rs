//! The buffer pool: frames with pages, and the hash table in which threads find them.
//!
//! A page is in one of two buckets of the hash table (cuckoo hashing), each with three slots. A thread pins the
//! frame of each slot that it tries, and then compares the page. If the frame is pinned already this takes one
//! exchange. Otherwise it is done under the lock of the bucket, because only that lock prevents the replacement of
//! an unpinned page.

use weft::htm::lock::{Elidable, Mode, SrwLock, Tatas};
use weft::htm::word::{Ordering, Word};

use super::Kinds;
use super::parts::{Part, Parts};
use super::protected::Protected;
use super::rows::Page;
use super::thread::{Counter, Session, get, set};

/// The slots of a bucket, and the number of hash functions.
const SLOTS: usize = 3;
const HASHES: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xC2B2_AE3D_27D4_EB4F];

/// The importance of a page that a thread fixes, for the replacement of others: the pages of a tree are worth more.
const REFERENCED: u64 = 1;

/// What the pool knows about a frame (`bfcb_t`), with the latch of its page behind it.
#[derive(Debug, Default)]
#[repr(C)]
struct Control {
    pins: Word,
    page: Word,
    old_page: Word,
    is_dirty: Word,
    recovery_position: Word,
    old_recovery_position: Word,
    next_free: Word,
    references: Word,
    hash: Word,
    /// The number of holders of the latch: a statistic, which each of them writes.
    holders: Word,
}

type Frame = Elidable<Protected<SrwLock, Control>>;

/// The frames in a bucket: their numbers, plus 1.
#[derive(Debug, Default)]
struct Slots {
    frames: [Word; SLOTS],
    count: Word,
}

/// The buffer pool. It holds all pages.
#[derive(Debug)]
pub(super) struct Pool {
    buckets: Box<[Elidable<Protected<Tatas, Slots>>]>,
    frames: Box<[Frame]>,
    pages: Box<[Page]>,
}

/// A page that a thread has fixed.
#[derive(Clone, Copy)]
pub(super) struct Fixed<'a> {
    number: usize,
    frame: &'a Frame,
    pub(super) page: &'a Page,
}

impl Pool {
    /// Creates a pool that holds these pages. Their numbers are their positions.
    pub(super) fn new(pages: Vec<Page>, kinds: Kinds, parts: Parts) -> Pool {
        let has_fences = parts.has(Part::Fences);
        let frame = |number: usize| {
            let frame: Frame = Protected::new(has_fences, kinds.srwlock);
            set(&frame.lock().data.page, number as u64);
            frame
        };
        // Shore-MT has 16 buckets for 9 frames.
        let mut count = (16 * pages.len()).div_ceil(9);
        let buckets = loop {
            let buckets: Box<[_]> =
                (0..count).map(|_| Protected::new(has_fences, kinds.tatas)).collect();
            if fill(&buckets, pages.len()) {
                break buckets;
            }
            count += count / 8 + 1;
        };
        Pool {
            buckets,
            frames: (0..pages.len()).map(frame).collect(),
            pages: pages.into_boxed_slice(),
        }
    }

    /// Returns a page without fixing it. No thread may be running.
    pub(super) fn page(&self, number: u64) -> &Page {
        &self.pages[number as usize]
    }

    /// Returns the numbers of pins and holders that are left. No thread may be running.
    pub(super) fn left(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.frames.iter().map(|frame| {
            let control = &frame.lock().data;
            (get(&control.pins), get(&control.holders))
        })
    }
}

/// Returns the bucket of a page by one of the hash functions.
fn bucket_of(page: u64, hash: usize, buckets: usize) -> usize {
    ((page + 1).wrapping_mul(HASHES[hash]) >> 32) as usize % buckets
}

/// Puts all pages into the buckets. Returns `false` if one has no place.
fn fill(buckets: &[Elidable<Protected<Tatas, Slots>>], pages: usize) -> bool {
    (0..pages as u64).all(|page| {
        (0..HASHES.len()).any(|hash| {
            let slots = &buckets[bucket_of(page, hash, buckets.len())].lock().data;
            let count = get(&slots.count) as usize;
            if count == SLOTS {
                return false;
            }
            set(&slots.frames[count], page + 1);
            set(&slots.count, count as u64 + 1);
            true
        })
    })
}

impl Control {
    /// Pins the frame if it is pinned already.
    #[inline]
    fn pin_again(&self) -> bool {
        let mut pins = get(&self.pins);
        loop {
            if pins == 0 {
                return false;
            }
            // Acquire: pairs with the release of the thread that pinned the frame.
            match self.pins.compare_exchange(pins, pins + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => pins = now,
            }
        }
    }

    #[inline]
    fn pin(&self) {
        self.pins.fetch_add(1, Ordering::AcqRel);
    }

    #[inline]
    fn unpin(&self) {
        self.pins.fetch_add(1_u64.wrapping_neg(), Ordering::AcqRel);
    }
}

impl<'a> Session<'a> {
    /// Finds the frame of a page, and pins it.
    #[inline]
    pub(super) fn fix(&self, page: u64) -> Fixed<'a> {
        self.enter();
        let pool = &self.manager.pool;
        self.count(Counter::PagesFixed);
        self.count(Counter::PagesSought);
        let number = if self.has(Part::Pins) { self.pin(pool, page) } else { page as usize };
        let frame = &pool.frames[number];
        let control = &frame.lock().data;
        if get(&control.references) < REFERENCED {
            set(&control.references, REFERENCED);
        }
        self.count(Counter::PagesFound);
        Fixed { number, frame, page: &pool.pages[number] }
    }

    #[inline]
    fn pin(&self, pool: &Pool, page: u64) -> usize {
        self.count(Counter::HashLookups);
        for hash in 0..HASHES.len() {
            let bucket = &pool.buckets[bucket_of(page, hash, pool.buckets.len())];
            let slots = &bucket.lock().data;
            for slot in 0..get(&slots.count) as usize {
                self.count(Counter::HashProbes);
                let number = get(&slots.frames[slot]) as usize - 1;
                let control = &pool.frames[number].lock().data;
                if control.pin_again() {
                    if get(&control.page) == page {
                        return number;
                    }
                    control.unpin();
                } else {
                    let is_found = self.alone(bucket, || {
                        let is_here = get(&slots.frames[slot]) as usize == number + 1;
                        let is_found = is_here && get(&control.page) == page;
                        if is_found {
                            control.pin();
                        }
                        is_found
                    });
                    if is_found {
                        return number;
                    }
                }
            }
        }
        unreachable!("all pages are in the pool")
    }

    /// Unpins the frame of a page.
    #[inline]
    pub(super) fn unfix(&self, fixed: Fixed<'_>) {
        self.count(Counter::PagesUnfixed);
        if self.has(Part::Pins) {
            fixed.frame.lock().data.unpin();
        }
    }

    /// Runs a section under the latch of a fixed page.
    #[inline]
    pub(super) fn latched<R>(
        &self,
        fixed: Fixed<'a>,
        mode: Mode,
        mut section: impl FnMut(&'a Page) -> R,
    ) -> R {
        let control = &fixed.frame.lock().data;
        fixed.frame.section(mode, self.regions, || {
            if !self.has(Part::Holders) {
                return section(fixed.page);
            }
            let place = self.note_latch(fixed.number, mode);
            // Relaxed: a statistic. The latch orders the accesses to the page.
            control.holders.fetch_add(1, Ordering::Relaxed);
            let result = section(fixed.page);
            control.holders.fetch_add(1_u64.wrapping_neg(), Ordering::Relaxed);
            self.forget_latch(place);
            result
        })
    }

    /// Notes that a page, whose latch this thread holds exclusively, has changed at this position of the log.
    #[inline]
    pub(super) fn changed(&self, fixed: Fixed<'_>, position: u64) {
        fixed.page.set_log_position(position);
        let control = &fixed.frame.lock().data;
        if get(&control.is_dirty) == 0 {
            set(&control.is_dirty, 1);
            set(&control.recovery_position, position);
        }
    }
}
