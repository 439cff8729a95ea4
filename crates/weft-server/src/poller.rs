//! Serves the connections of a thread that wait for nothing but requests, without a task for each.
//!
//! A task is woken, scheduled and polled for each request, and asks several sources what has happened. For a short command that
//! takes longer than the command. A poller is a single task. It asks the system which of its connections have requests, runs
//! the commands of all of them, and then sends the replies, if [they go together](go_together).
//!
//! The poller waits for nothing else. So a connection that has to wait for the disk, for an element of a list, or for a client
//! that takes its replies slowly goes on as a [task](Connection::spawn). So does one whose client is to be closed: for that,
//! there is a [`Bell`].
//!
//! A command that takes long [hands the poller over](hand_over) to another thread, as it does with the thread's tasks.
//!
//! The system tells the poller of a connection when something arrives, and not while something is there. So all that has
//! arrived is read before more is awaited.
//!
//! While the thread has no other task, the poller waits in its own call of the system. Otherwise it would wait in the runtime's, be
//! told that there is something to ask for, and ask: two calls for each sleep, and the runtime's work between them. What
//! comes from other threads wakes it by its [`Alarm`].

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use weft::htm::word::{Ordering, Word, fence};
use weft::{CommitToken, Failure};

use crate::connection::{Answer, Connection, READ_BYTES};
use crate::syncer::Syncer;
use crate::workers::{BusyTime, Replies, go_together};

/// About so many connections at most have requests each time that the system is asked.
const EVENTS: usize = 256;
/// After this time the thread's tasks have their turn, and what they wait for.
const TURN: Duration = Duration::from_micros(500);
/// The poller asks for more at once as long as that has found something about half of the times, of about so many.
const HASTE_MAX: i32 = 4;
/// The tasks of a thread that has no other ones: the poller and the [`Syncer`], which waits for nothing but other tasks.
const OWN_TASKS: usize = 2;
/// With what the system tells that the alarm has sounded.
const ALARM: Token = Token(usize::MAX);
/// A wait that takes longer is a sleep. One that takes less has found something at once.
const SLEEP_MIN: Duration = Duration::from_micros(3);

/// Where a thread's poller gets its connections.
#[derive(Debug)]
pub struct Poller {
    messages: UnboundedSender<Message>,
    alarm: Arc<Alarm>,
    registry: Registry,
}

/// Wakes a poller that waits in its own call of the system.
#[derive(Debug)]
struct Alarm {
    waker: Waker,
    /// Whether the poller waits there, or is about to.
    is_set: Word,
}

impl Alarm {
    /// From now on, what is sent to the poller, or spawned on its thread, sounds the alarm.
    fn set(&self) {
        self.is_set.store(1, Ordering::Relaxed);
        // Either the poller sees what another thread has sent before it sounded the alarm, or that thread sees that it is set.
        fence(Ordering::SeqCst);
    }

    fn unset(&self) {
        self.is_set.store(0, Ordering::Relaxed);
    }

    /// Wakes the poller, if it waits, for what this thread has just sent or spawned.
    fn sound(&self) {
        fence(Ordering::SeqCst);
        if self.is_set.load(Ordering::Relaxed) != 0 {
            // The system refuses this to no process that has the descriptor.
            let _ = self.waker.wake();
        }
    }
}

/// What a poller is told.
enum Message {
    /// It serves one connection more, which no runtime watches.
    Serve(Box<Connection>),
    /// The connection at a place goes on as a task.
    Leave(usize),
    /// The poller ends, and its connections are closed.
    End,
}

impl Poller {
    /// Starts the poller of a thread as a task of its runtime.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn start(
        runtime: &Handle,
        syncer: &Arc<Syncer>,
        busy: &Arc<BusyTime>,
    ) -> io::Result<Arc<Self>> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Waker::new(&registry, ALARM)?;
        let alarm = Arc::new(Alarm { waker, is_set: Word::new(0) });
        let (messages, received) = mpsc::unbounded_channel();
        let _context = runtime.enter();
        // SAFETY: `poll` has one descriptor, which is open as long as it is there, and nothing else is ever put in its place.
        let poll = unsafe { AsyncFd::register_with_interest(poll, tokio::io::Interest::READABLE) };
        let held = Held {
            poll: poll.map_err(io::Error::from)?,
            registry: registry.try_clone()?,
            events: Events::with_capacity(EVENTS),
            messages: received,
            bells: messages.clone(),
            alarm: Arc::clone(&alarm),
            runtime: runtime.metrics(),
            busy: Arc::clone(busy),
            places: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            replied: Vec::new(),
            running: None,
            syncer: Arc::clone(syncer),
            waiting: Vec::new(),
            syncing: None,
            durable_epoch: None,
            haste: 0,
            now: Instant::now(),
            buffer: vec![0; READ_BYTES].into(),
        };
        runtime.spawn(run(Box::new(held)));
        Ok(Arc::new(Poller { messages, alarm, registry }))
    }

    /// Serves a connection that no runtime watches, and that needs no task.
    pub fn serve(&self, connection: Box<Connection>) {
        // If the runtime has ended, so does the connection.
        let _ = self.messages.send(Message::Serve(connection));
        self.alarm.sound();
    }

    /// Has the poller look whether its thread has tasks, since another thread has spawned one there.
    pub fn note_task(&self) {
        self.alarm.sound();
    }

    /// Ends the poller, and closes its connections.
    pub fn end(&self) {
        // The runtime may have ended it already.
        let _ = self.messages.send(Message::End);
        self.alarm.sound();
    }

    /// The connection goes on as a task, although the poller that has it was handed over.
    fn release(&self, mut connection: Box<Connection>) {
        forget(&self.registry, &mut connection);
        connection.spawn();
    }
}

/// With what a connection that a poller serves is told to go on as a task.
#[derive(Debug)]
pub struct Bell {
    messages: UnboundedSender<Message>,
    alarm: Arc<Alarm>,
    place: usize,
}

impl Bell {
    /// Has the connection go on as a task. (If another connection has its place already, that one does, which changes nothing
    /// for its client.)
    pub fn ring(&self) {
        // If the runtime has ended, so has the connection.
        let _ = self.messages.send(Message::Leave(self.place));
        self.alarm.sound();
    }
}

/// What a poller has.
struct Held {
    poll: AsyncFd<Poll>,
    registry: Registry,
    events: Events,
    messages: UnboundedReceiver<Message>,
    bells: UnboundedSender<Message>,
    alarm: Arc<Alarm>,
    /// Knows how many tasks the thread has.
    runtime: RuntimeMetrics,
    /// The time for which its thread works.
    busy: Arc<BusyTime>,
    /// The connections. The place of one is its token.
    places: Vec<Place>,
    /// The places that are free.
    free: Vec<usize>,
    ready: VecDeque<Ready>,
    /// Where the connections are that have replies to send.
    replied: Vec<usize>,
    /// Where the connection belongs that runs commands.
    running: Option<usize>,
    syncer: Arc<Syncer>,
    /// Where the connections are that wait for the disk.
    waiting: Vec<usize>,
    /// Waits for this commit of theirs.
    syncing: Option<(CommitToken, Syncing)>,
    /// Up to which epoch all was on the disk when the poller looked.
    durable_epoch: Option<u64>,
    /// Above zero if more was found when the poller asked for it at once, and below if not.
    haste: i32,
    /// About what time it is.
    now: Instant,
    /// Where requests arrive.
    buffer: Box<[u8]>,
}

/// A place of a connection.
enum Place {
    /// No connection is there, or it runs commands.
    Empty,
    /// A connection that waits for requests.
    Silent(Box<Connection>),
    /// A connection whose replies wait until a commit is on the disk, and what has arrived since then.
    Waiting(Box<Connection>, CommitToken, Option<Ready>),
}

/// Waits until a commit is on the disk.
type Syncing = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A connection at which something has arrived.
#[derive(Clone, Copy)]
struct Ready {
    place: usize,
    /// Whether the client sends no more. The system does not say so again.
    ends: bool,
}

thread_local! {
    /// The poller that runs commands of a connection on this thread.
    static POLLING: Cell<Option<Box<Held>>> = const { Cell::new(None) };
}

/// Hands the poller to which the current thread belongs over to a task, since what the thread does may take long. The connection
/// for which it does that goes on as a task afterwards.
pub fn hand_over() {
    if let Some(mut held) = POLLING.take() {
        held.free.extend(held.running.take());
        Handle::current().spawn(run(held));
    }
}

async fn run(mut held: Box<Held>) {
    let mut end = held.begin_turn();
    loop {
        let are_several = held.ready.len() > 1;
        held = match held.serve_ready(end) {
            Some(held) => held,
            // Another task has it.
            None => return,
        };
        if are_several {
            held.haste = held.haste.max(0);
        }
        if held.ready.is_empty() && held.wait_alone() {
            end = held.begin_turn();
            continue;
        }
        // While replies were sent, the clients that got the first ones have often asked for more.
        if held.haste >= 0 || !held.ready.is_empty() {
            let Held { poll, events, ready, .. } = &mut *held;
            let before = ready.len();
            ask(poll.get_mut(), events, ready);
            let change = if ready.len() > before { 1 } else { -1 };
            held.haste = (held.haste + change).clamp(-HASTE_MAX, HASTE_MAX);
        }
        held.look_at_disk();
        if !held.ready.is_empty() {
            // The time for which replies were sent is no work of the next command.
            held.now = Instant::now();
            if held.now > end {
                held.begin_sync();
                while let Ok(message) = held.messages.try_recv() {
                    if held.heed(message).is_break() {
                        return;
                    }
                }
                tokio::select! {
                    biased;
                    synced = synced(&mut held.syncing) => held.end_sync(synced),
                    () = tokio::task::yield_now() => {}
                }
                end = held.begin_turn();
            }
            continue;
        }
        if held.begin_sync() {
            end = held.begin_turn();
            continue;
        }
        let Held { poll, events, messages, ready, syncing, .. } = &mut *held;
        tokio::select! {
            message = messages.recv() => match message.map(|message| held.heed(message)) {
                Some(ControlFlow::Continue(())) => {}
                _ => return,
            },
            polled = poll.readable_mut() => match polled {
                Ok(mut guard) => {
                    if ask(guard.get_inner_mut(), events, ready) {
                        guard.clear_ready();
                    }
                }
                // The runtime ends.
                Err(_) => return,
            },
            synced = synced(syncing) => held.end_sync(synced),
        }
        end = held.begin_turn();
    }
}

/// Waits for the disk; for ever if nothing is being written.
async fn synced(syncing: &mut Option<(CommitToken, Syncing)>) -> Result<(), Failure> {
    match syncing {
        Some((_, syncing)) => syncing.await,
        None => std::future::pending().await,
    }
}

/// Asks the system where something has arrived. Returns whether that was all.
fn ask(poll: &mut Poll, events: &mut Events, ready: &mut VecDeque<Ready>) -> bool {
    // Only a signal interrupts this.
    let asked = poll.poll(events, Some(Duration::ZERO));
    let before = ready.len();
    ready.extend(arrived(events));
    asked.is_ok() && ready.len() - before < EVENTS
}

/// Returns where something has arrived.
fn arrived(events: &Events) -> impl Iterator<Item = Ready> {
    let connections = events.iter().filter(|event| event.token() != ALARM);
    connections.map(|event| Ready { place: event.token().0, ends: event.is_read_closed() })
}

/// Has the system tell nothing more of a connection.
fn forget(registry: &Registry, connection: &mut Connection) {
    connection.client().set_bell(None);
    // It does so in any case when the socket is closed.
    if let Ok(descriptor) = connection.socket().descriptor() {
        let _ = registry.deregister(&mut SourceFd(&descriptor.as_raw_fd()));
    }
}

impl Held {
    /// Notes that the thread has waited, or its tasks have had their turn. Returns when they have it again.
    fn begin_turn(&mut self) -> Instant {
        self.now = Instant::now();
        self.now + TURN
    }

    /// Does what a message says. Returns whether the poller goes on.
    fn heed(&mut self, message: Message) -> ControlFlow<()> {
        match message {
            Message::Serve(connection) => self.admit(connection),
            Message::Leave(place) => {
                if let Some(connection) = self.take(place) {
                    self.release(place, connection);
                }
            }
            Message::End => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    /// Waits for requests in the poller's own call of the system, if its thread has nothing else to wait for. Returns whether it has
    /// waited.
    fn wait_alone(&mut self) -> bool {
        // What came before the alarm was set has not sounded it, so this comes first.
        self.alarm.set();
        let waits = self.is_alone();
        if waits {
            let begin = self.busy.pause();
            // Only a signal interrupts this.
            let _ = self.poll.get_mut().poll(&mut self.events, None);
            if self.busy.resume() - begin > SLEEP_MIN {
                Replies::end_burst();
            }
            self.ready.extend(arrived(&self.events));
        }
        self.alarm.unset();
        waits
    }

    /// Returns whether the thread has nothing to wait for but requests of the poller's connections.
    fn is_alone(&self) -> bool {
        self.waiting.is_empty()
            && self.syncing.is_none()
            && self.messages.is_empty()
            && self.runtime.num_alive_tasks() <= OWN_TASKS
    }

    /// Begins to serve a connection.
    fn admit(&mut self, mut connection: Box<Connection>) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::Empty);
            self.places.len() - 1
        });
        // What has arrived already is told, too.
        let watched = connection.socket().descriptor().and_then(|descriptor| {
            let descriptor = descriptor.as_raw_fd();
            self.registry.register(&mut SourceFd(&descriptor), Token(place), Interest::READABLE)
        });
        if let Err(error) = watched {
            connection.break_off(&error);
            return self.free.push(place);
        }
        let alarm = Arc::clone(&self.alarm);
        let bell = Bell { messages: self.bells.clone(), alarm, place };
        connection.client().set_bell(Some(bell));
        // It may have been told so before it had a bell.
        if connection.needs_task() {
            self.release(place, connection);
        } else {
            self.places[place] = Place::Silent(connection);
        }
    }

    /// Takes the connection from a place, whatever it waits for.
    fn take(&mut self, place: usize) -> Option<Box<Connection>> {
        match std::mem::replace(self.places.get_mut(place)?, Place::Empty) {
            Place::Empty => None,
            Place::Silent(connection) => Some(connection),
            Place::Waiting(connection, ..) => {
                self.waiting.retain(|waiting| *waiting != place);
                Some(connection)
            }
        }
    }

    /// Takes a connection that is ready. If it still waits for the disk, it is ready afterwards.
    fn take_ready(&mut self, ready: Ready) -> Option<Box<Connection>> {
        let place = self.places.get_mut(ready.place)?;
        if let Place::Waiting(_, _, later) = place {
            let ends = ready.ends || later.is_some_and(|later| later.ends);
            *later = Some(Ready { ends, ..ready });
            return None;
        }
        match std::mem::replace(place, Place::Empty) {
            Place::Silent(connection) => Some(connection),
            _ => None,
        }
    }

    /// A connection goes on as a task.
    fn release(&mut self, place: usize, mut connection: Box<Connection>) {
        self.free.push(place);
        forget(&self.registry, &mut connection);
        connection.spawn();
    }

    /// Ends a connection that is broken.
    fn end(&mut self, place: usize, connection: Box<Connection>, error: &io::Error) {
        self.free.push(place);
        connection.break_off(error);
    }

    /// Runs the commands of the connections that are ready, up to the end of the turn, and sends their replies.
    /// Returns nothing if the poller was handed over.
    fn serve_ready(mut self: Box<Self>, end: Instant) -> Option<Box<Self>> {
        for _ in 0..self.ready.len() {
            if self.now > end {
                break;
            }
            let Some(ready) = self.ready.pop_front() else { break };
            let Ready { place, ends } = ready;
            let Some(mut connection) = self.take_ready(ready) else { continue };
            let reads_on = match connection.receive(&mut self.buffer, self.now) {
                // A task says good-bye.
                Ok(0) => {
                    self.release(place, connection);
                    continue;
                }
                Ok(bytes) => ends || bytes == self.buffer.len(),
                Err(error) => {
                    match error.kind() {
                        ErrorKind::WouldBlock => self.places[place] = Place::Silent(connection),
                        ErrorKind::Interrupted => {
                            self.places[place] = Place::Silent(connection);
                            self.ready.push_back(ready);
                        }
                        _ => self.end(place, connection, &error),
                    }
                    continue;
                }
            };
            self.running = Some(place);
            POLLING.set(Some(self));
            // A procedure that panics ends its connection, and no other one.
            let answered = catch_unwind(AssertUnwindSafe(|| connection.answer()));
            let Some(held) = POLLING.take() else {
                match answered {
                    Ok(Ok(_)) => Arc::clone(connection.seat().poller()).release(connection),
                    Ok(Err(error)) => connection.break_off(&error),
                    Err(_) => {}
                }
                return None;
            };
            self = held;
            self.running = None;
            self.now = connection.last();
            match answered {
                Ok(Ok(Answer::Complete)) if !connection.seat().has_moved() => {
                    self.places[place] = Place::Silent(connection);
                    if go_together(false) {
                        self.replied.push(place);
                    } else {
                        self.send(place);
                    }
                    if reads_on {
                        self.ready.push_back(ready);
                    }
                }
                Ok(Ok(Answer::Waits(commit))) => {
                    go_together(true);
                    let later = reads_on.then_some(ready);
                    self.places[place] = Place::Waiting(connection, commit, later);
                    self.waiting.push(place);
                }
                Ok(Ok(_)) => self.release(place, connection),
                Ok(Err(error)) => self.end(place, connection, &error),
                Err(_) => self.free.push(place),
            }
        }
        let mut replied = std::mem::take(&mut self.replied);
        replied.drain(..).for_each(|place| self.send(place));
        self.replied = replied;
        Some(self)
    }

    /// Sends the replies of a connection.
    fn send(&mut self, place: usize) {
        let Place::Silent(connection) = &mut self.places[place] else { return };
        let sent = connection.send_now();
        if !matches!(sent, Ok(true))
            && let Some(connection) = self.take(place)
        {
            match sent {
                Ok(_) => self.release(place, connection),
                Err(error) => self.end(place, connection, &error),
            }
        }
    }

    /// Has the commits written for which connections wait, unless that is under way. Returns whether they are on the disk.
    fn begin_sync(&mut self) -> bool {
        if self.syncing.is_some() {
            return false;
        }
        let waiting = self.waiting.iter().filter_map(|place| match &self.places[*place] {
            Place::Waiting(connection, commit, _) => Some((*commit, connection)),
            _ => None,
        });
        let Some((commit, connection)) = waiting.max_by_key(|(commit, _)| *commit) else {
            return false;
        };
        let database = connection.database();
        let synced = match Replies::most_wait() {
            true => self.syncer.sync(database, commit),
            false => None,
        };
        match synced {
            Some(synced) => {
                self.end_sync(synced);
                true
            }
            None => {
                self.syncing = Some((commit, Box::pin(database.when_durable(commit))));
                false
            }
        }
    }

    /// The commits for which connections have waited are on the disk, or cannot be written.
    fn end_sync(&mut self, synced: Result<(), Failure>) {
        self.syncing = None;
        match synced {
            Ok(()) => self.look_at_disk(),
            // A task says why.
            Err(_) => {
                for place in std::mem::take(&mut self.waiting) {
                    if let Some(connection) = self.take(place) {
                        self.release(place, connection);
                    }
                }
            }
        }
    }

    /// Sends the replies whose commits are on the disk.
    fn look_at_disk(&mut self) {
        let Some(Place::Waiting(first, ..)) =
            self.waiting.first().map(|place| &self.places[*place])
        else {
            return;
        };
        let durable = first.database().durable_epoch();
        if durable == self.durable_epoch {
            return;
        }
        self.durable_epoch = durable;
        self.syncing.take_if(|(commit, _)| durable >= Some(commit.epoch()));
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|&place| match std::mem::replace(&mut self.places[place], Place::Empty) {
            Place::Waiting(connection, commit, later) if durable >= Some(commit.epoch()) => {
                self.resume(place, connection, later);
                false
            }
            other => {
                self.places[place] = other;
                true
            }
        });
        self.waiting = waiting;
    }

    /// A connection waits no more for the disk.
    fn resume(&mut self, place: usize, mut connection: Box<Connection>, later: Option<Ready>) {
        if connection.seat().has_moved() {
            return self.release(place, connection);
        }
        connection.note_durable();
        self.places[place] = Place::Silent(connection);
        self.send(place);
        self.ready.extend(later);
    }
}
