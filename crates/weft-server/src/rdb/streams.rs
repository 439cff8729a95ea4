//! Streams in Redis's format.
//!
//! ```text
//!   listpacks, each: its first id (16 bytes), and a listpack with
//!     entries, deleted entries, fields (a number), field ..., 0                  the master entry
//!     flags, time, number, [fields (a number), field, value ...| value ...], elements
//!   length, last id, [first id, greatest deleted id, added]
//!   groups, each:   name, last id, [delivered], pending entries (id, time, deliveries),
//!     consumers, each: name, time, [time], ids of its pending entries
//! ```
//!
//! Ids of entries are differences from that of the listpack. What is in brackets at the end of a line is in the later forms.

use std::collections::BTreeMap;
use std::io;

use super::input::{ELEMENT_BYTES, Input};
use super::packed::{Element, ListpackWriter, listpack};
use super::read::repeat;
use super::write::Writer;
use super::{Fault, GroupValue, PendingValue, Read, StreamValue, types};
use crate::stream_tables::{Id, decode, encode};
use crate::tables::Text;

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

/// How many entries one listpack gets, and after how many bytes it gets no more.
const ENTRIES_MAX: usize = 100;
const LISTPACK_BYTES: usize = 4096;

const WRONG_ENTRY: Fault = Fault::Damaged("an entry of a stream is not one");
const WRONG_ORDER: Fault = Fault::Damaged("the entries of a stream are not in order");
const WRONG_PENDING: Fault = Fault::Damaged("a consumer has an entry that its group does not have");
const NO_CONSUMER: Fault = Fault::Damaged("a pending entry has no consumer");

/// Reads a stream of one of the three forms.
///
/// # Errors
/// It is not one, or needs too much memory.
pub fn read<R: io::Read>(input: &mut Input<R>, kind: u8) -> Read<StreamValue> {
    let mut stream = StreamValue::default();
    for _ in 0..input.length()? {
        let first = input.string()?;
        let first = id_of(first.as_slice().try_into().map_err(|_| WRONG_ENTRY)?);
        let packed = input.string()?;
        let mut elements = Vec::new();
        listpack(&packed, &mut |element| {
            input.take_room(ELEMENT_BYTES)?;
            elements.push(element);
            Ok(())
        })?;
        read_entries(input, &mut elements.into_iter(), first, &mut stream)?;
    }
    let length = input.length()?;
    stream.last = read_id(input)?;
    stream.added = length;
    if kind != types::STREAM_LISTPACKS {
        read_id(input)?;
        stream.deleted = read_id(input)?;
        stream.added = input.length()?;
    }
    let last = stream.entries.last().map_or(Id::MIN, |(id, _)| *id);
    let is_consistent = last <= stream.last && stream.deleted <= stream.last;
    if length != stream.entries.len() as u64 || !is_consistent || stream.added < length {
        return Err(Fault::Damaged("a stream has other entries than it says"));
    }
    stream.groups = repeat(input, |input| read_group(input, kind))?;
    check_names(stream.groups.iter().map(|group| &group.name[..]))?;
    Ok(stream)
}

/// Checks that no name is there twice.
fn check_names<'n>(names: impl Iterator<Item = &'n [u8]>) -> Read<()> {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    match names.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(Fault::Damaged("two groups or consumers have the same name")),
        false => Ok(()),
    }
}

/// Reads the entries of a listpack, whose elements these are.
fn read_entries<'b, R: io::Read>(
    input: &mut Input<R>,
    elements: &mut impl Iterator<Item = Element<'b>>,
    first: Id,
    stream: &mut StreamValue,
) -> Read<()> {
    let count = number(elements)?.checked_add(number(elements)?).ok_or(WRONG_ENTRY)?;
    let fields = number(elements)?;
    let names: Vec<Element<'b>> = (0..fields).map_while(|_| elements.next()).collect();
    if names.len() as i64 != fields || number(elements)? != 0 {
        return Err(WRONG_ENTRY);
    }
    for _ in 0..count {
        let flags = number(elements)?;
        // Differences wrap around, as Redis's do.
        let id = Id {
            millis: first.millis.wrapping_add(number(elements)? as u64),
            number: first.number.wrapping_add(number(elements)? as u64),
        };
        let mut fields = Vec::new();
        let mut add = |element: Element<'b>| -> Read<()> {
            let bytes = element.bytes();
            input.take_room(bytes.len() + ELEMENT_BYTES)?;
            fields.push(bytes);
            Ok(())
        };
        if flags & SAME_FIELDS != 0 {
            for name in &names {
                add(*name)?;
                add(elements.next().ok_or(WRONG_ENTRY)?)?;
            }
        } else {
            for _ in 0..number(elements)? {
                add(elements.next().ok_or(WRONG_ENTRY)?)?;
                add(elements.next().ok_or(WRONG_ENTRY)?)?;
            }
        }
        // By how many elements one goes back to the entry before.
        number(elements)?;
        if flags & DELETED != 0 {
            continue;
        }
        if fields.is_empty() {
            return Err(WRONG_ENTRY);
        }
        if id == Id::MIN || stream.entries.last().is_some_and(|(before, _)| *before >= id) {
            return Err(WRONG_ORDER);
        }
        let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
        stream.entries.push((id, encode(&fields)));
    }
    if elements.next().is_some() { Err(WRONG_ENTRY) } else { Ok(()) }
}

fn number<'b>(elements: &mut impl Iterator<Item = Element<'b>>) -> Read<i64> {
    elements.next().and_then(|element| element.number()).ok_or(WRONG_ENTRY)
}

fn read_group<R: io::Read>(input: &mut Input<R>, kind: u8) -> Read<GroupValue> {
    let name = input.string()?.into();
    let last = read_id(input)?;
    let read = match kind {
        types::STREAM_LISTPACKS => -1,
        // The greatest number stands for one that is unknown.
        _ => input.length()? as i64,
    };
    if read < -1 {
        return Err(Fault::Damaged("a group has delivered fewer entries than none"));
    }
    // Which consumer has each pending entry: none, until the consumers are read.
    let mut pending = BTreeMap::new();
    for _ in 0..input.length()? {
        let id = id_of(input.array()?);
        let (delivered_at, deliveries) = (input.millis()?, input.length()?);
        input.take_room(2 * ELEMENT_BYTES)?;
        pending.insert(id, (delivered_at, deliveries, None));
    }
    let mut consumers: Vec<(Text, u64)> = Vec::new();
    for consumer in 0..usize::try_from(input.length()?).map_err(|_| Fault::TooLarge)? {
        let name = input.string()?.into();
        let seen_at = input.millis()?;
        if kind == types::STREAM_LISTPACKS_3 {
            input.millis()?;
        }
        consumers.push((name, seen_at));
        for _ in 0..input.length()? {
            let (_, _, owner) = pending.get_mut(&id_of(input.array()?)).ok_or(WRONG_PENDING)?;
            if owner.replace(consumer).is_some() {
                return Err(WRONG_PENDING);
            }
        }
    }
    check_names(consumers.iter().map(|(name, _)| &name[..]))?;
    let pending = pending.into_iter().map(|(id, (delivered_at, deliveries, consumer))| {
        let consumer = consumer.ok_or(NO_CONSUMER)?;
        Ok(PendingValue { id, consumer, delivered_at, deliveries })
    });
    let pending = pending.collect::<Read<_>>()?;
    Ok(GroupValue { name, last, read, consumers, pending })
}

fn id_of(bytes: [u8; 16]) -> Id {
    let both = u128::from_be_bytes(bytes);
    Id { millis: (both >> 64) as u64, number: both as u64 }
}

fn read_id<R: io::Read>(input: &mut Input<R>) -> Read<Id> {
    Ok(Id { millis: input.length()?, number: input.length()? })
}

fn bytes_of(id: Id) -> [u8; 16] {
    (u128::from(id.millis) << 64 | u128::from(id.number)).to_be_bytes()
}

fn write_id(writer: &mut Writer, id: Id) {
    writer.length(id.millis);
    writer.length(id.number);
}

/// Writes a stream in the form of Redis 7.0.
pub fn write(writer: &mut Writer, stream: &StreamValue) {
    let mut packs = Vec::new();
    let mut rest = &stream.entries[..];
    while let Some((first, _)) = rest.first() {
        let (packed, count) = write_entries(rest);
        packs.push((*first, packed));
        rest = &rest[count..];
    }
    writer.length(packs.len() as u64);
    for (first, packed) in packs {
        writer.string(&bytes_of(first));
        writer.string(&packed);
    }
    writer.length(stream.entries.len() as u64);
    write_id(writer, stream.last);
    write_id(writer, stream.entries.first().map_or(Id::MIN, |(id, _)| *id));
    write_id(writer, stream.deleted);
    writer.length(stream.added);
    writer.length(stream.groups.len() as u64);
    stream.groups.iter().for_each(|group| write_group(writer, group));
}

/// Writes as many entries as one listpack gets. Returns it, and how many they are.
fn write_entries(entries: &[(Id, Text)]) -> (Vec<u8>, usize) {
    let (first, fields) = &entries[0];
    let fields = decode(fields);
    let names: Vec<&[u8]> = fields.iter().step_by(2).copied().collect();
    let mut body = Vec::new();
    let mut bytes = 0;
    for (id, fields) in &entries[..entries.len().min(ENTRIES_MAX)] {
        if bytes > LISTPACK_BYTES {
            break;
        }
        bytes += fields.len();
        body.push((*id, decode(fields)));
    }
    let mut packed = ListpackWriter::new();
    packed.number(body.len() as i64);
    packed.number(0);
    packed.number(names.len() as i64);
    names.iter().for_each(|name| packed.text(name));
    packed.number(0);
    for (id, fields) in &body {
        let is_same = fields.iter().step_by(2).eq(names.iter());
        packed.number(if is_same { SAME_FIELDS } else { 0 });
        packed.number(id.millis.wrapping_sub(first.millis) as i64);
        packed.number(id.number.wrapping_sub(first.number) as i64);
        let written = if is_same {
            fields.iter().skip(1).step_by(2).for_each(|value| packed.text(value));
            names.len()
        } else {
            packed.number(fields.len() as i64 / 2);
            fields.iter().for_each(|text| packed.text(text));
            fields.len() + 1
        };
        packed.number(written as i64 + 3);
    }
    (packed.end(), body.len())
}

fn write_group(writer: &mut Writer, group: &GroupValue) {
    writer.string(&group.name);
    write_id(writer, group.last);
    writer.length(group.read as u64);
    writer.length(group.pending.len() as u64);
    for pending in &group.pending {
        writer.bytes(&bytes_of(pending.id));
        writer.bytes(&pending.delivered_at.to_le_bytes());
        writer.length(pending.deliveries);
    }
    writer.length(group.consumers.len() as u64);
    for (number, (name, seen_at)) in group.consumers.iter().enumerate() {
        writer.string(name);
        writer.bytes(&seen_at.to_le_bytes());
        let mine = group.pending.iter().filter(|pending| pending.consumer == number);
        let ids: Vec<Id> = mine.map(|pending| pending.id).collect();
        writer.length(ids.len() as u64);
        ids.iter().for_each(|id| writer.bytes(&bytes_of(*id)));
    }
}
