//! A figure with everything that is known about it. Files and the page are made from it.

use crate::chart::{self, Chart};
use crate::claim::{self, Finding, Verdict};
use crate::definition::{Experiment, Figure};
use crate::measured::{Outcome, Points};
use crate::plan::Plan;

/// A figure, and its results.
#[derive(Debug)]
pub struct Report {
    /// The figure.
    pub figure: &'static Figure,
    /// The measurement, or why nothing was measured.
    pub state: Result<Measurement, String>,
}

/// The measurement of a figure.
#[derive(Debug)]
pub struct Measurement {
    /// The figure's experiment.
    pub experiment: &'static Experiment,
    /// The plan.
    pub plan: Plan,
    /// The results.
    pub points: Points,
    /// Whether the results have the expected shape.
    pub findings: Vec<Finding>,
    /// The picture.
    pub chart: Chart,
}

impl Report {
    /// Returns the report of a figure without measurements.
    pub fn without(figure: &'static Figure, why: String) -> Report {
        Report { figure, state: Err(why) }
    }

    /// Returns the report of a figure whose calls had these outcomes.
    ///
    /// # Panics
    /// The figure has no experiment.
    pub fn of(figure: &'static Figure, plan: Plan, outcomes: &[Outcome]) -> Report {
        let experiment = figure.experiment().expect("calls belong to an experiment");
        let points = Points::read(experiment, &plan, outcomes);
        let findings = claim::findings(experiment, &points);
        let chart = chart::chart(figure, experiment, &plan, &points);
        Report { figure, state: Ok(Measurement { experiment, plan, points, findings, chart }) }
    }

    /// Returns whether the measured shape agrees with the paper's.
    pub fn verdict(&self) -> Verdict {
        match &self.state {
            Ok(measurement) => Verdict::of_all(&measurement.findings),
            Err(_) => Verdict::NotMeasured,
        }
    }
}
