//! Commands on groups of consumers of streams.

use std::collections::BTreeMap;

use weft::Error;

use super::streams::{
    Reading, create, end_of, entries, entry, id_of, start_of, stream, write_entries, write_entry,
    write_id, write_stream, write_streams,
};
use super::unknown_subcommand;
use crate::call::{Call, Options};
use crate::notifications;
use crate::reply::Reply;
use crate::request::parse_integer;
use crate::stop::{Done, texts};
use crate::store::Key;
use crate::stream_tables::{Consumer, Entry, Group, Id, Pending};
use crate::tables::{Kind, Text};
use crate::waiting::Line;

/// Returns a group of a stream.
pub fn group_of<'c>(call: &Call<'c>, collection: u64, name: &[u8]) -> Done<Option<&'c Group>> {
    Ok(call.tx.get(&call.store.tables.of_streams.groups, (collection, name))?)
}

/// Returns the group that two arguments name: the key and the group.
fn group<'c>(call: &Call<'c>, key: usize) -> Done<Option<&'c Group>> {
    match call.find(&call.key(key), Kind::Stream)? {
        Some(collection) => group_of(call, collection, call.argument(key + 1)),
        None => Ok(None),
    }
}

fn shown(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn no_group(key: &[u8], group: &[u8]) -> String {
    format!("NOGROUP No such key '{}' or consumer group '{}'", shown(key), shown(group))
}

fn no_group_for(key: &[u8], group: &[u8]) -> String {
    format!("NOGROUP No such consumer group '{}' for key name '{}'", shown(group), shown(key))
}

/// Notes that a consumer has read or claimed. It is created if it does not exist. Returns whether it did not.
fn see(call: &Call<'_>, group: &Group, name: &[u8], key: &Key<'_>) -> Done<bool> {
    let consumers = &call.store.tables.of_streams.consumers;
    let seen_at = call.now();
    let row = (group.collection, group.id, name);
    if call.tx.update(consumers, row, |consumer| consumer.seen_at = seen_at)?.is_some() {
        return Ok(false);
    }
    let (collection, group, name) = (group.collection, group.id, name.into());
    call.tx.insert(consumers, Consumer { collection, group, name, seen_at })?;
    call.event(notifications::STREAM, "xgroup-createconsumer", key);
    Ok(true)
}

fn set_group(call: &Call<'_>, group: &Group, last: Id, read: i64) -> Done {
    let row = (group.collection, &group.name[..]);
    call.tx.update(&call.store.tables.of_streams.groups, row, |group| {
        (group.last_millis, group.last_number) = (last.millis, last.number);
        group.read = read;
    })?;
    Ok(())
}

/// Returns the entry that is pending in a group under an id.
fn pending<'c>(call: &Call<'c>, group: &Group, id: Id) -> Done<Option<&'c Pending>> {
    let key = (group.collection, group.id, id.millis, id.number);
    Ok(call.tx.get(&call.store.tables.of_streams.pending, &key)?)
}

fn forget(call: &Call<'_>, group: &Group, id: Id) -> Done<bool> {
    let key = (group.collection, group.id, id.millis, id.number);
    Ok(call.tx.delete(&call.store.tables.of_streams.pending, &key)?)
}

/// Writes down to whom an entry was delivered.
fn deliver(
    call: &Call<'_>,
    group: &Group,
    id: Id,
    consumer: &Text,
    (delivered_at, deliveries): (u64, u64),
) -> Done {
    let table = &call.store.tables.of_streams.pending;
    let key = (group.collection, group.id, id.millis, id.number);
    let there = call.tx.update(table, &key, |row| {
        row.consumer = consumer.clone();
        (row.delivered_at, row.deliveries) = (delivered_at, deliveries);
    })?;
    if there.is_none() {
        let (collection, group, millis, number) = key;
        let consumer = consumer.clone();
        let row = Pending { collection, group, millis, number, consumer, delivered_at, deliveries };
        call.tx.insert(table, row)?;
    }
    Ok(())
}

/// Returns the entries that are pending in a group, from one id to another: of one consumer, or of all.
pub fn all_pending<'c>(
    call: &Call<'c>,
    group: &Group,
    consumer: Option<&[u8]>,
    (start, end): (Id, Id),
    count: usize,
) -> Done<Vec<&'c Pending>> {
    if start > end {
        return Ok(Vec::new());
    }
    let (collection, id) = (group.collection, group.id);
    let table = &call.store.tables.of_streams.pending;
    let found = match consumer {
        None => {
            let from = (collection, id, start.millis, start.number);
            let to = (collection, id, end.millis, end.number);
            call.tx.range(table, from..=to).take(count).collect::<Result<Vec<_>, Error>>()?
        }
        Some(name) => {
            let name: Text = name.into();
            let from = (collection, id, name.clone(), start.millis, start.number);
            let to = (collection, id, name, end.millis, end.number);
            let scan = call.tx.range_by(table, Pending::BY_CONSUMER, from..=to);
            scan.take(count).collect::<Result<Vec<_>, Error>>()?
        }
    };
    Ok(found)
}

/// Returns how many entries were ever added up to an id, or -1 if entries were deleted so that it is unknown.
pub fn added_until(call: &Call<'_>, collection: u64, id: Id) -> Done<i64> {
    let row = stream(call, collection)?;
    let added = i64::try_from(row.added).unwrap_or(i64::MAX);
    if added == 0 {
        return Ok(0);
    }
    let length = call.size(collection)?;
    let last = row.last();
    if id == last || length == 0 && id < last {
        return Ok(added);
    }
    let first = entries(call, collection, (row.first(), Id::MAX), 1, false)?;
    let first = first.first().map_or(Id::MIN, |entry| entry.id());
    let deleted = greatest_deleted(call, collection)?;
    if id > last || deleted != Id::MIN && deleted >= first {
        return Ok(-1);
    }
    Ok(match id.cmp(&first) {
        std::cmp::Ordering::Less => added - length,
        std::cmp::Ordering::Equal => added - length + 1,
        std::cmp::Ordering::Greater => -1,
    })
}

/// Returns the greatest id that was deleted from a stream.
pub fn greatest_deleted(call: &Call<'_>, collection: u64) -> Done<Id> {
    let row = call.tx.get(&call.store.tables.of_streams.deletions, &collection)?;
    Ok(row.map_or(Id::MIN, |row| Id { millis: row.millis, number: row.number }))
}

/// What was read of a stream for a consumer: an entry, or the id of a pending entry that was deleted.
type Read<'c> = Result<&'c Entry, Id>;

/// Delivers new entries to a consumer.
fn read_new<'c>(
    call: &Call<'c>,
    group: &Group,
    consumer: &Text,
    reading: &Reading<'_>,
) -> Done<Vec<Read<'c>>> {
    let collection = group.collection;
    let Some(start) = group.last().next() else { return Ok(Vec::new()) };
    let found = entries(call, collection, (start, Id::MAX), reading.count, false)?;
    let (Some(first), Some(last)) = (found.first(), found.last()) else {
        return Ok(Vec::new());
    };
    let count = i64::try_from(found.len()).unwrap_or(i64::MAX);
    let read = match group.read {
        -1 => match added_until(call, collection, first.id())? {
            -1 => added_until(call, collection, last.id())?,
            read => read + count - 1,
        },
        read => read + count,
    };
    set_group(call, group, last.id(), read)?;
    if !reading.needs_no_acknowledgement {
        for entry in &found {
            deliver(call, group, entry.id(), consumer, (call.now(), 1))?;
        }
    }
    Ok(found.into_iter().map(Ok).collect())
}

/// Delivers entries again that are pending for a consumer.
fn read_again<'c>(
    call: &Call<'c>,
    group: &Group,
    consumer: &Text,
    after: Id,
    count: usize,
) -> Done<Vec<Read<'c>>> {
    let Some(start) = after.next() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for pending in all_pending(call, group, Some(consumer), (start, Id::MAX), count)? {
        let id = pending.id();
        match entry(call, group.collection, id)? {
            Some(entry) => {
                let deliveries = pending.deliveries + 1;
                deliver(call, group, id, consumer, (call.now(), deliveries))?;
                found.push(Ok(entry));
            }
            None => found.push(Err(id)),
        }
    }
    Ok(found)
}

/// `XREADGROUP`
pub fn xreadgroup(call: &Call<'_>, reply: &mut Reply) -> Done {
    let mut reading = Reading::parse(call, true)?;
    let (group_name, consumer) = reading.group.ok_or(texts::SYNTAX)?;
    let (consumer, line) = (Text::from(consumer), Line::Group(group_name.into()));
    if reading.ids.iter().any(|id| *id != b">") {
        // Entries that are pending are there at once.
        reading.block = None;
    }
    let mut found = Vec::new();
    for (name, id) in reading.keys.iter().zip(reading.ids) {
        if *id == b"$" {
            return Err("ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of \
                        this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would \
                        just return an empty result set."
                .into());
        }
        let after = if *id == b">" { None } else { Some(id_of(id, 0)?) };
        let key = call.key_of(name);
        let group = match call.find(&key, Kind::Stream)? {
            Some(collection) => group_of(call, collection, group_name)?,
            None => None,
        };
        let group =
            group.ok_or_else(|| no_group(name, group_name) + " in XREADGROUP with GROUP option")?;
        see(call, group, &consumer, &key)?;
        let read = match after {
            Some(after) => read_again(call, group, &consumer, after, reading.count)?,
            None if reading.block.is_some() && !call.has_turn(name, &line) => continue,
            None => read_new(call, group, &consumer, &reading)?,
        };
        if after.is_some() || !read.is_empty() {
            found.push((name, read));
        }
    }
    if found.is_empty() {
        reply.null_array();
        let ids: Vec<_> = reading.ids.iter().map(|id| id.to_vec()).collect();
        reading.wait(call, &line, &ids);
        return Ok(());
    }
    write_streams(reply, found.len());
    for (key, read) in found {
        write_stream(reply, key);
        reply.array(read.len());
        for read in read {
            match read {
                Ok(entry) => write_entry(reply, entry),
                Err(id) => {
                    reply.array(2);
                    write_id(reply, id);
                    reply.null_array();
                }
            }
        }
    }
    Ok(())
}

/// `XACK`
pub fn xack(call: &Call<'_>, reply: &mut Reply) -> Done {
    let ids = call.rest(3).iter().map(|id| id_of(id, 0)).collect::<Done<Vec<_>>>()?;
    let mut acknowledged = 0;
    if let Some(group) = group(call, 1)? {
        for id in ids {
            acknowledged += usize::from(forget(call, group, id)?);
        }
    }
    reply.count(acknowledged);
    Ok(())
}

/// `XPENDING`
pub fn xpending(call: &Call<'_>, reply: &mut Reply) -> Done {
    let group = group(call, 1)?;
    let group = group.ok_or_else(|| no_group(call.argument(1), call.argument(2)))?;
    let now = call.now();
    if call.len() == 3 {
        let found = all_pending(call, group, None, (Id::MIN, Id::MAX), usize::MAX)?;
        reply.array(4);
        reply.count(found.len());
        let (Some(first), Some(last)) = (found.first(), found.last()) else {
            reply.null();
            reply.null();
            reply.null_array();
            return Ok(());
        };
        write_id(reply, first.id());
        write_id(reply, last.id());
        let mut counts: BTreeMap<&[u8], i64> = BTreeMap::new();
        for pending in &found {
            *counts.entry(&pending.consumer).or_default() += 1;
        }
        reply.array(counts.len());
        for (name, count) in counts {
            reply.array(2);
            reply.text(name);
            reply.digits(count);
        }
        return Ok(());
    }
    let mut options = call.options(3);
    let mut idle = 0;
    if options.take("idle") {
        idle = u64::try_from(options.integer()?).unwrap_or(0);
    }
    let range = (start_of(options.next()?)?, end_of(options.next()?)?);
    let count = usize::try_from(options.integer()?).unwrap_or(0);
    let consumer = if options.is_empty() { None } else { Some(options.next()?) };
    if !options.is_empty() {
        return Err(texts::SYNTAX.into());
    }
    let limit = if idle == 0 { count } else { usize::MAX };
    let mut found = all_pending(call, group, consumer, range, limit)?;
    found.retain(|pending| now.saturating_sub(pending.delivered_at) >= idle);
    found.truncate(count);
    reply.array(found.len());
    for pending in found {
        reply.array(4);
        write_id(reply, pending.id());
        reply.text(&pending.consumer);
        write_number(reply, now.saturating_sub(pending.delivered_at));
        write_number(reply, pending.deliveries);
    }
    Ok(())
}

/// Writes a number.
pub fn write_number(reply: &mut Reply, number: u64) {
    reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
}

/// How entries are claimed.
struct Claiming {
    delivered_at: u64,
    deliveries: Option<u64>,
    is_forced: bool,
    returns_ids: bool,
    last: Id,
}

impl Claiming {
    fn parse(call: &Call<'_>, mut options: Options<'_>) -> Done<Self> {
        let now = call.now();
        let mut claiming = Claiming {
            delivered_at: now,
            deliveries: None,
            is_forced: false,
            returns_ids: false,
            last: Id::MIN,
        };
        let number = |argument: &[u8], name: &str| {
            let number = parse_integer(argument);
            number.ok_or_else(|| format!("ERR Invalid {name} option argument for XCLAIM"))
        };
        while !options.is_empty() {
            if options.take("force") {
                claiming.is_forced = true;
            } else if options.take("justid") {
                claiming.returns_ids = true;
            } else if options.take("idle") {
                let idle = u64::try_from(number(options.next()?, "IDLE")?).unwrap_or(0);
                claiming.delivered_at = now.saturating_sub(idle);
            } else if options.take("time") {
                let at = u64::try_from(number(options.next()?, "TIME")?).unwrap_or(0);
                claiming.delivered_at = at.min(now);
            } else if options.take("retrycount") {
                let count = u64::try_from(number(options.next()?, "RETRYCOUNT")?);
                claiming.deliveries = Some(count.unwrap_or(0));
            } else if options.take("lastid") {
                claiming.last = id_of(options.next()?, 0)?;
            } else {
                let option = shown(options.next()?).into_owned();
                return Err(format!("ERR Unrecognized XCLAIM option '{option}'").into());
            }
        }
        Ok(claiming)
    }

    /// Gives an entry to a consumer.
    fn claim(
        &self,
        call: &Call<'_>,
        group: &Group,
        consumer: &Text,
        (id, pending): (Id, Option<&Pending>),
    ) -> Done {
        let before = pending.map_or(0, |pending| pending.deliveries);
        let one_more = if self.returns_ids { before } else { before + 1 };
        let deliveries = self.deliveries.unwrap_or(one_more);
        deliver(call, group, id, consumer, (self.delivered_at, deliveries))
    }

    fn write(&self, reply: &mut Reply, claimed: &[&Entry]) {
        if self.returns_ids {
            reply.array(claimed.len());
            claimed.iter().for_each(|entry| write_id(reply, entry.id()));
        } else {
            write_entries(reply, claimed);
        }
    }
}

fn least_idle(argument: &[u8], command: &str) -> Done<u64> {
    let number = parse_integer(argument)
        .ok_or_else(|| format!("ERR Invalid min-idle-time argument for {command}"))?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// `XCLAIM`
pub fn xclaim(call: &Call<'_>, reply: &mut Reply) -> Done {
    let group = group(call, 1)?;
    let group = group.ok_or_else(|| no_group(call.argument(1), call.argument(2)))?;
    let consumer: Text = call.argument(3).into();
    let idle = least_idle(call.argument(4), "XCLAIM")?;
    let ids: Vec<Id> = call.rest(5).iter().map_while(|id| id_of(id, 0).ok()).collect();
    let claiming = Claiming::parse(call, call.options(5 + ids.len()))?;
    if claiming.last > group.last() {
        set_group(call, group, claiming.last, group.read)?;
    }
    let mut claimed = Vec::new();
    for id in ids {
        let pending = pending(call, group, id)?;
        let Some(entry) = entry(call, group.collection, id)? else {
            // It was deleted, so it cannot be delivered any more.
            forget(call, group, id)?;
            continue;
        };
        let is_claimed = match pending {
            Some(pending) => call.now().saturating_sub(pending.delivered_at) >= idle,
            None => claiming.is_forced,
        };
        if is_claimed {
            claiming.claim(call, group, &consumer, (id, pending))?;
            claimed.push(entry);
        }
    }
    if !claimed.is_empty() {
        see(call, group, &consumer, &call.key(1))?;
    }
    claiming.write(reply, &claimed);
    Ok(())
}

/// How many pending entries `XAUTOCLAIM` looks at for each that it may claim.
const LOOKS_PER_CLAIM: usize = 10;

/// `XAUTOCLAIM`
pub fn xautoclaim(call: &Call<'_>, reply: &mut Reply) -> Done {
    let idle = least_idle(call.argument(4), "XAUTOCLAIM")?;
    let start = start_of(call.argument(5))?;
    let mut options = call.options(6);
    let (mut count, mut returns_ids) = (100, false);
    while !options.is_empty() {
        if options.take("justid") {
            returns_ids = true;
        } else if options.take("count") {
            let given = usize::try_from(options.integer()?).ok().filter(|count| *count > 0);
            count = given.ok_or("ERR COUNT must be > 0")?;
        } else {
            return Err(texts::SYNTAX.into());
        }
    }
    let group = group(call, 1)?;
    let group = group.ok_or_else(|| no_group(call.argument(1), call.argument(2)))?;
    let consumer: Text = call.argument(3).into();
    let (delivered_at, deliveries, is_forced, last) = (call.now(), None, false, Id::MIN);
    let claiming = Claiming { delivered_at, deliveries, is_forced, returns_ids, last };
    let looks = count.saturating_mul(LOOKS_PER_CLAIM);
    // The one behind the last that is looked at is where the next call begins.
    let found = all_pending(call, group, None, (start, Id::MAX), looks.saturating_add(1))?;
    let (mut claimed, mut deleted, mut next) = (Vec::new(), Vec::new(), Id::MIN);
    for (at, pending) in found.into_iter().enumerate() {
        let id = pending.id();
        // As in Redis, a deleted entry counts as one that is claimed.
        if at == looks || claimed.len() + deleted.len() == count {
            next = id;
            break;
        }
        match entry(call, group.collection, id)? {
            None => {
                forget(call, group, id)?;
                deleted.push(id);
            }
            Some(entry) if call.now().saturating_sub(pending.delivered_at) >= idle => {
                claiming.claim(call, group, &consumer, (id, Some(pending)))?;
                claimed.push(entry);
            }
            Some(_) => {}
        }
    }
    if !claimed.is_empty() {
        see(call, group, &consumer, &call.key(1))?;
    }
    reply.array(3);
    write_id(reply, next);
    claiming.write(reply, &claimed);
    reply.array(deleted.len());
    deleted.into_iter().for_each(|id| write_id(reply, id));
    Ok(())
}

/// `XGROUP`
pub fn xgroup(call: &Call<'_>, reply: &mut Reply) -> Done {
    let name = call.argument(1).to_ascii_lowercase();
    match (name.as_slice(), call.len()) {
        (b"create", 5..) => create_group(call, reply),
        (b"setid", 5..) => set_id(call, reply),
        (b"destroy", 4) => destroy(call, reply),
        (b"createconsumer", 5) => create_consumer(call, reply),
        (b"delconsumer", 5) => delete_consumer(call, reply),
        (b"help", 2) => {
            let lines = [
                "XGROUP CREATE <key> <group> <id|$> [MKSTREAM] [ENTRIESREAD <n>]",
                "XGROUP SETID <key> <group> <id|$> [ENTRIESREAD <n>]",
                "XGROUP DESTROY <key> <group>",
                "XGROUP CREATECONSUMER | DELCONSUMER <key> <group> <consumer>",
            ];
            reply.array(lines.len());
            lines.iter().for_each(|line| reply.simple(line));
            Ok(())
        }
        _ => Err(unknown_subcommand(call.arguments, "XGROUP").into()),
    }
}

/// Takes the options of `XGROUP CREATE` and `XGROUP SETID`: how many entries were read, and whether the stream is made.
fn group_options(call: &Call<'_>, can_create: bool) -> Done<(i64, bool)> {
    let mut options = call.options(5);
    let (mut read, mut creates) = (-1, false);
    while !options.is_empty() {
        if can_create && options.take("mkstream") {
            creates = true;
        } else if options.take("entriesread") {
            read = options.integer()?;
            if read < -1 {
                return Err("ERR value for ENTRIESREAD must be positive or -1".into());
            }
        } else {
            return Err(unknown_subcommand(call.arguments, "XGROUP").into());
        }
    }
    Ok((read, creates))
}

const NEEDS_KEY: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use \
                         the MKSTREAM option to create an empty stream automatically.";

fn id_or_last(call: &Call<'_>, collection: Option<u64>) -> Done<Id> {
    match (call.argument(4), collection) {
        (b"$", Some(collection)) => Ok(stream(call, collection)?.last()),
        (b"$", None) => Ok(Id::MIN),
        (id, _) => id_of(id, 0),
    }
}

fn create_group(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (read, creates) = group_options(call, true)?;
    let (key, name) = (call.key(2), call.argument(3));
    let found = call.find(&key, Kind::Stream)?;
    if found.is_none() && !creates {
        return Err(NEEDS_KEY.into());
    }
    let id = id_or_last(call, found)?;
    let collection = found.map_or_else(|| create(call, &key), Ok)?;
    if group_of(call, collection, name)?.is_some() {
        return Err("BUSYGROUP Consumer Group name already exists".into());
    }
    let row = Group {
        collection,
        name: name.into(),
        id: call.store.number(),
        last_millis: id.millis,
        last_number: id.number,
        read,
    };
    call.tx.insert(&call.store.tables.of_streams.groups, row)?;
    reply.ok();
    call.effects.name_event("xgroup-create");
    call.touch(&key)
}

/// Returns the key, and the group of a subcommand of `XGROUP`, which may be absent.
fn named_group<'c>(call: &Call<'c>) -> Done<(Key<'c>, Option<&'c Group>)> {
    let key = call.key(2);
    let collection = call.find(&key, Kind::Stream)?.ok_or(NEEDS_KEY)?;
    Ok((key, group_of(call, collection, call.argument(3))?))
}

/// As [`named_group`], for a group that has to be there.
fn existing_group<'c>(call: &Call<'c>) -> Done<(Key<'c>, &'c Group)> {
    let (key, group) = named_group(call)?;
    let group = group.ok_or_else(|| no_group_for(key.bytes, call.argument(3)))?;
    Ok((key, group))
}

fn set_id(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (read, _) = group_options(call, false)?;
    let (key, group) = existing_group(call)?;
    set_group(call, group, id_or_last(call, Some(group.collection))?, read)?;
    reply.ok();
    call.effects.name_event("xgroup-setid");
    // Entries that were delivered before are new again.
    call.effects.note_arrival();
    call.touch(&key)
}

fn destroy(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (key, group) = named_group(call)?;
    reply.flag(group.is_some());
    let Some(group) = group else { return Ok(()) };
    let tables = &call.store.tables.of_streams;
    let (collection, id) = (group.collection, group.id);
    let range = (collection, id, 0, 0)..=(collection, id, u64::MAX, u64::MAX);
    call.tx.delete_range(&tables.pending, range)?;
    let range = (collection, id, Text::from([]))..(collection, id + 1, Text::from([]));
    call.tx.delete_range(&tables.consumers, range)?;
    call.tx.delete(&tables.groups, (collection, &group.name[..]))?;
    call.effects.name_event("xgroup-destroy");
    // Those who wait for the group are told.
    call.effects.note_arrival();
    call.touch(&key)
}

fn create_consumer(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (key, group) = existing_group(call)?;
    let is_new = see(call, group, call.argument(4), &key)?;
    reply.flag(is_new);
    if is_new { call.bump(&key) } else { Ok(()) }
}

fn delete_consumer(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (key, group) = existing_group(call)?;
    let name = call.argument(4);
    let found = all_pending(call, group, Some(name), (Id::MIN, Id::MAX), usize::MAX)?;
    reply.count(found.len());
    for pending in found {
        forget(call, group, pending.id())?;
    }
    let row = (group.collection, group.id, name);
    if call.tx.delete(&call.store.tables.of_streams.consumers, row)? {
        call.effects.name_event("xgroup-delconsumer");
        call.touch(&key)?;
    }
    Ok(())
}
