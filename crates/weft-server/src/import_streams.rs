//! Streams that are copied: from what `XINFO STREAM` says of one to the commands that make the same stream.

use redis::{Cmd, Value};

use crate::commands::id_of;
use crate::rdb::{GroupValue, PendingValue, StreamValue};
use crate::stream_tables::{Id, decode, encode};
use crate::tables::Text;

/// The arguments of a command.
type Arguments = Vec<Vec<u8>>;

/// Returns the command that reads a stream with its groups, as it is at one moment.
pub fn read(key: &[u8]) -> Cmd {
    let mut read = redis::cmd("XINFO");
    read.arg("STREAM").arg(key).arg("FULL").arg("COUNT").arg(0);
    read
}

fn texts<'t>(words: impl IntoIterator<Item = &'t [u8]>) -> Arguments {
    words.into_iter().map(<[u8]>::to_vec).collect()
}

fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        _ => &[],
    }
}

/// Returns a value as an argument of a command. `None` for a null.
fn argument(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(text) => Some(text.clone()),
        Value::SimpleString(text) => Some(text.clone().into_bytes()),
        Value::Int(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

/// Returns the value behind a name.
fn field<'v>(values: &'v [Value], name: &str) -> Option<&'v Value> {
    let pairs = values.chunks_exact(2);
    let mut named =
        pairs.filter(|pair| argument(&pair[0]).is_some_and(|text| text == name.as_bytes()));
    named.next().map(|pair| &pair[1])
}

fn number<N: std::str::FromStr>(value: &Value) -> Option<N> {
    std::str::from_utf8(&argument(value)?).ok()?.parse().ok()
}

fn id(value: &Value) -> Option<Id> {
    id_of(&argument(value)?, 0).ok()
}

/// Returns the stream that the command has read. `None` if the reply is another.
pub fn stream_of(read: &Value) -> Option<StreamValue> {
    let read = list(read);
    let mut entries = Vec::new();
    for entry in list(field(read, "entries")?) {
        let [at, fields] = list(entry) else { return None };
        let fields: Vec<Vec<u8>> = list(fields).iter().filter_map(argument).collect();
        let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
        entries.push((id(at)?, encode(&fields)));
    }
    let last = id(field(read, "last-generated-id")?)?;
    // Servers before Redis 7 do not have these.
    let deleted = field(read, "max-deleted-entry-id").and_then(id).unwrap_or_default();
    let added = field(read, "entries-added").and_then(number).unwrap_or(entries.len() as u64);
    let groups = field(read, "groups").map_or(&[][..], list).iter();
    let groups = groups.map(|group| group_of(list(group))).collect::<Option<_>>()?;
    Some(StreamValue { entries, last, deleted, added, groups })
}

fn group_of(group: &[Value]) -> Option<GroupValue> {
    let consumers = field(group, "consumers").map_or(&[][..], list).iter();
    let consumers = consumers.map(|consumer| {
        let consumer = list(consumer);
        let seen_at = field(consumer, "seen-time").and_then(number).unwrap_or(0);
        Some((argument(field(consumer, "name")?)?.into(), seen_at))
    });
    let consumers: Vec<(Text, u64)> = consumers.collect::<Option<_>>()?;
    // The name that Redis's documentation has for it is the other.
    let pending = field(group, "pending").or_else(|| field(group, "pel"));
    let pending = pending.map_or(&[][..], list).iter().map(|pending| {
        let [at, consumer, delivered_at, deliveries] = list(pending) else { return None };
        let name = argument(consumer)?;
        Some(PendingValue {
            id: id(at)?,
            consumer: consumers.iter().position(|(known, _)| known[..] == name[..])?,
            delivered_at: number(delivered_at)?,
            deliveries: number(deliveries)?,
        })
    });
    let pending = pending.collect::<Option<_>>()?;
    Some(GroupValue {
        name: argument(field(group, "name")?)?.into(),
        last: id(field(group, "last-delivered-id")?)?,
        read: field(group, "entries-read").and_then(number).unwrap_or(-1),
        consumers,
        pending,
    })
}

/// Returns the commands that make a stream. A pending entry that was deleted is left out.
pub fn commands_of(key: &[u8], stream: &StreamValue) -> Vec<Arguments> {
    let mut commands = Vec::new();
    let mut add = |words: &[&[u8]]| commands.push(texts(words.iter().copied()));
    let shown = |number: &dyn ToString| number.to_string().into_bytes();
    // This makes the stream even if it has no entries.
    add(&[b"XGROUP", b"CREATE", key, b"weft", b"0", b"MKSTREAM"]);
    add(&[b"XGROUP", b"DESTROY", key, b"weft"]);
    for (id, fields) in &stream.entries {
        let id = shown(id);
        add(&[&[&b"XADD"[..], key, &id], &decode(fields)[..]].concat());
    }
    let (last, added, deleted) =
        (shown(&stream.last), shown(&stream.added), shown(&stream.deleted));
    add(&[b"XSETID", key, &last, b"ENTRIESADDED", &added, b"MAXDELETEDID", &deleted]);
    for group in &stream.groups {
        let (name, last, read) = (&group.name[..], shown(&group.last), shown(&group.read));
        let create: [&[u8]; 5] = [b"XGROUP", b"CREATE", key, name, &last];
        match group.read {
            -1 => add(&create),
            _ => add(&[&create[..], &[b"ENTRIESREAD", &read]].concat()),
        }
        for (consumer, _) in &group.consumers {
            add(&[b"XGROUP", b"CREATECONSUMER", key, name, consumer]);
        }
        for pending in &group.pending {
            let (id, at) = (shown(&pending.id), shown(&pending.delivered_at));
            let (consumer, count) =
                (&group.consumers[pending.consumer].0, shown(&pending.deliveries));
            add(&[
                b"XCLAIM",
                key,
                name,
                consumer,
                b"0",
                &id,
                b"TIME",
                &at,
                b"RETRYCOUNT",
                &count,
                b"FORCE",
                b"JUSTID",
            ]);
        }
    }
    commands
}
