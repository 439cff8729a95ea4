//! Commands that wait for an element of a list or a sorted set. In a transaction of several commands they do not wait.

use std::time::Duration;

use super::lists::{End, List, move_between, write_popped};
use super::sorted_sets::{pop, write_popped_members};
use crate::call::{Call, parse_float};
use crate::reply::Reply;
use crate::stop::{Done, texts};
use crate::tables::{Kind, score_of};
use crate::waiting::{Line, Wait};

/// Returns the time that an argument gives in seconds; `None` for ever.
fn timeout(argument: &[u8]) -> Done<Option<Duration>> {
    let seconds = parse_float(argument).ok_or("ERR timeout is not a float or out of range")?;
    if seconds < 0.0 {
        return Err("ERR timeout is negative".into());
    }
    let timeout = Duration::try_from_secs_f64(seconds);
    let timeout = timeout.map_err(|_| "ERR timeout is out of range")?;
    Ok(Some(timeout).filter(|timeout| !timeout.is_zero()))
}

/// Waits for any of some keys.
fn wait(call: &Call<'_>, names: &[&[u8]], line: Line, timeout: Option<Duration>) {
    let places = names.iter().map(|name| ((*name).into(), line.clone())).collect();
    call.effects.wait(Wait { places, timeout, arguments: None });
}

/// Removes elements of the first list that has any, if it is this client's turn at the list.
fn pop_list<'c>(
    call: &Call<'c>,
    names: &[&'c [u8]],
    take: impl FnOnce(&'c [u8], &mut List) -> Done,
) -> Done<bool> {
    for name in names {
        let key = call.key_of(name);
        if !call.has_turn(name, &Line::List) || call.waits_for_other(&key, Kind::List)? {
            continue;
        }
        let Some(mut list) = List::find(call, &key)? else { continue };
        take(name, &mut list)?;
        list.end(call, &key)?;
        return Ok(true);
    }
    Ok(false)
}

fn pop_end(call: &Call<'_>, reply: &mut Reply, end: End) -> Done {
    let (last, names) = call.rest(1).split_last().ok_or(texts::SYNTAX)?;
    let timeout = timeout(last)?;
    let found = pop_list(call, names, |name, list| {
        reply.array(2);
        reply.text(name);
        reply.optional(list.pop(call, end)?);
        Ok(())
    })?;
    if !found {
        reply.null_array();
        wait(call, names, Line::List, timeout);
    }
    Ok(())
}

/// `BLPOP`
pub fn blpop(call: &Call<'_>, reply: &mut Reply) -> Done {
    pop_end(call, reply, End::Left)
}

/// `BRPOP`
pub fn brpop(call: &Call<'_>, reply: &mut Reply) -> Done {
    pop_end(call, reply, End::Right)
}

/// `BLMPOP`
pub fn blmpop(call: &Call<'_>, reply: &mut Reply) -> Done {
    let timeout = timeout(call.argument(1))?;
    let (names, position) = call.numbered_keys(2)?;
    let mut options = call.options(position);
    let end = End::parse(options.next()?)?;
    let count = options.last_count()?;
    let found =
        pop_list(call, names, |name, list| write_popped(call, reply, name, list, end, count))?;
    if !found {
        reply.null_array();
        wait(call, names, Line::List, timeout);
    }
    Ok(())
}

fn move_element(call: &Call<'_>, reply: &mut Reply, from: End, to: End, time: usize) -> Done {
    let timeout = timeout(call.argument(time))?;
    let name = call.argument(1);
    let can_move = call.has_turn(name, &Line::List)
        && !call.waits_for_other(&call.key_of(name), Kind::List)?
        && move_between(call, reply, from, to)?;
    if !can_move {
        reply.null();
        wait(call, &[name], Line::List, timeout);
    }
    Ok(())
}

/// `BLMOVE`
pub fn blmove(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (from, to) = (End::parse(call.argument(3))?, End::parse(call.argument(4))?);
    move_element(call, reply, from, to, 5)
}

/// `BRPOPLPUSH`
pub fn brpoplpush(call: &Call<'_>, reply: &mut Reply) -> Done {
    move_element(call, reply, End::Right, End::Left, 3)
}

/// Returns the first sorted set that has members, with its collection, if it is this client's turn at it.
fn find_sorted_set<'c>(call: &Call<'c>, names: &[&'c [u8]]) -> Done<Option<(&'c [u8], u64)>> {
    for name in names {
        let key = call.key_of(name);
        if call.has_turn(name, &Line::SortedSet)
            && !call.waits_for_other(&key, Kind::SortedSet)?
            && let Some(collection) = call.find(&key, Kind::SortedSet)?
        {
            return Ok(Some((name, collection)));
        }
    }
    Ok(None)
}

fn pop_score(call: &Call<'_>, reply: &mut Reply, takes_greatest: bool) -> Done {
    let (last, names) = call.rest(1).split_last().ok_or(texts::SYNTAX)?;
    let timeout = timeout(last)?;
    let Some((name, collection)) = find_sorted_set(call, names)? else {
        reply.null_array();
        wait(call, names, Line::SortedSet, timeout);
        return Ok(());
    };
    for scored in pop(call, &call.key_of(name), collection, 1, takes_greatest)? {
        reply.array(3);
        reply.text(name);
        reply.text(&scored.name);
        reply.double(score_of(scored.score));
    }
    Ok(())
}

/// `BZPOPMIN`
pub fn bzpopmin(call: &Call<'_>, reply: &mut Reply) -> Done {
    pop_score(call, reply, false)
}

/// `BZPOPMAX`
pub fn bzpopmax(call: &Call<'_>, reply: &mut Reply) -> Done {
    pop_score(call, reply, true)
}

/// `BZMPOP`
pub fn bzmpop(call: &Call<'_>, reply: &mut Reply) -> Done {
    let timeout = timeout(call.argument(1))?;
    let (names, position) = call.numbered_keys(2)?;
    let mut options = call.options(position);
    let takes_greatest = options.take("max");
    if !takes_greatest && !options.take("min") {
        return Err(texts::SYNTAX.into());
    }
    let count = options.last_count()?;
    match find_sorted_set(call, names)? {
        Some((name, collection)) => {
            let found = pop(call, &call.key_of(name), collection, count, takes_greatest)?;
            write_popped_members(reply, name, &found);
        }
        None => {
            reply.null_array();
            wait(call, names, Line::SortedSet, timeout);
        }
    }
    Ok(())
}
