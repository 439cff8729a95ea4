//! Commands on sets.

use std::collections::HashSet;

use super::scan::random_element;
use crate::call::Call;
use crate::reply::Reply;
use crate::stop::{Done, texts};
use crate::store::Key;
use crate::tables::{Kind, Member, Text};
use crate::together::Arrived;

/// The most elements that one call chooses at random with repetitions.
const CHOSEN_MAX: i64 = 1 << 24;

/// Chooses elements at random: up to `count` different ones, or, if that is below zero, exactly so many, perhaps the same
/// one several times.
///
/// # Errors
/// There would be too many.
pub fn choose<'r, T>(elements: &[&'r T], count: i64) -> Done<Vec<&'r T>> {
    if count < -CHOSEN_MAX {
        return Err("ERR value is out of range".into());
    }
    if count < 0 {
        let count = if elements.is_empty() { 0 } else { -count };
        return Ok((0..count).map(|_| elements[fastrand::usize(..elements.len())]).collect());
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(elements.len());
    Ok(fastrand::choose_multiple(elements.iter().copied(), count))
}

fn add(call: &Call<'_>, collection: u64, name: &[u8]) -> Done<bool> {
    let member = Member { collection, slot: 0, name: name.into() };
    call.insert_named(&call.store.tables.members, collection, member)
}

fn has(call: &Call<'_>, collection: Option<u64>, name: &[u8]) -> Done<bool> {
    match collection {
        Some(collection) => Ok(call.named(&call.store.tables.members, collection, name)?.is_some()),
        None => Ok(false),
    }
}

/// `SADD`
pub fn sadd(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let collection = call.open(&key, Kind::Set)?;
    let mut added = 0;
    for name in call.rest(2) {
        added += i64::from(add(call, collection, name)?);
    }
    reply.integer(added);
    if added == 0 {
        return Ok(());
    }
    call.grow(collection, added)?;
    call.touch(&key)
}

/// Several `SADD` of one member each
pub fn sadd_joined(call: &Call<'_>, requests: &[Arrived<'_>], reply: &mut Reply) -> Done {
    let key = call.key(1);
    let collection = call.open(&key, Kind::Set)?;
    let mut added = 0;
    for (_, arguments) in requests {
        let is_new = add(call, collection, arguments[2])?;
        reply.flag(is_new);
        if is_new {
            added += 1;
            call.note_change(&key);
        }
    }
    if added == 0 {
        return Ok(());
    }
    call.grow(collection, added)?;
    call.bump(&key)
}

fn remove(call: &Call<'_>, key: &Key<'_>, collection: u64, names: &[&[u8]]) -> Done<i64> {
    let mut removed = 0;
    for name in names {
        let members = &call.store.tables.members;
        removed += i64::from(call.delete_named(members, collection, name)?);
    }
    if removed > 0 {
        call.grow(collection, -removed)?;
        call.remove_if_empty(key, Kind::Set, collection)?;
    }
    Ok(removed)
}

/// `SREM`
pub fn srem(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let removed = match call.find(&key, Kind::Set)? {
        Some(collection) => remove(call, &key, collection, call.rest(2))?,
        None => 0,
    };
    reply.integer(removed);
    Ok(())
}

/// `SISMEMBER`
pub fn sismember(call: &Call<'_>, reply: &mut Reply) -> Done {
    let collection = call.find(&call.key(1), Kind::Set)?;
    reply.flag(has(call, collection, call.argument(2))?);
    Ok(())
}

/// `SMISMEMBER`
pub fn smismember(call: &Call<'_>, reply: &mut Reply) -> Done {
    let collection = call.find(&call.key(1), Kind::Set)?;
    let names = call.rest(2);
    reply.array(names.len());
    for name in names {
        reply.flag(has(call, collection, name)?);
    }
    Ok(())
}

/// `SCARD`
pub fn scard(call: &Call<'_>, reply: &mut Reply) -> Done {
    let collection = call.find(&call.key(1), Kind::Set)?;
    reply.integer(collection.map_or(Ok(0), |collection| call.size(collection))?);
    Ok(())
}

fn members<'c>(call: &Call<'c>, key: &[u8]) -> Done<Vec<&'c Member>> {
    match call.find(&Key::new(call.space, key), Kind::Set)? {
        Some(collection) => call.members(collection),
        None => Ok(Vec::new()),
    }
}

/// `SMEMBERS`
pub fn smembers(call: &Call<'_>, reply: &mut Reply) -> Done {
    let members = members(call, call.argument(1))?;
    reply.set(members.len());
    members.iter().for_each(|member| reply.text(&member.name));
    Ok(())
}

/// `SMOVE`
pub fn smove(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (from, to, name) = (call.key(1), call.key(2), call.argument(3));
    let Some(source) = call.find(&from, Kind::Set)? else {
        reply.flag(false);
        return Ok(());
    };
    call.expect(&to, Kind::Set)?;
    let is_there = has(call, Some(source), name)?;
    reply.flag(is_there);
    if !is_there || from.bytes == to.bytes {
        return Ok(());
    }
    call.effects.name_event("srem");
    remove(call, &from, source, &[name])?;
    call.effects.name_event("sadd");
    let destination = call.open(&to, Kind::Set)?;
    let is_new = add(call, destination, name)?;
    call.grow(destination, i64::from(is_new))?;
    call.touch(&to)
}

/// `SRANDMEMBER`
pub fn srandmember(call: &Call<'_>, reply: &mut Reply) -> Done {
    let collection = call.find(&call.key(1), Kind::Set)?;
    match call.len() {
        2 => {
            let found = collection.map_or(Ok(None), |collection| {
                random_element(call, &call.store.tables.members, collection)
            })?;
            reply.optional(found.map(|member| &member.name));
        }
        3 => {
            let count = call.integer(2)?;
            let members = collection.map_or(Ok(Vec::new()), |set| call.members(set))?;
            reply.texts(choose(&members, count)?.iter().map(|member| &member.name));
        }
        _ => return Err(texts::SYNTAX.into()),
    }
    Ok(())
}

/// `SPOP`
pub fn spop(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let collection = call.find(&key, Kind::Set)?;
    if call.len() > 3 {
        return Err(texts::SYNTAX.into());
    }
    if call.len() == 2 {
        let found = collection.map_or(Ok(None), |collection| {
            random_element(call, &call.store.tables.members, collection)
        })?;
        reply.optional(found.map(|member| &member.name));
        if let (Some(collection), Some(member)) = (collection, found) {
            remove(call, &key, collection, &[&member.name])?;
        }
        return Ok(());
    }
    let count = call.integer(2)?;
    if count < 0 {
        return Err(texts::NEGATIVE.into());
    }
    let members = collection.map_or(Ok(Vec::new()), |collection| call.members(collection))?;
    let chosen = choose(&members, count)?;
    reply.set(chosen.len());
    chosen.iter().for_each(|member| reply.text(&member.name));
    if let Some(collection) = collection {
        let names: Vec<&[u8]> = chosen.iter().map(|member| &member.name[..]).collect();
        remove(call, &key, collection, &names)?;
    }
    Ok(())
}

/// How several sets become one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Combination {
    Union,
    Intersection,
    Difference,
}

/// Returns the members of a combination of sets, but no more than `limit`.
fn combine(
    call: &Call<'_>,
    keys: &[&[u8]],
    combination: Combination,
    limit: usize,
) -> Done<Vec<Text>> {
    let mut sets = Vec::with_capacity(keys.len());
    for key in keys {
        sets.push(call.find(&Key::new(call.space, key), Kind::Set)?);
    }
    let mut found = Vec::new();
    if combination == Combination::Union {
        let mut seen = HashSet::new();
        for set in sets.into_iter().flatten() {
            for member in call.members(set)? {
                if seen.insert(&member.name) {
                    found.push(member.name.clone());
                }
            }
        }
        return Ok(found);
    }
    let Some(first) = sets[0] else { return Ok(found) };
    for member in call.tx.prefix(&call.store.tables.members, &first) {
        let member = member?;
        if found.len() == limit {
            break;
        }
        let mut is_in = true;
        for set in &sets[1..] {
            let is_there = has(call, *set, &member.name)?;
            if is_there != (combination == Combination::Intersection) {
                is_in = false;
                break;
            }
        }
        if is_in {
            found.push(member.name.clone());
        }
    }
    Ok(found)
}

fn show(call: &Call<'_>, reply: &mut Reply, combination: Combination) -> Done {
    let found = combine(call, call.rest(1), combination, usize::MAX)?;
    reply.set(found.len());
    found.iter().for_each(|name| reply.text(name));
    Ok(())
}

fn store(call: &Call<'_>, reply: &mut Reply, combination: Combination) -> Done {
    let key = call.key(1);
    let found = combine(call, call.rest(2), combination, usize::MAX)?;
    reply.count(found.len());
    if found.is_empty() {
        return call.remove_if_there(&key).map(|_| ());
    }
    if let Some(old) = call.head(&key)? {
        call.displace(&key, old)?;
    }
    let collection = call.create(&key, Kind::Set)?;
    for name in &found {
        add(call, collection, name)?;
    }
    call.grow(collection, i64::try_from(found.len()).unwrap_or(i64::MAX))?;
    call.touch(&key)
}

/// `SUNION`
pub fn sunion(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, Combination::Union)
}

/// `SINTER`
pub fn sinter(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, Combination::Intersection)
}

/// `SDIFF`
pub fn sdiff(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, Combination::Difference)
}

/// `SUNIONSTORE`
pub fn sunionstore(call: &Call<'_>, reply: &mut Reply) -> Done {
    store(call, reply, Combination::Union)
}

/// `SINTERSTORE`
pub fn sinterstore(call: &Call<'_>, reply: &mut Reply) -> Done {
    store(call, reply, Combination::Intersection)
}

/// `SDIFFSTORE`
pub fn sdiffstore(call: &Call<'_>, reply: &mut Reply) -> Done {
    store(call, reply, Combination::Difference)
}

/// `SINTERCARD`
pub fn sintercard(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (keys, end) = call.numbered_keys(1)?;
    let limit = limit_of(call, end)?;
    reply.count(combine(call, keys, Combination::Intersection, limit)?.len());
    Ok(())
}

/// Returns the value of the option `LIMIT`. 0 and its absence mean that there is no limit.
pub fn limit_of(call: &Call<'_>, position: usize) -> Done<usize> {
    let mut options = call.options(position);
    let mut limit = 0;
    while !options.is_empty() {
        if !options.take("limit") {
            return Err(texts::SYNTAX.into());
        }
        limit = usize::try_from(options.integer()?).map_err(|_| "ERR LIMIT can't be negative")?;
    }
    Ok(if limit == 0 { usize::MAX } else { limit })
}
