//! Scripts and functions: Lua 5.1 that calls commands, each call as one transaction.
//!
//! A call runs on the thread of its connection, on a Lua state that the thread keeps. If its transaction meets a conflict,
//! the whole script runs again: nothing of the first attempt is left, neither in the tables nor in Lua, and the time and the
//! random numbers are the same.
//!
//! - `engine`: the Lua states with their compiled scripts, and what runs a call in one of them. `sandbox.lua` builds what
//!   scripts see.
//! - `running`: the call that runs: its transaction, its limits, and why it was stopped.
//! - `host`: the functions of the table `redis`, and `direct`: the fast way of `redis.call`.
//! - `values`: replies as Lua values, and Lua values as replies.
//! - `sources`: the scripts that clients have sent, by their SHA-1.
//! - `libraries`: functions, which lie in a table of the database.
//! - `json` and `json_reader`, `message_pack`, `packing` and `bits`: the libraries `cjson`, `cmsgpack`, `struct` and `bit`.

mod bits;
mod direct;
mod engine;
mod host;
mod json;
mod json_reader;
pub mod libraries;
#[cfg(test)]
mod measurement;
mod message_pack;
mod packing;
mod running;
mod sources;
mod values;

use mlua::Value;
use weft::htm::word::{Ordering, Word};

use crate::call::Call;
use crate::reply::Reply;
use crate::stop::Done;

pub use engine::check;
pub use host::hex;
pub use running::Fixed;
pub use sources::{Digest, Origin, Script, Sources, digest};

/// What all scripts of a server share.
#[derive(Debug)]
pub struct Scripts {
    /// The scripts that clients have sent.
    pub sources: Sources,
    /// How often `SCRIPT KILL` or `FUNCTION KILL` was called.
    kills: Word,
    /// How many calls have run for so long that they can be killed.
    busy: Word,
}

impl Scripts {
    /// Creates the state of a server without scripts, which keeps up to `bytes_max` bytes of them.
    pub fn new(bytes_max: usize) -> Self {
        Scripts { sources: Sources::new(bytes_max), kills: Word::new(0), busy: Word::new(0) }
    }

    /// Stops all calls that have run for some milliseconds.
    ///
    /// # Errors
    /// There is no such call.
    pub fn kill(&self) -> Done {
        if self.busy.load(Ordering::SeqCst) == 0 {
            return Err("NOTBUSY No scripts in execution right now.".into());
        }
        self.kills.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// What a call runs.
#[derive(Clone, Copy, Debug)]
pub enum Program<'p> {
    /// A script.
    Script(&'p Script),
    /// A function of a library.
    Function {
        /// The code of the library.
        library: &'p Script,
        /// The name of the function.
        name: &'p [u8],
    },
}

/// Runs a script or a function within the transaction of a call, and writes its result.
///
/// # Errors
/// A conflict; a limit, which stops the script; what the script raises, if the client has asked for rollback.
pub fn run(
    call: &Call<'_>,
    program: Program<'_>,
    keys: &[&[u8]],
    arguments: &[&[u8]],
    is_read_only: bool,
    reply: &mut Reply,
) -> Done {
    let before = reply.len();
    let outcome = engine::run(call, program, keys, arguments, is_read_only, |value| {
        match values::write(reply, value) {
            Ok(()) => values::error_of(value),
            Err(stop) => Some(stop.text().into_owned()),
        }
    })?;
    let Some(text) = outcome else { return Ok(()) };
    reply.truncate(before);
    if call.caller.rolls_back {
        return Err(text.into());
    }
    // As in Redis, what the script wrote before the error stays.
    reply.error(&text);
    let counters = &call.caller.server.counters;
    counters.errors.fetch_add(1, Ordering::Relaxed);
    counters.note_code(&text);
    Ok(())
}

/// Returns an error as the text that scripts see.
fn text_of(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => text_of(cause),
        mlua::Error::RuntimeError(text) => text.clone(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        mlua::Error::ExternalError(error) => error.to_string(),
        mlua::Error::MemoryError(_) => running::MEMORY.to_owned(),
        other => other.to_string(),
    }
}

/// Returns an error that scripts see with the line that has called the function.
fn raise<T>(lua: &mlua::Lua, text: impl std::fmt::Display) -> mlua::Result<T> {
    let place = place(lua).map_or(String::new(), |(name, line)| format!("{name}:{line}: "));
    Err(mlua::Error::runtime(format!("{place}{text}")))
}

/// Returns where the newest code of a script is: the name of its chunk, and the line.
fn place(lua: &mlua::Lua) -> Option<(String, usize)> {
    (0..64)
        .map_while(|level| {
            lua.inspect_stack(level, |frame| {
                let source = frame.source().source?;
                let name = source.strip_prefix('@')?;
                Some((name.to_owned(), frame.current_line()?))
            })
        })
        .find_map(|found| found.filter(|(name, _)| name != engine::SANDBOX))
}

/// Returns whether a value is a number, and which.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}
