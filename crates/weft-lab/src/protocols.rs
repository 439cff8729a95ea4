//! `cargo lab protocols`: lists every concurrency control protocol.

use std::io::{self, Write};

use weft_bench::harness;
use weft_bench::stop::Stop;
use weft_options::protocols::{threads_max, twin_note};
use weft_protocols::PROTOCOLS;

/// Prints the list.
///
/// # Errors
/// Standard output cannot be written.
pub fn run() -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    let mut list = harness::plain(&["protocol", "what it is", "source", "htm", "threads", "rows"]);
    for protocol in PROTOCOLS {
        let htm = if protocol.uses_htm { "yes" } else { "no" };
        let threads = threads_max(protocol).map_or("any".to_owned(), |max| max.to_string());
        let rows = if protocol.single_key { "1" } else { "any" };
        list.add_row([protocol.name, protocol.title, protocol.source, htm, &threads, rows]);
    }
    writeln!(
        out,
        "{list}\n\nhtm: uses hardware transactional memory if there is any, else its software \
         twin.\nrows: how many a transaction may access."
    )?;
    for protocol in PROTOCOLS {
        if let Some(twin) = twin_note(protocol) {
            writeln!(out, "{twin}")?;
        }
    }
    Ok(())
}
