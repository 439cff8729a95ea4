//! A member of a replicated database, as a state machine: it says what it wants from the log, and is told the answer.
//!
//! It has no threads, no clock and no log, so a test can run several members in any order, with any answers. Times are
//! those of a monotonic clock, counted from the same moment in all calls.

use std::collections::VecDeque;
use std::time::Duration;

use crate::flaw::{Flaw, flawed};
use crate::reader::{Effect, Fault, Position, Reader, ReplicationToken, compress};
use crate::record::{BODY_BYTES_MAX, EPOCH_BYTES_MAX, Record, RecordKind};
use crate::tail::Tail;

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It applies what the primary writes.
    Standby,
    /// It wants to become the primary, and does not know yet whether it will.
    Candidate,
    /// It writes.
    Primary,
}

/// What a member wants from the log.
#[derive(Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Append this record. If that fails, ask again.
    Append(&'a [u8]),
    /// Read the records from this offset on.
    Read(u64),
    /// Nothing, until there is something to write.
    Nothing,
}

/// What a member has to do because of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Another member is the primary from now on.
    Follows {
        /// The generation of which it is the primary.
        generation: u64,
        /// What its fence says of how to read its epochs.
        body: Vec<u8>,
        /// The place behind the fence.
        position: Position,
    },
    /// This member is the primary from now on, and may serve from [`Member::serves_from`] on.
    Won,
    /// This member no longer is the primary. What it has written and is not acknowledged may be missing.
    SteppedDown,
    /// The next epoch, to apply.
    Apply {
        /// The end of the epoch.
        token: ReplicationToken,
        /// What the primary has written.
        content: Vec<u8>,
        /// The place behind the epoch.
        position: Position,
    },
    /// The epoch that this member has written is replicated.
    Acknowledged {
        /// The end of the epoch.
        token: ReplicationToken,
        /// The place behind the epoch.
        position: Position,
    },
    /// The log may lack records that this member has read. Compare the two.
    Missing(Fault),
    /// Another member lacks records. Compare the log with everything that this member knows of it.
    Asked(Fault),
}

/// A record to be appended.
#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    /// The epoch that it is a part of.
    part_of: Option<ReplicationToken>,
}

/// The record that was appended last, as long as the log before it has not been read.
#[derive(Clone, Copy, Debug)]
struct Placed {
    offset: u64,
    /// When the append began.
    began: Duration,
    /// Whether it was the heartbeat or the part that is still the first to be appended.
    is_pending: bool,
}

/// How far a member has read, for the next one that begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The offset of the next record to read.
    next: u64,
    /// The chain of checksums before it.
    chain: u32,
}

/// A member.
#[derive(Debug)]
pub struct Member {
    /// Its number, which no other member has, and which it had not before it was started.
    node: u64,
    /// How long an append proves that this member is the primary.
    lease: Duration,
    /// The longest body of a record.
    body_bytes: usize,
    reader: Reader,
    /// What an earlier member of this process had read: the log must have it still.
    remembered: Option<Remembered>,
    /// The newest records that have counted.
    tail: Tail,
    role: Role,
    outgoing: VecDeque<Outgoing>,
    /// The chain of checksums behind all of `outgoing`.
    chain: u32,
    placed: Option<Placed>,
    /// When the last record of a primary was read.
    heard: Duration,
    serves_from: Duration,
    /// When the last append began behind which everything was read.
    proved: Option<Duration>,
    flaw: Flaw,
}

impl Member {
    /// Returns a standby that has read nothing yet. `node` is a number that no other member has or had. An append proves
    /// for the time `lease` that a member is the primary. All members have the same lease.
    pub fn new(node: u64, lease: Duration, now: Duration) -> Member {
        Member::at(Position::default(), node, lease, now)
    }

    /// Returns a standby that has read everything before a position, as [`Member::new`] does.
    pub fn at(position: Position, node: u64, lease: Duration, now: Duration) -> Member {
        Member {
            node,
            lease,
            body_bytes: BODY_BYTES_MAX,
            reader: Reader::at(position),
            tail: Tail::at(position),
            remembered: None,
            role: Role::Standby,
            outgoing: VecDeque::new(),
            chain: 0,
            placed: None,
            heard: now,
            serves_from: Duration::ZERO,
            proved: None,
            flaw: Flaw::default(),
        }
    }

    /// Returns what the next member of this process has to [find again](Member::remember).
    pub fn memory(&self) -> Option<Remembered> {
        let Reader { next, chain, .. } = self.reader;
        match self.remembered {
            Some(remembered) if remembered.next > next => Some(remembered),
            _ => (next > 0).then_some(Remembered { next, chain }),
        }
    }

    /// Begins with the log as an earlier member of this process has read it. If the log has lost some of that, this member
    /// stops when it comes to that place, or wants to write before it.
    pub fn remember(&mut self, memory: Option<Remembered>) {
        self.remembered = memory.filter(|memory| memory.next >= self.reader.next);
    }

    /// Compares what was read before `offset` with what an earlier member has read.
    fn recall(&mut self, offset: u64) -> Result<(), Fault> {
        match self.remembered.take_if(|remembered| remembered.next <= offset) {
            Some(remembered) if remembered.chain != self.reader.chain => Err(Fault::Hole {
                offset,
                what: "this node has read other records there before, which the log has lost",
            }),
            _ => Ok(()),
        }
    }

    /// Plants a bug.
    #[cfg(any(test, feature = "planted-bugs"))]
    pub(crate) fn plant(&mut self, flaw: Flaw) {
        self.flaw = flaw;
        self.reader.flaw = flaw;
    }

    /// Makes records short, and plants a bug.
    #[cfg(test)]
    fn prepare(&mut self, flaw: Flaw) {
        self.body_bytes = 24;
        self.plant(flaw);
    }

    /// Returns the role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the end of the last epoch that counted.
    pub fn token(&self) -> ReplicationToken {
        ReplicationToken { generation: self.reader.generation, epoch: self.reader.epoch }
    }

    /// Returns the offset of the next record to read.
    pub fn next_offset(&self) -> u64 {
        self.reader.next
    }

    /// Returns the place behind the last whole epoch or fence that counted.
    pub fn position(&self) -> Position {
        self.reader.boundary
    }

    /// Returns the newest records that have counted.
    pub(crate) fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Forgets old records of the tail.
    pub(crate) fn trim_tail(&mut self) {
        self.tail.trim();
    }

    /// Returns the parts that wait to be appended, and do not count yet.
    pub(crate) fn outgoing(&self) -> impl Iterator<Item = &[u8]> {
        self.outgoing.iter().filter(|it| it.part_of.is_some()).map(|it| &*it.bytes)
    }

    /// Returns which records are missing, if some are. A standby should not become the primary then, since another node may
    /// append them again.
    pub fn missing(&self) -> Option<&Fault> {
        self.reader.gap.as_ref().map(|gap| &gap.fault)
    }

    /// Returns a record that asks other members for what is missing. They append it again, if they have it.
    pub fn question(&self) -> Vec<u8> {
        let (generation, kind) = (self.reader.generation, RecordKind::Question);
        Record { generation, node: self.node, kind, body: &[] }.encode()
    }

    /// Returns the bug that was planted.
    pub(crate) fn flaw(&self) -> Flaw {
        self.flaw
    }

    /// Returns which records were missing when another member became the primary, if any were, and forgets that.
    pub fn take_lost(&mut self) -> Option<Fault> {
        self.reader.lost.take()
    }

    /// Reads on from this offset, before which the log has all records again that have counted. What waits is appended again.
    pub fn resume(&mut self, next: u64) {
        self.reader.next = next;
        self.placed = None;
        if self.reader.boundary.counted == self.reader.counted {
            self.reader.boundary.next = next;
        }
    }

    /// Returns when the last record of a primary was read.
    pub fn heard(&self) -> Duration {
        self.heard
    }

    /// Returns from when on a primary may serve. The primary before it can have a lease until then.
    pub fn serves_from(&self) -> Duration {
        self.serves_from
    }

    /// Returns whether this member was certainly the only primary when a read ended. Ask after the read. Then no other
    /// member had acknowledged anything when the read began.
    pub fn was_only_primary(&self, read_ended: Duration, now: Duration) -> bool {
        let holds = |proved: Duration| read_ended <= proved || now < proved + self.lease;
        self.role == Role::Primary && self.proved.is_some_and(holds)
    }

    /// Returns until when this member is certain to be the only primary, as far as it knows now.
    pub fn lease_until(&self) -> Option<Duration> {
        self.proved.map(|proved| proved + self.lease)
    }

    /// Returns whether nothing waits to be appended or read.
    pub fn is_idle(&self) -> bool {
        self.outgoing.is_empty() && self.placed.is_none()
    }

    /// Makes a standby a candidate. `body` says how to read the epochs that it will write.
    ///
    /// # Panics
    /// If the member is no standby, or `body` is too long for a record.
    pub fn stand(&mut self, body: &[u8]) {
        assert_eq!(self.role, Role::Standby, "only a standby can become the primary");
        assert!(body.len() <= BODY_BYTES_MAX, "the body of a fence fits into a record");
        self.role = Role::Candidate;
        let generation = self.reader.generation + 1;
        self.push(generation, RecordKind::Fence, body, None);
    }

    /// Writes an epoch, as the primary. Epochs ascend.
    ///
    /// # Panics
    /// If the member is not the primary, or the content has more than 2 GiB.
    pub fn write(&mut self, epoch: u64, content: &[u8]) {
        assert_eq!(self.role, Role::Primary, "only the primary writes");
        assert!(content.len() <= EPOCH_BYTES_MAX, "an epoch has at most 2 GiB");
        let generation = self.reader.generation;
        let token = ReplicationToken { generation, epoch };
        let compressed = compress(content);
        let parts = compressed.len().div_ceil(self.body_bytes);
        for (part, body) in compressed.chunks(self.body_bytes).enumerate() {
            let (is_last, chain) = (part + 1 == parts, self.chain);
            let kind = RecordKind::Part { epoch, part: part as u32, is_last, chain };
            self.push(generation, kind, body, Some(token));
            let bytes = &self.outgoing.back().expect("pushed").bytes;
            self.chain = crc32c::crc32c_append(self.chain, bytes);
        }
    }

    /// Shows that the primary is there, and renews its lease. Does nothing if records wait that do that, too.
    ///
    /// # Panics
    /// If the member is not the primary.
    pub fn beat(&mut self) {
        assert_eq!(self.role, Role::Primary, "only the primary has a heartbeat");
        if self.outgoing.is_empty() {
            self.push(self.reader.generation, RecordKind::Heartbeat, &[], None);
        }
    }

    fn push(
        &mut self,
        generation: u64,
        kind: RecordKind,
        body: &[u8],
        part_of: Option<ReplicationToken>,
    ) {
        let bytes = Record { generation, node: self.node, kind, body }.encode();
        self.outgoing.push_back(Outgoing { bytes, part_of });
    }

    /// Returns what the member wants from the log.
    pub fn request(&self) -> Request<'_> {
        match (self.placed, self.outgoing.front()) {
            (Some(_), _) => Request::Read(self.reader.next),
            (None, Some(first)) => Request::Append(&first.bytes),
            (None, None) if self.role == Role::Primary => Request::Nothing,
            (None, None) => Request::Read(self.reader.next),
        }
    }

    /// Checks that a log that ends before the offset `end` has all that this member has read, and what an earlier member of
    /// this process had read.
    ///
    /// # Errors
    /// If the log has lost its end.
    pub(crate) fn check_end(&self, end: u64) -> Result<(), Fault> {
        let next = self.reader.next;
        if end < next {
            return Err(Fault::LostTail { offset: end, next });
        }
        match self.remembered {
            Some(remembered) if end < remembered.next => Err(Fault::Hole {
                offset: end,
                what: "this node has read records behind it before, which the log has lost",
            }),
            _ => Ok(()),
        }
    }

    /// Takes the answer to [`Request::Append`]: the offset of the record. The append began at `began`.
    ///
    /// # Errors
    /// Why the member must stop. Do not use it any more.
    pub fn appended(
        &mut self,
        offset: u64,
        began: Duration,
        now: Duration,
    ) -> Result<Option<Event>, Fault> {
        let next = self.reader.next;
        if offset < next && flawed!(self.flaw, LostTailIgnored) {
            self.reader.next = offset;
        }
        self.check_end(offset)?;
        let began = if flawed!(self.flaw, LeaseFromAnswer) { now } else { began };
        self.placed = Some(Placed { offset, began, is_pending: true });
        // If nothing lies between, the primary knows what it would read. A candidate reads its fence back: the log is
        // asked which of the fences is the first one.
        let is_known = match self.role {
            Role::Primary => offset == next || flawed!(self.flaw, PositionUnchecked),
            _ => flawed!(self.flaw, FenceNotReadBack),
        };
        if !is_known {
            return Ok(None);
        }
        let bytes = self.outgoing.front().expect("it was appended").bytes.clone();
        self.read(offset.max(self.reader.next), &bytes, now)
    }

    /// Takes a record that was read. Records that were read before are left out.
    ///
    /// # Errors
    /// Why the member must stop. Do not use it any more.
    pub fn read(
        &mut self,
        offset: u64,
        bytes: &[u8],
        now: Duration,
    ) -> Result<Option<Event>, Fault> {
        if offset < self.reader.next {
            return Ok(None);
        }
        self.recall(offset)?;
        let (before, had_gap) = (self.reader.position(), self.reader.gap.is_some());
        let effect = self.reader.take(offset, bytes)?;
        if effect.counts() {
            self.tail.push(offset, bytes, before);
        }
        let (heard, position) = (self.heard, self.reader.boundary);
        if !matches!(effect, Effect::Nothing | Effect::Question(_)) {
            self.heard = now;
        }
        let event = match effect {
            Effect::Nothing | Effect::Alive => None,
            Effect::Question(fault) => Some(Event::Asked(fault)),
            Effect::Gap(fault) => {
                let is_new = !had_gap || self.reader.gap.is_none();
                is_new.then_some(Event::Missing(fault))
            }
            Effect::Part if self.role == Role::Primary => {
                let token = self.pop();
                let is_first =
                    self.outgoing.front().is_some_and(|next| next.part_of == Some(token));
                (flawed!(self.flaw, FirstPartAcknowledges) && is_first)
                    .then_some(Event::Acknowledged { token, position })
            }
            Effect::Part => None,
            Effect::Epoch { token, .. } if self.role == Role::Primary => {
                assert_eq!(self.pop(), token, "a primary reads its own epochs");
                Some(Event::Acknowledged { token, position })
            }
            Effect::Epoch { token, content } => Some(Event::Apply { token, content, position }),
            Effect::Generation { node, .. }
                if node == self.node && self.role == Role::Candidate =>
            {
                self.pop_fence();
                self.serves_from =
                    if flawed!(self.flaw, LeaseNotAwaited) { now } else { heard + self.lease };
                None
            }
            Effect::Generation { generation, body, .. } => {
                self.outgoing.clear();
                self.placed = None;
                match std::mem::replace(&mut self.role, Role::Standby) {
                    Role::Primary => Some(Event::SteppedDown),
                    Role::Standby | Role::Candidate => {
                        Some(Event::Follows { generation, body, position })
                    }
                }
            }
        };
        match self.settle() {
            Ok(won) => Ok(event.or(won)),
            // What the record has done must not be forgotten. The one that is not there is appended again.
            Err(Fault::NotThere { .. }) if event.is_some() => Ok(event),
            Err(fault) => Err(fault),
        }
    }

    /// Removes the first record to be appended, a part of an epoch, because it counts.
    fn pop(&mut self) -> ReplicationToken {
        self.pop_fence().expect("a primary reads its own parts")
    }

    fn pop_fence(&mut self) -> Option<ReplicationToken> {
        if let Some(placed) = &mut self.placed {
            placed.is_pending = false;
        }
        self.outgoing.pop_front().and_then(|first| first.part_of)
    }

    /// If everything up to the record that was appended last has been read, goes on with the next one.
    fn settle(&mut self) -> Result<Option<Event>, Fault> {
        let Some(placed) = self.placed.take_if(|placed| placed.offset < self.reader.next) else {
            return Ok(None);
        };
        if placed.is_pending {
            // A heartbeat has done its work when it is in the log. Everything else has to count.
            let is_heartbeat = self.role == Role::Primary
                && self.outgoing.front().is_some_and(|first| first.part_of.is_none());
            if !is_heartbeat {
                return Err(Fault::NotThere { offset: placed.offset });
            }
            self.outgoing.pop_front();
        }
        // No fence of another member lies before the record, so none was in the log when the append began.
        self.proved = Some(placed.began);
        // The candidate has read its fence, and everything behind it up to where the append that succeeded has put it.
        Ok((self.role == Role::Candidate).then(|| {
            self.role = Role::Primary;
            self.chain = self.reader.chain;
            Event::Won
        }))
    }
}

#[cfg(test)]
mod simulation;
