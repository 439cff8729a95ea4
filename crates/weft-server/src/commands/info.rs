//! `INFO`: numbers about the server.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use weft::htm::word::Ordering;

use super::connection::REDIS_VERSION;
use super::replication;
use crate::call::{Call, is};
use crate::effects::Topic;
use crate::process;
use crate::reply::Reply;
use crate::server::Server;
use crate::stop::Done;
use crate::tables::{SPACES, expiring};

/// The titles of the sections, in Redis's order.
const SECTIONS: [&str; 11] = [
    "Server",
    "Clients",
    "Memory",
    "Persistence",
    "Stats",
    "Replication",
    "CPU",
    "Modules",
    "Errorstats",
    "Cluster",
    "Keyspace",
];

/// `INFO`. Redis also has sections of numbers for each command, which the server does not count.
pub fn info(call: &Call<'_>, reply: &mut Reply) -> Done {
    let named = call.rest(1);
    let wants = |section: &str| {
        let all = ["all", "default", "everything"];
        named.is_empty()
            || named.iter().any(|name| is(name, section) || all.iter().any(|all| is(name, all)))
    };
    let mut text = String::new();
    for section in SECTIONS.into_iter().filter(|section| wants(section)) {
        if !text.is_empty() {
            text += "\r\n";
        }
        let _ = write!(text, "# {section}\r\n");
        for (name, value) in rows(call, section)? {
            let _ = write!(text, "{name}:{value}\r\n");
        }
    }
    reply.verbatim(&text);
    Ok(())
}

/// Returns the rows of a section.
fn rows(call: &Call<'_>, section: &str) -> Done<Vec<(String, String)>> {
    let server = call.caller.server;
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row =
        |name: &str, value: &dyn ToString| rows.push((name.to_owned(), value.to_string()));
    match section {
        "Server" => {
            row("redis_version", &REDIS_VERSION);
            row("redis_mode", &"standalone");
            row("weft_version", &env!("CARGO_PKG_VERSION"));
            row("os", &format!("{} {}", std::env::consts::OS, std::env::consts::ARCH));
            row("arch_bits", &usize::BITS);
            row("process_id", &std::process::id());
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            row("server_time_usec", &now.as_micros());
            row("uptime_in_seconds", &server.started.elapsed().as_secs());
            row("uptime_in_days", &(server.started.elapsed().as_secs() / 86_400));
        }
        "Clients" => {
            row("connected_clients", &server.clients.len());
            row("blocked_clients", &server.waiters.len());
            row("tracking_clients", &0);
            row("weft_clients_bytes", &server.clients_bytes.load(Ordering::Relaxed));
            row("maxclients", &server.clients_max.load(Ordering::Relaxed));
        }
        "Memory" => {
            let mut bytes = |name: &str, bytes: u64| {
                row(name, &bytes);
                row(&format!("{name}_human"), &with_unit(bytes));
            };
            bytes("used_memory", server.database.metrics().memory.used_bytes);
            if let Some(resident) = process::resident_bytes() {
                bytes("used_memory_rss", resident);
            }
            bytes("maxmemory", server.options.store.memory_limit.unwrap_or(0));
            row("maxmemory_policy", &"noeviction");
        }
        "Persistence" => persistence(server, &mut row),
        "Replication" => replication::info(server, &mut row),
        "CPU" => {
            if let Some(time) = process::processor_time() {
                row("used_cpu_sys", &format!("{:.6}", time.system));
                row("used_cpu_user", &format!("{:.6}", time.user));
            }
        }
        // The server has none.
        "Modules" => {}
        "Errorstats" => {
            for (code, count) in server.counters.codes() {
                row(&format!("errorstat_{code}"), &format!("count={count}"));
            }
        }
        "Cluster" => row("cluster_enabled", &0),
        "Stats" => {
            let counters = &server.counters;
            let rates = counters.rates();
            let metrics = server.database.metrics();
            row("total_connections_received", &counters.accepted.load(Ordering::Relaxed));
            row("rejected_connections", &counters.refused.load(Ordering::Relaxed));
            row("total_commands_processed", &counters.commands.load(Ordering::Relaxed));
            row("total_error_replies", &counters.errors.load(Ordering::Relaxed));
            row("total_net_input_bytes", &counters.input_bytes.load(Ordering::Relaxed));
            row("total_net_output_bytes", &counters.output_bytes.load(Ordering::Relaxed));
            let kibibytes = |bytes: f64| format!("{:.2}", bytes / 1024.0);
            row("instantaneous_ops_per_sec", &format!("{:.0}", rates.commands));
            row("instantaneous_input_kbps", &kibibytes(rates.input_bytes));
            row("instantaneous_output_kbps", &kibibytes(rates.output_bytes));
            row("pubsub_channels", &server.publish.subscribed(Topic::Channel).len());
            row("pubsub_patterns", &server.publish.subscribed(Topic::Pattern).len());
            row("pubsubshard_channels", &server.publish.subscribed(Topic::Shard).len());
            let dropped = server.publish.dropped.load(Ordering::Relaxed)
                + server.monitors.dropped.load(Ordering::Relaxed);
            row("client_output_buffer_limit_disconnections", &dropped);
            row("expired_keys", &counters.expired.load(Ordering::Relaxed));
            row("evicted_keys", &0);
            row("weft_commits", &metrics.committed);
            row("weft_aborts", &metrics.aborted_total());
        }
        _ => {
            for space in 0..SPACES {
                let keys = call.size(u64::from(space))?;
                if keys != 0 {
                    let expires = call.size(expiring(space))?;
                    let counts = format!("keys={keys},expires={expires},avg_ttl=0");
                    row(&format!("db{space}"), &counts);
                }
            }
        }
    }
    Ok(rows)
}

/// Returns a number of bytes as Redis shows it to people.
fn with_unit(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let (mut number, mut unit) = (bytes as f64 / 1024.0, "K");
    for next in ["M", "G", "T", "P"] {
        if number < 1024.0 {
            break;
        }
        (number, unit) = (number / 1024.0, next);
    }
    format!("{number:.2}{unit}")
}

fn persistence(server: &Server, row: &mut dyn FnMut(&str, &dyn ToString)) {
    let metrics = server.database.metrics();
    row("loading", &0);
    row("rdb_last_save_time", &server.last_save.load(Ordering::Relaxed));
    row("aof_enabled", &u8::from(metrics.log.is_some()));
    row("weft_acknowledge", &if server.waits { "durable" } else { "at-once" });
    if let Some(epoch) = server.database.durable_epoch() {
        row("weft_durable_epoch", &epoch);
    }
    if let Some(log) = metrics.log {
        row("weft_log_state", &format!("{:?}", log.state));
    }
}

#[cfg(test)]
mod tests {
    use super::with_unit;
    use crate::server::{Options, Server};
    use crate::session::Session;

    #[test]
    fn bytes_are_shown_as_redis_shows_them() {
        for (bytes, shown) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (916_800, "895.31K"),
            (12_058_624, "11.50M"),
            (4 << 30, "4.00G"),
            (3 << 49, "1.50P"),
        ] {
            assert_eq!(with_unit(bytes), shown);
        }
    }

    #[test]
    fn keys_that_expire_are_counted() {
        let server = Server::open(Options::default()).unwrap();
        let mut session = Session::of_a_test(&server);
        for (lines, rows) in [
            (&["SET a 1"][..], &["db0:keys=1,expires=0,avg_ttl=0"][..]),
            (&["SET b 1 EX 100", "EXPIRE a 100"], &["db0:keys=2,expires=2,avg_ttl=0"]),
            (&["EXPIRE a 50", "SET b 2 EX 50"], &["db0:keys=2,expires=2,avg_ttl=0"]),
            (&["SET b 1", "RENAME a c"], &["db0:keys=2,expires=1,avg_ttl=0"]),
            (&["COPY c d", "PERSIST c"], &["db0:keys=3,expires=1,avg_ttl=0"]),
            (
                &["MOVE d 1", "HSET h f v", "PEXPIRE h 9999"],
                &["db0:keys=3,expires=1,avg_ttl=0", "db1:keys=1,expires=1,avg_ttl=0"],
            ),
            (&["DEL h"], &["db0:keys=2,expires=0,avg_ttl=0", "db1:keys=1,expires=1,avg_ttl=0"]),
            (
                &["SET old 1 PXAT 1", "SET old 1"],
                &["db0:keys=3,expires=0,avg_ttl=0", "db1:keys=1,expires=1,avg_ttl=0"],
            ),
            (&["EXPIRE b 100", "FLUSHDB"], &["db1:keys=1,expires=1,avg_ttl=0"]),
            (&["SET a 1 EX 100", "FLUSHALL", "SET a 1"], &["db0:keys=1,expires=0,avg_ttl=0"]),
        ] {
            lines.iter().for_each(|line| drop(session.say(line)));
            let info = session.say("INFO keyspace");
            let found: Vec<_> = info.lines().filter(|line| line.starts_with("db")).collect();
            assert_eq!(found, rows, "{lines:?}");
        }
    }
}
