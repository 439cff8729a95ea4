//! Procedures as an SVG picture, one below the other.

use weft_procedures::{Dependency, Shape, Step};

use super::layout::{Arrow, Kind, lanes};
use super::text::place;
use weft_bench::svg::Svg;

/// Sizes, in pixels.
const MARGIN: f64 = 20.0;
const TOP: f64 = 58.0;
const NAME_HEIGHT: f64 = 34.0;
const ROW_HEIGHT: f64 = 46.0;
const BOX_HEIGHT: f64 = 32.0;
const LANE: f64 = 16.0;
const INDENT: f64 = 26.0;
const CHARACTER: f64 = 7.3;
/// The distance from the ends of arrows to the outermost loop's edge.
const GAP: f64 = 16.0;

/// Returns a picture of all procedures.
pub fn svg(workload: &str, shapes: &[&Shape]) -> String {
    let drawings: Vec<Drawing<'_>> = shapes.iter().map(|shape| Drawing::of(shape)).collect();
    let width = drawings.iter().map(|drawing| drawing.width).fold(640.0, f64::max);
    let height = TOP + drawings.iter().map(Drawing::height).sum::<f64>() + MARGIN;
    let mut svg = Svg::new((width, height), 13);
    svg.add(format_args!(
        "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#444\"/></marker></defs>"
    ));
    svg.text((MARGIN, 26.0), "font-size=\"15\"", &format!("Procedures of {workload}"));
    svg.text(
        (MARGIN, 45.0),
        "fill=\"#555\"",
        "solid: a key depends on it; dashed: a value; dotted: only whether it runs; *: also on earlier \
         iterations",
    );
    let mut top = TOP;
    for drawing in &drawings {
        drawing.draw(&mut svg, top);
        top += drawing.height();
    }
    svg.finish()
}

/// The layout of a procedure.
struct Drawing<'a> {
    shape: &'a Shape,
    /// The arrows: keys on the left, values and guards on the right.
    left: Vec<Arrow>,
    right: Vec<Arrow>,
    labels: Vec<String>,
    /// The left edge of steps outside of loops.
    boxes_left: f64,
    box_width: f64,
    width: f64,
}

impl<'a> Drawing<'a> {
    fn of(shape: &'a Shape) -> Self {
        let arrows = |step: usize, all: Vec<Dependency>, kind| {
            all.into_iter().map(move |Dependency { on, carried }| Arrow {
                from: on,
                to: step,
                kind,
                is_carried: carried.is_some(),
                lane: 0,
            })
        };
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (number, step) in shape.steps.iter().enumerate() {
            left.extend(arrows(number, step.key_dependencies().collect(), Kind::Key));
            right.extend(arrows(number, step.value_dependencies().collect(), Kind::Value));
            right.extend(arrows(number, other_guards(step), Kind::Guard));
        }
        lanes(&mut left);
        lanes(&mut right);
        let labels: Vec<String> = shape.steps.iter().enumerate().map(label).collect();
        let depth = shape.loops.iter().map(|around| around.depth + 1).max().unwrap_or(0) as f64;
        let lanes_of = |arrows: &[Arrow]| {
            arrows.iter().map(|arrow| arrow.lane + 1).max().unwrap_or(0) as f64 * LANE
        };
        let boxes_left = MARGIN + lanes_of(&left) + GAP;
        let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        let box_width = longest as f64 * CHARACTER + 20.0 + 2.0 * depth * INDENT;
        let width = boxes_left + box_width + GAP + lanes_of(&right) + MARGIN + 60.0;
        Drawing { shape, left, right, labels, boxes_left, box_width, width }
    }

    fn height(&self) -> f64 {
        NAME_HEIGHT + ROW_HEIGHT * self.shape.steps.len() as f64 + 12.0
    }

    /// Returns the left and the right edge of a step's box.
    fn edges(&self, step: usize) -> (f64, f64) {
        let indent = INDENT * self.shape.steps[step].loops.len() as f64;
        (self.boxes_left + indent, self.boxes_left + self.box_width - indent)
    }

    fn draw(&self, svg: &mut Svg, top: f64) {
        svg.text((self.boxes_left, top + 20.0), "font-weight=\"bold\"", self.shape.name);
        let first = top + NAME_HEIGHT;
        let middle = |step: usize| first + ROW_HEIGHT * step as f64 + ROW_HEIGHT / 2.0;
        for around in self.shape.loops.iter().filter(|around| around.steps.0 < around.steps.1) {
            let inset = INDENT * around.depth as f64 + INDENT / 2.0;
            let (x, width) = (self.boxes_left + inset, self.box_width - 2.0 * inset);
            let margin = 2.0 * around.depth as f64 + 1.0;
            let y = middle(around.steps.0) - ROW_HEIGHT / 2.0 + margin;
            let height = ROW_HEIGHT * (around.steps.1 - around.steps.0) as f64 - 2.0 * margin;
            svg.shape(
                "rect",
                format_args!(
                    "x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"8\" \
                     fill=\"#f4f4ee\" stroke=\"#998\""
                ),
                "",
            );
        }
        for (step, label) in self.labels.iter().enumerate() {
            let ((left, right), y) = (self.edges(step), middle(step) - BOX_HEIGHT / 2.0);
            let fill = if self.shape.steps[step].access.writes() { "#fbe9d5" } else { "#e2eef6" };
            svg.shape(
                "rect",
                format_args!(
                    "x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BOX_HEIGHT}\" rx=\"3\" \
                     fill=\"{fill}\" stroke=\"#555\"",
                    right - left
                ),
                "",
            );
            svg.text((left + 10.0, middle(step) + 4.5), "", label);
        }
        for arrow in self.left.iter().chain(&self.right) {
            self.draw_arrow(svg, arrow, &middle);
        }
    }

    fn draw_arrow(&self, svg: &mut Svg, arrow: &Arrow, middle: &impl Fn(usize) -> f64) {
        // An arrow leaves a step in the lower half and enters one in the upper half, so that the ends stay apart.
        let (start, end) = (middle(arrow.from) + 7.0, middle(arrow.to) - offset(arrow.kind));
        let ((from_left, from_right), (to_left, to_right)) =
            (self.edges(arrow.from), self.edges(arrow.to));
        let distance = GAP + LANE * arrow.lane as f64;
        let (from, to, lane) = match arrow.kind {
            Kind::Key => (from_left, to_left, self.boxes_left - distance),
            _ => (from_right, to_right, self.boxes_left + self.box_width + distance),
        };
        let style = match arrow.kind {
            Kind::Key => "",
            Kind::Value => " stroke-dasharray=\"6 3\"",
            Kind::Guard => " stroke-dasharray=\"1.5 3\"",
        };
        let d = format!("M{from:.1} {start:.1}H{lane:.1}V{end:.1}H{to:.1}");
        let arrow_style = "fill=\"none\" stroke=\"#444\" marker-end=\"url(#head)\"";
        svg.shape("path", format_args!("d=\"{d}\" {arrow_style}{style}"), "");
        if arrow.is_carried {
            let x = if arrow.kind == Kind::Key { lane - 8.0 } else { lane + 2.0 };
            svg.text((x, (start + end) / 2.0 + 6.0), "", "*");
        }
    }
}

/// Returns what decides whether a step runs, without the steps that it depends on anyway.
fn other_guards(step: &Step) -> Vec<Dependency> {
    let is_other = |guard: &Dependency| step.dependencies().all(|known| known.on != guard.on);
    step.guards.iter().copied().filter(is_other).collect()
}

/// Returns how far above the middle of a step arrows of a kind enter it.
fn offset(kind: Kind) -> f64 {
    match kind {
        Kind::Key => 7.0,
        Kind::Value => 10.0,
        Kind::Guard => 2.0,
    }
}

fn label((number, step): (usize, &Step)) -> String {
    format!("{number}  {}  {}", step.access, place(step))
}

#[cfg(test)]
mod tests {
    use weft_workloads::procedures::{WORKLOADS, of_workload};

    use super::*;

    /// Each step is a box, each dependency an arrow, and each tag is closed.
    #[test]
    fn a_picture_has_all_steps_loops_and_dependencies() {
        for workload in WORKLOADS {
            let shapes = of_workload(workload).expect("it is in the list");
            let svg = svg(workload, &shapes);
            let steps = || shapes.iter().flat_map(|shape| shape.steps);
            let arrows = steps().map(|step| {
                let keys = step.key_dependencies().count() + step.value_dependencies().count();
                keys + other_guards(step).len()
            });
            assert_eq!(svg.matches("marker-end").count(), arrows.sum::<usize>(), "{workload}");
            assert_eq!(svg.matches("rx=\"3\"").count(), steps().count(), "{workload}");
            let loops = shapes.iter().map(|shape| shape.loops.len()).sum::<usize>();
            assert_eq!(svg.matches("rx=\"8\"").count(), loops, "{workload}");
            weft_bench::svg::assert_is_sound(&svg);
        }
    }
}
