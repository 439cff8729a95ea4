//! The syntax of commands: how many arguments they take, and what `COMMAND DOCS` says about each.
//!
//! The table of commands has one line for each command, in the notation of Redis's documentation:
//!
//! ```text
//!   key value [NX | XX] [EX seconds | PX milliseconds]     what stands in brackets may be missing; one of several
//!   numkeys key [key ...] (LEFT | RIGHT)                   repeated; one of several
//! ```
//!
//! A word in capitals stands for itself. The alternatives of a whole line are subcommands.

use crate::reply::Reply;

/// Returns how many arguments a command of this syntax takes, with its name; if below zero, at least so many.
pub const fn arity_of(syntax: &str) -> i64 {
    let (least, is_fixed, _) = count(syntax.as_bytes(), 0);
    if is_fixed { least + 1 } else { -least - 1 }
}

/// Counts the words that alternatives have at least, up to their end. Returns also whether they cannot have more, and where they
/// end.
const fn count(syntax: &[u8], start: usize) -> (i64, bool, usize) {
    let (mut at, mut words, mut is_fixed) = (start, 0, true);
    let mut least = i64::MAX;
    while at < syntax.len() && syntax[at] != b']' && syntax[at] != b')' {
        match syntax[at] {
            b' ' => at += 1,
            b'[' => {
                at = count(syntax, at + 1).2 + 1;
                is_fixed = false;
            }
            b'(' => {
                let (inner, inner_is_fixed, end) = count(syntax, at + 1);
                words += inner;
                is_fixed = is_fixed && inner_is_fixed;
                at = end + 1;
            }
            b'|' => {
                // Subcommands, and alternatives of different lengths.
                is_fixed = is_fixed && start > 0 && (least == i64::MAX || least == words);
                least = if words < least { words } else { least };
                words = 0;
                at += 1;
            }
            _ => {
                let mut dots = 0;
                while at < syntax.len() && !matches!(syntax[at], b' ' | b']' | b')') {
                    dots += (syntax[at] == b'.') as usize;
                    at += 1;
                }
                match dots {
                    3 => is_fixed = false,
                    _ => words += 1,
                }
            }
        }
    }
    is_fixed = is_fixed && (least == i64::MAX || least == words);
    (if words < least { words } else { least }, is_fixed, at)
}

/// An argument, or several that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Argument {
    /// The name.
    pub name: String,
    /// The type: `key`, `string`, `integer`, `pure-token`, and so on. `block` is several arguments, and `oneof` one of several.
    pub kind: &'static str,
    /// The word that comes before it, or that it is.
    pub token: Option<String>,
    /// Whether it may be missing.
    pub is_optional: bool,
    /// Whether there may be several of it.
    pub is_multiple: bool,
    /// The arguments of which it is made.
    pub parts: Vec<Argument>,
}

/// Returns the arguments of a command of this syntax.
pub fn arguments_of(syntax: &str) -> Vec<Argument> {
    let mut words = Words(syntax);
    let mut alternatives = alternatives(&mut words);
    match alternatives.len() {
        1 => alternatives.remove(0),
        _ => vec![one_of("subcommand".to_owned(), alternatives)],
    }
}

/// The words and marks of a syntax that were not read yet.
struct Words<'s>(&'s str);

impl<'s> Iterator for Words<'s> {
    type Item = &'s str;

    fn next(&mut self) -> Option<&'s str> {
        let rest = self.0.trim_start();
        let marks = ['[', ']', '(', ')', '|'];
        let end = rest.find(|letter: char| letter == ' ' || marks.contains(&letter));
        let length = match end.unwrap_or(rest.len()) {
            // A mark.
            0 if !rest.is_empty() => 1,
            0 => return None,
            length => length,
        };
        let (word, rest) = rest.split_at(length);
        self.0 = rest;
        Some(word)
    }
}

/// Reads alternatives up to their end, each a list of arguments.
fn alternatives(words: &mut Words<'_>) -> Vec<Vec<Argument>> {
    let mut alternatives = vec![Vec::<Argument>::new()];
    while let Some(word) = words.next() {
        let last = alternatives.len() - 1;
        let list = &mut alternatives[last];
        match word {
            "]" | ")" => break,
            "|" => alternatives.push(Vec::new()),
            "(" => list.push(group(self::alternatives(words))),
            "[" => add_optional(list, group(self::alternatives(words))),
            "..." => {
                // It stands for the whole list.
                let mut whole = joined(std::mem::take(list));
                whole.is_multiple = true;
                list.push(whole);
            }
            word => list.push(named(word)),
        }
    }
    alternatives
}

/// Adds an argument that may be missing. If it repeats the last ones, they become one that there may be several of.
fn add_optional(list: &mut Vec<Argument>, mut argument: Argument) {
    let names: Vec<&str> = match argument.kind {
        "block" if argument.token.is_none() => {
            argument.parts.iter().map(|part| part.name.as_str()).collect()
        }
        _ => vec![argument.name.as_str()],
    };
    let repeated = list.len().checked_sub(names.len()).filter(|start| {
        argument.is_multiple && list[*start..].iter().map(|last| last.name.as_str()).eq(names)
    });
    match repeated {
        Some(start) => list.truncate(start),
        None => argument.is_optional = true,
    }
    list.push(argument);
}

/// Makes one argument of alternatives.
fn group(mut alternatives: Vec<Vec<Argument>>) -> Argument {
    if alternatives.len() == 1 {
        return joined(alternatives.remove(0));
    }
    let parts: Vec<Argument> = alternatives.into_iter().map(joined).collect();
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    let name = names.join("-or-");
    let is_multiple = parts.iter().any(|part| part.is_multiple);
    Argument { name, kind: "oneof", is_multiple, parts, ..Argument::default() }
}

fn one_of(name: String, alternatives: Vec<Vec<Argument>>) -> Argument {
    Argument { name, ..group(alternatives) }
}

/// Makes one argument of a list. A word in capitals at its beginning becomes the token of what follows.
fn joined(mut list: Vec<Argument>) -> Argument {
    if list.len() == 1 {
        return list.remove(0);
    }
    let has_token = list.first().is_some_and(|first| first.kind == "pure-token");
    let token = if has_token { list.remove(0).token } else { None };
    match (&token, list.as_mut_slice()) {
        (Some(_), [only]) if only.token.is_none() && !only.is_optional && only.parts.is_empty() => {
            only.token = token;
            list.remove(0)
        }
        _ => {
            let names: Vec<&str> = list.iter().map(|part| part.name.as_str()).collect();
            let name = token.as_ref().map_or_else(|| names.join("-"), |token| token.to_lowercase());
            Argument { name, kind: "block", token, parts: list, ..Argument::default() }
        }
    }
}

fn named(word: &str) -> Argument {
    let is_token = !word.contains(|letter: char| letter.is_ascii_lowercase());
    let (kind, token) = match is_token {
        true => ("pure-token", Some(word.to_owned())),
        false => (kind_of(word), None),
    };
    Argument { name: word.to_lowercase(), kind, token, ..Argument::default() }
}

const KEYS: &[&str] = &[
    "key",
    "key1",
    "key2",
    "source",
    "destination",
    "destkey",
    "sourcekey",
    "newkey",
    "storekey",
    "storedistkey",
    "dst",
    "src",
];
const INTEGERS: &[&str] = &[
    "bit",
    "bits",
    "client-id",
    "count",
    "cursor",
    "db",
    "decrement",
    "destination-db",
    "end",
    "entries-added",
    "entries-read",
    "frequency",
    "index",
    "len",
    "limit",
    "milliseconds",
    "min-match-len",
    "ms",
    "numkeys",
    "numlocal",
    "numreplicas",
    "offset",
    "port",
    "protover",
    "rank",
    "seconds",
    "start",
    "stop",
    "ttl",
];
const NUMBERS: &[&str] = &["height", "latitude", "longitude", "radius", "score", "weight", "width"];

/// Returns the type of an argument of this name.
fn kind_of(name: &str) -> &'static str {
    match name {
        _ if KEYS.contains(&name) => "key",
        _ if INTEGERS.contains(&name) => "integer",
        _ if NUMBERS.contains(&name) => "double",
        _ if name.ends_with("pattern") => "pattern",
        _ if name.starts_with("unix-time") => "unix-time",
        _ => "string",
    }
}

/// Writes arguments as `COMMAND DOCS` shows them.
pub fn write(reply: &mut Reply, arguments: &[Argument]) {
    reply.array(arguments.len());
    for argument in arguments {
        let flags = [
            ("optional", argument.is_optional),
            ("multiple", argument.is_multiple),
            ("multiple_token", argument.is_multiple && argument.token.is_some()),
        ];
        let flags: Vec<&str> =
            flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| *flag).collect();
        let fields = [argument.token.is_some(), !flags.is_empty(), !argument.parts.is_empty()];
        reply.map(2 + fields.iter().filter(|is_there| **is_there).count());
        for text in ["name", &argument.name, "type", argument.kind] {
            reply.text(text);
        }
        if let Some(token) = &argument.token {
            reply.text("token");
            reply.text(token);
        }
        if !flags.is_empty() {
            reply.text("flags");
            reply.set(flags.len());
            flags.iter().for_each(|flag| reply.simple(flag));
        }
        if !argument.parts.is_empty() {
            reply.text("arguments");
            write(reply, &argument.parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{COMMANDS, KeyPlaces};

    /// Returns arguments in a short notation.
    fn shown(arguments: &[Argument]) -> String {
        let shown = |argument: &Argument| {
            let Argument { name, kind, token, is_optional, is_multiple, parts } = argument;
            let token = token.as_ref().map_or(String::new(), |token| format!("{token}="));
            let parts = match parts.as_slice() {
                [] => String::new(),
                parts => format!("<{}>", self::shown(parts)),
            };
            let marks = [(*is_optional, "?"), (*is_multiple, "*")];
            let marks: String =
                marks.iter().filter(|(is_set, _)| *is_set).map(|(_, mark)| *mark).collect();
            format!("{token}{name}:{kind}{parts}{marks}")
        };
        arguments.iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_syntax_says_how_many_arguments_there_are_and_what_they_are() {
        for (syntax, arity, expected) in [
            ("", 1, ""),
            ("key", 2, "key:key"),
            ("key [key ...]", -2, "key:key*"),
            ("[pattern ...]", -1, "pattern:pattern?*"),
            (
                "key field value [field value ...]",
                -4,
                "key:key field-value:block<field:string value:string>*",
            ),
            ("key [NX | XX]", -2, "key:key nx-or-xx:oneof<NX=nx:pure-token XX=xx:pure-token>?"),
            (
                "key (LEFT | RIGHT)",
                3,
                "key:key left-or-right:oneof<LEFT=left:pure-token RIGHT=right:pure-token>",
            ),
            (
                "key [COUNT count [ANY]]",
                -2,
                "key:key COUNT=count:block<count:integer ANY=any:pure-token?>?",
            ),
            ("key [GET get-pattern ...]", -2, "key:key GET=get-pattern:pattern?*"),
            ("(A one | B) key", -3, "one-or-b:oneof<A=one:string B=b:pure-token> key:key"),
            (
                "(FROM a b | AT c d)",
                4,
                "from-or-at:oneof<FROM=from:block<a:string b:string> AT=at:block<c:string d:string>>",
            ),
            ("GET key | LEN", -2, "subcommand:oneof<GET=key:key LEN=len:pure-token>"),
        ] {
            assert_eq!(arity_of(syntax), arity, "{syntax}");
            assert_eq!(shown(&arguments_of(syntax)), expected, "{syntax}");
        }
    }

    #[test]
    fn keys_are_where_the_syntax_has_them() {
        for command in COMMANDS {
            let arguments = arguments_of(command.syntax);
            let (name, first) = (command.name, arguments.first());
            let is_key =
                |place: usize| arguments.get(place).is_some_and(|argument| argument.kind == "key");
            match command.keys {
                KeyPlaces::None => {
                    assert!(arguments.iter().all(|argument| argument.kind != "key"), "{name}")
                }
                KeyPlaces::Range(2, ..) if first.is_some_and(|first| first.kind == "oneof") => {}
                KeyPlaces::Range(1, -1, 2) => {
                    assert_eq!(first.unwrap().parts[0].kind, "key", "{name}")
                }
                KeyPlaces::Range(1, last, _) => {
                    assert!(is_key(0) && (last < 2 || is_key(1)), "{name}");
                }
                KeyPlaces::Numbered(place) => {
                    assert_eq!(arguments[place - 1].name, "numkeys", "{name}");
                    assert!(is_key(place), "{name}");
                }
                KeyPlaces::FirstAndNumbered => assert!(is_key(0) && is_key(2), "{name}"),
                KeyPlaces::FirstAndAfter(_) => assert!(is_key(0), "{name}"),
                KeyPlaces::Streams => {
                    assert!(arguments.iter().any(|argument| argument.kind == "key"), "{name}")
                }
                places @ KeyPlaces::Range(..) => panic!("{name}: {places:?}"),
            }
        }
    }
}
