//! Tests that the entries are sound.

use std::collections::HashSet;

use super::*;
use crate::definition::*;
use crate::plan::{Host, MachineChoice, Settings, plan};

fn experiments() -> impl Iterator<Item = (String, &'static Experiment)> {
    all().filter_map(|figure| Some((figure.id(), figure.experiment()?)))
}

fn settings(wanted: MachineChoice, host: Host, is_full: bool) -> Settings {
    let directory = "out".to_owned();
    Settings { wanted, host, is_full, seed: 7, time: 1.0, with: vec![], directory }
}

/// Returns all values of an axis, in quick or in full runs.
fn values(experiment: &Experiment, is_full: bool) -> Vec<f64> {
    match (experiment.axis.by, is_full) {
        (AxisVariable::Choices(choices), _) => {
            (0..choices.len()).map(|choice| choice as f64).collect()
        }
        (_, true) => experiment.axis.full.to_vec(),
        (_, false) => experiment.axis.quick.to_vec(),
    }
}

#[test]
fn every_figure_and_table_has_one_entry() {
    let ids: Vec<String> = all().map(Figure::id).collect();
    let unique: HashSet<&String> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len(), "{ids:?}");
    let asked: [(Paper, &[u8], &[u8]); 5] = [
        (Paper::Dbx, &[1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17], &[]),
        (Paper::DbxTc, &[1, 10, 11, 12, 13, 14, 15], &[1]),
        (Paper::Htcc, &[1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19], &[1]),
        (Paper::Doppel, &[8, 9, 10, 11, 12, 13, 14, 15], &[1, 2, 3, 4]),
        (Paper::NoFreeLunch, &[1, 2, 3, 4, 5], &[1, 2, 3]),
    ];
    for (paper, figures, tables) in asked {
        let figures = figures.iter().map(|figure| figure.to_string());
        let tables = tables.iter().map(|table| format!("table-{table}"));
        for name in figures.chain(tables) {
            let found = chosen(&[paper], std::slice::from_ref(&name));
            assert!(found.is_ok_and(|found| !found.is_empty()), "{} {name}", paper.name());
        }
    }
}

#[test]
fn figures_are_chosen_by_paper_and_number() {
    let ids = |papers: &[Paper], names: &[&str]| -> Result<Vec<String>, String> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        Ok(chosen(papers, &names)?.into_iter().map(Figure::id).collect())
    };
    assert_eq!(ids(&[Paper::Doppel], &["table-3"]).unwrap(), ["doppel-table-3"]);
    assert_eq!(ids(&[Paper::Dbx], &["1b", "8"]).unwrap(), ["dbx-figure-1b", "dbx-figure-8"]);
    assert_eq!(ids(&[Paper::Htcc], &["1"]).unwrap(), ["htcc-figure-1a", "htcc-figure-1b"]);
    assert_eq!(ids(&[], &[]).unwrap().len(), all().count());
    assert!(ids(&[Paper::Htcc], &["20"]).unwrap_err().contains("'20'"));
    assert!(ids(&[Paper::Htcc], &["table-4"]).is_err());
}

/// Each series, metric and axis value that an entry names exists, even in a quick run.
#[test]
fn expectations_refer_to_measured_points() {
    for (id, experiment) in experiments() {
        let quick = values(experiment, false);
        let full = values(experiment, true);
        assert!(quick.windows(2).all(|pair| pair[0] < pair[1]), "{id}: {quick:?}");
        assert!(full.windows(2).all(|pair| pair[0] < pair[1]), "{id}: {full:?}");
        let names: HashSet<&str> = experiment.series.iter().map(|series| series.name).collect();
        assert_eq!(names.len(), experiment.series.len(), "{id}");
        assert!(!experiment.metrics.is_empty() && !experiment.expectations.is_empty(), "{id}");
        assert!(experiment.real.is_ok() || experiment.simulated.is_ok(), "{id}");
        let has = |at: AxisPosition| match at {
            AxisPosition::Value(value) => quick.contains(&value) && full.contains(&value),
            AxisPosition::First | AxisPosition::Last => true,
        };
        for series in experiment.series {
            assert_eq!(series.is_ours, series.name.starts_with("Weft's"), "{id}: {}", series.name);
        }
        for expectation in experiment.expectations {
            let says = expectation.says;
            assert!(expectation.metric < experiment.metrics.len(), "{id}: {says}");
            let Bounds { least, most } = expectation.bounds;
            assert!(least <= most && (least.is_finite() || most.is_finite()), "{id}: {says}");
            let (series, places) = match expectation.shape {
                Shape::Ratio { of, to, at } => (vec![of, to], vec![at]),
                Shape::Change { of, from, until } => (vec![of], vec![from, until]),
                Shape::Ahead { of, from } => (vec![of], vec![from]),
                Shape::Value { of, at } => (vec![of], vec![at]),
            };
            assert!(series.iter().all(|name| names.contains(name)), "{id}: {says}: {series:?}");
            assert!(places.iter().all(|&at| has(at)), "{id}: {says}: {places:?}");
        }
        for published in experiment.published {
            assert!(names.contains(published.series), "{id}: {published:?}");
            assert!(published.metric < experiment.metrics.len(), "{id}: {published:?}");
        }
    }
}

/// Claims are sentences, and texts have one space between words and no line breaks.
#[test]
fn texts_are_complete() {
    for figure in all() {
        let id = figure.id();
        assert!(figure.claim.ends_with('.'), "{id}");
        assert!(figure.section.starts_with('§'), "{id}");
        let mut texts = vec![figure.title, figure.claim];
        match &figure.content {
            Content::Experiment(experiment) => texts.extend(experiment.differs),
            Content::NotMeasured(why) => texts.push(why),
        }
        for text in texts {
            assert!(
                !text.contains("  ") && !text.contains('\n') && !text.is_empty(),
                "{id}: {text}"
            );
        }
    }
}

#[test]
fn every_experiment_becomes_calls() {
    let hosts =
        [Host { logical_cores: 2, has_rtm: false }, Host { logical_cores: 128, has_rtm: true }];
    for (host, is_full) in [(hosts[0], false), (hosts[1], true)] {
        for wanted in [MachineChoice::Best, MachineChoice::Simulated, MachineChoice::Real] {
            let settings = settings(wanted, host, is_full);
            for figure in all() {
                let Ok(plan) = plan(figure, &settings) else { continue };
                let experiment = figure.experiment().expect("it was planned");
                let id = figure.id();
                assert_eq!(plan.points.len(), plan.axis.len() * experiment.series.len(), "{id}");
                let commands: HashSet<String> =
                    plan.points.iter().map(|point| point.call.to_string()).collect();
                let calls = match experiment.axis.by {
                    AxisVariable::Time => experiment.series.len(),
                    _ => plan.points.len(),
                };
                assert_eq!(commands.len(), calls, "{id}: two points are the same call");
                for point in &plan.points {
                    let words = &point.call.arguments;
                    let options = words.iter().filter(|word| word.starts_with("--"));
                    let unique: HashSet<&String> = options.clone().collect();
                    assert_eq!(unique.len(), options.count(), "{id}: an option twice: {words:?}");
                }
            }
        }
    }
}

/// A machine that has what a figure needs measures it; another machine simulates it.
#[test]
fn figures_are_measured_where_they_can_be() {
    let large = Host { logical_cores: 128, has_rtm: true };
    let small = Host { logical_cores: 2, has_rtm: false };
    let machine = |name: &str, host, wanted| {
        let figure = all().find(|figure| figure.id() == name).expect("it is there");
        let settings = settings(wanted, host, false);
        plan(figure, &settings).map(|plan| (plan.machine.name(), plan.axis.len(), plan.notes.len()))
    };
    let is = |name, host, wanted, expected| {
        assert_eq!(machine(name, host, wanted), Ok(expected), "{name}");
    };
    is("htcc-figure-14", large, MachineChoice::Best, ("this machine", 3, 0));
    is("htcc-figure-14", large, MachineChoice::Simulated, ("xeon-e7-4x10", 3, 0));
    is("htcc-figure-14", small, MachineChoice::Best, ("xeon-e7-4x10", 3, 0));
    is("dbx-figure-8", small, MachineChoice::Real, ("this machine", 1, 2));
    is("dbx-figure-16", small, MachineChoice::Best, ("this machine", 2, 0));
    is("dbx-tc-figure-10", small, MachineChoice::Simulated, ("this machine", 2, 0));
    assert!(
        machine("htcc-figure-14", small, MachineChoice::Real).unwrap_err().contains("2 threads")
    );
    assert!(
        machine("dbx-figure-1a", small, MachineChoice::Real).unwrap_err().contains("4 threads")
    );
    assert!(
        machine("dbx-figure-16", small, MachineChoice::Simulated).unwrap_err().contains("disk")
    );
}
