//! Commands on hashes.

use super::scan::random_element;
use super::strings::add_float;
use crate::call::{Call, parse_float};
use crate::reply::Reply;
use crate::request::parse_integer;
use crate::stop::{Done, texts};
use crate::store::Value;
use crate::tables::{Field, Kind};
use crate::together::Arrived;

/// Returns a field of the hash that the first argument names.
fn field<'c>(call: &Call<'c>, name: &[u8]) -> Done<Option<&'c Field>> {
    let Some(collection) = call.find(&call.key(1), Kind::Hash)? else { return Ok(None) };
    call.named(&call.store.tables.fields, collection, name)
}

fn write_value(reply: &mut Reply, field: &Field) {
    match &field.text {
        Some(text) => reply.text(text),
        None => reply.digits(field.number),
    }
}

fn write_optional(reply: &mut Reply, field: Option<&Field>) {
    match field {
        Some(field) => write_value(reply, field),
        None => reply.null(),
    }
}

/// Sets a field. Returns whether it is new.
fn put(call: &Call<'_>, collection: u64, name: &[u8], value: Value) -> Done<bool> {
    let fields = &call.store.tables.fields;
    let mut value = Some(value);
    let old = call.change_named(fields, collection, name, |field| {
        let value = value.take().expect("an update calls its closure once");
        (field.number, field.text) = (value.number, value.text);
    })?;
    if let (Err(slot), Some(Value { number, text })) = (old, value) {
        let field = Field { collection, slot, name: name.into(), number, text };
        call.tx.insert(fields, field)?;
        return Ok(true);
    }
    Ok(false)
}

/// `HGET`
pub fn hget(call: &Call<'_>, reply: &mut Reply) -> Done {
    write_optional(reply, field(call, call.argument(2))?);
    Ok(())
}

/// `HMGET`
pub fn hmget(call: &Call<'_>, reply: &mut Reply) -> Done {
    let collection = call.find(&call.key(1), Kind::Hash)?;
    let names = call.rest(2);
    reply.array(names.len());
    for name in names {
        let found = match collection {
            None => None,
            Some(collection) => call.named(&call.store.tables.fields, collection, name)?,
        };
        write_optional(reply, found);
    }
    Ok(())
}

/// `HEXISTS`
pub fn hexists(call: &Call<'_>, reply: &mut Reply) -> Done {
    reply.flag(field(call, call.argument(2))?.is_some());
    Ok(())
}

/// `HSTRLEN`
pub fn hstrlen(call: &Call<'_>, reply: &mut Reply) -> Done {
    reply.count(field(call, call.argument(2))?.map_or(0, |field| field.bytes().len()));
    Ok(())
}

fn set_fields(call: &Call<'_>, name: &str) -> Done<usize> {
    if !call.len().is_multiple_of(2) {
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
    }
    let key = call.key(1);
    let collection = call.open(&key, Kind::Hash)?;
    let mut added = 0;
    for pair in call.rest(2).chunks_exact(2) {
        added += usize::from(put(call, collection, pair[0], Value::new(pair[1]))?);
    }
    call.grow(collection, i64::try_from(added).unwrap_or(i64::MAX))?;
    call.touch(&key)?;
    Ok(added)
}

/// `HSET`
pub fn hset(call: &Call<'_>, reply: &mut Reply) -> Done {
    let added = set_fields(call, "hset")?;
    reply.count(added);
    Ok(())
}

/// Several `HSET` of one field each
pub fn hset_joined(call: &Call<'_>, requests: &[Arrived<'_>], reply: &mut Reply) -> Done {
    let key = call.key(1);
    let collection = call.open(&key, Kind::Hash)?;
    let mut added = 0;
    for (_, arguments) in requests {
        let is_new = put(call, collection, arguments[2], Value::new(arguments[3]))?;
        added += i64::from(is_new);
        reply.flag(is_new);
        call.note_change(&key);
    }
    call.grow(collection, added)?;
    call.bump(&key)
}

/// `HMSET`
pub fn hmset(call: &Call<'_>, reply: &mut Reply) -> Done {
    set_fields(call, "hmset")?;
    reply.ok();
    Ok(())
}

/// `HSETNX`
pub fn hsetnx(call: &Call<'_>, reply: &mut Reply) -> Done {
    let is_absent = field(call, call.argument(2))?.is_none();
    if is_absent {
        let key = call.key(1);
        let collection = call.open(&key, Kind::Hash)?;
        put(call, collection, call.argument(2), Value::new(call.argument(3)))?;
        call.grow(collection, 1)?;
        call.touch(&key)?;
    }
    reply.flag(is_absent);
    Ok(())
}

/// `HDEL`
pub fn hdel(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let Some(collection) = call.find(&key, Kind::Hash)? else {
        reply.integer(0);
        return Ok(());
    };
    let mut removed = 0;
    for name in call.rest(2) {
        let fields = &call.store.tables.fields;
        removed += i64::from(call.delete_named(fields, collection, name)?);
    }
    reply.integer(removed);
    if removed == 0 {
        return Ok(());
    }
    call.grow(collection, -removed)?;
    call.remove_if_empty(&key, Kind::Hash, collection)
}

/// `HLEN`
pub fn hlen(call: &Call<'_>, reply: &mut Reply) -> Done {
    let collection = call.find(&call.key(1), Kind::Hash)?;
    reply.integer(collection.map_or(Ok(0), |collection| call.size(collection))?);
    Ok(())
}

fn all<'c>(call: &Call<'c>) -> Done<Vec<&'c Field>> {
    match call.find(&call.key(1), Kind::Hash)? {
        Some(collection) => call.fields(collection),
        None => Ok(Vec::new()),
    }
}

/// `HGETALL`
pub fn hgetall(call: &Call<'_>, reply: &mut Reply) -> Done {
    let fields = all(call)?;
    reply.map(fields.len());
    for field in fields {
        reply.text(&field.name);
        write_value(reply, field);
    }
    Ok(())
}

/// `HKEYS`
pub fn hkeys(call: &Call<'_>, reply: &mut Reply) -> Done {
    reply.texts(all(call)?.iter().map(|field| &field.name));
    Ok(())
}

/// `HVALS`
pub fn hvals(call: &Call<'_>, reply: &mut Reply) -> Done {
    reply.texts(all(call)?.iter().map(|field| field.bytes()));
    Ok(())
}

/// `HINCRBY`
pub fn hincrby(call: &Call<'_>, reply: &mut Reply) -> Done {
    if !call.caller.wants_reply {
        return add_unseen(call);
    }
    let sum = add(call)?;
    reply.integer(sum);
    Ok(())
}

/// `WEFT.HINCRBY`: as `HINCRBY`, without the sum. So additions commute.
pub fn weft_hincrby(call: &Call<'_>, reply: &mut Reply) -> Done {
    add_unseen(call)?;
    reply.ok();
    Ok(())
}

/// Adds to a field that is a number without a look at the sum.
fn add_unseen(call: &Call<'_>) -> Done {
    let (key, name, by) = (call.key(1), call.argument(2), call.integer(3)?);
    match call.find(&key, Kind::Hash)? {
        Some(collection) if call.add_to_field_unseen(collection, name, by)? => call.touch(&key),
        _ => add(call).map(drop),
    }
}

/// Adds to a field. Returns the sum.
fn add(call: &Call<'_>) -> Done<i64> {
    let (key, name, by) = (call.key(1), call.argument(2), call.integer(3)?);
    let number = match field(call, name)? {
        Some(field) => parse_integer(&field.bytes()).ok_or("ERR hash value is not an integer")?,
        None => 0,
    };
    let sum = number.checked_add(by).ok_or(texts::OVERFLOW)?;
    let collection = call.open(&key, Kind::Hash)?;
    let is_new = put(call, collection, name, Value::number(sum))?;
    call.grow(collection, i64::from(is_new))?;
    call.touch(&key)?;
    Ok(sum)
}

/// `HINCRBYFLOAT`
pub fn hincrbyfloat(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (key, name) = (call.key(1), call.argument(2));
    let by = parse_float(call.argument(3)).ok_or(texts::NOT_A_FLOAT)?;
    let old = field(call, name)?.map(Field::bytes);
    let sum = add_float(old.as_deref(), by).map_err(|stop| match stop {
        crate::stop::Stop::Reply(text) if text == texts::NOT_A_FLOAT => {
            "ERR hash value is not a float".into()
        }
        other => other,
    })?;
    let collection = call.open(&key, Kind::Hash)?;
    let is_new = put(call, collection, name, Value::new(sum.as_bytes()))?;
    call.grow(collection, i64::from(is_new))?;
    reply.text(sum);
    call.touch(&key)
}

/// `HRANDFIELD`
pub fn hrandfield(call: &Call<'_>, reply: &mut Reply) -> Done {
    let collection = call.find(&call.key(1), Kind::Hash)?;
    if call.len() == 2 {
        let Some(collection) = collection else {
            reply.null();
            return Ok(());
        };
        let found = random_element(call, &call.store.tables.fields, collection)?;
        reply.optional(found.map(|field| &field.name));
        return Ok(());
    }
    let count = call.integer(2)?;
    let with_values = call.len() == 4 && call.is(3, "withvalues");
    if call.len() > 4 || call.len() == 4 && !with_values {
        return Err(texts::SYNTAX.into());
    }
    let fields = collection.map_or(Ok(Vec::new()), |collection| call.fields(collection))?;
    let chosen = super::sets::choose(&fields, count)?;
    let nests = with_values && reply.version() == crate::reply::Version::Three;
    reply.array(if with_values && !nests { 2 * chosen.len() } else { chosen.len() });
    for field in chosen {
        if nests {
            reply.array(2);
        }
        reply.text(&field.name);
        if with_values {
            write_value(reply, field);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::OnceCell;

    use weft::TransactionOptions;

    use crate::call::{Call, Caller};
    use crate::commands::{Permit, Run, find};
    use crate::effects::Effects;
    use crate::reply::Reply;
    use crate::server::{Options, Server};
    use crate::session::Session;

    /// Runs a command, and commits another client's one in the middle of its transaction. Returns how many attempts it needs.
    fn attempts(command: &str, other: &str) -> u32 {
        let server = Server::open(Options::default()).unwrap();
        let (session, mut another) = (Session::of_a_test(&server), Session::of_a_test(&server));
        another.say("SET n 5 PX 1000000");
        another.say("HSET h f 5");
        let arguments: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let (command, fixed, space) = (find(arguments[0]).unwrap(), &OnceCell::new(), 0);
        let Ok(Run::Data(run)) =
            Permit::new(&session.user, command, &arguments).map(|permit| permit.run())
        else {
            panic!("a command on data")
        };
        let (client, user) = (&*session.client, &*session.user);
        let caller = Caller { server: &server, client, user, wants_reply: true, rolls_back: false };
        let (mut attempts, mut reply) = (0, Reply::new(1 << 20));
        let options = TransactionOptions::new();
        let effects = Effects::of(command);
        let ran = server.transact(&effects, &options, |keys| {
            attempts += 1;
            let arguments = &arguments[..];
            run(&Call { caller, keys: *keys, space, arguments, fixed }, &mut reply)?;
            if attempts == 1 {
                let said = std::thread::scope(|scope| scope.spawn(|| another.say(other)).join());
                assert!(!said.unwrap().starts_with('-'), "{other}");
            }
            Ok(())
        });
        ran.unwrap();
        attempts
    }

    #[test]
    fn additions_without_their_sums_do_not_conflict() {
        for (command, other, expected) in [
            ("INCRBY n 1", "INCRBY n 1", 2),
            ("HINCRBY h f 1", "HINCRBY h f 1", 2),
            ("WEFT.INCRBY n 1", "WEFT.INCRBY n 1", 1),
            ("WEFT.HINCRBY h f 1", "WEFT.HINCRBY h f 1", 1),
            // Other fields of the hash.
            ("WEFT.HINCRBY h f 1", "HSET h g 1 i 1", 1),
            // What the addition has looked at has changed.
            ("WEFT.INCRBY n 1", "PERSIST n", 2),
            ("WEFT.HINCRBY h f 1", "HDEL h f", 2),
        ] {
            assert_eq!(attempts(command, other), expected, "{command} and {other}");
        }
    }
}
