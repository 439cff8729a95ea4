//! A figure with all that is known about it, from which files and the page are made.

use crate::chart::{self, Chart};
use crate::claim::{self, Finding, Verdict};
use crate::definition::{Experiment, Figure};
use crate::measured::{Outcome, Points};
use crate::plan::Plan;

/// A figure, and what came of it.
#[derive(Debug)]
pub struct Report {
    /// Which one.
    pub figure: &'static Figure,
    /// What was measured, or why nothing was.
    pub state: Result<Measurement, String>,
}

/// What was measured for a figure.
#[derive(Debug)]
pub struct Measurement {
    /// Its entry.
    pub experiment: &'static Experiment,
    /// What was run.
    pub plan: Plan,
    /// What came of it.
    pub points: Points,
    /// Whether it has the expected shape.
    pub findings: Vec<Finding>,
    /// The picture.
    pub chart: Chart,
}

impl Report {
    /// A figure of which nothing was measured.
    pub fn without(figure: &'static Figure, why: String) -> Report {
        Report { figure, state: Err(why) }
    }

    /// A figure whose calls came to this.
    ///
    /// # Panics
    /// The figure has no calls.
    pub fn of(figure: &'static Figure, plan: Plan, outcomes: &[Outcome]) -> Report {
        let experiment = figure.experiment().expect("calls belong to an experiment");
        let points = Points::read(experiment, &plan, outcomes);
        let findings = claim::findings(experiment, &points);
        let chart = chart::chart(figure, experiment, &plan, &points);
        Report { figure, state: Ok(Measurement { experiment, plan, points, findings, chart }) }
    }

    /// Whether our shape agrees with the paper's.
    pub fn verdict(&self) -> Verdict {
        match &self.state {
            Ok(measurement) => Verdict::of_all(&measurement.findings),
            Err(_) => Verdict::NotMeasured,
        }
    }
}
