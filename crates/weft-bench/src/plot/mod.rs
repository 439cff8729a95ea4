//! Curves over time, as an SVG picture: one panel below the other, all with the same axes.
//!
//! ```text
//!   title
//!   name of the first
//!   4 M |‾‾‾‾‾\/‾‾‾‾‾‾¦‾‾‾‾        ¦: a mark; |: where one part ends and the next begins
//!   2 M |       |     ¦
//!   0   +-------+-----------
//!   name of the second …
//! ```

use std::fmt;

use crate::numbers;
use crate::svg::Svg;

/// Sizes, in pixels.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;
const PANEL_HEIGHT: f64 = 170.0;
/// The space above each panel for its name.
const PANEL_TOP: f64 = 48.0;

/// The approximate number of steps of an axis.
const STEPS_X: f64 = 10.0;
const STEPS_Y: f64 = 4.0;

/// A picture, which is displayed as an SVG file.
#[derive(Debug)]
pub struct Chart {
    /// The heading.
    pub title: String,
    /// The label of the x axis, with its unit.
    pub x_label: &'static str,
    /// The label of the y axis, with its unit; it is shown beside the name of each panel.
    pub y_label: &'static str,
    /// The panels, from the top.
    pub panels: Vec<Panel>,
}

/// A panel with the curve of one contender.
#[derive(Debug)]
pub struct Panel {
    /// The panel's name.
    pub name: String,
    /// The parts of the curve, each with its points from left to right. Numbers are finite and not negative.
    pub parts: Vec<Vec<(f64, f64)>>,
    /// Where one part ends and the next begins, on the x axis.
    pub boundaries: Vec<f64>,
    /// Other positions to mark on the x axis, by dashed lines.
    pub marks: Vec<f64>,
}

/// An axis that starts at 0: its end, and the distance between two ticks.
struct Axis {
    end: f64,
    step: f64,
}

impl Axis {
    /// Returns an axis for all of these numbers, with steps of 1, 2 or 5 times a power of ten.
    fn of(numbers: impl Iterator<Item = f64>, steps: f64) -> Axis {
        let end = numbers.fold(0.0, f64::max);
        let end = if end > 0.0 { end } else { 1.0 };
        let rough = end / steps;
        let power = 10_f64.powf(rough.log10().floor());
        let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|&factor| factor * power >= rough);
        Axis { end, step: factor.unwrap_or(10.0) * power }
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let count = (self.end / self.step + 1e-9).floor() as u32;
        let step = self.step;
        (0..=count).map(move |tick| f64::from(tick) * step)
    }

    /// Returns the position of a number on the axis, from 0 to 1.
    fn share(&self, number: f64) -> f64 {
        number / self.end
    }
}

/// Formats the number at a tick.
fn tick(number: f64) -> String {
    if number.fract() == 0.0 {
        numbers::rate(number)
    } else {
        // Steps are at least a thousandth of a second.
        format!("{number:.3}").trim_end_matches('0').to_owned()
    }
}

impl fmt::Display for Chart {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = || self.panels.iter().flat_map(|panel| panel.parts.iter().flatten());
        let ends = self.panels.iter().flat_map(|panel| panel.boundaries.iter().copied());
        let x_axis = Axis::of(points().map(|point| point.0).chain(ends), STEPS_X);
        let y_axis = Axis::of(points().map(|point| point.1), STEPS_Y);
        let height = TOP + (PANEL_TOP + PANEL_HEIGHT) * self.panels.len() as f64 + BOTTOM;
        let mut svg = Svg::new((WIDTH, height), 12);
        svg.text((LEFT, 26.0), "font-size=\"15\"", &self.title);
        for (position, panel) in self.panels.iter().enumerate() {
            let top = TOP + (PANEL_TOP + PANEL_HEIGHT) * position as f64 + PANEL_TOP;
            svg.text((LEFT, top - 10.0), "", &format!("{}: {}", panel.name, self.y_label));
            panel.draw(&mut svg, top, &x_axis, &y_axis);
        }
        let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
        svg.text((middle, height - 8.0), "text-anchor=\"middle\"", self.x_label);
        out.write_str(&svg.finish())
    }
}

impl Panel {
    fn draw(&self, svg: &mut Svg, top: f64, x_axis: &Axis, y_axis: &Axis) {
        let (right, bottom) = (WIDTH - RIGHT, top + PANEL_HEIGHT);
        let x_of = |x: f64| LEFT + (right - LEFT) * x_axis.share(x);
        let y_of = |y: f64| bottom - PANEL_HEIGHT * y_axis.share(y);
        for number in y_axis.ticks() {
            let y = y_of(number);
            svg.shape("path", format_args!("d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\""), "");
            svg.text((LEFT - 6.0, y + 4.0), "text-anchor=\"end\"", &tick(number));
        }
        for number in x_axis.ticks() {
            svg.text((x_of(number), bottom + 15.0), "text-anchor=\"middle\"", &tick(number));
        }
        let boundaries = self.boundaries.iter().map(|&x| (x, "stroke=\"#888\""));
        let marks = self.marks.iter().map(|&x| (x, "stroke=\"#c33\" stroke-dasharray=\"3 3\""));
        for (x, style) in boundaries.chain(marks) {
            let x = x_of(x);
            svg.shape("path", format_args!("d=\"M{x:.1} {top}V{bottom}\" {style}"), "");
        }
        for part in self.parts.iter().filter(|part| !part.is_empty()) {
            let points = part.iter().map(|&(x, y)| format!("{:.1},{:.1} ", x_of(x), y_of(y)));
            let points: String = points.collect();
            let style = "fill=\"none\" stroke=\"#15608a\" stroke-width=\"1.5\"";
            svg.shape("polyline", format_args!("{style} points=\"{points}\""), "");
        }
        let axes =
            format_args!("d=\"M{LEFT} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"");
        svg.shape("path", axes, "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::assert_is_sound;

    fn panel(name: &str, parts: Vec<Vec<(f64, f64)>>) -> Panel {
        Panel { name: name.to_owned(), parts, boundaries: vec![2.0], marks: vec![1.0, 3.0] }
    }

    fn chart(panels: Vec<Panel>) -> Chart {
        Chart { title: "A < B\n& C".to_owned(), x_label: "seconds", y_label: "rate", panels }
    }

    #[test]
    fn ticks_are_round_numbers_and_reach_to_the_end() {
        for (end, steps, expected) in [
            (10.0, 10.0, "0 1 2 3 4 5 6 7 8 9 10"),
            (3.9, 4.0, "0 1 2 3"),
            (0.4, 4.0, "0 0.1 0.2 0.3 0.4"),
            (7_300_000.0, 4.0, "0 2,000,000 4,000,000 6,000,000"),
            (0.0, 4.0, "0 0.5 1"),
        ] {
            let ticks: Vec<String> = Axis::of([end].into_iter(), steps).ticks().map(tick).collect();
            assert_eq!(ticks.join(" "), expected, "{end}");
        }
    }

    /// Each tag is closed, each part is a line, and text does not become markup.
    #[test]
    fn a_picture_has_all_that_was_asked_for() {
        let first = vec![vec![(0.5, 10.0), (1.5, 20.0)], vec![(2.5, 0.0)]];
        let svg = chart(vec![panel("dbx", first), panel("a&b", vec![vec![]])]).to_string();
        assert_is_sound(&svg);
        assert!(svg.contains("A &lt; B; &amp; C") && svg.contains("a&amp;b: rate"), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 2, "an empty part is no line: {svg}");
        assert_eq!(svg.matches("stroke-dasharray").count(), 4, "two marks in each panel: {svg}");
    }

    /// The greatest rate is at the top of its panel, and 0 at the bottom; the last moment is at the right end.
    #[test]
    fn points_lie_where_their_numbers_say() {
        let curve = panel("dbx", vec![vec![(0.0, 0.0), (4.0, 5.0)]]);
        let svg = chart(vec![curve]).to_string();
        let (top, bottom) = (TOP + PANEL_TOP, TOP + PANEL_TOP + PANEL_HEIGHT);
        let points = format!("{LEFT:.1},{bottom:.1} {:.1},{top:.1} ", WIDTH - RIGHT);
        assert!(svg.contains(&points), "{points} in {svg}");
        // The axis reaches to the end of a part, beyond its last point.
        let longer = Panel { boundaries: vec![8.0], ..panel("dbx", vec![vec![(4.0, 5.0)]]) };
        let svg = chart(vec![longer]).to_string();
        let end = format!("M{:.1} {top}V{bottom}", WIDTH - RIGHT);
        assert!(svg.contains(&end), "{end} in {svg}");
        let half = format!("{:.1},{top:.1} ", LEFT + (WIDTH - LEFT - RIGHT) / 2.0);
        assert!(svg.contains(&half), "{half} in {svg}");
    }

    #[test]
    fn nothing_measured_is_a_picture_too() {
        let svg = chart(vec![panel("dbx", vec![])]).to_string();
        assert_is_sound(&svg);
    }
}
