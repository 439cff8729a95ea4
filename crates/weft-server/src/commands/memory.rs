//! `MEMORY`: how much memory the database and its keys need.

use weft::Error;
use weft::htm::word::Ordering;

use crate::call::Call;
use crate::reply::Reply;
use crate::server::Server;
use crate::stop::{Done, texts};
use crate::tables::{Kind, SPACES, Section, Text};

/// What a row costs besides what its columns own: the record, the version, and its entries in indexes. An estimate.
const ROW_BYTES: usize = 120;

/// `MEMORY`
pub fn memory(call: &Call<'_>, reply: &mut Reply) -> Done {
    match (call.argument(1).to_ascii_lowercase().as_slice(), call.rest(2)) {
        (b"usage", [_, ..]) => usage(call, reply)?,
        (b"doctor", []) => reply.verbatim(&advice(call.caller.server)),
        // With a limit, the database has the allocator give memory back when it is scarce.
        (b"purge", []) => reply.ok(),
        (b"stats", []) => statistics(call, reply)?,
        (b"help", []) => super::introspection::help(
            reply,
            &[
                "MEMORY USAGE <key> [SAMPLES <count>]",
                "    An estimate of the memory that a key needs. All elements count, whatever the number of samples.",
                "MEMORY STATS",
                "    The memory of the database and of the clients.",
                "MEMORY DOCTOR",
                "    Whether the memory is scarce, and what to do.",
                "MEMORY PURGE",
                "    Does nothing. If memory has a limit, the database gives it back when it is scarce.",
            ],
        ),
        _ => return Err(super::unknown_subcommand(call.arguments, "MEMORY").into()),
    }
    Ok(())
}

/// Says how much of its memory the database uses, and what to do if it is scarce.
fn advice(server: &Server) -> String {
    let memory = server.database.metrics().memory;
    let used = memory.used_bytes;
    match memory.limit_bytes {
        None => format!(
            "The database uses {used} bytes, and has no limit. To set one, start the server with the setting `memory`.\n"
        ),
        Some(limit) if used > limit / 10 * 9 => format!(
            "The database uses {used} of {limit} bytes, so commands that need more may be refused. Delete keys, or start the \
             server with a higher `memory`.\n"
        ),
        Some(limit) => format!("The database uses {used} of {limit} bytes, which is no problem.\n"),
    }
}

/// `MEMORY STATS`: those of Redis's numbers that the server knows.
fn statistics(call: &Call<'_>, reply: &mut Reply) -> Done {
    let server = call.caller.server;
    let keys = (0..SPACES).map(|space| call.size(u64::from(space))).sum::<Done<i64>>()?;
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let dataset = number(server.database.metrics().memory.used_bytes);
    let clients = number(server.clients_bytes.load(Ordering::Relaxed));
    let numbers = [
        ("clients.normal", clients),
        ("keys.count", keys),
        ("keys.bytes-per-key", if keys > 0 { dataset / keys } else { 0 }),
        ("dataset.bytes", dataset),
    ];
    reply.map(numbers.len());
    for (name, number) in numbers {
        reply.text(name);
        reply.integer(number);
    }
    Ok(())
}

/// `MEMORY USAGE`
fn usage(call: &Call<'_>, reply: &mut Reply) -> Done {
    let mut options = call.options(3);
    if options.take("samples") {
        options.integer()?;
    }
    if !options.is_empty() {
        return Err(texts::SYNTAX.into());
    }
    let Some(head) = call.head(&call.key(2))? else {
        reply.null();
        return Ok(());
    };
    let of_text = |text: &Option<Text>| text.as_ref().map_or(0, |text| text.heap_bytes());
    let collection = head.collection;
    let elements: usize = match head.kind {
        Kind::Text => of_text(&head.text),
        Kind::Hash => call
            .fields(collection)?
            .iter()
            .map(|field| ROW_BYTES + 2 * field.name.len() + of_text(&field.text))
            .sum(),
        Kind::Set => {
            call.members(collection)?.iter().map(|member| ROW_BYTES + 2 * member.name.len()).sum()
        }
        Kind::SortedSet => {
            let members = call.scored(collection)?;
            members.iter().map(|scored| ROW_BYTES + 48 + 3 * scored.name.len()).sum()
        }
        Kind::List => {
            let sections = call.tx.prefix(&call.store.tables.items, &collection);
            let bytes = sections.map(|section| {
                let texts = section?.texts().into_iter().map(of_text).sum::<usize>();
                Ok(ROW_BYTES + size_of::<Section>() + texts)
            });
            bytes.sum::<Result<usize, Error>>()?
        }
        Kind::Stream => {
            let entries = call.tx.prefix(&call.store.tables.of_streams.entries, &collection);
            entries.map(|row| Ok(ROW_BYTES + row?.fields.len())).sum::<Result<usize, Error>>()?
        }
    };
    reply.count(ROW_BYTES + 2 * head.key.len() + elements);
    Ok(())
}
