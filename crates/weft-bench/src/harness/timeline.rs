//! Throughput over time: how many transactions committed in each tenth of a second of the rounds, as JSON and as a
//! picture.
//!
//! Each client of a round publishes from time to time, in a word of its own, how many of its transactions have
//! counted so far. The coordinator, which is otherwise idle, reads all these words ten times a second. It may wake
//! late if every core has a client. So each count is stored with its time, and a rate is computed from two counts
//! and the time between them.
//!
//! # The JSON
//!
//! An array with one object per database, in the order of the results:
//!
//! | key | value |
//! | --- | --- |
//! | `name` | the name in the tables |
//! | `rounds` | array of objects: `seconds`, the round's length; `until_seconds`, the ends of the intervals, from the round's begin; `committed`, the number of transactions that committed in each interval; `changes_seconds`, when the workload changed |

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use weft_workloads::incr::Change;

use crate::plot::{Chart, Panel};
use crate::stop::Stop;

use super::report::json::{JsonTarget, try_to_write};
use super::round::Round;

/// The time between two counts.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// The count of one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The end of the interval, from the begin of the round.
    pub until: Duration,
    /// Transactions that committed in the interval.
    pub committed: u64,
}

/// Parses the name of a file, whose ending chooses its format.
pub fn file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match extension(&path) {
        "json" | "svg" => Ok(path),
        _ => Err("expected a file that ends in .json, or in .svg for a picture".to_owned()),
    }
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

/// Checks before the run that the files can be written.
///
/// # Errors
/// One of the files cannot be written.
pub fn check(files: &[PathBuf]) -> Result<(), Stop> {
    files.iter().try_for_each(|path| {
        try_to_write(path).map_err(|error| {
            Stop::Usage(format!(
                "cannot write '{}' for --timeline: {error}; name a file in a directory that can be \
                 written",
                path.display()
            ))
        })
    })
}

/// The rounds of one database.
#[derive(Serialize)]
struct Timeline<'a> {
    name: &'a str,
    rounds: Vec<RoundTimeline>,
}

/// One round of a timeline.
#[derive(Serialize)]
struct RoundTimeline {
    seconds: f64,
    until_seconds: Vec<f64>,
    committed: Vec<u64>,
    changes_seconds: Vec<f64>,
}

impl RoundTimeline {
    fn new(round: &Round, change: Option<Change>) -> Self {
        let intervals = || round.timeline.iter();
        let length = Duration::from_secs_f64(round.seconds);
        RoundTimeline {
            seconds: round.seconds,
            until_seconds: intervals().map(|interval| interval.until.as_secs_f64()).collect(),
            committed: intervals().map(|interval| interval.committed).collect(),
            changes_seconds: change
                .map(|change| changes(&change, round.begun, length))
                .unwrap_or_default(),
        }
    }

    /// Returns the points of the curve, each in the middle of an interval; `begin` is the x of the round's begin.
    fn points(&self, begin: f64) -> Vec<(f64, f64)> {
        let starts = std::iter::once(&0.0).chain(&self.until_seconds);
        let intervals = starts.zip(&self.until_seconds).zip(&self.committed);
        let longer = intervals.filter(|((from, until), _)| until > from);
        longer
            .map(|((from, until), &committed)| {
                (begin + (from + until) / 2.0, committed as f64 / (until - from))
            })
            .collect()
    }
}

/// Returns the seconds, from `begun`, at which the workload changes within `length`.
fn changes(change: &Change, begun: Instant, length: Duration) -> Vec<f64> {
    let elapsed = begun.saturating_duration_since(change.since);
    let begun_after = change.count(begun);
    let at = |count: u64| change.every.as_secs_f64() * count as f64 - elapsed.as_secs_f64();
    let all = (begun_after + 1..).map(at);
    all.take_while(|&seconds| seconds <= length.as_secs_f64()).collect()
}

/// Writes the files of `--timeline`, with the name and the rounds of each database.
///
/// # Errors
/// The system's error, with the path.
pub fn write<'a>(
    files: &[PathBuf],
    title: &str,
    databases: impl Iterator<Item = (&'a str, &'a [Round])>,
    change: Option<Change>,
) -> Result<(), Stop> {
    if files.is_empty() {
        return Ok(());
    }
    let timelines: Vec<Timeline<'_>> = databases
        .map(|(name, rounds)| {
            let rounds = rounds.iter().map(|round| RoundTimeline::new(round, change)).collect();
            Timeline { name, rounds }
        })
        .collect();
    for path in files {
        if extension(path) == "svg" {
            fs::write(path, chart(title, &timelines).to_string()).map_err(|error| {
                Stop::Failed(format!("cannot write '{}': {error}", path.display()))
            })?;
        } else {
            JsonTarget::File(path.clone()).write(&timelines, &mut std::io::sink())?;
        }
    }
    Ok(())
}

/// Returns a picture of the timelines, which shows the rounds of each database side by side.
fn chart(title: &str, timelines: &[Timeline<'_>]) -> Chart {
    let all = || timelines.iter().flat_map(|timeline| &timeline.rounds);
    let changes = all().any(|round| !round.changes_seconds.is_empty());
    let panels = timelines.iter().map(|timeline| {
        let mut panel = Panel {
            name: timeline.name.to_owned(),
            parts: Vec::new(),
            boundaries: Vec::new(),
            marks: Vec::new(),
        };
        let mut begin = 0.0;
        for round in &timeline.rounds {
            panel.parts.push(round.points(begin));
            panel.marks.extend(round.changes_seconds.iter().map(|seconds| begin + seconds));
            begin += round.seconds;
            panel.boundaries.push(begin);
        }
        panel
    });
    Chart {
        title: title.to_owned(),
        x_label: if changes {
            "seconds of the rounds, one after the other; dashed: the workload changes"
        } else {
            "seconds of the rounds, one after the other"
        },
        y_label: "transactions per second",
        panels: panels.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_those_within_the_round() {
        let since = Instant::now();
        let change = Change { since, every: Duration::from_secs(5) };
        let begun = since + Duration::from_millis(12_500);
        let found = changes(&change, begun, Duration::from_secs(10));
        let expected = [2.5, 7.5];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
        assert!(changes(&change, begun, Duration::from_secs(2)).is_empty());
    }

    /// If a count is late, its interval is longer.
    #[test]
    fn rates_are_over_the_time_that_has_passed() {
        let round = RoundTimeline {
            seconds: 0.4,
            until_seconds: vec![0.1, 0.3, 0.3, 0.4],
            committed: vec![10, 20, 0, 5],
            changes_seconds: vec![],
        };
        let points = round.points(2.0);
        let expected = [(2.05, 100.0), (2.2, 100.0), (2.35, 50.0)];
        assert_eq!(
            points.len(),
            expected.len(),
            "an interval of no length has no rate: {points:?}"
        );
        for (point, expected) in points.iter().zip(expected) {
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert!(near(point.0, expected.0) && near(point.1, expected.1), "{points:?}");
        }
    }

    #[test]
    fn the_end_of_a_name_says_what_the_file_is() {
        assert!(file("a.json").is_ok() && file("b/c.svg").is_ok());
        for text in ["a", "a.png", "-", "", ".svg"] {
            assert!(file(text).is_err(), "{text:?}");
        }
    }
}
