//! Commands on the connection, and on the transaction that it prepares.

use weft::htm::word::Ordering;

use super::keys::space_of;
use crate::call::is;
use crate::reply::{Reply, Version};
use crate::session::{Queue, Session};
use crate::stop::{Done, texts};
use crate::users::DEFAULT;

/// `PING`
pub fn ping(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    match arguments {
        [_, rest @ ..] if session.gets_only_messages(reply) && rest.len() < 2 => {
            reply.texts([&b"pong"[..], rest.first().copied().unwrap_or(b"")].into_iter());
        }
        [_] => reply.simple("PONG"),
        [_, text] => reply.text(text),
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(())
}

/// `ECHO`
pub fn echo(_: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    reply.text(arguments[1]);
    Ok(())
}

/// `SELECT`
pub fn select(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    session.space = space_of(arguments[1])?;
    session.client.space.store(u64::from(session.space), Ordering::Relaxed);
    reply.ok();
    Ok(())
}

/// `QUIT`
pub fn quit(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    session.closes = true;
    reply.ok();
    Ok(())
}

/// `RESET`
pub fn reset(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    session.reset(reply);
    reply.simple("RESET");
    Ok(())
}

/// `AUTH`
pub fn auth(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    match arguments {
        [_, _] if session.server.users.default_user().needs_no_password => {
            return Err("ERR AUTH <password> called without any password configured for the default user. Are you sure \
                        your configuration is correct?"
                .into());
        }
        [_, password] => session.authenticate(DEFAULT.as_bytes(), password)?,
        [_, user, password] => session.authenticate(user, password)?,
        _ => return Err(texts::SYNTAX.into()),
    }
    reply.ok();
    Ok(())
}

/// Returns an argument as the name of a client.
pub fn client_name(argument: &[u8]) -> Done<String> {
    if argument.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        Ok(String::from_utf8_lossy(argument).into_owned())
    } else {
        Err("ERR Client names cannot contain spaces, newlines or special characters.".into())
    }
}

/// `HELLO`
pub fn hello(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    let version = match arguments.get(1).copied() {
        None => reply.version(),
        Some(b"2") => Version::Two,
        Some(b"3") => Version::Three,
        Some(_) => return Err("NOPROTO unsupported protocol version".into()),
    };
    let mut rest = arguments.get(2..).unwrap_or(&[]);
    let mut name = None;
    loop {
        rest = match rest {
            [] => break,
            [word, user, password, rest @ ..] if is(word, "auth") => {
                session.authenticate(user, password)?;
                rest
            }
            [word, text, rest @ ..] if is(word, "setname") => {
                name = Some(client_name(text)?);
                rest
            }
            [word, ..] => {
                let word = String::from_utf8_lossy(word);
                return Err(format!("ERR Syntax error in HELLO option '{word}'").into());
            }
        };
    }
    if !session.is_known {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                    AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                    version at the same time"
            .into());
    }
    if let Some(name) = name {
        session.client.set_name(name);
    }
    reply.set_version(version);
    if let Some(subscriptions) = &session.subscriptions {
        subscriptions.mailbox.set_version(version);
    }
    reply.map(7);
    for (name, value) in [
        ("server", "redis"),
        ("version", REDIS_VERSION),
        ("mode", "standalone"),
        ("role", if session.server.writes() { "master" } else { "replica" }),
    ] {
        reply.text(name);
        reply.text(value);
    }
    reply.text("proto");
    reply.integer(version.number());
    reply.text("id");
    reply.integer(i64::try_from(session.client.id).unwrap_or(i64::MAX));
    reply.text("modules");
    reply.array(0);
    Ok(())
}

/// The version of Redis whose commands the server has. Clients look at it.
pub const REDIS_VERSION: &str = "7.0.0";

/// `MULTI`
pub fn multi(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    if session.queue.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    session.queue = Some(Queue::default());
    reply.ok();
    Ok(())
}

/// `EXEC`
pub fn exec(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    session.execute(arguments, reply)
}

/// `DISCARD`
pub fn discard(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    session.discard()?;
    reply.ok();
    Ok(())
}

/// `WATCH`
pub fn watch(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    session.watch(&arguments[1..], reply)
}

/// `UNWATCH`
pub fn unwatch(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    session.unwatch();
    reply.ok();
    Ok(())
}
