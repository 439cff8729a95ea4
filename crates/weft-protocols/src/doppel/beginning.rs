//! When phases begin, under a protocol that adapts: when conflicts cost a worker time. And whether the load has moved: when
//! conflicts are about another place than before.

use std::mem;

use weft_htm::word::{Ordering, Word};

use super::options::PhaseOptions;

/// What conflicts cost is looked at after so many of them.
const FREQUENT_CONFLICTS: u64 = 4;

/// Phases begin if conflicts cost at least so many millionths of the time. What is done about less cannot gain the per cents
/// that it has to.
const COST_MIN: u64 = 10_000;

/// While phases rest, because nothing that was tried paid, so many conflicts are counted. If they cost so many times more than
/// when phases began last, the load has changed, and phases begin.
const RESTING_CONFLICTS: u64 = 4 * FREQUENT_CONFLICTS;
const COST_CHANGE: u64 = 3;

/// For how long a place is known after conflicts were found to be about it, in nanoseconds: longer than phases rest.
const KNOWN_NANOSECONDS: u64 = 4_000_000_000;

/// How many places are known at a time.
const PLACES: usize = 8;

/// Marks the number of a table among the addresses of records.
const TABLE: u64 = 1 << 63;

/// The candidate of a vote (R. Boyer and J. Moore, *A Fast Majority Vote Algorithm*, 1981).
#[derive(Debug, Default)]
struct Vote {
    candidate: u64,
    lead: u64,
}

impl Vote {
    fn add(&mut self, number: u64) {
        match self.lead {
            0 => *self = Vote { candidate: number, lead: 1 },
            _ if self.candidate == number => self.lead += 1,
            _ => self.lead -= 1,
        }
    }

    /// Returns what at least half of so many votes were for, if the others were not for one thing as well.
    fn winner(&self, votes: u64) -> Option<u64> {
        (self.lead * 2 >= votes).then_some(self.candidate)
    }
}

/// What the last conflicts of a worker were about.
#[derive(Debug, Default)]
pub(super) struct ConflictPlaces {
    conflicts: u64,
    /// When the first of them came, in nanoseconds.
    since: u64,
    records: Vote,
    tables: Vote,
}

impl ConflictPlaces {
    /// Counts a conflict about a record of a table. Returns the place that most conflicts are about, once there were enough
    /// of them within the length of a phase: a record, or else a table, if each is about another record, as at the head of a
    /// queue.
    pub(super) fn add(
        &mut self,
        record: u64,
        table: u64,
        now: u64,
        options: &PhaseOptions,
    ) -> Option<u64> {
        if self.conflicts == 0 {
            self.since = now;
        }
        self.conflicts += 1;
        self.records.add(record);
        self.tables.add(table | TABLE);
        if self.conflicts < RESTING_CONFLICTS {
            return None;
        }
        let counted = mem::take(self);
        let is_frequent = now.saturating_sub(counted.since) < options.length.as_nanos() as u64;
        let place = counted.records.winner(counted.conflicts);
        let place = place.or_else(|| counted.tables.winner(counted.conflicts));
        place.filter(|_| is_frequent)
    }
}

/// The places that conflicts were about lately. All workers share them.
#[derive(Debug, Default)]
pub(super) struct KnownPlaces {
    /// Each with the time until which it is known.
    places: [(Word, Word); PLACES],
    next: Word,
}

impl KnownPlaces {
    /// Notes that conflicts are about a place. Returns whether it was not known.
    pub(super) fn note(&self, place: u64, now: u64) -> bool {
        // Relaxed: two workers that come with the same place at once may both find it new. Then the same is tried once more.
        let load = |word: &Word| word.load(Ordering::Relaxed);
        let until = now + KNOWN_NANOSECONDS;
        if let Some((_, known)) = self.places.iter().find(|(known, _)| load(known) == place) {
            let is_new = load(known) < now;
            if is_new {
                known.store(until, Ordering::Relaxed);
            }
            return is_new;
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed) as usize % PLACES;
        self.places[next].0.store(place, Ordering::Relaxed);
        self.places[next].1.store(until, Ordering::Relaxed);
        true
    }
}

/// The conflicts of a worker while there are no phases.
#[derive(Debug, Default)]
pub(super) struct ConflictCount {
    conflicts: u64,
    /// When they began to be counted, in nanoseconds, and how many transactions had committed then.
    since: u64,
    committed: u64,
    /// For how long the worker has waited after them, in nanoseconds, and since when it waits. (0: it doesn't.)
    waited: u64,
    waits_since: u64,
}

impl ConflictCount {
    /// Counts a conflict. From `now` on the worker waits, until [`ConflictCount::end_wait`].
    pub(super) fn add(&mut self, now: u64) {
        self.conflicts += 1;
        self.waits_since = now;
    }

    /// Notes that the worker waits no longer.
    pub(super) fn end_wait(&mut self, now: u64) {
        self.waited += now.saturating_sub(mem::take(&mut self.waits_since));
    }

    /// Returns whether the worker waits.
    pub(super) fn waits(&self) -> bool {
        self.waits_since != 0
    }

    /// Returns what conflicts cost if phases are to begin. `committed` is the number of transactions that the worker has
    /// committed, and `cost_before` is given if phases rest: the cost when they began last.
    pub(super) fn calls_for_phases(
        &mut self,
        now: u64,
        committed: u64,
        cost_before: Option<u64>,
        options: &PhaseOptions,
    ) -> Option<u64> {
        let needed = if cost_before.is_some() { RESTING_CONFLICTS } else { FREQUENT_CONFLICTS };
        if self.conflicts < needed || !self.conflicts.is_multiple_of(FREQUENT_CONFLICTS) {
            return None;
        }
        let counted = mem::take(self);
        (self.since, self.committed, self.waits_since) = (now, committed, counted.waits_since);
        let lasted = now.saturating_sub(counted.since);
        let cost = counted.cost(lasted, committed.saturating_sub(counted.committed));
        let is_other = |before: u64| cost >= before.saturating_mul(COST_CHANGE);
        let calls = lasted < options.length.as_nanos() as u64
            && cost >= COST_MIN
            && cost_before.is_none_or(is_other);
        calls.then_some(cost)
    }

    /// Returns what conflicts cost, in millionths of the time in which transactions commit: the attempts that have failed, of
    /// which each is as long as one that commits, and the waits after them.
    fn cost(&self, lasted: u64, committed: u64) -> u64 {
        let part = |part: u64, whole: u64| part.saturating_mul(1_000_000) / whole.max(1);
        part(self.conflicts, committed) + part(self.waited, lasted.saturating_sub(self.waited))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Lets a worker have conflicts and commit transactions within a millisecond. Each wait has this length in nanoseconds.
    /// Returns what they cost if phases are to begin.
    fn cost(conflicts: u64, committed: u64, wait: u64, before: Option<u64>) -> Option<u64> {
        let mut count = ConflictCount { since: 1_000, committed: 50, ..ConflictCount::default() };
        for number in 0..conflicts {
            count.add(2_000 + 2 * number * wait);
            assert!(count.waits());
            count.end_wait(2_000 + 2 * number * wait + wait);
        }
        count.calls_for_phases(1_001_000, 50 + committed, before, &PhaseOptions::new())
    }

    #[test]
    fn phases_begin_if_conflicts_cost_much() {
        assert_eq!(cost(4, 400, 0, None), Some(10_000));
        assert_eq!(cost(4, 401, 0, None), None, "less than one for a hundred");
        assert_eq!(cost(3, 3, 0, None), None, "too few to decide");
        assert!(cost(4, 0, 0, None).is_some(), "nothing commits");
        assert_eq!(cost(4, 1_000, 2_500, None), Some(4_000 + 10_101), "waits cost time, too");
        assert_eq!(cost(4, 10_000, 2_000, None), None, "short waits");
    }

    #[test]
    fn phases_begin_again_if_conflicts_cost_more() {
        assert_eq!(cost(16, 800, 0, Some(10_000)), None, "twice as much");
        assert!(cost(16, 533, 0, Some(10_000)).is_some(), "three times as much");
        assert_eq!(cost(12, 300, 0, Some(10_000)), None, "too few to decide");
        assert_eq!(cost(16, 1_700, 0, Some(0)), None, "more than nothing, but not much");
        assert!(cost(16, 1_600, 12_500, Some(70_000)).is_some(), "waits of a fifth of the time");
    }

    #[test]
    fn conflicts_that_are_long_ago_do_not_count() {
        let mut count = ConflictCount::default();
        let length = PhaseOptions::new().length.as_nanos() as u64;
        (0..4).for_each(|_| count.add(1));
        assert_eq!(count.calls_for_phases(length, 4, None, &PhaseOptions::new()), None);
        (0..4).for_each(|_| count.add(length));
        assert!(count.calls_for_phases(length + 1, 8, None, &PhaseOptions::new()).is_some());
    }

    const LENGTH: u64 = 20_000_000;

    /// Returns the place of conflicts about these records, of which one comes in a microsecond.
    fn place(records: impl IntoIterator<Item = u64>) -> Option<u64> {
        let mut places = ConflictPlaces::default();
        let options = PhaseOptions::new();
        let added = records.into_iter().enumerate();
        added.filter_map(|(at, record)| places.add(record, 3, 1000 * at as u64, &options)).last()
    }

    #[test]
    fn conflicts_are_about_a_record_or_a_table() {
        assert_eq!(place([7; 16]), Some(7));
        assert_eq!(place([7; 15]), None, "too few");
        assert_eq!(place((0..16).map(|at| if at % 4 == 0 { at } else { 7 })), Some(7), "most");
        assert_eq!(place(100..116), Some(3 | TABLE), "each is about another record");
        let mut places = ConflictPlaces::default();
        let options = PhaseOptions::new();
        let mut rare = (0..16).filter_map(|at| places.add(7, 3, at * LENGTH / 10, &options));
        assert_eq!(rare.next(), None, "they are not frequent");
    }

    #[test]
    fn place_is_new_once_in_a_while() {
        let known = KnownPlaces::default();
        assert!(known.note(7, 10) && known.note(8, 10));
        assert!(!known.note(7, 10 + KNOWN_NANOSECONDS) && !known.note(8, 20));
        assert!(known.note(7, 11 + KNOWN_NANOSECONDS), "long ago");
        assert!(!known.note(7, 12 + KNOWN_NANOSECONDS));
        (100..100 + PLACES as u64).for_each(|other| assert!(known.note(other, 30)));
        assert!(known.note(8, 40), "others have taken its entry");
    }
}
