//! Metrics, in the text format of Prometheus.

use std::fmt::Write;

use weft::ConflictReason;

use crate::shop::Shop;

/// Returns the metrics of a shop.
pub fn text(shop: &Shop) -> String {
    let metrics = shop.database.metrics();
    let (log, expiry) = (metrics.log.as_ref(), metrics.expiry.as_ref());
    let numbers = [
        ("counter", "shop_transactions_committed_total", metrics.committed),
        ("counter", "shop_transactions_rolled_back_total", metrics.rolled_back),
        ("gauge", "shop_queue_length", shop.pool.queued() as u64),
        (
            "counter",
            "shop_expiry_hook_failures_total",
            expiry.map_or(0, |expiry| expiry.hook_failures),
        ),
        ("gauge", "shop_memory_used_bytes", metrics.memory.used_bytes),
        ("counter", "shop_log_bytes_total", log.map_or(0, |log| log.bytes_written)),
        ("counter", "shop_log_syncs_total", log.map_or(0, |log| log.syncs)),
    ];
    let mut text = String::new();
    for (kind, name, value) in numbers {
        _ = writeln!(text, "# TYPE {name} {kind}\n{name} {value}");
    }
    _ = writeln!(text, "# TYPE shop_attempts_aborted_total counter");
    for (reason, aborted) in ConflictReason::ALL.iter().zip(metrics.aborted) {
        _ = writeln!(text, "shop_attempts_aborted_total{{reason=\"{reason}\"}} {aborted}");
    }
    text
}
