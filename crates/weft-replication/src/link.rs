//! The connection of one open database with the log: a member, and what drives it.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weft::htm::word::{Ordering, Word};

use crate::directory::{Loss, loss};
use crate::disk::{Mode, Sink};
use crate::journal::{Journal, JournalRecord};
use crate::log::{LogError, ReplicatedLog};
use crate::member::{Event, Member, Request, Role};
use crate::node::Options;
use crate::reader::{ASKED, Fault, Position};
use crate::record::{EPOCH_BYTES_MAX, Record, RecordKind};
use crate::tail::{Agreement, repair};

/// Why a database no longer follows the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The node was stopped.
    Stopped,
    /// Another node is the primary now.
    SteppedDown,
    /// The log has not answered for too long. It is unknown what has become of the last record.
    GaveUp,
    /// The log has other records in the place of some that the database has. They are lost, if any of them was an epoch.
    Forked(Option<Loss>),
    /// Going on could mean to lose or to invent commits.
    Fault(Fault),
}

fn unfit(message: String) -> End {
    End::Fault(Fault::Unfit { message })
}

impl From<Fault> for End {
    fn from(fault: Fault) -> End {
        End::Fault(fault)
    }
}

/// What came of a step of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It went on.
    Done,
    /// There was nothing to read.
    Nothing,
    /// The log did not do what it was asked for.
    Failed,
}

/// A member, and whether it still works.
#[derive(Debug)]
pub struct Session {
    pub member: Member,
    pub end: Option<End>,
    /// Why the log may not have everything that the member has read.
    pub doubt: Option<Fault>,
    /// Behind the last record that has given rise to a doubt.
    doubted_before: u64,
    /// The node's own copy of the log, if it has a directory.
    pub journal: Option<Journal>,
    /// How many parts the journal has that do not count yet.
    ahead: usize,
    /// Where in the log the epochs of this primary end, if somebody wants to know: their numbers and places.
    pub recorded: Option<Vec<(u64, Position)>>,
    /// How many records were appended again, because the log had lost them.
    pub repaired: usize,
}

impl Session {
    pub fn new(member: Member, journal: Option<Journal>) -> Session {
        Session {
            member,
            end: None,
            doubt: None,
            doubted_before: 0,
            journal,
            ahead: 0,
            recorded: None,
            repaired: 0,
        }
    }

    /// Compares the log with what the member has read, and appends what the log has lost.
    ///
    /// # Errors
    /// If the database cannot be continued.
    pub fn compare(&mut self, log: &dyn ReplicatedLog) -> Result<Step, End> {
        let fault = self.doubt.take();
        let tail = self.member.tail();
        match repair(tail, log, true, Some(self.member.next_offset())) {
            Err(LogError::Misconfigured(message)) => Err(unfit(message)),
            Err(_) => {
                self.doubt = fault;
                Ok(Step::Failed)
            }
            Ok((Agreement::Whole { next }, appended)) => {
                self.repaired += appended;
                // A record that gives rise to a doubt twice has no effect.
                match fault {
                    Some(Fault::Hole { what: ASKED, .. }) => {}
                    Some(Fault::Hole { offset, .. }) if offset < self.doubted_before => {}
                    Some(Fault::Hole { offset, .. }) => {
                        self.doubted_before = offset + 1;
                        self.member.resume(next);
                    }
                    _ => self.member.resume(next),
                }
                Ok(Step::Done)
            }
            Ok((Agreement::Other { from }, _)) => {
                let lost = tail.since(tail.counted() - (tail.length() - from) as u64);
                Err(End::Forked(loss(lost.map(|kept| (&*kept.bytes, true)), None)))
            }
            Ok((Agreement::Missing { .. } | Agreement::Unknown, _)) => {
                let next = self.member.next_offset();
                Err(End::Fault(fault.unwrap_or(Fault::LostTail { offset: next, next })))
            }
        }
    }

    /// Writes the records to the journal that have counted.
    pub fn note(&mut self) -> Result<(), End> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let written = journal.next() - self.ahead as u64;
        for kept in self.member.tail().since(written) {
            let record = Record::decode(&kept.bytes);
            let is_part = record.is_ok_and(|it| matches!(it.kind, RecordKind::Part { .. }));
            if self.ahead > 0 && is_part {
                self.ahead -= 1;
            } else {
                let (offset, bytes) = (kept.offset, kept.bytes.to_vec());
                journal.push(&JournalRecord { offset, is_ahead: false, bytes }).map_err(unkept)?;
            }
        }
        Ok(())
    }

    /// Writes the parts to the journal that wait to be appended to the log, while that happens.
    pub fn note_ahead(&mut self) -> Result<(), End> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        for bytes in self.member.outgoing().skip(self.ahead) {
            let (offset, bytes) = (self.member.next_offset(), bytes.to_vec());
            journal.push(&JournalRecord { offset, is_ahead: true, bytes }).map_err(unkept)?;
            self.ahead += 1;
        }
        Ok(())
    }
}

/// Returns that the node's directory has not taken what it was given.
fn unkept(error: io::Error) -> End {
    End::Fault(Fault::Unfit { message: format!("the node's directory: {error}") })
}

/// The connection.
pub struct Link {
    log: Arc<dyn ReplicatedLog>,
    options: Options,
    start: Instant,
    session: Mutex<Session>,
    /// The [`Mode`], as a number.
    mode: Word,
    /// Until when this node is certain to be the only primary, in microseconds. So a read within the lease need not wait
    /// for an append.
    certain_until_us: Word,
    /// The last epoch of this primary that is replicated, or 0.
    acknowledged_epoch: Word,
    /// Why the last call of the log has failed, if it has.
    trouble: Mutex<Option<LogError>>,
}

impl Link {
    /// Returns the connection of a database that is the one at this position.
    pub fn new(
        log: Arc<dyn ReplicatedLog>,
        options: &Options,
        position: Position,
        journal: Option<Journal>,
    ) -> Link {
        // A number that no member has had, on any node: the keys of the hash are the operating system's random numbers.
        let node = RandomState::new().hash_one(0);
        #[allow(unused_mut, reason = "it is changed with a feature")]
        let mut member = Member::at(position, node, options.lease, Duration::ZERO);
        #[cfg(feature = "planted-bugs")]
        member.plant(crate::flaw::Flaw::of_environment());
        Link {
            log,
            options: options.clone(),
            start: Instant::now(),
            session: Mutex::new(Session::new(member, journal)),
            mode: Word::new(Mode::Following as u64),
            certain_until_us: Word::new(0),
            acknowledged_epoch: Word::new(0),
            trouble: Mutex::new(None),
        }
    }

    /// Returns the present time, as the member counts it.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the database write to the log from now on.
    pub fn begin_writing(&self) {
        self.set_mode(Mode::Writing);
    }

    /// Ends the connection, unless it has ended.
    pub fn end(&self, end: End) {
        let mut session = self.session();
        session.end.get_or_insert(end);
        // The next life of the node opens the files again.
        session.journal = None;
        drop(session);
        self.set_mode(Mode::Ended);
    }

    fn set_mode(&self, mode: Mode) {
        // SeqCst: rare.
        self.mode.store(mode as u64, Ordering::SeqCst);
    }

    /// Returns why the last call of the log has failed, if it has.
    pub fn trouble(&self) -> Option<LogError> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_trouble(&self, trouble: Option<&LogError>) {
        let mut last = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some() || trouble.is_some() {
            *last = trouble.cloned();
        }
    }

    /// Does what the member wants, once. `handle` gets what follows from that.
    pub fn step(
        &self,
        session: &mut Session,
        mut handle: impl FnMut(Event) -> Result<(), End>,
    ) -> Result<Step, End> {
        if session.doubt.is_some() {
            return session.compare(&*self.log);
        }
        let (mut doubt, doubted_before) = (None, session.doubted_before);
        let step = self.ask(&mut session.member, &mut |event| {
            let fault = match &event {
                Event::Missing(fault) | Event::Asked(fault) => Some(fault),
                _ => None,
            };
            if let Some(fault) = fault {
                let is_new =
                    !matches!(fault, Fault::Hole { offset, .. } if *offset < doubted_before);
                // What this node misses itself comes before what others ask for.
                let known =
                    doubt.take().filter(|it| !matches!(it, Fault::Hole { what: ASKED, .. }));
                doubt = known.or_else(|| is_new.then(|| fault.clone()));
                return Ok(());
            }
            if let (Event::Acknowledged { token, position }, Some(recorded)) =
                (&event, &mut session.recorded)
            {
                recorded.push((token.epoch, *position));
            }
            handle(event)
        });
        session.note()?;
        session.member.trim_tail();
        session.doubt = doubt;
        step
    }

    /// Asks the log for what the member wants.
    fn ask(
        &self,
        member: &mut Member,
        handle: &mut dyn FnMut(Event) -> Result<(), End>,
    ) -> Result<Step, End> {
        let mut take = |event: Result<Option<Event>, Fault>| match event {
            Ok(event) => event.map_or(Ok(()), &mut *handle),
            Err(fault @ (Fault::LostTail { .. } | Fault::NotThere { .. })) => {
                handle(Event::Missing(fault))
            }
            Err(fault) => Err(End::Fault(fault)),
        };
        match member.request() {
            Request::Nothing => Ok(Step::Nothing),
            Request::Append(bytes) => {
                // A fence ends its predecessor's generation. So it must not take the place of records that the log has
                // confirmed and lost, which this node or another one can append again.
                if member.role() == Role::Candidate {
                    let range = self.log.range();
                    self.set_trouble(range.as_ref().err());
                    let end = match range {
                        Ok((_, end)) => end,
                        Err(LogError::Misconfigured(message)) => return Err(unfit(message)),
                        Err(_) => return Ok(Step::Failed),
                    };
                    if let Err(fault) = member.check_end(end) {
                        take(Err(fault))?;
                        return Ok(Step::Done);
                    }
                }
                let began = self.now();
                let appended = self.log.append(bytes);
                self.set_trouble(appended.as_ref().err());
                let offset = match appended {
                    Ok(offset) => offset,
                    Err(LogError::Misconfigured(message)) => return Err(unfit(message)),
                    Err(_) => return Ok(Step::Failed),
                };
                let event = member.appended(offset, began, self.now());
                take(event)?;
                Ok(Step::Done)
            }
            Request::Read(from) => {
                let read = self.log.read(from, self.options.poll);
                self.set_trouble(read.as_ref().err());
                let records = match read {
                    Ok(records) => records,
                    Err(LogError::Unavailable(_)) => return Ok(Step::Failed),
                    Err(LogError::Misconfigured(message)) => return Err(unfit(message)),
                    Err(LogError::OutOfRange { first, .. }) if from < first => {
                        return Err(End::Fault(Fault::Gone { first, next: from }));
                    }
                    Err(LogError::OutOfRange { end, .. }) if from > end => {
                        take(Err(Fault::LostTail { offset: end, next: from }))?;
                        return Ok(Step::Done);
                    }
                    Err(LogError::OutOfRange { .. }) => {
                        // The log has grown since the read.
                        return Ok(Step::Failed);
                    }
                };
                for record in &records {
                    let event = member.read(record.offset, &record.bytes, self.now());
                    take(event)?;
                }
                Ok(if records.is_empty() { Step::Nothing } else { Step::Done })
            }
        }
    }

    /// As the primary, appends everything that waits, and reads what lies before it. If that cannot be done, the node is no
    /// longer the primary with this database.
    pub fn drive(&self, session: &mut Session) -> Result<(), End> {
        if let Some(end) = &session.end {
            return Err(end.clone());
        }
        let result = self.try_drive(session);
        if let Err(end) = &result {
            session.end = Some(end.clone());
            self.set_mode(Mode::Ended);
        }
        let until = session.member.lease_until().map_or(0, |until| until.as_micros() as u64);
        // Relaxed: the time says all. A reader that misses it waits for the session.
        self.certain_until_us.store(until, Ordering::Relaxed);
        if session.member.role() == Role::Primary {
            // Release: pairs with the acquire in `acknowledged_epoch`.
            self.acknowledged_epoch.store(session.member.token().epoch, Ordering::Release);
        }
        result
    }

    fn try_drive(&self, session: &mut Session) -> Result<(), End> {
        let begin = self.now();
        while !session.member.is_idle() || session.doubt.is_some() {
            let step = self.step(session, |event| match event {
                Event::SteppedDown => Err(End::SteppedDown),
                _ => Ok(()),
            })?;
            if step == Step::Done {
                continue;
            }
            if self.now() > begin + self.options.deadline {
                return Err(End::GaveUp);
            }
            if step == Step::Failed {
                thread::sleep(self.options.poll);
            }
        }
        Ok(())
    }

    /// Returns the last epoch of this primary that is replicated, or 0 if there isn't one. It is not before any epoch whose
    /// acknowledgement the caller has waited for.
    pub fn acknowledged_epoch(&self) -> u64 {
        // Acquire: pairs with the release in `drive`. The sync of the epoch's segment returns after that.
        self.acknowledged_epoch.load(Ordering::Acquire)
    }

    /// Returns whether the lease proves that the node was the only primary when a read ended at `ended`.
    pub fn is_certain(&self, ended: Duration) -> bool {
        (ended.as_micros() as u64) < self.certain_until_us.load(Ordering::Relaxed)
    }

    /// Asks the other nodes for records that are missing.
    pub fn question(&self, member: &Member) {
        // If it does not arrive, the next one may.
        let _ = self.log.append(&member.question());
    }

    /// Proves that the node was the only primary when a read ended at `ended`. A node that does not write as the primary
    /// cannot prove that.
    pub fn prove(&self, ended: Duration) -> Result<(), End> {
        if self.is_certain(ended) {
            return Ok(());
        }
        if self.mode() != Mode::Writing {
            return Err(End::SteppedDown);
        }
        let mut session = self.session();
        if let Some(end) = &session.end {
            return Err(end.clone());
        }
        if !session.member.was_only_primary(ended, self.now()) {
            session.member.beat();
            self.drive(&mut session)?;
        }
        Ok(())
    }

    /// Has a heartbeat appended, as the primary.
    pub fn beat(&self) -> Result<(), End> {
        let mut session = self.session();
        if session.end.is_none() {
            session.member.beat();
        }
        self.drive(&mut session)
    }
}

impl Link {
    /// Compares the log with what a new primary has read. It must have nothing that the log has not.
    ///
    /// # Errors
    /// If it has, or the log does not answer.
    pub fn prove_history(&self) -> Result<(), End> {
        let begin = self.now();
        let mut session = self.session();
        while session.compare(&*self.log)? == Step::Failed {
            if self.now() > begin + self.options.deadline {
                return Err(End::GaveUp);
            }
            thread::sleep(self.options.poll);
        }
        Ok(())
    }
}

impl Sink for Link {
    fn mode(&self) -> Mode {
        match self.mode.load(Ordering::SeqCst) {
            mode if mode == Mode::Following as u64 => Mode::Following,
            mode if mode == Mode::Writing as u64 => Mode::Writing,
            _ => Mode::Ended,
        }
    }

    fn replicate(&self, epoch: u64, entries: &[u8]) -> io::Result<()> {
        if entries.len() > EPOCH_BYTES_MAX {
            let message = format!(
                "an epoch has {} bytes, and can have {EPOCH_BYTES_MAX}: divide the transaction",
                entries.len()
            );
            self.end(End::Fault(Fault::Unfit { message }));
        }
        let mut session = self.session();
        if session.end.is_some() || session.member.role() != Role::Primary {
            return Err(io::Error::other("the node is no longer the primary"));
        }
        session.member.write(epoch, entries);
        // The node's directory and the log keep the epoch at the same time.
        let noted = session.note_ahead();
        let synced = session.journal.as_ref().map(Journal::begin_sync);
        let driven = noted.and_then(|()| self.drive(&mut session));
        let synced = synced.map_or(Ok(()), |synced| synced.wait().map_err(unkept));
        driven.and(synced).map_err(|end| {
            session.end.get_or_insert_with(|| end.clone());
            self.set_mode(Mode::Ended);
            io::Error::other(format!("{end:?}"))
        })
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Link").field("log", &self.log).finish_non_exhaustive()
    }
}
