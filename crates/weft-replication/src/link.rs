//! The connection of one open database with the log: a member, and what drives it.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weft::htm::word::{Ordering, Word};

use crate::disk::{Mode, Sink};
use crate::log::{LogError, ReplicatedLog};
use crate::member::{Event, Member, Request, Role};
use crate::node::Options;
use crate::reader::Fault;
use crate::record::EPOCH_BYTES_MAX;

/// Why a database no longer follows the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The node was stopped.
    Stopped,
    /// Another node is the primary now.
    SteppedDown,
    /// The log has not answered for too long. It is unknown what has become of the last record.
    GaveUp,
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
    /// Why the last call of the log has failed, if it has.
    trouble: Mutex<Option<LogError>>,
}

impl Link {
    pub fn new(log: Arc<dyn ReplicatedLog>, options: &Options) -> Link {
        // A number that no member has had, on any node: the keys of the hash are the operating system's random numbers.
        let node = RandomState::new().hash_one(0);
        #[allow(unused_mut, reason = "it is changed with a feature")]
        let mut member = Member::new(node, options.lease, Duration::ZERO);
        #[cfg(feature = "planted-bugs")]
        member.plant(crate::flaw::Flaw::of_environment());
        Link {
            log,
            options: options.clone(),
            start: Instant::now(),
            session: Mutex::new(Session { member, end: None }),
            mode: Word::new(Mode::Following as u64),
            certain_until_us: Word::new(0),
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
        self.session().end.get_or_insert(end);
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
        member: &mut Member,
        mut handle: impl FnMut(Event) -> Result<(), End>,
    ) -> Result<Step, End> {
        match member.request() {
            Request::Nothing => Ok(Step::Nothing),
            Request::Append(bytes) => {
                let began = self.now();
                let appended = self.log.append(bytes);
                self.set_trouble(appended.as_ref().err());
                let offset = match appended {
                    Ok(offset) => offset,
                    Err(LogError::Misconfigured(message)) => return Err(unfit(message)),
                    Err(_) => return Ok(Step::Failed),
                };
                let event = member.appended(offset, began, self.now())?;
                event.map_or(Ok(()), &mut handle)?;
                Ok(Step::Done)
            }
            Request::Read(from) => {
                let read = self.log.read(from, self.options.poll);
                self.set_trouble(read.as_ref().err());
                let records = match read {
                    Ok(records) => records,
                    Err(LogError::Unavailable(_)) => return Ok(Step::Failed),
                    Err(LogError::Misconfigured(message)) => return Err(unfit(message)),
                    Err(LogError::OutOfRange { first, end, .. }) => {
                        if from < first {
                            return Err(Fault::Gone { first, next: from }.into());
                        }
                        if from > end {
                            return Err(Fault::LostTail { offset: end, next: from }.into());
                        }
                        // The log has grown since the read.
                        return Ok(Step::Failed);
                    }
                };
                for record in &records {
                    let event = member.read(record.offset, &record.bytes, self.now())?;
                    event.map_or(Ok(()), &mut handle)?;
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
        let result = self.try_drive(&mut session.member);
        if let Err(end) = &result {
            session.end = Some(end.clone());
            self.set_mode(Mode::Ended);
        }
        let until = session.member.lease_until().map_or(0, |until| until.as_micros() as u64);
        // Relaxed: the time says all. A reader that misses it waits for the session.
        self.certain_until_us.store(until, Ordering::Relaxed);
        result
    }

    fn try_drive(&self, member: &mut Member) -> Result<(), End> {
        let begin = self.now();
        while !member.is_idle() {
            let step = self.step(member, |event| match event {
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

    /// Returns whether the lease proves that the node was the only primary when a read ended at `ended`.
    pub fn is_certain(&self, ended: Duration) -> bool {
        (ended.as_micros() as u64) < self.certain_until_us.load(Ordering::Relaxed)
    }

    /// Proves that the node was the only primary when a read ended at `ended`.
    pub fn prove(&self, ended: Duration) -> Result<(), End> {
        if self.is_certain(ended) {
            return Ok(());
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
        self.drive(&mut session).map_err(|end| io::Error::other(format!("{end:?}")))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Link").field("log", &self.log).finish_non_exhaustive()
    }
}
