//! What a session waits for: an element, a time, its turn, or a commit that is to become durable.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft::{CommitToken, Database, Failure, TransactionOptions};

use crate::call::{Call, Caller, DataCommand};
use crate::clients::Client;
use crate::commands::Command;
use crate::effects::Effects;
use crate::reply::Reply;
use crate::server::Server;
use crate::session::{Replies, Session};
use crate::stop::{Done, text_of};
use crate::tables::Text;
use crate::turns::Turn;
use crate::waiting::{Unblocked, Wait, Waiter};
use crate::watch;

/// What a client waits for before its next command.
#[derive(Debug)]
pub enum Pause {
    /// An element.
    Element(Box<Blocked>),
    /// A time: `DEBUG SLEEP`.
    Sleep(Duration),
    /// Its turn at a hot key.
    Turn(Box<AwaitedTurn>),
    /// A commit in the log.
    Commit(AwaitedCommit),
}

/// A `WAIT` or `WAITAOF` that waits until the client's newest commit is in the log.
#[derive(Debug)]
pub struct AwaitedCommit {
    /// The commit.
    pub commit: CommitToken,
    /// When it stops waiting; `None` for never.
    pub deadline: Option<Instant>,
    /// The reply if the commit is in the log then.
    pub reached: Reached,
    /// Whether the client will see the reply.
    pub wants_reply: bool,
}

impl AwaitedCommit {
    /// Waits until the commit is in the log, or the time is over, and writes the reply.
    ///
    /// The calling thread never syncs for this: it is free when the time is over.
    ///
    /// # Errors
    /// The commit cannot become durable. The reply says so.
    pub async fn wait(&self, database: &Database, reply: &mut Reply) -> Result<(), Failure> {
        let durable = database.when_durable(self.commit);
        let waited = match self.deadline {
            Some(deadline) => tokio::time::timeout_at(deadline.into(), durable).await.ok(),
            None => Some(durable.await),
        };
        // The time may be over although the commit is in the log: it may have come there while earlier replies were sent.
        let is_there = database.durable_epoch() >= Some(self.commit.epoch());
        let reached = match waited {
            Some(Err(failure)) => Err(failure),
            Some(Ok(())) => Ok(self.reached),
            None if is_there => Ok(self.reached),
            None => Ok(self.reached.nowhere()),
        };
        match &reached {
            Ok(reached) if self.wants_reply => reached.write(reply),
            Err(failure) if self.wants_reply => reply.error(&text_of(failure)),
            _ => {}
        }
        reached.map(drop)
    }
}

/// Where a client's commits are: the reply to `WAIT` or `WAITAOF`.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    /// Whether they are on the disk of this server; `None` in a reply to `WAIT`.
    pub is_local: Option<bool>,
    /// On how many machines the log has them.
    pub copies: i64,
}

impl Reached {
    /// Returns the reply if the commits are not in the log yet.
    pub fn nowhere(self) -> Self {
        Reached { is_local: self.is_local.map(|_| false), copies: 0 }
    }

    /// Writes the reply.
    pub fn write(self, reply: &mut Reply) {
        if let Some(is_local) = self.is_local {
            reply.array(2);
            reply.flag(is_local);
        }
        reply.integer(self.copies);
    }
}

/// A `WATCH` that waits for the client's turn. Its keys count as watched already, so that their rows stay when the client
/// before this one forgets them.
#[derive(Debug)]
pub struct AwaitedTurn {
    server: Arc<Server>,
    space: u8,
    /// The client's place in the line.
    pub turn: Option<Turn>,
    /// The keys to watch.
    pub names: Vec<Text>,
    /// Whether the client will see the reply.
    pub wants_reply: bool,
}

impl AwaitedTurn {
    /// Begins to wait for a turn at keys of the session's numbered database.
    pub fn new(session: &Session, turn: Turn, names: &[&[u8]]) -> Self {
        let (server, space) = (Arc::clone(&session.server), session.space);
        let names: Vec<Text> = names.iter().map(|name| (*name).into()).collect();
        names.iter().for_each(|name| server.watches.add((space, name.clone())));
        let wants_reply = session.replies == Replies::On;
        AwaitedTurn { server, space, turn: Some(turn), names, wants_reply }
    }
}

impl Drop for AwaitedTurn {
    fn drop(&mut self) {
        for name in &self.names {
            self.server.watches.remove(&self.server, &(self.space, name.clone()));
        }
    }
}

/// A command that waits. Dropping it ends the waiting.
#[derive(Debug)]
pub struct Blocked {
    server: Arc<Server>,
    client: Arc<Client>,
    command: &'static Command,
    run: DataCommand,
    arguments: Vec<Box<[u8]>>,
    wants_reply: bool,
    /// Where it waits.
    pub waiter: Arc<Waiter>,
    /// Whether the waiter is in its lines.
    is_in_line: bool,
    /// When it stops waiting; `None` for never.
    pub deadline: Option<Instant>,
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.client.wait(None);
        self.leave();
        let space = self.waiter.space;
        for (key, _) in &self.waiter.places {
            self.server.watches.remove(&self.server, &(space, key.clone()));
        }
    }
}

impl Blocked {
    /// Leaves the lines, so that others are served while the client takes its output.
    pub fn leave(&mut self) {
        if std::mem::take(&mut self.is_in_line) {
            self.server.waiters.leave(&self.waiter);
        }
    }

    /// Joins the lines again, at their end. The command has to look again after this, since nothing has woken it.
    pub fn rejoin(&mut self) {
        if !std::mem::replace(&mut self.is_in_line, true) {
            self.server.waiters.rejoin(&self.waiter);
        }
    }

    /// Returns how many bytes of memory the command needs while it waits, about.
    pub fn bytes(&self) -> usize {
        let arguments = self.arguments.iter().map(|argument| ARGUMENT_BYTES + argument.len());
        arguments.sum::<usize>() + self.waiter.bytes()
    }
}

/// What an argument needs besides its bytes. An estimate.
const ARGUMENT_BYTES: usize = 32;
/// The reply to a command that `CLIENT UNBLOCK` has ended.
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// The longest time that a client waits, if it is not for ever.
pub const WAIT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

impl Session {
    /// Begins to wait, unless what is waited for has come already.
    ///
    /// # Errors
    /// Those of the command.
    pub fn block(
        &mut self,
        (command, run): (&'static Command, DataCommand),
        arguments: &[&[u8]],
        wait: Wait,
        reply: &mut Reply,
    ) -> Done {
        let deadline = wait.timeout.map(|timeout| Instant::now() + timeout.min(WAIT_MAX));
        let arguments = wait
            .arguments
            .unwrap_or_else(|| arguments.iter().map(|argument| Box::from(*argument)).collect());
        let waiter = self.server.waiters.join(self.space, wait.places);
        for (key, _) in &waiter.places {
            self.server.watches.add((self.space, key.clone()));
        }
        let blocked = Blocked {
            server: Arc::clone(&self.server),
            client: Arc::clone(&self.client),
            command,
            run,
            arguments,
            wants_reply: self.replies == Replies::On,
            waiter,
            is_in_line: true,
            deadline,
        };
        self.client.wait(Some(&blocked.waiter));
        if !self.look(&blocked, reply)? {
            self.pause = Some(Pause::Element(Box::new(blocked)));
        }
        Ok(())
    }

    /// Runs the command again. Returns whether it has found something.
    fn look(&mut self, blocked: &Blocked, reply: &mut Reply) -> Done<bool> {
        let before = reply.len();
        self.leads_or_is_alone();
        let server = &*blocked.server;
        let Waiter { space, places, .. } = &*blocked.waiter;
        let arguments: Vec<&[u8]> = blocked.arguments.iter().map(|argument| &**argument).collect();
        let effects = Effects::of_waiter(&blocked.waiter);
        effects.begin(blocked.command);
        let options = TransactionOptions::new().label(blocked.command.name);
        let (client, user) = (&*blocked.client, &*Arc::clone(&self.user));
        let wants_reply = blocked.wants_reply;
        let caller = Caller { server, client, user, wants_reply, rolls_back: false };
        let looked = server.transact(&effects, &options, |keys| {
            reply.truncate(before);
            for (key, _) in places {
                watch::observe(keys, *space, key)?;
            }
            let (keys, space, fixed) = (*keys, *space, &OnceCell::new());
            (blocked.run)(&Call { caller, keys, space, arguments: &arguments, fixed }, reply)?;
            // A client may have given what was found after it had taken the right to it away.
            self.permit_again(blocked.command, &arguments)
        });
        if let Ok(((), token)) = &looked {
            self.note(*token);
        }
        let found = looked.map(|_| effects.take_wait().is_none());
        if !matches!(found, Ok(true)) {
            reply.truncate(before);
        }
        found
    }

    /// Goes on with a command whose waiter was woken, or whose time is over. Returns whether it has ended.
    pub fn look_again(&mut self, blocked: &Blocked, is_over: bool, reply: &mut Reply) -> bool {
        let before = reply.len();
        let ended = match self.look(blocked, reply) {
            Ok(true) => true,
            Ok(false) => match blocked.waiter.unblocked() {
                Some(Unblocked::Error) => {
                    self.count_error(UNBLOCKED);
                    reply.error(UNBLOCKED);
                    true
                }
                how => {
                    if is_over || how.is_some() {
                        reply.null_array();
                    }
                    is_over || how.is_some()
                }
            },
            Err(stop) => {
                let text = stop.text();
                self.count_error(&text);
                reply.error(&text);
                true
            }
        };
        if !blocked.wants_reply {
            reply.truncate(before);
        }
        ended
    }
}
