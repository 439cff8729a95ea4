//! `DUMP` and `RESTORE`: values in Redis's own format.

use weft::Error;

use super::lists;
use crate::call::Call;
use crate::rdb::input::ELEMENT_BYTES;
use crate::rdb::{Fault, GroupValue, Input, PendingValue, StreamValue, Value, read, unseal, write};
use crate::reply::Reply;
use crate::stop::{Done, texts};
use crate::store::{self, Key, check_length};
use crate::stream_tables::{Consumer, Deletion, Entry, Group, Id, Pending, Stream};
use crate::tables::{Field, Head, Kind, Member, Scored, Text, ordered_score, score_of};

/// The error of Redis for a payload that was damaged on its way, or comes from a newer Redis.
pub const WRONG_SUM: &str = "ERR DUMP payload version or checksum are wrong";
const WRONG_DATA: &str = "ERR Bad data format";

/// `DUMP`
pub fn dump(call: &Call<'_>, reply: &mut Reply) -> Done {
    match call.head(&call.key(1))? {
        Some(head) => reply.text(write::dump(&value_of(call, head)?)),
        None => reply.null(),
    }
    Ok(())
}

/// Returns the value of a key.
fn value_of(call: &Call<'_>, head: &Head) -> Done<Value> {
    let collection = head.collection;
    Ok(match head.kind {
        Kind::Text => Value::Text(head.bytes().into_owned()),
        Kind::Hash => {
            let fields = call.fields(collection)?;
            check_reply(call, fields.iter().map(|field| field.name.len() + field.bytes().len()))?;
            let pair = |field: &Field| (field.name.to_vec(), field.bytes().into_owned());
            Value::Hash(fields.into_iter().map(pair).collect())
        }
        Kind::Set => {
            let members = call.members(collection)?;
            check_reply(call, members.iter().map(|member| member.name.len()))?;
            Value::Set(members.into_iter().map(|member| member.name.to_vec()).collect())
        }
        Kind::SortedSet => {
            let scored = call.scored(collection)?;
            check_reply(call, scored.iter().map(|scored| scored.name.len() + size_of::<f64>()))?;
            let pair = |scored: &Scored| (scored.name.to_vec(), score_of(scored.score));
            Value::SortedSet(scored.into_iter().map(pair).collect())
        }
        Kind::List => {
            let elements = lists::all(call, &Key::new(head.space, &head.key))?;
            check_reply(call, elements.iter().map(|element| element.len()))?;
            Value::List(elements.iter().map(|element| element.to_vec()).collect())
        }
        Kind::Stream => Value::Stream(Box::new(stream_of(call, collection)?)),
    })
}

/// Checks that elements of these lengths fit a reply, before they are copied.
fn check_reply(call: &Call<'_>, lengths: impl Iterator<Item = usize>) -> Done {
    match lengths.sum::<usize>() > call.caller.server.options.output_bytes {
        true => Err(
            "ERR the value is longer than a reply may be: copy it in parts, or raise --output-bytes"
                .into(),
        ),
        false => Ok(()),
    }
}

fn stream_of(call: &Call<'_>, collection: u64) -> Done<StreamValue> {
    let of = &call.store.tables.of_streams;
    let end = super::streams::stream(call, collection)?;
    let entries = call.tx.prefix(&of.entries, &collection).collect::<Result<Vec<_>, Error>>()?;
    check_reply(call, entries.iter().map(|entry| entry.fields.len()))?;
    let deleted = call.tx.get(&of.deletions, &collection)?;
    let groups = call.tx.prefix(&of.groups, &collection).collect::<Result<Vec<_>, Error>>()?;
    let groups = groups.into_iter().map(|group| group_of(call, group));
    Ok(StreamValue {
        entries: entries.iter().map(|entry| (entry.id(), entry.fields.clone())).collect(),
        last: end.last(),
        deleted: deleted.map_or(Id::MIN, |row| Id { millis: row.millis, number: row.number }),
        added: end.added,
        groups: groups.collect::<Done<_>>()?,
    })
}

fn group_of(call: &Call<'_>, group: &Group) -> Done<GroupValue> {
    let of = &call.store.tables.of_streams;
    let at = (group.collection, group.id);
    let consumers = call.tx.prefix(&of.consumers, &at).collect::<Result<Vec<_>, Error>>()?;
    let rows = call.tx.prefix(&of.pending, &at).collect::<Result<Vec<_>, Error>>()?;
    let mut pending = Vec::with_capacity(rows.len());
    for row in rows {
        // Consumers are in the order of their names.
        let consumer = consumers.binary_search_by(|consumer| consumer.name[..].cmp(&row.consumer));
        let consumer = consumer.map_err(|_| "ERR a pending entry has lost its consumer")?;
        let Pending { delivered_at, deliveries, .. } = *row;
        pending.push(PendingValue { id: row.id(), consumer, delivered_at, deliveries });
    }
    let consumers = consumers.iter().map(|consumer| (consumer.name.clone(), consumer.seen_at));
    let consumers = consumers.collect();
    Ok(GroupValue {
        name: group.name.clone(),
        last: group.last(),
        read: group.read,
        consumers,
        pending,
    })
}

/// The options of `RESTORE`.
struct Options {
    replaces: bool,
    is_absolute: bool,
}

impl Options {
    fn parse(call: &Call<'_>) -> Done<Self> {
        let mut options = call.options(4);
        let (mut replaces, mut is_absolute, mut idle, mut frequency) = (false, false, false, false);
        while !options.is_empty() {
            if options.take("replace") {
                replaces = true;
            } else if options.take("absttl") {
                is_absolute = true;
            } else if options.len() > 1 && !frequency && options.take("idletime") {
                // Nothing is evicted, so neither of the two has an effect.
                idle = true;
                if options.integer()? < 0 {
                    return Err("ERR Invalid IDLETIME value, must be >= 0".into());
                }
            } else if options.len() > 1 && !idle && options.take("freq") {
                frequency = true;
                if !(0..=255).contains(&options.integer()?) {
                    return Err("ERR Invalid FREQ value, must be >= 0 and <= 255".into());
                }
            } else {
                return Err(texts::SYNTAX.into());
            }
        }
        Ok(Options { replaces, is_absolute })
    }
}

/// `RESTORE`
pub fn restore(call: &Call<'_>, reply: &mut Reply) -> Done {
    let options = Options::parse(call)?;
    let key = call.key(1);
    let old = call.head(&key)?;
    if old.is_some() && !options.replaces {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let time = u64::try_from(call.integer(2)?);
    let time = time.map_err(|_| "ERR Invalid TTL value, must be >= 0")?;
    let expires_at = match (time, options.is_absolute) {
        (0, _) => 0,
        (time, true) => time,
        (time, false) => call.now().saturating_add(time),
    };
    let value = parse(call, call.argument(3))?;
    let is_over = expires_at != 0 && expires_at <= call.now();
    match old {
        Some(old) if is_over => call.remove(&key, old)?,
        Some(old) => call.displace(&key, old)?,
        None => {}
    }
    if !is_over {
        write_value(call, &key, value)?;
        if expires_at != 0 {
            call.write_expiry(&key, 0, expires_at)?;
        }
    }
    reply.ok();
    Ok(())
}

/// Reads a payload. With what its elements need besides their bytes, the value has the limit of a request.
fn parse(call: &Call<'_>, payload: &[u8]) -> Done<Value> {
    let mut body = unseal(payload).ok_or(WRONG_SUM)?;
    let Some((kind, rest)) = body.split_first() else { return Err(WRONG_DATA.into()) };
    body = rest;
    let room = call.caller.server.options.request_bytes.saturating_add(ELEMENT_BYTES);
    let value = read::value(&mut Input::new(&mut body, room), *kind);
    match value {
        Ok(value) if body.is_empty() => match value.at(call.keys.now()) {
            (value, 0) => Ok(value),
            (_, expiring) => Err(format!(
                "ERR {expiring} fields of the hash expire, which fields do not in Weft: use HPERSIST before DUMP, or let the key expire"
            )
            .into()),
        },
        Err(Fault::TooLarge) => Err(
            "ERR the value needs more memory than a request may: restore it in parts, or raise --request-bytes".into(),
        ),
        Ok(_) | Err(_) => Err(WRONG_DATA.into()),
    }
}

/// Writes the value of a key that does not exist.
fn write_value(call: &Call<'_>, key: &Key<'_>, value: Value) -> Done {
    let tables = &call.store.tables;
    match value {
        Value::Text(text) => {
            check_length(text.len())?;
            call.write_text(key, store::Value::new(&text), 0)
        }
        Value::List(texts) if !texts.is_empty() => {
            call.effects.name_event("restore");
            lists::replace(call, key, texts.into_iter().map(Text::from).collect())
        }
        Value::Set(names) => write_all(call, key, Kind::Set, names, |collection, name| {
            let row = Member { collection, slot: 0, name: name.into() };
            call.insert_named(&tables.members, collection, row)
        }),
        // Its times have been looked at.
        Value::TimedHash(_) => Err(WRONG_DATA.into()),
        Value::Hash(fields) => {
            write_all(call, key, Kind::Hash, fields, |collection, (name, value)| {
                check_length(value.len())?;
                let store::Value { number, text } = store::Value::new(&value);
                let row = Field { collection, slot: 0, name: name.into(), number, text };
                call.insert_named(&tables.fields, collection, row)
            })
        }
        Value::SortedSet(members) => {
            write_all(call, key, Kind::SortedSet, members, |collection, (name, score)| {
                let score = ordered_score(score);
                let row = Scored { collection, slot: 0, name: name.into(), score };
                call.insert_named(&tables.scores, collection, row)
            })
        }
        Value::Stream(stream) => write_stream(call, key, *stream),
        Value::List(_) => Err(WRONG_DATA.into()),
    }
}

/// Writes the elements of a collection, each of which `insert` adds unless it is there already.
fn write_all<T>(
    call: &Call<'_>,
    key: &Key<'_>,
    kind: Kind,
    elements: Vec<T>,
    mut insert: impl FnMut(u64, T) -> Done<bool>,
) -> Done {
    if elements.is_empty() {
        return Err(WRONG_DATA.into());
    }
    let collection = call.create(key, kind)?;
    let count = elements.len();
    for element in elements {
        if !insert(collection, element)? {
            return Err(WRONG_DATA.into());
        }
    }
    call.grow(collection, i64::try_from(count).unwrap_or(i64::MAX))?;
    call.touch(key)
}

fn write_stream(call: &Call<'_>, key: &Key<'_>, stream: StreamValue) -> Done {
    let collection = call.create(key, Kind::Stream)?;
    let of = &call.store.tables.of_streams;
    let first = stream.entries.first().map_or(Id::MIN, |(id, _)| *id);
    let row = Stream {
        collection,
        last_millis: stream.last.millis,
        last_number: stream.last.number,
        first_millis: first.millis,
        first_number: first.number,
        added: stream.added,
    };
    call.tx.insert(&of.streams, row)?;
    if stream.deleted != Id::MIN {
        let Id { millis, number } = stream.deleted;
        call.tx.insert(&of.deletions, Deletion { collection, millis, number })?;
    }
    call.grow(collection, i64::try_from(stream.entries.len()).unwrap_or(i64::MAX))?;
    for (Id { millis, number }, fields) in stream.entries {
        call.tx.insert(&of.entries, Entry { collection, millis, number, fields })?;
    }
    for group in stream.groups {
        write_group(call, collection, group)?;
    }
    call.touch(key)
}

fn write_group(call: &Call<'_>, collection: u64, value: GroupValue) -> Done {
    let of = &call.store.tables.of_streams;
    let group = call.store.number();
    call.tx.insert(
        &of.groups,
        Group {
            collection,
            name: value.name,
            id: group,
            last_millis: value.last.millis,
            last_number: value.last.number,
            read: value.read,
        },
    )?;
    for (name, seen_at) in &value.consumers {
        let (name, seen_at) = (name.clone(), *seen_at);
        call.tx.insert(&of.consumers, Consumer { collection, group, name, seen_at })?;
    }
    for PendingValue { id: Id { millis, number }, consumer, delivered_at, deliveries } in
        value.pending
    {
        let consumer = value.consumers[consumer].0.clone();
        let row = Pending { collection, group, millis, number, consumer, delivered_at, deliveries };
        call.tx.insert(&of.pending, row)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::rdb::tests::hostile_payload;
    use crate::reply::Reply;
    use crate::server::{Options, Server};
    use crate::session::Session;

    fn call(session: &mut Session, arguments: &[&[u8]]) -> Vec<u8> {
        let mut reply = Reply::new(16 << 20);
        session.run(arguments, &mut reply);
        reply.bytes().to_vec()
    }

    /// Whatever is restored can be read, changed, dumped, restored again and deleted.
    #[test]
    fn hostile_payloads_are_refused_or_become_whole_keys() {
        let server = Server::open(Options::default()).unwrap();
        let mut session = Session::of_a_test(&server);
        let first = fastrand::u64(..);
        eprintln!("seed {first}");
        let mut restored = 0;
        for number in 0..300 {
            let seed = first.wrapping_add(number);
            let payload = hostile_payload(&mut fastrand::Rng::with_seed(seed));
            let reply = call(&mut session, &[b"RESTORE", b"k", b"0", &payload]);
            if reply.starts_with(b"-") {
                let is_known = [&b"-ERR Bad data format"[..], b"-ERR the value needs more memory"]
                    .iter()
                    .any(|error| reply.starts_with(error));
                assert!(is_known, "seed {seed}: {}", reply.escape_ascii());
                assert_eq!(session.say("EXISTS k"), ":0\r\n", "seed {seed}");
                continue;
            }
            restored += 1;
            let again = call(&mut session, &[b"DUMP", b"k"]);
            let start = again.windows(2).position(|bytes| bytes == b"\r\n").unwrap() + 2;
            let again = &again[start..again.len() - 2];
            assert_eq!(
                call(&mut session, &[b"RESTORE", b"l", b"0", again]),
                b"+OK\r\n",
                "seed {seed}"
            );
            let changes: &[&str] = match session.say("TYPE k").trim() {
                "+string" => &["APPEND k x"],
                "+hash" => &["HSET k x 1", "HGETALL k"],
                "+set" => &["SADD k x", "SMEMBERS k"],
                "+zset" => &["ZADD k 1 x", "ZRANGE k 0 -1"],
                "+list" => &["LPUSH k x", "RPOP k", "LRANGE k 0 -1"],
                _ => &["XINFO STREAM k FULL", "XTRIM k MAXLEN 0", "XRANGE k - +"],
            };
            for command in changes.iter().chain(&["MEMORY USAGE k", "DEL k l"]) {
                let mut reply = Reply::new(16 << 20);
                let arguments: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
                session.run(&arguments, &mut reply);
                assert!(!reply.bytes().starts_with(b"-"), "seed {seed}: {command}");
            }
        }
        assert!(restored > 0, "nothing was restored");
    }
}
