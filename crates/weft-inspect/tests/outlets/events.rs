//! What `tracing` is told of a database.

use std::cell::Cell;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft::{Database, Error, TransactionOptions};
use weft_inspect::{InspectBuilder, InspectDatabase, trace_events};

use crate::{Page, view};

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

/// The events come from a thread of their own, so this is the subscriber of the whole program.
#[test]
fn a_slow_transaction_is_a_span_with_its_attempts() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().without_time().with_ansi(false);
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let database = Database::builder().table::<Page>().inspect_slow(Duration::ZERO).open().unwrap();
    let pages = database.table::<Page>().unwrap();
    view(&database, &pages, 1);
    let outlet = trace_events(&database, Duration::from_secs(1000)).unwrap();
    let is_first = Cell::new(true);
    let options = TransactionOptions::new().label("read and write");
    let done = database.transact_with(&options, |tx| {
        let views = tx.get(&pages, &1)?.unwrap().views;
        if is_first.take() {
            // Another transaction changes what this one has read.
            std::thread::scope(|scope| scope.spawn(|| view(&database, &pages, 1)).join().unwrap());
        }
        tx.update(&pages, &1, |page| page.views = views + 1)?;
        Ok::<_, Error>(())
    });
    done.unwrap();

    drop(outlet);

    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let told: Vec<_> = text.lines().filter(|line| line.contains("read and write")).collect();
    assert_eq!(told.len(), 2, "{text}");
    for (line, words) in told.iter().zip([
        [
            "transaction{label=\"read and write\"",
            "aborted=1}",
            "attempt aborted",
            "table=\"pages\"",
        ],
        [
            "transaction{label=\"read and write\"",
            "aborted=1}",
            "slow transaction",
            "has_committed=true",
        ],
    ]) {
        for word in words {
            assert!(line.contains(word), "{word} is missing in {line}");
        }
    }
    // What the report says is the same as without the observer of slow transactions.
    let report = database.contention().unwrap();
    assert!(report.is_observed);
    let label = report.labels.iter().find(|label| label.label == "read and write").unwrap();
    assert_eq!((label.committed, label.attempts), (1, 2));
    assert!(report.sampling.timed < report.sampling.transactions + 2);
}
