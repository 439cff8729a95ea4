//! Commands on lists.
//!
//! The positions of a list's elements follow each other without gaps, so an index leads to its element at once. What is
//! removed or inserted in the middle moves the elements on the shorter side. Eight neighbours share a row.

use std::ops::RangeInclusive;

use smallvec::SmallVec;

use super::strings::part;
use crate::call::{Call, is};
use crate::reply::Reply;
use crate::stop::{Done, texts};
use crate::store::{Key, check_length};
use crate::tables::{Ends, Kind, SECTION, Section, Text};
use crate::together::Arrived;

/// The ends of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The left end.
    Left,
    /// The right end.
    Right,
}

impl End {
    /// Returns the end that an argument names.
    ///
    /// # Errors
    /// It names none.
    pub fn parse(argument: &[u8]) -> Done<Self> {
        if is(argument, "left") {
            Ok(End::Left)
        } else if is(argument, "right") {
            Ok(End::Right)
        } else {
            Err(texts::SYNTAX.into())
        }
    }

    /// Returns the name of the event when an element is removed here.
    fn event_of_pop(self) -> &'static str {
        if self == End::Left { "lpop" } else { "rpop" }
    }
}

const LOST: &str = "ERR a list has lost an element";

/// A list, and the positions of its elements.
#[derive(Clone, Debug)]
pub struct List {
    collection: u64,
    positions: RangeInclusive<i64>,
}

impl List {
    /// Opens the list of a key that exists.
    pub fn find(call: &Call<'_>, key: &Key<'_>) -> Done<Option<Self>> {
        let Some(collection) = call.find(key, Kind::List)? else { return Ok(None) };
        let ends = call.tx.get(&call.store.tables.ends, &collection)?;
        Ok(ends.map(|ends| List { collection, positions: ends.first..=ends.last }))
    }

    fn create(call: &Call<'_>, key: &Key<'_>) -> Done<Self> {
        let collection = call.create(key, Kind::List)?;
        #[allow(clippy::reversed_empty_ranges)]
        Ok(List { collection, positions: 0..=-1 })
    }

    fn len(&self) -> usize {
        let length = self.positions.end() - self.positions.start() + 1;
        usize::try_from(length).unwrap_or(0)
    }

    /// Returns the position of an index that is within the list.
    fn position(&self, index: usize) -> i64 {
        self.positions.start().saturating_add_unsigned(index as u64)
    }

    /// Returns the position of an index, which is counted from the end if it is below zero.
    fn position_of(&self, index: i64) -> Option<i64> {
        let end = if index < 0 { self.positions.end() + 1 } else { *self.positions.start() };
        end.checked_add(index).filter(|position| self.positions.contains(position))
    }

    fn text<'c>(&self, call: &Call<'c>, position: i64) -> Done<&'c Text> {
        let key = (self.collection, position.div_euclid(SECTION));
        let section = call.tx.get(&call.store.tables.items, &key)?;
        let text = section
            .and_then(|section| section.texts()[position.rem_euclid(SECTION) as usize].as_ref());
        Ok(text.ok_or(LOST)?)
    }

    fn texts<'c>(&self, call: &Call<'c>, part: RangeInclusive<i64>) -> Done<Vec<&'c Text>> {
        let key = |position: i64| (self.collection, position.div_euclid(SECTION));
        let range = key(*part.start())..=key(*part.end());
        let mut texts = Vec::new();
        for section in call.tx.range(&call.store.tables.items, range) {
            let section: &'c Section = section?;
            let positions = section.number * SECTION..;
            let found = positions.zip(section.texts());
            texts.extend(
                found.filter(|(at, _)| part.contains(at)).filter_map(|(_, text)| text.as_ref()),
            );
        }
        Ok(texts)
    }

    /// Changes the element at a position of a section that is there. Removes the section if no element is left.
    fn change<R>(
        &self,
        call: &Call<'_>,
        position: i64,
        change: impl FnOnce(&mut Option<Text>) -> R,
    ) -> Done<Option<R>> {
        let items = &call.store.tables.items;
        let key = (self.collection, position.div_euclid(SECTION));
        let changed = call.tx.update(items, &key, |section| {
            let result = change(section.text_mut(position));
            (result, section.texts().iter().all(|text| text.is_none()))
        })?;
        let Some((result, is_empty)) = changed else { return Ok(None) };
        if is_empty {
            call.tx.delete(items, &key)?;
        }
        Ok(Some(result))
    }

    /// Sets the element at a position.
    fn put(&self, call: &Call<'_>, position: i64, text: Text) -> Done {
        let mut text = Some(text);
        let put = |section: &mut Section| *section.text_mut(position) = text.take();
        self.fill_section(call, position.div_euclid(SECTION), put)
    }

    /// Removes the elements at these positions.
    fn clear(&self, call: &Call<'_>, part: RangeInclusive<i64>) -> Done {
        let (start, end) = (*part.start(), *part.end());
        // The sections that lie within the part as a whole.
        let (first, last) =
            ((start + SECTION - 1).div_euclid(SECTION), (end + 1).div_euclid(SECTION) - 1);
        if first <= last {
            let whole = (self.collection, first)..=(self.collection, last);
            call.tx.delete_range(&call.store.tables.items, whole)?;
        }
        let is_whole = |position: &i64| (first..=last).contains(&position.div_euclid(SECTION));
        let before = start..=end.min(start + SECTION);
        let after = (end - SECTION).max(start + SECTION + 1)..=end;
        let mut rest = before.chain(after).filter(|position| !is_whole(position));
        rest.try_for_each(|position| self.change(call, position, Option::take).map(drop))
    }

    /// Adds elements at an end, one after the other. A row is written once for all that it gets.
    fn push<T: Clone + Into<Text>>(&mut self, call: &Call<'_>, end: End, texts: &[T]) -> Done {
        call.effects.name_event(if end == End::Left { "lpush" } else { "rpush" });
        let mut rest = texts;
        while !rest.is_empty() {
            let (start, last) = (*self.positions.start(), *self.positions.end());
            let (next, room) = match end {
                End::Left => (start - 1, (start - 1).rem_euclid(SECTION) + 1),
                End::Right => (last + 1, SECTION - (last + 1).rem_euclid(SECTION)),
            };
            let (now, later) = rest.split_at(rest.len().min(room.unsigned_abs() as usize));
            self.put_in_section(call, end, next, now)?;
            let added = i64::try_from(now.len()).unwrap_or(0);
            self.positions = match end {
                End::Left => start - added..=last,
                End::Right => start..=last + added,
            };
            rest = later;
        }
        Ok(())
    }

    /// Sets the elements from a position on, to the left or to the right, which are all of one section.
    fn put_in_section<T: Clone + Into<Text>>(
        &self,
        call: &Call<'_>,
        end: End,
        position: i64,
        texts: &[T],
    ) -> Done {
        self.fill_section(call, position.div_euclid(SECTION), |section| {
            for (text, distance) in texts.iter().zip(0..) {
                let at = if end == End::Left { position - distance } else { position + distance };
                *section.text_mut(at) = Some(text.clone().into());
            }
        })
    }

    /// Sets elements of a section, which is inserted if it is not there.
    fn fill_section(
        &self,
        call: &Call<'_>,
        number: i64,
        mut fill: impl FnMut(&mut Section),
    ) -> Done {
        let (items, collection) = (&call.store.tables.items, self.collection);
        if call.tx.update(items, &(collection, number), &mut fill)?.is_none() {
            let mut section = Section { collection, number, ..Section::default() };
            fill(&mut section);
            call.tx.insert(items, section)?;
        }
        Ok(())
    }

    /// Removes and returns the element at an end.
    pub fn pop(&mut self, call: &Call<'_>, end: End) -> Done<Option<Text>> {
        if self.len() == 0 {
            return Ok(None);
        }
        let (start, last) = (*self.positions.start(), *self.positions.end());
        let (position, rest) = match end {
            End::Left => (start, start + 1..=last),
            End::Right => (last, start..=last - 1),
        };
        call.effects.name_event(end.event_of_pop());
        let text = self.change(call, position, Option::take)?.flatten();
        self.positions = rest;
        Ok(Some(text.ok_or(LOST)?))
    }

    /// Keeps these elements, which are in order, of those at the positions of `part`. Moves elements so that there is no
    /// gap.
    fn keep(&mut self, call: &Call<'_>, part: RangeInclusive<i64>, kept: &[Text]) -> Done {
        let (start, last) = (*part.start(), *part.end());
        let removed = last - start + 1 - i64::try_from(kept.len()).unwrap_or(0);
        if removed == 0 {
            return Ok(());
        }
        let before = start - self.positions.start();
        let after = self.positions.end() - last;
        let (from, to) = (*self.positions.start(), *self.positions.end());
        // The elements of the shorter side are written again, next to those that are kept.
        if before < after {
            let mut texts: Vec<Text> = Vec::new();
            if before > 0 {
                texts = self.texts(call, from..=start - 1)?.into_iter().cloned().collect();
            }
            texts.extend_from_slice(kept);
            self.positions = from + removed..=to;
            for (position, text) in (from + removed..).zip(texts) {
                self.put(call, position, text)?;
            }
            self.clear(call, from..=from + removed - 1)?;
        } else {
            let mut texts = kept.to_vec();
            if after > 0 {
                texts.extend(self.texts(call, last + 1..=to)?.into_iter().cloned());
            }
            self.positions = from..=to - removed;
            for (position, text) in (start..).zip(texts) {
                self.put(call, position, text)?;
            }
            self.clear(call, to - removed + 1..=to)?;
        }
        Ok(())
    }

    /// Ends a change: writes where the list begins and ends, or removes the key if the list is empty.
    pub fn end(&self, call: &Call<'_>, key: &Key<'_>) -> Done {
        if self.len() == 0 {
            return call.remove_if_empty(key, Kind::List, self.collection);
        }
        let (first, last) = (*self.positions.start(), *self.positions.end());
        let ends = &call.store.tables.ends;
        let there = call.tx.update(ends, &self.collection, |ends| {
            (ends.first, ends.last) = (first, last);
        })?;
        if there.is_none() {
            call.tx.insert(ends, Ends { collection: self.collection, first, last })?;
        }
        call.touch(key)
    }
}

/// Returns all elements of a list.
pub fn all(call: &Call<'_>, key: &Key<'_>) -> Done<Vec<Text>> {
    let Some(list) = List::find(call, key)? else { return Ok(Vec::new()) };
    Ok(list.texts(call, list.positions.clone())?.into_iter().cloned().collect())
}

/// Replaces whatever a key has by a list of these elements. Without elements the key is removed.
pub fn replace(call: &Call<'_>, key: &Key<'_>, texts: Vec<Text>) -> Done {
    let old = call.head(key)?;
    if texts.is_empty() {
        return old.map_or(Ok(()), |old| call.remove(key, old));
    }
    if let Some(old) = old {
        call.displace(key, old)?;
    }
    let event = call.effects.event_name();
    let mut list = List::create(call, key)?;
    texts.iter().try_for_each(|text| check_length(text.len()))?;
    list.push(call, End::Right, &texts)?;
    if let Some(event) = event {
        call.effects.name_event(event);
    }
    list.end(call, key)
}

fn push(call: &Call<'_>, reply: &mut Reply, end: End, creates: bool) -> Done {
    let key = call.key(1);
    let mut list = match List::find(call, &key)? {
        Some(list) => list,
        None if creates => List::create(call, &key)?,
        None => {
            reply.integer(0);
            return Ok(());
        }
    };
    call.rest(2).iter().try_for_each(|text| check_length(text.len()))?;
    list.push(call, end, call.rest(2))?;
    reply.count(list.len());
    list.end(call, &key)
}

/// Pushes the last argument of each request, as if they came one after the other.
fn push_joined(call: &Call<'_>, requests: &[Arrived<'_>], reply: &mut Reply, end: End) -> Done {
    let key = call.key(1);
    let texts = requests.iter().filter_map(|(_, arguments)| arguments.last());
    let texts: SmallVec<[&[u8]; 16]> = texts.copied().collect();
    texts.iter().try_for_each(|text| check_length(text.len()))?;
    let mut list = match List::find(call, &key)? {
        Some(list) => list,
        None => List::create(call, &key)?,
    };
    let before = list.len();
    list.push(call, end, &texts)?;
    (1..=texts.len()).for_each(|pushed| reply.count(before + pushed));
    // Each of them is an event, and `end` notes one.
    texts.iter().skip(1).for_each(|_| call.note_change(&key));
    list.end(call, &key)
}

/// Several `LPUSH` of one element each
pub fn lpush_joined(call: &Call<'_>, requests: &[Arrived<'_>], reply: &mut Reply) -> Done {
    push_joined(call, requests, reply, End::Left)
}

/// Several `RPUSH` of one element each
pub fn rpush_joined(call: &Call<'_>, requests: &[Arrived<'_>], reply: &mut Reply) -> Done {
    push_joined(call, requests, reply, End::Right)
}

/// `LPUSH`
pub fn lpush(call: &Call<'_>, reply: &mut Reply) -> Done {
    push(call, reply, End::Left, true)
}

/// `RPUSH`
pub fn rpush(call: &Call<'_>, reply: &mut Reply) -> Done {
    push(call, reply, End::Right, true)
}

/// `LPUSHX`
pub fn lpushx(call: &Call<'_>, reply: &mut Reply) -> Done {
    push(call, reply, End::Left, false)
}

/// `RPUSHX`
pub fn rpushx(call: &Call<'_>, reply: &mut Reply) -> Done {
    push(call, reply, End::Right, false)
}

fn pop(call: &Call<'_>, reply: &mut Reply, end: End) -> Done {
    let key = call.key(1);
    if call.len() > 3 {
        return Err(texts::SYNTAX.into());
    }
    let count = match call.len() {
        3 => Some(usize::try_from(call.integer(2)?).map_err(|_| texts::NEGATIVE)?),
        _ => None,
    };
    let Some(mut list) = List::find(call, &key)? else {
        if count.is_some() {
            reply.null_array()
        } else {
            reply.null()
        }
        return Ok(());
    };
    if let Some(count) = count {
        reply.array(count.min(list.len()));
    }
    for _ in 0..count.unwrap_or(1).min(list.len()) {
        reply.optional(list.pop(call, end)?);
    }
    list.end(call, &key)
}

/// Removes an element for each request, as if they came one after the other.
fn pop_joined(call: &Call<'_>, requests: &[Arrived<'_>], reply: &mut Reply, end: End) -> Done {
    let key = call.key(1);
    let mut list = List::find(call, &key)?;
    let popped = list.as_ref().map_or(0, List::len).min(requests.len());
    for request in 0..requests.len() {
        match &mut list {
            Some(list) if request < popped => reply.optional(list.pop(call, end)?),
            _ => reply.null(),
        }
    }
    let Some(list) = list else { return Ok(()) };
    // Each of them is an event, and `end` notes one.
    (1..popped).for_each(|_| call.note_change(&key));
    list.end(call, &key)
}

/// Several `LPOP` of one element each
pub fn lpop_joined(call: &Call<'_>, requests: &[Arrived<'_>], reply: &mut Reply) -> Done {
    pop_joined(call, requests, reply, End::Left)
}

/// Several `RPOP` of one element each
pub fn rpop_joined(call: &Call<'_>, requests: &[Arrived<'_>], reply: &mut Reply) -> Done {
    pop_joined(call, requests, reply, End::Right)
}

/// `LPOP`
pub fn lpop(call: &Call<'_>, reply: &mut Reply) -> Done {
    pop(call, reply, End::Left)
}

/// `RPOP`
pub fn rpop(call: &Call<'_>, reply: &mut Reply) -> Done {
    pop(call, reply, End::Right)
}

/// `LMPOP`
pub fn lmpop(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (keys, position) = call.numbered_keys(1)?;
    let mut options = call.options(position);
    let end = End::parse(options.next()?)?;
    let count = options.last_count()?;
    for name in keys {
        let key = call.key_of(name);
        let Some(mut list) = List::find(call, &key)? else { continue };
        write_popped(call, reply, name, &mut list, end, count)?;
        return list.end(call, &key);
    }
    reply.null_array();
    Ok(())
}

/// Removes and writes up to `count` elements at an end of a list.
pub fn write_popped(
    call: &Call<'_>,
    reply: &mut Reply,
    name: &[u8],
    list: &mut List,
    end: End,
    count: usize,
) -> Done {
    let count = count.min(list.len());
    reply.array(2);
    reply.text(name);
    reply.array(count);
    for _ in 0..count {
        reply.optional(list.pop(call, end)?);
    }
    Ok(())
}

/// `LLEN`
pub fn llen(call: &Call<'_>, reply: &mut Reply) -> Done {
    reply.count(List::find(call, &call.key(1))?.map_or(0, |list| list.len()));
    Ok(())
}

/// `LINDEX`
pub fn lindex(call: &Call<'_>, reply: &mut Reply) -> Done {
    let index = call.integer(2)?;
    let list = List::find(call, &call.key(1))?;
    let place = list.and_then(|list| list.position_of(index).map(|position| (list, position)));
    match place {
        Some((list, position)) => reply.text(list.text(call, position)?),
        None => reply.null(),
    }
    Ok(())
}

/// `LRANGE`
pub fn lrange(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let list = List::find(call, &call.key(1))?;
    let found = match &list {
        Some(list) => match part(start, end, list.len()) {
            Some((start, end)) => list.texts(call, list.position(start)..=list.position(end))?,
            None => Vec::new(),
        },
        None => Vec::new(),
    };
    reply.texts(found.iter());
    Ok(())
}

/// `LSET`
pub fn lset(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let index = call.integer(2)?;
    let list = List::find(call, &key)?.ok_or(texts::NO_SUCH_KEY)?;
    let position = list.position_of(index).ok_or(texts::OUT_OF_RANGE)?;
    list.put(call, position, call.argument(3).into())?;
    reply.ok();
    call.touch(&key)
}

/// `LTRIM`
pub fn ltrim(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    reply.ok();
    let Some(mut list) = List::find(call, &key)? else { return Ok(()) };
    let (first, last) = (*list.positions.start(), *list.positions.end());
    match part(start, end, list.len()) {
        None => {
            list.clear(call, first..=last)?;
            #[allow(clippy::reversed_empty_ranges)]
            let none = 0..=-1;
            list.positions = none;
        }
        Some((start, end)) => {
            let (start, end) = (list.position(start), list.position(end));
            list.clear(call, first..=start - 1)?;
            list.clear(call, end + 1..=last)?;
            list.positions = start..=end;
        }
    }
    list.end(call, &key)
}

/// `LREM`
pub fn lrem(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let (count, unwanted) = (call.integer(2)?, call.argument(3));
    let Some(mut list) = List::find(call, &key)? else {
        reply.integer(0);
        return Ok(());
    };
    let limit = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let items = list.texts(call, list.positions.clone())?;
    let mut unwanted_at: Vec<usize> = Vec::new();
    let mut note = |at: usize| {
        if (unwanted_at.len() as u64) < limit && **items[at] == *unwanted {
            unwanted_at.push(at);
        }
    };
    match count < 0 {
        true => (0..items.len()).rev().for_each(&mut note),
        false => (0..items.len()).for_each(&mut note),
    }
    unwanted_at.sort_unstable();
    reply.count(unwanted_at.len());
    let (Some(first), Some(last)) = (unwanted_at.first(), unwanted_at.last()) else {
        return Ok(());
    };
    let kept: Vec<Text> = (*first..=*last)
        .filter(|at| unwanted_at.binary_search(at).is_err())
        .map(|at| items[at].clone())
        .collect();
    let part = list.position(*first)..=list.position(*last);
    list.keep(call, part, &kept)?;
    list.end(call, &key)
}

/// `LINSERT`
pub fn linsert(call: &Call<'_>, reply: &mut Reply) -> Done {
    let key = call.key(1);
    let is_before = call.is(2, "before");
    if !is_before && !call.is(2, "after") {
        return Err(texts::SYNTAX.into());
    }
    let pivot = call.argument(3);
    let Some(mut list) = List::find(call, &key)? else {
        reply.integer(0);
        return Ok(());
    };
    let items = list.texts(call, list.positions.clone())?;
    let Some(found) = items.iter().position(|text| ***text == *pivot) else {
        reply.integer(-1);
        return Ok(());
    };
    let at = if is_before { found } else { found + 1 };
    // The elements of the shorter side move by one.
    let text: Text = call.argument(4).into();
    if at < items.len() - at {
        let first = items[0].clone();
        let mut position = *list.positions.start();
        if at == 0 {
            list.push(call, End::Left, &[text])?;
        } else {
            list.push(call, End::Left, &[first])?;
            for item in &items[1..at] {
                list.put(call, position, (*item).clone())?;
                position += 1;
            }
            list.put(call, position, text)?;
        }
    } else if at == items.len() {
        list.push(call, End::Right, &[text])?;
    } else {
        let last = items[items.len() - 1].clone();
        let mut position = list.position(at);
        list.push(call, End::Right, &[last])?;
        list.put(call, position, text)?;
        for item in &items[at..items.len() - 1] {
            position += 1;
            list.put(call, position, (*item).clone())?;
        }
    }
    call.effects.name_event("linsert");
    reply.count(list.len());
    list.end(call, &key)
}

/// `LPOS`
pub fn lpos(call: &Call<'_>, reply: &mut Reply) -> Done {
    let wanted = call.argument(2);
    let (mut rank, mut count, mut length_max) = (1, None, 0);
    let mut options = call.options(3);
    while !options.is_empty() {
        if options.take("rank") {
            rank = options.integer()?;
            if rank == 0 || rank == i64::MIN {
                return Err("ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                            or use negative to start from the end of the list"
                    .into());
            }
        } else if options.take("count") {
            let number = options.integer()?;
            count = Some(usize::try_from(number).map_err(|_| "ERR COUNT can't be negative")?);
        } else if options.take("maxlen") {
            let number = options.integer()?;
            length_max = usize::try_from(number).map_err(|_| "ERR MAXLEN can't be negative")?;
        } else {
            return Err(texts::SYNTAX.into());
        }
    }
    let items = match List::find(call, &call.key(1))? {
        Some(list) => list.texts(call, list.positions.clone())?,
        None => Vec::new(),
    };
    let limit = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let length_max = if length_max == 0 { usize::MAX } else { length_max };
    let skipped = usize::try_from(rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let is_wanted = |at: &usize| **items[*at] == *wanted;
    let found: Vec<usize> = match rank < 0 {
        true => {
            let places = (0..items.len()).rev().take(length_max);
            places.filter(is_wanted).skip(skipped).take(limit).collect()
        }
        false => {
            let places = (0..items.len()).take(length_max);
            places.filter(is_wanted).skip(skipped).take(limit).collect()
        }
    };
    match (count, found.first()) {
        (Some(_), _) => {
            reply.array(found.len());
            found.iter().for_each(|at| reply.count(*at));
        }
        (None, Some(at)) => reply.count(*at),
        (None, None) => reply.null(),
    }
    Ok(())
}

/// Moves an element, and writes it. Returns whether there was one.
pub fn move_between(call: &Call<'_>, reply: &mut Reply, from: End, to: End) -> Done<bool> {
    let (source, destination) = (call.key(1), call.key(2));
    let Some(mut list) = List::find(call, &source)? else { return Ok(false) };
    call.expect(&destination, Kind::List)?;
    let Some(text) = list.pop(call, from)? else { return Ok(false) };
    reply.text(&text);
    if source.bytes == destination.bytes {
        list.push(call, to, &[text])?;
        list.end(call, &source)?;
        return Ok(true);
    }
    let mut target = match List::find(call, &destination)? {
        Some(target) => target,
        None => List::create(call, &destination)?,
    };
    target.push(call, to, &[text])?;
    target.end(call, &destination)?;
    call.effects.name_event(from.event_of_pop());
    list.end(call, &source)?;
    Ok(true)
}

fn move_element(call: &Call<'_>, reply: &mut Reply, from: End, to: End) -> Done {
    if !move_between(call, reply, from, to)? {
        reply.null();
    }
    Ok(())
}

/// `LMOVE`
pub fn lmove(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (from, to) = (End::parse(call.argument(3))?, End::parse(call.argument(4))?);
    move_element(call, reply, from, to)
}

/// `RPOPLPUSH`
pub fn rpoplpush(call: &Call<'_>, reply: &mut Reply) -> Done {
    move_element(call, reply, End::Right, End::Left)
}

#[cfg(test)]
mod tests {
    use super::SECTION;
    use crate::server::{Options, Server};
    use crate::session::Session;

    /// Lists of some sections are changed at random, beside a vector.
    #[test]
    fn lists_have_the_elements_of_a_vector() {
        let seed = fastrand::u64(..);
        eprintln!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let server = Server::open(Options::default()).unwrap();
        let mut session = Session::of_a_test(&server);
        let mut say = |command: &str| session.say(command);
        let (sections, mut model) = (&server.store.tables.items, Vec::<u8>::new());
        for _ in 0..3000 {
            let (value, length) = (random.u8(..20), model.len());
            let at = random.usize(..length.max(1));
            match random.u8(..12) {
                0..3 => {
                    say(&format!("LPUSH list {value}"));
                    model.insert(0, value);
                }
                3..6 => {
                    say(&format!("RPUSH list {value}"));
                    model.push(value);
                }
                6 if length > 0 => {
                    let count = random.usize(1..6).min(length);
                    say(&format!("LPOP list {count}"));
                    model.drain(..count);
                }
                7 if length > 0 => {
                    let count = random.usize(1..6).min(length);
                    say(&format!("RPOP list {count}"));
                    model.truncate(length - count);
                }
                8 if length > 0 => {
                    let pivot = model[at];
                    say(&format!("LINSERT list BEFORE {pivot} {value}"));
                    let at = model.iter().position(|value| *value == pivot).unwrap();
                    model.insert(at, value);
                }
                9 if length > 0 => {
                    say(&format!("LSET list {at} {value}"));
                    model[at] = value;
                }
                10 => {
                    say(&format!("LREM list 0 {value}"));
                    model.retain(|other| *other != value);
                }
                11 if length > 60 => {
                    let end = random.usize(at..length);
                    say(&format!("LTRIM list {at} {end}"));
                    model = model[at..=end].to_vec();
                }
                _ => continue,
            }
            let texts = model.iter().map(|value| {
                let value = value.to_string();
                format!("${}\r\n{value}\r\n", value.len())
            });
            let expected = format!("*{}\r\n{}", model.len(), texts.collect::<String>());
            assert_eq!(say("LRANGE list 0 -1"), expected);
            assert_eq!(say("LLEN list"), format!(":{}\r\n", model.len()));
            let rows = server.database.transact(|tx| tx.range(sections, ..).count_rows()).unwrap();
            assert!(rows <= model.len() / SECTION as usize + 2 && (rows == 0) == model.is_empty());
        }
    }
}
