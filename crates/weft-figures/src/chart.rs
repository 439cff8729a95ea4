//! The content of a picture, and its layout: curves over an axis, in panels one below the other.

use crate::definition::{AxisVariable, Experiment, Figure, Scale, Series};
use crate::measured::Points;
use crate::plan::{Machine, Plan};
use crate::text;

/// A picture, which [`crate::svg`] draws.
#[derive(Debug)]
pub struct Chart {
    /// The heading.
    pub heading: String,
    /// The machine, and whether it is simulated.
    pub machine: String,
    /// The series.
    pub series: &'static [Series],
    /// The label of the axis, with its unit.
    pub axis_label: &'static str,
    /// The division of the axis. With choices, each choice has a position of its own, and no line connects two
    /// choices.
    pub axis: Division,
    /// Whether the axis has choices.
    pub has_choices: bool,
    /// The panels, from the top.
    pub panels: Vec<Panel>,
}

/// A panel, with one metric of all series.
#[derive(Debug)]
pub struct Panel {
    /// The metric's name, with its unit.
    pub label: String,
    /// The division of the vertical axis.
    pub axis: Division,
    /// The points of each series, from left to right; empty for a series without measurements.
    pub curves: Vec<Vec<(f64, f64)>>,
    /// Numbers that the paper's text gives: the position of the series, and the point.
    pub published: Vec<(usize, f64, f64)>,
    /// Missing numbers: the position of the series, and the value on the axis.
    pub missed: Vec<(usize, f64)>,
}

/// The division of an axis: its ends, and its ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    scale: Scale,
    from: f64,
    to: f64,
    /// The position and the text of each tick.
    pub ticks: Vec<(f64, String)>,
}

impl Division {
    /// Returns a division that contains all of these numbers.
    pub fn of(scale: Scale, numbers: impl Iterator<Item = f64>, steps: f64) -> Division {
        let numbers: Vec<f64> = numbers.filter(|number| number.is_finite()).collect();
        match scale {
            Scale::Linear => Division::linear(numbers.into_iter().fold(0.0, f64::max), steps),
            Scale::Logarithmic => {
                // Numbers that are not positive are drawn at the lower end, and do not affect the division.
                let positive = || numbers.iter().copied().filter(|&number| number > 0.0);
                let least = positive().reduce(f64::min).unwrap_or(1.0);
                Division::logarithmic(least, positive().reduce(f64::max).unwrap_or(10.0))
            }
        }
    }

    /// Returns a division from 0, in steps of 1, 2 or 5 times a power of ten.
    fn linear(greatest: f64, steps: f64) -> Division {
        let greatest = if greatest > 0.0 { greatest } else { 1.0 };
        let rough = greatest / steps;
        let power = 10_f64.powf(rough.log10().floor());
        let factors = [1.0, 2.0, 5.0, 10.0];
        let factor = factors.into_iter().find(|&factor| factor * power >= rough * (1.0 - 1e-9));
        let step = factor.unwrap_or(10.0) * power;
        let count = (greatest / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=count as u32).map(|tick| f64::from(tick) * step);
        let ticks = ticks.map(|tick| (tick, text::number(tick))).collect();
        Division { scale: Scale::Linear, from: 0.0, to: count * step, ticks }
    }

    /// Returns a division with ticks at powers of ten; if there are few, also at 2 and 5 times them.
    fn logarithmic(least: f64, greatest: f64) -> Division {
        let (from, to) = (least.log10().floor(), greatest.log10().ceil());
        // If all numbers are equal, the axis still needs a length.
        let to = if to <= from { from + 1.0 } else { to };
        let factors: &[f64] = if to - from <= 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let powers = (from as i32..=to as i32).map(|power| 10_f64.powi(power));
        let all = powers.flat_map(|power| factors.iter().map(move |factor| factor * power));
        let (from, to) = (10_f64.powf(from), 10_f64.powf(to));
        // Move the ends to the ticks that are closest to the numbers.
        let inside: Vec<f64> = all.filter(|&tick| tick <= to * 1.001).collect();
        let from =
            inside.iter().copied().filter(|&tick| tick <= least * 1.001).fold(from, f64::max);
        let to = inside.iter().copied().filter(|&tick| tick >= greatest * 0.999).fold(to, f64::min);
        let to = if to > from { to } else { from * 10.0 };
        let shown = inside.into_iter().filter(|tick| (from * 0.999..=to * 1.001).contains(tick));
        let ticks = shown.map(|tick| (tick, text::number(tick))).collect();
        Division { scale: Scale::Logarithmic, from, to, ticks }
    }

    /// Returns a division with a position for each of these names, in the middle of its part.
    fn names(names: impl Iterator<Item = String>) -> Division {
        let ticks: Vec<_> = names.enumerate().map(|(place, name)| (place as f64, name)).collect();
        let to = ticks.len() as f64 - 0.5;
        Division { scale: Scale::Linear, from: -0.5, to, ticks }
    }

    /// Returns the position of a number on the axis, from 0 to 1.
    pub fn share(&self, number: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (number - self.from) / (self.to - self.from),
            Scale::Logarithmic if number <= 0.0 => 0.0,
            Scale::Logarithmic => (number / self.from).ln() / (self.to / self.from).ln(),
        };
        share.clamp(0.0, 1.0)
    }
}

/// Returns the picture of the measurements of a figure.
pub fn chart(figure: &Figure, experiment: &Experiment, plan: &Plan, points: &Points) -> Chart {
    let has_choices = matches!(experiment.axis.by, AxisVariable::Choices(_));
    let published =
        |metric| experiment.published.iter().filter(move |published| published.metric == metric);
    let axis = match experiment.axis.by {
        AxisVariable::Choices(choices) => {
            Division::names(choices.iter().map(|choice| choice.label.to_owned()))
        }
        _ => {
            let all =
                (0..experiment.metrics.len()).flat_map(published).map(|published| published.at);
            let numbers: Vec<f64> = plan.axis.iter().copied().chain(all).collect();
            let greatest = numbers.iter().copied().fold(1.0, f64::max);
            // Numbers of threads are whole, so there are no ticks between them.
            let is_whole = matches!(experiment.axis.by, AxisVariable::Threads);
            let steps = if is_whole { greatest.min(8.0) } else { 8.0 };
            Division::of(experiment.axis.scale, numbers.into_iter(), steps)
        }
    };
    let panels = experiment.metrics.iter().enumerate().map(|(metric, about)| {
        let series = 0..experiment.series.len();
        let curves: Vec<_> = series.map(|series| points.curve(metric, series)).collect();
        let published = published(metric).map(|published| {
            let series = experiment.series(published.series).expect("the definitions are tested");
            (series, published.at, published.value)
        });
        let published: Vec<_> = published.collect();
        let measured = curves.iter().flatten().map(|point| point.1);
        let numbers = measured.chain(published.iter().map(|published| published.2));
        // A metric that a series never has is not missing: without elision, for example, no regions abort.
        let missed = points.0.iter().filter(|point| {
            let is_missed = point.failure.is_some() || !curves[point.series].is_empty();
            point.numbers[metric].is_none() && is_missed
        });
        Panel {
            label: about.label(),
            axis: Division::of(about.scale, numbers, 5.0),
            missed: missed.map(|point| (point.series, point.at)).collect(),
            curves,
            published,
        }
    });
    let machine = match plan.machine {
        Machine::Real(_) => "measured on this machine".to_owned(),
        Machine::Simulated(simulated) => format!("SIMULATED: {}", simulated.machine),
    };
    Chart {
        heading: format!("{}, {}: {}", figure.paper.title(), figure.number, figure.title),
        machine,
        series: experiment.series,
        axis_label: experiment.axis.label,
        axis,
        has_choices,
        panels: panels.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::sample;
    use crate::plan::plan;

    fn ticks(division: &Division) -> String {
        let ticks: Vec<&str> = division.ticks.iter().map(|tick| tick.1.as_str()).collect();
        ticks.join(" ")
    }

    #[test]
    fn linear_axes_begin_at_0_and_end_at_a_round_number() {
        for (greatest, expected) in [
            (80.0, "0 20 40 60 80"),
            (1_050_000.0, "0 500 k 1 M 1.5 M"),
            (0.31, "0 0.1 0.2 0.3 0.4"),
            (0.0, "0 0.2 0.4 0.6 0.8 1"),
        ] {
            let division = Division::of(Scale::Linear, [greatest].into_iter(), 5.0);
            assert_eq!(ticks(&division), expected, "{greatest}");
        }
    }

    #[test]
    fn logarithmic_axes_reach_over_all_numbers() {
        for (numbers, expected) in [
            (&[1.15e6, 133e6][..], "1 M 10 M 100 M 1 G"),
            (&[3.0, 40.0], "2 5 10 20 50"),
            (&[0.0, 100.0], "100 200 500 1000"),
            (&[], "1 2 5 10"),
        ] {
            let division = Division::of(Scale::Logarithmic, numbers.iter().copied(), 5.0);
            assert_eq!(ticks(&division), expected, "{numbers:?}");
            for &number in numbers {
                assert!((0.0..=1.0).contains(&division.share(number)), "{number}");
            }
        }
        let division = Division::of(Scale::Logarithmic, [1.0, 100.0].into_iter(), 5.0);
        let shares = [0.0, 1.0, 10.0, 100.0].map(|number| (division.share(number) * 100.0).round());
        assert_eq!(shares, [0.0, 0.0, 50.0, 100.0]);
    }

    #[test]
    fn missing_numbers_are_marked() {
        const TWICE: Experiment = Experiment {
            metrics: &[sample::SAMPLE.metrics[0], sample::SAMPLE.metrics[0]],
            ..sample::SAMPLE
        };
        let plan = plan(&sample::FIGURE, &sample::settings()).expect("it can be simulated");
        let mut points = sample::points(&[&[10.0, 20.0, 40.0], &[10.0, 10.0]]);
        for point in &mut points.0 {
            let has_second = (point.series, point.at) == (0, 1.0);
            point.numbers.push(has_second.then_some(5.0));
        }
        let chart = chart(&sample::FIGURE, &TWICE, &plan, &points);
        assert_eq!(chart.panels[0].missed, [(1, 4.0)]);
        assert_eq!(chart.panels[1].missed, [(0, 2.0), (0, 4.0), (1, 4.0)], "slow has no number");
    }

    #[test]
    fn choices_stand_in_the_middle_of_their_parts() {
        let division = Division::names(["a", "b"].into_iter().map(str::to_owned));
        assert_eq!((division.share(0.0), division.share(1.0)), (0.25, 0.75));
    }
}
