//! The newest records that have counted, and whether the log still has them.
//!
//! A log may lose records at its end, though it had confirmed them: if all machines lose power at once. Any node that has
//! read the records can append them again, byte by byte. The replay rule decides whether they still count. They do if no
//! other records were appended in their place that count. So a node first *compares*: it reads the log by the replay rule from
//! a place that lies before what it doubts.
//!
//! ```text
//!   tail     e1 e2 e3 e4
//!   log      e1 e2              missing: e3 and e4 are appended again
//!   log      e1 e2 e5           missing, too: e5 does not count until e4 has, and comes once more
//!   log      e1 e2 fence x1     other: a new primary did not know e3 and e4, which are lost
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::log::{LogError, ReplicatedLog};
use crate::reader::{Effect, Position, Reader};

/// How many bytes of records a tail keeps at least, if there were so many.
const TAIL_BYTES: usize = 8 << 20;

/// How often a node appends what the log has lost before it gives up.
const REPAIRS: usize = 5;

/// A record that has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where it was, or an earlier offset.
    pub offset: u64,
    pub bytes: Arc<[u8]>,
    /// The position before it, if no epoch has begun before it.
    before: Option<Position>,
}

/// The newest records that have counted, in order.
#[derive(Debug)]
pub struct Tail {
    records: VecDeque<Kept>,
    /// How many records have counted before these.
    first: u64,
    bytes: usize,
    bytes_max: usize,
    /// The position before the first one.
    start: Position,
}

/// What a comparison of a tail with the log has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The log has all records. They end before this offset.
    Whole { next: u64 },
    /// The log ends before this record of the tail.
    Missing { from: usize },
    /// The log has another record in the place of this one of the tail.
    Other { from: usize },
    /// The log has nothing of the tail that would show where to continue.
    Unknown,
}

impl Tail {
    /// Returns an empty tail behind a position.
    pub fn at(position: Position) -> Tail {
        Tail {
            records: VecDeque::new(),
            first: position.counted,
            bytes: 0,
            bytes_max: TAIL_BYTES,
            start: position,
        }
    }

    /// Keeps all records from now on.
    pub fn keep_all(&mut self) {
        self.bytes_max = usize::MAX;
    }

    /// Adds a record.
    pub fn push(&mut self, offset: u64, bytes: &[u8], before: Option<Position>) {
        self.bytes += bytes.len();
        self.records.push_back(Kept { offset, bytes: bytes.into(), before });
    }

    /// Forgets old records, if there are enough newer ones.
    pub fn trim(&mut self) {
        while self.bytes > self.bytes_max {
            // The first one that stays has a position before it.
            let next = self.records.iter().skip(1).position(|record| record.before.is_some());
            let Some(next) = next else { break };
            let removed = self.records.drain(..=next);
            self.first += removed.len() as u64;
            self.bytes -= removed.map(|record| record.bytes.len()).sum::<usize>();
            self.start = self.records[0].before.expect("it was looked for");
        }
    }

    /// Returns how many records are kept.
    pub fn length(&self) -> usize {
        self.records.len()
    }

    /// Forgets all records but the first ones.
    pub fn cut(&mut self, length: usize) {
        self.records.truncate(length);
    }

    /// Returns how many records have counted, also those that are not kept any more.
    pub fn counted(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// Returns the records from the one before which this many have counted.
    pub fn since(&self, counted: u64) -> impl Iterator<Item = &Kept> {
        self.records.iter().skip(counted.saturating_sub(self.first) as usize)
    }

    /// Reads the log, and finds out which of the records it has. Looks at all of them, or only as far back as there is a
    /// part that the log has, too. A primary appends such parts also if the log has lost others before, and it has not
    /// noticed.
    ///
    /// `reached` is given by a node that has read the log up to there without a break. Then what was truncated since is not
    /// compared.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn compare(
        &self,
        log: &dyn ReplicatedLog,
        all: bool,
        reached: Option<u64>,
    ) -> Result<Agreement, LogError> {
        // Each start lies twice as far back as the one before.
        let mut back = if all { self.length() } else { 0 };
        for (index, record) in self.records.iter().enumerate().rev() {
            let Some(position) = record.before.filter(|_| self.length() - index > back) else {
                continue;
            };
            back = 2 * (self.length() - index);
            let scan = self.scan(log, index, position)?;
            if scan.has_proof && scan.found == self.length() {
                return Ok(Agreement::Whole { next: scan.next });
            }
        }
        let (first, end) = log.range()?;
        if self.start.next < first {
            return match reached {
                Some(reached) => self.compare_rest(log, (first, end), reached),
                // What followed the start is gone.
                None => Ok(Agreement::Unknown),
            };
        }
        if self.records.is_empty() && end >= self.start.next {
            // If the log has lost its end and got it back, the start may lie before.
            return Ok(Agreement::Whole { next: first });
        }
        let mut scan = self.scan(log, 0, self.start)?;
        if scan.found < self.length() {
            // If the log has lost its end and got it back, the records may lie before where they were. Looking there is
            // slow, and rarely needed.
            scan = self.scan(log, 0, Position { next: first, ..self.start })?;
        }
        // From the first record of all on, nothing before needs a proof.
        scan.has_proof |= self.start.generation == 0;
        Ok(match self.records.is_empty() {
            true => Agreement::Unknown,
            false => scan.agreement(self.length()),
        })
    }

    /// Compares those of the records that were not truncated. The log has the records from `first` to before `end`.
    fn compare_rest(
        &self,
        log: &dyn ReplicatedLog,
        (first, end): (u64, u64),
        reached: u64,
    ) -> Result<Agreement, LogError> {
        let positions = self.records.iter().enumerate();
        let mut left = positions.filter_map(|(index, record)| Some((index, record.before?)));
        if let Some((index, position)) = left.find(|(_, position)| position.next >= first) {
            let scan = self.scan(log, index, position)?;
            return Ok(scan.agreement(self.length()));
        }
        // There is nothing to compare, but nothing is missing either.
        Ok(match !self.records.is_empty() && first <= reached && reached <= end {
            true => Agreement::Whole { next: reached },
            false => Agreement::Unknown,
        })
    }

    /// Reads the log from a position, before which this many of the records lie.
    fn scan(
        &self,
        log: &dyn ReplicatedLog,
        index: usize,
        position: Position,
    ) -> Result<Scan, LogError> {
        let mut reader = Reader::at(position);
        let next = position.next;
        let mut scan = Scan { found: index, next, has_proof: false, is_other: false };
        while scan.found < self.length() {
            let read = match log.read(reader.next, Duration::ZERO) {
                Err(LogError::OutOfRange { .. }) => break,
                read => read?,
            };
            if read.is_empty() {
                break;
            }
            for record in &read {
                if record.offset < reader.next {
                    continue;
                }
                // The node that reads the log meets the same error, and reports it.
                let Ok(effect) = reader.take(record.offset, &record.bytes) else { return Ok(scan) };
                if !effect.counts() {
                    continue;
                }
                let Some(expected) = self.records.get(scan.found) else { return Ok(scan) };
                if expected.bytes != record.bytes {
                    return Ok(Scan { is_other: true, ..scan });
                }
                scan.found += 1;
                scan.next = record.offset + 1;
                // A part names the chain of checksums of all records before it. A fence does not.
                scan.has_proof |= !matches!(effect, Effect::Generation { .. });
            }
        }
        Ok(scan)
    }
}

/// What was found in the log behind a position.
#[derive(Clone, Copy, Debug)]
struct Scan {
    /// How many of the records are before the place that was reached.
    found: usize,
    /// The offset behind the last one.
    next: u64,
    /// Whether a record shows that the log has the same records before it.
    has_proof: bool,
    /// Whether another record has counted.
    is_other: bool,
}

impl Scan {
    fn agreement(&self, length: usize) -> Agreement {
        match (self.found, self.is_other) {
            (found, _) if found == length => Agreement::Whole { next: self.next },
            (from, true) if self.has_proof => Agreement::Other { from },
            (_, true) => Agreement::Unknown,
            (from, false) => Agreement::Missing { from },
        }
    }
}

/// Appends the records of a tail that the log has lost. `all` and `reached` are those of [`Tail::compare`]. Returns what the log
/// has in the end, which is not [`Agreement::Missing`], and how many records were appended.
///
/// # Errors
/// If the log cannot be reached. Then it may have some of them.
pub fn repair(
    tail: &Tail,
    log: &dyn ReplicatedLog,
    all: bool,
    reached: Option<u64>,
) -> Result<(Agreement, usize), LogError> {
    let mut appended = 0;
    // The log may lose its end again while this goes on. But what does not count when it is there never will.
    for _ in 0..REPAIRS {
        let agreement = tail.compare(log, all, reached)?;
        let Agreement::Missing { from } = agreement else { return Ok((agreement, appended)) };
        for record in tail.records.range(from..) {
            log.append(&record.bytes)?;
            appended += 1;
        }
    }
    Ok((Agreement::Unknown, appended))
}
