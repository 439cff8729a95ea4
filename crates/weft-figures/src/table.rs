//! The numbers of a figure as CSV and JSON, and all figures in a Markdown table.

use serde_json::{Value, json};

use crate::claim::Verdict;
use crate::report::{Measurement, Report};
use crate::text;

/// The columns of the CSV.
const COLUMNS: &str =
    "paper,figure,series,axis,at,metric,unit,value,machine,simulated,failure,command";

/// Returns a CSV line for each number that was, or should have been, measured.
pub fn csv(report: &Report) -> String {
    let mut csv = format!("{COLUMNS}\n");
    let Ok(measurement) = &report.state else { return csv };
    let Measurement { experiment, plan, points, .. } = measurement;
    for point in &points.0 {
        for (metric, number) in experiment.metrics.iter().zip(&point.numbers) {
            let failure = point
                .failure
                .clone()
                .or_else(|| number.is_none().then(|| format!("the report has no {}", metric.name)));
            let cells = [
                report.figure.paper.name().to_owned(),
                report.figure.number.to_string(),
                experiment.series[point.series].name.to_owned(),
                experiment.axis.label.to_owned(),
                place(measurement, point.at),
                metric.name.to_owned(),
                metric.unit.to_owned(),
                number.map_or(String::new(), |number| number.to_string()),
                plan.machine.name().to_owned(),
                plan.machine.is_simulated().to_string(),
                failure.unwrap_or_default(),
                point.command.clone(),
            ];
            let cells: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
            csv.push_str(&cells.join(","));
            csv.push('\n');
        }
    }
    csv
}

/// Returns the value on the axis: a number, or the name of a choice.
fn place(measurement: &Measurement, at: f64) -> String {
    match measurement.experiment.axis.by {
        crate::definition::By::Choices(_) => text::place(&measurement.experiment.axis, at),
        _ => at.to_string(),
    }
}

/// Quotes a cell by RFC 4180.
fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}

/// Returns everything that is known about a figure.
pub fn json(report: &Report) -> Value {
    let figure = report.figure;
    let mut value = json!({
        "paper": figure.paper.name(),
        "figure": figure.number.to_string(),
        "section": figure.section,
        "title": figure.title,
        "claim": figure.claim,
        "verdict": report.verdict().words(),
    });
    let measurement = match &report.state {
        Ok(measurement) => measurement,
        Err(why) => {
            value["not_measured"] = json!(why);
            return value;
        }
    };
    let Measurement { experiment, plan, points, findings, .. } = measurement;
    let findings = findings.iter().map(|finding| {
        json!({
            "expected": finding.says,
            "bounds": finding.expected,
            "paper": finding.paper,
            "ours": finding.ours,
            "verdict": finding.verdict.words(),
        })
    });
    let points = points.0.iter().map(|point| {
        let numbers = experiment.metrics.iter().zip(&point.numbers);
        let numbers: serde_json::Map<String, Value> =
            numbers.map(|(metric, number)| (metric.label(), json!(number))).collect();
        json!({
            "series": experiment.series[point.series].name,
            "at": place(measurement, point.at),
            "numbers": numbers,
            "failure": point.failure,
            "command": point.command,
        })
    });
    let published = experiment.published.iter().map(|published| {
        json!({
            "series": published.series,
            "metric": experiment.metrics[published.metric].label(),
            "at": place(measurement, published.at),
            "value": published.value,
        })
    });
    value["machine"] = json!(plan.machine.name());
    value["simulated"] = json!(plan.machine.is_simulated());
    value["axis"] = json!(experiment.axis.label);
    value["findings"] = findings.collect();
    value["points"] = points.collect();
    value["published"] = published.collect();
    value["differs"] = json!(experiment.differs);
    value["notes"] = json!(plan.notes);
    value
}

/// Returns a table of all figures: the claim, the findings, and the verdict, with links to the pictures in
/// `directory`.
pub fn markdown(reports: &[Report], directory: &str) -> String {
    let mut table =
        "| figure | claim | ours (and the paper) | verdict |\n| --- | --- | --- | --- |\n"
            .to_owned();
    for report in reports {
        let (figure, verdict) = (report.figure, report.verdict());
        let name = format!("{} {}", figure.paper.title(), figure.number);
        let (name, ours) = match &report.state {
            Ok(measurement) => {
                let findings = measurement.findings.iter().map(|finding| {
                    let mark = match finding.verdict {
                        Verdict::Agrees => "",
                        Verdict::InPart | Verdict::Disagrees => "**not:** ",
                        Verdict::NotMeasured => "**not measured:** ",
                    };
                    let paper = match finding.paper {
                        "" => String::new(),
                        paper if paper.starts_with('(') => format!(" {paper}"),
                        paper => format!(" (paper: {paper})"),
                    };
                    format!("{mark}{}: {}{paper}", finding.says, finding.number)
                });
                let ours = findings.collect::<Vec<_>>().join("<br>");
                (format!("[{name}]({directory}/{}.svg)", figure.id()), ours)
            }
            Err(why) => (name, why.clone()),
        };
        let cells = [name.as_str(), figure.claim, ours.as_str(), verdict.words()];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        table.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::sample;

    #[test]
    fn every_number_has_a_line_and_every_failure_too() {
        let report = sample::report(&[&[10.0, 20.0, 40.0], &[10.0]]);
        let csv = csv(&report);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!((lines[0], lines.len()), (COLUMNS, 7), "{csv}");
        assert!(lines[3].starts_with("htcc,Figure 1,fast,threads,4,throughput,tx/s,40,"), "{csv}");
        assert!(
            lines[6].contains(",,sample,true,\"too many, really\",cargo simulate tpcc"),
            "{csv}"
        );
        let json = super::json(&report);
        assert_eq!(json["points"][2]["numbers"]["throughput, tx/s"], 40.0, "{json}");
        assert_eq!(json["points"][5]["failure"], "too many, really", "{json}");
        assert_eq!(json["verdict"], "not measured", "{json}");
        assert_eq!(json["simulated"], true, "{json}");
    }

    #[test]
    fn the_table_has_a_line_for_every_figure_with_what_was_found() {
        let agrees = sample::report(&[&[10.0, 20.0, 40.0], &[10.0, 10.0, 8.0]]);
        let disagrees = sample::report(&[&[10.0, 20.0, 40.0], &[10.0, 10.0, 80.0]]);
        let without = Report::without(&sample::FIGURE, "a | b".to_owned());
        let table = markdown(&[agrees, disagrees, without], "results");
        let lines: Vec<&str> = table.lines().skip(2).collect();
        let figure = "| [HTCC Figure 1](results/htcc-figure-1.svg) | Fast is faster than slow. |";
        let says = "fast <is> twice as fast on 4 threads";
        assert_eq!(lines[0], format!("{figure} {says}: 5 × (paper: 3 × (§5)) | agrees |"));
        assert_eq!(
            lines[1],
            format!("{figure} **not:** {says}: 0.5 × (paper: 3 × (§5)) | does not agree |")
        );
        assert_eq!(
            lines[2],
            "| HTCC Figure 1 | Fast is faster than slow. | a \\| b | not measured |"
        );
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn what_was_not_measured_says_why() {
        let report = Report::without(&sample::FIGURE, "no such machine".to_owned());
        assert_eq!(csv(&report), format!("{COLUMNS}\n"));
        assert_eq!(json(&report)["not_measured"], "no such machine");
    }
}
