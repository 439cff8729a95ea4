//! A figure for tests.

use serde_json::json;

use crate::definition::*;
use crate::measured::{Outcome, Points};
use crate::plan::{Host, Settings, Wanted, plan};
use crate::report::Report;

/// Two series over 1, 2 and 4 threads.
pub const SAMPLE: Experiment = Experiment {
    workload: &["tpcc"],
    subject: Subject::Transactions,
    real: Err("no real machine"),
    simulated: Ok(Simulated {
        machine: "sample",
        cores: 4,
        quick: span(1.0, 2.0),
        full: span(1.0, 8.0),
        arguments: &[],
    }),
    axis: Axis {
        label: "threads",
        by: By::Threads,
        scale: Scale::Linear,
        quick: &[1.0, 2.0, 4.0],
        full: &[1.0, 2.0, 3.0, 4.0],
    },
    series: &[series("fast", &["--protocol", "dbx"]), series("slow", &["--protocol", "2pl"])],
    metrics: &[Metric {
        name: "throughput",
        unit: "tx/s",
        scale: Scale::Linear,
        real: Reading::of("throughput_per_second/median"),
        simulated: Reading::of("transactions_per_second"),
    }],
    expectations: &[Expectation {
        says: "fast <is> twice as fast on 4 threads",
        paper: "3 × (§5)",
        metric: 0,
        shape: Shape::Ratio { of: "fast", to: "slow", at: At::Value(4.0) },
        bounds: at_least(2.0),
    }],
    published: &[published("slow", 2.0, 12.0)],
    differs: &["no real machine & no paper"],
};

/// A figure with the sample experiment.
pub static FIGURE: Figure = Figure {
    paper: Paper::Htcc,
    number: Number::Figure(1),
    section: "§5",
    title: "a sample",
    claim: "Fast is faster than slow.",
    content: Content::Experiment(SAMPLE),
};

/// Returns the settings for the sample.
pub fn settings() -> Settings {
    let host = Host { logical_cores: 2, has_rtm: false };
    let directory = "out".to_owned();
    Settings {
        wanted: Wanted::Best,
        host,
        is_full: false,
        seed: 7,
        time: 1.0,
        with: vec![],
        directory,
    }
}

fn outcomes(curves: &[&[f64]]) -> Vec<Outcome> {
    let places = (0..2).flat_map(|series| (0..3).map(move |place| (series, place)));
    let outcomes = places.map(|(series, place)| match curves[series].get(place) {
        Some(number) => Outcome::Report(json!({ "transactions_per_second": number })),
        None => Outcome::Failed("too many, really".to_owned()),
    });
    outcomes.collect()
}

/// Returns the sample's points with these numbers for the two series. Calls without a number have failed.
pub fn points(curves: &[&[f64]]) -> Points {
    let plan = plan(&FIGURE, &settings()).expect("it can be simulated");
    Points::read(&SAMPLE, &plan, &outcomes(curves))
}

/// Returns the report of the sample with these numbers.
pub fn report(curves: &[&[f64]]) -> Report {
    let plan = plan(&FIGURE, &settings()).expect("it can be simulated");
    Report::of(&FIGURE, plan, &outcomes(curves))
}
