//! Commands about what is on the disk, and the end of the server.
//!
//! A server with a directory has a log, so nothing needs to be saved by a command. `SAVE` and `BGSAVE` write a checkpoint,
//! which makes the next start faster; the server writes one automatically when the log has grown. The checkpoint of a
//! replicated server is a base of its node.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use weft::Failure;
use weft::htm::word::Ordering;

use crate::call::is;
use crate::log::{Level, log};
use crate::reply::Reply;
use crate::server::Server;
use crate::session::{Session, in_place};
use crate::stop::{Done, text_of, texts};

/// Writes a checkpoint, and notes when.
///
/// # Errors
/// The error reply.
fn checkpoint(server: &Server) -> Result<(), String> {
    match &server.replication {
        Some(_) if !server.has_directory() => return Err(text_of(&Failure::InMemory)),
        Some(replication) => replication.checkpoint().map_err(|error| format!("ERR {error}"))?,
        None => {
            server.database.checkpoint().map_err(|failure| text_of(&failure))?;
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    server.last_save.store(now.as_secs(), Ordering::Relaxed);
    Ok(())
}

/// `SAVE`
pub fn save(session: &mut Session, _: &[&[u8]], reply: &mut Reply) -> Done {
    in_place(|| checkpoint(&session.server))?;
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
    if !session.server.has_directory() {
        return Err(text_of(&Failure::InMemory).into());
    }
    let server = Arc::clone(&session.server);
    // If the server stops before, the checkpoint is not written, and the log still is there.
    std::thread::Builder::new()
        .name("weft-checkpoint".to_owned())
        .spawn(move || {
            if let Err(error) = checkpoint(&server) {
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
        in_place(|| checkpoint(&session.server))?;
    }
    log(Level::Info, "a client stops the server", json!({ "id": session.client.id }));
    session.server.stop();
    session.closes = true;
    Ok(())
}
