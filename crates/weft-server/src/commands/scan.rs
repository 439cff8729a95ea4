//! The commands that walk over many keys or elements, a page at a time.
//!
//! Keys and elements are ordered by a hash, and a cursor is the hash with which the next page begins. So every element
//! that is there from the first page to the last is returned, whatever happens to others in the meantime. Elements with
//! equal hashes are on one page. A hash has 48 bits, so a client loses nothing if it keeps a cursor as a number with 53 bits
//! of precision, as JavaScript does.

use weft::{Error, Table};

use crate::call::Call;
use crate::glob;
use crate::named::{NUMBER_BITS_COUNT, Named, slot_of_hash};
use crate::reply::Reply;
use crate::stop::{Done, texts};
use crate::tables::{Kind, score_of};

/// The options of the commands.
struct Page<'c> {
    /// The first slot.
    from: u64,
    pattern: Option<&'c [u8]>,
    count: usize,
    kind: Option<&'c [u8]>,
}

impl<'c> Page<'c> {
    fn parse(call: &Call<'c>, position: usize, takes_kind: bool) -> Done<Self> {
        let cursor = std::str::from_utf8(call.argument(position)).ok();
        let cursor: u64 = cursor.and_then(|text| text.parse().ok()).ok_or(texts::NOT_A_CURSOR)?;
        // Beyond the greatest hash there are no elements.
        let from = cursor.saturating_mul(1 << NUMBER_BITS_COUNT);
        let mut page = Page { from, pattern: None, count: 10, kind: None };
        let mut options = call.options(position + 1);
        while !options.is_empty() {
            if options.take("match") {
                page.pattern = Some(options.next()?);
            } else if options.take("count") {
                let count = usize::try_from(options.integer()?).unwrap_or(0);
                page.count = Some(count).filter(|count| *count > 0).ok_or(texts::SYNTAX)?;
            } else if takes_kind && options.take("type") {
                page.kind = Some(options.next()?);
            } else {
                return Err(texts::SYNTAX.into());
            }
        }
        Ok(page)
    }

    fn wants(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }

    /// Gathers the rows of a page. Also returns the first slot of the next page, or 0 after the last page.
    fn gather<'r, T: Named>(
        &self,
        rows: impl Iterator<Item = Result<&'r T, Error>>,
    ) -> Done<(Vec<&'r T>, u64)> {
        let mut found: Vec<&T> = Vec::new();
        for row in rows {
            let row = row?;
            let is_full = found.len() >= self.count;
            let hash = slot_of_hash(row.slot());
            if is_full && found.last().is_none_or(|last| slot_of_hash(last.slot()) != hash) {
                return Ok((found, hash));
            }
            found.push(row);
        }
        Ok((found, 0))
    }
}

/// Begins the reply: the cursor of the page that begins with the slot `next`, and so many elements.
fn begin(reply: &mut Reply, next: u64, elements: usize) {
    reply.array(2);
    reply.text((next >> NUMBER_BITS_COUNT).to_string());
    reply.array(elements);
}

/// `SCAN`
pub fn scan(call: &Call<'_>, reply: &mut Reply) -> Done {
    let page = Page::parse(call, 1, true)?;
    let heads = &call.store.tables.heads;
    let rows = call.tx.range(heads, range_of_keys(call.space, page.from));
    let (mut found, next) = page.gather(rows)?;
    found.retain(|head| {
        page.wants(&head.key)
            && page.kind.is_none_or(|kind| kind.eq_ignore_ascii_case(head.kind.name().as_bytes()))
            && call.is_live(head)
    });
    begin(reply, next, found.len());
    found.iter().for_each(|head| reply.text(&head.key));
    Ok(())
}

/// Returns the keys of a numbered database from a hash on, as a range of the table.
fn range_of_keys(space: u8, from: u64) -> impl std::ops::RangeBounds<(u8, u64)> {
    (space, from)..(space + 1, 0)
}

/// `KEYS`
pub fn keys(call: &Call<'_>, reply: &mut Reply) -> Done {
    let mut found = Vec::new();
    for head in call.tx.range(&call.store.tables.heads, range_of_keys(call.space, 0)) {
        let head = head?;
        if glob::matches(call.argument(1), &head.key) && call.is_live(head) {
            found.push(&head.key);
        }
    }
    reply.texts(found.into_iter());
    Ok(())
}

/// `RANDOMKEY`
pub fn randomkey(call: &Call<'_>, reply: &mut Reply) -> Done {
    let heads = &call.store.tables.heads;
    for from in [fastrand::u64(..), 0] {
        for head in call.tx.range(heads, range_of_keys(call.space, from)) {
            let head = head?;
            if call.is_live(head) {
                reply.text(&head.key);
                return Ok(());
            }
        }
    }
    reply.null();
    Ok(())
}

/// Returns an element of a hash, a set or a sorted set: the first from a random place on.
pub fn random_element<'c, T>(
    call: &Call<'c>,
    table: &'c Table<T>,
    collection: u64,
) -> Done<Option<&'c T>>
where
    T: Named<Group = u64>,
{
    let from = call.tx.range(table, range_of_elements(collection, fastrand::u64(..)));
    match from.first_row()? {
        Some(element) => Ok(Some(element)),
        None => Ok(call.tx.prefix(table, &collection).first_row()?),
    }
}

/// Returns the elements of a collection from a hash on, as a range of a table.
fn range_of_elements(collection: u64, from: u64) -> impl std::ops::RangeBounds<(u64, u64)> {
    (collection, from)..(collection + 1, 0)
}

/// `HSCAN`
pub fn hscan(call: &Call<'_>, reply: &mut Reply) -> Done {
    let page = Page::parse(call, 2, false)?;
    let Some(collection) = call.find(&call.key(1), Kind::Hash)? else {
        begin(reply, 0, 0);
        return Ok(());
    };
    let fields = &call.store.tables.fields;
    let rows = call.tx.range(fields, range_of_elements(collection, page.from));
    let (mut found, next) = page.gather(rows)?;
    found.retain(|field| page.wants(&field.name));
    begin(reply, next, 2 * found.len());
    for field in found {
        reply.text(&field.name);
        reply.text(field.bytes());
    }
    Ok(())
}

/// `SSCAN`
pub fn sscan(call: &Call<'_>, reply: &mut Reply) -> Done {
    let page = Page::parse(call, 2, false)?;
    let Some(collection) = call.find(&call.key(1), Kind::Set)? else {
        begin(reply, 0, 0);
        return Ok(());
    };
    let members = &call.store.tables.members;
    let rows = call.tx.range(members, range_of_elements(collection, page.from));
    let (mut found, next) = page.gather(rows)?;
    found.retain(|member| page.wants(&member.name));
    begin(reply, next, found.len());
    found.iter().for_each(|member| reply.text(&member.name));
    Ok(())
}

/// `ZSCAN`
pub fn zscan(call: &Call<'_>, reply: &mut Reply) -> Done {
    let page = Page::parse(call, 2, false)?;
    let Some(collection) = call.find(&call.key(1), Kind::SortedSet)? else {
        begin(reply, 0, 0);
        return Ok(());
    };
    let scores = &call.store.tables.scores;
    let rows = call.tx.range(scores, range_of_elements(collection, page.from));
    let (mut found, next) = page.gather(rows)?;
    found.retain(|scored| page.wants(&scored.name));
    begin(reply, next, 2 * found.len());
    for scored in found {
        reply.text(&scored.name);
        reply.text(crate::reply::double_text(score_of(scored.score)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weft::htm::word::Ordering;

    use crate::server::{Options, Server};
    use crate::session::Session;

    /// JavaScript's numbers are exact below this one.
    const EXACT_MAX: u64 = 1 << 53;

    #[test]
    fn cursors_are_exact_numbers_of_javascript() {
        let server = Server::open(Options::default()).unwrap();
        server.store.hash_shift.store(0, Ordering::Relaxed);
        let mut session = Session::of_a_test(&server);
        for number in 0..1000 {
            session.say(&format!("SET name:{number} v"));
            session.say(&format!("HSET hash name:{number} v"));
            session.say(&format!("SADD set name:{number}"));
            session.say(&format!("ZADD sorted 1 name:{number}"));
        }
        for command in ["SCAN", "HSCAN hash", "SSCAN set", "ZSCAN sorted"] {
            let (mut cursor, mut found) = (0, BTreeSet::new());
            loop {
                let reply = session.say(&format!("{command} {cursor} COUNT 7"));
                let names = reply.lines().filter(|line| line.starts_with("name:"));
                found.extend(names.map(str::to_owned));
                cursor = reply.lines().nth(2).unwrap().parse::<u64>().unwrap();
                assert!(cursor < EXACT_MAX, "{command} {cursor}");
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(found.len(), 1000, "{command}");
            // A cursor that is too great for a hash is the end.
            let end = session.say(&format!("{command} {}", u64::MAX));
            assert_eq!(end, "*2\r\n$1\r\n0\r\n*0\r\n", "{command}");
        }
    }
}
