//! The decision whether the numbers have the shape that a claim expects.

use crate::definition::{AxisPosition, Bounds, Expectation, Experiment, Shape};
use crate::measured::Points;
use crate::text;

/// Whether an expectation holds, or a figure agrees with its paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The expectation holds, or all of the figure's expectations hold.
    Agrees,
    /// Some of the figure's expectations hold, and others do not hold or were not measured.
    InPart,
    /// The expectation does not hold, or none of the figure's expectations that were measured holds.
    Disagrees,
    /// The numbers were not measured, or not all of them.
    NotMeasured,
}

impl Verdict {
    /// Returns the verdict in words.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::InPart => "agrees in part",
            Verdict::Disagrees => "does not agree",
            Verdict::NotMeasured => "not measured",
        }
    }

    /// Returns the verdict on a figure with these findings.
    ///
    /// An expectation that was not measured counts neither for nor against. But a figure agrees only if all of its
    /// expectations were measured.
    pub fn of_all(findings: &[Finding]) -> Verdict {
        let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
        match (count(Verdict::Agrees), count(Verdict::Disagrees), count(Verdict::NotMeasured)) {
            (0, 0, _) => Verdict::NotMeasured,
            (_, 0, 0) => Verdict::Agrees,
            (0, _, _) => Verdict::Disagrees,
            _ => Verdict::InPart,
        }
    }
}

/// The result of checking an expectation.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What is expected.
    pub says: &'static str,
    /// What the paper states.
    pub paper: &'static str,
    /// The measured number, with a description of what it is.
    pub ours: String,
    /// The measured number alone.
    pub number: String,
    /// The bounds, in words.
    pub expected: String,
    /// Whether the number is within the bounds.
    pub verdict: Verdict,
}

/// Checks all expectations of an experiment.
pub fn findings(experiment: &Experiment, points: &Points) -> Vec<Finding> {
    experiment
        .expectations
        .iter()
        .map(|expectation| finding(experiment, points, expectation))
        .collect()
}

fn finding(experiment: &Experiment, points: &Points, expectation: &Expectation) -> Finding {
    let Expectation { says, paper, bounds, .. } = *expectation;
    let found = look(experiment, points, expectation);
    let is_factor = !matches!(expectation.shape, Shape::Value { .. });
    let unit = if is_factor { "×" } else { experiment.metrics[expectation.metric].unit };
    let (ours, number, verdict) = match found {
        Some(found) => {
            (found.words, text::amount(found.number, unit), verdict(found.number, bounds))
        }
        None => ("not measured".to_owned(), String::new(), Verdict::NotMeasured),
    };
    Finding { says, paper, ours, number, expected: words_of(bounds), verdict }
}

fn verdict(number: f64, bounds: Bounds) -> Verdict {
    match (bounds.least..=bounds.most).contains(&number) {
        true => Verdict::Agrees,
        false => Verdict::Disagrees,
    }
}

fn words_of(bounds: Bounds) -> String {
    let Bounds { least, most } = bounds;
    match (least.is_finite(), most.is_finite()) {
        (true, true) => format!("from {} to {}", text::number(least), text::number(most)),
        (true, false) => format!("at least {}", text::number(least)),
        (false, _) => format!("at most {}", text::number(most)),
    }
}

/// A number, and a description of it.
struct ComputedNumber {
    number: f64,
    words: String,
}

/// Computes the number of an expectation; `None` if a point that it needs was not measured.
fn look(
    experiment: &Experiment,
    points: &Points,
    expectation: &Expectation,
) -> Option<ComputedNumber> {
    let metric = expectation.metric;
    let position = |name| experiment.series(name).expect("the definitions are tested");
    let curve = |name| points.curve(metric, position(name));
    let at = |name, at| {
        let curve = curve(name);
        match at {
            AxisPosition::Value(value) => curve.into_iter().find(|point| point.0 == value),
            AxisPosition::First => curve.first().copied(),
            AxisPosition::Last => curve.last().copied(),
        }
    };
    let quotient = |of: f64, to: f64| (to != 0.0).then_some(of / to);
    let place = |value| text::place(&experiment.axis, value);
    let amount = |value: f64| text::amount(value, experiment.metrics[metric].unit);
    match expectation.shape {
        Shape::Ratio { of, to, at: where_ } => {
            let (x, above) = at(of, where_)?;
            // Use the same position for both series: their last points differ if a call has failed.
            let (_, below) = at(to, AxisPosition::Value(x))?;
            let number = quotient(above, below)?;
            let words = format!(
                "{} × ({of} {}, {to} {}, at {})",
                text::number(number),
                amount(above),
                amount(below),
                place(x)
            );
            Some(ComputedNumber { number, words })
        }
        Shape::Change { of, from, until } => {
            let ((first, below), (last, above)) = (at(of, from)?, at(of, until)?);
            if first == last {
                return None;
            }
            let number = quotient(above, below)?;
            let words = format!(
                "{} × ({of} {} at {}, {} at {})",
                text::number(number),
                amount(above),
                place(last),
                amount(below),
                place(first)
            );
            Some(ComputedNumber { number, words })
        }
        Shape::Ahead { of, from } => {
            let first = at(of, from)?.0;
            let series = experiment.series.iter().enumerate();
            let others = series.filter(|(other, series)| *other != position(of) && !series.is_ours);
            let others: Vec<usize> = others.map(|(other, _)| other).collect();
            let mine = curve(of).into_iter().filter(|point| point.0 >= first);
            let ratios = mine.filter_map(|(x, value)| {
                let theirs = others.iter().filter_map(|&other| points.number(metric, other, x));
                let best = theirs.reduce(f64::max)?;
                Some((x, quotient(value, best)?))
            });
            let (x, number) =
                ratios.reduce(|least, next| if next.1 < least.1 { next } else { least })?;
            let words = format!(
                "{} × the best of the others at {}, where it is least",
                text::number(number),
                place(x)
            );
            Some(ComputedNumber { number, words })
        }
        Shape::Value { of, at: where_ } => {
            let (x, number) = at(of, where_)?;
            Some(ComputedNumber {
                number,
                words: format!("{of} {} at {}", amount(number), place(x)),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{ALIKE, at_least, at_most};
    use crate::papers::sample::{SAMPLE, points};

    fn finding_of(shape: Shape, bounds: Bounds, points: &Points) -> Finding {
        let expectation = Expectation { says: "", paper: "", metric: 0, shape, bounds };
        finding(&SAMPLE, points, &expectation)
    }

    /// Returns two curves over 1, 2 and 4 threads: 10, 20, 40, and 10, 10, 8.
    fn two() -> Points {
        points(&[&[10.0, 20.0, 40.0], &[10.0, 10.0, 8.0]])
    }

    #[test]
    fn each_shape_can_hold_and_fail() {
        let ratio = |at| Shape::Ratio { of: "fast", to: "slow", at };
        let change =
            |of| Shape::Change { of, from: AxisPosition::First, until: AxisPosition::Last };
        let ahead = |of, from| Shape::Ahead { of, from: AxisPosition::Value(from) };
        let value = Shape::Value { of: "slow", at: AxisPosition::Last };
        for (shape, bounds, expected, words) in [
            (
                ratio(AxisPosition::Last),
                at_least(2.0),
                Verdict::Agrees,
                "5 × (fast 40 tx/s, slow 8 tx/s, at 4)",
            ),
            (ratio(AxisPosition::Last), at_least(6.0), Verdict::Disagrees, "5 ×"),
            (ratio(AxisPosition::First), ALIKE, Verdict::Agrees, "1 ×"),
            (ratio(AxisPosition::Value(2.0)), ALIKE, Verdict::Disagrees, "2 ×"),
            (
                change("fast"),
                at_least(3.0),
                Verdict::Agrees,
                "4 × (fast 40 tx/s at 4, 10 tx/s at 1)",
            ),
            (change("slow"), at_least(3.0), Verdict::Disagrees, "0.8 ×"),
            (change("slow"), at_most(1.0), Verdict::Agrees, "0.8 ×"),
            (ahead("fast", 2.0), at_least(1.5), Verdict::Agrees, "2 × the best of the others at 2"),
            (
                ahead("fast", 1.0),
                at_least(1.5),
                Verdict::Disagrees,
                "1 × the best of the others at 1",
            ),
            (ahead("slow", 1.0), at_least(1.0), Verdict::Disagrees, "0.2 ×"),
            (value, at_most(8.0), Verdict::Agrees, "slow 8 tx/s at 4"),
            (value, at_least(9.0), Verdict::Disagrees, "slow 8 tx/s at 4"),
        ] {
            let finding = finding_of(shape, bounds, &two());
            assert_eq!(finding.verdict, expected, "{shape:?}: {finding:?}");
            assert!(finding.ours.starts_with(words), "{shape:?}: {finding:?}");
        }
    }

    #[test]
    fn missing_points_are_not_judged() {
        let nothing = points(&[&[], &[]]);
        let one = points(&[&[10.0], &[]]);
        for points in [nothing, one] {
            for shape in [
                Shape::Ratio { of: "fast", to: "slow", at: AxisPosition::Last },
                Shape::Change { of: "fast", from: AxisPosition::First, until: AxisPosition::Last },
                Shape::Ahead { of: "fast", from: AxisPosition::First },
                Shape::Value { of: "slow", at: AxisPosition::Last },
                Shape::Value { of: "fast", at: AxisPosition::Value(4.0) },
            ] {
                let finding = finding_of(shape, at_least(0.0), &points);
                assert_eq!(finding.verdict, Verdict::NotMeasured, "{shape:?}");
            }
        }
        // A ratio to 0 is not judged.
        let none = points(&[&[1.0, 1.0, 1.0], &[0.0, 0.0, 0.0]]);
        let shape = Shape::Ratio { of: "fast", to: "slow", at: AxisPosition::Last };
        assert_eq!(finding_of(shape, at_least(1.0), &none).verdict, Verdict::NotMeasured);
    }

    /// The last point of the one series is compared with the other's point at the same position, not with its last
    /// point.
    #[test]
    fn a_failed_point_is_not_compared_with_another_place() {
        let shorter = points(&[&[10.0, 20.0, 40.0], &[10.0, 10.0]]);
        let shape = Shape::Ratio { of: "fast", to: "slow", at: AxisPosition::Last };
        assert_eq!(finding_of(shape, at_least(1.0), &shorter).verdict, Verdict::NotMeasured);
        let shape = Shape::Ratio { of: "slow", to: "fast", at: AxisPosition::Last };
        assert_eq!(finding_of(shape, at_most(0.5), &shorter).verdict, Verdict::Agrees);
    }

    #[test]
    fn figure_agrees_if_all_expectations_hold() {
        let finding = |verdict| Finding {
            says: "",
            paper: "",
            ours: String::new(),
            number: String::new(),
            expected: String::new(),
            verdict,
        };
        use Verdict::{Agrees, Disagrees, InPart, NotMeasured};
        for (verdicts, expected) in [
            (vec![Agrees, Agrees], Agrees),
            (vec![Agrees, Disagrees], InPart),
            (vec![Agrees, NotMeasured], InPart),
            (vec![Disagrees, NotMeasured], Disagrees),
            (vec![NotMeasured], NotMeasured),
            (vec![], NotMeasured),
        ] {
            let findings: Vec<Finding> = verdicts.iter().map(|&verdict| finding(verdict)).collect();
            assert_eq!(Verdict::of_all(&findings), expected, "{verdicts:?}");
        }
    }
}
