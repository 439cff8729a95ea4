//! One page with all figures, which needs no other file.

use std::fmt::{self, Write};

use crate::claim::Verdict;
use crate::definition::{Figure, Paper};
use crate::report::{Measurement, Report};
use crate::svg;
use crate::text::{self, Escaped};

/// The properties of the whole page.
#[derive(Debug)]
pub struct About {
    /// The command that makes the page again.
    pub command: String,
    /// A description of this machine.
    pub host: String,
    /// The builds of the programs that were run.
    pub builds: Vec<String>,
    /// Whether all points were measured, in longer runs.
    pub is_full: bool,
    /// The seed of all runs.
    pub seed: u64,
}

/// The style of the page, in addition to that of the pictures.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#222;--ground:#fff;--faint:#666;--edge:#ccc;--good:#00664a;--bad:#a33c00;--part:#7a5200}\
@media (prefers-color-scheme:dark){:root{--ink:#e8e8e8;--ground:#16181c;--faint:#a5a9b0;--edge:#3a3f47;--good:#4fd6ac;--bad:#ff9a5c;--part:#e8b44c}}\
*{box-sizing:border-box}\
body{margin:0 auto;max-width:76rem;padding:1rem;font:1rem/1.5 system-ui,sans-serif;color:var(--ink);background:var(--ground);overflow-wrap:break-word}\
h1{font-size:1.6rem;margin:.5rem 0}h2{font-size:1.35rem;margin:2.5rem 0 .3rem;border-bottom:1px solid var(--edge)}h3{font-size:1.1rem;margin:0}\
a{color:inherit}section{margin:1.6rem 0;padding-top:.4rem}\
.faint{color:var(--faint)}.small{font-size:.9rem}\
.figure{display:grid;gap:1rem;grid-template-columns:minmax(0,1fr)}\
@media (min-width:60rem){.figure{grid-template-columns:minmax(0,34rem) minmax(0,1fr)}}\
svg.wf{display:block;width:100%;height:auto;max-width:34rem}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}\
th,td{text-align:left;vertical-align:top;padding:.2rem .7rem .2rem 0;border-bottom:1px solid var(--edge)}\
td.figure-name{white-space:nowrap}\
@media (max-width:40rem){.overview,.overview tbody{display:block}.overview tr{display:grid;grid-template-columns:1fr auto;border-bottom:1px solid var(--edge);padding:.4rem 0}\
.overview tr:first-child{display:none}.overview td{border:0;padding:0}.overview td.claim{grid-row:2;grid-column:1/-1}}\
\
.summary .heading{display:none}.summary td{min-width:5.5rem}.summary td.taken{min-width:14rem}\
@media (max-width:40rem){.summary,.summary tbody{display:block}.summary tr{display:block;border-bottom:1px solid var(--edge);padding:.5rem 0}\
.summary tr:first-child,.summary td.empty{display:none}.summary td{display:block;border:0;padding:.1rem 0}.summary .heading{display:inline}}\
td.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
.verdict{font-weight:600;white-space:nowrap}.agrees{color:var(--good)}.disagrees{color:var(--bad)}.part{color:var(--part)}.not{color:var(--faint)}\
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.8rem;margin:.3rem 0}summary{cursor:pointer}ul{padding-left:1.2rem;margin:.3rem 0}.findings{list-style:none;padding:0}.findings li{margin:.5rem 0}";

/// Returns the page.
pub fn page(about: &About, reports: &[Report]) -> String {
    let mut html = String::new();
    write_page(&mut html, about, reports).expect("writing to a string cannot fail");
    html
}

fn write_page(out: &mut String, about: &About, reports: &[Report]) -> fmt::Result {
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>Weft: the papers' figures</title>\n<style>{STYLE}{}</style>\n</head>\n<body>\n",
        svg::style()
    )?;
    let length = if about.is_full {
        "full"
    } else {
        "quick: few points and short runs, so differences below a fifth mean little"
    };
    write!(
        out,
        "<h1>The papers' figures, beside Weft's</h1>\n\
         <p>The measurements of the papers behind Weft, repeated. Simulated figures come from a model \
         of the papers' machines, in virtual time: they show shapes and ratios, and do not predict performance.</p>\n\
         <p class=\"small faint\">Made by <code>{}</code> ({length}), seed {}. This machine: {}. Programs: {}.</p>\n",
        Escaped(&about.command),
        about.seed,
        Escaped(&about.host),
        Escaped(&about.builds.join(", ")),
    )?;
    summary(out, reports)?;
    overview(out, reports)?;
    for paper in Paper::ALL {
        let mut of_paper = reports.iter().filter(|report| report.figure.paper == paper).peekable();
        if of_paper.peek().is_none() {
            continue;
        }
        write!(
            out,
            "<h2 id=\"{}\">{}</h2>\n<p class=\"small faint\">{}</p>\n",
            paper.name(),
            paper.title(),
            Escaped(paper.citation())
        )?;
        for report in of_paper {
            section(out, report)?;
        }
    }
    out.push_str("</body>\n</html>\n");
    Ok(())
}

/// The verdicts in the order of the summary's columns, with the headings of these columns.
const COLUMNS: [(Verdict, &str); 4] = [
    (Verdict::Agrees, "held"),
    (Verdict::InPart, "held in part"),
    (Verdict::Disagrees, "did not hold"),
    (Verdict::NotMeasured, "not measured"),
];

/// Writes the first section: a row for each paper, with what held, what did not, and what Weft took from it. On a narrow
/// screen each paper is a block of lines.
fn summary(out: &mut String, reports: &[Report]) -> fmt::Result {
    out.push_str("<section id=\"summary\">\n<table class=\"summary\">\n<tr><th>paper</th>");
    for (_, heading) in COLUMNS {
        write!(out, "<th>{heading}</th>")?;
    }
    out.push_str("<th>what Weft took from it</th></tr>\n");
    for paper in Paper::ALL {
        let of_paper = || reports.iter().filter(move |report| report.figure.paper == paper);
        let count = of_paper().count();
        if count == 0 {
            continue;
        }
        write!(
            out,
            "<tr><td><a href=\"#{}\"><b>{}</b></a><br><span class=\"small faint\">{count} figures and tables</span></td>",
            paper.name(),
            paper.title()
        )?;
        for (verdict, heading) in COLUMNS {
            let with_verdict = of_paper().filter(|report| report.verdict() == verdict);
            figures_of_verdict(out, heading, verdict, &with_verdict.collect::<Vec<_>>())?;
        }
        writeln!(out, "<td class=\"taken\">{}</td></tr>", Escaped(paper.taken()))?;
    }
    out.push_str("</table>\n</section>\n");
    Ok(())
}

/// Writes a cell of the summary: the number of a paper's figures that have a verdict, and links to them.
fn figures_of_verdict(
    out: &mut String,
    heading: &str,
    verdict: Verdict,
    reports: &[&Report],
) -> fmt::Result {
    let class = class_of(verdict);
    let count = reports.len();
    if count == 0 {
        return write!(out, "<td class=\"empty\"><span class=\"faint\">0</span></td>");
    }
    write!(
        out,
        "<td><span class=\"verdict {class}\">{} {count} <span class=\"heading\">{heading}</span></span><br>\
         <span class=\"small\">",
        mark_of(verdict)
    )?;
    for (position, report) in reports.iter().enumerate() {
        let separator = if position > 0 { ", " } else { "" };
        let Figure { number, .. } = report.figure;
        write!(out, "{separator}<a href=\"#{}\">{}</a>", report.figure.id(), number.short())?;
    }
    write!(out, "</span></td>")
}

/// Writes a table of all figures, and how many of them agree. On a narrow screen each figure is beside its verdict,
/// with the claim below.
fn overview(out: &mut String, reports: &[Report]) -> fmt::Result {
    let count = |verdict| reports.iter().filter(|report| report.verdict() == verdict).count();
    writeln!(
        out,
        "<p>Of {} figures and tables, agree: {}; agree in part: {}; do not agree: {}; not measured: {}.</p>",
        reports.len(),
        count(Verdict::Agrees),
        count(Verdict::InPart),
        count(Verdict::Disagrees),
        count(Verdict::NotMeasured)
    )?;
    out.push_str(
        "<table class=\"overview\">\n<tr><th>figure</th><th>claim</th><th>ours</th></tr>\n",
    );
    for report in reports {
        let figure = report.figure;
        writeln!(
            out,
            "<tr><td class=\"figure-name\"><a href=\"#{}\">{} {}</a></td><td class=\"claim\">{}</td><td>{}</td></tr>",
            figure.id(),
            figure.paper.title(),
            figure.number,
            Escaped(figure.claim),
            badge(report.verdict())
        )?;
    }
    out.push_str("</table>\n");
    Ok(())
}

/// Returns the class of a verdict in the style sheet.
fn class_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agrees => "agrees",
        Verdict::InPart => "part",
        Verdict::Disagrees => "disagrees",
        Verdict::NotMeasured => "not",
    }
}

/// Returns the mark of a verdict, since colour alone must not carry the meaning.
fn mark_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agrees => "✓",
        Verdict::InPart => "◐",
        Verdict::Disagrees => "✗",
        Verdict::NotMeasured => "–",
    }
}

fn badge(verdict: Verdict) -> String {
    let (class, mark) = (class_of(verdict), mark_of(verdict));
    format!("<span class=\"verdict {class}\">{mark} {}</span>", verdict.words())
}

fn section(out: &mut String, report: &Report) -> fmt::Result {
    let figure = report.figure;
    write!(
        out,
        "<section id=\"{}\">\n<h3>{}: {}</h3>\n<p>{} <span class=\"faint\">({})</span> {}</p>\n",
        figure.id(),
        figure.number,
        Escaped(figure.title),
        Escaped(figure.claim),
        Escaped(figure.section),
        badge(report.verdict())
    )?;
    match &report.state {
        Ok(measurement) => measured(out, measurement)?,
        Err(why) => writeln!(out, "<p class=\"faint\">Not measured: {}.</p>", Escaped(why))?,
    }
    out.push_str("</section>\n");
    Ok(())
}

fn measured(out: &mut String, measurement: &Measurement) -> fmt::Result {
    let Measurement { experiment, plan, points, findings, chart } = measurement;
    write!(out, "<div class=\"figure\">\n<div>{}</div>\n<div>\n", svg::Inline(chart))?;
    out.push_str("<ul class=\"findings\">\n");
    for finding in findings {
        let paper = match finding.paper {
            "" => String::new(),
            paper => {
                // A reference alone needs no brackets.
                let place = paper.strip_prefix('(').and_then(|paper| paper.strip_suffix(')'));
                format!("Paper: {}. ", Escaped(place.unwrap_or(paper)))
            }
        };
        writeln!(
            out,
            "<li>{} {} <span class=\"faint\">({})</span><br><span class=\"small\">{paper}Ours: {}.</span></li>",
            badge(finding.verdict),
            Escaped(finding.says),
            Escaped(&finding.expected),
            Escaped(&finding.ours)
        )?;
    }
    out.push_str("</ul>\n");
    let (done, all) = points.done();
    let machine = match plan.machine.is_simulated() {
        true => format!("simulated machine {}", plan.machine.name()),
        false => plan.machine.name().to_owned(),
    };
    writeln!(out, "<p class=\"small\">On {machine}; {done} of {all} points.</p>")?;
    let differs = experiment.differs.iter().copied().chain(plan.notes.iter().map(String::as_str));
    let differs: Vec<&str> = differs.collect();
    if !differs.is_empty() {
        out.push_str(
            "<p class=\"small\">Differences from the paper, with reasons:</p>\n<ul class=\"small\">\n",
        );
        for differs in differs {
            writeln!(out, "<li>{}</li>", Escaped(differs))?;
        }
        out.push_str("</ul>\n");
    }
    let failures: Vec<_> = points.0.iter().filter(|point| point.failure.is_some()).collect();
    if !failures.is_empty() {
        out.push_str(
            "<details open><summary class=\"disagrees\">Points that are missing</summary>\n",
        );
        for point in failures {
            let why = point.failure.as_deref().unwrap_or_default();
            writeln!(out, "<pre>{}\n{}</pre>", Escaped(&point.command), Escaped(why))?;
        }
        out.push_str("</details>\n");
    }
    numbers(out, measurement)?;
    let count = points.0.len();
    writeln!(out, "<details><summary>Commands that make the {count} points</summary>\n<pre>")?;
    let mut commands: Vec<&str> = points.0.iter().map(|point| point.command.as_str()).collect();
    // The points of one run are adjacent, and its command is shown once.
    commands.dedup();
    for command in commands {
        writeln!(out, "{}", Escaped(command))?;
    }
    out.push_str("</pre></details>\n</div>\n</div>\n");
    Ok(())
}

/// Writes the numbers, as a table for each metric.
fn numbers(out: &mut String, measurement: &Measurement) -> fmt::Result {
    let Measurement { experiment, plan, points, .. } = measurement;
    out.push_str("<details><summary>Numbers</summary>\n");
    for (position, metric) in experiment.metrics.iter().enumerate() {
        write!(
            out,
            "<p class=\"small\">{}</p>\n<div class=\"scroll\"><table>\n<tr><th>{}</th>",
            Escaped(&metric.label()),
            Escaped(experiment.axis.label)
        )?;
        for series in experiment.series {
            write!(out, "<th>{}</th>", Escaped(series.name))?;
        }
        out.push_str("</tr>\n");
        for &at in &plan.axis {
            let place = text::place(&experiment.axis, at);
            write!(out, "<tr><td>{}</td>", Escaped(&place))?;
            for series in 0..experiment.series.len() {
                let number = points.number(position, series, at);
                let number = number.map_or("–".to_owned(), text::number);
                let published = experiment.published.iter().find(|published| {
                    let is_here = published.metric == position && published.at == at;
                    is_here && experiment.series(published.series) == Some(series)
                });
                let published = published.map_or(String::new(), |published| {
                    format!(
                        " <span class=\"faint\">(paper {})</span>",
                        text::number(published.value)
                    )
                });
                write!(out, "<td class=\"number\">{number}{published}</td>")?;
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table></div>\n");
    }
    out.push_str("</details>\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::sample;

    fn about() -> About {
        About {
            command: "cargo lab figures --quick --out <here>".to_owned(),
            host: "2 logical cores".to_owned(),
            builds: vec!["0.1.0 (0123)".to_owned()],
            is_full: false,
            seed: 7,
        }
    }

    #[test]
    fn page_is_complete_and_loads_nothing() {
        let report = sample::report(&[&[10.0, 20.0, 40.0], &[10.0, 10.0, 8.0]]);
        let missing = Report::without(&sample::FIGURE, "a <reason>".to_owned());
        let page = page(&about(), &[report, missing]);
        let loads = ["<script", "src=", "url(", "@import", "<img", "<iframe", "https:"];
        for loads in loads {
            assert!(!page.contains(loads), "{loads}");
        }
        // The only addresses are those of name spaces.
        let elsewhere: Vec<&str> = page.split("http:").skip(1).map(|text| &text[..13]).collect();
        assert!(elsewhere.iter().all(|&text| text == "//www.w3.org/"), "{elsewhere:?}");
        let links = page.split("href=\"").skip(1);
        assert!(
            links.into_iter().all(|link| link.starts_with('#') || link.starts_with("data:,\""))
        );
        assert_is_nested(&page);
        for tag in ["section", "table", "div", "details", "svg", "p", "ul", "li", "pre", "html"] {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
        for shown in [
            "✓ agrees",
            "a &lt;reason&gt;",
            "seed 7",
            "cargo simulate tpcc",
            "fast &lt;is&gt; twice",
            "(paper 12)",
            "no real machine &amp; no paper",
            "Of 2 figures and tables, agree: 1; agree in part: 0; do not agree: 0; not measured: 1.",
            "<a href=\"#htcc\"><b>HTCC</b></a>",
            "<h2 id=\"htcc\">",
            "✓ 1 <span class=\"heading\">held</span>",
            "– 1 <span class=\"heading\">not measured</span>",
        ] {
            assert!(page.contains(shown), "{shown} in {page}");
        }
        assert!(!page.contains("Points that are missing"));
    }

    /// Asserts that every element is closed in the order in which it was opened, except those that HTML leaves
    /// open.
    fn assert_is_nested(page: &str) {
        let mut open = Vec::new();
        for tag in page.split('<').skip(1) {
            let tag = tag.split('>').next().expect("split has one part at least");
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "</{name}> in {page}");
            } else if !tag.ends_with('/') && !["!DOCTYPE", "meta", "link", "br"].contains(&name) {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn refuted_claim_is_shown() {
        let report = sample::report(&[&[10.0, 10.0, 10.0], &[10.0, 10.0, 10.0]]);
        let page = page(&about(), &[report]);
        assert!(page.contains("✗ does not agree") && !page.contains("✓ agrees"), "{page}");
    }

    #[test]
    fn failed_call_is_shown() {
        let report = sample::report(&[&[10.0, 20.0, 40.0], &[10.0]]);
        let page = page(&about(), &[report]);
        assert!(page.contains("Points that are missing") && page.contains("too many, really"));
        assert!(page.contains("4 of 6 points") && page.contains("×: no number"), "{page}");
    }
}
