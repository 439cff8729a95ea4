//! What happens in a database, as events and spans of `tracing`.

use std::collections::HashMap;
use std::time::Duration;

use tracing::{error, info, info_span, warn};
use weft::Database;
use weft::durability::RecoveryReport;
use weft::protocol::Protocol;

use crate::outlet::Outlet;
use crate::report::{Action, PointReport};
use crate::slow::{SlowHub, Waiting};
use crate::source::Source;
use crate::{INSIDE, Report};

/// Emits events about a database, until the returned value is dropped. The target of all of them is `weft`.
///
/// | event | level | when |
/// | --- | --- | --- |
/// | `recovered`, `cut` | info, warn | at once, if the database was recovered from a directory |
/// | `checkpoint`, `checkpoint failed` | info, error | checkpoints were written, or could not be written |
/// | `log` | info, error | the state of the log has changed |
/// | `phase` | info | split phases have begun, or the present phase is another one |
/// | `decision` | info | the protocol does something else at a point where transactions conflict |
/// | `starvation` | warn | a starving transaction has held back all others |
/// | `slow transaction` | warn | a transaction took longer than [`inspect_slow`](crate::InspectBuilder::inspect_slow) says |
///
/// A slow transaction is a span, `transaction`, with its label, time, and how often it was aborted. In the span there is an
/// event for each attempt that was aborted, with its reason, table and time. The span is made when the transaction has
/// ended, so its field `seconds` has the time, and not the span's own duration.
///
/// After each interval it looks at what has changed since the interval before. So an event comes at most this much later,
/// and what happened several times within an interval is one event that says how often.
///
/// # Errors
/// If the thread cannot be started.
pub fn trace_events<P: Protocol>(
    database: &Database<P>,
    interval: Duration,
) -> std::io::Result<Outlet> {
    if let Some(recovered) = database.recovered() {
        tell_recovery(recovered);
    }
    let source = Source::of(database);
    let mut before = source.report().unwrap_or_default();
    let observer = database.open_engine(INSIDE).shared.observer.clone();
    Outlet::start("weft-events", interval, source, move |report| {
        if let Some(slow) = observer.as_ref().and_then(SlowHub::of) {
            tell_slow(slow.take());
        }
        tell_changes(&before, &report);
        before = report;
    })
}

fn tell_slow(waiting: Waiting) {
    for slow in waiting.transactions {
        let seconds = slow.time.as_secs_f64();
        let (label, aborted) = (slow.label, slow.aborted);
        let span = info_span!(target: "weft", "transaction", label, seconds, aborted);
        let _entered = span.enter();
        for attempt in slow.attempts {
            let (reason, after) = (attempt.reason.name(), attempt.after.as_secs_f64());
            let (table, is_repaired) = (attempt.table, attempt.is_repaired);
            info!(target: "weft", reason, table, after, is_repaired, "attempt aborted");
        }
        warn!(target: "weft", has_committed = slow.has_committed, "slow transaction");
    }
    if waiting.left_out > 0 {
        warn!(target: "weft", left_out = waiting.left_out, "too many slow transactions");
    }
}

fn tell_recovery(recovered: &RecoveryReport) {
    info!(
        target: "weft",
        epoch = recovered.epoch,
        is_new = recovered.is_new,
        checkpoint_rows = recovered.checkpoint_rows,
        checkpoint_bytes = recovered.checkpoint_bytes,
        transactions = recovered.transactions,
        log_bytes = recovered.log_bytes,
        "recovered"
    );
    for cut in &recovered.cuts {
        let file = cut.path.display();
        warn!(target: "weft", %file, offset = cut.offset, bytes = cut.bytes, reason = cut.what, "cut");
    }
}

/// Emits an event for each change between two reports.
fn tell_changes(before: &Report, report: &Report) {
    let (old, new) = (&before.totals, &report.totals);
    let checkpoints = new.checkpoints.unwrap_or(0).saturating_sub(old.checkpoints.unwrap_or(0));
    if checkpoints > 0 {
        info!(target: "weft", written = checkpoints, in_all = new.checkpoints, "checkpoint");
    }
    if new.checkpoints_failed > old.checkpoints_failed {
        let failed = new.checkpoints_failed - old.checkpoints_failed;
        error!(target: "weft", failed, "checkpoint failed");
    }
    if let (Some(old), Some(new)) = (&old.log, &new.log)
        && old.state != new.state
    {
        let (before, state) = (&old.state, &new.state);
        match &**state {
            "running" | "closed" => info!(target: "weft", before, state, "log"),
            _ => error!(target: "weft", before, state, "log"),
        }
    }
    if let (Some(old), Some(new)) = (&old.phases, &new.phases)
        && (old.is_split != new.is_split || old.split_phases != new.split_phases)
    {
        let split_phases = new.split_phases - old.split_phases;
        info!(
            target: "weft",
            is_split = new.is_split,
            split_records = new.split_records,
            split_phases,
            "phase"
        );
    }
    if new.turnstile_closings > old.turnstile_closings {
        let closings = new.turnstile_closings - old.turnstile_closings;
        warn!(target: "weft", closings, "starvation");
    }
    tell_decisions(before, report);
}

fn tell_decisions(before: &Report, report: &Report) {
    type Place<'r> = (&'r str, Option<&'r str>, Option<&'r str>, bool);
    fn place(point: &PointReport) -> Place<'_> {
        (&point.table, point.index.as_deref(), point.key.as_deref(), point.is_range)
    }
    let acts = |point: &&PointReport| point.action != Action::Nothing;
    let mut actions: HashMap<_, _> =
        before.points.iter().filter(acts).map(|point| (place(point), point.action)).collect();
    let tell = |(table, index, key, is_range): Place<'_>, before: Action, action: Action| {
        let (before, action) = (before.name(), action.name());
        info!(target: "weft", table, index, key, is_range, before, action, "decision");
    };
    for point in report.points.iter().filter(acts) {
        let old = actions.remove(&place(point)).unwrap_or_default();
        if old != point.action {
            tell(place(point), old, point.action);
        }
    }
    for (place, old) in actions {
        tell(place, old, Action::Nothing);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::report::{LogReport, PhaseReport};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn told(before: &Report, report: &Report) -> Vec<String> {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .without_time()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || tell_changes(before, report));
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    fn at(key: &str, action: Action) -> PointReport {
        PointReport {
            table: "accounts".to_owned(),
            key: Some(key.to_owned()),
            action,
            ..PointReport::default()
        }
    }

    #[test]
    fn each_change_is_one_event() {
        let mut before = Report::default();
        before.totals.checkpoints = Some(1);
        before.totals.log = Some(LogReport { state: "running".to_owned(), ..LogReport::default() });
        before.totals.phases = Some(PhaseReport { split_phases: 3, ..PhaseReport::default() });
        before.points = vec![at("1", Action::Queued), at("2", Action::Split)];
        assert_eq!(told(&before, &before), [""; 0]);

        let mut after = before.clone();
        after.totals.checkpoints = Some(3);
        after.totals.checkpoints_failed = 1;
        after.totals.log.as_mut().unwrap().state = "disk_full".to_owned();
        after.totals.phases =
            Some(PhaseReport { split_phases: 5, split_records: 1, ..PhaseReport::default() });
        after.totals.turnstile_closings = 2;
        after.points = vec![at("1", Action::Split), at("3", Action::Nothing)];
        let point = |key, before, action| {
            format!(
                r#"INFO weft: decision table="accounts" key="{key}" is_range=false before="{before}" action="{action}""#
            )
        };
        assert_eq!(
            told(&before, &after),
            [
                "INFO weft: checkpoint written=2 in_all=3".to_owned(),
                "ERROR weft: checkpoint failed failed=1".to_owned(),
                r#"ERROR weft: log before="running" state="disk_full""#.to_owned(),
                "INFO weft: phase is_split=false split_records=1 split_phases=2".to_owned(),
                "WARN weft: starvation closings=2".to_owned(),
                point("1", "queued", "split"),
                point("2", "split", "nothing"),
            ]
        );
    }
}
