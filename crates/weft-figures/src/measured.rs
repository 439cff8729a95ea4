//! The measurements for a figure.

use serde_json::Value;

use crate::definition::{AT, Experiment, Metric, Reading};
use crate::plan::{Machine, Plan};

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Its report.
    Report(Value),
    /// The call failed, with this message.
    Failed(String),
    /// The call has not been made.
    Missing,
}

/// A point with its measurements.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The position of its series.
    pub series: usize,
    /// Its value on the axis.
    pub at: f64,
    /// A number for each metric, if the report has it. Not every series has all metrics: without elision, for
    /// example, no regions abort.
    pub numbers: Vec<Option<f64>>,
    /// Why there are no numbers at all.
    pub failure: Option<String>,
    /// The command that repeats it.
    pub command: String,
}

/// All points of a figure.
#[derive(Clone, Debug, Default)]
pub struct Points(pub Vec<Measured>);

impl Points {
    /// Reads the numbers from the reports, which are in the order of the plan's points.
    pub fn read(experiment: &Experiment, plan: &Plan, outcomes: &[Outcome]) -> Points {
        let points = plan.points.iter().zip(outcomes).map(|(point, outcome)| {
            let reading = |metric: &Metric| match plan.machine {
                Machine::Real(_) => metric.real,
                Machine::Simulated(_) => metric.simulated,
            };
            let numbers: Vec<Option<f64>> = match outcome {
                Outcome::Report(report) => {
                    let metrics = experiment.metrics.iter();
                    metrics.map(|metric| read(reading(metric), point.at, report)).collect()
                }
                Outcome::Failed(_) | Outcome::Missing => vec![None; experiment.metrics.len()],
            };
            let failure = match outcome {
                Outcome::Failed(why) => Some(why.clone()),
                Outcome::Missing => Some("not run yet".to_owned()),
                Outcome::Report(_) => {
                    let has_none = numbers.iter().all(Option::is_none);
                    has_none.then(|| "the report has none of the numbers".to_owned())
                }
            };
            Measured {
                series: point.series,
                at: point.at,
                numbers,
                failure,
                command: point.call.to_string(),
            }
        });
        Points(points.collect())
    }

    /// Returns a number.
    pub fn number(&self, metric: usize, series: usize, at: f64) -> Option<f64> {
        let mut points = self.0.iter();
        points.find(|point| point.series == series && point.at == at)?.numbers[metric]
    }

    /// Returns the curve of a series, from left to right.
    pub fn curve(&self, metric: usize, series: usize) -> Vec<(f64, f64)> {
        let points = self.0.iter().filter(|point| point.series == series);
        points.filter_map(|point| Some((point.at, point.numbers[metric]?))).collect()
    }

    /// Returns the number of points that have been measured, and the number of all points.
    pub fn done(&self) -> (usize, usize) {
        let done = self.0.iter().filter(|point| point.failure.is_none()).count();
        (done, self.0.len())
    }
}

/// Reads a number from a report, for a value of the axis.
pub fn read(reading: Reading, at: f64, report: &Value) -> Option<f64> {
    let number = |path: &str| number(&path.replace(AT, &at.to_string()), report);
    let of = number(reading.of)?;
    let over = if reading.over.is_empty() { 1.0 } else { number(reading.over)? };
    let number = reading.factor * of / over;
    number.is_finite().then_some(number)
}

/// Follows a path.
fn number(path: &str, report: &Value) -> Option<f64> {
    let (path, is_count) = match path.strip_suffix("/#") {
        Some(path) => (path, true),
        None => (path, false),
    };
    let found = path.split('/').try_fold(report, |value, step| match step.split_once('=') {
        Some((key, expected)) => value.as_array()?.iter().find(|item| match &item[key] {
            Value::Number(number) => number.as_f64() == expected.parse().ok(),
            other => other == expected,
        }),
        None => value.get(step),
    })?;
    if is_count { found.as_array().map(|array| array.len() as f64) } else { found.as_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::sample;
    use crate::plan::plan;
    use serde_json::json;

    #[test]
    fn a_point_without_one_of_its_numbers_is_measured_and_one_without_any_is_not() {
        const ABORTS: Metric = Metric {
            name: "aborts",
            simulated: Reading::of("aborts"),
            ..sample::SAMPLE.metrics[0]
        };
        const EXPERIMENT: Experiment =
            Experiment { metrics: &[sample::SAMPLE.metrics[0], ABORTS], ..sample::SAMPLE };
        let plan = plan(&sample::FIGURE, &sample::settings()).expect("it can be simulated");
        let outcomes = [
            json!({ "transactions_per_second": 7, "aborts": 1 }),
            json!({ "transactions_per_second": 8 }),
            json!({ "commits": 9 }),
        ];
        let Points(points) = Points::read(&EXPERIMENT, &plan, &outcomes.map(Outcome::Report));
        assert_eq!(points[1].numbers, [Some(8.0), None]);
        let failures: Vec<bool> = points.iter().map(|point| point.failure.is_some()).collect();
        assert_eq!(failures, [false, false, true], "{points:?}");
        assert_eq!(Points(points).done(), (2, 3));
    }

    #[test]
    fn numbers_are_read_by_paths_and_divided() {
        let report = json!({
            "throughput": { "median": 1200.0 },
            "cores": 4,
            "none": null,
            "types": [{ "type": "payment", "p50": 1 }, { "type": "neworder", "p50": 22.5 }],
            "timeline": [{ "ms": 1, "rate": 5 }, { "ms": 2.0, "rate": 6 }],
        });
        let of = |reading| read(reading, 2.0, &report);
        assert_eq!(of(Reading::of("throughput/median")), Some(1200.0));
        assert_eq!(of(Reading::of("types/type=neworder/p50")), Some(22.5));
        assert_eq!(of(Reading::of("types/#")), Some(2.0));
        assert_eq!(of(Reading::of("timeline/ms={at}/rate")), Some(6.0), "the axis is at 2");
        assert_eq!(read(Reading::of("timeline/ms={at}/rate"), 3.0, &report), None);
        assert_eq!(of(Reading::ratio("throughput/median", "cores")), Some(300.0));
        assert_eq!(of(Reading::of("cores").times(0.5)), Some(2.0));
        for missing in
            ["none", "throughput", "types/type=delivery/p50", "throughput/mean", "cores/#", ""]
        {
            assert_eq!(of(Reading::of(missing)), None, "{missing}");
        }
        assert_eq!(
            read(Reading::ratio("cores", "zero"), 1.0, &json!({ "cores": 1, "zero": 0 })),
            None
        );
    }
}
