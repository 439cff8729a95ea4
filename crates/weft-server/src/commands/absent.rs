//! The commands of Redis 7.0 that the server does not have.

/// Names of commands, in small letters, and why they are not there, or what to do instead.
pub static ABSENT: &[(&str, &str)] = &[
    (
        "asking cluster migrate psync replconf restore-asking sync",
        "one process has all data, without a cluster; replicas follow the replicated log",
    ),
    ("pfdebug pfselftest", "they are for Redis's own tests"),
    ("swapdb", "rename the keys, or select the other database"),
    ("module", "there are no modules"),
    ("lolwut", "it only shows the version, which INFO has"),
];

/// Returns the name of a command, in capitals or not, that Redis has and the server does not, and why.
pub fn find(name: &str) -> Option<(&'static str, &'static str)> {
    let named =
        |names: &'static str| names.split(' ').find(|known| known.eq_ignore_ascii_case(name));
    ABSENT.iter().find_map(|(names, reason)| Some((named(names)?, *reason)))
}
