//! Counts are exact: each is compared with what the program did.

use std::sync::Barrier;

use weft::protocol::{Dbx, Protocol, Silo, TwoPhaseLockingNoWait};
use weft::{Database, Error, Record, Transaction, TransactionOptions};
use weft_inspect::report::{Count, LabelReport};
use weft_inspect::{InspectBuilder, InspectDatabase, Report};

#[derive(Clone, Record)]
struct Page {
    #[record(key)]
    id: u32,
    views: u64,
}

fn open<P: Protocol>() -> Database<P> {
    let database = Database::builder().protocol::<P>().inspect().table::<Page>().open().unwrap();
    let pages = database.table::<Page>().unwrap();
    let options = TransactionOptions::new().label("load");
    let load = |tx: &Transaction<'_, P>| {
        (0..100).try_for_each(|id| tx.insert(&pages, Page { id, views: 0 }))
    };
    database.transact_with(&options, load).map_err(|error: Error| error).unwrap();
    database
}

fn label<'r>(report: &'r Report, name: &str) -> &'r LabelReport {
    report.labels.iter().find(|label| label.label == name).expect("the label was used")
}

fn count(counts: &[Count], name: &str) -> u64 {
    counts.iter().find(|count| count.name == name).map_or(0, |count| count.count)
}

#[test]
fn commits_failures_and_rows_are_counted_by_label() {
    let database = open::<Dbx>();
    let pages = database.table::<Page>().unwrap();
    let report = database.contention().unwrap();
    let load = label(&report, "load");
    assert_eq!((load.committed, load.attempts, load.rows_written), (1, 1, 100));

    let view = TransactionOptions::new().label("view");
    for id in 0..50 {
        let body = |tx: &Transaction<'_>| -> Result<(), Error> {
            tx.get(&pages, &(id + 1))?;
            tx.get(&pages, &(id + 2))?;
            tx.update(&pages, &id, |page| page.views += 1).map(drop)
        };
        database.transact_with(&view, body).unwrap();
    }
    let error = database.transact_with(&view, |_| Err::<(), _>(weft::Failure::Closed.into()));
    assert!(matches!(error, Err(Error::Failure(weft::Failure::Closed))));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        database.transact_with(&view, |_| -> Result<(), Error> { panic!("on purpose") })
    }));
    assert!(panicked.is_err());
    let report = database.contention().unwrap();
    let view = label(&report, "view");
    assert_eq!((view.committed, view.attempts), (50, 52));
    assert_eq!((view.rows_read, view.rows_written), (100, 50));
    assert_eq!((count(&view.failures, "error"), count(&view.failures, "panic")), (1, 1));
    assert!(report.points.is_empty(), "{report}");
}

/// Each timed transaction stands for those since the one before it, so they never stand for more than there were.
#[test]
fn timed_transactions_stand_for_all_others() {
    let database = open::<Dbx>();
    let pages = database.table::<Page>().unwrap();
    for round in 0..2_000u32 {
        let update = |tx: &Transaction<'_>| -> Result<(), Error> {
            tx.update(&pages, &(round % 100), |page| page.views += 1).map(drop)
        };
        database.transact(update).unwrap();
        let sampling = database.contention().unwrap().sampling;
        assert_eq!(sampling.transactions, u64::from(round) + 2);
        assert!(sampling.timed <= sampling.represented, "{sampling:?}");
        assert!(sampling.represented <= sampling.transactions, "{sampling:?}");
    }
}

/// More labels than a worker finds without its observer, in turns. Some of them share a part of their text.
#[test]
fn many_labels_are_counted_exactly() {
    let database = open::<Dbx>();
    let pages = database.table::<Page>().unwrap();
    let texts: Vec<&'static str> =
        (0..200).map(|number| &*format!("label {number:03} and more").leak()).collect();
    let labels: Vec<_> = texts.iter().flat_map(|text| [*text, &text[..9]]).collect();
    for round in 0..3 {
        for (number, label) in labels.iter().enumerate() {
            let options = TransactionOptions::new().label(label);
            let body = |tx: &Transaction<'_>| -> Result<(), Error> {
                (0..number as u32 % 4).try_for_each(|id| tx.get(&pages, &id).map(drop))?;
                tx.update(&pages, &round, |page| page.views += 1).map(drop)
            };
            database.transact_with(&options, body).unwrap();
        }
    }
    let report = database.contention().unwrap();
    for (number, name) in labels.iter().enumerate() {
        let label = label(&report, name);
        let expected = (3, number as u64 % 4 * 3, 3);
        assert_eq!((label.committed, label.rows_read, label.rows_written), expected, "{name}");
    }
}

#[test]
fn transaction_without_a_label_has_its_place_in_the_source() {
    let database = open::<Dbx>();
    let pages = database.table::<Page>().unwrap();
    database.transact(|tx| tx.get(&pages, &1).map(drop)).unwrap();
    let line = line!() - 1;
    drop(database.begin().unwrap());
    let report = database.contention().unwrap();
    let named = |line: u32| format!("{}:{line}:", file!());
    let of = |line| report.labels.iter().find(|label| label.label.starts_with(&named(line)));
    assert_eq!(of(line).expect("has a label").committed, 1);
    assert_eq!(count(&of(line + 2).expect("has a label").failures, "dropped"), 1);
}

/// Two transactions that update one row, one inside the other's life. The one that loses makes another attempt.
fn conflicts_are_counted<P: Protocol>() {
    let database = open::<P>();
    let pages = database.table::<Page>().unwrap();
    let label_of = |label| TransactionOptions::new().label(label);
    for round in 0..10 {
        let met = Barrier::new(2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                met.wait();
                let winner = database.transact_with(&label_of("other").retries_max(0), |tx| {
                    tx.update(&pages, &7, |page| page.views += 1).map(drop)
                });
                met.wait();
                winner.is_ok()
            });
            let mut is_first = true;
            let lost = database.transact_with(&label_of("met"), |tx| {
                let views = tx.get(&pages, &7)?.map(|page| page.views);
                if std::mem::take(&mut is_first) {
                    met.wait();
                    met.wait();
                }
                tx.update(&pages, &7, |page| page.views = views.unwrap_or(0) + 1).map(drop)
            });
            lost.unwrap();
            other.join().unwrap();
        });
        let _ = round;
    }
    let report = database.contention().unwrap();
    let aborts: u64 = report.totals.aborts.iter().map(|count| count.count).sum();
    assert_eq!(aborts, 10, "{report}");
    let by_label: u64 =
        report.labels.iter().flat_map(|label| &label.aborts).map(|count| count.count).sum();
    assert_eq!(by_label, 10, "{report}");
    assert_eq!(report.points.len(), 1, "{report}");
    let point = &report.points[0];
    assert_eq!((point.table.as_str(), point.key.as_deref()), ("page", Some("7")), "{report}");
    assert_eq!(point.aborts_total(), 10, "{report}");
    let committed: u64 = report.labels.iter().map(|label| label.committed).sum();
    assert_eq!(committed, report.totals.committed);
    let attempts: u64 = report.labels.iter().map(|label| label.attempts).sum();
    assert_eq!(attempts, report.totals.committed + 10);
}

#[test]
fn conflicts_are_counted_under_dbx() {
    conflicts_are_counted::<Dbx>();
}

#[test]
fn conflicts_are_counted_under_silo() {
    conflicts_are_counted::<Silo>();
}

#[test]
fn conflicts_are_counted_under_two_phase_locking() {
    conflicts_are_counted::<TwoPhaseLockingNoWait>();
}

#[test]
fn report_survives_json() {
    let database = open::<Dbx>();
    let report = database.contention().unwrap();
    let read: Report = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(read, report);
}
