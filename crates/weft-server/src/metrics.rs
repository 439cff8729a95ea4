//! The numbers of the server and of the engine, in the format of OpenMetrics, which Prometheus reads.

use std::fmt::{Display, Write};

use weft::Failure;
use weft::htm::word::Ordering;
use weft_inspect::InspectDatabase;
use weft_inspect::openmetrics;

use crate::replication::{Replication, Standing};
use crate::server::Server;

/// Returns the numbers. Those of the engine are what [`weft_inspect`] reports.
///
/// # Errors
/// Those of [`InspectDatabase::contention`].
pub fn render(server: &Server) -> Result<String, Failure> {
    let mut text = String::new();
    let counters = &server.counters;
    for (name, help, counter) in [
        ("commands", "Commands that were run", &counters.commands),
        ("connections", "Connections that were accepted", &counters.accepted),
        ("connections_refused", "Connections that were refused", &counters.refused),
        ("errors", "Error replies", &counters.errors),
        ("input_bytes", "Bytes received from clients", &counters.input_bytes),
        ("output_bytes", "Bytes sent to clients", &counters.output_bytes),
        ("expired_keys", "Keys that have expired and were removed", &counters.expired),
    ] {
        let value = counter.load(Ordering::Relaxed);
        add(&mut text, name, "counter", help, "_total", value);
    }
    let uptime = server.started.elapsed().as_secs_f64();
    add(&mut text, "uptime_seconds", "gauge", "Time since the server was started", "", uptime);
    let clients = server.clients.len();
    add(&mut text, "clients", "gauge", "Connections at the moment", "", clients);
    let bytes = server.clients_bytes.load(Ordering::Relaxed);
    let help = "Memory for the requests and replies of clients";
    add(&mut text, "clients_bytes", "gauge", help, "", bytes);
    if let Some(replication) = &server.replication {
        add_replication(&mut text, replication);
    }
    text += &openmetrics::text(&server.database.contention()?);
    Ok(text)
}

/// Adds the numbers of replication.
fn add_replication(text: &mut String, replication: &Replication) {
    let (standing, status) = (replication.standing(), replication.status());
    let (records, time) = replication.lag();
    let is_primary = u8::from(standing == Standing::Primary);
    let help = "Whether the server is the primary";
    add(text, "replication_primary", "gauge", help, "", is_primary);
    let is_serving = u8::from(matches!(standing, Standing::Primary | Standing::Standby));
    let help = "Whether the server is the primary, or a standby that has read the log";
    add(text, "replication_serving", "gauge", help, "", is_serving);
    let help = "How many primaries there have been";
    add(text, "replication_generation", "gauge", help, "", status.token.generation);
    let help = "The last epoch of the generation that a standby has applied";
    add(text, "replication_applied_epoch", "gauge", help, "", status.token.epoch);
    let help = "Records of the log that a standby has not read";
    add(text, "replication_lag_records", "gauge", help, "", records);
    let help = "For how long a standby has not had everything";
    add(text, "replication_lag_seconds", "gauge", help, "", time.as_secs_f64());
    let help = "Whether records of the log are missing, which another server may have";
    let is_missing = u8::from(replication.missing().is_some());
    add(text, "replication_records_missing", "gauge", help, "", is_missing);
    let help =
        "What has happened to the node that an operator should know of: see INFO replication";
    let reports = replication.reports().len();
    add(text, "replication_reports", "counter", help, "_total", reports);
    let help = "How often the server has ceased to be the primary";
    let steps_down = replication.steps_down.load(Ordering::Relaxed);
    add(text, "replication_steps_down", "counter", help, "_total", steps_down);
}

/// Adds a number of the server.
fn add(text: &mut String, name: &str, kind: &str, help: &str, suffix: &str, value: impl Display) {
    // Writing to a string succeeds.
    let _ = writeln!(
        text,
        "# HELP weft_server_{name} {help}.\n# TYPE weft_server_{name} {kind}\nweft_server_{name}{suffix} {value}"
    );
}
