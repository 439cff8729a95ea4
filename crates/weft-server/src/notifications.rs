//! Keyspace notifications: messages that say which command has changed a key.
//!
//! The setting `notify-keyspace-events` chooses the classes of events, and whether they are published under the key
//! (`__keyspace@0__:key`) or under the event (`__keyevent@0__:set`). Events are effects of transactions: they are published
//! after the commit, and those of one key in the order of the commits.

use crate::commands::Command;

/// The classes of events, and their letters in the setting.
const LETTERS: [(u64, char); 13] = [
    (GENERIC, 'g'),
    (STRING, '$'),
    (LIST, 'l'),
    (SET, 's'),
    (HASH, 'h'),
    (SORTED_SET, 'z'),
    (EXPIRED, 'x'),
    (EVICTED, 'e'),
    (STREAM, 't'),
    (MODULE, 'd'),
    (NEW, 'n'),
    (KEYSPACE, 'K'),
    (KEYEVENT, 'E'),
];

/// Events of any type of key, such as `del`.
pub const GENERIC: u64 = 1;
/// Events of strings.
pub const STRING: u64 = 1 << 1;
/// Events of lists.
pub const LIST: u64 = 1 << 2;
/// Events of sets.
pub const SET: u64 = 1 << 3;
/// Events of hashes.
pub const HASH: u64 = 1 << 4;
/// Events of sorted sets.
pub const SORTED_SET: u64 = 1 << 5;
/// A key has expired.
pub const EXPIRED: u64 = 1 << 6;
/// A key was evicted, which does not happen.
const EVICTED: u64 = 1 << 7;
/// Events of streams.
pub const STREAM: u64 = 1 << 8;
/// Events of modules, which the server does not have.
const MODULE: u64 = 1 << 9;
/// A key was created.
pub const NEW: u64 = 1 << 10;
/// Publish under the key.
pub const KEYSPACE: u64 = 1 << 11;
/// Publish under the event.
pub const KEYEVENT: u64 = 1 << 12;
/// What the letter `A` stands for: all classes but [`NEW`].
const ALL: u64 = NEW - 1;

/// Reads the setting.
///
/// # Errors
/// A letter is unknown, or it is `m`: reads of absent keys are no events of Weft's.
pub fn parse(setting: &str) -> Result<u64, String> {
    let mut classes = 0;
    for given in setting.chars() {
        classes |= match LETTERS.iter().find(|(_, letter)| *letter == given) {
            Some((class, _)) => *class,
            None if given == 'A' => ALL,
            None => {
                return Err("Invalid event class character. Use 'Ag$lshzxeKEtdn'.".into());
            }
        };
    }
    // Without either of the two nothing is published.
    Ok(if classes & (KEYSPACE | KEYEVENT) == 0 { 0 } else { classes })
}

/// Returns the setting as `CONFIG GET` shows it.
pub fn show(classes: u64) -> String {
    let all = if classes & ALL == ALL { ALL } else { 0 };
    let mut text = if all == 0 { String::new() } else { "A".to_owned() };
    let shown = LETTERS.iter().filter(|(class, _)| classes & !all & class != 0);
    text.extend(shown.map(|(_, letter)| letter));
    text
}

/// Returns the class and the name of the event that a command causes at a key which it changes.
pub fn event_of(command: &Command) -> Option<(u64, &'static str)> {
    let class = match command.group {
        "string" | "bitmap" | "hyperloglog" => STRING,
        "list" => LIST,
        "set" => SET,
        "hash" => HASH,
        "sorted-set" | "geo" => SORTED_SET,
        "stream" => STREAM,
        "generic" => GENERIC,
        _ => return None,
    };
    let name = match command.name {
        "setnx" | "setex" | "psetex" | "getset" | "mset" | "msetnx" | "bitop" => "set",
        "incr" | "decr" | "decrby" | "weft.incrby" => "incrby",
        "weft.hincrby" => "hincrby",
        "bitfield" => "setbit",
        "hmset" | "hsetnx" => "hset",
        "zincrby" => "zincr",
        "geoadd" => "zadd",
        "copy" => "copy_to",
        name => name,
    };
    Some((class, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_shown_as_redis_shows_it() {
        for (setting, shown) in [
            ("", ""),
            ("g", ""),
            ("KEA", "AKE"),
            ("Kg$lshzxetd", "AK"),
            ("EKx", "xKE"),
            ("Kn$", "$nK"),
        ] {
            assert_eq!(show(parse(setting).unwrap()), shown, "{setting}");
        }
        assert!(parse("Km").is_err());
    }
}
