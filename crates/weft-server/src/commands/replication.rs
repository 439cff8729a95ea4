//! Commands about replication: what the server is, promotion, and where the primary is, also for clients that ask a sentinel.
//!
//! Each server of a replicated database answers as Redis's Sentinel does, since each knows the primary from
//! the log. So a client that supports Sentinel finds the primary if it is given the servers as its sentinels.

use std::time::{Duration, Instant};

use super::unknown_subcommand;
use crate::blocked::{AwaitedCommit, Pause, Reached, WAIT_MAX};
use crate::call::{integer, is};
use crate::log::{Level, log};
use crate::replication::{PROMOTION_TIME, Replication, Standing};
use crate::reply::Reply;
use crate::request::parse_integer;
use crate::server::Server;
use crate::session::{Replies, Session, in_place};
use crate::stop::{Done, texts};

/// Divides an address into its host and its port.
pub fn divide(address: &str) -> (&str, &str) {
    address.rsplit_once(':').unwrap_or((address, "0"))
}

/// Returns the address of the primary, if it is known. A server that loads does not know it.
fn primary_of(server: &Server) -> Option<String> {
    match &server.replication {
        Some(replication) => replication.status().primary.map(|address| address.to_string()),
        None => {
            let listen = &server.options.listen;
            listen.bind.first().map(|host| format!("{host}:{}", listen.port))
        }
    }
}

/// `ROLE`
pub fn role(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    let Some(replication) = session.server.replication.as_ref() else {
        reply.array(3);
        reply.text("master");
        reply.integer(0);
        reply.array(0);
        return Ok(());
    };
    let status = replication.status();
    let epoch = i64::try_from(status.token.epoch).unwrap_or(i64::MAX);
    if replication.standing() == Standing::Primary {
        reply.array(3);
        reply.text("master");
        reply.integer(epoch);
        // The primary does not know which standbys read the log.
        reply.array(0);
        return Ok(());
    }
    let primary = replication.other_primary();
    let (host, port) = divide(primary.as_deref().unwrap_or_default());
    reply.array(5);
    reply.text("slave");
    reply.text(host);
    reply.integer(port.parse().unwrap_or(0));
    reply.text(match replication.standing() {
        Standing::Loading => "sync",
        _ => "connected",
    });
    reply.integer(epoch);
    Ok(())
}

/// Returns the time that an argument of `WAIT` or `WAITAOF` gives in milliseconds; `None` for no limit.
fn timeout(argument: &[u8]) -> Done<Option<Duration>> {
    let millis = parse_integer(argument).ok_or("ERR timeout is not an integer or out of range")?;
    let millis = u64::try_from(millis).map_err(|_| "ERR timeout is negative")?;
    Ok(Some(Duration::from_millis(millis)).filter(|timeout| !timeout.is_zero()))
}

/// `WAIT`: replies when the client's commits are in the log, with the number of machines that have them at least.
pub fn wait(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    let copies = integer(arguments[1])?;
    let timeout = timeout(arguments[2])?;
    check_primary(session, "WAIT")?;
    reply_when_reached(session, (false, copies), None, timeout, reply);
    Ok(())
}

/// `WAITAOF`: replies when the client's commits are on the disk and in the log.
pub fn waitaof(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    let wants_local = match integer(arguments[1])? {
        0 => false,
        1 => true,
        _ => return Err("ERR value is out of range, value must between 0 and 1".into()),
    };
    let copies = integer(arguments[2])?;
    if copies < 0 {
        return Err(texts::NEGATIVE.into());
    }
    let timeout = timeout(arguments[3])?;
    check_primary(session, "WAITAOF")?;
    let has_directory = session.server.has_directory();
    if wants_local && !has_directory {
        return Err("ERR WAITAOF cannot be used when numlocal is set but the data is in memory: start the server \
                    with --directory"
            .into());
    }
    reply_when_reached(session, (wants_local, copies), Some(has_directory), timeout, reply);
    Ok(())
}

/// Checks that the server is the primary, or not replicated.
fn check_primary(session: &Session, name: &str) -> Done {
    if session.server.replication.is_some() && !session.server.writes() {
        return Err(format!(
            "ERR {name} cannot be used with replica instances. Please also note that writes to replicas are just local \
             and are not propagated."
        )
        .into());
    }
    Ok(())
}

/// Replies at once if the client's commits are where it wants them, or cannot come there. Otherwise the session pauses until
/// they are in the log or the time is over.
fn reply_when_reached(
    session: &mut Session,
    (wants_local, copies_wanted): (bool, i64),
    is_local: Option<bool>,
    timeout: Option<Duration>,
    reply: &mut Reply,
) {
    let server = &session.server;
    let is_replicated = server.replication.is_some();
    let copies = if is_replicated { server.options.replication.copies.into() } else { 0 };
    let reached = Reached { is_local, copies };
    let durable = server.database.durable_epoch();
    let missing = session.newest.filter(|commit| durable < Some(commit.epoch()));
    match missing {
        None => reached.write(reply),
        Some(commit) if wants_local || (is_replicated && copies_wanted > 0) => {
            let deadline = timeout.map(|timeout| Instant::now() + timeout.min(WAIT_MAX));
            let wants_reply = session.replies == Replies::On;
            let awaited = AwaitedCommit { commit, deadline, reached, wants_reply };
            session.pause = Some(Pause::Commit(awaited));
        }
        Some(_) => reached.nowhere().write(reply),
    }
}

/// `READONLY`: from here on the client also reads what a standby has.
pub fn readonly(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    session.at_standby.reads = true;
    reply.ok();
    Ok(())
}

/// `READWRITE`
pub fn readwrite(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    session.at_standby.reads = false;
    reply.ok();
    Ok(())
}

/// `WEFT.PROMOTE`
pub fn promote(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    let (gives_up_missing, rest) = match arguments {
        [_, rest @ .., last] if is(last, "without-missing") => (true, rest),
        [_, rest @ ..] => (false, rest),
        [] => return Err(texts::SYNTAX.into()),
    };
    let limit = match rest {
        [] => PROMOTION_TIME,
        [millis] => {
            let millis = u64::try_from(integer(millis)?).map_err(|_| texts::NEGATIVE)?;
            Duration::from_millis(millis)
        }
        _ => return Err(texts::SYNTAX.into()),
    };
    promote_within(session, limit, gives_up_missing)?;
    reply.ok();
    Ok(())
}

/// `WEFT.BACKUP`
pub fn back_up(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    let replication = replication_of(session)?;
    let backup = in_place(|| replication.back_up()).map_err(|error| format!("ERR {error}"))?;
    log(Level::Info, "a backup is complete", serde_json::json!({ "backup": backup }));
    reply.text(backup);
    Ok(())
}

/// `WEFT.TRUNCATE`
pub fn truncate(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    let replication = replication_of(session)?;
    let first = in_place(|| replication.truncate_log()).map_err(|error| format!("ERR {error}"))?;
    match first {
        Some(first) => {
            log(Level::Info, "the log is shorter", serde_json::json!({ "first": first }));
            reply.integer(i64::try_from(first).unwrap_or(i64::MAX));
        }
        None => reply.null(),
    }
    Ok(())
}

fn replication_of(session: &Session) -> Done<&Replication> {
    let replication = session.server.replication.as_ref();
    replication.ok_or_else(|| "ERR this server is not replicated: start it with --replicate".into())
}

fn promote_within(session: &Session, limit: Duration, gives_up_missing: bool) -> Done {
    let replication = replication_of(session)?;
    log(
        Level::Info,
        "a client promotes the server",
        serde_json::json!({ "id": session.client.id }),
    );
    let promoted = in_place(|| replication.promote(limit, gives_up_missing));
    promoted.map_err(|error| format!("ERR the server is not the primary: {error}").into())
}

/// `REPLICAOF` and `SLAVEOF`: with `NO ONE`, as `WEFT.PROMOTE`.
pub fn replicaof(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    if !(is(arguments[1], "no") && is(arguments[2], "one")) {
        return Err("ERR a server follows the log, and no other server: promote the one that is to be the primary, by \
                    REPLICAOF NO ONE or WEFT.PROMOTE"
            .into());
    }
    if session.server.replication.is_some() {
        promote_within(session, PROMOTION_TIME, false)?;
    }
    reply.ok();
    Ok(())
}

/// `FAILOVER`: at a standby, as `WEFT.PROMOTE`. The primary cannot choose who follows it.
pub fn failover(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    if session.server.writes() {
        return Err("ERR this server is the primary: send FAILOVER or WEFT.PROMOTE to the standby that is to take over".into());
    }
    promote_within(session, PROMOTION_TIME, false)?;
    reply.ok();
    Ok(())
}

/// Writes what a sentinel says of the primary.
fn write_primary(name: &str, address: &str, reply: &mut Reply) {
    let (host, port) = divide(address);
    let rows = [
        ("name", name),
        ("ip", host),
        ("port", port),
        ("runid", ""),
        ("flags", "master"),
        ("num-slaves", "0"),
        ("num-other-sentinels", "0"),
        ("quorum", "1"),
    ];
    reply.map(rows.len());
    for (name, value) in rows {
        reply.text(name);
        reply.text(value);
    }
}

/// `SENTINEL`
pub fn sentinel(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    let primary = primary_of(&session.server);
    let unknown = || "ERR the primary is not known yet";
    match (arguments[1].to_ascii_lowercase().as_slice(), &arguments[2..]) {
        (b"get-master-addr-by-name", [_]) => match primary {
            Some(address) => {
                let (host, port) = divide(&address);
                reply.texts([host, port].into_iter().map(str::as_bytes));
            }
            None => reply.null_array(),
        },
        (b"master", [name]) => {
            let name = String::from_utf8_lossy(name);
            write_primary(&name, &primary.ok_or_else(unknown)?, reply);
        }
        (b"masters", []) => {
            reply.array(usize::from(primary.is_some()));
            if let Some(address) = primary {
                write_primary("mymaster", &address, reply);
            }
        }
        // Standbys publish no address.
        (b"replicas" | b"slaves" | b"sentinels", [_]) => reply.array(0),
        (b"myid", []) => reply.text(format!("{:040x}", std::process::id())),
        _ => return Err(unknown_subcommand(arguments, "SENTINEL").into()),
    }
    Ok(())
}

/// Writes the rows of `INFO replication`.
pub fn info(server: &Server, row: &mut dyn FnMut(&str, &dyn ToString)) {
    let Some(replication) = &server.replication else {
        row("role", &"master");
        row("connected_slaves", &0);
        return;
    };
    let (standing, status) = (replication.standing(), replication.status());
    let (records, time) = replication.lag();
    let is_primary = standing == Standing::Primary;
    row("role", &if is_primary { "master" } else { "slave" });
    if is_primary {
        // The primary does not know which standbys read the log.
        row("connected_slaves", &0);
    } else {
        let primary = replication.other_primary();
        let (host, port) = divide(primary.as_deref().unwrap_or_default());
        row("master_host", &host);
        row("master_port", &port);
        row("master_link_status", &if standing == Standing::Standby { "up" } else { "down" });
        row("master_last_io_seconds_ago", &time.as_secs());
        row("master_sync_in_progress", &u8::from(standing == Standing::Loading));
        row("slave_read_only", &1);
    }
    row("master_repl_offset", &status.token.epoch);
    row("weft_role", &standing.name());
    row("weft_generation", &status.token.generation);
    row("weft_applied_epoch", &status.token.epoch);
    row("weft_next_offset", &status.next_offset);
    row("weft_lag_records", &records);
    row("weft_lag_seconds", &time.as_secs_f64());
    row("weft_primary", &primary_of(server).unwrap_or_default());
    row("weft_copies", &server.options.replication.copies);
    let directory = replication.directory().map(|path| path.display().to_string());
    row("weft_directory", &directory.unwrap_or_default());
    row("weft_log", &replication.log_identity().unwrap_or_default());
    row("weft_missing", &replication.missing().unwrap_or_default());
    let reports = replication.reports();
    row("weft_reports", &reports.len());
    row("weft_last_report", &reports.last().map_or(String::new(), ToString::to_string));
    row("weft_fault", &Replication::fault(replication).unwrap_or_default());
}
