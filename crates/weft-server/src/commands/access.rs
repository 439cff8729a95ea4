//! What commands do with keys and channels, and the categories that rules of users name.
//!
//! Everything is derived from the table of commands, and the lists below only make rules finer. A command that no list
//! names needs the permission to read and to write its keys if it changes data, and to read them otherwise.

use super::flags::{ADMIN, FAST, READ, WRITE};
use super::{Command, KeyPlaces};
use crate::call::is;
use crate::stop::Done;

/// The categories, as `ACL CAT` lists them.
pub const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Commands that return nothing of a key's value, although they change it.
const ONLY_WRITE: &str = "append del expire expireat geoadd hdel hmset hset hsetnx linsert lpush lpushx lrem lset ltrim mset \
     msetnx persist pexpire pexpireat pfadd psetex restore rpush rpushx sadd set setex setnx setrange srem unlink xack xadd xdel \
     weft.hincrby weft.incrby \
     xgroup xsetid xtrim zadd zrem zremrangebylex zremrangebyrank zremrangebyscore";
/// Commands that write their first key, and only read the others.
const STORE: &str = "bitop geosearchstore sdiffstore sinterstore sunionstore zdiffstore zinterstore zrangestore zunionstore";
/// Commands that move what the first key has to the second, of which they return nothing.
const MOVE: &str = "blmove brpoplpush lmove rename renamenx rpoplpush smove";
/// Commands that can harm other clients, beside those for operators.
const DANGEROUS: &str = "flushall flushdb info keys restore role sort sort_ro swapdb";
/// Commands that may wait.
const BLOCKING: &str =
    "blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin wait waitaof xread xreadgroup";
/// Parts of commands for operators that are for everybody.
const PLAIN: &[(&str, &str)] = &[
    ("acl", "cat genpass help whoami"),
    (
        "client",
        "caching getname getredir help id info no-touch reply setinfo setname tracking trackinginfo weft.rollback",
    ),
];

/// Commands whose first argument names a part of them.
const WITH_PARTS: &str = "acl client cluster command config debug function latency memory module object pubsub script slowlog xgroup xinfo";

fn lists(list: &str, name: &str) -> bool {
    list.split(' ').any(|listed| listed == name)
}

/// What a command does with a key, and what a pattern of a user permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Returns something of its value.
    pub reads: bool,
    /// Changes its value.
    pub writes: bool,
}

impl Access {
    /// Reads.
    pub const READ: Access = Access { reads: true, writes: false };
    /// Writes.
    pub const WRITE: Access = Access { reads: false, writes: true };
    /// Reads and writes.
    pub const BOTH: Access = Access { reads: true, writes: true };

    /// Returns whether this permits `other`.
    pub fn permits(self, other: Access) -> bool {
        (self.reads || !other.reads) && (self.writes || !other.writes)
    }
}

/// The channels that a command names.
#[derive(Debug, PartialEq, Eq)]
pub struct Channels<'c> {
    /// The channels, or patterns of channels.
    pub names: &'c [&'c [u8]],
    /// Whether they are patterns.
    pub are_patterns: bool,
}

impl Command {
    /// Returns whether the command is in a category.
    pub fn is_in(&self, category: &str) -> bool {
        match category {
            "keyspace" => self.group == "generic" || lists("dbsize flushall flushdb", self.name),
            "read" => self.has(READ),
            "write" => self.has(WRITE),
            "sortedset" => self.group == "sorted-set",
            "transaction" => self.group == "transactions",
            "connection" => self.group == "connection" || self.name == "command",
            "admin" => self.has(ADMIN),
            "fast" => self.has(FAST),
            "slow" => !self.has(FAST),
            "blocking" => lists(BLOCKING, self.name),
            "dangerous" => self.has(ADMIN) || lists(DANGEROUS, self.name),
            group => self.group == group,
        }
    }

    /// Returns whether the first argument names a part of the command, which rules can name.
    pub fn has_parts(&self) -> bool {
        lists(WITH_PARTS, self.name)
    }

    /// Returns the parts of the command that are in none of the categories `admin` and `dangerous`, although it is.
    pub fn plain_parts(&self) -> impl Iterator<Item = &'static str> + use<> {
        let parts = PLAIN.iter().find(|(name, _)| *name == self.name);
        parts.into_iter().flat_map(|(_, parts)| parts.split(' '))
    }

    /// Returns the keys among the arguments, each with what the command does with it.
    ///
    /// # Errors
    /// The arguments do not say how many keys there are.
    pub fn accesses<'a>(
        &self,
        arguments: &[&'a [u8]],
    ) -> Done<impl Iterator<Item = (&'a [u8], Access)> + use<'a>> {
        let keys = match self.keys {
            KeyPlaces::None => Vec::new(),
            _ => self.keys_of(arguments)?,
        };
        let returns_old =
            self.name == "set" && arguments.iter().skip(3).any(|option| is(option, "get"));
        let (first, rest) = match self.name {
            name if lists(STORE, name) => (Access::WRITE, Access::READ),
            "pfmerge" => (Access::BOTH, Access::READ),
            name if lists(MOVE, name) => (Access::BOTH, Access::WRITE),
            "copy" | "georadius" | "georadiusbymember" | "sort" => (Access::READ, Access::WRITE),
            name if lists(ONLY_WRITE, name) && !returns_old => (Access::WRITE, Access::WRITE),
            _ if self.has(WRITE) => (Access::BOTH, Access::BOTH),
            _ => (Access::READ, Access::READ),
        };
        let with_access = move |(number, key)| (key, if number == 0 { first } else { rest });
        Ok(keys.into_iter().enumerate().map(with_access))
    }

    /// Returns the channels that the command names. A new command of the group is taken to name nothing else.
    pub fn channels<'c>(&self, arguments: &'c [&'c [u8]]) -> Channels<'c> {
        let names = match self.name {
            _ if self.group != "pubsub" => &[],
            "pubsub" | "punsubscribe" | "sunsubscribe" | "unsubscribe" => &[],
            "publish" | "spublish" => arguments.get(1..2).unwrap_or(&[]),
            _ => arguments.get(1..).unwrap_or(&[]),
        };
        Channels { names, are_patterns: self.name == "psubscribe" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{COMMANDS, find};

    #[test]
    fn every_group_is_a_category_or_of_the_server() {
        for command in COMMANDS {
            let is_in = |category: &&str| command.is_in(category);
            let of_data = CATEGORIES.iter().filter(|name| !lists("fast slow", name));
            assert!(command.group == "server" || of_data.clone().any(is_in), "{}", command.name);
        }
    }

    #[test]
    fn accesses_are_those_of_redis() {
        for (line, expected) in [
            ("get a", "a:r"),
            ("set a 1", "a:w"),
            ("set a 1 get", "a:rw"),
            ("incr a", "a:rw"),
            ("mset a 1 b 2", "a:w b:w"),
            ("copy a b", "a:r b:w"),
            ("rename a b", "a:rw b:w"),
            ("zunionstore a 2 b c", "a:w b:r c:r"),
            ("bitop and a b c", "a:w b:r c:r"),
            ("lmove a b left right", "a:rw b:w"),
            ("watch a b", "a:r b:r"),
            ("sort a store b", "a:r b:w"),
            ("pfmerge a b", "a:rw b:r"),
            ("geosearchstore a b", "a:w b:r"),
            ("ping", ""),
        ] {
            let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let found = find(arguments[0]).unwrap().accesses(&arguments).unwrap();
            let shown: Vec<_> = found
                .map(|(key, access)| {
                    let (reads, writes) = (
                        ["", "r"][usize::from(access.reads)],
                        ["", "w"][usize::from(access.writes)],
                    );
                    format!("{}:{reads}{writes}", key.escape_ascii())
                })
                .collect();
            assert_eq!(shown.join(" "), expected, "{line}");
        }
    }
}
