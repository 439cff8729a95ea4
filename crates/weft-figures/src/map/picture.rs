//! The heat map: a panel for each machine with a number of threads, with a row for each point and a column for each
//! protocol. A cell has the protocol's throughput in percent of the best at that place, and is the darker the higher
//! it is. The last column has the ratio of the candidate to the rival.

use std::fmt::{self, Write};

use super::results::{PlaceResult, Results};
use crate::svg::style;
use crate::text::Escaped;

const EDGE: f64 = 12.0;
const LINE_HEIGHT: f64 = 19.0;
/// The width of the points' titles.
const TITLES: f64 = 164.0;
/// The size of a cell.
const CELL: f64 = 32.0;
const ROW: f64 = 22.0;
/// The height of the protocols' names, which are written upwards.
const NAMES: f64 = 92.0;
/// The width of the last column.
const RATIO: f64 = 58.0;
/// The space between two panels.
const GAP: f64 = 26.0;

/// The opacity of the best cell. The number on it must stay legible.
const OPACITY_MAX: f64 = 0.55;

/// The heat map of some results, as an SVG file.
pub struct HeatMap<'r>(pub &'r Results);

/// The rows that share a machine and a number of threads.
struct Panel<'r> {
    label: String,
    rows: Vec<&'r PlaceResult>,
}

/// Returns the panels: first those of this machine, then the simulated ones, by the number of threads.
fn panels(results: &Results) -> Vec<Panel<'_>> {
    let key = |place: &PlaceResult| (place.is_simulated, place.machine.clone(), place.threads);
    let mut keys: Vec<_> = results.places.iter().map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    let panel = |of: (bool, String, u32)| {
        let rows: Vec<_> = results.places.iter().filter(|place| key(place) == of).collect();
        let label = match of {
            (false, _, threads) => format!("this machine, {threads} threads"),
            (true, machine, cores) => format!("SIMULATED: {machine}, {cores} cores"),
        };
        Panel { label, rows }
    };
    keys.into_iter().map(panel).collect()
}

/// Returns the protocols, in the order in which they took part.
fn protocols(results: &Results) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for protocol in results.places.iter().flat_map(|place| &place.protocols) {
        if !names.contains(&protocol.protocol.as_str()) {
            names.push(&protocol.protocol);
        }
    }
    names
}

impl fmt::Display for HeatMap<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HeatMap(results) = self;
        let (panels, protocols) = (panels(results), protocols(results));
        let of_panel = |panel: &Panel<'_>| NAMES + ROW * panel.rows.len() as f64 + GAP;
        let width = TITLES + CELL * protocols.len() as f64 + RATIO + 2.0 * EDGE;
        let head = 4.0 * LINE_HEIGHT + EDGE;
        let height = head + panels.iter().map(of_panel).sum::<f64>();
        let candidate = Escaped(&results.candidate);
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" class=\"wf\" role=\"img\" \
             aria-label=\"The map of {candidate}\">\n<title>The map of {candidate}</title>\n\
             <style>{}.wf .cell{{stroke:none}}.wf .best{{stroke-width:1.5;fill:none}}</style>\n\
             <rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>",
            style()
        )?;
        let quick = if results.is_quick { "; a quick run" } else { "" };
        let lines = [
            format!("Throughput in percent of the best protocol at each place{quick}"),
            "A frame marks the best, × a failure. Last column: the ratio of".to_owned(),
            format!("{} to the best of the others; * disturbed pairs", results.candidate),
            format!("This machine: {}", results.host),
        ];
        for (number, line) in (1..).zip(&lines) {
            let class = if number == 1 { "heading" } else { "small" };
            let y = LINE_HEIGHT * f64::from(number);
            writeln!(
                out,
                "<text class=\"{class}\" x=\"{EDGE}\" y=\"{y}\">{}</text>",
                Escaped(line)
            )?;
        }
        let mut top = head;
        for panel in &panels {
            draw_panel(out, panel, &protocols, top)?;
            top += of_panel(panel);
        }
        writeln!(out, "</svg>")
    }
}

fn draw_panel(
    out: &mut fmt::Formatter<'_>,
    panel: &Panel<'_>,
    protocols: &[&str],
    top: f64,
) -> fmt::Result {
    let label = Escaped(&panel.label);
    writeln!(out, "<text class=\"heading\" x=\"{EDGE}\" y=\"{}\">{label}</text>", top + 14.0)?;
    let left = EDGE + TITLES;
    let below = top + NAMES;
    for (column, name) in protocols.iter().copied().chain(["ratio"]).enumerate() {
        let x = left + CELL * (column as f64 + 0.5) + 4.5;
        let y = below - 6.0;
        let name = Escaped(name);
        writeln!(
            out,
            "<text class=\"small\" transform=\"translate({x:.1} {y:.1}) rotate(-60)\">{name}</text>"
        )?;
    }
    for (number, place) in panel.rows.iter().enumerate() {
        draw_row(out, place, protocols, (left, below + ROW * number as f64))?;
    }
    Ok(())
}

fn draw_row(
    out: &mut fmt::Formatter<'_>,
    place: &PlaceResult,
    protocols: &[&str],
    (left, top): (f64, f64),
) -> fmt::Result {
    let middle = top + ROW / 2.0 + 4.5;
    let title = Escaped(&place.title);
    writeln!(out, "<text class=\"small\" x=\"{EDGE}\" y=\"{middle:.1}\">{title}</text>")?;
    let best = place.best().unwrap_or(0.0);
    for (column, &name) in protocols.iter().enumerate() {
        let Some(result) = place.protocols.iter().find(|result| result.protocol == name) else {
            continue;
        };
        let x = left + CELL * column as f64;
        let share = result.throughput.filter(|_| best > 0.0).map(|number| number / best);
        let mut text = "×".to_owned();
        if let Some(share) = share {
            let (width, height) = (CELL - 1.0, ROW - 1.0);
            let opacity = OPACITY_MAX * share;
            writeln!(
                out,
                "<rect class=\"cell s0\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width}\" height=\"{height}\" \
                 fill-opacity=\"{opacity:.3}\"/>"
            )?;
            if share >= 1.0 {
                writeln!(
                    out,
                    "<rect class=\"frame best\" x=\"{:.1}\" y=\"{:.1}\" width=\"{}\" height=\"{}\"/>",
                    x + 1.0,
                    top + 1.0,
                    width - 2.0,
                    height - 2.0
                )?;
            }
            text.clear();
            write!(text, "{:.0}", 100.0 * share)?;
        }
        let x = x + (CELL - 1.0) / 2.0;
        writeln!(
            out,
            "<text class=\"small\" x=\"{x:.1}\" y=\"{middle:.1}\" text-anchor=\"middle\">{text}</text>"
        )?;
    }
    let mark = if place.disturbed() > 0 { " *" } else { "" };
    let (class, ratio) = match place.ratio() {
        Some(ratio) if ratio < 1.0 => ("heading", format!("{ratio:.2}{mark}")),
        Some(ratio) => ("small", format!("{ratio:.2}{mark}")),
        None => ("small", "×".to_owned()),
    };
    let x = left + CELL * protocols.len() as f64 + 8.0;
    writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{middle:.1}\">{ratio}</text>")
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::result;
    use super::*;

    fn results() -> Results {
        let simulated = PlaceResult {
            is_simulated: true,
            machine: "xeon-8x10".to_owned(),
            ..result("bank", 40, &[(110.0, 100.0, false)])
        };
        Results {
            candidate: "dbx".to_owned(),
            is_quick: true,
            host: "2 logical cores <without RTM>".to_owned(),
            places: vec![
                simulated,
                result("bank", 2, &[(50.0, 100.0, true)]),
                result("queue", 2, &[]),
            ],
        }
    }

    #[test]
    fn every_place_has_a_row_and_every_protocol_a_cell() {
        let svg = HeatMap(&results()).to_string();
        let closed = 2 * svg.matches("</").count() + svg.matches("/>").count();
        assert_eq!(svg.matches('<').count(), closed, "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let real = svg.find("this machine, 2 threads").expect("a panel");
        let simulated = svg.find("SIMULATED: xeon-8x10, 40 cores").expect("another");
        assert!(real < simulated, "what was measured comes first");
        // Of three places, each has two numbers and a failure. The best is framed.
        assert_eq!(svg.matches("class=\"cell s0\"").count(), 6, "{svg}");
        assert_eq!(svg.matches("class=\"frame best\"").count(), 3, "{svg}");
        assert_eq!(svg.matches(">50</text>").count(), 3, "{svg}");
        assert!(svg.contains(">0.50 *</text>") && svg.contains(">1.10</text>"), "{svg}");
        assert!(svg.contains("bank &lt;&amp;&gt;") && svg.contains("a quick run"), "{svg}");
    }

    #[test]
    fn map_without_places_is_a_picture_all_the_same() {
        let empty = Results { places: Vec::new(), ..results() };
        let svg = HeatMap(&empty).to_string();
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
    }
}
