//! `INFO`: numbers about the server.

use std::fmt::Write;

use weft::htm::word::Ordering;

use super::connection::REDIS_VERSION;
use super::replication;
use crate::call::{Call, is};
use crate::effects::Topic;
use crate::reply::Reply;
use crate::server::Server;
use crate::stop::Done;
use crate::tables::{SPACES, expiring};

const SECTIONS: [&str; 8] =
    ["server", "clients", "memory", "persistence", "stats", "replication", "cluster", "keyspace"];

/// `INFO`
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
        let title = section[..1].to_uppercase() + &section[1..];
        let _ = write!(text, "# {title}\r\n");
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
        "server" => {
            row("redis_version", &REDIS_VERSION);
            row("redis_mode", &"standalone");
            row("weft_version", &env!("CARGO_PKG_VERSION"));
            row("os", &format!("{} {}", std::env::consts::OS, std::env::consts::ARCH));
            row("arch_bits", &usize::BITS);
            row("process_id", &std::process::id());
            row("uptime_in_seconds", &server.started.elapsed().as_secs());
            row("uptime_in_days", &(server.started.elapsed().as_secs() / 86_400));
        }
        "clients" => {
            row("connected_clients", &server.clients.len());
            row("blocked_clients", &server.waiters.len());
            row("weft_clients_bytes", &server.clients_bytes.load(Ordering::Relaxed));
            row("maxclients", &server.clients_max.load(Ordering::Relaxed));
        }
        "memory" => {
            let metrics = server.database.metrics();
            row("used_memory", &metrics.memory.used_bytes);
            row("maxmemory", &server.options.store.memory_limit.unwrap_or(0));
            row("maxmemory_policy", &"noeviction");
        }
        "persistence" => persistence(server, &mut row),
        "replication" => replication::info(server, &mut row),
        "cluster" => row("cluster_enabled", &0),
        "stats" => {
            let counters = &server.counters;
            let metrics = server.database.metrics();
            row("total_connections_received", &counters.accepted.load(Ordering::Relaxed));
            row("rejected_connections", &counters.refused.load(Ordering::Relaxed));
            row("total_commands_processed", &counters.commands.load(Ordering::Relaxed));
            row("total_error_replies", &counters.errors.load(Ordering::Relaxed));
            row("total_net_input_bytes", &counters.input_bytes.load(Ordering::Relaxed));
            row("total_net_output_bytes", &counters.output_bytes.load(Ordering::Relaxed));
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

fn persistence(server: &Server, row: &mut dyn FnMut(&str, &dyn ToString)) {
    let metrics = server.database.metrics();
    row("loading", &0);
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
    use crate::server::{Options, Server};
    use crate::session::Session;

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
