//! What the facade `metrics` gets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit,
};
use weft_inspect::{InspectDatabase, publish};

use crate::{open, view};

type Values = Arc<Mutex<BTreeMap<String, f64>>>;

/// Remembers the newest value of each metric.
#[derive(Default)]
struct Remember {
    values: Values,
    units: Mutex<BTreeMap<String, Option<Unit>>>,
}

struct Place(Values, String);

impl CounterFn for Place {
    fn increment(&self, _: u64) {
        panic!("the database has sums");
    }

    fn absolute(&self, value: u64) {
        self.0.lock().unwrap().insert(self.1.clone(), value as f64);
    }
}

impl GaugeFn for Place {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        self.0.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl Remember {
    fn place(&self, key: &Key) -> Arc<Place> {
        let labels: Vec<_> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Place(Arc::clone(&self.values), format!("{}[{}]", key.name(), labels.join(","))))
    }

    fn describe(&self, name: KeyName, unit: Option<Unit>) {
        self.units.lock().unwrap().insert(name.as_str().to_owned(), unit);
    }
}

impl Recorder for Remember {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(name, unit);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(name, unit);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.place(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.place(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn a_report_is_published_with_names_and_units() {
    let (database, pages) = open();
    for id in 0..3 {
        view(&database, &pages, id);
    }
    let recorder = Remember::default();
    let report = database.contention().unwrap();
    metrics::with_local_recorder(&recorder, || publish(&report));
    let values = recorder.values.lock().unwrap();
    assert_eq!(values["weft_transactions_committed_total[]"], 3.0);
    assert_eq!(values["weft_table_records[table=pages,index=]"], 3.0);
    assert_eq!(values["weft_oldest_transaction_seconds[]"], 0.0);
    assert!(values["weft_memory_used_bytes[]"] > 0.0);
    let units = recorder.units.lock().unwrap();
    assert_eq!(units["weft_memory_used_bytes"], Some(Unit::Bytes));
    assert_eq!(units["weft_log_sync_seconds_total"], Some(Unit::Seconds));
}
