//! Streams of a server that are copied: from what `XINFO STREAM` says to the commands that make the same stream.

use redis::{Cmd, Value};

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

/// Returns the commands that make a stream. A pending entry that was deleted is left out. `None` if the reply is another.
pub fn commands_of(key: &[u8], read: &Value) -> Option<Vec<Arguments>> {
    let stream = list(read);
    let last = argument(field(stream, "last-generated-id")?)?;
    let groups = field(stream, "groups").map_or(&[][..], list);
    let mut commands = Vec::new();
    // This makes the stream even if it has no entries.
    commands.push(texts([&b"XGROUP"[..], b"CREATE", key, b"weft", b"0", b"MKSTREAM"]));
    commands.push(texts([&b"XGROUP"[..], b"DESTROY", key, b"weft"]));
    for entry in list(field(stream, "entries")?) {
        let [id, fields] = list(entry) else { return None };
        let mut add = texts([&b"XADD"[..], key]);
        add.push(argument(id)?);
        add.extend(list(fields).iter().filter_map(argument));
        commands.push(add);
    }
    let mut set = texts([&b"XSETID"[..], key]);
    set.push(last);
    // Servers before Redis 7 do not have these.
    let added = field(stream, "entries-added").and_then(argument);
    let deleted = field(stream, "max-deleted-entry-id").and_then(argument);
    if let (Some(added), Some(deleted)) = (added, deleted) {
        set.extend([b"ENTRIESADDED".to_vec(), added, b"MAXDELETEDID".to_vec(), deleted]);
    }
    commands.push(set);
    for group in groups.iter().map(list) {
        let name = argument(field(group, "name")?)?;
        let mut create = texts([&b"XGROUP"[..], b"CREATE", key, &name]);
        create.push(argument(field(group, "last-delivered-id")?)?);
        if let Some(read) = field(group, "entries-read").and_then(argument) {
            create.extend([b"ENTRIESREAD".to_vec(), read]);
        }
        commands.push(create);
        for consumer in field(group, "consumers").map_or(&[][..], list).iter().map(list) {
            let consumer = argument(field(consumer, "name")?)?;
            commands.push(texts([&b"XGROUP"[..], b"CREATECONSUMER", key, &name, &consumer]));
        }
        // The name that Redis's documentation has for it is the other.
        let pending = field(group, "pending").or_else(|| field(group, "pel"));
        for pending in pending.map_or(&[][..], list).iter().map(list) {
            let [id, consumer, at, count] = pending else { return None };
            let [id, consumer, at, count] = [id, consumer, at, count].map(argument);
            let mut claim = texts([&b"XCLAIM"[..], key, &name, &consumer?, b"0", &id?]);
            claim.extend(texts([&b"TIME"[..], &at?, b"RETRYCOUNT", &count?, b"FORCE", b"JUSTID"]));
            commands.push(claim);
        }
    }
    Some(commands)
}
