//! The thread of a node: one life after the other.

use std::sync::Arc;
use std::time::Duration;

use weft::protocol::Protocol;

use super::NodeRole;
use super::error::{ReplicationError, Trouble};
use super::life::{Life, unfit};
use super::report::Report;
use super::state::Core;
use crate::link::End;
use crate::log::LogError;
use crate::reader::Fault;

impl<P: Protocol> Core<P> {
    /// Lives one life after the other, until the node stops. This is what the node's thread does.
    pub(super) fn run(&self) {
        loop {
            let life = Arc::clone(&self.state().life);
            let end = self.live(&life).err().unwrap_or(End::Stopped);
            if end == End::Stopped {
                // The commits so far are replicated, and no transaction begins any more.
                let _ = life.database.close_within(self.setup.builder.options.deadline);
            }
            self.sync_journal(&life);
            life.link.end(end.clone());
            let memory = life.link.session().member.memory();
            let next = match end {
                // The directory finds the same records and reports them, with the file in which it keeps them.
                End::Forked(Some(loss)) if self.setup.directory.is_none() => {
                    self.report(Report::Lost(loss));
                    self.begin_again(false)
                }
                // Without a directory, this process alone remembers what the log had.
                End::SteppedDown | End::GaveUp if self.setup.directory.is_none() => {
                    let next = self.begin_again(false);
                    next.inspect(|life| life.link.session().member.remember(memory))
                }
                End::SteppedDown | End::GaveUp => self.begin_again(false),
                End::Forked(_) => self.begin_again(true),
                // The node was too slow for the log.
                End::Fault(Fault::Gone { .. }) if self.setup.builder.backups.is_some() => {
                    self.begin_again(false)
                }
                End::Fault(fault) => Err(Some(fault)),
                End::Stopped => Err(None),
            };
            let is_over = next.is_err();
            self.change(|state| {
                state.missing = None;
                match next {
                    Ok(life) => {
                        let position = life.applied().position;
                        state.life = life;
                        (state.token, state.next_offset) = (position.token(), position.next);
                    }
                    Err(fault) => {
                        state.role = NodeRole::Stopped;
                        state.fault = fault;
                    }
                }
            });
            // No transaction begins any more in the database of the life that is over.
            let _ = life.database.close_within(Duration::ZERO);
            if is_over {
                return;
            }
        }
    }

    /// Opens the database again, as a standby. If the log or the store with the backups cannot be reached, tries until it
    /// can. Returns a fault, or `None` if the node is to stop.
    pub(super) fn begin_again(&self, all: bool) -> Result<Arc<Life<P>>, Option<Fault>> {
        // This can take as long as the log does not answer. The node is not the primary any more, and knows no other one.
        self.change(|state| {
            (state.role, state.is_current, state.primary) = (NodeRole::Standby, false, None);
            state.missing = None;
        });
        let mut reports = Vec::new();
        let begun = loop {
            let trouble = match self.setup.begin(all, &mut reports) {
                Err(ReplicationError::Log(error @ LogError::Unavailable(_))) => Trouble::Log(error),
                Err(ReplicationError::BackupStore(what)) => Trouble::BackupStore(what),
                begun => break begun.map_err(|error| Some(unfit(&error))),
            };
            self.state().trouble = Some(trouble);
            if self.wait(self.setup.builder.options.poll, |state| state.is_stopping) {
                break Err(None);
            }
        };
        self.change(|state| {
            state.reports.extend(reports);
            state.trouble = None;
        });
        begun
    }

    pub(super) fn report(&self, report: Report) {
        self.change(|state| state.reports.push(report));
    }

    /// Has the directory keep what it was given.
    pub(super) fn sync_journal(&self, life: &Life<P>) {
        let pending = life.link.session().journal.as_ref().map(crate::journal::Journal::begin_sync);
        // The log still has the records that are not on the disk then.
        let _ = pending.map(crate::journal::PendingSync::wait);
    }
}
