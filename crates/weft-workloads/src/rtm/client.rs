//! The clients of the experiments on hardware regions: what each thread does.

use std::hint::black_box;
use std::ops::Range;

use weft::htm::word::{Ordering, Word};
use weft::htm::{Htm, Regions, RetryPolicy, Statistics};

use super::measured::Share;
use super::size::{LINE_BYTES, SET_STRIDE_BYTES};
use super::{Kind, Point, Size};
use crate::random::Random;

/// The memory of each thread, in bytes.
pub const MEMORY_BYTES: u64 = 16 << 20;

const LINE_WORDS: usize = LINE_BYTES as usize / size_of::<Word>();
const PAGE_LINES: u64 = 4096 / LINE_BYTES;
const LINES: u64 = MEMORY_BYTES / LINE_BYTES;

/// How long a thread computes between two checks whether its region was aborted.
const COMPUTING_STEP_NANOSECONDS: u64 = 1_000;

/// Returns a retry policy that tries each region once.
pub fn once() -> RetryPolicy {
    RetryPolicy { conflict: 1, capacity: 1, system_event: 1 }
}

/// The clock of a processor or of the simulated machine.
pub trait Clock {
    /// Returns seconds since a fixed moment.
    fn seconds(&self) -> f64;

    /// Computes for this time, without accessing memory; also inside a region.
    fn compute(&self, nanoseconds: u64);
}

/// Limits on the number of tries of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The minimum number of tries.
    pub tries_min: u64,
    /// The maximum number of tries.
    pub tries_max: u64,
    /// Above the minimum, the number of words that a thread may access in all tries.
    pub accesses: u64,
    /// Above the minimum, the nanoseconds that a thread may compute in all tries.
    pub nanoseconds: u64,
    /// The number of repetitions for measuring a price.
    pub prices: u64,
}

impl Budget {
    /// Returns the number of tries of a thread.
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

/// A client, with memory that no other thread accesses.
pub struct Client {
    pages: Box<[Page]>,
    regions: Regions,
    random: Random,
    same_place: bool,
    has_twins: bool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Client").field("regions", &self.regions).finish_non_exhaustive()
    }
}

impl Client {
    /// Creates the client of the `thread`-th thread. With `same_place`, all regions of a point are at one random
    /// place; else each is at another.
    pub fn new(htm: &Htm, seed: u64, thread: usize, same_place: bool) -> Client {
        let page = |_| Page(std::array::from_fn(|_| Word::new(1)));
        Client {
            pages: (0..LINES / PAGE_LINES).map(page).collect(),
            regions: Regions::new(htm),
            random: Random::new(seed, thread as u64),
            same_place,
            has_twins: false,
        }
    }

    /// Returns the addresses of the client's memory, which consists of whole pages.
    pub fn addresses(&self) -> Range<u64> {
        let pages = self.pages.as_ptr_range();
        pages.start.addr() as u64..pages.end.addr() as u64
    }

    /// Returns the number of pages whose first word a region or its twin has written.
    #[cfg(test)]
    pub(super) fn written_pages(&self) -> usize {
        self.pages.iter().filter(|page| page.0[0].load(Ordering::Relaxed) == 2).count()
    }

    /// Lets the client repeat each aborted region without a region, as a software twin would.
    pub fn with_twins(self) -> Client {
        Client { has_twins: true, ..self }
    }

    /// Touches all pages. A page that is not in memory would fault, and a fault aborts every region that accesses
    /// it.
    pub fn touch_pages(&self) {
        self.pages.iter().for_each(|page| page.0[0].store(1, Ordering::Relaxed));
    }

    /// Tries the regions of a point `tries` times, and returns the counts.
    pub fn run(&mut self, point: &Point, tries: u64, clock: &impl Clock) -> Share {
        let before = self.regions.statistics();
        let begin = clock.seconds();
        self.attempt(point, tries, clock);
        let seconds = clock.seconds() - begin;
        let regions = since(&before, self.regions.statistics());
        Share { tries, seconds, regions, same_place: self.same_place }
    }

    /// Runs the loop of an experiment. Each experiment has its own loop, so that only the region is repeated.
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
            (kind, size) => unreachable!("{size} is not a size of {kind}"),
        }
    }

    /// Tries one region after the other, each at a random place in memory. `body` gets a random number for its own
    /// choices.
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
            // An aborted region is counted, and not retried.
            let committed = self.regions.run(|_| body(span, key), || false);
            if committed.is_none() && self.has_twins {
                body(span, key);
            }
        }
    }
}

/// The pages from the begin of a working set on.
#[derive(Clone, Copy)]
struct Span<'a>(&'a [Page]);

impl Span<'_> {
    #[inline(always)]
    fn word(&self, line: u64) -> &Word {
        let page = &self.0[(line / PAGE_LINES) as usize];
        &page.0[(line % PAGE_LINES) as usize * LINE_WORDS]
    }

    // Relaxed, both: no other thread accesses them.

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

/// Returns `lines` lines, each at most once, in an order that looks random and depends on `key`. The order is
/// computed, because a region would have to read a list of lines as well.
fn scattered(lines: u64, key: u64) -> impl Iterator<Item = u64> {
    const BITS: u32 = LINES.trailing_zeros();
    // Each step is a bijection on the lines: an addition, multiplications by odd numbers modulo a power of two, and
    // folding the upper half of the bits into the lower.
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

    /// Protects "each at most once": in the order of all lines, each occurs exactly once.
    #[test]
    fn scattering_is_one_to_one() {
        for key in [0, 1, u64::MAX, 0x1234_5678_9ABC_DEF0] {
            let mut seen = vec![false; LINES as usize];
            for line in scattered(LINES, key) {
                assert!(!std::mem::replace(&mut seen[line as usize], true), "{line}, key {key}");
            }
        }
    }

    /// Protects that the lines spread over the sets of a cache as random ones do: with a few lines of many keys, no
    /// set gets much more than its share.
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
