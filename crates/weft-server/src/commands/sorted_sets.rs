//! Commands on single members of sorted sets. [`sorted_ranges`](super::sorted_ranges) has those on ranges, and
//! [`sorted_combinations`](super::sorted_combinations) those on several sets.

use smallvec::SmallVec;

use super::scan::random_element;
use crate::call::Call;
use crate::reply::{Reply, Version};
use crate::stop::{Done, texts};
use crate::store::Key;
use crate::tables::{Kind, Scored, Text, ordered_score, score_of};
use crate::together::Arrived;

/// Returns a member of a sorted set.
pub fn member<'c>(
    call: &Call<'c>,
    collection: Option<u64>,
    name: &[u8],
) -> Done<Option<&'c Scored>> {
    let Some(collection) = collection else { return Ok(None) };
    call.named(&call.store.tables.scores, collection, name)
}

/// Inserts a member that is not there yet.
pub fn insert(call: &Call<'_>, collection: u64, name: Text, score: f64) -> Done {
    let scored = Scored { collection, slot: 0, name, score: ordered_score(score) };
    call.insert_named(&call.store.tables.scores, collection, scored).map(|_| ())
}

/// Removes members that are there, and the key if none is left.
pub fn remove(call: &Call<'_>, key: &Key<'_>, collection: u64, found: &[&Scored]) -> Done {
    for scored in found {
        call.delete_named(&call.store.tables.scores, collection, &scored.name)?;
    }
    if found.is_empty() {
        return Ok(());
    }
    call.grow(collection, -i64::try_from(found.len()).unwrap_or(i64::MAX))?;
    call.remove_if_empty(key, Kind::SortedSet, collection)
}

/// The options of `ZADD`.
#[derive(Default)]
struct Adding {
    if_absent: bool,
    if_there: bool,
    if_greater: bool,
    if_less: bool,
    counts_changes: bool,
    increments: bool,
}

/// What has happened to a member.
enum Outcome {
    Refused,
    Added(f64),
    Changed(f64),
    Same(f64),
}

impl Adding {
    fn put(&self, call: &Call<'_>, collection: u64, name: &[u8], score: f64) -> Done<Outcome> {
        let scores = &call.store.tables.scores;
        let old = match call.locate(scores, collection, name)? {
            Ok(member) => score_of(member.score),
            Err(_) if self.if_there => return Ok(Outcome::Refused),
            Err(slot) => {
                let row =
                    Scored { collection, slot, name: name.into(), score: ordered_score(score) };
                call.tx.insert(scores, row)?;
                return Ok(Outcome::Added(score));
            }
        };
        let score = if self.increments { old + score } else { score };
        if score.is_nan() {
            return Err("ERR resulting score is not a number (NaN)".into());
        }
        let is_refused =
            self.if_absent || self.if_greater && score <= old || self.if_less && score >= old;
        if is_refused {
            return Ok(Outcome::Refused);
        }
        if score == old {
            return Ok(Outcome::Same(score));
        }
        let ordered = ordered_score(score);
        call.change_named(scores, collection, name, |scored| scored.score = ordered)?.ok();
        Ok(Outcome::Changed(score))
    }
}

/// `ZADD`
pub fn zadd(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let mut options = call.options(2);
    let mut adding = Adding::default();
    loop {
        let option = [
            ("nx", &mut adding.if_absent),
            ("xx", &mut adding.if_there),
            ("gt", &mut adding.if_greater),
            ("lt", &mut adding.if_less),
            ("ch", &mut adding.counts_changes),
            ("incr", &mut adding.increments),
        ]
        .into_iter()
        .find(|(word, _)| options.take(word));
        match option {
            Some((_, flag)) => *flag = true,
            None => break,
        }
    }
    let pairs = options.rest();
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(texts::SYNTAX.into());
    }
    if adding.if_absent && adding.if_there {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    let compares = u8::from(adding.if_greater) + u8::from(adding.if_less);
    if compares + u8::from(adding.if_absent) > 1 {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    if adding.increments && pairs.len() > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    let mut scores = Vec::with_capacity(pairs.len() / 2);
    for pair in pairs.chunks_exact(2) {
        scores.push((crate::call::float(pair[0])?, pair[1]));
    }
    let found = call.find(&key, Kind::SortedSet)?;
    if found.is_none() && adding.if_there {
        if adding.increments {
            reply.null()
        } else {
            reply.integer(0)
        }
        return Ok(());
    }
    let collection = found.map_or_else(|| call.create(&key, Kind::SortedSet), Ok)?;
    let (mut added, mut changed, mut result) = (0, 0, None);
    for (score, name) in scores {
        result = match adding.put(call, collection, name, score)? {
            Outcome::Refused => None,
            Outcome::Added(score) => {
                added += 1;
                Some(score)
            }
            Outcome::Changed(score) => {
                changed += 1;
                Some(score)
            }
            Outcome::Same(score) => Some(score),
        };
    }
    if adding.increments {
        call.effects.name_event("zincr");
        match result {
            Some(score) => reply.double(score),
            None => reply.null(),
        }
    } else {
        reply.integer(if adding.counts_changes { added + changed } else { added });
    }
    if added + changed == 0 {
        return Ok(());
    }
    call.grow(collection, added)?;
    call.touch(&key)
}

/// Several `ZADD` of one member each, without options
pub fn zadd_joined(call: &Call<'_>, requests: &[Arrived<'_>], reply: &mut Reply) -> Done {
    let key = call.key(1);
    let mut pairs = SmallVec::<[(f64, &[u8]); 16]>::new();
    for (_, arguments) in requests {
        pairs.push((crate::call::float(arguments[2])?, arguments[3]));
    }
    let collection = call.open(&key, Kind::SortedSet)?;
    let (adding, mut added, mut changed) = (Adding::default(), 0, false);
    for (score, name) in pairs {
        let outcome = adding.put(call, collection, name, score)?;
        let is_new = matches!(outcome, Outcome::Added(_));
        reply.flag(is_new);
        added += i64::from(is_new);
        if is_new || matches!(outcome, Outcome::Changed(_)) {
            changed = true;
            call.note_change(&key);
        }
    }
    if !changed {
        return Ok(());
    }
    call.grow(collection, added)?;
    call.bump(&key)
}

/// `ZINCRBY`
pub fn zincrby(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (key, by, name) = (call.key(1), call.float(2)?, call.argument(3));
    let collection = call.open(&key, Kind::SortedSet)?;
    let adding = Adding { increments: true, ..Adding::default() };
    match adding.put(call, collection, name, by)? {
        Outcome::Added(score) => {
            call.grow(collection, 1)?;
            reply.double(score);
        }
        Outcome::Changed(score) | Outcome::Same(score) => reply.double(score),
        Outcome::Refused => reply.null(),
    }
    call.touch(&key)
}

/// `ZREM`
pub fn zrem(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let Some(collection) = call.find(&key, Kind::SortedSet)? else {
        reply.integer(0);
        return Ok(());
    };
    let mut found = Vec::new();
    for name in call.rest(2) {
        if let Some(scored) = member(call, Some(collection), name)?
            && !found.iter().any(|other: &&Scored| other.name == scored.name)
        {
            found.push(scored);
        }
    }
    reply.count(found.len());
    remove(call, &key, collection, &found)
}

/// `ZCARD`
pub fn zcard(call: &Call<'_>, reply: &mut Reply) -> Done {
    let collection = call.find(&call.key(1), Kind::SortedSet)?;
    reply.integer(collection.map_or(Ok(0), |collection| call.size(collection))?);
    Ok(())
}

fn write_score(reply: &mut Reply, scored: Option<&Scored>) {
    match scored {
        Some(scored) => reply.double(score_of(scored.score)),
        None => reply.null(),
    }
}

/// `ZSCORE`
pub fn zscore(call: &Call<'_>, reply: &mut Reply) -> Done {
    let collection = call.find(&call.key(1), Kind::SortedSet)?;
    write_score(reply, member(call, collection, call.argument(2))?);
    Ok(())
}

/// `ZMSCORE`
pub fn zmscore(call: &Call<'_>, reply: &mut Reply) -> Done {
    let collection = call.find(&call.key(1), Kind::SortedSet)?;
    let names = call.rest(2);
    reply.array(names.len());
    for name in names {
        write_score(reply, member(call, collection, name)?);
    }
    Ok(())
}

fn rank(call: &Call<'_>, reply: &mut Reply, descends: bool) -> Done {
    let collection = call.find(&call.key(1), Kind::SortedSet)?;
    let Some(scored) = member(call, collection, call.argument(2))? else {
        reply.null();
        return Ok(());
    };
    let scores = &call.store.tables.scores;
    let place = (scored.collection, scored.score, scored.name.clone());
    let count = match descends {
        false => {
            let start = (scored.collection, 0, [].into());
            call.tx.range_by(scores, Scored::BY_SCORE, start..place).count_rows()?
        }
        true => {
            let end = (scored.collection + 1, 0, [].into());
            call.tx.range_by(scores, Scored::BY_SCORE, place..end).count_rows()? - 1
        }
    };
    reply.count(count);
    Ok(())
}

/// `ZRANK`
pub fn zrank(call: &Call<'_>, reply: &mut Reply) -> Done {
    rank(call, reply, false)
}

/// `ZREVRANK`
pub fn zrevrank(call: &Call<'_>, reply: &mut Reply) -> Done {
    rank(call, reply, true)
}

/// Removes members from one end.
pub fn pop<'c>(
    call: &Call<'c>,
    key: &Key<'_>,
    collection: u64,
    count: usize,
    takes_greatest: bool,
) -> Done<Vec<&'c Scored>> {
    let mut scan = call.tx.prefix_by(&call.store.tables.scores, Scored::BY_SCORE, &collection);
    if takes_greatest {
        scan = scan.descending();
    }
    let found = scan.take(count).collect::<Result<Vec<_>, weft::Error>>()?;
    call.effects.name_event(if takes_greatest { "zpopmax" } else { "zpopmin" });
    remove(call, key, collection, &found)?;
    Ok(found)
}

fn pop_of_key(call: &Call<'_>, reply: &mut Reply, takes_greatest: bool) -> Done {
    let key = call.key(1);
    if call.len() > 3 {
        return Err(texts::SYNTAX.into());
    }
    let count = match call.len() {
        3 => usize::try_from(call.integer(2)?).map_err(|_| texts::NEGATIVE)?,
        _ => 1,
    };
    let found = match call.find(&key, Kind::SortedSet)? {
        Some(collection) => pop(call, &key, collection, count, takes_greatest)?,
        None => Vec::new(),
    };
    let nests = call.len() == 3 && reply.version() == Version::Three;
    reply.array(if nests { found.len() } else { 2 * found.len() });
    for scored in found {
        if nests {
            reply.array(2);
        }
        reply.text(&scored.name);
        reply.double(score_of(scored.score));
    }
    Ok(())
}

/// `ZPOPMIN`
pub fn zpopmin(call: &Call<'_>, reply: &mut Reply) -> Done {
    pop_of_key(call, reply, false)
}

/// `ZPOPMAX`
pub fn zpopmax(call: &Call<'_>, reply: &mut Reply) -> Done {
    pop_of_key(call, reply, true)
}

/// `ZMPOP`
pub fn zmpop(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (keys, position) = call.numbered_keys(1)?;
    let mut options = call.options(position);
    let takes_greatest = options.take("max");
    if !takes_greatest && !options.take("min") {
        return Err(texts::SYNTAX.into());
    }
    let count = options.last_count()?;
    for name in keys {
        let key = call.key_of(name);
        let Some(collection) = call.find(&key, Kind::SortedSet)? else { continue };
        let found = pop(call, &key, collection, count, takes_greatest)?;
        write_popped_members(reply, name, &found);
        return Ok(());
    }
    reply.null_array();
    Ok(())
}

/// Writes a key and the members that were removed.
pub fn write_popped_members(reply: &mut Reply, name: &[u8], found: &[&Scored]) {
    reply.array(2);
    reply.text(name);
    reply.array(found.len());
    for scored in found {
        reply.array(2);
        reply.text(&scored.name);
        reply.double(score_of(scored.score));
    }
}

/// `ZRANDMEMBER`
pub fn zrandmember(call: &Call<'_>, reply: &mut Reply) -> Done {
    let collection = call.find(&call.key(1), Kind::SortedSet)?;
    if call.len() == 2 {
        let Some(collection) = collection else {
            reply.null();
            return Ok(());
        };
        let found = random_element(call, &call.store.tables.scores, collection)?;
        reply.optional(found.map(|scored| &scored.name));
        return Ok(());
    }
    let count = call.integer(2)?;
    let with_scores = call.len() == 4 && call.is(3, "withscores");
    if call.len() > 4 || call.len() == 4 && !with_scores {
        return Err(texts::SYNTAX.into());
    }
    let members = collection.map_or(Ok(Vec::new()), |collection| call.scored(collection))?;
    let chosen = super::sets::choose(&members, count)?;
    let chosen: Vec<_> =
        chosen.iter().map(|scored| (&scored.name, score_of(scored.score))).collect();
    write_members(reply, &chosen, with_scores);
    Ok(())
}

/// Writes members, with or without their scores.
pub fn write_members(reply: &mut Reply, members: &[(&Text, f64)], with_scores: bool) {
    let nests = with_scores && reply.version() == Version::Three;
    reply.array(if with_scores && !nests { 2 * members.len() } else { members.len() });
    for (name, score) in members {
        if nests {
            reply.array(2);
        }
        reply.text(name);
        if with_scores {
            reply.double(*score);
        }
    }
}
