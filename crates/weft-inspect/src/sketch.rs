//! The points at which a worker's transactions have lost most time, in bounded memory.
//!
//! This is the Space-Saving sketch of A. Metwally, D. Agrawal and A. El Abbadi ("Efficient Computation of Frequent and
//! Top-k Elements in Data Streams", ICDT 2005), weighted by the time lost. It remembers a fixed number of points. A point
//! that is not among them takes the place of the one with the least weight, and inherits its weight as a possible error.
//! So a point is missing only if it has lost no more than the least weight.

use rustc_hash::FxHashMap;
use weft::ConflictReason;
use weft::encoding::EncodedKey;
use weft::store::table::TableRef;

/// How many points a worker remembers.
pub(crate) const POINTS_MAX: usize = 256;

/// How many labels are remembered of a point.
const LABELS_MAX: usize = 8;

/// How many changes of its row are remembered of a point.
const CHANGES_MAX: usize = 8;

/// Counts of attempts that were aborted, by reason.
pub(crate) type ByReason = [u64; ConflictReason::ALL.len()];

/// A point, as a worker finds it: by the addresses of the table and of the record. The second is 0 for a range.
pub(crate) type Place = (usize, usize);

/// Returns the address that stands for a table or an index.
pub(crate) fn address_of(table: TableRef) -> usize {
    std::ptr::from_ref(table.core()).addr()
}

/// The counts and times of a point.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub table: TableRef,
    /// The key of the record, or `None` for a range.
    pub key: Option<EncodedKey>,
    /// The time lost, with that of the points before it in this place.
    pub weight: u64,
    /// The part of the weight that belongs to points before it.
    pub error: u64,
    pub waits: u64,
    pub waiting_ns: u64,
    pub repairs: u64,
    /// How often transactions have conflicted here, repairs included.
    pub conflicts: u64,
    pub labels: Vec<LabelAt>,
    /// The last changes of the row that were sampled: its stored form before and after.
    pub changes: Vec<(Vec<u8>, Vec<u8>)>,
    /// How many changes were sampled.
    pub sampled: u64,
}

/// What transactions with a label did at a point.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LabelAt {
    pub label: usize,
    pub aborts: ByReason,
    pub lost_ns: u64,
    pub writes: u64,
}

impl Point {
    pub fn new(table: TableRef, key: Option<EncodedKey>) -> Point {
        Point {
            table,
            key,
            weight: 0,
            error: 0,
            waits: 0,
            waiting_ns: 0,
            repairs: 0,
            conflicts: 0,
            labels: Vec::new(),
            changes: Vec::new(),
            sampled: 0,
        }
    }

    /// Returns the entry of a label. If there are too many labels, a new one takes the place of one with few aborts.
    pub fn label(&mut self, label: usize) -> &mut LabelAt {
        let position = match self.labels.iter().position(|known| known.label == label) {
            Some(position) => position,
            None if self.labels.len() < LABELS_MAX => {
                self.labels.push(LabelAt { label, ..LabelAt::default() });
                self.labels.len() - 1
            }
            None => {
                let of_least = self.labels.iter().enumerate().min_by_key(|(_, at)| at.lost_ns);
                let position = of_least.map_or(0, |(position, _)| position);
                self.labels[position].label = label;
                position
            }
        };
        &mut self.labels[position]
    }

    /// Adds time that was lost.
    pub fn lose(&mut self, label: usize, time: u64) {
        self.weight += time;
        self.label(label).lost_ns += time;
    }

    /// Adds a wait of a transaction, which is part of the time lost.
    pub fn wait(&mut self, label: usize, time: u64) {
        self.waits += 1;
        self.waiting_ns += time;
        self.lose(label, time);
    }

    /// Keeps a change of the row, in the place of an older one.
    pub fn keep_change(&mut self, before: Vec<u8>, after: Vec<u8>) {
        match self.changes.len() < CHANGES_MAX {
            true => self.changes.push((before, after)),
            false => self.changes[self.sampled as usize % CHANGES_MAX] = (before, after),
        }
        self.sampled += 1;
    }

    /// Adds what another worker knows of the same point.
    pub fn merge(&mut self, other: &Point) {
        self.weight += other.weight;
        self.error += other.error;
        self.waits += other.waits;
        self.waiting_ns += other.waiting_ns;
        self.repairs += other.repairs;
        self.conflicts += other.conflicts;
        self.sampled += other.sampled;
        self.changes.extend_from_slice(&other.changes);
        for other in &other.labels {
            let own = match self.labels.iter_mut().find(|own| own.label == other.label) {
                Some(own) => own,
                None => {
                    self.labels.push(LabelAt { label: other.label, ..LabelAt::default() });
                    self.labels.last_mut().expect("it was pushed")
                }
            };
            own.aborts.iter_mut().zip(other.aborts).for_each(|(own, other)| *own += other);
            own.lost_ns += other.lost_ns;
            own.writes += other.writes;
        }
    }

    /// Returns how many attempts were aborted here, by reason.
    pub fn aborts(&self) -> ByReason {
        let mut sums = ByReason::default();
        for at in &self.labels {
            sums.iter_mut().zip(at.aborts).for_each(|(sum, aborts)| *sum += aborts);
        }
        sums
    }
}

/// The sketch of a worker.
#[derive(Debug, Default)]
pub(crate) struct Sketch {
    points: Vec<Point>,
    places: Vec<Place>,
    positions: FxHashMap<Place, usize>,
}

impl Sketch {
    /// Returns the point at a place, if it is remembered.
    pub fn get(&mut self, place: Place) -> Option<&mut Point> {
        self.positions.get(&place).map(|&position| &mut self.points[position])
    }

    /// Remembers a point at a place where none is remembered.
    pub fn insert(&mut self, place: Place, mut point: Point) -> &mut Point {
        // The record's block may have been freed since, and another record of the same key have taken its place.
        let same = point.key.as_ref().and_then(|key| {
            self.points
                .iter()
                .position(|old| old.table == point.table && old.key.as_ref() == Some(key))
        });
        let position = match same {
            Some(position) => {
                self.positions.remove(&self.places[position]);
                self.places[position] = place;
                self.positions.insert(place, position);
                return &mut self.points[position];
            }
            None if self.points.len() < POINTS_MAX => {
                self.points.push(point);
                self.places.push(place);
                self.points.len() - 1
            }
            None => {
                let least = self.points.iter().enumerate().min_by_key(|(_, point)| point.weight);
                let position = least.map_or(0, |(position, _)| position);
                self.positions.remove(&self.places[position]);
                (point.weight, point.error) =
                    (self.points[position].weight, self.points[position].weight);
                self.points[position] = point;
                self.places[position] = place;
                position
            }
        };
        self.positions.insert(place, position);
        &mut self.points[position]
    }

    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns the most time that a point can have lost that is not remembered.
    pub fn error(&self) -> u64 {
        let least = || self.points.iter().map(|point| point.weight).min().unwrap_or(0);
        if self.points.len() < POINTS_MAX { 0 } else { least() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use weft::{Database, Record};

    use super::*;
    use crate::INSIDE;

    #[derive(Clone, Record)]
    struct Page {
        #[record(key)]
        id: u64,
        views: u64,
    }

    /// The bounds of the paper: a point's weight is at least what it has lost and at most that and the error, and a point
    /// that is missing has lost no more than the least weight.
    #[test]
    fn sketch_keeps_the_bounds_of_space_saving() {
        let database = Database::builder().table::<Page>().open().unwrap();
        let table = *database.open_engine(INSIDE).shared.first_table.get().unwrap();
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut sketch, mut exact) = (Sketch::default(), HashMap::<u64, u64>::new());
        for _ in 0..20_000 {
            // Few numbers are drawn often, and many seldom.
            let most = 1 + random.u64(0..2_000);
            let number = random.u64(1..=most);
            let lost = random.u64(1..100);
            let place = (1, number as usize);
            if sketch.get(place).is_none() {
                sketch.insert(place, Point::new(table, Some(EncodedKey::Words1(number))));
            }
            sketch.get(place).unwrap().lose(0, lost);
            *exact.entry(number).or_default() += lost;
        }
        assert_eq!(sketch.points().len(), POINTS_MAX);
        for (number, lost) in exact {
            match sketch.get((1, number as usize)) {
                Some(point) => {
                    assert!(point.weight >= lost && lost >= point.weight - point.error);
                }
                None => assert!(lost <= sketch.error()),
            }
        }
    }
}
