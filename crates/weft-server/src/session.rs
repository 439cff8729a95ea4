//! A client's session: runs its commands, one transaction for each, or one for all between `MULTI` and `EXEC`.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft::htm::word::Ordering;
use weft::{CommitToken, Error, Failure, Transaction, TransactionOptions};

use crate::blocked::{AwaitedTurn, Pause};
use crate::call::{Call, Caller, DataCommand, is};
use crate::clients::Client;
use crate::commands::{self, Command, Permit, Run, flags};
use crate::effects::Effects;
use crate::monitor;
use crate::needed_rows::NeededRows;
use crate::poller;
use crate::publish::{Mailbox, Subscriptions};
use crate::replication::{AtStandby, Standing};
use crate::reply::{Reply, Version};
use crate::scripts::Fixed;
use crate::server::Server;
use crate::stop::{Done, Stop};
use crate::store::Key;
use crate::together::{self, Action, Arrived, Plan, Terms};
use crate::turns::Turn;
use crate::users::{Denial, User};
use crate::watch::WatchedKeys;

/// A command that waits for `EXEC`, its arguments, and what a script finds unchanged in each attempt.
type Queued = (&'static Command, Vec<Box<[u8]>>, OnceCell<Fixed>);

/// When so many bytes wait, they are sent before the next command is run.
pub const FLUSH_BYTES: usize = 64 << 10;
/// A command that takes so long hands the other connections of its thread over. The client's next command is expected to be
/// as slow, and does it before.
pub const SLOW: Duration = Duration::from_millis(1);
/// More commands than these between `MULTI` and `EXEC` are expected to take long.
const QUEUED_SHORT_MAX: usize = 64;
/// After commands could not be run together, so many batches of the connection are run one command at a time.
const BATCHES_ALONE: u32 = 16;

/// The command after which commands are queued, and the one that runs them.
pub const MULTI: &str = "multi";
pub const EXEC: &str = "exec";

/// Commands that wait for `EXEC`.
#[derive(Debug, Default)]
pub struct Queue {
    commands: Vec<Queued>,
    bytes: usize,
    /// Whether a command could not be queued, so that `EXEC` refuses to run the others.
    has_failed: bool,
}

/// Which replies a client gets: `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// All of them.
    On,
    /// None.
    Off,
    /// None to this command and the next one.
    SkipNext,
    /// None to this command.
    Skip,
}

/// A client's session.
#[derive(Debug)]
pub struct Session {
    /// The server.
    pub server: Arc<Server>,
    /// What other clients see of this one.
    pub client: Arc<Client>,
    /// The numbered database that was selected.
    pub space: u8,
    /// The client's user.
    pub user: Arc<User>,
    /// The generation of the users in which this one was looked up.
    users_generation: u64,
    /// Whether the client has given the user's password, or needs none.
    pub is_known: bool,
    /// The commands since `MULTI`.
    pub queue: Option<Queue>,
    /// The keys under `WATCH`.
    pub watched: WatchedKeys,
    /// The client's turn at one of them.
    turn: Option<Turn>,
    /// What the client is subscribed to, if it is subscribed to anything.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// Where the commands wait that the client sees, if it monitors.
    monitoring: Option<Arc<Mailbox>>,
    /// What the client waits for. The connection goes on with it.
    pub pause: Option<Pause>,
    /// Whether an error between `MULTI` and `EXEC`, or of a script, undoes the other commands.
    pub rolls_back: bool,
    /// Which replies the client gets.
    pub replies: Replies,
    /// Whether the connection ends after the reply.
    pub closes: bool,
    /// Stands for the newest commit that a reply has shown. It has to be durable before the reply is sent.
    pub token: Option<CommitToken>,
    /// Stands for the newest commit that any reply has shown.
    pub newest: Option<CommitToken>,
    /// What the client may do if the server is a standby.
    pub at_standby: AtStandby,
    /// Whether commands were run as those of the primary. Then the replies are sent only if it was the only one.
    pub leads: bool,
    /// How many commands were run since they were counted last.
    pub commands: u64,
    /// How many of the replies were errors.
    pub errors: u64,
    /// How many of the next batches are run one command at a time.
    alone: u32,
    /// Whether the last command was slow.
    is_slow: bool,
    /// Whether the last `EXEC` was slow.
    execs_slowly: bool,
    /// When the last command ended.
    last: Instant,
}

impl Session {
    /// Begins a session.
    pub fn new(server: Arc<Server>, client: Arc<Client>) -> Self {
        let users_generation = server.users.generation();
        let user = server.users.default_user();
        let is_known = server.users.admits_strangers();
        client.texts().user.clone_from(&user.name);
        Session {
            user,
            users_generation,
            server,
            client,
            space: 0,
            is_known,
            queue: None,
            watched: WatchedKeys::default(),
            turn: None,
            subscriptions: None,
            monitoring: None,
            pause: None,
            rolls_back: false,
            replies: Replies::On,
            closes: false,
            token: None,
            newest: None,
            at_standby: AtStandby::default(),
            leads: false,
            commands: 0,
            errors: 0,
            alone: 0,
            is_slow: false,
            execs_slowly: false,
            last: Instant::now(),
        }
    }

    /// Notes that the client was silent until now, and returns the time.
    pub fn wake(&mut self) -> Instant {
        self.wake_at(Instant::now());
        self.last
    }

    /// Notes that the client was silent until a time.
    pub fn wake_at(&mut self, now: Instant) {
        self.last = now;
    }

    /// Returns when the last command has ended.
    pub fn last(&self) -> Instant {
        self.last
    }

    /// Returns whether the last command was slow, so that the next one is expected to be.
    pub fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Fetches the rows that requests need.
    pub fn fetch(&self, requests: &[Arrived<'_>]) {
        let Some(rows) = NeededRows::of(requests) else { return };
        let (store, space, options) = (&self.server.store, self.space, TransactionOptions::new());
        // Nothing that it has seen is shown, so it does not wait until that is durable.
        let fetch = |tx: &Transaction<'_>| rows.fetch(tx, store, space);
        let fetched: Result<_, Error> = self.server.database.transact_with_token(&options, fetch);
        drop(fetched);
    }

    /// Runs a command, and writes its reply.
    pub fn run(&mut self, arguments: &[&[u8]], reply: &mut Reply) {
        let found = arguments.first().and_then(|name| commands::find(name));
        self.run_found(found, arguments, reply);
    }

    /// As [`Session::run`], for a command that was looked up already.
    pub fn run_found(
        &mut self,
        found: Option<&'static Command>,
        arguments: &[&[u8]],
        reply: &mut Reply,
    ) {
        if arguments.is_empty() {
            return;
        }
        let before = reply.len();
        let outcome = self.dispatch(found, arguments, reply);
        if let Err(stop) = outcome {
            reply.truncate(before);
            let text = self.text_of(&stop);
            reply.error(&text);
            self.count_error(&text);
        }
        self.commands += 1;
        self.replies = match self.replies {
            Replies::On => Replies::On,
            Replies::Off => {
                reply.truncate(before);
                Replies::Off
            }
            Replies::SkipNext => {
                reply.truncate(before);
                Replies::Skip
            }
            Replies::Skip => {
                reply.truncate(before);
                Replies::On
            }
        };
        self.note_time(arguments);
    }

    /// Counts an error reply.
    pub fn count_error(&mut self, text: &str) {
        self.errors += 1;
        self.server.counters.note_code(text);
    }

    /// Returns the text of the error reply. If the database is closed because the server is no longer the primary, the command
    /// has changed nothing.
    fn text_of(&mut self, stop: &Stop) -> Cow<'static, str> {
        match stop {
            Stop::Database(Error::Failure(Failure::Closed | Failure::Storage(_)))
                if self.server.replication.is_some() =>
            {
                self.closes = true;
                self.server.read_only().text()
            }
            stop => stop.text(),
        }
    }

    /// Notes that a command has ended.
    fn note_time(&mut self, arguments: &[&[u8]]) {
        let now = Instant::now();
        let took = now - self.last;
        self.last = now;
        self.is_slow = took >= SLOW;
        if self.is_slow {
            self.server.latency.note(took);
        }
        // The log must not show a password.
        let secret = ["acl", "auth", "config", "hello"];
        if self.server.slow_log.wants(took) && !secret.iter().any(|name| is(arguments[0], name)) {
            self.server.slow_log.add(arguments, took, &self.client);
        }
    }

    /// Runs the first of these commands, which have arrived together, as one transaction, as long as they are
    /// [short](Command::is_short), or a `MULTI` with all commands up to its `EXEC`. This is faster than a transaction for each,
    /// and no other client sees a difference. Returns how many were run. If that is 0, they have to be run one by one: one of
    /// them fails, or another client has changed what they look at.
    pub fn run_together(&mut self, requests: &[Arrived<'_>], reply: &mut Reply) -> usize {
        if !Plan::begins_with(requests) {
            return 0;
        }
        if self.alone > 0 {
            self.alone -= 1;
            return 0;
        }
        let is_plain = self.is_known
            && self.queue.is_none()
            && self.subscriptions.is_none()
            && self.replies == Replies::On
            && self.leads_or_is_alone()
            // The slow log has the time of each command, unless it is too short for it in any case.
            && !self.server.slow_log.wants(SLOW);
        if !is_plain {
            return 0;
        }
        self.find_user();
        let user = &*Arc::clone(&self.user);
        let takes_queues = self.watched.is_empty() && !self.execs_slowly;
        let queue_bytes_max = self.server.options.request_bytes;
        let plan = Plan::new(requests, &Terms { user, takes_queues, queue_bytes_max });
        if plan.requests < 2 {
            return 0;
        }
        let before = reply.len();
        let (server, space, fixed) = (&*self.server, self.space, &OnceCell::new());
        let caller = self.caller(server, &self.client, user);
        let effects = Effects::default();
        let label = if plan.has_queue { EXEC } else { "pipeline" };
        let options = TransactionOptions::new().label(label);
        let rows = NeededRows::of(&requests[..plan.requests]);
        let mut is_first = true;
        let ran = server.transact(&effects, &options, |keys| {
            reply.truncate(before);
            if !std::mem::take(&mut is_first) {
                return Err("ERR another client has changed what the commands look at".into());
            }
            if let Some(rows) = &rows {
                rows.fetch(keys.tx, keys.store, space)?;
            }
            for step in &plan.steps {
                // Replies that are this long are sent before more commands are run.
                if step.first > 0 && !step.is_queued && reply.len() >= FLUSH_BYTES {
                    return Ok(step.first);
                }
                let arguments = requests[step.first].1;
                let call = Call { caller, keys: *keys, space, arguments, fixed };
                effects.begin(step.command);
                match step.action {
                    Action::Begin(commands) => together::write_queued(reply, commands),
                    Action::End => {}
                    Action::Run(run) => run(&call, reply)?,
                    Action::Join(run) => {
                        run(&call, &requests[step.first..][..step.requests], reply)?;
                    }
                }
            }
            Ok(plan.requests)
        });
        let Ok((ran, token)) = ran else {
            reply.truncate(before);
            self.alone = BATCHES_ALONE;
            return 0;
        };
        for (command, arguments) in &requests[..ran] {
            command.iter().for_each(|command| self.show(command, arguments));
        }
        self.note(token);
        self.commands += ran as u64;
        let last = requests[ran - 1].0.map_or(0, Command::number);
        self.client.last_command.store(last, Ordering::Relaxed);
        self.note_time(requests[0].1);
        self.execs_slowly = plan.has_queue && self.is_slow;
        ran
    }

    /// Runs or queues a command.
    fn dispatch(
        &mut self,
        found: Option<&'static Command>,
        arguments: &[&[u8]],
        reply: &mut Reply,
    ) -> Done {
        let found = found.or_else(|| self.server.procedures.command(arguments[0]));
        if !self.is_known && !found.is_some_and(|command| command.has(flags::NO_AUTH)) {
            return Err("NOAUTH Authentication required.".into());
        }
        let command = match found.ok_or_else(|| commands::unknown(arguments)) {
            Ok(command) if command.takes(arguments.len()) => command,
            Ok(command) => return Err(self.fail_queue(wrong_arity(command.name))),
            Err(text) => return Err(self.fail_queue(text)),
        };
        self.client.last_command.store(command.number(), Ordering::Relaxed);
        if self.gets_only_messages(reply) && !command.has(flags::WHILE_SUBSCRIBED) {
            return Err(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
                 this context",
                command.name
            )
            .into());
        }
        let permit = match self.permit(command, arguments, "toplevel") {
            Ok(permit) => permit,
            Err(text) => return Err(self.fail_queue(text)),
        };
        match self.server.standing() {
            None => {}
            Some(Standing::Primary) => self.leads |= shows_data(command, &permit),
            Some(_) => self.check_standing(command, &permit)?,
        }
        if let Some(queue) = &mut self.queue
            && !command.has(flags::ENDS_QUEUE)
        {
            if command.has(flags::NOT_QUEUED) {
                let name = command.name.to_uppercase();
                return Err(format!("ERR {name} inside MULTI is not allowed").into());
            }
            queue.bytes += arguments.iter().map(|argument| argument.len() + 32).sum::<usize>();
            if queue.bytes > self.server.options.request_bytes {
                return Err(self.fail_queue("ERR the queued commands are too long".to_owned()));
            }
            let arguments = arguments.iter().map(|argument| Box::from(*argument)).collect();
            queue.commands.push((command, arguments, OnceCell::new()));
            reply.simple("QUEUED");
            return Ok(());
        }
        // The commands before it are shown first.
        if command.name != EXEC {
            self.show(command, arguments);
        }
        match permit.run() {
            Run::Session(run) => run(self, arguments, reply),
            Run::Data(run) if command.has(flags::SLOW) || self.is_slow => {
                in_place(|| self.transact(command, run, arguments, reply))
            }
            Run::Data(run) => self.transact(command, run, arguments, reply),
        }
    }

    /// Returns the commit that has to be durable before the replies are sent, unless it is.
    pub fn awaited(&self) -> Option<CommitToken> {
        let is_awaited = |token: &CommitToken| {
            self.server.waits && self.server.database.durable_epoch() < Some(token.epoch())
        };
        self.token.filter(is_awaited)
    }

    /// Returns whether the server is the primary, or not replicated. Notes that what follows is said as the primary.
    #[inline]
    pub fn leads_or_is_alone(&mut self) -> bool {
        match self.server.standing() {
            None => true,
            Some(Standing::Primary) => {
                self.leads = true;
                true
            }
            Some(_) => false,
        }
    }

    /// Checks that a server that is not the primary may run a command.
    #[cold]
    fn check_standing(&mut self, command: &Command, permit: &Permit) -> Done {
        let is_data = matches!(permit.run(), Run::Data(_));
        let admitted = self.server.admit(command, is_data, self.at_standby);
        if self.server.is_over() {
            self.closes = true;
        }
        match admitted {
            Err(stop) => Err(self.fail_queue(stop.text().into_owned())),
            Ok(()) => Ok(()),
        }
    }

    /// Returns whether the client has begun something that needs the same server: a transaction, or keys that it watches.
    pub fn has_begun(&self) -> bool {
        self.queue.is_some() || !self.watched.is_empty()
    }

    /// Returns whether the client cannot tell replies from messages, since it is subscribed and speaks RESP2.
    pub fn gets_only_messages(&self, reply: &Reply) -> bool {
        self.subscriptions.is_some() && reply.version() == Version::Two
    }

    /// Returns where messages for the client wait, if it is subscribed to anything or monitors.
    pub fn mailbox(&self) -> Option<Arc<Mailbox>> {
        let subscribed = self.subscriptions.as_ref().map(|subscriptions| &subscriptions.mailbox);
        subscribed.or(self.monitoring.as_ref()).map(Arc::clone)
    }

    /// Returns whether messages for the client may wait anywhere.
    pub fn has_mailbox(&self) -> bool {
        self.subscriptions.is_some() || self.monitoring.is_some()
    }

    /// Returns where messages for the client wait, from now on.
    pub fn open_mailbox(&self, version: Version) -> Arc<Mailbox> {
        let bytes_max = self.server.options.mailbox_bytes;
        self.mailbox().unwrap_or_else(|| Arc::new(Mailbox::new(bytes_max, version)))
    }

    /// `MONITOR`: begins to show commands to the client.
    pub fn monitor(&mut self, version: Version) {
        if self.monitoring.is_none() {
            let mailbox = self.open_mailbox(version);
            self.server.monitors.add(self.client.id, &mailbox);
            self.monitoring = Some(mailbox);
            // As after a subscription.
            if self.find_user() && !monitor::is_permitted(&self.user) {
                self.closes = true;
            }
        }
    }

    /// Shows no more commands to the client.
    fn end_monitoring(&mut self) {
        if self.monitoring.take().is_some() {
            self.server.monitors.remove(self.client.id);
        }
    }

    /// Shows a command to the clients that monitor, if there are any.
    #[inline]
    fn show(&self, command: &Command, arguments: &[&[u8]]) {
        if self.server.monitors.are_there()
            && let Some(line) =
                monitor::line_of(command, self.space, &self.client.addresses.0, arguments)
        {
            self.server.monitors.show(&line);
        }
    }

    /// Ends all subscriptions.
    fn unsubscribe(&mut self) {
        if let Some(mut subscriptions) = self.subscriptions.take() {
            self.server.publish.unsubscribe_all(&mut subscriptions);
        }
    }

    /// Returns the permit to run a command, with its number of arguments checked.
    ///
    /// # Errors
    /// The text of the error reply. The refusal is in the log.
    fn permit(
        &mut self,
        command: &'static Command,
        arguments: &[&[u8]],
        context: &'static str,
    ) -> Result<Permit, String> {
        self.find_user();
        Permit::new(&self.user, command, arguments).map_err(|denial| self.deny(&denial, context))
    }

    /// Looks the user up again if users have changed. Returns whether they have.
    fn find_user(&mut self) -> bool {
        let generation = self.server.users.generation();
        if generation == self.users_generation {
            return false;
        }
        self.users_generation = generation;
        let name = &self.user.name;
        self.user = self.server.users.find(name).unwrap_or_else(|| {
            // The user was removed.
            self.closes = true;
            Arc::new(User::new(name))
        });
        true
    }

    /// Ends the connection if the user has lost the right to a channel while the client subscribed to it. A change of users
    /// looks for subscribers after it is made, so either it finds this client, or this client finds the change.
    pub fn check_subscriptions(&mut self) {
        if self.find_user()
            && let Some(subscriptions) = &self.subscriptions
            && !subscriptions.are_permitted(&self.user)
        {
            self.closes = true;
        }
    }

    /// Checks again that the user may run a command that waits, since rights may have changed while it waited.
    ///
    /// # Errors
    /// The error reply.
    pub fn permit_again(&mut self, command: &'static Command, arguments: &[&[u8]]) -> Done {
        self.permit(command, arguments, "toplevel").map(drop).map_err(Stop::from)
    }

    /// Notes a refusal in the log, and returns the text of the error reply.
    fn deny(&self, denial: &Denial, context: &'static str) -> String {
        self.server.users.note(denial, context, &self.user.name, self.client.line());
        denial.text()
    }

    /// Makes the client another user's.
    ///
    /// # Errors
    /// There is no such user, the user is off, or the password is wrong.
    pub fn authenticate(&mut self, name: &[u8], password: &[u8]) -> Done {
        let user = self.server.users.authenticate(name, password);
        let user = user.map_err(|denial| self.deny(&denial, "toplevel"))?;
        self.become_user(user, true);
        Ok(())
    }

    fn become_user(&mut self, user: Arc<User>, is_known: bool) {
        self.client.texts().user.clone_from(&user.name);
        (self.user, self.is_known) = (user, is_known);
        // The user may have changed since it was found.
        self.users_generation = u64::MAX;
    }

    /// Returns how many bytes of memory the queued commands, the watched keys and the subscriptions need, about.
    pub fn held_bytes(&self) -> usize {
        let queued = self.queue.as_ref().map_or(0, |queue| queue.bytes);
        let subscribed =
            self.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.bytes());
        queued + self.watched.bytes() + subscribed
    }

    /// Notes that a command could not be queued, if commands are queued.
    fn fail_queue(&mut self, text: String) -> Stop {
        if let Some(queue) = &mut self.queue {
            queue.has_failed = true;
        }
        text.into()
    }

    /// Returns the client as the caller of commands. (The references may be to copies of the session's own, so that a
    /// command can change the session.)
    fn caller<'c>(&self, server: &'c Server, client: &'c Client, user: &'c User) -> Caller<'c> {
        let (wants_reply, rolls_back) = (self.replies == Replies::On, self.rolls_back);
        Caller { server, client, user, wants_reply, rolls_back }
    }

    /// Runs one command as a transaction.
    fn transact(
        &mut self,
        command: &'static Command,
        run: DataCommand,
        arguments: &[&[u8]],
        reply: &mut Reply,
    ) -> Done {
        let before = reply.len();
        let (server, space, fixed) = (&*self.server, self.space, &OnceCell::new());
        let caller = self.caller(server, &self.client, &self.user);
        let effects = Effects::of(command);
        let options = TransactionOptions::new().label(command.name);
        let ((), token) = server.transact(&effects, &options, |keys| {
            reply.truncate(before);
            run(&Call { caller, keys: *keys, space, arguments, fixed }, reply)
        })?;
        self.note(token);
        match effects.take_wait() {
            // What a standby applies wakes no client.
            Some(_) if !self.server.writes() => Err(self.server.read_only()),
            Some(wait) => {
                reply.truncate(before);
                self.block((command, run), arguments, wait, reply)
            }
            None => Ok(()),
        }
    }

    /// Notes that a reply shows a commit.
    pub fn note(&mut self, token: CommitToken) {
        self.token = self.token.max(Some(token));
        self.newest = self.newest.max(self.token);
    }

    /// `EXEC`: runs the queued commands as one transaction.
    ///
    /// # Errors
    /// There is no queue, or a command could not be queued, or the client has asked for rollback and a command fails.
    pub fn execute(&mut self, arguments: &[&[u8]], reply: &mut Reply) -> Done {
        let queue = self.queue.take().ok_or("ERR EXEC without MULTI")?;
        let watched = std::mem::take(&mut self.watched);
        let outcome = match queue.has_failed {
            true => Err("EXECABORT Transaction discarded because of previous errors.".into()),
            false if self.may_be_slow(&queue) => {
                in_place(|| self.execute_all(&queue, &watched, reply))
            }
            false => self.execute_all(&queue, &watched, reply),
        };
        self.execs_slowly = self.last.elapsed() >= SLOW;
        if let Some(command) = commands::find(EXEC.as_bytes()) {
            self.show(command, arguments);
        }
        self.turn = None;
        self.server.unwatch(watched);
        outcome
    }

    /// Returns whether other connections of the thread should not wait behind these commands. Handing them over to another thread
    /// costs more than a few short commands.
    fn may_be_slow(&self, queue: &Queue) -> bool {
        self.execs_slowly
            || queue.commands.len() > QUEUED_SHORT_MAX
            || queue.commands.iter().any(|(command, ..)| command.has(flags::SLOW))
    }

    fn execute_all<'q>(
        &mut self,
        queue: &'q Queue,
        watched: &WatchedKeys,
        reply: &mut Reply,
    ) -> Done {
        let before = reply.len();
        let (space, version, server) = (self.space, reply.version(), Arc::clone(&self.server));
        // What the user may do may have changed since the commands were queued.
        let permitted = |(command, arguments, fixed): &'q Queued| {
            let arguments: Vec<&[u8]> = arguments.iter().map(|argument| &**argument).collect();
            (*command, self.permit(command, &arguments, "multi"), arguments, fixed)
        };
        let commands: Vec<_> = queue.commands.iter().map(permitted).collect();
        let (client, user) = (Arc::clone(&self.client), Arc::clone(&self.user));
        let caller = self.caller(&server, &client, &user);
        let effects = Effects::default();
        let options = TransactionOptions::new().label("exec");
        let executed = server.transact(&effects, &options, |keys| {
            // What an attempt before this one has left.
            reply.truncate(before);
            reply.set_version(version);
            self.space = space;
            for key in watched.iter() {
                if key.has_changed(keys)? {
                    server.turns.note_lost(&key.key());
                    reply.null_array();
                    return Ok(());
                }
            }
            reply.array(commands.len());
            for (number, (command, permit, arguments, fixed)) in commands.iter().enumerate() {
                let before = reply.len();
                if server.monitors.are_there() && permit.is_ok() {
                    let from = &self.client.addresses.0;
                    effects.show(monitor::line_of(command, self.space, from, arguments));
                }
                let done = match permit.as_ref().map(|permit| permit.run()) {
                    Err(text) => Err(text.clone().into()),
                    Ok(Run::Session(run)) => run(self, arguments, reply),
                    Ok(Run::Data(run)) => keys.savepoint(|keys| {
                        effects.begin(command);
                        let (keys, space) = (*keys, self.space);
                        run(&Call { caller, keys, space, arguments, fixed }, reply)
                    }),
                };
                match done {
                    Ok(()) => {}
                    Err(conflict @ Stop::Database(Error::Conflict(_))) => return Err(conflict),
                    Err(stop) if self.rolls_back => {
                        let text = stop.text();
                        return Err(Stop::from(format!(
                            "EXECABORT Transaction rolled back because command {} ({}) failed: {text}",
                            number + 1,
                            command.name,
                        )));
                    }
                    Err(stop) => {
                        reply.truncate(before);
                        reply.error(&stop.text());
                    }
                }
            }
            Ok(())
        });
        match executed {
            Ok(((), token)) => {
                self.note(token);
                Ok(())
            }
            Err(stop) => {
                self.space = space;
                Err(stop)
            }
        }
    }

    /// `DISCARD`: forgets the queued commands, and the watched keys.
    ///
    /// # Errors
    /// There is no queue.
    pub fn discard(&mut self) -> Done {
        self.queue.take().ok_or("ERR DISCARD without MULTI")?;
        self.unwatch();
        Ok(())
    }

    /// `WATCH`: begins to watch keys. At a hot key the client waits for its turn first.
    ///
    /// # Errors
    /// Those of the database.
    pub fn watch(&mut self, names: &[&[u8]], reply: &mut Reply) -> Done {
        if self.turn.is_none() {
            let keys = names.iter().map(|name| Key::new(self.space, name));
            self.turn = self.server.turns.join(keys);
            if let Some(turn) = self.turn.take_if(|turn| turn.has_to_wait()) {
                self.pause = Some(Pause::Turn(Box::new(AwaitedTurn::new(self, turn, names))));
                return Ok(());
            }
        }
        self.watch_now(names, reply)
    }

    /// Returns until when the thread is to stay awake for the client's next request: see [`Turn::awake_until`].
    pub fn awake_until(&self) -> Option<Instant> {
        self.turn.as_ref()?.awake_until()
    }

    /// Watches keys after the client has waited for its turn. It has none if it has waited too long.
    pub fn watch_in_turn(&mut self, mut awaited: AwaitedTurn, reply: &mut Reply) {
        self.turn = awaited.turn.take();
        let before = reply.len();
        let names: Vec<&[u8]> = awaited.names.iter().map(|name| &**name).collect();
        if let Err(stop) = self.watch_now(&names, reply) {
            let text = stop.text();
            self.count_error(&text);
            reply.error(&text);
        }
        if !awaited.wants_reply {
            reply.truncate(before);
        }
    }

    fn watch_now(&mut self, names: &[&[u8]], reply: &mut Reply) -> Done {
        self.leads_or_is_alone();
        for name in names {
            if !self.watched.contains(self.space, name) {
                let watched = self.server.watches.watch(&self.server, self.space, name)?;
                self.watched.insert(watched);
            }
        }
        reply.ok();
        Ok(())
    }

    /// `UNWATCH`: forgets the watched keys.
    pub fn unwatch(&mut self) {
        self.turn = None;
        let watched = std::mem::take(&mut self.watched);
        self.server.unwatch(watched);
    }

    /// `RESET`: goes back to how the session began.
    pub fn reset(&mut self, reply: &mut Reply) {
        self.unwatch();
        self.unsubscribe();
        self.end_monitoring();
        self.queue = None;
        self.space = 0;
        let users = Arc::clone(&self.server);
        self.become_user(users.users.default_user(), users.users.admits_strangers());
        self.rolls_back = false;
        self.at_standby = AtStandby::default();
        self.replies = Replies::On;
        self.client.set_name(String::new());
        self.client.space.store(0, Ordering::Relaxed);
        reply.set_version(Version::Two);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.unwatch();
        self.unsubscribe();
        self.end_monitoring();
    }
}

/// Returns whether the reply to a command depends on the data.
fn shows_data(command: &Command, permit: &Permit) -> bool {
    matches!(permit.run(), Run::Data(_)) || command.has(flags::ENDS_QUEUE)
}

fn wrong_arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// Runs what may take long. On a runtime with several threads another thread takes over the other connections of this one.
pub fn in_place<R>(run: impl FnOnce() -> R) -> R {
    let flavor = tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor());
    match flavor {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => {
            poller::hand_over();
            tokio::task::block_in_place(run)
        }
        _ => run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Session {
        /// Returns the session of a new client without a connection.
        pub fn of_a_test(server: &Arc<Server>) -> Self {
            let client = server.clients.add((String::new(), String::new()), 100).unwrap();
            Session::new(Arc::clone(server), client)
        }

        /// Runs a command, whose words are separated by spaces, and returns its reply.
        pub fn say(&mut self, command: &str) -> String {
            let arguments: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
            let mut reply = Reply::new(1 << 20);
            self.run(&arguments, &mut reply);
            String::from_utf8(reply.bytes().to_vec()).unwrap()
        }
    }
}
