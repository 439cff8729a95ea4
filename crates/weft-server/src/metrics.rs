//! The numbers of the server and the engine, in Prometheus's text format.

use std::fmt::{Display, Write};

use weft::htm::word::Ordering;

use crate::server::Server;

/// The page, as it is written.
#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "counter", help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn labelled(&mut self, name: &str, label: &str, of: impl Display, value: impl Display) {
        let _ = writeln!(self.0, "{name}{{{label}=\"{of}\"}} {value}");
    }
}

/// Returns the page.
pub fn render(server: &Server) -> String {
    let mut page = Page::default();
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
        page.counter(&format!("weft_server_{name}_total"), help, value);
    }
    let uptime = server.started.elapsed().as_secs_f64();
    page.gauge("weft_server_uptime_seconds", "Time since the server was started", uptime);
    page.gauge("weft_server_clients", "Connections at the moment", server.clients.len());
    let client_bytes = server.clients_bytes.load(Ordering::Relaxed);
    page.gauge(
        "weft_server_clients_bytes",
        "Memory for the requests and replies of clients",
        client_bytes,
    );
    render_engine(server, &mut page);
    page.0
}

fn render_engine(server: &Server, page: &mut Page) {
    let metrics = server.database.metrics();
    page.counter("weft_committed_total", "Transactions that have committed", metrics.committed);
    page.counter(
        "weft_rolled_back_total",
        "Transactions that rolled back without a conflict",
        metrics.rolled_back,
    );
    let name = "weft_aborted_total";
    page.head(name, "counter", "Attempts that were aborted by a conflict, by reason");
    for (reason, count) in metrics.aborted() {
        page.labelled(name, "reason", format!("{reason:?}"), count);
    }
    let name = "weft_aborted_by_table_total";
    page.head(name, "counter", "Attempts that were aborted by a conflict, by table");
    for (table, count) in &metrics.aborted_by_table {
        page.labelled(name, "table", table, count);
    }
    page.gauge("weft_epoch", "The global epoch", metrics.epoch);
    page.gauge("weft_workers", "Workers that threads use", metrics.workers);
    page.gauge("weft_memory_bytes", "Memory of the database", metrics.memory.used_bytes);
    if let Some(limit) = metrics.memory.limit_bytes {
        page.gauge("weft_memory_limit_bytes", "The most memory of the database", limit);
    }
    let name = "weft_table_records";
    page.head(name, "gauge", "Rows of each table, with deleted ones that are still in its index");
    for index in metrics.memory.indexes.iter().filter(|index| index.index.is_none()) {
        page.labelled(name, "table", index.table, index.records);
    }
    if let Some(log) = &metrics.log {
        page.gauge("weft_log_durable_epoch", "The last durable epoch", log.durable_epoch);
        page.counter("weft_log_bytes_total", "Bytes written to the log", log.bytes_written);
        page.counter("weft_log_syncs_total", "Syncs of the log", log.syncs);
        page.counter("weft_log_transactions_total", "Transactions in the log", log.transactions);
    }
    if let Some(checkpoints) = &metrics.checkpoints {
        page.counter(
            "weft_checkpoints_total",
            "Checkpoints that were written",
            checkpoints.written,
        );
        page.counter(
            "weft_checkpoints_failed_total",
            "Checkpoints that failed",
            checkpoints.failed,
        );
    }
}
