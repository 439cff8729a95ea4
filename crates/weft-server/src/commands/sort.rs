//! `SORT`: the elements of a list, a set or a sorted set in another order, or what other keys say about them.

use std::cmp::Ordering;

use super::lists;
use crate::call::{Call, parse_float};
use crate::reply::Reply;
use crate::stop::{Done, texts};
use crate::store::{Key, bytes_of};
use crate::tables::{Head, Kind, Text};

/// The options of `SORT`.
#[derive(Default)]
struct Sorting<'c> {
    by: Option<&'c [u8]>,
    gets: Vec<&'c [u8]>,
    limit: Option<(i64, i64)>,
    descends: bool,
    by_text: bool,
    store: Option<&'c [u8]>,
}

fn has_star(pattern: &[u8]) -> bool {
    pattern.contains(&b'*')
}

impl<'c> Sorting<'c> {
    fn parse(call: &Call<'c>, stores: bool) -> Done<Self> {
        let (mut options, mut sorting) = (call.options(2), Sorting::default());
        let user = call.caller.user;
        while !options.is_empty() {
            if options.take("asc") {
                sorting.descends = false;
            } else if options.take("desc") {
                sorting.descends = true;
            } else if options.take("alpha") {
                sorting.by_text = true;
            } else if options.take("limit") {
                sorting.limit = Some((options.integer()?, options.integer()?));
            } else if stores && options.take("store") {
                sorting.store = Some(options.next()?);
            } else if options.take("by") {
                let pattern = options.next()?;
                if has_star(pattern) && !user.may_read_all_keys() {
                    return Err(
                        "ERR BY option of SORT denied due to insufficient ACL permissions.".into(),
                    );
                }
                sorting.by = Some(pattern);
            } else if options.take("get") {
                let pattern = options.next()?;
                if !user.may_read_all_keys() {
                    return Err(
                        "ERR GET option of SORT denied due to insufficient ACL permissions.".into(),
                    );
                }
                sorting.gets.push(pattern);
            } else {
                return Err(texts::SYNTAX.into());
            }
        }
        Ok(sorting)
    }

    /// Returns the elements in their order, all of them.
    fn sorted(&self, call: &Call<'c>, head: Option<&Head>) -> Done<Vec<Text>> {
        let Some(head) = head else { return Ok(Vec::new()) };
        let mut elements: Vec<Text> = match head.kind {
            Kind::List => lists::all(call, &call.key(1))?,
            Kind::Set => {
                call.members(head.collection)?.iter().map(|member| member.name.clone()).collect()
            }
            Kind::SortedSet => {
                call.scored(head.collection)?.iter().map(|scored| scored.name.clone()).collect()
            }
            Kind::Text | Kind::Hash | Kind::Stream => return Err(texts::WRONG_TYPE.into()),
        };
        let (mut by, mut by_text) = (self.by, self.by_text);
        if by.is_some_and(|by| !has_star(by)) {
            // A pattern that is the same for all elements asks for no order. A set that is stored gets one all the same.
            if head.kind != Kind::Set || self.store.is_none() {
                if self.descends && head.kind != Kind::Set {
                    elements.reverse();
                }
                return Ok(elements);
            }
            (by, by_text) = (None, true);
        }
        let weight = |element: &Text| match by {
            Some(pattern) => look_up(call, pattern, element),
            None => Ok(Some(element.to_vec())),
        };
        let mut weighted = Vec::with_capacity(elements.len());
        for element in elements {
            let text = weight(&element)?;
            let mut number = 0.0;
            if !by_text && let Some(text) = text.as_ref().filter(|text| !text.is_empty()) {
                let parsed = parse_float(text);
                number = parsed.ok_or("ERR One or more scores can't be converted into double")?;
            }
            weighted.push(Weighted { element, number, text });
        }
        let compare: fn(&Weighted, &Weighted) -> Ordering = match by_text {
            true => |one, other| one.text.cmp(&other.text),
            false => |one, other| {
                let order = one.number.total_cmp(&other.number);
                order.then_with(|| one.element.cmp(&other.element))
            },
        };
        weighted.sort_by(|one, other| {
            let order = compare(one, other);
            if self.descends { order.reverse() } else { order }
        });
        Ok(weighted.into_iter().map(|weighted| weighted.element).collect())
    }

    /// Returns the part of the elements that is asked for.
    fn page(&self, elements: Vec<Text>) -> Vec<Text> {
        let Some((start, count)) = self.limit else { return elements };
        let start = usize::try_from(start).unwrap_or(0);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        elements.into_iter().skip(start).take(count).collect()
    }
}

/// An element, and what it is compared by.
struct Weighted {
    element: Text,
    number: f64,
    text: Option<Vec<u8>>,
}

/// Returns what a pattern says about an element: the string at the key which the pattern is with the element in place of its
/// star, or a field of the hash there if the pattern ends with an arrow and the field's name.
fn look_up(call: &Call<'_>, pattern: &[u8], element: &[u8]) -> Done<Option<Vec<u8>>> {
    if pattern == b"#" {
        return Ok(Some(element.to_vec()));
    }
    let Some(star) = memchr::memchr(b'*', pattern) else { return Ok(None) };
    let after = &pattern[star + 1..];
    let arrow = memchr::memmem::find(after, b"->").filter(|arrow| arrow + 2 < after.len());
    let (after, field) = match arrow {
        Some(arrow) => (&after[..arrow], Some(&after[arrow + 2..])),
        None => (after, None),
    };
    let name = [&pattern[..star], element, after].concat();
    let head = call.head(&Key::new(call.space, &name))?;
    match (head, field) {
        (Some(head), None) if head.kind == Kind::Text => Ok(Some(head.bytes().into_owned())),
        (Some(head), Some(field)) if head.kind == Kind::Hash => {
            let found = call.named(&call.store.tables.fields, head.collection, field)?;
            Ok(found.map(|field| bytes_of(field.number, &field.text).into_owned()))
        }
        _ => Ok(None),
    }
}

fn run(call: &Call<'_>, reply: &mut Reply, stores: bool) -> Done {
    let sorting = Sorting::parse(call, stores)?;
    let elements = sorting.page(sorting.sorted(call, call.head(&call.key(1))?)?);
    let gets = if sorting.gets.is_empty() { &[&b"#"[..]][..] } else { &sorting.gets };
    let mut found = Vec::with_capacity(elements.len() * gets.len());
    for element in &elements {
        for pattern in gets {
            found.push(look_up(call, pattern, element)?);
        }
    }
    let Some(to) = sorting.store else {
        reply.array(found.len());
        found.into_iter().for_each(|text| reply.optional(text));
        return Ok(());
    };
    reply.count(found.len());
    let texts = found.into_iter().map(|text| text.unwrap_or_default().into());
    call.effects.name_event("sortstore");
    lists::replace(call, &call.key_of(to), texts.collect())
}

/// `SORT`
pub fn sort(call: &Call<'_>, reply: &mut Reply) -> Done {
    run(call, reply, true)
}

/// `SORT_RO`
pub fn sort_ro(call: &Call<'_>, reply: &mut Reply) -> Done {
    run(call, reply, false)
}
