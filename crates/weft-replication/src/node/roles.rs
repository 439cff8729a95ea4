//! What a node does in one life: it follows the log as a standby, and then leads as the primary.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use weft::Timestamp;
use weft::protocol::Protocol;
use weft_changes::LoggedTables;

use super::builder::Options;
use super::life::{Applied, Life, read_tables, unfit};
use super::report::Report;
use super::state::{Core, StayReason};
use super::{NodeRole, fence};
use crate::link::{End, Session, Step};
use crate::member::{Event, Role};
use crate::reader::{Fault, ReplicationToken};
use crate::tables::{ApplyError, apply};
use crate::tail::Kept;

/// How often a node asks the others for records that are missing.
const QUESTION_INTERVAL: Duration = Duration::from_secs(1);

impl<P: Protocol> Core<P> {
    /// Follows the log, and leads when it is time for that.
    pub(super) fn live(&self, life: &Life<P>) -> Result<(), End> {
        self.follow(life)?;
        self.lead(life)
    }

    /// Applies what the primary writes. Returns when this node is the primary.
    pub(super) fn follow(&self, life: &Life<P>) -> Result<(), End> {
        let Options { silence, deadline, poll, .. } = self.setup.builder.options;
        // Nodes that miss the same primary do not all stand at the same time.
        let silence =
            silence.map(|silence| silence.mul_f64(1.0 + fastrand::Rng::new().f64() / 2.0));
        let link = &life.link;
        let mut tables = self.replay(life)?;
        // Whether the last read has found the log's end, and whether this node has read all that there was since the log
        // has answered again. While a primary is busy, no read finds the end. So the node asks where the end is, and reads up
        // to there.
        let (mut is_at_end, mut has_read_all) = (false, false);
        let mut goal = None;
        let (mut stood, mut asked) = (Duration::ZERO, Duration::ZERO);
        loop {
            let (is_promoted, gives_up_missing, is_stopping) = {
                let state = self.state();
                (state.promotions > 0, state.gives_up_missing, state.is_stopping)
            };
            if is_stopping {
                return Err(End::Stopped);
            }
            let mut session = link.session();
            let member = &mut session.member;
            let now = link.now();
            // A standby that is slow may not have read for a while what the primary has written.
            let is_silent =
                is_at_end && silence.is_some_and(|silence| now > member.heard() + silence);
            let can_stand = member.role() == Role::Standby
                && (member.missing().is_none() || gives_up_missing && is_promoted);
            if can_stand && (is_promoted && has_read_all || is_silent) {
                member.stand(&life.fence);
                stood = now;
            }
            if member.role() == Role::Candidate && now > stood + deadline {
                return Err(End::GaveUp);
            }
            if member.missing().is_some() && now > asked + QUESTION_INTERVAL {
                link.question(member);
                asked = now;
            }
            let mut events = Vec::new();
            let step = link.step(&mut session, |event| {
                events.push(event);
                Ok(())
            });
            let role = self.look_at(&mut session);
            let next_offset = session.member.next_offset();
            drop(session);
            for event in events {
                if self.stays_before(&event) {
                    return self.stay(StayReason::LaterRecord);
                }
                // It has won, and the same read has found the fence of the next primary. What follows needs the tables
                // of that fence, and a database without what this node could have committed.
                if event == Event::SteppedDown {
                    return Err(End::SteppedDown);
                }
                let token = self.apply(life, &mut tables, event)?;
                self.change(|state| state.token = token.unwrap_or(state.token));
            }
            let step = step?;
            is_at_end = step == Step::Nothing;
            if step == Step::Failed {
                // The log may have lost its end when it answers again.
                (has_read_all, goal) = (false, None);
            } else if !has_read_all {
                goal = goal.or_else(|| self.setup.log.range().ok().map(|(_, end)| end));
                has_read_all = is_at_end || goal.is_some_and(|goal| next_offset >= goal);
            }
            if has_read_all {
                self.change_quietly(|state| !std::mem::replace(&mut state.is_current, true));
            }
            if is_at_end && self.setup.builder.until.is_some() {
                return self.stay(StayReason::LogEnd);
            }
            match role {
                Role::Primary => return Ok(()),
                _ if step == Step::Failed => thread::sleep(poll),
                _ => {}
            }
        }
    }

    /// Returns whether an event is behind the moment where the node stays.
    pub(super) fn stays_before(&self, event: &Event) -> bool {
        let token = match event {
            Event::Apply { token, .. } => *token,
            Event::Follows { generation, .. } => {
                ReplicationToken { generation: *generation, epoch: 0 }
            }
            _ => return false,
        };
        self.setup.builder.until.is_some_and(|until| token > until)
    }

    /// Does nothing more until the node is stopped.
    pub(super) fn stay(&self, reason: StayReason) -> Result<(), End> {
        self.change(|state| state.stays = Some(reason));
        while !self.wait(Duration::from_secs(1), |state| state.is_stopping) {}
        Err(End::Stopped)
    }

    /// Notes what others may ask for, and returns the member's role.
    pub(super) fn look_at(&self, session: &mut Session) -> Role {
        let repaired = std::mem::take(&mut session.repaired);
        let lost = session.member.take_lost();
        let (missing, next_offset) =
            (session.member.missing().cloned(), session.member.next_offset());
        let mut state = self.state();
        state.next_offset = next_offset;
        state.missing = missing;
        state.reports.extend((repaired > 0).then_some(Report::Repaired { records: repaired }));
        state.reports.extend(lost.map(Report::Missing));
        session.member.role()
    }

    /// Applies what the directory has behind the rows with which the life began. Returns the tables of the last fence.
    pub(super) fn replay(&self, life: &Life<P>) -> Result<Option<LoggedTables>, End> {
        // A base that has only some of the records would soon be followed by the next one.
        let _alone = life.capturing.lock().unwrap_or_else(PoisonError::into_inner);
        let body = life.applied().body.clone();
        let read = |body: &[u8]| {
            let (address, manifest) = fence::decode(body).map_err(|what| unfit(&what))?;
            self.change(|state| state.primary = address.map(Arc::from));
            read_tables(manifest).map_err(|what| unfit(&what))
        };
        let mut tables = (!body.is_empty()).then(|| read(&body)).transpose()?;
        let (replay, next) = {
            let mut replay = life.replay.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut replay.0), replay.1)
        };
        for Kept { offset, bytes, .. } in replay {
            let event = {
                let mut session = life.link.session();
                session.member.resume(offset);
                let event = session.member.read(offset, &bytes, life.link.now())?;
                session.member.trim_tail();
                event
            };
            if let Some(event) = event {
                let token = self.apply(life, &mut tables, event)?;
                self.change(|state| state.token = token.unwrap_or(state.token));
            }
            if self.state().is_stopping {
                return Err(End::Stopped);
            }
        }
        let position = {
            let mut session = life.link.session();
            session.member.resume(next);
            session.member.position()
        };
        // The records of the directory have offsets that may be earlier than theirs.
        life.applied().position = position;
        Ok(tables)
    }

    /// Does what follows from a record, and returns how far the database is then, if it has changed.
    pub(super) fn apply(
        &self,
        life: &Life<P>,
        tables: &mut Option<LoggedTables>,
        event: Event,
    ) -> Result<Option<ReplicationToken>, Fault> {
        match event {
            Event::Follows { generation, body, position } => {
                let (address, manifest) = fence::decode(&body).map_err(|what| unfit(&what))?;
                *tables = Some(read_tables(manifest).map_err(|what| unfit(&what))?);
                self.change(|state| state.primary = address.map(Arc::from));
                *life.applied() = Applied { position, body };
                Ok(Some(ReplicationToken { generation, epoch: 0 }))
            }
            Event::Apply { token, content, position } => {
                let ReplicationToken { generation, epoch: number } = token;
                let place = format!("epoch {number} of generation {generation}");
                let tables = tables.as_ref().expect("a fence comes before all epochs");
                let apply = || {
                    let epoch = tables.read(number, content, &place)?;
                    // A reader of this node's time never is ahead of the rows, nor behind: the transaction commits with the
                    // time.
                    let before = life.clock.time();
                    let time = epoch.time().map_or(before, Timestamp::from_millis).max(before);
                    apply(&life.database, &life.tables, &epoch, time)?;
                    life.clock.set(time);
                    Ok::<_, ApplyError>(())
                };
                let mut applied = life.applied();
                // It runs code of the row types.
                match catch_unwind(AssertUnwindSafe(apply)) {
                    Ok(Ok(())) => {
                        applied.position = position;
                        Ok(Some(token))
                    }
                    Ok(Err(error)) => Err(unfit(&format_args!("{place}: {error}"))),
                    Err(_) => Err(unfit(&format_args!("{place}: code of a row type has panicked"))),
                }
            }
            Event::Won | Event::Acknowledged { .. } | Event::SteppedDown => Ok(None),
            Event::Missing(_) | Event::Asked(_) => Ok(None),
        }
    }

    /// Is the primary. Returns why it no longer is.
    pub(super) fn lead(&self, life: &Life<P>) -> Result<(), End> {
        let (link, heartbeat) = (&life.link, self.setup.builder.options.heartbeat);
        // The primary before may have a lease until then.
        let serves_from = link.session().member.serves_from();
        let left = serves_from.saturating_sub(link.now());
        if self.wait(left, |state| state.is_stopping) {
            return Err(End::Stopped);
        }
        // What was applied so far lies in the log already, and must not be appended as epochs of this node.
        life.database.flush().map_err(|error| unfit(&error))?;
        link.prove_history()?;
        {
            let mut applied = life.applied();
            let position = link.session().member.position();
            *applied = Applied { position, body: life.fence.clone() };
            link.begin_writing();
        }
        link.beat()?;
        // From here on what the background commits is replicated, too.
        life.database.recall_results().map_err(|error| unfit(&error))?;
        let clock = self.setup.builder.clock.as_ref();
        life.database.follow_clock(clock).map_err(|error| unfit(&error))?;
        let token = link.session().member.token();
        let address = &*self.setup.builder.address;
        let own_address = (!address.is_empty()).then(|| Arc::from(address));
        self.change(|state| {
            (state.role, state.token) = (NodeRole::Primary, token);
            (state.promotions, state.times_primary) = (0, state.times_primary + 1);
            state.primary = own_address.clone();
        });
        loop {
            if self.wait(heartbeat, |state| state.is_stopping) {
                return Err(End::Stopped);
            }
            link.beat()?;
            self.look_at(&mut link.session());
        }
    }
}
