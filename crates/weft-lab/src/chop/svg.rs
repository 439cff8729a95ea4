//! The chopping graph as a picture: two instances of each procedure side by side, with the pieces of an instance
//! one below the other.
//!
//! ```text
//!     pay (1)       pay (2)      look (1)      look (2)
//!    +-------+     +-------+    +--------+    +--------+
//!    |  add  |     |  add  |    |  read  |    |  read  |
//!    +-------+     +-------+    +--------+    +--------+
//!        |             |             |             |
//!    ( update )----( update )---.( write )----( write )
//!                               '
//! ```
//!
//! Lines between neighbouring instances are straight. All others go down beside their pieces, along below all
//! pieces, and up again. Each of them has a lane below the pieces, assigned as the lanes of arrows in pictures of
//! procedures.

use std::collections::BTreeMap;

use weft_procedures::chopping::{Chopping, PieceKind, StepNumber};

use super::edges::{Edge, Place, Sort, edges, in_graph};
use super::text::{label, title};
use crate::procedures::layout::{Arrow, Kind, lanes};
use weft_bench::svg::Svg;

/// Sizes, in pixels.
const MARGIN: f64 = 24.0;
const TOP: f64 = 92.0;
const LINE: f64 = 18.0;
const PADDING: f64 = 12.0;
const BETWEEN_PIECES: f64 = 30.0;
const GUTTER: f64 = 70.0;
const CHARACTER: f64 = 7.3;
const LANE: f64 = 14.0;
/// The distance between two lines in a gutter.
const BESIDE: f64 = 5.0;

/// The position and size of a piece.
#[derive(Clone, Copy)]
struct Shape {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Shape {
    fn middle(&self) -> f64 {
        self.top + self.height / 2.0
    }
}

/// Returns the picture.
pub fn svg(chopping: &Chopping) -> String {
    // Place the pieces: a column for each instance, from left to right.
    let mut shapes: BTreeMap<Place, Shape> = BTreeMap::new();
    let (mut left, mut bottom) = (MARGIN, TOP);
    let mut columns: Vec<(usize, usize, f64)> = Vec::new();
    for procedure in in_graph(chopping) {
        let pieces = &chopping.procedures[procedure].pieces;
        let of_step = |step| label(chopping, StepNumber { procedure, step }).chars().count();
        let steps = pieces.iter().flat_map(|piece| piece.steps.iter().copied());
        let longest = steps.map(of_step).max().unwrap_or(0);
        let width = (longest as f64 * CHARACTER + 4.0 * PADDING).max(110.0);
        for instance in 1..=2 {
            let mut top = TOP;
            for (position, piece) in pieces.iter().enumerate() {
                let height = piece.steps.len() as f64 * LINE + 2.0 * PADDING;
                let place = Place { procedure, instance, piece: position };
                shapes.insert(place, Shape { left, top, width, height });
                top += height + BETWEEN_PIECES;
            }
            bottom = bottom.max(top);
            columns.push((procedure, instance, left + width / 2.0));
            left += width + GUTTER;
        }
    }
    let edges = edges(chopping);
    let column = |place: Place| {
        let found = columns.iter().position(|&(procedure, instance, _)| {
            (procedure, instance) == (place.procedure, place.instance)
        });
        found.expect("it is in the graph")
    };
    // Assign lanes to the edges between instances that are not neighbours.
    let mut ways: Vec<Arrow> = Vec::new();
    for (position, edge) in edges.iter().enumerate() {
        let (from, to) = (column(edge.from), column(edge.to));
        // `lanes` overwrites `lane`; until then it holds the edge's position, which `far` remembers.
        if from.abs_diff(to) > 1 {
            ways.push(Arrow { from, to, kind: Kind::Value, is_carried: false, lane: position });
        }
    }
    let far: Vec<usize> = ways.iter().map(|way| way.lane).collect();
    let mut laid = ways.clone();
    lanes(&mut laid);
    let lanes_below = laid.iter().map(|way| way.lane + 1).max().unwrap_or(0);
    let width = (left - GUTTER + MARGIN).max(640.0);
    let height = bottom + lanes_below as f64 * LANE + 2.0 * MARGIN + 20.0;

    let mut svg = Svg::new((width, height), 13);
    write_head(&mut svg, chopping);
    for &(procedure, instance, middle) in &columns {
        let name = &chopping.outline(procedure).name;
        let style = "text-anchor=\"middle\" font-weight=\"bold\"";
        svg.text((middle, TOP - 14.0), style, &format!("{name} ({instance})"));
    }
    // Draw S-edges first, then C-edges, then the pieces, which cover the ends of the lines.
    for (place, shape) in &shapes {
        let next = Place { piece: place.piece + 1, ..*place };
        if let Some(below) = shapes.get(&next) {
            let x = shape.left + shape.width / 2.0;
            let (from, to) = (shape.top + shape.height, below.top);
            let (d, style) =
                (format!("M{x:.1} {from:.1}V{to:.1}"), "stroke=\"#222\" stroke-width=\"1.5\"");
            svg.shape("path", format_args!("class=\"s\" d=\"{d}\" {style}"), "");
        }
    }
    let mut free = laid;
    for (position, edge) in edges.iter().enumerate() {
        let lane = far.contains(&position).then(|| {
            let ends = (column(edge.from), column(edge.to));
            let found = free.iter().position(|way| (way.from, way.to) == ends);
            free.remove(found.expect("each has a lane")).lane
        });
        draw_edge(&mut svg, edge, (&shapes[&edge.from], &shapes[&edge.to]), lane, bottom);
    }
    for (place, shape) in &shapes {
        draw_piece(&mut svg, chopping, *place, shape);
    }
    svg.finish()
}

fn write_head(svg: &mut Svg, chopping: &Chopping) {
    let of = |wanted: bool| {
        let all = chopping.each().filter(move |(_, chopped)| chopped.on_snapshot == wanted);
        all.map(|(outline, _)| outline.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let on_snapshots = match of(true) {
        none if none.is_empty() => String::new(),
        names => format!("; on snapshots: {names}"),
    };
    let heading = format!("Chopping graph of {}", title(chopping));
    svg.text((MARGIN, 26.0), "font-size=\"15\"", &heading);
    let legend = format!(
        "ovals: conflicting pieces; black: S-edges; red: C-edges; dashed: from deferred steps to their readers \
         (crossed lines are left out){on_snapshots}"
    );
    svg.text((MARGIN, 45.0), "fill=\"#555\"", &legend);
}

fn draw_edge(
    svg: &mut Svg,
    edge: &Edge,
    (from, to): (&Shape, &Shape),
    lane: Option<usize>,
    bottom: f64,
) {
    let tables = edge.tables.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let broken = if edge.sort == Sort::Deferred { " stroke-dasharray=\"6 4\"" } else { "" };
    let (start, end) = (from.left + from.width, to.left);
    let path = match lane {
        None => format!("M{start:.1} {:.1}L{end:.1} {:.1}", from.middle(), to.middle()),
        Some(lane) => {
            let beside = 10.0 + BESIDE * (lane % 9) as f64;
            let y = bottom + LANE * lane as f64;
            let (down, up) = (start + beside, end - beside);
            let (first, last) = (from.middle() + beside / 4.0, to.middle() + beside / 4.0);
            format!("M{start:.1} {first:.1}H{down:.1}V{y:.1}H{up:.1}V{last:.1}H{end:.1}")
        }
    };
    let style = "fill=\"none\" stroke=\"#c22\" stroke-width=\"1.3\"";
    svg.shape("path", format_args!("class=\"c\" d=\"{path}\" {style}{broken}"), &tables);
}

fn draw_piece(svg: &mut Svg, chopping: &Chopping, place: Place, shape: &Shape) {
    let Shape { left, top, width, height } = *shape;
    let piece = &chopping.procedures[place.procedure].pieces[place.piece];
    let (rounded, fill) = match piece.kind {
        PieceKind::Conflicting => (height.min(width) / 2.0, "#fbe3e0"),
        PieceKind::Commutative => (4.0, "#e6f3e2"),
        PieceKind::Exclusive => (4.0, "#eef0da"),
        PieceKind::Deferred => (4.0, "#e8e3f3"),
        PieceKind::Reading | PieceKind::Static => (4.0, "#e2eef6"),
    };
    let broken = if piece.kind == PieceKind::Deferred { " stroke-dasharray=\"5 3\"" } else { "" };
    svg.shape(
        "rect",
        format_args!(
            "class=\"piece\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             rx=\"{rounded:.1}\" fill=\"{fill}\" stroke=\"#555\"{broken}"
        ),
        &piece.kind.to_string(),
    );
    for (position, &step) in piece.steps.iter().enumerate() {
        let label = label(chopping, StepNumber { procedure: place.procedure, step });
        let (x, y) = (left + width / 2.0, top + PADDING + LINE * position as f64 + 13.0);
        svg.text((x, y), "text-anchor=\"middle\"", &label);
    }
}

#[cfg(test)]
mod tests {
    use weft_procedures::chopping::{Options, chop};
    use weft_workloads::procedures::{WORKLOADS, outlines_of_workload};

    use super::*;

    /// Each piece is drawn twice and each edge once, and each tag is closed.
    #[test]
    fn a_picture_has_all_pieces_and_edges() {
        for workload in WORKLOADS {
            let outlines = outlines_of_workload(workload).expect("it is in the list");
            for options in [Options::NONE, Options::CONVENTIONAL, Options::ALL] {
                let chopping = chop(&outlines, options).expect("it is possible");
                let svg = svg(&chopping);
                let pieces = || in_graph(&chopping).map(|it| chopping.procedures[it].pieces.len());
                assert_eq!(svg.matches("class=\"piece\"").count(), 2 * pieces().sum::<usize>());
                let siblings = pieces().map(|pieces| 2 * (pieces - 1)).sum::<usize>();
                assert_eq!(svg.matches("class=\"s\"").count(), siblings, "{workload}");
                assert_eq!(svg.matches("class=\"c\"").count(), edges(&chopping).len());
                weft_bench::svg::assert_is_sound(&svg);
            }
        }
    }
}
