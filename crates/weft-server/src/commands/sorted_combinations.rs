//! Commands that combine several sorted sets. Sets take part in them too, as if all their scores were 1.

use std::collections::HashMap;

use super::sets::limit_of;
use super::sorted_ranges::store;
use super::sorted_sets::write_members;
use crate::call::{Call, Options, parse_float_in_range};
use crate::reply::Reply;
use crate::stop::{Done, texts};
use crate::tables::{Kind, Text, score_of};

/// How several sorted sets become one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Combination {
    Union,
    Intersection,
    Difference,
}

/// What becomes of the scores of a member that is in several sets.
#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, left: f64, right: f64) -> f64 {
        match self {
            Aggregate::Sum => {
                // Infinities of both signs cancel each other out.
                let sum = left + right;
                if sum.is_nan() { 0.0 } else { sum }
            }
            Aggregate::Min => left.min(right),
            Aggregate::Max => left.max(right),
        }
    }
}

fn members<'c>(call: &Call<'c>, name: &'c [u8], weight: f64) -> Done<Vec<(&'c Text, f64)>> {
    let weighted = |score: f64| {
        let product = weight * score;
        if product.is_nan() { 0.0 } else { product }
    };
    let Some(head) = call.head(&call.key_of(name))? else { return Ok(Vec::new()) };
    match head.kind {
        Kind::SortedSet => {
            let scored = call.scored(head.collection)?;
            let of = scored.iter().map(|scored| (&scored.name, weighted(score_of(scored.score))));
            Ok(of.collect())
        }
        Kind::Set => {
            let members = call.members(head.collection)?;
            Ok(members.iter().map(|member| (&member.name, weighted(1.0))).collect())
        }
        _ => Err(texts::WRONG_TYPE.into()),
    }
}

fn options_of(
    options: &mut Options<'_>,
    keys: usize,
    shows: bool,
) -> Done<(Vec<f64>, Aggregate, bool)> {
    let (mut weights, mut aggregate, mut with_scores) = (vec![1.0; keys], Aggregate::Sum, false);
    while !options.is_empty() {
        if options.take("weights") {
            for weight in &mut weights {
                let number = parse_float_in_range(options.next()?);
                *weight = number.ok_or("ERR weight value is not a float")?;
            }
        } else if options.take("aggregate") {
            aggregate = match options.next()?.to_ascii_lowercase().as_slice() {
                b"sum" => Aggregate::Sum,
                b"min" => Aggregate::Min,
                b"max" => Aggregate::Max,
                _ => return Err(texts::SYNTAX.into()),
            };
        } else if shows && options.take("withscores") {
            with_scores = true;
        } else {
            return Err(texts::SYNTAX.into());
        }
    }
    Ok((weights, aggregate, with_scores))
}

/// Combines the sets that the command names from a position on. Returns the members in the order of their scores, and
/// whether the scores are to be shown.
fn combine<'c>(
    call: &Call<'c>,
    position: usize,
    combination: Combination,
    shows: bool,
) -> Done<(Vec<(&'c Text, f64)>, bool)> {
    let (keys, end) = call.numbered_keys(position)?;
    let mut options = call.options(end);
    let (weights, aggregate, with_scores) = match combination {
        Combination::Difference => {
            let with_scores = shows && options.take("withscores");
            if !options.is_empty() {
                return Err(texts::SYNTAX.into());
            }
            (vec![1.0; keys.len()], Aggregate::Sum, with_scores)
        }
        _ => options_of(&mut options, keys.len(), shows)?,
    };
    let mut found: HashMap<&Text, f64> = HashMap::new();
    for (at, (name, weight)) in keys.iter().zip(weights).enumerate() {
        let set = members(call, name, weight)?;
        match combination {
            _ if at == 0 => found.extend(set),
            Combination::Union => {
                for (name, score) in set {
                    let combined =
                        found.entry(name).and_modify(|old| *old = aggregate.of(*old, score));
                    combined.or_insert(score);
                }
            }
            Combination::Intersection => {
                let set: HashMap<&Text, f64> = set.into_iter().collect();
                found.retain(|name, score| match set.get(name) {
                    Some(other) => {
                        *score = aggregate.of(*score, *other);
                        true
                    }
                    None => false,
                });
            }
            Combination::Difference => set.iter().for_each(|(name, _)| {
                found.remove(name);
            }),
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by(|left, right| left.1.total_cmp(&right.1).then_with(|| left.0.cmp(right.0)));
    Ok((found, with_scores))
}

fn show(call: &Call<'_>, reply: &mut Reply, combination: Combination) -> Done {
    let (found, with_scores) = combine(call, 1, combination, true)?;
    write_members(reply, &found, with_scores);
    Ok(())
}

fn keep(call: &Call<'_>, reply: &mut Reply, combination: Combination) -> Done {
    let (found, _) = combine(call, 2, combination, false)?;
    store(call, reply, &found)
}

/// `ZUNION`
pub fn zunion(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, Combination::Union)
}

/// `ZINTER`
pub fn zinter(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, Combination::Intersection)
}

/// `ZDIFF`
pub fn zdiff(call: &Call<'_>, reply: &mut Reply) -> Done {
    show(call, reply, Combination::Difference)
}

/// `ZUNIONSTORE`
pub fn zunionstore(call: &Call<'_>, reply: &mut Reply) -> Done {
    keep(call, reply, Combination::Union)
}

/// `ZINTERSTORE`
pub fn zinterstore(call: &Call<'_>, reply: &mut Reply) -> Done {
    keep(call, reply, Combination::Intersection)
}

/// `ZDIFFSTORE`
pub fn zdiffstore(call: &Call<'_>, reply: &mut Reply) -> Done {
    keep(call, reply, Combination::Difference)
}

/// `ZINTERCARD`
pub fn zintercard(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (keys, end) = call.numbered_keys(1)?;
    let limit = limit_of(call, end)?;
    let mut found: Option<Vec<&Text>> = None;
    for name in keys {
        let set: HashMap<&Text, f64> = members(call, name, 1.0)?.into_iter().collect();
        found = Some(match found {
            None => set.into_keys().collect(),
            Some(found) => found.into_iter().filter(|name| set.contains_key(name)).collect(),
        });
    }
    reply.count(found.map_or(0, |found| found.len()).min(limit));
    Ok(())
}
