//! `weft protocols`: every concurrency control protocol there is.

use std::io::{self, Write};

use weft::protocol::{PROTOCOLS, ProtocolDescription};

use crate::bench::report::table;
use crate::stop::Stop;

/// The protocol called `name`, which the parser of the arguments has found in the list.
pub fn describe(name: &str) -> &'static ProtocolDescription {
    let found = PROTOCOLS.iter().find(|protocol| protocol.name == name);
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
    let mut list = table::plain(&["protocol", "what it is", "source", "htm", "threads"]);
    for protocol in PROTOCOLS {
        let htm = if protocol.uses_htm { "yes" } else { "no" };
        let threads = threads_max(protocol).map_or("any".to_owned(), |max| max.to_string());
        list.add_row([protocol.name, protocol.title, protocol.source, htm, &threads]);
    }
    writeln!(io::stdout(), "{list}")?;
    Ok(())
}
