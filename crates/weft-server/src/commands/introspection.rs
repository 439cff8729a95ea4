//! Commands that show and change the server itself: its commands, settings, clients and slow log.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weft::htm::word::Ordering;

use super::access::CATEGORIES;
use super::connection::client_name;
use super::flags::{ADMIN, BLOCKS, FAST, GROWS, NO_AUTH, NO_SCRIPT, NOT_QUEUED, READ, WRITE};
use super::syntax::{self, Argument};
use super::{COMMANDS, Command, KeyPlaces, either, find, unknown_subcommand};
use crate::blocked::Pause;
use crate::call::{integer, is};
use crate::clients::Client;
use crate::glob;
use crate::latency::{COMMAND, Latency};
use crate::procedures::Parameter;
use crate::reply::Reply;
use crate::request::parse_integer;
use crate::session::{Replies, Session};
use crate::stop::{Done, texts};
use crate::waiting::Unblocked;

/// Writes one command as `COMMAND INFO` shows it.
fn write_command(reply: &mut Reply, command: &Command) {
    let names = [
        (WRITE, "write"),
        (READ, "readonly"),
        (GROWS, "denyoom"),
        (ADMIN, "admin"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (NOT_QUEUED, "no_multi"),
        (BLOCKS, "blocking"),
        (NO_SCRIPT, "noscript"),
    ];
    let mut flags: Vec<&str> =
        names.iter().filter(|(flag, _)| command.has(*flag)).map(|(_, name)| *name).collect();
    let (first, last, step) = match command.keys {
        KeyPlaces::None => (0, 0, 0),
        KeyPlaces::Range(first, last, step) => (first, last as i64, step),
        KeyPlaces::Numbered(_) | KeyPlaces::Streams => {
            flags.push("movablekeys");
            (0, 0, 0)
        }
        KeyPlaces::FirstAndNumbered | KeyPlaces::FirstAndAfter(_) => {
            flags.push("movablekeys");
            (1, 1, 1)
        }
    };
    reply.array(10);
    reply.text(command.name);
    reply.integer(command.arity);
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    reply.count(first);
    reply.integer(last);
    reply.count(step);
    let categories: Vec<_> = CATEGORIES.iter().filter(|name| command.is_in(name)).collect();
    reply.set(categories.len());
    categories.iter().for_each(|name| reply.simple(&format!("@{name}")));
    // Tips, specifications of keys, and subcommands.
    reply.array(0);
    reply.array(0);
    reply.array(0);
}

/// `COMMAND`
pub fn command(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    let procedures = &session.server.procedures;
    let all = || -> Vec<&Command> { COMMANDS.iter().chain(procedures.commands()).collect() };
    let find = |name: &[u8]| find(name).or_else(|| procedures.command(name));
    let Some(name) = arguments.get(1) else {
        let all = all();
        reply.array(all.len());
        all.iter().for_each(|command| write_command(reply, command));
        return Ok(());
    };
    let rest = &arguments[2..];
    match name.to_ascii_lowercase().as_slice() {
        b"count" if rest.is_empty() => reply.count(all().len()),
        b"info" => {
            let found: Vec<_> = match rest {
                [] => all().into_iter().map(Some).collect(),
                names => names.iter().map(|name| find(name)).collect(),
            };
            reply.array(found.len());
            for command in found {
                match command {
                    Some(command) => write_command(reply, command),
                    None => reply.null_array(),
                }
            }
        }
        b"docs" => {
            let found: Vec<_> = match rest {
                [] => all(),
                names => names.iter().filter_map(|name| find(name)).collect(),
            };
            reply.map(found.len());
            for command in found {
                reply.text(command.name);
                let arguments = match procedures.get(command.name.as_bytes()) {
                    Some(procedure) => parameters_of(&procedure.parameters),
                    None => syntax::arguments_of(command.syntax),
                };
                reply.map(2 + usize::from(!arguments.is_empty()));
                for (name, value) in [("summary", command.summary), ("group", command.group)] {
                    reply.text(name);
                    reply.text(value);
                }
                if !arguments.is_empty() {
                    reply.text("arguments");
                    syntax::write(reply, &arguments);
                }
            }
        }
        b"list" => {
            let mut found = all();
            retain_named(&mut found, rest)?;
            reply.texts(found.iter().map(|command| command.name));
        }
        b"getkeys" if rest.len() < 2 => {
            return Err("ERR wrong number of arguments for 'command|getkeys' command".into());
        }
        b"getkeys" => {
            let command = find(rest[0]).ok_or("ERR Invalid command specified")?;
            if !command.takes(rest.len()) {
                return Err("ERR Invalid number of arguments specified for command".into());
            }
            reply.texts(command.keys_of(rest)?.iter());
        }
        b"help" => help(
            reply,
            &[
                "COMMAND [COUNT|INFO|DOCS|GETKEYS] ...",
                "COMMAND LIST [FILTERBY ACLCAT <category> | FILTERBY PATTERN <pattern> | FILTERBY MODULE <name>]",
            ],
        ),
        _ => return Err(unknown_subcommand(arguments, "COMMAND").into()),
    }
    Ok(())
}

/// Keeps the commands that the filter of `COMMAND LIST` names.
fn retain_named(commands: &mut Vec<&Command>, filter: &[&[u8]]) -> Done {
    let (kind, value) = match filter {
        [] => return Ok(()),
        [word, kind, value] if is(word, "filterby") => (kind, value),
        _ => return Err(texts::SYNTAX.into()),
    };
    match kind.to_ascii_lowercase().as_slice() {
        b"aclcat" => match CATEGORIES.iter().find(|category| is(value, category)) {
            Some(category) => commands.retain(|command| command.is_in(category)),
            None => commands.clear(),
        },
        b"pattern" => {
            let pattern = value.to_ascii_lowercase();
            commands.retain(|command| glob::matches(&pattern, command.name.as_bytes()));
        }
        // No command is one of a module.
        b"module" => commands.clear(),
        _ => return Err(texts::SYNTAX.into()),
    }
    Ok(())
}

/// `MONITOR`
pub fn monitor(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    session.monitor(reply.version());
    reply.ok();
    Ok(())
}

/// Returns the parameters of a procedure as arguments.
fn parameters_of(parameters: &[Parameter]) -> Vec<Argument> {
    let argument = |parameter: &Parameter| Argument {
        name: parameter.name.to_owned(),
        kind: parameter.kind,
        is_optional: parameter.is_optional,
        ..Argument::default()
    };
    parameters.iter().map(argument).collect()
}

/// Writes the lines of a command's help.
pub fn help(reply: &mut Reply, lines: &[&str]) {
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.simple(line));
}

/// `CONFIG`
pub fn config(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    let server = &session.server;
    match (arguments[1].to_ascii_lowercase().as_slice(), &arguments[2..]) {
        (b"get", patterns) if !patterns.is_empty() => {
            let settings = server.settings(patterns);
            reply.map(settings.len());
            for (name, value) in settings {
                reply.text(name);
                reply.text(value);
            }
        }
        (b"set", pairs) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let pairs = pairs.chunks_exact(2);
            let pairs: Vec<_> =
                pairs.map(|pair| (text(pair[0]).to_lowercase(), text(pair[1]))).collect();
            server.set(&pairs)?;
            reply.ok();
        }
        (b"rewrite", []) => {
            server.rewrite_settings().map_err(|error| format!("ERR {error}"))?;
            reply.ok();
        }
        (b"resetstat", []) => {
            server.counters.reset();
            reply.ok();
        }
        (b"help", []) => help(
            reply,
            &[
                "CONFIG GET <pattern> ...",
                "CONFIG SET <name> <value> ...",
                "CONFIG REWRITE | RESETSTAT",
            ],
        ),
        _ => return Err(unknown_subcommand(arguments, "CONFIG").into()),
    }
    Ok(())
}

/// `SLOWLOG`
pub fn slowlog(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    let log = &session.server.slow_log;
    match (arguments[1].to_ascii_lowercase().as_slice(), &arguments[2..]) {
        (b"get", count @ ([] | [_])) => {
            let count = match count {
                [] => 10,
                _ => match integer(count[0])? {
                    -1 => i64::MAX,
                    count => count,
                },
            };
            let count = usize::try_from(count)
                .map_err(|_| "ERR count should be greater than or equal to -1")?;
            let found = log.newest(count);
            reply.array(found.len());
            for slow in found {
                reply.array(6);
                for number in [slow.id, slow.at, slow.micros] {
                    reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
                }
                reply.texts(slow.arguments.iter());
                reply.text(slow.address);
                reply.text(slow.name);
            }
        }
        (b"len", []) => reply.count(log.len()),
        (b"reset", []) => {
            log.clear();
            reply.ok();
        }
        (b"help", []) => help(reply, &["SLOWLOG GET [<count>]", "SLOWLOG LEN", "SLOWLOG RESET"]),
        _ => return Err(unknown_subcommand(arguments, "SLOWLOG").into()),
    }
    Ok(())
}

/// `TIME`
pub fn time(_: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    write_time(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), reply);
    Ok(())
}

/// Writes a time since 1970 as the reply of `TIME`.
pub fn write_time(time: Duration, reply: &mut Reply) {
    reply.array(2);
    reply.text(time.as_secs().to_string());
    reply.text(time.subsec_micros().to_string());
}

/// `LATENCY`
pub fn latency(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    let latency = &session.server.latency;
    let integer = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    match (arguments[1].to_ascii_lowercase().as_slice(), &arguments[2..]) {
        (b"latest", []) => {
            let latest = latency.latest();
            reply.array(usize::from(latest.is_some()));
            if let Some((last, millis_max)) = latest {
                reply.array(4);
                reply.text(COMMAND);
                let numbers = [last.at, last.millis, millis_max];
                numbers.iter().for_each(|number| reply.integer(integer(*number)));
            }
        }
        (b"history", [event]) => {
            let history = if is(event, COMMAND) { latency.history() } else { Vec::new() };
            reply.array(history.len());
            for second in history {
                reply.array(2);
                let numbers = [second.at, second.millis];
                numbers.iter().for_each(|number| reply.integer(integer(*number)));
            }
        }
        (b"reset", events) => {
            let is_meant = events.is_empty() || events.iter().any(|event| is(event, COMMAND));
            reply.flag(is_meant && latency.clear());
        }
        (b"doctor", []) => reply.verbatim(&advice(latency)),
        (b"help", []) => {
            help(reply, &["LATENCY LATEST | HISTORY command | RESET [command] | DOCTOR"])
        }
        _ => return Err(unknown_subcommand(arguments, "LATENCY").into()),
    }
    Ok(())
}

/// Says what is known about commands that took long, and what to do next.
fn advice(latency: &Latency) -> String {
    let threshold = latency.threshold_millis.load(Ordering::Relaxed);
    match latency.latest() {
        _ if threshold == 0 => {
            "No command is measured. CONFIG SET latency-monitor-threshold 100 notes those that take 100 milliseconds or more.\n".to_owned()
        }
        None => format!("No command has taken {threshold} milliseconds or more.\n"),
        Some((last, millis_max)) => format!(
            "Commands took up to {millis_max} milliseconds, the last one {} milliseconds. SLOWLOG GET shows which ones, and \
             /metrics how long the log's syncs took.\n",
            last.millis
        ),
    }
}

/// `DEBUG`: only this client waits.
pub fn debug(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    match arguments {
        [_, word, seconds] if is(word, "sleep") => {
            let seconds = crate::call::float(seconds)?;
            let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            session.pause = Some(Pause::Sleep(time.min(SLEEP_MAX)));
            reply.ok();
            Ok(())
        }
        [_, word] if is(word, "help") => {
            help(reply, &["DEBUG SLEEP <seconds>", "    Only this client waits."]);
            Ok(())
        }
        _ => Err(unknown_subcommand(arguments, "DEBUG").into()),
    }
}

/// The longest time of `DEBUG SLEEP`.
const SLEEP_MAX: Duration = Duration::from_secs(60 * 60);

/// `CLIENT`
pub fn client(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    match (arguments[1].to_ascii_lowercase().as_slice(), &arguments[2..]) {
        (b"id", []) => reply.integer(i64::try_from(session.client.id).unwrap_or(i64::MAX)),
        (b"info", []) => reply.verbatim(&format!("{}\n", session.client.line())),
        (b"list", rest) => list(session, rest, reply)?,
        (b"getname", []) => {
            let name = session.client.texts().name.clone();
            reply.optional(Some(name).filter(|name| !name.is_empty()));
        }
        (b"setname", [name]) => {
            session.client.set_name(client_name(name)?);
            reply.ok();
        }
        (b"setinfo", [what, value]) => {
            let value = client_name(value)
                .map_err(|_| "ERR CLIENT SETINFO values cannot contain spaces, newlines or special characters.")?;
            let mut texts = session.client.texts();
            if is(what, "lib-name") {
                texts.library = value;
            } else if is(what, "lib-ver") {
                texts.library_version = value;
            } else {
                let what = String::from_utf8_lossy(what);
                return Err(format!("ERR Unrecognized option '{what}'").into());
            }
            reply.ok();
        }
        (b"capa", names) if !names.is_empty() => {
            // Capabilities that the server does not know are of no use to it.
            session.at_standby.is_redirected |= names.iter().any(|name| is(name, "redirect"));
            reply.ok();
        }
        (b"no-evict" | b"no-touch", [_]) => {
            // The server evicts no keys, and does not keep when they were used.
            either(arguments, 2, "on", "off")?;
            reply.ok();
        }
        (b"reply", [mode]) => {
            session.replies = match mode.to_ascii_lowercase().as_slice() {
                b"on" => Replies::On,
                b"off" => Replies::Off,
                b"skip" if session.replies != Replies::Off => Replies::SkipNext,
                b"skip" => Replies::Off,
                _ => return Err(texts::SYNTAX.into()),
            };
            reply.ok();
        }
        (b"kill", rest) => kill(session, rest, reply)?,
        // No client is told of changes of what it has read: `CLIENT TRACKING` is absent.
        (b"getredir", []) => reply.integer(-1),
        (b"trackinginfo", []) => {
            reply.map(3);
            reply.text("flags");
            reply.set(1);
            reply.text("off");
            reply.text("redirect");
            reply.integer(-1);
            reply.text("prefixes");
            reply.array(0);
        }
        (b"unblock", [id, rest @ ..]) if rest.len() < 2 => {
            let id = integer(id)?;
            let how = match rest.first() {
                None => Unblocked::Timeout,
                Some(how) if is(how, "timeout") => Unblocked::Timeout,
                Some(how) if is(how, "error") => Unblocked::Error,
                Some(_) => {
                    return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into());
                }
            };
            let clients = session.server.clients.all();
            let found = clients.iter().find(|client| u64::try_from(id) == Ok(client.id));
            reply.flag(found.is_some_and(|client| client.unblock(how)));
        }
        (b"weft.rollback", [_]) => {
            session.rolls_back = either(arguments, 2, "on", "off")?;
            reply.ok();
        }
        (b"help", []) => help(
            reply,
            &[
                "CLIENT ID | INFO | LIST [ID <id> ...] | GETNAME | SETNAME <name>",
                "CLIENT GETREDIR | TRACKINGINFO",
                "    Tracking is always off.",
                "CLIENT SETINFO LIB-NAME|LIB-VER <value>",
                "CLIENT NO-EVICT ON|OFF | NO-TOUCH ON|OFF | REPLY ON|OFF|SKIP",
                "CLIENT UNBLOCK <id> [TIMEOUT|ERROR]",
                "CLIENT KILL <address> | KILL <filter> <value> [<filter> <value> ...]",
                "    Filters: ID, ADDR, LADDR, USER, TYPE normal|pubsub, and SKIPME yes|no for this client.",
                "CLIENT WEFT.ROLLBACK ON|OFF",
                "    Whether an error between MULTI and EXEC, or of a script, undoes the other commands.",
            ],
        ),
        _ => return Err(unknown_subcommand(arguments, "CLIENT").into()),
    }
    Ok(())
}

fn list(session: &Session, rest: &[&[u8]], reply: &mut Reply) -> Done {
    let mut clients = session.server.clients.all();
    match rest {
        [] => {}
        [word, kind] if is(word, "type") => retain_type(session, &mut clients, kind)?,
        [word, ids @ ..] if is(word, "id") && !ids.is_empty() => {
            let ids: Vec<i64> = ids.iter().map(|id| integer(id)).collect::<Result<_, _>>()?;
            clients.retain(|client| ids.iter().any(|id| u64::try_from(*id) == Ok(client.id)));
        }
        _ => return Err(texts::SYNTAX.into()),
    }
    let lines: String = clients.iter().map(|client| client.line() + "\n").collect();
    reply.verbatim(&lines);
    Ok(())
}

/// Keeps the clients of a type. The server has no clients that are its primary or its replicas.
fn retain_type(session: &Session, clients: &mut Vec<Arc<Client>>, kind: &[u8]) -> Done {
    let subscribers = session.server.publish.clients();
    match kind.to_ascii_lowercase().as_slice() {
        b"normal" => clients.retain(|client| !subscribers.contains(&client.id)),
        b"pubsub" => clients.retain(|client| subscribers.contains(&client.id)),
        b"master" | b"replica" | b"slave" => clients.clear(),
        _ => {
            let kind = String::from_utf8_lossy(kind);
            return Err(format!("ERR Unknown client type '{kind}'").into());
        }
    }
    Ok(())
}

fn kill(session: &Session, rest: &[&[u8]], reply: &mut Reply) -> Done {
    let mut clients = session.server.clients.all();
    if let [address] = rest {
        clients.retain(|client| client.addresses.0.as_bytes() == *address);
        if clients.is_empty() {
            return Err("ERR No such client".into());
        }
        clients.iter().for_each(|client| client.stop());
        reply.ok();
        return Ok(());
    }
    if rest.is_empty() || !rest.len().is_multiple_of(2) {
        return Err(texts::SYNTAX.into());
    }
    let mut skips_caller = true;
    for filter in rest.chunks_exact(2) {
        let value = filter[1];
        match filter[0].to_ascii_lowercase().as_slice() {
            b"id" => {
                let id = parse_integer(value).filter(|id| *id > 0);
                let id = id.ok_or("ERR client-id should be greater than 0")?;
                clients.retain(|client| u64::try_from(id) == Ok(client.id));
            }
            b"addr" => clients.retain(|client| client.addresses.0.as_bytes() == value),
            b"laddr" => clients.retain(|client| client.addresses.1.as_bytes() == value),
            b"user" => {
                let name = String::from_utf8_lossy(value);
                let user = session.server.users.find(&name);
                let user = user.ok_or_else(|| format!("ERR No such user '{name}'"))?;
                clients.retain(|client| client.texts().user == user.name);
            }
            b"type" => retain_type(session, &mut clients, value)?,
            b"skipme" => skips_caller = either(filter, 1, "yes", "no")?,
            _ => return Err(texts::SYNTAX.into()),
        }
    }
    clients.retain(|client| !skips_caller || client.id != session.client.id);
    clients.iter().for_each(|client| client.stop());
    reply.count(clients.len());
    Ok(())
}
