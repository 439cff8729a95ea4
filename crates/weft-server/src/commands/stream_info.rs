//! `XINFO`: details of streams, groups and consumers.

use weft::Error;

use super::stream_groups::{added_until, all_pending, greatest_deleted, group_of, write_number};
use super::streams::{entries, stream, write_entries, write_entry, write_id};
use super::unknown_subcommand;
use crate::call::Call;
use crate::reply::Reply;
use crate::stop::{Done, texts};
use crate::stream_tables::{Consumer, Entry, Group, Id};
use crate::tables::Kind;

/// `XINFO`
pub fn xinfo(call: &Call<'_>, reply: &mut Reply) -> Done {
    let name = call.argument(1).to_ascii_lowercase();
    if name == b"help" && call.len() == 2 {
        let lines = [
            "XINFO STREAM <key> [FULL [COUNT <n>]]",
            "XINFO GROUPS <key>",
            "XINFO CONSUMERS <key> <group>",
        ];
        reply.array(lines.len());
        lines.iter().for_each(|line| reply.simple(line));
        return Ok(());
    }
    let is_known = match name.as_slice() {
        b"stream" => call.len() >= 3,
        b"groups" => call.len() == 3,
        b"consumers" => call.len() == 4,
        _ => false,
    };
    if !is_known {
        return Err(unknown_subcommand(call.arguments, "XINFO").into());
    }
    let key = call.key(2);
    let collection = call.find(&key, Kind::Stream)?.ok_or(texts::NO_SUCH_KEY)?;
    match name.as_slice() {
        b"stream" => show_stream(call, reply, collection),
        b"groups" => {
            let groups = groups(call, collection)?;
            reply.array(groups.len());
            groups.iter().try_for_each(|group| show_group(call, reply, group))
        }
        _ => {
            let group = group_of(call, collection, call.argument(3))?.ok_or_else(|| {
                let (group, key) = (call.argument(3), call.argument(2));
                format!(
                    "NOGROUP No such consumer group '{}' for key name '{}'",
                    String::from_utf8_lossy(group),
                    String::from_utf8_lossy(key)
                )
            })?;
            let consumers = consumers(call, group)?;
            reply.array(consumers.len());
            for consumer in consumers {
                reply.map(3);
                named(reply, "name").text(&consumer.name);
                let all = (Id::MIN, Id::MAX);
                let pending = all_pending(call, group, Some(&consumer.name), all, usize::MAX)?;
                named(reply, "pending").count(pending.len());
                named(reply, "idle");
                write_number(reply, call.now().saturating_sub(consumer.seen_at));
            }
            Ok(())
        }
    }
}

/// Writes the name of a value, which is written next.
fn named<'r>(reply: &'r mut Reply, name: &str) -> &'r mut Reply {
    reply.text(name);
    reply
}

fn groups<'c>(call: &Call<'c>, collection: u64) -> Done<Vec<&'c Group>> {
    let groups = call.tx.prefix(&call.store.tables.of_streams.groups, &collection);
    Ok(groups.collect::<Result<_, Error>>()?)
}

fn consumers<'c>(call: &Call<'c>, group: &Group) -> Done<Vec<&'c Consumer>> {
    let of_group = (group.collection, group.id);
    let consumers = call.tx.prefix(&call.store.tables.of_streams.consumers, &of_group);
    Ok(consumers.collect::<Result<_, Error>>()?)
}

/// Writes how many entries a group has read, and how many are left, as far as that is known.
fn show_progress(call: &Call<'_>, reply: &mut Reply, group: &Group) -> Done {
    let collection = group.collection;
    let or_null = |reply: &mut Reply, number: i64| match number {
        -1 => reply.null(),
        number => reply.integer(number),
    };
    or_null(named(reply, "entries-read"), group.read);
    let added = i64::try_from(stream(call, collection)?.added).unwrap_or(i64::MAX);
    let has_gaps =
        call.size(collection)? != 0 && greatest_deleted(call, collection)? >= group.last();
    let has_gaps = has_gaps && greatest_deleted(call, collection)? != Id::MIN;
    let read = match group.read {
        _ if added == 0 => 0,
        read if read != -1 && !has_gaps => read,
        _ => added_until(call, collection, group.last())?,
    };
    or_null(named(reply, "lag"), if read == -1 { -1 } else { added - read });
    Ok(())
}

fn show_group(call: &Call<'_>, reply: &mut Reply, group: &Group) -> Done {
    reply.map(6);
    named(reply, "name").text(&group.name);
    named(reply, "consumers").count(consumers(call, group)?.len());
    let pending = all_pending(call, group, None, (Id::MIN, Id::MAX), usize::MAX)?;
    named(reply, "pending").count(pending.len());
    write_id(named(reply, "last-delivered-id"), group.last());
    show_progress(call, reply, group)
}

fn show_stream(call: &Call<'_>, reply: &mut Reply, collection: u64) -> Done {
    let mut options = call.options(3);
    let is_full = options.take("full");
    let mut count = 10;
    if is_full && options.take("count") {
        let given = usize::try_from(options.integer()?).unwrap_or(10);
        count = if given == 0 { usize::MAX } else { given };
    }
    if !options.is_empty() {
        return Err(unknown_subcommand(call.arguments, "XINFO").into());
    }
    let row = stream(call, collection)?;
    let all = (Id::MIN, Id::MAX);
    let first = entries(call, collection, all, 1, false)?;
    let groups = groups(call, collection)?;
    reply.map(if is_full { 9 } else { 10 });
    let length = call.size(collection)?;
    named(reply, "length").integer(length);
    // Entries are rows of a table: there is no radix tree. Clients look for the names.
    named(reply, "radix-tree-keys").integer(length.min(1));
    named(reply, "radix-tree-nodes").integer(length.min(1) + 1);
    write_id(named(reply, "last-generated-id"), row.last());
    write_id(named(reply, "max-deleted-entry-id"), greatest_deleted(call, collection)?);
    write_number(named(reply, "entries-added"), row.added);
    let recorded = first.first().map_or(Id::MIN, |entry| entry.id());
    write_id(named(reply, "recorded-first-entry-id"), recorded);
    if is_full {
        reply.text("entries");
        write_entries(reply, &entries(call, collection, all, count, false)?);
        named(reply, "groups").array(groups.len());
        return groups.iter().try_for_each(|group| show_group_fully(call, reply, group, count));
    }
    named(reply, "groups").count(groups.len());
    let optional = |reply: &mut Reply, entry: Option<&&Entry>| match entry {
        Some(entry) => write_entry(reply, entry),
        None => reply.null(),
    };
    optional(named(reply, "first-entry"), first.first());
    let last = entries(call, collection, all, 1, true)?;
    optional(named(reply, "last-entry"), last.first());
    Ok(())
}

fn show_group_fully(call: &Call<'_>, reply: &mut Reply, group: &Group, count: usize) -> Done {
    let all = (Id::MIN, Id::MAX);
    reply.map(7);
    named(reply, "name").text(&group.name);
    write_id(named(reply, "last-delivered-id"), group.last());
    show_progress(call, reply, group)?;
    let pending = all_pending(call, group, None, all, usize::MAX)?;
    named(reply, "pel-count").count(pending.len());
    let shown = &pending[..count.min(pending.len())];
    named(reply, "pending").array(shown.len());
    for pending in shown {
        reply.array(4);
        write_id(reply, pending.id());
        reply.text(&pending.consumer);
        write_number(reply, pending.delivered_at);
        write_number(reply, pending.deliveries);
    }
    let consumers = consumers(call, group)?;
    named(reply, "consumers").array(consumers.len());
    for consumer in consumers {
        reply.map(4);
        named(reply, "name").text(&consumer.name);
        write_number(named(reply, "seen-time"), consumer.seen_at);
        let pending = all_pending(call, group, Some(&consumer.name), all, usize::MAX)?;
        named(reply, "pel-count").count(pending.len());
        let shown = &pending[..count.min(pending.len())];
        named(reply, "pending").array(shown.len());
        for pending in shown {
            reply.array(3);
            write_id(reply, pending.id());
            write_number(reply, pending.delivered_at);
            write_number(reply, pending.deliveries);
        }
    }
    Ok(())
}
