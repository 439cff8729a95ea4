//! Commands that have arrived together, and share a transaction.
//!
//! Most commands of a pipeline are short, and so are most transactions between `MULTI` and `EXEC`. A [`Plan`] has those at the
//! beginning of a batch that can run as one transaction without waiting, without being copied into a queue, and without a
//! savepoint for each. If one of them fails, the transaction is undone, and the session runs them one by one, as they came.

use smallvec::SmallVec;

use crate::call::DataCommand;
use crate::commands::{Command, JoinedCommand, Permit, Run, flags};
use crate::reply::Reply;
use crate::session::{EXEC, MULTI};
use crate::users::User;

/// A request that has arrived: its command, unless the server has none with this name, and its arguments.
pub type Arrived<'a> = (Option<&'static Command>, &'a [&'a [u8]]);

/// What a step does.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// `MULTI`, with so many commands up to its `EXEC`.
    Begin(usize),
    /// `EXEC`
    End,
    /// Runs a command.
    Run(DataCommand),
    /// Runs the same command on the same key several times.
    Join(JoinedCommand),
}

/// A step of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What it does.
    pub action: Action,
    /// Its command.
    pub command: &'static Command,
    /// The number of its first request.
    pub first: usize,
    /// How many requests it has.
    pub requests: usize,
    /// Whether it comes after `MULTI`, so that it cannot be left out of the transaction.
    pub is_queued: bool,
}

/// The requests at the beginning of a batch that run as one transaction.
#[derive(Debug, Default)]
pub struct Plan {
    /// The steps.
    pub steps: SmallVec<[Step; 16]>,
    /// How many requests they have.
    pub requests: usize,
    /// Whether one of them is `MULTI`.
    pub has_queue: bool,
}

/// What a plan depends on besides the requests.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'u> {
    /// The user that sends the requests.
    pub user: &'u User,
    /// Whether `MULTI` may be part of the plan.
    pub takes_queues: bool,
    /// The longest queue, in bytes.
    pub queue_bytes_max: usize,
}

impl Plan {
    /// Returns whether a plan can begin with the first of some requests.
    pub fn begins_with(requests: &[Arrived<'_>]) -> bool {
        let Some((Some(command), arguments)) = requests.first() else { return false };
        command.name == MULTI || command.is_short(arguments.len())
    }

    /// Plans as many of the first requests as possible.
    pub fn new(requests: &[Arrived<'_>], terms: &Terms<'_>) -> Self {
        let mut plan = Plan::default();
        while let Some(&(Some(command), arguments)) = requests.get(plan.requests) {
            let is_planned = match command.name {
                MULTI if terms.takes_queues => plan.add_queue(requests, terms),
                _ if command.is_short(arguments.len()) => {
                    plan.add(command, requests, terms.user, false)
                }
                _ => false,
            };
            if !is_planned {
                break;
            }
        }
        plan
    }

    /// Adds a `MULTI`, and what follows up to its `EXEC`. Returns false, and adds nothing, if that is not possible.
    fn add_queue(&mut self, requests: &[Arrived<'_>], terms: &Terms<'_>) -> bool {
        let begin = self.requests;
        let (steps, mut bytes) = (self.steps.len(), 0);
        let is_exec = |(command, _): &Arrived<'_>| command.is_some_and(|found| found.name == EXEC);
        let Some(commands) = requests[begin + 1..].iter().position(is_exec) else { return false };
        let is_planned = self.add_end(requests, terms.user, Action::Begin(commands))
            && (0..commands).all(|_| {
                let (command, arguments) = requests[self.requests];
                bytes += arguments.iter().map(|argument| argument.len() + 32).sum::<usize>();
                command.is_some_and(|command| {
                    is_quick(command) && self.add(command, requests, terms.user, true)
                })
            })
            && bytes <= terms.queue_bytes_max
            && self.add_end(requests, terms.user, Action::End);
        if !is_planned {
            self.steps.truncate(steps);
            self.requests = begin;
        }
        self.has_queue |= is_planned;
        is_planned
    }

    /// Adds a `MULTI` or an `EXEC`.
    fn add_end(&mut self, requests: &[Arrived<'_>], user: &User, action: Action) -> bool {
        let first = self.requests;
        let (Some(command), arguments) = requests[first] else { return false };
        let is_permitted =
            command.takes(arguments.len()) && Permit::new(user, command, arguments).is_ok();
        if is_permitted {
            let is_queued = matches!(action, Action::End);
            self.steps.push(Step { action, command, first, requests: 1, is_queued });
            self.requests += 1;
        }
        is_permitted
    }

    /// Adds a command, or joins it to the one before.
    fn add(
        &mut self,
        command: &'static Command,
        requests: &[Arrived<'_>],
        user: &User,
        is_queued: bool,
    ) -> bool {
        let first = self.requests;
        let (_, arguments) = requests[first];
        let Ok(permit) = Permit::new(user, command, arguments) else { return false };
        let Run::Data(run) = permit.run() else { return false };
        if !command.takes(arguments.len()) {
            return false;
        }
        self.requests += 1;
        if let Some(joined) = command.joined()
            && let Some(last) = self.steps.last_mut()
            && std::ptr::eq(last.command, command)
            && let (_, before) = requests[last.first]
            && [before, arguments].iter().all(|arguments| command.is_short(arguments.len()))
            && before[1] == arguments[1]
        {
            last.action = Action::Join(joined);
            last.requests += 1;
            return true;
        }
        let action = Action::Run(run);
        self.steps.push(Step { action, command, first, requests: 1, is_queued });
        true
    }
}

/// Returns whether a command between `MULTI` and `EXEC` is neither a script, nor expected to take long.
fn is_quick(command: &Command) -> bool {
    !command.has(flags::SLOW | flags::NO_SCRIPT | flags::ENDS_QUEUE | flags::NOT_QUEUED)
}

/// Writes the replies of `MULTI`, of so many commands after it, and the beginning of the one of `EXEC`.
pub fn write_queued(reply: &mut Reply, commands: usize) {
    reply.ok();
    (0..commands).for_each(|_| reply.simple("QUEUED"));
    reply.array(commands);
}
