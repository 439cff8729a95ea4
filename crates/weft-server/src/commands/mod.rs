//! The commands. Each is a row of one table, from which everything else follows: how its arguments are counted, where its
//! keys are, what `COMMAND` says about it, and what the page of the guide lists.

pub mod absent;
pub mod access;
mod bits;
mod blocking;
pub mod connection;
mod dump;
mod expiry;
mod function_dump;
mod functions;
mod geo;
mod geohash;
mod hashes;
mod hyperloglog;
mod info;
pub mod introspection;
pub mod keys;
mod lcs;
mod lists;
mod memory;
mod permit;
mod pubsub;
mod replication;
mod saving;
mod scan;
mod scripts;
mod sets;
mod sort;
mod sorted_combinations;
mod sorted_ranges;
mod sorted_sets;
mod stream_groups;
mod stream_info;
mod streams;
mod strings;
mod syntax;
mod table;
mod users;

use std::ops::Range;
use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::call::{Call, DataCommand, is};
use crate::effects::Effects;
use crate::reply::Reply;
use crate::session::Session;
use crate::stop::{Done, texts};
use crate::tables::Kind;
use crate::together::Arrived;

pub use permit::Permit;
pub use streams::id_of;
pub use table::COMMANDS;

/// A command on the session itself. It runs at once, outside of transactions.
pub type SessionCommand = fn(&mut Session, &[&[u8]], &mut Reply) -> Done;

/// A command that has arrived several times in a row, with the same key: it gets all of these requests, and writes a reply for
/// each. It runs in a transaction.
pub type JoinedCommand = fn(&Call<'_>, &[Arrived<'_>], &mut Reply) -> Done;

/// How a command is run.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// In a transaction.
    Data(DataCommand),
    /// At once.
    Session(SessionCommand),
}

/// Where the keys of a command are among its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlaces {
    /// Nowhere.
    None,
    /// From the first position to the last, each so many after the one before. A last position below zero is counted
    /// from the end.
    Range(usize, isize, usize),
    /// After a number that says how many they are, which is at this position.
    Numbered(usize),
    /// The first argument, and after a number at the second position.
    FirstAndNumbered,
    /// The first half of the arguments after the option `STREAMS`.
    Streams,
    /// The first argument, and those after any of these words.
    FirstAndAfter(&'static [&'static str]),
}

/// What `COMMAND` says about commands, and what else the server has to know.
pub mod flags {
    /// Changes data.
    pub const WRITE: u16 = 1;
    /// Reads data.
    pub const READ: u16 = 1 << 1;
    /// Takes about the same time however much data there is.
    pub const FAST: u16 = 1 << 2;
    /// May need more memory.
    pub const GROWS: u16 = 1 << 3;
    /// Is for operators.
    pub const ADMIN: u16 = 1 << 4;
    /// Can be used without the password.
    pub const NO_AUTH: u16 = 1 << 5;
    /// May take so long that other connections must not wait behind it.
    pub const SLOW: u16 = 1 << 6;
    /// Is refused between `MULTI` and `EXEC`.
    pub const NOT_QUEUED: u16 = 1 << 7;
    /// Runs at once although commands are queued.
    pub const ENDS_QUEUE: u16 = 1 << 8;
    /// May wait.
    pub const BLOCKS: u16 = 1 << 10;
    /// Can be used by a client of RESP2 that is subscribed to channels.
    pub const WHILE_SUBSCRIBED: u16 = 1 << 9;
    /// Cannot be called by a script.
    pub const NO_SCRIPT: u16 = 1 << 11;
    /// With no more arguments than it needs, is as short as those that are `FAST`, although Redis does not call it so.
    pub const SHORT: u16 = 1 << 12;
}

/// A command.
#[derive(Debug)]
pub struct Command {
    /// Its name, in small letters.
    pub name: &'static str,
    /// Its arguments: see [`syntax`].
    pub syntax: &'static str,
    /// How many arguments it takes, with its name; if below zero, at least so many.
    pub arity: i64,
    /// See [`flags`].
    pub flags: u16,
    /// Where its keys are.
    pub keys: KeyPlaces,
    /// The group in Redis's documentation.
    pub group: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// How it is run: see [`Permit`].
    run: Run,
    /// How several of them are run as one.
    joined: Option<JoinedCommand>,
}

impl Command {
    /// Creates the command that calls a procedure of the program.
    pub fn of_procedure(
        name: &'static str,
        arity: i64,
        flags: u16,
        summary: &'static str,
        run: DataCommand,
    ) -> Self {
        let (keys, group) = (KeyPlaces::None, "procedures");
        let run = Run::Data(run);
        Command { name, syntax: "", arity, flags, keys, group, summary, run, joined: None }
    }

    /// Returns whether the command takes so many arguments, with its name.
    pub fn takes(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    /// Returns whether the command has this flag.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Returns whether the command looks at few elements with so many arguments, and never waits. Such commands of a pipeline
    /// can share a transaction.
    pub fn is_short(&self, arguments: usize) -> bool {
        let is_data = matches!(self.run, Run::Data(_)) && !Effects::is_alone(self);
        let is_fast = self.flags & (flags::FAST | flags::SHORT) != 0;
        is_data && is_fast && self.arity.unsigned_abs() == arguments as u64
    }

    /// Returns how the command is run if it has arrived several times in a row, with the same key.
    pub fn joined(&self) -> Option<JoinedCommand> {
        self.joined
    }

    /// Returns where the first keys among the arguments are, as far as the table says: the first, or two of a script.
    pub fn first_keys(&self) -> Range<usize> {
        match self.keys {
            KeyPlaces::None | KeyPlaces::Streams => 0..0,
            KeyPlaces::Range(first, ..) => first..first + 1,
            KeyPlaces::Numbered(position) => position + 1..position + 3,
            KeyPlaces::FirstAndNumbered | KeyPlaces::FirstAndAfter(_) => 1..2,
        }
    }

    /// Returns which elements the command names, and the position of the first. It is a guess: options may come before.
    pub fn first_element(&self) -> Option<(Kind, usize)> {
        match self.group {
            "hash" => Some((Kind::Hash, 2)),
            "set" => Some((Kind::Set, 2)),
            "sorted-set" => {
                Some((Kind::SortedSet, if self.flags & flags::GROWS == 0 { 2 } else { 3 }))
            }
            _ => None,
        }
    }

    /// Returns the place of the command in the table. Procedures are not in it.
    pub fn number(&self) -> u64 {
        let first = COMMANDS.as_ptr().addr();
        (std::ptr::from_ref(self).addr().wrapping_sub(first) / size_of::<Command>()) as u64
    }

    /// Returns the keys among the arguments.
    ///
    /// # Errors
    /// The arguments do not say how many keys there are.
    pub fn keys_of<'a>(&self, arguments: &[&'a [u8]]) -> Done<Vec<&'a [u8]>> {
        let numbered = |position: usize| -> Done<Vec<&'a [u8]>> {
            let count =
                arguments.get(position).and_then(|count| crate::request::parse_integer(count));
            let count = count.and_then(|count| usize::try_from(count).ok()).ok_or(INVALID_KEYS)?;
            let end = (position + 1).checked_add(count).filter(|end| *end <= arguments.len());
            Ok(arguments[position + 1..end.ok_or(INVALID_KEYS)?].to_vec())
        };
        match self.keys {
            KeyPlaces::None => Err("ERR The command has no key arguments".into()),
            KeyPlaces::Range(first, last, step) => {
                let end = match last {
                    0.. => last.unsigned_abs() + 1,
                    _ => (arguments.len() + 1).saturating_sub(last.unsigned_abs()),
                };
                let first = first.min(arguments.len());
                let range = first..end.clamp(first, arguments.len());
                Ok(arguments[range].iter().step_by(step).copied().collect())
            }
            KeyPlaces::Numbered(position) => numbered(position),
            KeyPlaces::Streams => {
                let mut rest = &arguments[1..];
                // A group, a consumer, and a key can have the name of the option.
                while let Some(word) = rest.first().filter(|word| !is(word, "streams")) {
                    let values = match word.to_ascii_lowercase().as_slice() {
                        b"block" | b"count" => 1,
                        b"group" => 2,
                        b"noack" => 0,
                        _ => return Err(INVALID_KEYS.into()),
                    };
                    rest = rest.get(1 + values..).ok_or(INVALID_KEYS)?;
                }
                let (_, rest) = rest.split_first().ok_or(INVALID_KEYS)?;
                Ok(rest[..rest.len() / 2].to_vec())
            }
            KeyPlaces::FirstAndAfter(words) => {
                let mut keys = vec![*arguments.get(1).ok_or(INVALID_KEYS)?];
                let after = arguments[2..]
                    .windows(2)
                    .filter(|pair| words.iter().any(|word| is(pair[0], word)));
                keys.extend(after.map(|pair| pair[1]));
                Ok(keys)
            }
            KeyPlaces::FirstAndNumbered => {
                let mut keys = vec![*arguments.get(1).ok_or(INVALID_KEYS)?];
                keys.extend(numbered(2)?);
                Ok(keys)
            }
        }
    }
}

const INVALID_KEYS: &str = "ERR Invalid arguments specified for command";

/// The longest name of a command.
const NAME_BYTES_MAX: usize = 32;

static BY_NAME: LazyLock<FxHashMap<&'static [u8], &'static Command>> =
    LazyLock::new(|| COMMANDS.iter().map(|command| (command.name.as_bytes(), command)).collect());

/// Returns the command with this name, in capitals or not.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}

/// Returns the error for a command that the server does not have.
pub fn unknown(arguments: &[&[u8]]) -> String {
    let name = String::from_utf8_lossy(arguments[0]);
    if let Some(text) = not_supported(&name) {
        return text;
    }
    let shown = |text: &[u8]| String::from_utf8_lossy(&text[..text.len().min(128)]).into_owned();
    let mut text =
        format!("ERR unknown command '{}', with args beginning with: ", shown(arguments[0]));
    for argument in arguments[1..].iter().take(20) {
        if text.len() > 256 {
            break;
        }
        text += &format!("'{}' ", shown(argument));
    }
    text
}

/// Returns the error for a command, or a part of one, that Redis has and the server does not.
fn not_supported(name: &str) -> Option<String> {
    let (absent, reason) = absent::find(name)?;
    let shown = absent.replace('|', " ").to_uppercase();
    Some(format!("ERR {shown} is not supported: {reason}"))
}

/// Returns the error for a part of a command that the server does not have, or that got the wrong number of arguments.
pub fn unknown_subcommand(arguments: &[&[u8]], command: &str) -> String {
    let name = arguments.get(1).map_or(Default::default(), |name| String::from_utf8_lossy(name));
    if let Some(text) = not_supported(&format!("{command}|{name}")) {
        return text;
    }
    format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try {command} HELP.")
}

/// Returns whether the argument at the position is one of two words: `true` for the first.
fn either(arguments: &[&[u8]], position: usize, first: &str, second: &str) -> Done<bool> {
    match arguments.get(position) {
        Some(argument) if is(argument, first) => Ok(true),
        Some(argument) if is(argument, second) => Ok(false),
        _ => Err(texts::SYNTAX.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_short() {
        let mut names = HashSet::new();
        let absent = absent::ABSENT.iter().flat_map(|(names, _)| names.split(' '));
        for name in COMMANDS.iter().map(|command| command.name).chain(absent) {
            assert!(names.insert(name), "{name} is there twice");
            let is_part = name.contains('|');
            let is_short = is_part || name.len() <= NAME_BYTES_MAX;
            assert!(is_short && *name == name.to_lowercase(), "{name}");
        }
    }

    #[test]
    fn commands_are_found_in_any_case() {
        for command in COMMANDS {
            assert_eq!(find(command.name.to_uppercase().as_bytes()).unwrap().name, command.name);
            assert_eq!(COMMANDS[command.number() as usize].name, command.name);
        }
        assert!(find(b"").is_none() && find(&[b'x'; 100]).is_none());
    }

    #[test]
    fn keys_are_found_among_the_arguments() {
        for (line, expected) in [
            ("get a", Some("a")),
            ("mset a 1 b 2", Some("a b")),
            ("del a b c", Some("a b c")),
            ("bitop and a b c", Some("a b c")),
            ("zunionstore a 2 b c weights 1 2", Some("a b c")),
            ("zunion 2 b c", Some("b c")),
            ("sort a by x store b get c", Some("a b")),
            ("georadius a 1 2 3 m STOREDIST b store c", Some("a b c")),
            ("zunion 3 b c", None),
            ("zunion x", None),
            ("ping", None),
            ("object encoding a", Some("a")),
            ("xreadgroup group streams c streams a b > >", Some("a b")),
            ("xreadgroup group g streams streams zecret >", Some("zecret")),
            (
                "xreadgroup noack count streams GROUP streams streams STREAMS streams >",
                Some("streams"),
            ),
            ("xread block streams streams a 0", Some("a")),
            ("xread nosuch streams a 0", None),
            ("xread streams a", Some("")),
            ("xreadgroup group g", None),
            ("xread count 1 streams a b 0 0", Some("a b")),
            ("xread count 1", None),
        ] {
            let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let keys = find(arguments[0]).unwrap().keys_of(&arguments).ok();
            let expected = expected.map(str::as_bytes);
            assert_eq!(keys.map(|keys| keys.join(&b' ')).as_deref(), expected, "{line}");
        }
    }
}
