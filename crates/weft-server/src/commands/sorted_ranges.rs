//! Commands on ranges of sorted sets: by rank, by score, or by member.

use std::ops::Bound;

use weft::{Error, Scan};

use super::sorted_sets::{insert, remove, write_members};
use super::strings::part;
use crate::call::{Call, parse_float};
use crate::reply::Reply;
use crate::stop::{Done, texts};
use crate::store::Key;
use crate::tables::{Kind, Scored, Text, ordered_score, score_of};

/// A range of members.
#[derive(Clone, Debug)]
enum Range {
    /// From one rank to another, both counted from the end if they are below zero.
    Ranks(i64, i64),
    /// From one score to another.
    Scores(Bound<f64>, Bound<f64>),
    /// From one member to another, where all have the same score.
    Names(Bound<Text>, Bound<Text>),
}

/// How a range is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Name,
}

fn score_bound(argument: &[u8]) -> Done<Bound<f64>> {
    match argument {
        [b'(', rest @ ..] => Ok(Bound::Excluded(parse_float(rest).ok_or(texts::NOT_A_RANGE)?)),
        whole => Ok(Bound::Included(parse_float(whole).ok_or(texts::NOT_A_RANGE)?)),
    }
}

/// Returns the end of a range of members. `None` is before all of them or after all of them: the first argument says on
/// which side that is no bound.
fn name_bound(argument: &[u8], unbounded: u8) -> Done<Option<Bound<Text>>> {
    match argument {
        [b'(', rest @ ..] => Ok(Some(Bound::Excluded(rest.into()))),
        [b'[', rest @ ..] => Ok(Some(Bound::Included(rest.into()))),
        [sign] if *sign == unbounded => Ok(Some(Bound::Unbounded)),
        [b'+' | b'-'] => Ok(None),
        _ => Err(texts::NOT_A_LEX_RANGE.into()),
    }
}

impl Range {
    fn parse(by: By, start: &[u8], end: &[u8]) -> Done<Self> {
        match by {
            By::Rank => Ok(Range::Ranks(crate::call::integer(start)?, crate::call::integer(end)?)),
            By::Score => Ok(Range::Scores(score_bound(start)?, score_bound(end)?)),
            By::Name => match (name_bound(start, b'-')?, name_bound(end, b'+')?) {
                (Some(start), Some(end)) => Ok(Range::Names(start, end)),
                // It begins behind all members, or ends before them.
                _ => Ok(Range::Ranks(1, 0)),
            },
        }
    }

    /// Returns the members that lie in the range, without `offset` of them at its start, and at most `limit`.
    fn gather<'c>(
        &self,
        call: &Call<'c>,
        collection: u64,
        descends: bool,
        (offset, limit): (usize, usize),
    ) -> Done<Vec<&'c Scored>> {
        let (tx, scores) = (call.tx, &call.store.tables.scores);
        let whole = || tx.prefix_by(scores, Scored::BY_SCORE, &collection);
        let turned = |scan: Scan<'c, 'c, Scored>| if descends { scan.descending() } else { scan };
        let found = match self {
            Range::Ranks(start, end) => {
                let size = usize::try_from(call.size(collection)?).unwrap_or(0);
                let Some((start, end)) = part(*start, *end, size) else { return Ok(Vec::new()) };
                let scan = turned(whole()).skip(start).take(end + 1 - start);
                scan.skip(offset).take(limit).collect::<Result<_, Error>>()
            }
            Range::Scores(start, end) => {
                let start = match start {
                    Bound::Excluded(score) => ordered_score(*score).saturating_add(1),
                    Bound::Included(score) => ordered_score(*score),
                    Bound::Unbounded => 0,
                };
                let end = match end {
                    Bound::Excluded(score) => ordered_score(*score),
                    Bound::Included(score) => ordered_score(*score).saturating_add(1),
                    Bound::Unbounded => u64::MAX,
                };
                let range = (collection, start, [].into())..(collection, end, [].into());
                let scan = turned(tx.range_by(scores, Scored::BY_SCORE, range));
                scan.skip(offset).take(limit).collect::<Result<_, Error>>()
            }
            Range::Names(start, end) => {
                let Some(first) = whole().first_row()? else { return Ok(Vec::new()) };
                let place = |name: &Text| (collection, first.score, name.clone());
                let start = match start {
                    Bound::Unbounded => Bound::Included((collection, 0, [].into())),
                    Bound::Included(name) => Bound::Included(place(name)),
                    Bound::Excluded(name) => Bound::Excluded(place(name)),
                };
                let end = match end {
                    Bound::Unbounded => Bound::Excluded((collection + 1, 0, [].into())),
                    Bound::Included(name) => Bound::Included(place(name)),
                    Bound::Excluded(name) => Bound::Excluded(place(name)),
                };
                let scan = turned(tx.range_by(scores, Scored::BY_SCORE, (start, end)));
                scan.skip(offset).take(limit).collect::<Result<_, Error>>()
            }
        };
        Ok(found?)
    }
}

/// The arguments of `ZRANGE` and its relatives.
struct Request<'c> {
    key: Key<'c>,
    range: Range,
    descends: bool,
    page: (usize, usize),
    with_scores: bool,
}

impl<'c> Request<'c> {
    /// Parses the arguments from the key on. `fixed` is how the range is given, and whether it descends, if the command's
    /// name says that.
    fn parse(
        call: &Call<'c>,
        position: usize,
        fixed: Option<(By, bool)>,
        stores: bool,
    ) -> Done<Self> {
        let (mut by, mut descends) = fixed.unwrap_or((By::Rank, false));
        let (mut page, mut with_scores) = (None, false);
        let mut options = call.options(position + 3);
        while !options.is_empty() {
            if fixed.is_none() && options.take("byscore") {
                by = By::Score;
            } else if fixed.is_none() && options.take("bylex") {
                by = By::Name;
            } else if fixed.is_none() && options.take("rev") {
                descends = true;
            } else if !stores && options.take("withscores") {
                with_scores = true;
            } else if options.take("limit") {
                page = Some((options.integer()?, options.integer()?));
            } else {
                return Err(texts::SYNTAX.into());
            }
        }
        if page.is_some() && by == By::Rank {
            return Err("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX".into());
        }
        if with_scores && by == By::Name {
            return Err(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX".into()
            );
        }
        let (mut start, mut end) = (call.argument(position + 1), call.argument(position + 2));
        if descends && by != By::Rank {
            (start, end) = (end, start);
        }
        let page = match page {
            None => (0, usize::MAX),
            // An offset below zero leaves nothing; a count below zero is no limit.
            Some((offset, count)) => match usize::try_from(offset) {
                Ok(offset) => (offset, usize::try_from(count).unwrap_or(usize::MAX)),
                Err(_) => (0, 0),
            },
        };
        let range = Range::parse(by, start, end)?;
        Ok(Request { key: call.key(position), range, descends, page, with_scores })
    }

    fn run(&self, call: &Call<'c>) -> Done<Vec<(&'c Text, f64)>> {
        let found = match call.find(&self.key, Kind::SortedSet)? {
            Some(collection) => self.range.gather(call, collection, self.descends, self.page)?,
            None => Vec::new(),
        };
        Ok(found.iter().map(|scored| (&scored.name, score_of(scored.score))).collect())
    }
}

fn show(call: &Call<'_>, reply: &mut Reply, fixed: Option<(By, bool)>) -> Done {
    let request = Request::parse(call, 1, fixed, false)?;
    write_members(reply, &request.run(call)?, request.with_scores);
    Ok(())
}

/// `ZRANGE`
pub fn zrange(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, None)
}

/// `ZREVRANGE`
pub fn zrevrange(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, Some((By::Rank, true)))
}

/// `ZRANGEBYSCORE`
pub fn zrangebyscore(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, Some((By::Score, false)))
}

/// `ZREVRANGEBYSCORE`
pub fn zrevrangebyscore(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, Some((By::Score, true)))
}

/// `ZRANGEBYLEX`
pub fn zrangebylex(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, Some((By::Name, false)))
}

/// `ZREVRANGEBYLEX`
pub fn zrevrangebylex(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, Some((By::Name, true)))
}

/// `ZRANGESTORE`
pub fn zrangestore(call: &Call<'_>, reply: &mut Reply) -> Done {
    let found = Request::parse(call, 2, None, true)?.run(call)?;
    store(call, reply, &found)
}

/// Replaces the key that the first argument names by these members.
pub fn store(call: &Call<'_>, reply: &mut Reply, members: &[(&Text, f64)]) -> Done {
    let key = call.key(1);
    reply.count(members.len());
    if members.is_empty() {
        return call.remove_if_there(&key).map(|_| ());
    }
    if let Some(old) = call.head(&key)? {
        call.displace(&key, old)?;
    }
    let collection = call.create(&key, Kind::SortedSet)?;
    for (name, score) in members {
        insert(call, collection, (*name).clone(), *score)?;
    }
    call.grow(collection, i64::try_from(members.len()).unwrap_or(i64::MAX))?;
    call.touch(&key)
}

/// Returns the members whose scores lie between two numbers: from the first up to, and without, the last.
pub fn with_scores<'c>(
    call: &Call<'c>,
    collection: u64,
    scores: std::ops::Range<f64>,
) -> Done<Vec<&'c Scored>> {
    let range = Range::Scores(Bound::Included(scores.start), Bound::Excluded(scores.end));
    range.gather(call, collection, false, (0, usize::MAX))
}

fn count(call: &Call<'_>, reply: &mut Reply, by: By) -> Done {
    let range = Range::parse(by, call.argument(2), call.argument(3))?;
    let found = match call.find(&call.key(1), Kind::SortedSet)? {
        Some(collection) => range.gather(call, collection, false, (0, usize::MAX))?.len(),
        None => 0,
    };
    reply.count(found);
    Ok(())
}

/// `ZCOUNT`
pub fn zcount(call: &Call<'_>, reply: &mut Reply) -> Done {
    count(call, reply, By::Score)
}

/// `ZLEXCOUNT`
pub fn zlexcount(call: &Call<'_>, reply: &mut Reply) -> Done {
    count(call, reply, By::Name)
}

fn remove_range(call: &Call<'_>, reply: &mut Reply, by: By) -> Done {
    let key = call.key(1);
    let range = Range::parse(by, call.argument(2), call.argument(3))?;
    let Some(collection) = call.find(&key, Kind::SortedSet)? else {
        reply.integer(0);
        return Ok(());
    };
    let found = range.gather(call, collection, false, (0, usize::MAX))?;
    reply.count(found.len());
    remove(call, &key, collection, &found)
}

/// `ZREMRANGEBYRANK`
pub fn zremrangebyrank(call: &Call<'_>, reply: &mut Reply) -> Done {
    remove_range(call, reply, By::Rank)
}

/// `ZREMRANGEBYSCORE`
pub fn zremrangebyscore(call: &Call<'_>, reply: &mut Reply) -> Done {
    remove_range(call, reply, By::Score)
}

/// `ZREMRANGEBYLEX`
pub fn zremrangebylex(call: &Call<'_>, reply: &mut Reply) -> Done {
    remove_range(call, reply, By::Name)
}
