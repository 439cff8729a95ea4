//! Why a command has stopped.

use std::borrow::Cow;

use weft::Failure;

/// Why a command has stopped: an error that the client gets, or one of the database.
///
/// A conflict is not for the client: [`Database::transact`](weft::Database::transact) runs the command again.
#[derive(Debug)]
pub enum Stop {
    /// The text of an error reply, with its code in front.
    Reply(Cow<'static, str>),
    /// The database has refused an operation.
    Database(weft::Error),
}

impl From<weft::Error> for Stop {
    fn from(error: weft::Error) -> Self {
        Stop::Database(error)
    }
}

impl From<&'static str> for Stop {
    fn from(text: &'static str) -> Self {
        Stop::Reply(Cow::Borrowed(text))
    }
}

impl From<String> for Stop {
    fn from(text: String) -> Self {
        Stop::Reply(Cow::Owned(text))
    }
}

/// The result of a command.
pub type Done<T = ()> = Result<T, Stop>;

impl Stop {
    /// Returns the text of the error reply.
    pub fn text(&self) -> Cow<'static, str> {
        match self {
            Stop::Reply(text) => text.clone(),
            Stop::Database(weft::Error::Failure(failure)) => Cow::Owned(text_of(failure)),
            Stop::Database(weft::Error::Conflict(conflict)) => {
                Cow::Owned(format!("ERR {conflict}"))
            }
        }
    }
}

/// Returns the text of the error reply to what the database has refused.
pub fn text_of(failure: &Failure) -> String {
    let code = match failure {
        Failure::MemoryFull { .. } => "OOM command not allowed when used memory > 'maxmemory'.",
        Failure::Storage(_) => "MISCONF the server cannot make changes durable.",
        Failure::InMemory => {
            return "ERR there is nothing to save, since the data is in memory: start the server with --directory"
                .to_owned();
        }
        _ => "ERR",
    };
    format!("{code} {failure}")
}

/// The texts that several commands have, as Redis has them.
pub mod texts {
    /// The key has a value of another type.
    pub const WRONG_TYPE: &str =
        "WRONGTYPE Operation against a key holding the wrong kind of value";
    /// The options of a command contradict each other, or there is no such option.
    pub const SYNTAX: &str = "ERR syntax error";
    /// An argument, or a value, is not an integer.
    pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
    /// An argument, or a value, is not a number.
    pub const NOT_A_FLOAT: &str = "ERR value is not a valid float";
    /// The end of a range of scores is not a number.
    pub const NOT_A_RANGE: &str = "ERR min or max is not a float";
    /// The end of a range of members has no bracket.
    pub const NOT_A_LEX_RANGE: &str = "ERR min or max not valid string range item";
    /// A sum does not fit.
    pub const OVERFLOW: &str = "ERR increment or decrement would overflow";
    /// A key that has to be there is not.
    pub const NO_SUCH_KEY: &str = "ERR no such key";
    /// An argument is below zero.
    pub const NEGATIVE: &str = "ERR value is out of range, must be positive";
    /// A position is outside of the list.
    pub const OUT_OF_RANGE: &str = "ERR index out of range";
    /// A string would be too long.
    pub const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    /// A cursor is not a number.
    pub const NOT_A_CURSOR: &str = "ERR invalid cursor";
    /// A number of keys is not above zero.
    pub const NUMBER_OF_KEYS: &str = "ERR numkeys should be greater than 0";
}
