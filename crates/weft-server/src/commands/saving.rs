//! Commands about what is on the disk, and the end of the server.
//!
//! A server with a directory has a log, so nothing needs to be saved by a command. `SAVE` and `BGSAVE` write a checkpoint,
//! which makes the next start faster; the server writes one automatically when the log has grown.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use weft::htm::word::Ordering;
use weft::{CommitToken, Failure};

use crate::call::{integer, is};
use crate::log::{Level, log};
use crate::reply::Reply;
use crate::server::Server;
use crate::session::{Session, in_place};
use crate::stop::{Done, text_of, texts};

/// Writes a checkpoint, and notes when.
fn checkpoint(server: &Server) -> Result<(), Failure> {
    server.database.checkpoint()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    server.last_save.store(now.as_secs(), Ordering::Relaxed);
    Ok(())
}

/// `SAVE`
pub fn save(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    in_place(|| checkpoint(&session.server)).map_err(|failure| text_of(&failure))?;
    reply.ok();
    Ok(())
}

/// `BGSAVE`
pub fn bgsave(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    if !(arguments.len() == 1 || arguments.len() == 2 && is(arguments[1], "schedule")) {
        return Err(texts::SYNTAX.into());
    }
    begin_checkpoint(session)?;
    reply.simple("Background saving started");
    Ok(())
}

/// `BGREWRITEAOF`
pub fn bgrewriteaof(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    begin_checkpoint(session)?;
    reply.simple("Background append only file rewriting started");
    Ok(())
}

fn begin_checkpoint(session: &Session) -> Done {
    if session.server.options.store.directory.is_none() {
        return Err(text_of(&Failure::InMemory).into());
    }
    let server = Arc::clone(&session.server);
    // If the server stops before, the checkpoint is not written, and the log still is there.
    std::thread::Builder::new()
        .name("weft-checkpoint".to_owned())
        .spawn(move || {
            if let Err(failure) = checkpoint(&server) {
                let error = failure.to_string();
                log(Level::Error, "cannot write a checkpoint", json!({ "error": error }));
            }
        })
        .map_err(|error| format!("ERR {error}"))?;
    Ok(())
}

/// `LASTSAVE`
pub fn lastsave(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    let last_save = session.server.last_save.load(Ordering::Relaxed);
    reply.integer(i64::try_from(last_save).unwrap_or(i64::MAX));
    Ok(())
}

/// `WAITAOF`: the reply to it, and all that the connection has sent before it, waits for the disk.
pub fn waitaof(session: &mut Session, arguments: &[&[u8]], reply: &mut Reply) -> Done {
    let (local, replicas) = (integer(arguments[1])?, integer(arguments[2])?);
    let timeout = u64::try_from(integer(arguments[3])?).map_err(|_| "ERR timeout is negative")?;
    if !(0..=1).contains(&local) {
        return Err("ERR value is out of range, must be between 0 and 1".into());
    }
    if replicas != 0 {
        return Err("ERR there are no replicas to wait for".into());
    }
    let server = &session.server;
    if local == 1 && server.options.store.directory.is_none() {
        return Err(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.".into()
        );
    }
    let is_durable = |token: CommitToken| server.database.durable_epoch() >= Some(token.epoch());
    let mut acknowledged = local;
    // With `durable`, the connection waits anyway.
    if local == 1
        && !server.waits
        && session.queue.is_none()
        && let Some(token) = session.newest
        && !is_durable(token)
    {
        let limit = (timeout > 0).then(|| Duration::from_millis(timeout));
        acknowledged = i64::from(in_place(|| wait_durable(server, token, limit))?);
    }
    reply.array(2);
    reply.integer(acknowledged);
    reply.integer(0);
    Ok(())
}

/// Waits on this thread until a commit is durable, but no longer than `limit`. Returns whether it is.
fn wait_durable(server: &Server, token: CommitToken, limit: Option<Duration>) -> Done<bool> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut durable = pin!(server.database.when_durable(token));
    let end = limit.map(|limit| Instant::now() + limit);
    loop {
        if let Poll::Ready(outcome) = durable.as_mut().poll(&mut context) {
            return outcome.map(|()| true).map_err(|failure| text_of(&failure).into());
        }
        match end.map(|end| end.saturating_duration_since(Instant::now())) {
            None => thread::park(),
            Some(Duration::ZERO) => return Ok(false),
            Some(left) => thread::park_timeout(left),
        }
    }
}

/// `SHUTDOWN`: stops the server in order. There is no reply, since the connection ends.
pub fn shutdown(session: &mut Session, arguments: &[&[u8]], _: &mut Reply) -> Done {
    let mut saves = false;
    for option in &arguments[1..] {
        if is(option, "save") {
            saves = true;
        } else if is(option, "abort") {
            return Err("ERR No shutdown in progress.".into());
        } else if !["nosave", "now", "force"].iter().any(|word| is(option, word)) {
            return Err(texts::SYNTAX.into());
        }
    }
    if saves {
        in_place(|| checkpoint(&session.server)).map_err(|failure| text_of(&failure))?;
    }
    log(Level::Info, "a client stops the server", json!({ "id": session.client.id }));
    session.server.stop();
    session.closes = true;
    Ok(())
}
