//! What one thread does.

use std::hint::black_box;

use weft::htm::word::{Ordering, Word};
use weft::htm::{Htm, Regions, RetryPolicy, Statistics};

use super::measured::Share;
use super::size::{LINE_BYTES, SET_STRIDE_BYTES};
use super::{Kind, Point, Size};
use crate::random::Random;

/// Memory of each thread.
pub const MEMORY_BYTES: u64 = 16 << 20;

const LINE_WORDS: usize = LINE_BYTES as usize / size_of::<Word>();
const PAGE_LINES: u64 = 4096 / LINE_BYTES;
const LINES: u64 = MEMORY_BYTES / LINE_BYTES;

/// What a thread computes between two looks at whether its region has been aborted.
const COMPUTING_STEP_NANOSECONDS: u64 = 1_000;

/// Each region is tried once.
pub fn once() -> RetryPolicy {
    RetryPolicy { conflict: 1, capacity: 1, system_event: 1 }
}

/// Time, of a processor or of the simulated machine.
pub trait Clock {
    /// Seconds since some moment.
    fn seconds(&self) -> f64;

    /// Computes for a while, without touching memory; in a region, too.
    fn compute(&self, nanoseconds: u64);
}

/// How often a region is tried: as often as the work for it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// At least so often.
    pub tries_min: u64,
    /// At most so often.
    pub tries_max: u64,
    /// Beyond the least, as long as a thread accesses no more words than this.
    pub accesses: u64,
    /// Likewise, and computes no longer than this.
    pub nanoseconds: u64,
    /// How often something is done of which one reads the price.
    pub prices: u64,
}

impl Budget {
    /// How often a thread tries a region.
    pub fn tries(&self, point: &Point) -> u64 {
        let lines = |bytes: u64| bytes.div_ceil(LINE_BYTES);
        let affordable = match point.size {
            Size::Bytes(bytes) => self.accesses / lines(bytes),
            Size::ReadAndWritten(read, written) => self.accesses / (lines(read) + lines(written)),
            Size::Lines(lines) => self.accesses / lines,
            Size::Nanoseconds(span) => self.nanoseconds / span,
            Size::Alone | Size::InRegion | Size::Empty => return self.prices,
        };
        affordable.clamp(self.tries_min, self.tries_max)
    }
}

/// A page of words.
#[repr(align(4096))]
struct Page([Word; PAGE_LINES as usize * LINE_WORDS]);

/// One thread, with memory that nobody else touches.
pub struct Client {
    pages: Box<[Page]>,
    regions: Regions,
    random: Random,
    same_place: bool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Client").field("regions", &self.regions).finish_non_exhaustive()
    }
}

impl Client {
    /// The client of the `thread`-th thread. With `same_place`, all regions of a point are at one place,
    /// chosen at random; else each is at another.
    pub fn new(htm: &Htm, seed: u64, thread: usize, same_place: bool) -> Client {
        let page = |_| Page(std::array::from_fn(|_| Word::new(1)));
        Client {
            pages: (0..LINES / PAGE_LINES).map(page).collect(),
            regions: Regions::new(htm),
            random: Random::new(seed, thread as u64),
            same_place,
        }
    }

    /// Tries the regions of a point so many times, and tells what became of them.
    pub fn run(&mut self, point: &Point, tries: u64, clock: &impl Clock) -> Share {
        // What is not in memory would be a fault, which aborts every region that meets it.
        self.pages.iter().for_each(|page| page.0[0].store(1, Ordering::Relaxed));
        let before = self.regions.statistics();
        let begin = clock.seconds();
        self.attempt(point, tries, clock);
        let seconds = clock.seconds() - begin;
        let regions = since(&before, self.regions.statistics());
        Share { tries, seconds, regions, same_place: self.same_place }
    }

    /// The loops: one for each experiment, so that nothing but the region is repeated.
    fn attempt(&mut self, point: &Point, tries: u64, clock: &impl Clock) {
        let in_line = |bytes: u64| bytes.div_ceil(LINE_BYTES);
        match (point.kind, point.size) {
            (Kind::Writes, Size::Bytes(bytes)) => {
                let lines = in_line(bytes);
                self.repeat(tries, lines, |page, _| page.write(0..lines));
            }
            (Kind::Reads, Size::Bytes(bytes)) => {
                let lines = in_line(bytes);
                self.repeat(tries, lines, |page, _| page.read(0..lines));
            }
            (Kind::RandomWrites, Size::Bytes(bytes)) => {
                let lines = in_line(bytes);
                self.repeat(tries, LINES, |page, key| page.write(scattered(lines, key)));
            }
            (Kind::RandomReads, Size::Bytes(bytes)) => {
                let lines = in_line(bytes);
                self.repeat(tries, LINES, |page, key| page.read(scattered(lines, key)));
            }
            (Kind::OneSet, Size::Lines(lines)) => {
                let stride = SET_STRIDE_BYTES / LINE_BYTES;
                let set = |key: u64| (0..lines).map(move |line| line * stride + key % PAGE_LINES);
                self.repeat(tries, lines * stride, |page, key| page.write(set(key)));
            }
            (Kind::ReadsFirst, Size::ReadAndWritten(read, written)) => {
                let (read, written) = (in_line(read), in_line(written));
                self.repeat(tries, read + written, |page, _| {
                    page.read(0..read);
                    page.write(read..read + written);
                });
            }
            (Kind::WritesFirst, Size::ReadAndWritten(read, written)) => {
                let (read, written) = (in_line(read), in_line(written));
                self.repeat(tries, read + written, |page, _| {
                    page.write(read..read + written);
                    page.read(0..read);
                });
            }
            (Kind::Duration, Size::Nanoseconds(span)) => self.repeat(tries, 1, |_, _| {
                let steps = span / COMPUTING_STEP_NANOSECONDS;
                (0..steps).for_each(|_| clock.compute(COMPUTING_STEP_NANOSECONDS));
                clock.compute(span % COMPUTING_STEP_NANOSECONDS);
            }),
            (Kind::Price, Size::Alone) => {
                let word = &self.pages[0].0[0];
                (0..tries).for_each(|_| black_box(word).store(1, Ordering::Relaxed));
            }
            (Kind::Price, Size::InRegion) => {
                let word = &self.pages[0].0[0];
                for _ in 0..tries {
                    let store = || black_box(word).store(1, Ordering::Relaxed);
                    let _ = self.regions.run(|_| store(), || false);
                }
            }
            (Kind::Price, Size::Empty) => {
                for _ in 0..tries {
                    let _ = self.regions.run(|_| (), || false);
                }
            }
            (kind, size) => unreachable!("{size} is no size of {kind}"),
        }
    }

    /// Tries one region after the other: each somewhere in memory, with a random number for whatever
    /// else it chooses.
    fn repeat(&mut self, tries: u64, lines: u64, body: impl Fn(Span<'_>, u64)) {
        let pages = lines.div_ceil(PAGE_LINES).max(1);
        let places = (LINES / PAGE_LINES).checked_sub(pages).expect("sizes are bounded");
        let mut draw = || (self.random.0.u64(0..=places), self.random.0.u64(..));
        let mut place = draw();
        for _ in 0..tries {
            let (first, key) = place;
            if !self.same_place {
                place = draw();
            }
            let span = Span(&self.pages[first as usize..]);
            // A region that aborts is counted, and that is all.
            let _ = self.regions.run(|_| body(span, key), || false);
        }
    }
}

/// Pages from where a working set begins.
#[derive(Clone, Copy)]
struct Span<'a>(&'a [Page]);

impl Span<'_> {
    #[inline(always)]
    fn word(&self, line: u64) -> &Word {
        let page = &self.0[(line / PAGE_LINES) as usize];
        &page.0[(line % PAGE_LINES) as usize * LINE_WORDS]
    }

    // Relaxed, both: nobody else touches them.

    #[inline(always)]
    fn read(&self, lines: impl Iterator<Item = u64>) {
        for line in lines {
            black_box(self.word(line).load(Ordering::Relaxed));
        }
    }

    #[inline(always)]
    fn write(&self, lines: impl Iterator<Item = u64>) {
        lines.for_each(|line| self.word(line).store(2, Ordering::Relaxed));
    }
}

/// So many lines of all, each at most once, in an order that looks random and depends on `key`. It is
/// computed: a list of them would be read by the region as well.
fn scattered(lines: u64, key: u64) -> impl Iterator<Item = u64> {
    const BITS: u32 = LINES.trailing_zeros();
    // Each step maps the lines one to one: an addition and multiplications by odd numbers, modulo a
    // power of two, and folding the upper half of the bits into the lower.
    let mix = move |line: u64| {
        let mut mixed = line.wrapping_add(key) % LINES;
        for odd in [0x9E37_79B9 | 1, key >> 32 | 1, 0x85EB_CA6B] {
            mixed = mixed.wrapping_mul(odd) % LINES;
            mixed ^= mixed >> (BITS / 2);
        }
        mixed
    };
    (0..lines).map(mix)
}

fn since(before: &Statistics, after: Statistics) -> Statistics {
    Statistics {
        started: after.started - before.started,
        committed: after.committed - before.committed,
        aborted_conflict: after.aborted_conflict - before.aborted_conflict,
        aborted_capacity: after.aborted_capacity - before.aborted_capacity,
        aborted_system_event: after.aborted_system_event - before.aborted_system_event,
        aborted_explicit: after.aborted_explicit - before.aborted_explicit,
        fallbacks: after.fallbacks - before.fallbacks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects "each at most once": of all lines, in whatever order, each comes exactly once.
    #[test]
    fn scattering_is_one_to_one() {
        for key in [0, 1, u64::MAX, 0x1234_5678_9ABC_DEF0] {
            let mut seen = vec![false; LINES as usize];
            for line in scattered(LINES, key) {
                assert!(!std::mem::replace(&mut seen[line as usize], true), "{line}, key {key}");
            }
        }
    }

    /// Protects that the lines spread over the sets of a cache as if drawn: a few lines of many
    /// keys, of which no set gets much more than its share.
    #[test]
    fn scattering_fills_sets_alike() {
        const SEED: u64 = 5;
        let mut random = Random::new(SEED, 0);
        let mut sets = [0_u32; PAGE_LINES as usize];
        for _ in 0..10_000 {
            for line in scattered(64, random.0.u64(..)) {
                sets[(line % PAGE_LINES) as usize] += 1;
            }
        }
        assert!(
            sets.iter().all(|&count| (9_000..11_000).contains(&count)),
            "seed {SEED}: {sets:?}"
        );
    }
}
