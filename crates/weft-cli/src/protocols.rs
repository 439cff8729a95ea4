//! `weft protocols`: every concurrency control protocol there is.

use std::io::{self, Write};

use weft::protocol::{PROTOCOLS, ProtocolDescription};

use crate::bench::locks;
use crate::bench::report::table;
use crate::stop::Stop;

/// The memory store without transactions: no protocol, and in no list of them, but it takes part in
/// `weft bench ycsb`.
pub const RAW: ProtocolDescription = ProtocolDescription {
    name: "raw",
    title: "no transactions: the bare B+-tree of the memory store",
    source: "DBX §7.3.2",
    workers_max: usize::MAX,
    uses_htm: false,
    twin: None,
    single_key: false,
};

/// The protocol called `name`, or what takes part in its place, which the parser of the arguments
/// has found in the list.
pub fn describe(name: &str) -> &'static ProtocolDescription {
    let others = [&RAW].into_iter().chain(&locks::CONTENDERS);
    let found = PROTOCOLS.iter().chain(others).find(|protocol| protocol.name == name);
    found.expect("the parser lets only names of the list through")
}

/// The most threads that may run transactions under the protocol; `None`: it has no limit.
pub fn threads_max(protocol: &ProtocolDescription) -> Option<usize> {
    (protocol.workers_max < usize::MAX).then_some(protocol.workers_max)
}

/// Prints the list.
///
/// # Errors
/// Standard output cannot be written.
pub fn run() -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    let mut list = table::plain(&["protocol", "what it is", "source", "htm", "threads", "rows"]);
    for protocol in PROTOCOLS {
        let htm = if protocol.uses_htm { "yes" } else { "no" };
        let threads = threads_max(protocol).map_or("any".to_owned(), |max| max.to_string());
        let rows = if protocol.single_key { "1" } else { "any" };
        list.add_row([protocol.name, protocol.title, protocol.source, htm, &threads, rows]);
    }
    writeln!(
        out,
        "{list}\n\nhtm: uses hardware transactional memory where there is any, else its software \
         twin.\nrows: how many a transaction may access."
    )?;
    for protocol in PROTOCOLS {
        if let Some(twin) = twin_note(protocol) {
            writeln!(out, "{twin}")?;
        }
    }
    Ok(())
}

/// A line about what runs in place of a protocol's hardware regions, if that has to be known to
/// read its results.
pub fn twin_note(protocol: &ProtocolDescription) -> Option<String> {
    protocol.twin.map(|twin| format!("{}: without RTM its twin is {twin}.", protocol.name))
}
