//! The commands of Redis 7.0 that the server does not have, and the parts of its own commands.

/// Names of commands, in small letters, and why they are not there, or what to do instead. The name of a part of a command is
/// `command|part`, as in the rules of users.
pub static ABSENT: &[(&str, &str)] = &[
    (
        "asking cluster migrate psync replconf restore-asking sync",
        "one process has all data, without a cluster; replicas follow the replicated log",
    ),
    (
        "pfdebug pfselftest debug|aof-flush-sleep debug|assert debug|change-repl-id debug|client-eviction debug|clusterlink \
         debug|config-rewrite-force-all debug|crash-and-recover debug|digest debug|digest-value \
         debug|drop-cluster-packet-filter debug|error debug|htstats debug|htstats-key debug|leak debug|listpack debug|log \
         debug|mallctl debug|mallctl-str debug|oom debug|panic debug|pause-cron debug|populate debug|protocol \
         debug|quicklist debug|quicklist-packed-threshold debug|replicate debug|replybuffer debug|sdslen debug|segfault \
         debug|set-active-expire debug|set-skip-checksum-validation debug|stringmatch-test debug|structsize",
        "they are for Redis's own tests",
    ),
    ("swapdb", "rename the keys, or select the other database"),
    ("module", "there are no modules"),
    ("lolwut", "it only shows the version, which INFO has"),
    (
        "client|caching client|tracking",
        "the server does not tell clients that cached values have changed; subscribe to keyspace events instead",
    ),
    ("client|pause client|unpause", "clients are not paused, and FAILOVER works without it"),
    ("command|getkeysandflags", "COMMAND GETKEYS returns the keys, without the flags"),
    ("debug|object", "OBJECT ENCODING returns the form of a value, and MEMORY USAGE its size"),
    (
        "debug|loadaof debug|reload debug|restart",
        "the server reads its directory when it starts; stop it and start it again",
    ),
    (
        "latency|graph latency|histogram",
        "LATENCY HISTORY command returns the times by the second, and SLOWLOG GET the commands",
    ),
    ("memory|malloc-stats", "the memory of the database is in INFO memory and /metrics"),
    ("script|debug", "there is no debugger"),
];

/// Returns the name of a command, or of a part of one, that Redis has and the server does not, and why. The name may be in
/// capitals.
pub fn find(name: &str) -> Option<(&'static str, &'static str)> {
    let named =
        |names: &'static str| names.split(' ').find(|known| known.eq_ignore_ascii_case(name));
    ABSENT.iter().find_map(|(names, reason)| Some((named(names)?, *reason)))
}
