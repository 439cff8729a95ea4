//! The numbers of the server and of the engine, in the format of OpenMetrics, which Prometheus reads.

use std::fmt::{Display, Write};

use weft::Failure;
use weft::htm::word::Ordering;
use weft_inspect::InspectDatabase;
use weft_inspect::openmetrics;

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
    text += &openmetrics::text(&server.database.contention()?);
    Ok(text)
}

/// Adds a number of the server.
fn add(text: &mut String, name: &str, kind: &str, help: &str, suffix: &str, value: impl Display) {
    // Writing to a string succeeds.
    let _ = writeln!(
        text,
        "# HELP weft_server_{name} {help}.\n# TYPE weft_server_{name} {kind}\nweft_server_{name}{suffix} {value}"
    );
}
