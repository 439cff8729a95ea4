//! What the terminal shows.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, TableState, Wrap};
use weft_inspect::Report;
use weft_inspect::report::{Action, Count, LabelReport, PointReport};

use crate::numbers::{bytes, count, time};

/// The most reports that are kept: one for each column of a wide terminal.
const REPORTS_MAX: usize = 300;

/// What the user does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Select the point above.
    Up,
    /// Select the point below.
    Down,
    /// Stop showing new reports, or go on.
    Pause,
}

/// The screen.
#[derive(Debug, Default)]
pub struct View {
    /// The newest reports.
    reports: VecDeque<Report>,
    /// Why there is no newer report.
    problem: Option<String>,
    is_paused: bool,
    points: TableState,
}

fn sum(counts: &[Count]) -> u64 {
    counts.iter().map(|count| count.count).sum()
}

fn is_same(left: &PointReport, right: &PointReport) -> bool {
    let place = |point: &PointReport| {
        (point.table.clone(), point.index.clone(), point.key.clone(), point.extent)
    };
    place(left) == place(right)
}

impl View {
    /// Adds a report, or the reason why there isn't one.
    pub fn add(&mut self, report: Result<Report, String>) {
        match report {
            Err(problem) => self.problem = Some(problem),
            Ok(report) => {
                self.problem = None;
                if self.is_paused {
                    return;
                }
                if self.reports.len() == REPORTS_MAX {
                    self.reports.pop_front();
                }
                self.reports.push_back(report);
            }
        }
    }

    /// Does what the user wants.
    pub fn act(&mut self, input: Input) {
        match input {
            Input::Up => self.points.select_previous(),
            Input::Down => self.points.select_next(),
            Input::Pause => self.is_paused = !self.is_paused,
        }
    }

    /// Returns by how much a sum has grown in each second, between a report and the one before it.
    fn rate_at(&self, index: usize, value: impl Fn(&Report) -> u64) -> f64 {
        self.rate_if_known(index, |report| Some(value(report))).unwrap_or(0.0)
    }

    /// Returns the same, or `None` unless both reports have the sum. The first sum that is reported may have grown for
    /// any time.
    fn rate_if_known(&self, index: usize, value: impl Fn(&Report) -> Option<u64>) -> Option<f64> {
        let before = self.reports.get(index.checked_sub(1)?)?;
        let report = &self.reports[index];
        let grown = value(report)?.saturating_sub(value(before)?);
        let millis = report.taken_unix_ms.saturating_sub(before.taken_unix_ms);
        (millis > 0).then(|| grown as f64 * 1000.0 / millis as f64)
    }

    fn rate(&self, value: impl Fn(&Report) -> u64) -> f64 {
        self.rate_at(self.reports.len() - 1, value)
    }

    /// Returns the rate of a sum of a point, as text.
    fn rate_of_point(
        &self,
        point: &PointReport,
        value: fn(&PointReport) -> u64,
        text: fn(f64) -> String,
    ) -> String {
        let rate = self.rate_if_known(self.reports.len() - 1, |report| {
            report.points.iter().find(|other| is_same(other, point)).map(value)
        });
        rate.map_or_else(|| "–".to_owned(), text)
    }

    /// Draws everything.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(3), Constraint::Min(0), Constraint::Length(1)])
                .areas(frame.area());
        let state = if self.is_paused { "paused · " } else { "" };
        let keys = format!(" {state}q quit · p pause · ↑ ↓ select a point");
        frame.render_widget(Line::styled(keys, Style::new().add_modifier(Modifier::DIM)), foot);
        let Some(report) = self.reports.back().cloned() else {
            let text = self.problem.clone().unwrap_or_else(|| "waiting for a report …".to_owned());
            frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), body);
            return;
        };
        self.draw_head(frame, head, &report);
        // Narrow terminals show the charts above, wide ones beside.
        let points_height = (report.points.len() as u16 + 3).clamp(4, 14);
        let [charts, points, advice, labels] = Layout::vertical([
            Constraint::Length(6),
            Constraint::Length(points_height),
            Constraint::Length(3),
            Constraint::Min(3),
        ])
        .areas(body);
        let [throughput, causes] =
            Layout::horizontal([Constraint::Percentage(60), Constraint::Percentage(40)])
                .areas(charts);
        self.draw_throughput(frame, throughput);
        self.draw_causes(frame, causes, &report);
        self.draw_points(frame, points, &report);
        let selected = self.points.selected().unwrap_or(0);
        let text = match report.points.get(selected).and_then(|point| point.advice.clone()) {
            Some(advice) => advice,
            None => report.headline(),
        };
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), advice);
        self.draw_labels(frame, labels, &report);
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect, report: &Report) {
        let totals = &report.totals;
        let aborts = self.rate(|report| sum(&report.totals.aborts));
        let first = vec![
            Span::styled(format!("Weft {} ", report.protocol), Style::new().bold()),
            Span::raw(format!(
                " {} committed/s · {} aborted/s · {} rolled back/s",
                count(self.rate(|report| report.totals.committed)),
                count(aborts),
                count(self.rate(|report| report.totals.rolled_back))
            )),
        ];
        let limit = totals
            .limit_bytes
            .map_or(String::new(), |limit| format!(" of {}", bytes(limit as f64)));
        let oldest = totals.oldest_transaction_ns.map_or("none".to_owned(), |age| {
            let label = totals.oldest_transaction_label.as_deref().unwrap_or_default();
            format!("{} {label}", time(age as f64)).trim().to_owned()
        });
        let mut second = format!(
            "memory {}{limit} · oldest transaction {oldest}",
            bytes(totals.used_bytes as f64)
        );
        if let Some(log) = &totals.log {
            second += &format!(
                " · log {}, {} behind, {}/s",
                log.state,
                count(log.lag_epochs as f64),
                bytes(self.rate(|report| {
                    report.totals.log.as_ref().map_or(0, |log| log.written_bytes)
                }))
            );
        }
        if let Some(phases) = &totals.phases {
            let phase = if phases.is_split { "split" } else { "joined" };
            second += &format!(" · {phase} phase, {} split records", phases.split_records);
        }
        let third = match &self.problem {
            None => Line::default(),
            Some(problem) => Line::styled(problem.clone(), Style::new().fg(Color::Red)),
        };
        frame
            .render_widget(Paragraph::new(vec![Line::from(first), Line::raw(second), third]), area);
    }

    fn draw_throughput(&self, frame: &mut Frame<'_>, area: Rect) {
        let width = usize::from(area.width.saturating_sub(2));
        let first = self.reports.len().saturating_sub(width).max(1);
        let rates: Vec<_> = (first..self.reports.len())
            .map(|index| self.rate_at(index, |report| report.totals.committed) as u64)
            .collect();
        let most = rates.iter().max().copied().unwrap_or(0);
        let title = format!(" Committed/s, at most {} ", count(most as f64));
        let chart = Sparkline::default().data(rates).style(Style::new().fg(Color::Cyan));
        frame.render_widget(chart.block(Block::bordered().title(title)), area);
    }

    fn draw_causes(&self, frame: &mut Frame<'_>, area: Rect, report: &Report) {
        let of = |report: &Report, name: &str| {
            let counts = report.totals.aborts.iter();
            counts.filter(|count| count.name == name).map(|count| count.count).sum()
        };
        let mut rates: Vec<_> = report
            .totals
            .aborts
            .iter()
            .filter(|cause| cause.count > 0)
            .map(|cause| (self.rate(|report| of(report, &cause.name)), cause))
            .collect();
        rates.sort_by(|left, right| right.0.total_cmp(&left.0));
        let lines: Vec<_> = rates
            .iter()
            .map(|(rate, cause)| {
                let (rate, all) = (count(*rate), count(cause.count as f64));
                Line::raw(format!("{rate:>8}  {} ({all} in all)", cause.name))
            })
            .collect();
        let block = Block::bordered().title(" Aborted/s, by cause ");
        frame.render_widget(Paragraph::new(lines).block(block), area);
    }

    fn draw_points(&mut self, frame: &mut Frame<'_>, area: Rect, report: &Report) {
        let rows: Vec<_> = report
            .points
            .iter()
            .map(|point| {
                let lost = self.rate_of_point(point, |point| point.lost_ns, time);
                let aborts = self.rate_of_point(point, PointReport::aborts_total, count);
                let action = match (point.action, point.action_lasted_ns) {
                    (Action::Nothing, _) | (_, None) => String::new(),
                    (action, Some(lasted)) => format!("{} {}", action.name(), time(lasted as f64)),
                };
                let labels: Vec<_> =
                    point.labels.iter().take(2).map(|label| &*label.label).collect();
                Row::new([
                    Cell::new(point.name()),
                    Cell::new(lost),
                    Cell::new(aborts),
                    Cell::new(action),
                    Cell::new(labels.join(", ")),
                ])
            })
            .collect();
        let widths = [
            Constraint::Fill(3),
            Constraint::Length(9),
            Constraint::Length(9),
            Constraint::Length(14),
            Constraint::Fill(2),
        ];
        let header = Row::new(["Point", "lost/s", "aborts/s", "action", "labels"]);
        let selected = Style::new().add_modifier(Modifier::REVERSED);
        let table = Table::new(rows, widths)
            .header(header.style(Style::new().bold()))
            .row_highlight_style(selected)
            .block(Block::bordered().title(" Hot points "));
        if self.points.selected().is_some_and(|selected| selected >= report.points.len()) {
            self.points.select(report.points.len().checked_sub(1));
        }
        let mut points = self.points;
        frame.render_stateful_widget(table, area, &mut points);
        self.points = points;
    }

    fn draw_labels(&self, frame: &mut Frame<'_>, area: Rect, report: &Report) {
        let rows: Vec<_> = report
            .labels
            .iter()
            .map(|label| {
                let of = |report: &Report, value: fn(&LabelReport) -> u64| {
                    report.labels.iter().find(|other| other.label == label.label).map_or(0, value)
                };
                let cells = [
                    count(self.rate(|report| of(report, |label| label.committed))),
                    count(self.rate(|report| of(report, |label| sum(&label.aborts)))),
                    time(label.latency.p50_ns as f64),
                    time(label.latency.p99_ns as f64),
                    time(self.rate(|report| of(report, |label| label.lost_ns))),
                ];
                Row::new([label.label.clone()].into_iter().chain(cells))
            })
            .collect();
        let widths = [
            Constraint::Fill(1),
            Constraint::Length(10),
            Constraint::Length(9),
            Constraint::Length(9),
            Constraint::Length(9),
            Constraint::Length(9),
        ];
        let header = Row::new(["Label", "commits/s", "aborts/s", "p50", "p99", "lost/s"]);
        let table = Table::new(rows, widths).header(header.style(Style::new().bold()));
        frame.render_widget(table.block(Block::bordered().title(" Transactions ")), area);
    }
}
