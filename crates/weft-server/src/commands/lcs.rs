//! The longest common subsequence of two strings.

use crate::call::Call;
use crate::reply::Reply;
use crate::stop::{Done, texts};
use crate::tables::{Head, Kind};

/// The largest table of lengths, in entries of 4 bytes.
const TABLE_LENGTH_MAX: usize = 1 << 24;

/// A part that both strings have, at these positions.
struct Match {
    first: usize,
    second: usize,
    length: usize,
}

/// `LCS`
pub fn lcs(call: &Call<'_>, reply: &mut Reply) -> Done {
    let (mut options, mut shortest) = (call.options(3), 0);
    let (mut counts, mut lists, mut with_lengths) = (false, false, false);
    while !options.is_empty() {
        if options.take("len") {
            counts = true;
        } else if options.take("idx") {
            lists = true;
        } else if options.take("withmatchlen") {
            with_lengths = true;
        } else if options.take("minmatchlen") {
            shortest = usize::try_from(options.integer()?).unwrap_or(0);
        } else {
            return Err(texts::SYNTAX.into());
        }
    }
    if counts && lists {
        return Err("ERR If you want both the length and indexes, please just use IDX.".into());
    }
    let text = |position| {
        let head = call.head(&call.key(position))?;
        match head.is_some_and(|head| head.kind != Kind::Text) {
            true => Err("ERR The specified keys must contain string values".into()),
            false => Ok::<_, crate::stop::Stop>(head.map(Head::bytes).unwrap_or_default()),
        }
    };
    let (first, second) = (text(1)?, text(2)?);
    let width = second.len() + 1;
    let entries = (first.len() + 1).saturating_mul(width);
    if entries > TABLE_LENGTH_MAX {
        return Err(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len".into()
        );
    }
    // lengths[i * width + j]: of the first i bytes of one and the first j of the other.
    let mut lengths = vec![0_u32; entries];
    for (i, one) in first.iter().enumerate() {
        for (j, other) in second.iter().enumerate() {
            lengths[(i + 1) * width + j + 1] = match one == other {
                true => lengths[i * width + j] + 1,
                false => lengths[i * width + j + 1].max(lengths[(i + 1) * width + j]),
            };
        }
    }
    let length = lengths[entries - 1] as usize;
    if counts {
        reply.count(length);
        return Ok(());
    }
    // From the end to the beginning.
    let (mut i, mut j) = (first.len(), second.len());
    let (mut common, mut matches) = (Vec::new(), Vec::<Match>::new());
    while i > 0 && j > 0 {
        if first[i - 1] == second[j - 1] {
            (i, j) = (i - 1, j - 1);
            common.push(first[i]);
            match matches.last_mut() {
                Some(last) if (last.first, last.second) == (i + 1, j + 1) => {
                    (last.first, last.second, last.length) = (i, j, last.length + 1);
                }
                _ => matches.push(Match { first: i, second: j, length: 1 }),
            }
        } else if lengths[(i - 1) * width + j] > lengths[i * width + j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    if !lists {
        common.reverse();
        reply.text(common);
        return Ok(());
    }
    matches.retain(|found| found.length >= shortest);
    reply.map(2);
    reply.text("matches");
    reply.array(matches.len());
    for found in matches {
        reply.array(if with_lengths { 3 } else { 2 });
        for start in [found.first, found.second] {
            reply.array(2);
            reply.count(start);
            reply.count(start + found.length - 1);
        }
        if with_lengths {
            reply.count(found.length);
        }
    }
    reply.text("len");
    reply.count(length);
    Ok(())
}
