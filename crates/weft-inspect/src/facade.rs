//! The report for the facade `metrics`, so for Prometheus, StatsD and all others that have an exporter for it.

use std::time::Duration;

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder};
use weft::Database;
use weft::protocol::Protocol;

use crate::Report;
use crate::families::{self, Family, Kind, Unit};
use crate::outlet::Outlet;
use crate::source::Source;

/// Publishes a database's metrics after each interval, until the returned value is dropped. They have the names that
/// `/metrics` of [`serve`](crate::serve()) has, too.
///
/// The facade's counters are whole numbers. So sums of times, which are counters for Prometheus, are gauges here, in
/// seconds.
///
/// # Errors
/// If the thread cannot be started.
pub fn publish_metrics<P: Protocol>(
    database: &Database<P>,
    interval: Duration,
) -> std::io::Result<Outlet> {
    Outlet::start("weft-metrics", interval, Source::of(database), |report| publish(&report))
}

/// Publishes a report to the recorder of the calling thread. Use this if the program has a loop of its own in which it
/// publishes metrics.
pub fn publish(report: &Report) {
    metrics::with_recorder(|recorder| {
        for family in families::of(report) {
            publish_family(recorder, &family);
        }
    });
}

fn publish_family(recorder: &dyn Recorder, family: &Family) {
    let name = KeyName::from(family.full_name());
    let unit = match family.unit {
        Unit::None => metrics::Unit::Count,
        Unit::Bytes => metrics::Unit::Bytes,
        Unit::Seconds => metrics::Unit::Seconds,
    };
    let is_counter = family.kind == Kind::Counter && family.unit != Unit::Seconds;
    match is_counter {
        true => recorder.describe_counter(name.clone(), Some(unit), family.help.into()),
        false => recorder.describe_gauge(name.clone(), Some(unit), family.help.into()),
    }
    let metadata = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));
    for sample in &family.samples {
        let labels: Vec<_> =
            sample.labels.iter().map(|(name, value)| Label::new(*name, value.clone())).collect();
        let key = Key::from_parts(name.clone(), labels);
        match is_counter {
            true => recorder.register_counter(&key, &metadata).absolute(sample.value),
            false => recorder.register_gauge(&key, &metadata).set(family.in_unit(sample.value)),
        }
    }
}
