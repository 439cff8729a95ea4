//! A report as text and as JSON.

use std::fmt::{self, Display, Formatter};

use crate::report::{Action, Count, Extent, LabelReport, PointReport, Report};

/// How many points and labels are printed.
const PRINTED_MAX: usize = 10;

/// A time, in a unit that suits it.
struct Time(u64);

impl Display for Time {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return formatter.pad(&format!("{} ns", self.0)),
            1_000..1_000_000 => (1e3, "µs"),
            1_000_000..1_000_000_000 => (1e6, "ms"),
            _ => (1e9, "s"),
        };
        formatter.pad(&format!("{:.1} {name}", self.0 as f64 / unit))
    }
}

/// A whole number, with commas between thousands.
struct Number(u64);

impl Display for Number {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::new();
        for (position, digit) in digits.chars().enumerate() {
            if position > 0 && (digits.len() - position).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        formatter.pad(&text)
    }
}

/// Returns the counts that are not 0, the greatest first.
fn listed(counts: &[Count]) -> String {
    let mut counts: Vec<_> = counts.iter().filter(|count| count.count > 0).collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.count));
    let listed: Vec<_> =
        counts.iter().map(|count| format!("{} {}", count.name, Number(count.count))).collect();
    listed.join(", ")
}

impl PointReport {
    /// Returns the name of the point: its table, index, and key.
    pub fn name(&self) -> String {
        let mut name = self.table.clone();
        if let Some(index) = &self.index {
            name = format!("{name}.{index}");
        }
        match &self.key {
            Some(key) => format!("{name} {key}"),
            None => format!("{name} {}", self.extent.words()),
        }
    }

    /// Returns how many attempts were aborted here.
    pub fn aborts_total(&self) -> u64 {
        self.aborts.iter().map(|count| count.count).sum()
    }
}

impl Extent {
    /// Returns the extent in words.
    pub fn words(self) -> &'static str {
        match self {
            Extent::Record => "(a row)",
            Extent::Range => "(a range)",
            Extent::GoneRecords => "(rows that are gone)",
            Extent::ManyRecords => "(many rows)",
        }
    }
}

impl Action {
    /// Returns the action in words.
    pub fn words(self) -> &'static str {
        match self {
            Action::Nothing => "nothing",
            Action::Trial => "tries a queue",
            Action::Queued => "queues transactions",
            Action::Split => "splits operations",
        }
    }
}

impl Report {
    /// Returns the most important point in one line, with the labels that lose most there and the advice. Says so if there
    /// were no conflicts.
    pub fn headline(&self) -> String {
        let Some(point) = self.points.first() else {
            return match self.is_observed {
                true => "no transaction has lost time to another one".to_owned(),
                false => "the database is not observed: open it with `.inspect()`".to_owned(),
            };
        };
        let lost: u64 = self.points.iter().map(|point| point.lost_ns).sum();
        let percent = point.lost_ns * 100 / lost.max(1);
        let mut line = format!(
            "{}: {percent} % of the time lost to conflicts, {}",
            point.name(),
            Time(point.lost_ns)
        );
        let losers: Vec<_> = point.labels.iter().filter(|at| at.lost_ns > 0).take(2).collect();
        if !losers.is_empty() {
            let losers: Vec<_> = losers.iter().map(|at| format!("`{}`", at.label)).collect();
            line = format!("{line}, by {}", losers.join(" and "));
        }
        match &point.advice {
            Some(advice) => format!("{line}; {advice}"),
            None => line,
        }
    }

    /// Returns the report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a report has only what JSON can express")
    }
}

impl Display for Report {
    /// Prints the [headline](Report::headline), the totals, the points and the labels.
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.headline())?;
        let totals = &self.totals;
        let aborts: u64 = totals.aborts.iter().map(|count| count.count).sum();
        write!(
            formatter,
            "{}: {} committed, {} aborted",
            self.protocol,
            Number(totals.committed),
            Number(aborts)
        )?;
        if aborts > 0 {
            write!(formatter, " ({})", listed(&totals.aborts))?;
        }
        if self.is_observed {
            let sampling = &self.sampling;
            write!(
                formatter,
                "; observed for {}, {} transactions timed, times to within {:.1} %",
                Time(self.observed_ns),
                Number(sampling.timed),
                sampling.relative_error * 100.0
            )?;
        }
        writeln!(formatter)?;
        for (position, point) in self.points.iter().take(PRINTED_MAX).enumerate() {
            write_point(formatter, position + 1, point)?;
        }
        if !self.labels.is_empty() {
            write_labels(formatter, &self.labels)?;
        }
        Ok(())
    }
}

fn write_point(formatter: &mut Formatter<'_>, rank: usize, point: &PointReport) -> fmt::Result {
    write!(formatter, "\n{rank}. {}: lost {}", point.name(), Time(point.lost_ns))?;
    let aborts = point.aborts_total();
    if aborts > 0 {
        write!(formatter, ", {} aborts ({})", Number(aborts), listed(&point.aborts))?;
    }
    if point.waits > 0 {
        write!(formatter, ", {} waits of {}", Number(point.waits), Time(point.waiting_ns))?;
    }
    if point.repairs > 0 {
        write!(formatter, ", {} repairs", Number(point.repairs))?;
    }
    writeln!(formatter)?;
    if let Some(lasted) = point.action_lasted_ns {
        writeln!(formatter, "   the protocol {}, for {}", point.action.words(), Time(lasted))?;
    }
    for at in point.labels.iter().take(4) {
        write!(
            formatter,
            "   {}: {} aborts, lost {}",
            at.label,
            Number(at.aborts),
            Time(at.lost_ns)
        )?;
        match at.writes {
            0 => writeln!(formatter)?,
            writes => writeln!(formatter, ", about {} writes", Number(writes))?,
        }
    }
    match &point.advice {
        Some(advice) => writeln!(formatter, "   advice: {advice}"),
        None => Ok(()),
    }
}

/// Prints a table of what transactions did, by label.
fn write_labels(formatter: &mut Formatter<'_>, labels: &[LabelReport]) -> fmt::Result {
    let shown = &labels[..labels.len().min(PRINTED_MAX)];
    let heads = [
        "label",
        "committed",
        "failed",
        "aborts",
        "p50",
        "p99",
        "p99.9",
        "read",
        "written",
        "logged",
        "closure",
        "waiting",
        "commit",
        "log",
        "lost",
    ];
    let mut rows = vec![heads.map(str::to_owned)];
    rows.extend(shown.iter().map(|label| {
        let sum = |counts: &[Count]| counts.iter().map(|count| count.count).sum::<u64>();
        [
            label.label.clone(),
            Number(label.committed).to_string(),
            Number(sum(&label.failures)).to_string(),
            Number(sum(&label.aborts)).to_string(),
            Time(label.latency.p50_ns).to_string(),
            Time(label.latency.p99_ns).to_string(),
            Time(label.latency.p999_ns).to_string(),
            Number(label.rows_read).to_string(),
            Number(label.rows_written).to_string(),
            Number(label.logged_bytes).to_string(),
            Time(label.closure_ns).to_string(),
            Time(label.waiting_ns).to_string(),
            Time(label.commit_ns).to_string(),
            Time(label.log_ns).to_string(),
            Time(label.lost_ns).to_string(),
        ]
    }));
    let width_of = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..heads.len()).map(|column| width_of(column).unwrap_or(0)).collect();
    writeln!(formatter)?;
    for row in &rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        writeln!(formatter, "{}", line.trim_end())?;
    }
    Ok(())
}
