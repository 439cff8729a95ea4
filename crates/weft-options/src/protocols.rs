//! The contenders of a benchmark: the protocols, and what is measured beside them.

use weft::protocol::ProtocolDescription;
use weft_protocols::PROTOCOLS;

/// The memory store without transactions. It is not a protocol and in no list of them, but takes part in `cargo
/// lab bench ycsb`.
pub const RAW: ProtocolDescription = ProtocolDescription {
    name: "raw",
    title: "no transactions: the bare B+-tree of the memory store",
    source: "DBX §7.3.2",
    workers_max: usize::MAX,
    uses_htm: false,
    twin: None,
    single_key: false,
};

/// Describes a lock, taken or elided, as a contender.
const fn contender(name: &'static str, title: &'static str, elided: bool) -> ProtocolDescription {
    ProtocolDescription {
        name,
        title,
        source: "No Free Lunch §3.2",
        workers_max: usize::MAX,
        uses_htm: elided,
        twin: if elided { Some("the locks, taken") } else { None },
        single_key: false,
    }
}

/// The locks of `cargo lab bench locks`, which are not protocols either.
pub const LOCKS: [ProtocolDescription; 14] = [
    contender("none", "no lock at all", false),
    contender("occ_rwlock", "readers that announce themselves, and a writer", false),
    contender("tatas", "a word, tested before it is set", false),
    contender("mcs", "a queue, each thread spinning on a word of its own", false),
    contender("srwlock", "readers and a writer, with a queue", false),
    contender("occ_rwlock+elided", "", true),
    contender("tatas+elided", "", true),
    contender("mcs+elided", "", true),
    contender("srwlock+elided", "", true),
    contender("manager", "all locks of a storage manager", false),
    contender("manager+elided", "", true),
    contender("manager+coarse", "", true),
    contender("map", "a lock for each record", false),
    contender("map+elided", "", true),
];

/// Returns the protocol called `name`, or the contender of that name. The parser of the arguments has made sure
/// that it exists.
pub fn describe(name: &str) -> &'static ProtocolDescription {
    let others = [&RAW].into_iter().chain(&LOCKS);
    let found = PROTOCOLS.iter().chain(others).find(|protocol| protocol.name == name);
    found.expect("the parser accepts only these names")
}

/// Returns the most threads that may run transactions under the protocol, or `None` if it has no limit.
pub fn threads_max(protocol: &ProtocolDescription) -> Option<usize> {
    (protocol.workers_max < usize::MAX).then_some(protocol.workers_max)
}

/// Returns a line that names what runs in place of a protocol's hardware regions, if a reader of the results
/// has to know.
pub fn twin_note(protocol: &ProtocolDescription) -> Option<String> {
    protocol.twin.map(|twin| format!("{}: without RTM its twin is {twin}.", protocol.name))
}
