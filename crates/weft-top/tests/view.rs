//! What the view draws, on a terminal in memory.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use weft_inspect::Report;
use weft_inspect::report::{Action, Count, LabelReport, LogReport, PointLabel, PointReport};
use weft_top::view::{Input, View};

fn count(name: &str, count: u64) -> Count {
    Count { name: name.to_owned(), count }
}

fn point(key: &str, lost_ns: u64, advice: &str) -> PointReport {
    let mut point = PointReport::default();
    point.table = "warehouse".to_owned();
    point.key = Some(key.to_owned());
    point.lost_ns = lost_ns;
    point.aborts = vec![count("validation", lost_ns / 1_000_000)];
    let mut label = PointLabel::default();
    label.label = "payment".to_owned();
    point.labels = vec![label];
    point.advice = Some(advice.to_owned());
    point
}

/// Returns the report of a second: everything grows.
fn report(second: u64) -> Report {
    let mut report = Report::default();
    report.taken_unix_ms = second * 1000;
    report.protocol = "dbx".to_owned();
    report.is_observed = true;
    report.totals.committed = second * 1500;
    report.totals.rolled_back = second * 2;
    report.totals.aborts = vec![count("validation", second * 80), count("locked", 0)];
    report.totals.used_bytes = 3 << 20;
    report.totals.oldest_transaction_ns = Some(2_500_000);
    report.totals.oldest_transaction_label = Some("report".to_owned());
    let mut log = LogReport::default();
    log.state = "running".to_owned();
    log.lag_epochs = 2;
    log.written_bytes = second * 2048;
    report.totals.log = Some(log);
    let mut hot = point("1", second * 200_000_000, "all writers add: use `add`");
    hot.action = Action::Split;
    hot.action_lasted_ns = Some(12_000_000_000);
    report.points = vec![hot, point("2", second * 1_000_000, "keep transactions short")];
    let mut label = LabelReport::default();
    label.label = "payment".to_owned();
    label.committed = second * 1000;
    label.latency.p50_ns = 21_000;
    label.latency.p99_ns = 1_400_000;
    report.labels = vec![label];
    report
}

fn drawn(view: &mut View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame)).unwrap();
    terminal.backend().to_string()
}

#[track_caller]
fn expect_all(screen: &str, parts: &[&str]) {
    for part in parts {
        assert!(screen.contains(part), "{part:?} is missing in\n{screen}");
    }
}

#[test]
fn everything_is_on_an_ordinary_terminal() {
    let mut view = View::default();
    view.add(Ok(report(1)));
    view.add(Ok(report(2)));
    expect_all(
        &drawn(&mut view, 100, 30),
        &[
            "Weft dbx  1.50 k committed/s · 80 aborted/s · 2 rolled back/s",
            "memory 3 MiB · oldest transaction 2.50 ms report · log running, 2 behind, 2 KiB/s",
            "Committed/s, at most 1.50 k",
            "80  validation (160 in all)",
            "warehouse 1",
            "200 ms",
            "split 12 s",
            "all writers add: use `add`",
            "payment",
            "21 µs",
            "1.40 ms",
            "q quit",
        ],
    );
}

#[test]
fn the_advice_is_that_of_the_selected_point() {
    let mut view = View::default();
    view.add(Ok(report(1)));
    view.act(Input::Down);
    drawn(&mut view, 100, 30);
    view.act(Input::Down);
    let screen = drawn(&mut view, 100, 30);
    expect_all(&screen, &["keep transactions short"]);
    assert!(!screen.contains("use `add`"), "{screen}");
    view.act(Input::Up);
    expect_all(&drawn(&mut view, 100, 30), &["use `add`"]);
    // A point that is gone is not selected any more.
    view.act(Input::Down);
    let mut last = report(2);
    last.points.truncate(1);
    view.add(Ok(last));
    expect_all(&drawn(&mut view, 100, 30), &["use `add`"]);
}

/// Fault: when a point appeared in the report, all that it had ever lost was shown as lost in the last second.
#[test]
fn a_new_point_has_no_rate() {
    let mut view = View::default();
    view.add(Ok(report(1)));
    let mut second = report(2);
    second.points.push(point("new", 100_000_000_000, "keep transactions short"));
    view.add(Ok(second));
    let screen = drawn(&mut view, 100, 30);
    let row = screen.lines().find(|line| line.contains("warehouse new")).expect("a row");
    assert!(!row.contains(|character: char| character.is_ascii_digit()), "{screen}");
    let mut third = report(3);
    third.points.push(point("new", 100_300_000_000, "keep transactions short"));
    view.add(Ok(third));
    let screen = drawn(&mut view, 100, 30);
    let row = screen.lines().find(|line| line.contains("warehouse new")).expect("a row");
    assert!(row.contains("300 ms"), "{screen}");
}

#[test]
fn a_paused_view_stays_as_it_is() {
    let mut view = View::default();
    view.add(Ok(report(1)));
    view.act(Input::Pause);
    view.add(Ok(report(2)));
    expect_all(&drawn(&mut view, 100, 30), &["paused", "0 committed/s"]);
    view.act(Input::Pause);
    view.add(Ok(report(2)));
    expect_all(&drawn(&mut view, 100, 30), &["1.50 k committed/s"]);
}

#[test]
fn a_problem_is_shown_beside_the_last_report() {
    let mut view = View::default();
    expect_all(&drawn(&mut view, 60, 20), &["waiting for a report"]);
    view.add(Err("the program is gone".to_owned()));
    expect_all(&drawn(&mut view, 60, 20), &["the program is gone"]);
    view.add(Ok(report(1)));
    assert!(!drawn(&mut view, 60, 20).contains("is gone"));
    view.add(Err("the program is gone".to_owned()));
    expect_all(&drawn(&mut view, 60, 20), &["the program is gone", "warehouse 1"]);
}

#[test]
fn no_size_of_the_terminal_is_too_small() {
    let mut view = View::default();
    view.add(Ok(report(1)));
    view.add(Ok(report(2)));
    for width in 1..60 {
        for height in [1, 2, 3, 5, 8, 13, 24] {
            drawn(&mut view, width, height);
        }
    }
}
