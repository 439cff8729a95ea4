//! A call of a command: its arguments, and the transaction in which it runs.

use std::cell::OnceCell;
use std::ops::Deref;

use crate::clients::Client;
use crate::effects::Role;
use crate::reply::Reply;
use crate::request::parse_integer;
use crate::scripts::Fixed;
use crate::server::Server;
use crate::stop::{Done, Stop, texts};
use crate::store::{Key, Keys};
use crate::tables::Kind;
use crate::users::User;
use crate::waiting::Line;

/// The client that calls a command, and what holds for all commands that it calls.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'c> {
    /// The server.
    pub server: &'c Server,
    /// The client.
    pub client: &'c Client,
    /// The user that the client is.
    pub user: &'c User,
    /// Whether the client will see the reply.
    pub wants_reply: bool,
    /// Whether the client has asked that an error undoes what came before it.
    pub rolls_back: bool,
}

/// A call of a command on data.
#[derive(Clone, Copy, Debug)]
pub struct Call<'c> {
    /// The client that calls.
    pub caller: Caller<'c>,
    /// The transaction.
    pub keys: Keys<'c>,
    /// The numbered database that the client has selected.
    pub space: u8,
    /// The arguments, with the name of the command in front.
    pub arguments: &'c [&'c [u8]],
    /// What a script finds unchanged if its transaction is run again.
    pub fixed: &'c OnceCell<Fixed>,
}

impl<'c> Deref for Call<'c> {
    type Target = Keys<'c>;

    fn deref(&self) -> &Keys<'c> {
        &self.keys
    }
}

/// A command on data. It writes its reply, and may be called again if its transaction is run again.
pub type DataCommand = fn(&Call<'_>, &mut Reply) -> Done;

impl<'c> Call<'c> {
    /// Returns how many arguments there are, with the name of the command.
    pub fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Returns an argument. The number of arguments is checked before a command is called.
    pub fn argument(&self, position: usize) -> &'c [u8] {
        self.arguments[position]
    }

    /// Returns the arguments from a position on.
    pub fn rest(&self, position: usize) -> &'c [&'c [u8]] {
        &self.arguments[position..]
    }

    /// Returns the key that an argument names.
    pub fn key(&self, position: usize) -> Key<'c> {
        Key::new(self.space, self.argument(position))
    }

    /// Returns the key of the selected database with these bytes.
    pub fn key_of(&self, bytes: &'c [u8]) -> Key<'c> {
        Key::new(self.space, bytes)
    }

    /// Returns an argument as an integer.
    ///
    /// # Errors
    /// It is not one.
    pub fn integer(&self, position: usize) -> Done<i64> {
        integer(self.argument(position))
    }

    /// Returns an argument as a number with a fraction.
    ///
    /// # Errors
    /// It is not one.
    pub fn float(&self, position: usize) -> Done<f64> {
        float(self.argument(position))
    }

    /// Returns whether an argument is this word, in capitals or not.
    pub fn is(&self, position: usize, word: &str) -> bool {
        is(self.argument(position), word)
    }

    /// Returns the keys of a command that says how many they are, and the position of the argument after them.
    ///
    /// # Errors
    /// There are fewer arguments than that.
    pub fn numbered_keys(&self, position: usize) -> Done<(&'c [&'c [u8]], usize)> {
        let count = parse_integer(self.argument(position));
        let Some(count @ 1..) = count else { return Err(self.wrong_number_of_keys(count)) };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let end = (position + 1).saturating_add(count);
        if end > self.len() {
            return match self.is(0, "sintercard") {
                true => Err("ERR Number of keys can't be greater than number of args".into()),
                false => Err(texts::SYNTAX.into()),
            };
        }
        Ok((&self.arguments[position + 1..end], end))
    }

    /// Returns the error of a command that does not say how many keys it has. Commands that combine sorted sets have texts of
    /// their own.
    fn wrong_number_of_keys(&self, count: Option<i64>) -> Stop {
        let name = String::from_utf8_lossy(self.argument(0)).to_lowercase();
        let combines = ["zunion", "zinter", "zdiff"].iter().any(|start| name.starts_with(start));
        match count {
            _ if !combines => texts::NUMBER_OF_KEYS.into(),
            None => texts::NOT_AN_INTEGER.into(),
            Some(_) => format!("ERR at least 1 input key is needed for '{name}' command").into(),
        }
    }

    /// Returns whether the client may take elements of a key. Clients that wait in a line are served first, in their order;
    /// a transaction of several commands, and commands that do not wait, pass them by.
    pub fn has_turn(&self, key: &[u8], line: &Line) -> bool {
        let waiters = &self.caller.server.waiters;
        match &self.effects.role {
            Role::Several => true,
            Role::Alone => !waiters.is_taken(self.space, key, line),
            Role::Waiter(waiter) => waiters.is_first(waiter, key, line),
        }
    }

    /// Returns whether the client waits and the key has a value of another type: it waits on.
    pub fn waits_for_other(&self, key: &Key<'_>, kind: Kind) -> Done<bool> {
        let waits = matches!(self.effects.role, Role::Waiter(_));
        Ok(waits && self.head(key)?.is_some_and(|head| head.kind != kind))
    }

    /// Returns the options of a command, from a position on.
    pub fn options(&self, position: usize) -> Options<'c> {
        Options { arguments: &self.arguments[position.min(self.len())..] }
    }
}

/// Options of a command, which are read one after the other.
#[derive(Debug)]
pub struct Options<'c> {
    arguments: &'c [&'c [u8]],
}

impl<'c> Options<'c> {
    /// Returns whether no options are left.
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
    }

    /// Returns how many arguments are left.
    pub fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Takes the next argument if it is this word.
    pub fn take(&mut self, word: &str) -> bool {
        let is_next = self.arguments.first().is_some_and(|argument| is(argument, word));
        if is_next {
            self.arguments = &self.arguments[1..];
        }
        is_next
    }

    /// Takes the next argument.
    ///
    /// # Errors
    /// No argument is left.
    pub fn next(&mut self) -> Done<&'c [u8]> {
        let (first, rest) = self.arguments.split_first().ok_or(texts::SYNTAX)?;
        self.arguments = rest;
        Ok(first)
    }

    /// Takes the next argument as an integer.
    ///
    /// # Errors
    /// No argument is left, or it is not an integer.
    pub fn integer(&mut self) -> Done<i64> {
        integer(self.next()?)
    }

    /// Takes the option `COUNT` of a command that removes elements, which is 1 if it is not given. Nothing may follow.
    ///
    /// # Errors
    /// It is not a number above 0, or another argument follows.
    pub fn last_count(&mut self) -> Done<usize> {
        let count = if self.take("count") { self.integer()? } else { 1 };
        let count = usize::try_from(count).ok().filter(|count| *count > 0);
        let count = count.ok_or("ERR count should be greater than 0")?;
        if !self.is_empty() {
            return Err(texts::SYNTAX.into());
        }
        Ok(count)
    }

    /// Takes the arguments that are left.
    pub fn rest(&mut self) -> &'c [&'c [u8]] {
        std::mem::take(&mut self.arguments)
    }
}

/// Returns an argument as an integer.
///
/// # Errors
/// It is not one.
pub fn integer(argument: &[u8]) -> Done<i64> {
    parse_integer(argument).ok_or_else(|| texts::NOT_AN_INTEGER.into())
}

/// Returns an argument as a number with a fraction.
///
/// # Errors
/// It is not one, or it is too great or too small for 64 bits.
pub fn float(argument: &[u8]) -> Done<f64> {
    parse_float_in_range(argument).ok_or_else(|| texts::NOT_A_FLOAT.into())
}

/// As [`parse_float`], but `None` if the digits stand for a number that is too great or too small for 64 bits. The word `inf`
/// is a number.
pub fn parse_float_in_range(bytes: &[u8]) -> Option<f64> {
    let number = parse_float(bytes)?;
    let has = |digits: std::ops::RangeInclusive<u8>| {
        let mantissa = bytes.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
        mantissa.into_iter().any(|byte| digits.contains(byte))
    };
    let is_too_great = number.is_infinite() && has(b'0'..=b'9');
    let is_too_small = number == 0.0 && has(b'1'..=b'9');
    (!is_too_great && !is_too_small).then_some(number)
}

/// Returns the number that these bytes are. It is infinite or zero if they are too great or too small for 64 bits.
pub fn parse_float(bytes: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// Returns whether an argument is this word, in capitals or not.
pub fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_do_not_fit_are_not_taken_for_infinity_or_zero() {
        for (text, expected) in [
            ("1.5", Some(1.5)),
            ("-0", Some(0.0)),
            ("0e400", Some(0.0)),
            ("1e308", Some(1e308)),
            ("1e400", None),
            ("-1E400", None),
            ("1e-400", None),
            ("5e-324", Some(5e-324)),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("nan", None),
            ("x", None),
        ] {
            assert_eq!(parse_float_in_range(text.as_bytes()), expected, "{text}");
        }
    }
}
