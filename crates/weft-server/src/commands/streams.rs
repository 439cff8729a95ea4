//! Commands on the entries of streams. [`stream_groups`](super::stream_groups) has those on groups of consumers.

use std::time::Duration;

use weft::Error;

use crate::call::{Call, Options, integer};
use crate::notifications;
use crate::reply::{Reply, Version};
use crate::request::parse_integer;
use crate::stop::{Done, texts};
use crate::store::Key;
use crate::stream_tables::{Deletion, Entry, Id, Stream, decode, encode};
use crate::tables::Kind;
use crate::waiting::{Line, Wait};

const INVALID_ID: &str = "ERR Invalid stream ID specified as stream command argument";

fn parse_part(bytes: &[u8]) -> Option<u64> {
    match parse_integer(bytes) {
        Some(number) => u64::try_from(number).ok(),
        // The upper half of the numbers.
        None if !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(bytes).ok()?.parse().ok()
        }
        None => None,
    }
}

/// Returns an argument as an id. If it is a time alone, its number is `number`.
///
/// # Errors
/// It is not one.
pub fn id_of(argument: &[u8], number: u64) -> Done<Id> {
    let mut parts = argument.splitn(2, |byte| *byte == b'-');
    let millis = parts.next().and_then(parse_part).ok_or(INVALID_ID)?;
    let number = parts.next().map_or(Some(number), parse_part).ok_or(INVALID_ID)?;
    Ok(Id { millis, number })
}

/// Returns an argument as the least id of a range.
///
/// # Errors
/// It is not one.
pub fn start_of(argument: &[u8]) -> Done<Id> {
    match argument {
        b"-" => Ok(Id::MIN),
        b"+" => Ok(Id::MAX),
        [b'(', rest @ ..] => {
            Ok(id_of(rest, 0)?.next().ok_or("ERR invalid start ID for the interval")?)
        }
        _ => id_of(argument, 0),
    }
}

/// Returns an argument as the greatest id of a range.
///
/// # Errors
/// It is not one.
pub fn end_of(argument: &[u8]) -> Done<Id> {
    match argument {
        b"-" => Ok(Id::MIN),
        b"+" => Ok(Id::MAX),
        [b'(', rest @ ..] => {
            Ok(id_of(rest, u64::MAX)?.previous().ok_or("ERR invalid end ID for the interval")?)
        }
        _ => id_of(argument, u64::MAX),
    }
}

/// Returns where entries are appended to a stream that exists.
pub fn stream<'c>(call: &Call<'c>, collection: u64) -> Done<&'c Stream> {
    let row = call.tx.get(&call.store.tables.of_streams.streams, &collection)?;
    Ok(row.ok_or("ERR a stream has lost its end")?)
}

/// Creates an empty stream.
pub fn create(call: &Call<'_>, key: &Key<'_>) -> Done<u64> {
    let collection = call.create(key, Kind::Stream)?;
    let row = Stream {
        collection,
        last_millis: 0,
        last_number: 0,
        first_millis: 0,
        first_number: 0,
        added: 0,
    };
    call.tx.insert(&call.store.tables.of_streams.streams, row)?;
    Ok(collection)
}

/// Returns the entries from one id to another, from the greatest on if `descends`.
pub fn entries<'c>(
    call: &Call<'c>,
    collection: u64,
    (start, end): (Id, Id),
    count: usize,
    descends: bool,
) -> Done<Vec<&'c Entry>> {
    if start > end {
        return Ok(Vec::new());
    }
    let range = (collection, start.millis, start.number)..=(collection, end.millis, end.number);
    let mut scan = call.tx.range(&call.store.tables.of_streams.entries, range);
    if descends {
        scan = scan.descending();
    }
    Ok(scan.take(count).collect::<Result<_, Error>>()?)
}

/// Returns the entry with an id.
pub fn entry<'c>(call: &Call<'c>, collection: u64, id: Id) -> Done<Option<&'c Entry>> {
    let key = (collection, id.millis, id.number);
    Ok(call.tx.get(&call.store.tables.of_streams.entries, &key)?)
}

/// Writes an id.
pub fn write_id(reply: &mut Reply, id: Id) {
    reply.text(id.to_string());
}

/// Writes an entry: its id and its fields.
pub fn write_entry(reply: &mut Reply, entry: &Entry) {
    reply.array(2);
    write_id(reply, entry.id());
    reply.texts(decode(&entry.fields).iter());
}

/// Writes entries.
pub fn write_entries(reply: &mut Reply, entries: &[&Entry]) {
    reply.array(entries.len());
    entries.iter().for_each(|entry| write_entry(reply, entry));
}

/// How a stream is trimmed.
enum Trim {
    Length(u64),
    Least(Id),
}

/// The entries that trimming removes from a stream.
struct Trimming {
    trim: Trim,
    is_exact: bool,
    /// The most entries that are removed.
    limit: usize,
}

/// By how many entries a stream may exceed the length that was given with `~`.
const SLACK: u64 = 100;

impl Trimming {
    /// Takes the options, if they are there.
    fn take(options: &mut Options<'_>) -> Done<Option<Self>> {
        let by_length = options.take("maxlen");
        if !by_length && !options.take("minid") {
            return Ok(None);
        }
        let is_exact = options.take("=") || !options.take("~");
        let threshold = options.next()?;
        let trim = match by_length {
            true => {
                let length = u64::try_from(integer(threshold)?);
                Trim::Length(length.map_err(|_| "ERR The MAXLEN argument must be >= 0.")?)
            }
            false => Trim::Least(id_of(threshold, 0)?),
        };
        let mut limit = usize::MAX;
        if options.take("limit") {
            let given = usize::try_from(options.integer()?);
            let given = given.map_err(|_| "ERR The LIMIT argument must be >= 0.")?;
            if is_exact {
                return Err(
                    "ERR syntax error, LIMIT cannot be used without the special ~ option".into()
                );
            }
            limit = if given == 0 { usize::MAX } else { given };
        }
        Ok(Some(Trimming { trim, is_exact, limit }))
    }

    /// Removes the oldest entries. Returns how many.
    fn run(&self, call: &Call<'_>, collection: u64) -> Done<usize> {
        let first = stream(call, collection)?.first();
        let mut end = Id::MAX;
        let mut count = self.limit;
        match self.trim {
            Trim::Length(length) => {
                let size = u64::try_from(call.size(collection)?).unwrap_or(0);
                let slack = if self.is_exact || length == 0 { 0 } else { SLACK };
                if size <= length.saturating_add(slack) {
                    return Ok(0);
                }
                count = count.min(usize::try_from(size - length).unwrap_or(usize::MAX));
            }
            Trim::Least(least) => match least.previous() {
                Some(previous) => end = previous,
                None => return Ok(0),
            },
        }
        let gone = entries(call, collection, (first, end), count, false)?;
        let Some(last) = gone.last().map(|entry| entry.id()) else { return Ok(0) };
        let tables = &call.store.tables.of_streams;
        for entry in &gone {
            call.tx.delete(&tables.entries, &(collection, entry.millis, entry.number))?;
        }
        call.grow(collection, -i64::try_from(gone.len()).unwrap_or(i64::MAX))?;
        // The next trimming begins behind what this one has removed.
        if let Some(next) = last.next() {
            call.tx.update(&tables.streams, &collection, |stream| {
                (stream.first_millis, stream.first_number) = (next.millis, next.number);
            })?;
        }
        Ok(gone.len())
    }
}

/// Notes that an entry was deleted.
fn note_deleted(call: &Call<'_>, collection: u64, id: Id) -> Done {
    let deletions = &call.store.tables.of_streams.deletions;
    let found = call.tx.get(deletions, &collection)?;
    match found.map(|row| Id { millis: row.millis, number: row.number }) {
        Some(old) if old >= id => {}
        Some(_) => {
            call.tx.update(deletions, &collection, |row| {
                (row.millis, row.number) = (id.millis, id.number);
            })?;
        }
        None => {
            let row = Deletion { collection, millis: id.millis, number: id.number };
            call.tx.insert(deletions, row)?;
        }
    }
    Ok(())
}

/// The id of a new entry, as it is given.
enum NewId {
    Any,
    AnyOf(u64),
    Given(Id),
}

impl NewId {
    fn parse(argument: &[u8]) -> Done<Self> {
        if argument == b"*" {
            return Ok(NewId::Any);
        }
        match argument.strip_suffix(b"-*") {
            Some(millis) => Ok(NewId::AnyOf(parse_part(millis).ok_or(INVALID_ID)?)),
            None => Ok(NewId::Given(id_of(argument, 0)?)),
        }
    }

    /// Returns the id of an entry that is appended behind `last`.
    fn after(&self, last: Id, now: u64) -> Done<Id> {
        const EXHAUSTED: &str =
            "ERR The stream has exhausted the last possible ID, unable to add more items";
        const TOO_SMALL: &str =
            "ERR The ID specified in XADD is equal or smaller than the target stream top item";
        if last == Id::MAX {
            return Err(EXHAUSTED.into());
        }
        match *self {
            NewId::Any if now > last.millis => Ok(Id { millis: now, number: 0 }),
            NewId::Any => Ok(last.next().ok_or(EXHAUSTED)?),
            NewId::AnyOf(millis) if millis > last.millis => Ok(Id { millis, number: 0 }),
            NewId::AnyOf(millis) if millis == last.millis => Ok(last
                .number
                .checked_add(1)
                .map(|number| Id { millis, number })
                .ok_or(TOO_SMALL)?),
            NewId::AnyOf(_) => Err(TOO_SMALL.into()),
            NewId::Given(Id::MIN) => {
                Err("ERR The ID specified in XADD must be greater than 0-0".into())
            }
            NewId::Given(id) if id > last => Ok(id),
            NewId::Given(_) => Err(TOO_SMALL.into()),
        }
    }
}

/// `XADD`
pub fn xadd(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let mut options = call.options(2);
    let (mut trimming, mut creates) = (None, true);
    loop {
        if options.take("nomkstream") {
            creates = false;
        } else if let Some(taken) = Trimming::take(&mut options)? {
            if trimming.replace(taken).is_some() {
                return Err("ERR syntax error, MAXLEN and MINID options at the same time are not compatible".into());
            }
        } else {
            break;
        }
    }
    let new = NewId::parse(options.next()?)?;
    let fields = options.rest();
    if fields.is_empty() || !fields.len().is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'xadd' command".into());
    }
    let collection = match call.find(&key, Kind::Stream)? {
        Some(collection) => collection,
        None if creates => create(call, &key)?,
        None => {
            reply.null();
            return Ok(());
        }
    };
    let tables = &call.store.tables.of_streams;
    let id = new.after(stream(call, collection)?.last(), call.now())?;
    let Id { millis, number } = id;
    call.tx.update(&tables.streams, &collection, |stream| {
        (stream.last_millis, stream.last_number) = (millis, number);
        stream.added += 1;
    })?;
    call.tx
        .insert(&tables.entries, Entry { collection, millis, number, fields: encode(fields) })?;
    call.grow(collection, 1)?;
    write_id(reply, id);
    // An entry wakes those who wait for any.
    call.effects.note_arrival();
    call.touch(&key)?;
    if let Some(trimming) = trimming
        && trimming.run(call, collection)? > 0
    {
        call.event(notifications::STREAM, "xtrim", &key);
    }
    Ok(())
}

/// `XTRIM`
pub fn xtrim(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let mut options = call.options(2);
    let trimming = Trimming::take(&mut options)?.ok_or(texts::SYNTAX)?;
    if !options.is_empty() {
        return Err(texts::SYNTAX.into());
    }
    let found = call.find(&key, Kind::Stream)?;
    let removed = found.map_or(Ok(0), |collection| trimming.run(call, collection))?;
    reply.count(removed);
    if removed == 0 { Ok(()) } else { call.touch(&key) }
}

/// `XDEL`
pub fn xdel(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let ids = call.rest(2).iter().map(|id| id_of(id, 0)).collect::<Done<Vec<_>>>()?;
    let Some(collection) = call.find(&key, Kind::Stream)? else {
        reply.integer(0);
        return Ok(());
    };
    let mut removed = 0;
    for id in ids {
        if entry(call, collection, id)?.is_some() {
            let entries = &call.store.tables.of_streams.entries;
            call.tx.delete(entries, &(collection, id.millis, id.number))?;
            note_deleted(call, collection, id)?;
            removed += 1;
        }
    }
    reply.integer(removed);
    if removed == 0 {
        return Ok(());
    }
    call.grow(collection, -removed)?;
    call.touch(&key)
}

/// `XLEN`
pub fn xlen(call: &Call<'_>, reply: &mut Reply) -> Done {
    let found = call.find(&call.key(1), Kind::Stream)?;
    reply.integer(found.map_or(Ok(0), |collection| call.size(collection))?);
    Ok(())
}

fn show(call: &Call<'_>, reply: &mut Reply, start: usize, end: usize, descends: bool) -> Done {
    let range = (start_of(call.argument(start))?, end_of(call.argument(end))?);
    let mut options = call.options(4);
    let mut count = i64::MAX;
    while !options.is_empty() {
        if !options.take("count") {
            return Err(texts::SYNTAX.into());
        }
        count = options.integer()?;
    }
    let Some(collection) = call.find(&call.key(1), Kind::Stream)? else {
        reply.array(0);
        return Ok(());
    };
    if count == 0 {
        reply.null_array();
        return Ok(());
    }
    let count = usize::try_from(count).unwrap_or(0);
    write_entries(reply, &entries(call, collection, range, count, descends)?);
    Ok(())
}

/// `XRANGE`
pub fn xrange(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, 2, 3, false)
}

/// `XREVRANGE`
pub fn xrevrange(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, 3, 2, true)
}

/// `XSETID`
pub fn xsetid(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let id = id_of(call.argument(2), 0)?;
    let mut options = call.options(3);
    let (mut added, mut deleted) = (None, None);
    while !options.is_empty() {
        if options.take("entriesadded") {
            let count = u64::try_from(options.integer()?);
            added = Some(count.map_err(|_| "ERR entries_added must be positive")?);
        } else if options.take("maxdeletedid") {
            let given = id_of(options.next()?, 0)?;
            if given > id {
                return Err("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id".into());
            }
            deleted = Some(given);
        } else {
            return Err(texts::SYNTAX.into());
        }
    }
    let collection = call.find(&key, Kind::Stream)?.ok_or(texts::NO_SUCH_KEY)?;
    let newest = entries(call, collection, (Id::MIN, Id::MAX), 1, true)?;
    if newest.first().is_some_and(|entry| entry.id() > id) {
        return Err(
            "ERR The ID specified in XSETID is smaller than the target stream top item".into()
        );
    }
    if let Some(added) = added
        && i128::from(added) < i128::from(call.size(collection)?)
    {
        return Err(
            "ERR The entries_added specified in XSETID is smaller than the target stream length"
                .into(),
        );
    }
    call.tx.update(&call.store.tables.of_streams.streams, &collection, |stream| {
        // New entries may come before what trimming has removed.
        let first = stream.first().min(id);
        (stream.first_millis, stream.first_number) = (first.millis, first.number);
        (stream.last_millis, stream.last_number) = (id.millis, id.number);
        stream.added = added.unwrap_or(stream.added);
    })?;
    if let Some(deleted) = deleted {
        note_deleted(call, collection, deleted)?;
    }
    reply.ok();
    call.touch(&key)
}

/// The arguments of `XREAD` and `XREADGROUP`.
pub struct Reading<'c> {
    /// The most entries of each stream.
    pub count: usize,
    /// How long to wait, if at all; `Some(None)` is for ever.
    pub block: Option<Option<Duration>>,
    /// Whether what is delivered to the group is not pending.
    pub needs_no_acknowledgement: bool,
    /// The group and the consumer.
    pub group: Option<(&'c [u8], &'c [u8])>,
    /// The keys of the streams.
    pub keys: &'c [&'c [u8]],
    /// An id for each.
    pub ids: &'c [&'c [u8]],
}

impl<'c> Reading<'c> {
    /// Reads the arguments.
    ///
    /// # Errors
    /// They are wrong.
    pub fn parse(call: &Call<'c>, is_of_group: bool) -> Done<Self> {
        let mut options = call.options(1);
        let mut reading = Reading {
            count: usize::MAX,
            block: None,
            needs_no_acknowledgement: false,
            group: None,
            keys: &[],
            ids: &[],
        };
        while !options.take("streams") {
            if options.take("count") {
                let count = usize::try_from(options.integer()?).unwrap_or(0);
                reading.count = if count == 0 { usize::MAX } else { count };
            } else if options.take("block") {
                let millis = parse_integer(options.next()?)
                    .ok_or("ERR timeout is not an integer or out of range")?;
                let millis = u64::try_from(millis).map_err(|_| "ERR timeout is negative")?;
                reading.block = Some((millis > 0).then(|| Duration::from_millis(millis)));
            } else if options.take("group") {
                reading.group = Some((options.next()?, options.next()?));
                if !is_of_group {
                    return Err("ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.".into());
                }
            } else if options.take("noack") {
                reading.needs_no_acknowledgement = true;
                if !is_of_group {
                    return Err("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.".into());
                }
            } else {
                return Err(texts::SYNTAX.into());
            }
        }
        let rest = options.rest();
        if rest.is_empty() {
            return Err(texts::SYNTAX.into());
        }
        if !rest.len().is_multiple_of(2) {
            return Err("ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."
                .into());
        }
        if is_of_group && reading.group.is_none() {
            return Err("ERR Missing GROUP option for XREADGROUP".into());
        }
        (reading.keys, reading.ids) = rest.split_at(rest.len() / 2);
        Ok(reading)
    }

    /// Waits for entries after these ids, if the command says so.
    pub fn wait(&self, call: &Call<'_>, line: &Line, ids: &[Vec<u8>]) {
        let Some(timeout) = self.block else { return };
        let kept = call.len() - ids.len();
        let arguments = call.arguments[..kept].iter().copied().map(Box::from);
        let ids = ids.iter().map(|id| Box::from(&id[..]));
        call.effects.wait(Wait {
            places: self.keys.iter().map(|key| ((*key).into(), line.clone())).collect(),
            timeout,
            arguments: Some(arguments.chain(ids).collect()),
        });
    }
}

/// Begins the reply with what was read of so many streams.
pub fn write_streams(reply: &mut Reply, streams: usize) {
    match reply.version() {
        Version::Two => reply.array(streams),
        Version::Three => reply.map(streams),
    }
}

/// Writes the key of a stream, before its entries.
pub fn write_stream(reply: &mut Reply, key: &[u8]) {
    if reply.version() == Version::Two {
        reply.array(2);
    }
    reply.text(key);
}

/// `XREAD`
pub fn xread(call: &Call<'_>, reply: &mut Reply) -> Done {
    let reading = Reading::parse(call, false)?;
    let (mut found, mut ids) = (Vec::new(), Vec::new());
    for (key, id) in reading.keys.iter().zip(reading.ids) {
        let at = call.key_of(key);
        let collection = match call.waits_for_other(&at, Kind::Stream)? {
            true => None,
            false => call.find(&at, Kind::Stream)?,
        };
        let after = match *id {
            b"$" => collection
                .map_or(Ok(Id::MIN), |of| Ok::<_, crate::stop::Stop>(stream(call, of)?.last()))?,
            b">" => {
                return Err("ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
                            <consumer> option."
                    .into());
            }
            id => id_of(id, 0)?,
        };
        ids.push(after.to_string().into_bytes());
        if let (Some(collection), Some(start)) = (collection, after.next()) {
            let entries = entries(call, collection, (start, Id::MAX), reading.count, false)?;
            if !entries.is_empty() {
                found.push((key, entries));
            }
        }
    }
    if found.is_empty() {
        reply.null_array();
        reading.wait(call, &Line::Stream, &ids);
        return Ok(());
    }
    write_streams(reply, found.len());
    for (key, entries) in found {
        write_stream(reply, key);
        write_entries(reply, &entries);
    }
    Ok(())
}
