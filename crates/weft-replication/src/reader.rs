//! The replay rule: which records count. All readers of the log apply it, and come to the same result.

use crate::flaw::{Flaw, flawed};
use crate::record::{EPOCH_BYTES_MAX, Record, RecordKind};

/// Why records may be missing that this node does not miss.
pub const ASKED: &str = "another node has asked for them";

/// A moment in the history of a replicated database: the end of an epoch.
///
/// A later token is greater. A state at a token has everything that was acknowledged with this token, or a lesser one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicationToken {
    /// The generation: how many primaries there have been.
    pub generation: u64,
    /// The epoch of that generation's primary.
    pub epoch: u64,
}

/// Why a node can no longer follow the log. It stops, since to go on could mean to lose or to invent commits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Something else writes to the log, or a record was damaged.
    #[error("record {offset} of the replicated log {what}")]
    Foreign {
        /// The record's offset.
        offset: u64,
        /// The error in it.
        what: &'static str,
    },
    /// Records before this one are missing.
    #[error("records are missing before record {offset} of the replicated log: {what}")]
    Hole {
        /// The offset of the first record that does not fit.
        offset: u64,
        /// What does not fit.
        what: &'static str,
    },
    /// The log has lost records at its end that this node has read.
    #[error(
        "the replicated log has lost its end: it goes on at record {offset}, and had {next} records before"
    )]
    LostTail {
        /// Where the log goes on.
        offset: u64,
        /// Where it would have to go on.
        next: u64,
    },
    /// The log says that a record was appended at an offset where another one is.
    #[error("the replicated log does not hold the record that was appended at {offset}")]
    NotThere {
        /// The offset.
        offset: u64,
    },
    /// The log no longer has the records that this node needs.
    #[error(
        "the replicated log begins at record {first}, and this node needs record {next}; it has to begin with a backup"
    )]
    Gone {
        /// The first record of the log.
        first: u64,
        /// The record that is needed.
        next: u64,
    },
    /// The database cannot take what the log says.
    #[error("the database cannot follow the replicated log: {message}")]
    Unfit {
        /// What stands in the way.
        message: String,
    },
}

/// A place in the log behind a whole epoch or a fence, and what a reader knows there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The offset of the next record.
    pub next: u64,
    /// How many records have counted.
    pub counted: u64,
    /// The current generation, or 0 if none has begun.
    pub generation: u64,
    /// The current primary.
    pub primary: u64,
    /// The last complete epoch of the generation, or 0.
    pub epoch: u64,
    /// The checksum of everything that counted so far: each record's bytes continue it.
    pub chain: u32,
}

impl Position {
    /// Returns the end of the last epoch before the position.
    pub fn token(&self) -> ReplicationToken {
        ReplicationToken { generation: self.generation, epoch: self.epoch }
    }
}

/// Records that came although others before them have not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last one that came: its generation, its epoch and the number of the part.
    until: (u64, u64, u32),
    /// What is missing, and where.
    pub fault: Fault,
}

/// The effect of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It has none: it came too late.
    Nothing,
    /// It has none: the history that it belongs to is not the one that was read.
    Gap(Fault),
    /// It has none: another node lacks records.
    Question(Fault),
    /// It only shows that the primary is there.
    Alive,
    /// It begins a generation.
    Generation {
        generation: u64,
        /// The new primary.
        node: u64,
        body: Vec<u8>,
    },
    /// It is a part of an epoch that is not complete yet.
    Part,
    /// It completes an epoch.
    Epoch { token: ReplicationToken, content: Vec<u8> },
}

impl Effect {
    /// Returns whether the record belongs to the history of the database.
    pub fn counts(&self) -> bool {
        matches!(self, Effect::Generation { .. } | Effect::Part | Effect::Epoch { .. })
    }
}

/// The parts of an epoch so far.
#[derive(Debug)]
struct Unfinished {
    epoch: u64,
    parts: u32,
    compressed: Vec<u8>,
}

/// What a reader of the log knows after some records.
#[derive(Debug, Default)]
pub struct Reader {
    /// The offset of the next record.
    pub next: u64,
    /// How many records have counted.
    pub counted: u64,
    /// The current generation, or 0 if none has begun.
    pub generation: u64,
    /// The current primary.
    pub primary: u64,
    /// The last complete epoch of the generation, or 0.
    pub epoch: u64,
    /// The checksum of everything that counted so far: each record's bytes continue it.
    pub chain: u32,
    /// Behind the last whole epoch or fence.
    pub boundary: Position,
    /// What is missing before records that were read.
    pub gap: Option<Gap>,
    /// What was missing when a fence ended the wait for it.
    pub lost: Option<Fault>,
    unfinished: Option<Unfinished>,
    pub flaw: Flaw,
}

impl Reader {
    /// Returns a reader that goes on from a position.
    pub fn at(position: Position) -> Reader {
        let Position { next, counted, generation, primary, epoch, chain } = position;
        let boundary = position;
        Reader { next, counted, generation, primary, epoch, chain, boundary, ..Reader::default() }
    }

    /// Returns the position before the next record, if no epoch has begun.
    pub fn position(&self) -> Option<Position> {
        let Reader { next, counted, generation, primary, epoch, chain, .. } = *self;
        let position = Position { next, counted, generation, primary, epoch, chain };
        self.unfinished.is_none().then_some(position)
    }

    /// Takes the record at `offset`, which must not be before [`Reader::next`].
    ///
    /// # Errors
    /// Why no more records can be taken.
    pub fn take(&mut self, offset: u64, bytes: &[u8]) -> Result<Effect, Fault> {
        assert!(offset >= self.next, "record {offset} was read before");
        let record = Record::decode(bytes).map_err(|what| Fault::Foreign { offset, what })?;
        let effect = match record.kind {
            RecordKind::Fence => self.take_fence(offset, &record, bytes),
            RecordKind::Question => Ok(Effect::Question(Fault::Hole { offset, what: ASKED })),
            // A late record of an earlier primary.
            _ if record.generation < self.generation
                && !flawed!(self.flaw, OldGenerationCounts) =>
            {
                Ok(Effect::Nothing)
            }
            kind if record.generation > self.generation => {
                let what = "the fence of its generation was not there";
                Ok(match kind {
                    RecordKind::Part { epoch, part, .. } => {
                        self.miss((record.generation, epoch, part), offset, what)
                    }
                    // Without an epoch, there is nothing to wait for.
                    _ => Effect::Gap(Fault::Hole { offset, what }),
                })
            }
            // The other candidates of an election append no other records, unless the log has lost a fence. There is
            // nothing to wait for.
            _ if record.node != self.primary && !flawed!(self.flaw, OldGenerationCounts) => {
                let what = "another node had won its generation";
                Ok(Effect::Gap(Fault::Hole { offset, what }))
            }
            RecordKind::Heartbeat => Ok(Effect::Alive),
            RecordKind::Part { epoch, part, is_last, chain } => {
                self.take_part(offset, &record, bytes, (epoch, part, is_last, chain))
            }
        }?;
        self.next = offset + 1;
        self.counted += u64::from(effect.counts());
        if matches!(effect, Effect::Generation { .. } | Effect::Epoch { .. }) {
            self.boundary = self.position().expect("an epoch or a fence is complete");
        }
        Ok(effect)
    }

    /// Notes that a part came although records before it have not. They may be appended again.
    fn miss(&mut self, until: (u64, u64, u32), offset: u64, what: &'static str) -> Effect {
        let fault = Fault::Hole { offset, what };
        let gap = self.gap.get_or_insert_with(|| Gap { until, fault: fault.clone() });
        gap.until = gap.until.max(until);
        Effect::Gap(fault)
    }

    /// Begins a generation, unless another fence has begun it.
    fn take_fence(
        &mut self,
        offset: u64,
        record: &Record<'_>,
        bytes: &[u8],
    ) -> Result<Effect, Fault> {
        let Record { generation, node, body, .. } = *record;
        let is_late = generation <= self.generation;
        if is_late && !(flawed!(self.flaw, LastFenceWins) && generation == self.generation) {
            return Ok(Effect::Nothing);
        }
        // A candidate has read the log to its end, so it asks for the generation after the current one.
        if generation > self.generation + 1 {
            let what = "the fence of a generation was not there";
            return Ok(self.miss((generation, 0, 0), offset, what));
        }
        (self.generation, self.primary, self.epoch) = (generation, node, 0);
        if !flawed!(self.flaw, FenceKeepsUnfinished) {
            self.unfinished = None;
        }
        // What the generation before lacks is lost now.
        let ended = self.gap.take_if(|gap| gap.until <= (generation, 0, 0));
        self.lost = ended.filter(|gap| gap.until.0 < generation).map(|gap| gap.fault);
        self.chain = crc32c::crc32c_append(self.chain, bytes);
        Ok(Effect::Generation { generation, node, body: body.to_vec() })
    }

    /// Takes a part of an epoch of the current primary, if it is the next one.
    fn take_part(
        &mut self,
        offset: u64,
        record: &Record<'_>,
        bytes: &[u8],
        (epoch, part, is_last, chain): (u64, u32, bool, u32),
    ) -> Result<Effect, Fault> {
        // Seen already?
        let next_part = match &self.unfinished {
            Some(unfinished) if unfinished.epoch == epoch => unfinished.parts,
            Some(unfinished) if unfinished.epoch > epoch => return Ok(Effect::Alive),
            Some(_) if !flawed!(self.flaw, FenceKeepsUnfinished) => {
                let what = "the epoch before its own is not complete";
                return Ok(self.miss((record.generation, epoch, part), offset, what));
            }
            Some(_) => 0,
            None if epoch <= self.epoch => return Ok(Effect::Alive),
            None => 0,
        };
        if part < next_part {
            return Ok(Effect::Alive);
        }
        // The next one?
        if part > next_part {
            let what = "an earlier part of its epoch is not there";
            return Ok(self.miss((record.generation, epoch, part), offset, what));
        }
        if chain != self.chain && !flawed!(self.flaw, ChainUnchecked) {
            let what = "it does not continue the chain of checksums";
            return Ok(self.miss((record.generation, epoch, part), offset, what));
        }
        self.gap.take_if(|gap| (record.generation, epoch, part) >= gap.until);
        self.chain = crc32c::crc32c_append(self.chain, bytes);
        let mut unfinished = self.unfinished.take().unwrap_or_else(|| Unfinished {
            epoch,
            parts: 0,
            compressed: Vec::new(),
        });
        unfinished.epoch = epoch;
        unfinished.parts += 1;
        unfinished.compressed.extend_from_slice(record.body);
        if !is_last {
            self.unfinished = Some(unfinished);
            return Ok(Effect::Part);
        }
        self.epoch = epoch;
        let content = decompress(&unfinished.compressed).ok_or(Fault::Foreign {
            offset,
            what: "completes an epoch that cannot be decompressed",
        })?;
        let token = ReplicationToken { generation: record.generation, epoch };
        Ok(Effect::Epoch { token, content })
    }
}

/// Compresses the content of an epoch, which has at most [`EPOCH_BYTES_MAX`] bytes.
pub fn compress(content: &[u8]) -> Vec<u8> {
    lz4_flex::block::compress_prepend_size(content)
}

fn decompress(compressed: &[u8]) -> Option<Vec<u8>> {
    let (length, _) = lz4_flex::block::uncompressed_size(compressed).ok()?;
    if length > EPOCH_BYTES_MAX {
        return None;
    }
    lz4_flex::block::decompress_size_prepended(compressed).ok()
}
