//! The results of the map, and the file that keeps them.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{GridPlace, MachineKind};
use crate::store;

/// The pairs of a place that must be undisturbed for its ratio to leave the others out.
const QUIET_PAIRS_MIN: usize = 3;

/// The 99th percentile of the candidate's latencies is to be at most so many times the rival's.
pub const P99_RATIO_MAX: f64 = 2.0;

/// The content of the file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Results {
    /// The protocol that is compared with the best of the others.
    pub candidate: String,
    /// Whether it is a quick run.
    pub is_quick: bool,
    /// This machine, in words.
    pub host: String,
    /// The places that have been measured.
    pub places: Vec<PlaceResult>,
}

/// The result at one place.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PlaceResult {
    /// The point's name.
    pub point: String,
    /// The point's title.
    pub title: String,
    /// Whether it was measured on the simulated machine.
    pub is_simulated: bool,
    /// The machine.
    pub machine: String,
    /// The number of threads, or of simulated cores.
    pub threads: u32,
    /// The build of the program that ran.
    pub build: String,
    /// The seconds that it took.
    pub seconds: f64,
    /// What each protocol did in the run that chose the rival; the candidate comes first.
    pub protocols: Vec<ProtocolResult>,
    /// The fastest of the other protocols; `None` if none of them ran.
    pub rival: Option<String>,
    /// The candidate and the rival, side by side.
    pub pairs: Vec<Pair>,
    /// Why there are no pairs, or fewer.
    pub failure: Option<String>,
    /// The commands: those that chose the rival, and those of the pairs.
    pub commands: Vec<String>,
}

/// What one protocol did.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ProtocolResult {
    /// Its name.
    pub protocol: String,
    /// Committed transactions per second; `None` if it failed.
    pub throughput: Option<f64>,
    /// Aborted attempts for each committed transaction.
    pub aborts: Option<f64>,
    /// The 99th percentile of the latencies of all types of transactions, in microseconds.
    pub p99_us: Option<f64>,
    /// Why it failed.
    pub failure: Option<String>,
}

/// The candidate and the rival, one after the other.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Pair {
    /// The candidate's transactions per second.
    pub candidate: f64,
    /// The rival's.
    pub rival: f64,
    /// Whether other processes computed.
    pub is_disturbed: bool,
    /// The 99th percentile of the candidate's latencies, in microseconds. Files of earlier versions have none.
    #[serde(default)]
    pub candidate_p99_us: Option<f64>,
    /// The rival's.
    #[serde(default)]
    pub rival_p99_us: Option<f64>,
}

/// Returns the median of numbers in ascending order; `None` without numbers.
fn median(numbers: &[f64]) -> Option<f64> {
    let middle = numbers.len() / 2;
    match numbers.len() {
        0 => None,
        length if length.is_multiple_of(2) => {
            Some(f64::midpoint(numbers[middle - 1], numbers[middle]))
        }
        _ => Some(numbers[middle]),
    }
}

/// Returns the geometric mean of numbers; `None` without numbers.
fn geometric_mean(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = numbers.map(f64::ln).collect();
    let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
    (!logarithms.is_empty()).then(|| mean.exp())
}

/// Returns the pairs that count: those that were not disturbed, or all if too few were not.
fn counting(pairs: &[Pair]) -> Vec<Pair> {
    let quiet: Vec<Pair> = pairs.iter().filter(|pair| !pair.is_disturbed).copied().collect();
    if quiet.len() < QUIET_PAIRS_MIN { pairs.to_vec() } else { quiet }
}

/// Returns the finite ratios of the pairs that count, in ascending order.
fn ratios_by(pairs: &[Pair], ratio: impl Fn(&Pair) -> Option<f64>) -> Vec<f64> {
    let ratios = counting(pairs).iter().filter_map(ratio).collect::<Vec<_>>();
    let mut ratios: Vec<f64> = ratios.into_iter().filter(|ratio| ratio.is_finite()).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

/// Returns whether disturbed pairs count, because too few others are left.
pub fn are_disturbed(pairs: &[Pair]) -> bool {
    counting(pairs).iter().any(|pair| pair.is_disturbed)
}

/// Returns the ratio of the throughputs of some pairs: the median of those that count.
pub fn ratio_of(pairs: &[Pair]) -> Option<f64> {
    median(&ratios_by(pairs, |pair| Some(pair.candidate / pair.rival)))
}

impl PlaceResult {
    /// Returns whether it is the result of this place.
    pub fn is_of(&self, place: &GridPlace<'_>) -> bool {
        let is_simulated = place.machine == MachineKind::Simulated;
        self.point == place.point.name
            && (self.is_simulated, self.threads) == (is_simulated, place.threads)
            && self.machine == place.machine_name()
    }

    /// Returns the pairs that count: those that were not disturbed, or all if too few were not.
    pub fn counting_pairs(&self) -> Vec<Pair> {
        counting(&self.pairs)
    }

    /// Returns the number of pairs during which other processes computed.
    pub fn disturbed(&self) -> usize {
        self.pairs.iter().filter(|pair| pair.is_disturbed).count()
    }

    /// Returns the ratio of the candidate to the rival: the median of the pairs that count.
    pub fn ratio(&self) -> Option<f64> {
        ratio_of(&self.pairs)
    }

    /// Returns the ratio of the candidate's 99th percentile of latencies to the rival's: the median of the pairs that
    /// count and have both.
    pub fn p99_ratio(&self) -> Option<f64> {
        median(&ratios_by(&self.pairs, |pair| Some(pair.candidate_p99_us? / pair.rival_p99_us?)))
    }

    /// Returns the smallest and the largest ratio of the pairs that count.
    pub fn spread(&self) -> Option<(f64, f64)> {
        let ratios = ratios_by(&self.pairs, |pair| Some(pair.candidate / pair.rival));
        Some((*ratios.first()?, *ratios.last()?))
    }

    /// Returns the highest throughput of all protocols, in the run that chose the rival.
    pub fn best(&self) -> Option<f64> {
        self.protocols.iter().filter_map(|protocol| protocol.throughput).reduce(f64::max)
    }
}

impl Results {
    /// Reads a file. Returns `None` if there is no such file.
    ///
    /// # Errors
    /// It cannot be read, or is no file of results.
    pub fn read(path: &Path) -> io::Result<Option<Results>> {
        match std::fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the file atomically: a run that is stopped leaves the previous content, or this.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self).expect("plain values");
        store::write(path, &format!("{text}\n"))
    }

    /// Returns whether a place has been measured with this build.
    pub fn has(&self, place: &GridPlace<'_>, build: &str) -> bool {
        let mut places = self.places.iter();
        places.any(|result| result.is_of(place) && result.build == build)
    }

    /// Adds the result of a place, in place of an earlier one.
    pub fn put(&mut self, place: &GridPlace<'_>, result: PlaceResult) {
        match self.places.iter_mut().find(|earlier| earlier.is_of(place)) {
            Some(earlier) => *earlier = result,
            None => self.places.push(result),
        }
    }

    /// Returns the geometric mean of the ratios of some places; `None` without ratios.
    pub fn geometric_mean(&self, which: impl Fn(&PlaceResult) -> bool) -> Option<f64> {
        let places = self.places.iter().filter(|place| which(place));
        geometric_mean(places.filter_map(PlaceResult::ratio))
    }

    /// Returns the geometric mean of the ratios of the 99th percentiles; `None` without ratios.
    pub fn p99_geometric_mean(&self, which: impl Fn(&PlaceResult) -> bool) -> Option<f64> {
        let places = self.places.iter().filter(|place| which(place));
        geometric_mean(places.filter_map(PlaceResult::p99_ratio))
    }

    /// Returns the places at which the ratio of the 99th percentiles is above [`P99_RATIO_MAX`], the highest first.
    pub fn slow_places(&self) -> Vec<(f64, &PlaceResult)> {
        let places = self.places.iter().filter_map(|place| Some((place.p99_ratio()?, place)));
        let mut slow: Vec<_> = places.filter(|(ratio, _)| *ratio > P99_RATIO_MAX).collect();
        slow.sort_by(|one, other| other.0.total_cmp(&one.0));
        slow
    }

    /// Returns the places with a ratio, from the lowest ratio to the highest.
    pub fn by_ratio(&self) -> Vec<(f64, &PlaceResult)> {
        let places = self.places.iter();
        let mut places: Vec<_> = places.filter_map(|place| Some((place.ratio()?, place))).collect();
        places.sort_by(|one, other| one.0.total_cmp(&other.0));
        places
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::{Coverage, Grid, places};
    use super::*;
    use crate::store::tests::scratch;

    /// Returns a result with these pairs: the candidate's throughput, the rival's, and whether it was disturbed.
    pub fn result(point: &str, threads: u32, pairs: &[(f64, f64, bool)]) -> PlaceResult {
        let of = |protocol: &str, throughput| ProtocolResult {
            protocol: protocol.to_owned(),
            throughput,
            aborts: throughput.map(|_| 0.25),
            p99_us: throughput.map(|_| 12.5),
            failure: throughput.is_none().then(|| "it failed".to_owned()),
        };
        PlaceResult {
            point: point.to_owned(),
            title: format!("{point} <&>"),
            is_simulated: false,
            machine: "this machine".to_owned(),
            threads,
            build: "one".to_owned(),
            seconds: 1.0,
            protocols: vec![of("dbx", Some(50.0)), of("silo", Some(100.0)), of("2pl", None)],
            rival: Some("silo".to_owned()),
            pairs: pairs
                .iter()
                .map(|&(candidate, rival, is_disturbed)| Pair {
                    candidate,
                    rival,
                    is_disturbed,
                    candidate_p99_us: None,
                    rival_p99_us: None,
                })
                .collect(),
            failure: None,
            commands: vec!["cargo lab bench".to_owned()],
        }
    }

    #[test]
    fn ratio_is_the_median_of_undisturbed_pairs() {
        let pairs = [
            (100.0, 100.0, false),
            (120.0, 100.0, false),
            (90.0, 100.0, false),
            (10.0, 100.0, true),
            (10.0, 100.0, true),
        ];
        let quiet = result("bank", 2, &pairs);
        assert_eq!((quiet.ratio(), quiet.disturbed()), (Some(1.0), 2));
        assert_eq!(quiet.spread(), Some((0.9, 1.2)));
        // With fewer than three undisturbed pairs, all count.
        let noisy = result("bank", 2, &pairs[1..]);
        assert_eq!(noisy.ratio(), Some(0.5));
        assert_eq!(result("bank", 2, &[]).ratio(), None);
        let stalled = result("bank", 2, &[(1.0, 0.0, false)]);
        assert_eq!(stalled.ratio(), None, "a rival without throughput has no ratio");
    }

    #[test]
    fn mean_is_geometric_and_worst_places_come_first() {
        let mut results = Results::default();
        assert_eq!(results.geometric_mean(|_| true), None);
        results.places = vec![
            result("bank", 2, &[(200.0, 100.0, false)]),
            result("queue", 2, &[(50.0, 100.0, false)]),
            result("shift", 2, &[]),
            result("tatp", 8, &[(400.0, 100.0, false)]),
        ];
        let mean = |which: fn(&PlaceResult) -> bool| results.geometric_mean(which).expect("ratios");
        assert!((mean(|place| place.threads == 2) - 1.0).abs() < 1e-12);
        assert!((mean(|_| true) - 4_f64.cbrt()).abs() < 1e-12);
        let order: Vec<&str> =
            results.by_ratio().iter().map(|(_, place)| place.point.as_str()).collect();
        assert_eq!(order, ["queue", "bank", "tatp"]);
    }

    /// Returns a result with pairs of these 99th percentiles.
    fn with_p99(point: &str, percentiles: &[(f64, f64)]) -> PlaceResult {
        let mut place = result(point, 2, &vec![(1.0, 1.0, false); percentiles.len()]);
        for (pair, &(candidate, rival)) in place.pairs.iter_mut().zip(percentiles) {
            (pair.candidate_p99_us, pair.rival_p99_us) = (Some(candidate), Some(rival));
        }
        place
    }

    #[test]
    fn places_with_long_latencies_are_named() {
        let mut results =
            Results { places: vec![result("bank", 2, &[(1.0, 1.0, false)])], ..Results::default() };
        assert_eq!(results.p99_geometric_mean(|_| true), None, "an earlier version's file");
        let long = with_p99("shift", &[(40.0, 10.0), (60.0, 10.0), (5.0, 10.0)]);
        assert_eq!(long.p99_ratio(), Some(4.0));
        results.places.extend([
            with_p99("queue", &[(20.0, 10.0)]),
            with_p99("tatp", &[(21.0, 10.0)]),
            long,
        ]);
        let mean = results.p99_geometric_mean(|_| true).expect("three ratios");
        assert!((mean - (2.0 * 2.1 * 4.0_f64).cbrt()).abs() < 1e-12, "{mean}");
        let slow: Vec<&str> =
            results.slow_places().iter().map(|(_, place)| place.point.as_str()).collect();
        assert_eq!(slow, ["shift", "tatp"], "2 is not above 2");
    }

    #[test]
    fn run_continues_from_its_file_unless_the_build_is_another() {
        let directory = scratch("map-results");
        std::fs::create_dir_all(&directory).expect("it can be made");
        let path = directory.join("map.json");
        assert!(Results::read(&path).expect("no file is no error").is_none());
        let grid = Grid::frozen();
        let points = grid.chosen(&["bank".to_owned()]).expect("a point");
        let coverage = Coverage { is_quick: true, real: true, simulated: true, logical_cores: 2 };
        let places = places(&grid, &points, true, &coverage);
        let mut results = Results { candidate: "dbx".to_owned(), ..Results::default() };
        results.put(&places[0], result("bank", 2, &[(1.0, 2.0, false)]));
        results.write(&path).expect("it can be written");
        let mut kept = Results::read(&path).expect("it can be read").expect("it is there");
        assert_eq!(kept.places, results.places);
        assert!(kept.has(&places[0], "one") && !kept.has(&places[0], "another build"));
        assert!(!kept.has(&places[1], "one") && !kept.has(&places[2], "one"));
        kept.put(&places[0], result("bank", 2, &[]));
        assert_eq!(kept.places.len(), 1, "a place has one result");
        std::fs::write(&path, "[").expect("it can be written");
        assert!(Results::read(&path).is_err(), "a damaged file is not taken for an empty one");
        std::fs::remove_dir_all(directory).expect("it is there");
    }
}
