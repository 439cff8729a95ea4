//! Drawing of a [`Chart`] as SVG: as a file of its own, or as a part of a page.
//!
//! The colours are those of Okabe and Ito, which colour-blind readers can distinguish. Each series also has its own
//! marker and dash. Weft's own protocols have a broad, pale line in place of the dash, and the numbers of the paper's text
//! have hollow markers. All colours are in one style sheet, with a second set for dark screens. The picture is as narrow
//! as a phone, so that its text is legible there.

use std::fmt::{self, Write};

use crate::chart::{Chart, Division, Panel};
use crate::definition::Series;
use crate::text::Escaped;

const WIDTH: f64 = 480.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 18.0;
/// Where text begins.
const EDGE: f64 = 12.0;
const PANEL_HEIGHT: f64 = 210.0;
/// The space above a panel for its label.
const PANEL_TOP: f64 = 30.0;
/// The space below a panel for the numbers of the axis, and a gap.
const PANEL_BOTTOM: f64 = 30.0;
const LINE_HEIGHT: f64 = 19.0;
/// The approximate width of a letter.
const LETTER: f64 = 7.4;

/// The colours of the series, on white and on black.
const COLOURS: [(&str, &str); 7] = [
    ("#0072b2", "#4aa8e0"), // blue
    ("#d55e00", "#f0803c"), // vermillion
    ("#009e73", "#2fc79b"), // bluish green
    ("#cc79a7", "#e39cc4"), // reddish purple
    ("#b07800", "#e69f00"), // orange; the original is too pale on white
    ("#56b4e9", "#a8dcff"), // sky blue
    ("#222222", "#e8e8e8"), // black
];

/// The dashes of the series; the first has none.
const DASHES: [&str; 7] = ["", "7 3", "2 3", "9 3 2 3", "5 2", "1 2", "12 4"];

/// Returns the style of all pictures.
pub fn style() -> String {
    let mut light = String::from(
        ".wf text{font:14px system-ui,sans-serif;fill:#222}\
         .wf .small{font-size:13px}.wf .heading{font-weight:600}\
         .wf .ground{fill:#fff}.wf .grid{stroke:#ddd;fill:none}.wf .frame{stroke:#555;fill:none}\
         .wf .line{fill:none;stroke-width:2}.wf .ours{stroke-width:8;stroke-opacity:.35}.wf .hollow{stroke-width:1.6}",
    );
    let mut dark = String::from(
        ".wf text{fill:#e8e8e8}.wf .ground{fill:#16181c}.wf .grid{stroke:#3a3f47}.wf .frame{stroke:#aaa}",
    );
    for (position, (on_white, on_black)) in COLOURS.iter().enumerate() {
        for (sheet, colour, ground) in
            [(&mut light, on_white, "#fff"), (&mut dark, on_black, "#16181c")]
        {
            write!(
                sheet,
                ".wf .s{position}{{stroke:{colour};fill:{colour}}}\
                 .wf .line.s{position}{{fill:none}}.wf .hollow.s{position}{{fill:{ground}}}"
            )
            .expect("writing to a string cannot fail");
        }
    }
    format!("{light}@media (prefers-color-scheme:dark){{{dark}}}")
}

/// A picture as a file of its own.
pub struct File<'a>(pub &'a Chart);

/// A picture in a page that has the [`style`].
pub struct Inline<'a>(pub &'a Chart);

impl fmt::Display for File<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        draw(out, self.0, true)
    }
}

impl fmt::Display for Inline<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        draw(out, self.0, false)
    }
}

/// Breaks text into lines of at most `letters` letters; a longer word has a line of its own.
fn lines(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns the place of each series in the legend: its x, and its row.
fn legend(series: &[Series]) -> Vec<(f64, usize)> {
    let (mut x, mut row) = (EDGE, 0);
    series
        .iter()
        .map(|series| {
            let width = 34.0 + LETTER * series.name.chars().count() as f64 + 18.0;
            if x > EDGE && x + width > WIDTH - RIGHT + 14.0 {
                (x, row) = (EDGE, row + 1);
            }
            let place = (x, row);
            x += width;
            place
        })
        .collect()
}

/// Returns the explanation of the forms in a picture, as far as they occur.
fn note(chart: &Chart) -> String {
    let has_published = chart.panels.iter().any(|panel| !panel.published.is_empty());
    let has_missed = chart.panels.iter().any(|panel| !panel.missed.is_empty());
    let has_ours = chart.series.iter().any(|series| series.is_ours);
    let forms = [
        (has_published, "hollow: the paper's text"),
        (has_ours, "broad: Weft's own"),
        (has_missed, "×: no number"),
    ];
    let forms = forms.into_iter().filter(|(occurs, _)| *occurs).map(|(_, form)| form);
    forms.collect::<Vec<_>>().join("; ")
}

fn draw(out: &mut fmt::Formatter<'_>, chart: &Chart, is_file: bool) -> fmt::Result {
    // A page has the heading outside of the picture.
    let heading = if is_file { lines(&chart.heading, 56) } else { Vec::new() };
    let places = legend(chart.series);
    let legend_rows = places.last().map_or(0, |place| place.1 + 1);
    let note = note(chart);
    let note_rows = usize::from(!note.is_empty());
    let rows = heading.len() + 1 + legend_rows + note_rows;
    let top = 8.0 + LINE_HEIGHT * rows as f64;
    let panels = chart.panels.len() as f64;
    let height = top + (PANEL_TOP + PANEL_HEIGHT + PANEL_BOTTOM) * panels + 14.0;
    let label = Escaped(&chart.heading);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" class=\"wf\" role=\"img\" \
         aria-label=\"{label}\">"
    )?;
    if is_file {
        writeln!(out, "<title>{label}</title>\n<style>{}</style>", style())?;
        writeln!(out, "<rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>")?;
    }
    let mut y = 4.0;
    for line in &heading {
        y += LINE_HEIGHT;
        writeln!(out, "<text class=\"heading\" x=\"{EDGE}\" y=\"{y}\">{}</text>", Escaped(line))?;
    }
    y += LINE_HEIGHT;
    writeln!(
        out,
        "<text class=\"small\" x=\"{EDGE}\" y=\"{y}\">{}</text>",
        Escaped(&chart.machine)
    )?;
    for (position, (series, &(x, row))) in chart.series.iter().zip(&places).enumerate() {
        let y = y + LINE_HEIGHT * (row + 1) as f64;
        let (from, middle, to) = (x, y - 4.5, x + 28.0);
        // With choices, only Weft's own series need their line in the legend.
        if !chart.has_choices || series.is_ours {
            line(out, chart, position, &format!("M{from} {middle}H{to}"))?;
        }
        marker(out, position, x + 14.0, middle, false)?;
        writeln!(out, "<text x=\"{}\" y=\"{y}\">{}</text>", x + 34.0, Escaped(series.name))?;
    }
    if note_rows > 0 {
        let y = top - 4.0;
        writeln!(out, "<text class=\"small\" x=\"{EDGE}\" y=\"{y}\">{note}</text>")?;
    }
    for (position, panel) in chart.panels.iter().enumerate() {
        let above = (PANEL_TOP + PANEL_HEIGHT + PANEL_BOTTOM) * position as f64;
        draw_panel(out, chart, panel, top + above + PANEL_TOP)?;
    }
    let (x, y) = (LEFT + (WIDTH - LEFT - RIGHT) / 2.0, height - 6.0);
    let label = Escaped(chart.axis_label);
    writeln!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>\n</svg>")
}

fn x_of(axis: &Division, number: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * axis.share(number)
}

fn draw_panel(out: &mut fmt::Formatter<'_>, chart: &Chart, panel: &Panel, top: f64) -> fmt::Result {
    let (right, bottom) = (WIDTH - RIGHT, top + PANEL_HEIGHT);
    let y_of = |number: f64| bottom - PANEL_HEIGHT * panel.axis.share(number);
    let label = Escaped(&panel.label);
    writeln!(out, "<text x=\"{EDGE}\" y=\"{}\">{label}</text>", top - 10.0)?;
    for (number, text) in &panel.axis.ticks {
        let y = y_of(*number);
        writeln!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
             <text class=\"small\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 7.0,
            y + 4.0
        )?;
    }
    let mut last_end = 0.0;
    for (number, text) in &chart.axis.ticks {
        let x = x_of(&chart.axis, *number);
        writeln!(out, "<path class=\"frame\" d=\"M{x:.1} {bottom}v4\"/>")?;
        // Leave out the numbers that would overlap the previous one.
        let half = LETTER * text.chars().count() as f64 / 2.0;
        if x - half > last_end || chart.has_choices {
            last_end = x + half;
            let (y, text) = (bottom + 18.0, Escaped(text));
            writeln!(
                out,
                "<text class=\"small\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>"
            )?;
        }
    }
    writeln!(out, "<path class=\"frame\" d=\"M{LEFT} {top}V{bottom}H{right}\"/>")?;
    // With choices, the series of one choice are side by side.
    let count = chart.series.len() as f64;
    let room = (WIDTH - LEFT - RIGHT) / chart.axis.ticks.len().max(1) as f64;
    let aside = |series: usize| match chart.has_choices {
        true => room * 0.7 * ((series as f64 + 0.5) / count - 0.5),
        false => 0.0,
    };
    let place = |series: usize, x: f64, y: f64| (x_of(&chart.axis, x) + aside(series), y_of(y));
    for (series, curve) in panel.curves.iter().enumerate() {
        let points: Vec<_> = curve.iter().map(|&(x, y)| place(series, x, y)).collect();
        if !chart.has_choices && points.len() > 1 {
            let mut path = String::new();
            let mut before = f64::NEG_INFINITY;
            for (&(number, _), (x, y)) in curve.iter().zip(&points) {
                // No line crosses a position without a measurement.
                let is_gap = panel
                    .missed
                    .iter()
                    .any(|&(whose, at)| whose == series && (before..number).contains(&at));
                let command = if path.is_empty() || is_gap { 'M' } else { 'L' };
                write!(path, "{command}{x:.1} {y:.1}")?;
                before = number;
            }
            line(out, chart, series, &path)?;
        }
        for &(x, y) in &points {
            if chart.has_choices {
                line(out, chart, series, &format!("M{x:.1} {bottom}V{y:.1}"))?;
            }
            marker(out, series, x, y, false)?;
        }
    }
    for &(series, x, y) in &panel.published {
        let (x, y) = place(series, x, y);
        marker(out, series, x, y, true)?;
    }
    for &(series, x) in &panel.missed {
        let x = x_of(&chart.axis, x)
            + aside(series)
            + if chart.has_choices { 0.0 } else { 3.0 * series as f64 };
        let y = bottom - 6.0;
        writeln!(
            out,
            "<path class=\"line {}\" d=\"M{:.1} {:.1}l8 8m0 -8l-8 8\"/>",
            style_of(series),
            x - 4.0,
            y - 4.0
        )?;
    }
    Ok(())
}

fn style_of(series: usize) -> String {
    format!("s{}", series % COLOURS.len())
}

/// Draws a line of a series: dashed, or broad if it is one of Weft's own.
fn line(out: &mut fmt::Formatter<'_>, chart: &Chart, series: usize, path: &str) -> fmt::Result {
    let (class, dash) = match (chart.series[series].is_ours, DASHES[series % DASHES.len()]) {
        (true, _) => ("line ours", String::new()),
        (false, "") => ("line", String::new()),
        (false, dash) => ("line", format!(" stroke-dasharray=\"{dash}\"")),
    };
    writeln!(out, "<path class=\"{class} {}\"{dash} d=\"{path}\"/>", style_of(series))
}

/// Draws the marker of a series, filled or hollow.
fn marker(
    out: &mut fmt::Formatter<'_>,
    series: usize,
    x: f64,
    y: f64,
    hollow: bool,
) -> fmt::Result {
    // Hollow markers are larger, so that they are visible around a filled one.
    let r = if hollow { 6.5 } else { 4.0 };
    let (small, large) = (r * 0.9, r * 1.3);
    let shape = match series % 7 {
        0 => format!("m{} 0a{r} {r} 0 1 0 {} 0a{r} {r} 0 1 0 {} 0z", -r, 2.0 * r, -2.0 * r),
        1 => format!("m{} {}h{}v{}h{}z", -small, -small, 2.0 * small, 2.0 * small, -2.0 * small),
        2 => format!("m0 {}l{large} {}h{}z", -large, 2.0 * r, -2.0 * large),
        3 => format!("m0 {}l{large} {large}l{} {large}l{} {}z", -large, -large, -large, -large),
        4 => format!("m0 {large}l{large} {}h{}z", -2.0 * r, -2.0 * large),
        5 => format!("m{} {}h{}v{}h{}z", -large, -small / 2.0, 2.0 * large, small, -2.0 * large),
        _ => format!("m{} {}h{}v{}h{}z", -small / 2.0, -large, small, 2.0 * large, -small),
    };
    let class = if hollow { "hollow" } else { "mark" };
    writeln!(out, "<path class=\"{class} {}\" d=\"M{x:.1} {y:.1}{shape}\"/>", style_of(series))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Scale, series};

    fn chart() -> Chart {
        Chart {
            heading:
                "HTCC, Figure 14: throughput < & > under contention, by threads of the machine"
                    .to_owned(),
            machine: "SIMULATED: xeon-e7-4x10".to_owned(),
            series: const { &[series("HTCC", &[]), series("SOCC", &[])] },
            axis_label: "threads",
            axis: Division::of(Scale::Linear, [1.0, 80.0].into_iter(), 8.0),
            has_choices: false,
            panels: vec![Panel {
                label: "throughput, tx/s".to_owned(),
                axis: Division::of(Scale::Linear, [1e6].into_iter(), 5.0),
                curves: vec![vec![(0.0, 0.0), (40.0, 5e5), (80.0, 1e6)], vec![(40.0, 2e5)]],
                published: vec![(0, 80.0, 1e6)],
                missed: vec![(1, 80.0)],
            }],
        }
    }

    /// The paper's numbers, its variant and Weft's own protocol have different forms, which the legend explains.
    #[test]
    fn forms_tell_weft_and_the_papers_apart() {
        let mut both = chart();
        both.series = const { &[series("HTCC", &[]), series("Weft's htcc", &[]).ours()] };
        let svg = Inline(&both).to_string();
        assert_is_sound(&svg);
        assert!(svg.contains("hollow: the paper's text; broad: Weft's own; ×: no number"), "{svg}");
        assert!(svg.contains("\"line s0\"") && svg.contains("\"line ours s1\""), "{svg}");
        assert!(!svg.contains("\"line ours s0\""), "{svg}");
    }

    /// Asserts that every tag is closed, and that every number is finite.
    fn assert_is_sound(svg: &str) {
        let tags = svg.matches('<').count();
        let closed = 2 * svg.matches("</").count() + svg.matches("/>").count();
        assert_eq!(tags, closed, "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn points_lie_where_their_numbers_say() {
        let svg = Inline(&chart()).to_string();
        assert_is_sound(&svg);
        let right = WIDTH - RIGHT;
        let middle = (LEFT + right) / 2.0;
        let top = 8.0 + LINE_HEIGHT * 3.0 + PANEL_TOP;
        let bottom = top + PANEL_HEIGHT;
        let half = (top + bottom) / 2.0;
        let curve =
            format!("d=\"M{LEFT:.1} {bottom:.1}L{middle:.1} {half:.1}L{right:.1} {top:.1}\"");
        assert!(svg.contains(&curve), "{curve} in {svg}");
        assert_eq!(svg.matches("\"hollow s0\"").count(), 1, "one published point: {svg}");
        assert_eq!(svg.matches("l8 8m0 -8l-8 8").count(), 1, "one failure: {svg}");
        assert!(svg.contains("×: no number") && svg.contains("SIMULATED"), "{svg}");
    }

    #[test]
    fn a_line_has_a_gap_where_nothing_was_measured() {
        let mut gap = chart();
        gap.panels[0].curves[0].remove(1);
        let whole = Inline(&gap).to_string();
        gap.panels[0].missed = vec![(0, 40.0)];
        let broken = Inline(&gap).to_string();
        let line = |svg: &str| {
            let lines = svg.lines().filter(|line| line.starts_with("<path class=\"line s0\""));
            lines.map(|line| line.matches('L').count()).sum::<usize>()
        };
        assert_eq!((line(&whole), line(&broken)), (1, 0), "{broken}");
    }

    #[test]
    fn a_file_is_complete_and_loads_nothing() {
        let svg = File(&chart()).to_string();
        assert_is_sound(&svg);
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(
            svg.contains("throughput &lt; &amp; &gt; under") && svg.contains("<title>"),
            "{svg}"
        );
        assert!(svg.contains("prefers-color-scheme:dark"), "{svg}");
        assert_eq!(svg.matches("http").count(), 1, "the name space alone: {svg}");
    }

    /// The expected picture was checked by eye.
    #[test]
    fn small_picture_matches_the_golden_file() {
        let small = Chart {
            heading: "Small".to_owned(),
            machine: "here".to_owned(),
            series: const { &[series("DBX", &[])] },
            axis_label: "which",
            axis: Division::of(Scale::Linear, [1.0].into_iter(), 1.0),
            has_choices: false,
            panels: vec![Panel {
                label: "y".to_owned(),
                axis: Division::of(Scale::Linear, [1.0].into_iter(), 1.0),
                curves: vec![vec![(0.0, 1.0), (1.0, 0.5)]],
                published: vec![],
                missed: vec![],
            }],
        };
        let svg = Inline(&small).to_string();
        assert_eq!(svg, include_str!("small.svg"));
    }

    #[test]
    fn series_are_told_apart_by_colour_dash_and_marker() {
        let mut light: Vec<&str> = COLOURS.iter().map(|colour| colour.0).collect();
        let mut dark: Vec<&str> = COLOURS.iter().map(|colour| colour.1).collect();
        let mut dashes = DASHES.to_vec();
        for all in [&mut light, &mut dark, &mut dashes] {
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 7);
        }
        for (position, (light, dark)) in COLOURS.iter().enumerate() {
            let style = style();
            assert!(style.contains(&format!(".s{position}{{stroke:{light}")), "{style}");
            assert!(style.contains(&format!(".s{position}{{stroke:{dark}")), "{style}");
        }
    }

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(lines("one two three", 7), ["one two", "three"]);
        assert_eq!(lines("longerthanaline b", 5), ["longerthanaline", "b"]);
        let rows = legend(&[series("a name that is long", &[]); 4]);
        let rows: Vec<usize> = rows.iter().map(|at| at.1).collect();
        assert_eq!(rows, [0, 0, 1, 1]);
    }
}
