//! Contention points: where transactions have lost, and what is done there.
//!
//! A point is a record, or the place where scans of a range begin. The table of points is small. A point without an
//! entry takes the place of one at which nothing is done. Different points that share an entry only queue for each
//! other.
//!
//! **What is done is decided by measuring.** Points at which transactions lose are *tried* together: for a few windows
//! of time they are ordered, in every other one of them. If more transactions have committed in the windows with order,
//! by more than chance explains, the points stay ordered, and are tried again later. If not, they are left alone for a
//! time that doubles. Ranges are tried apart from records, since one of the two may cost more than the other gains: order
//! at the head of TPC-C's queues gains, and order at its districts does not.
//!
//! A window of a millisecond has some hundred transactions, of which some are ten times as long as others. So windows
//! differ by a tenth without any cause, and by more if a thread loses its core. Therefore a window with order is compared
//! with the one after it, and the median of all pairs counts, with its standard error.

use std::sync::{Mutex, PoisonError};

use arrayvec::ArrayVec;
use weft::encoding::EncodedKey;
use weft::store::record::arena::CHUNK_BYTES;
use weft::store::table::TableRef;
use weft_htm::word::{Ordering, Word};

use super::claims::Claims;
use super::queue::Queue;
use crate::turn::TurnLock;

/// The number of entries.
const POINTS: usize = 64;

/// Points are tried after this many losses; the counts are halved every `WINDOWS_PER_HALVING` windows.
const LOSSES_TO_TRY: u64 = 4;
const WINDOWS_PER_HALVING: u64 = 16;

/// The least length of a window, in nanoseconds, and the fewest commits in it.
const WINDOW_NANOSECONDS: u64 = 1_000_000;
const WINDOW_COMMITS: u64 = 64;

/// How many windows of each kind a trial has at least and at most.
const TRIAL_WINDOWS_MIN: usize = 6;
const TRIAL_WINDOWS_MAX: usize = 24;

/// The least gain of order that is worth it, as a share of the throughput.
const GAIN_MIN: f64 = 0.02;

/// By how many standard errors the gain must be above 0 for order to be chosen: before the end of a trial, where it is
/// looked at again and again, and at its end.
const ERRORS_EARLY: f64 = 3.0;
const ERRORS_AT_THE_END: f64 = 2.0;
/// By how many it must be below `GAIN_MIN` for a trial to be given up. That costs little: there is another one later.
const ERRORS_TO_GIVE_UP: f64 = 1.0;

/// For how long points are left alone, or stay ordered, before they are tried again, in nanoseconds: at first and at most.
const RETRY_MIN: u64 = 64_000_000;
const RETRY_MAX: u64 = 4_096_000_000;

/// The action that the protocol takes at a point.
const NOTHING: u64 = 0;
const TRIED: u64 = 1;
const ORDERED: u64 = 2;

/// Bits of the mode: whether any point is ordered, and whether those that are tried are.
const ANY_ORDERED: u64 = 1;
const TRIED_ORDERED: u64 = 2;

/// By which accesses transactions have lost at a point. Only such accesses queue for it.
pub const READS: u64 = 1;
pub const WRITES: u64 = 2;
pub const OPERATIONS: u64 = 4;

/// The table and the key of a point, for reports.
#[derive(Clone)]
pub struct Place {
    pub table: TableRef,
    /// The key of a record, or `None` for a range.
    pub key: Option<EncodedKey>,
}

// SAFETY: tables are shared by all workers, and live as long as the database.
unsafe impl Send for Place {}

/// An entry of the table of points.
#[derive(Default)]
struct Point {
    /// The number that stands for the record or the range.
    number: Word,
    done: Word,
    accesses: Word,
    losses: Word,
    /// When the decision was made, in nanoseconds.
    since: Word,
    /// Until when the point is left alone, and for how long, in nanoseconds.
    left_until: Word,
    left_for: Word,
    place: Mutex<Option<Place>>,
    queue: Queue,
}

/// The contention points of a database.
pub struct Points {
    points: Box<[Point]>,
    pub claims: Claims,
    mode: Mode,
    review: TurnLock<Review>,
    is_forced: bool,
}

/// The mode, on a cache line of its own: every transaction reads it.
#[repr(align(128))]
#[derive(Default)]
struct Mode(Word);

/// The measurements, and the trial under way.
#[derive(Default)]
struct Review {
    /// The number of the present window, when it began, and how many transactions had committed then.
    window: u64,
    began: u64,
    committed_before: u64,
    trial: Option<Trial>,
    /// Whether the points that were tried last are ranges.
    were_ranges: bool,
    /// When ordered points are tried again, and how long after that once more, in nanoseconds.
    retry_at: u64,
    retry_after: u64,
    /// What decides if decisions are forced.
    random: Option<fastrand::Rng>,
}

/// A trial: how many transactions have committed per second in windows with order, and in windows without.
#[derive(Clone, Debug, Default)]
struct Trial {
    ordered: ArrayVec<f64, TRIAL_WINDOWS_MAX>,
    free: ArrayVec<f64, TRIAL_WINDOWS_MAX>,
    /// Whether the points were ordered before. Then it is enough that order seems to gain.
    repeats: bool,
}

/// Returns the median of some numbers. There must be one.
fn median(mut numbers: ArrayVec<f64, TRIAL_WINDOWS_MAX>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    (numbers[numbers.len() / 2] + numbers[(numbers.len() - 1) / 2]) / 2.0
}

impl Trial {
    fn add(&mut self, is_ordered: bool, (commits, time): (u64, u64)) {
        let rates = if is_ordered { &mut self.ordered } else { &mut self.free };
        // The capacity suffices, since a full trial has a verdict.
        let _ = rates.try_push(commits as f64 / time.max(1) as f64);
    }

    /// Returns the gain of order, as a share of the throughput, and its standard error.
    fn gain(&self) -> (f64, f64) {
        let pairs = self.ordered.iter().zip(&self.free);
        let gains: ArrayVec<f64, TRIAL_WINDOWS_MAX> =
            pairs.map(|(ordered, free)| 2.0 * (ordered - free) / (ordered + free)).collect();
        let gain = median(gains.clone());
        let number = gains.len() as f64;
        let deviation = median(gains.into_iter().map(|it| (it - gain).abs()).collect());
        // The standard deviation is 1.48 times the median deviation, and that of a median 1.25 times that of a mean, if the
        // numbers are normally distributed.
        (gain, 1.48 * deviation * 1.25 / number.sqrt())
    }

    /// Returns whether order pays, as soon as that is decided.
    fn verdict(&self) -> Option<bool> {
        let windows = self.ordered.len();
        // Both kinds of windows must have been measured equally often.
        if windows != self.free.len() || windows < TRIAL_WINDOWS_MIN {
            return None;
        }
        let (gain, error) = self.gain();
        let is_last = windows == TRIAL_WINDOWS_MAX;
        let errors = if is_last { ERRORS_AT_THE_END } else { ERRORS_EARLY };
        if gain >= GAIN_MIN && (gain > errors * error || (is_last && self.repeats)) {
            return Some(true);
        }
        (is_last || gain + ERRORS_TO_GIVE_UP * error < GAIN_MIN).then_some(false)
    }
}

/// A queue that a transaction is to enter, with its position in the table.
pub struct Entry<'a> {
    pub position: usize,
    pub queue: &'a Queue,
}

/// Returns the number that stands for a range of a table, of which `start` is the hash of its beginning. Numbers of records
/// are their addresses.
pub fn number_of_range(table: TableRef, start: u64) -> u64 {
    // The table's number keeps equal ranges of different tables apart.
    start.rotate_left(table.core().number as u32) | 1
}

/// Returns whether a number stands for a range.
fn is_range(number: u64) -> bool {
    number & 1 != 0
}

impl Points {
    /// Returns a table in which nothing is done yet. With `forced_by_seed`, random numbers from this seed decide what is
    /// done, and not measurements.
    pub fn new(forced_by_seed: Option<u64>) -> Points {
        let random = forced_by_seed.map(fastrand::Rng::with_seed);
        Points {
            points: (0..POINTS).map(|_| Point::default()).collect(),
            claims: Claims::default(),
            mode: Mode::default(),
            review: TurnLock::new(Review { random, ..Review::default() }),
            is_forced: forced_by_seed.is_some(),
        }
    }

    /// Returns the mode. If it is 0, nothing is ordered.
    #[inline(always)]
    pub fn mode(&self) -> u64 {
        // Relaxed: the queues only advise.
        self.mode.0.load(Ordering::Relaxed)
    }

    pub fn queue(&self, position: usize) -> &Queue {
        &self.points[position].queue
    }

    /// Returns the position of a point's entry.
    fn position(&self, number: u64) -> usize {
        // The system chooses where chunks are. So that a seed repeats a run, the place in the chunk decides.
        let number = match self.is_forced && !is_range(number) {
            true => number % CHUNK_BYTES as u64,
            false => number,
        };
        (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize
    }

    /// Returns the queue for this access to a point, if there is one in this mode.
    pub fn find(&self, number: u64, access: u64, mode: u64) -> Option<Entry<'_>> {
        let position = self.position(number);
        let point = &self.points[position];
        // Relaxed: all of this only advises.
        let load = |word: &Word| word.load(Ordering::Relaxed);
        let is_ordered = match load(&point.done) {
            ORDERED => true,
            TRIED => mode & TRIED_ORDERED != 0,
            _ => false,
        };
        let is_this = self.is_forced
            || (load(&point.number) == number && load(&point.accesses) & access != 0);
        (is_ordered && is_this).then_some(Entry { position, queue: &point.queue })
    }

    /// Counts that a transaction has lost at a point, by this access. `place` returns the point's place.
    #[cold]
    pub fn note_loss(&self, number: u64, access: u64, place: impl FnOnce() -> Option<Place>) {
        let point = &self.points[self.position(number)];
        // Relaxed: see `find`. If two workers give the entry to different points, it has parts of both.
        let load = |word: &Word| word.load(Ordering::Relaxed);
        if load(&point.number) != number {
            if load(&point.done) != NOTHING || load(&point.losses) >= LOSSES_TO_TRY {
                return;
            }
            let place = place();
            *point.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
            point.number.store(number, Ordering::Relaxed);
            for word in [&point.accesses, &point.losses, &point.left_until, &point.left_for] {
                word.store(0, Ordering::Relaxed);
            }
        }
        if load(&point.accesses) & access == 0 {
            point.accesses.store(load(&point.accesses) | access, Ordering::Relaxed);
        }
        point.losses.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a window if it is long enough, and decides what is done. `committed` transactions have committed until
    /// `now`, in nanoseconds. Returns whether anything is done or tried.
    pub fn review(&self, committed: u64, now: u64) -> bool {
        let Some(mut review) = self.review.try_take() else { return true };
        if let Some(random) = &mut review.random {
            return self.decide_at_random(random, now);
        }
        let window =
            (committed.saturating_sub(review.committed_before), now.saturating_sub(review.began));
        if window.1 >= WINDOW_NANOSECONDS && (window.0 >= WINDOW_COMMITS || review.began == 0) {
            let is_first = review.began == 0;
            (review.committed_before, review.began) = (committed, now);
            review.window += 1;
            // Nothing was looked at for long, so that the window says nothing.
            if !is_first && window.1 < 64 * WINDOW_NANOSECONDS {
                self.end_window(&mut review, window, now);
            }
        }
        review.trial.is_some() || self.mode() != 0
    }

    fn end_window(&self, review: &mut Review, window: (u64, u64), now: u64) {
        let is_ordered = self.mode() & TRIED_ORDERED != 0;
        match review.trial.take() {
            Some(mut trial) => {
                trial.add(is_ordered, window);
                match trial.verdict() {
                    Some(pays) => self.end_trial(review, pays, now),
                    None => {
                        review.trial = Some(trial);
                        self.mode.0.store(self.mode() ^ TRIED_ORDERED, Ordering::Relaxed);
                    }
                }
            }
            None => {
                review.trial = self.begin_trial(review, now);
                if review.trial.is_some() {
                    self.mode.0.store(ANY_ORDERED | TRIED_ORDERED, Ordering::Relaxed);
                }
            }
        }
        if review.window.is_multiple_of(WINDOWS_PER_HALVING) {
            for point in &self.points {
                point.losses.store(point.losses.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
    }

    /// Begins a trial of the points that are due, if there are any: ranges and records in turns, and those that are ordered
    /// apart from those that are not.
    fn begin_trial(&self, review: &mut Review, now: u64) -> Option<Trial> {
        let load = |word: &Word| word.load(Ordering::Relaxed);
        let repeats = now >= review.retry_at && self.mode() != 0;
        let is_due = |point: &&Point| match load(&point.done) {
            NOTHING => {
                !repeats && load(&point.losses) >= LOSSES_TO_TRY && load(&point.left_until) <= now
            }
            _ => repeats,
        };
        for ranges in [!review.were_ranges, review.were_ranges] {
            let of_kind = |point: &&Point| is_range(load(&point.number)) == ranges;
            let mut is_any = false;
            for point in self.points.iter().filter(of_kind).filter(is_due) {
                point.done.store(TRIED, Ordering::Relaxed);
                point.since.store(now, Ordering::Relaxed);
                is_any = true;
            }
            if is_any {
                review.were_ranges = ranges;
                return Some(Trial { repeats, ..Trial::default() });
            }
        }
        None
    }

    fn end_trial(&self, review: &mut Review, pays: bool, now: u64) {
        let load = |word: &Word| word.load(Ordering::Relaxed);
        let mut mode = 0;
        for point in &self.points {
            if load(&point.done) == TRIED {
                point.since.store(now, Ordering::Relaxed);
                if pays {
                    point.done.store(ORDERED, Ordering::Relaxed);
                    point.left_for.store(0, Ordering::Relaxed);
                } else {
                    let left_for = (load(&point.left_for) * 2).clamp(RETRY_MIN, RETRY_MAX);
                    point.left_for.store(left_for, Ordering::Relaxed);
                    point.left_until.store(now + left_for, Ordering::Relaxed);
                    point.done.store(NOTHING, Ordering::Relaxed);
                }
            }
            if load(&point.done) == ORDERED {
                mode = ANY_ORDERED;
            }
        }
        review.retry_after = match pays {
            true => (review.retry_after * 2).clamp(RETRY_MIN, RETRY_MAX),
            false => RETRY_MIN,
        };
        review.retry_at = now + review.retry_after;
        self.mode.0.store(mode, Ordering::Relaxed);
    }

    /// Changes what is done at some points, for tests. Returns what `review` is to return.
    fn decide_at_random(&self, random: &mut fastrand::Rng, now: u64) -> bool {
        for _ in 0..4 {
            let point = &self.points[random.usize(..POINTS)];
            point.done.store(random.u64(..3), Ordering::Relaxed);
            point.since.store(now, Ordering::Relaxed);
        }
        self.mode.0.store(random.u64(..4), Ordering::Relaxed);
        random.u8(..4) > 0
    }

    /// Returns the places of the points that are ordered or tried, whether they are ordered, and when that was decided.
    pub fn report(&self) -> Vec<(Place, bool, u64)> {
        let load = |word: &Word| word.load(Ordering::Relaxed);
        let reported = |point: &Point| {
            let place = point.place.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
            match load(&point.done) {
                NOTHING => None,
                done => Some((place, done == ORDERED, load(&point.since))),
            }
        };
        self.points.iter().filter_map(reported).collect()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const RANGE: u64 = 9;

    /// Lets windows pass, in which `rate` returns the commits by whether the point is ordered.
    fn pass_windows(
        points: &Points,
        clock: &mut (u64, u64),
        windows: usize,
        rate: impl Fn(bool) -> u64,
    ) {
        for _ in 0..windows {
            let is_ordered = points.find(7, WRITES, points.mode()).is_some();
            clock.0 += rate(is_ordered);
            clock.1 += WINDOW_NANOSECONDS;
            points.review(clock.0, clock.1);
        }
    }

    #[test]
    fn point_is_ordered_only_if_order_is_faster() {
        for (faster, slower) in [(1200, 1000), (1000, 1200)] {
            let points = Points::new(None);
            let mut clock = (0, 1);
            let rate = |is_ordered| if is_ordered { faster } else { slower };
            pass_windows(&points, &mut clock, 3, rate);
            (0..LOSSES_TO_TRY).for_each(|_| points.note_loss(7, WRITES, || None));
            pass_windows(&points, &mut clock, 2 * TRIAL_WINDOWS_MAX + 2, rate);
            let is_ordered = points.find(7, WRITES, points.mode()).is_some();
            assert_eq!(is_ordered, faster > slower);
            assert!(points.find(7, READS, points.mode()).is_none(), "reads have not lost");
            assert!(points.find(8, WRITES, points.mode()).is_none(), "another point");
        }
    }

    /// A range where order gains much stays ordered, although order at a record costs more.
    #[test]
    fn ranges_are_tried_apart_from_records() {
        let points = Points::new(None);
        let mut clock = (0, 1);
        let is_ordered = |number| points.find(number, READS, points.mode()).is_some();
        let rate = || match (is_ordered(RANGE), is_ordered(16)) {
            (range, false) => 1000 + 200 * u64::from(range),
            (range, true) => 500 + 200 * u64::from(range),
        };
        for window in 0..4 * TRIAL_WINDOWS_MAX + 6 {
            if window == 3 {
                (0..LOSSES_TO_TRY).for_each(|_| points.note_loss(RANGE, READS, || None));
                (0..LOSSES_TO_TRY).for_each(|_| points.note_loss(16, READS, || None));
            }
            clock.0 += rate();
            clock.1 += WINDOW_NANOSECONDS;
            points.review(clock.0, clock.1);
        }
        assert!(is_ordered(RANGE) && !is_ordered(16));
    }

    /// Order costs one in twenty, and windows differ by a fifth: with luck alone it is hardly ever chosen. If it gains a
    /// fifth, it is.
    #[test]
    fn luck_does_not_decide() {
        let chosen = |gain: f64| {
            let tries = 2_000;
            let mut random = fastrand::Rng::with_seed(3);
            let mut chosen = 0;
            for _ in 0..tries {
                let mut trial = Trial::default();
                let verdict = loop {
                    for is_ordered in [true, false] {
                        let noise = (0..3).map(|_| random.f64() - 0.5).sum::<f64>() * 0.2;
                        let gain = if is_ordered { gain } else { 0.0 };
                        trial.add(is_ordered, ((1e6 * (1.0 + gain + noise)) as u64, 1_000));
                    }
                    if let Some(verdict) = trial.verdict() {
                        break verdict;
                    }
                };
                chosen += usize::from(verdict);
            }
            chosen as f64 / f64::from(tries)
        };
        assert!(chosen(-0.05) < 0.03, "{}", chosen(-0.05));
        assert!(chosen(0.2) > 0.9, "{}", chosen(0.2));
    }

    #[test]
    fn order_ends_when_it_does_not_pay_any_more() {
        let points = Points::new(None);
        let mut clock = (0, 1);
        pass_windows(&points, &mut clock, 3, |_| 1000);
        (0..LOSSES_TO_TRY).for_each(|_| points.note_loss(7, WRITES, || None));
        let gain = |is_ordered| if is_ordered { 1500 } else { 1000 };
        pass_windows(&points, &mut clock, 2 * TRIAL_WINDOWS_MAX + 2, gain);
        assert!(points.find(7, WRITES, points.mode()).is_some());
        let loss = |is_ordered| if is_ordered { 1000 } else { 1100 };
        pass_windows(
            &points,
            &mut clock,
            (RETRY_MIN / WINDOW_NANOSECONDS) as usize + 2 * TRIAL_WINDOWS_MAX + 2,
            loss,
        );
        assert_eq!(points.mode(), 0, "tried again, and given up");
    }

    /// Returns the decisions after each of some reviews, the first of which is at `now`, and whether anything was done.
    fn forced_decisions(seed: u64, now: u64) -> Vec<(Vec<u64>, u64, bool)> {
        let points = Points::new(Some(seed));
        let review = |number| {
            let is_at_work = points.review(number, now + number);
            let done = points.points.iter().map(|point| point.done.load(Ordering::Relaxed));
            (done.collect(), points.mode(), is_at_work)
        };
        (0..20).map(review).collect()
    }

    #[test]
    fn forced_decisions_follow_from_the_seed_and_not_from_the_clock() {
        assert_eq!(forced_decisions(5, 1), forced_decisions(5, 1_000_000));
        assert_ne!(forced_decisions(5, 1), forced_decisions(6, 1));
    }

    #[test]
    fn entry_with_losses_is_not_given_to_another_point() {
        let points = Points::new(None);
        let other = (8..).find(|&other| points.position(other) == points.position(7)).unwrap();
        (0..LOSSES_TO_TRY).for_each(|_| points.note_loss(7, WRITES, || None));
        points.note_loss(other, WRITES, || None);
        let point = &points.points[points.position(7)];
        assert_eq!(point.number.load(Ordering::Relaxed), 7);
        assert_eq!(point.losses.load(Ordering::Relaxed), LOSSES_TO_TRY);
    }
}
