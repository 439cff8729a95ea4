//! A connection: reads requests, runs them, and sends the replies.
//!
//! The commands that have arrived together are run one after the other, on the thread that serves the connection, and in one
//! transaction if they are short. The rows that they need are fetched before, all at the same time.
//! Their replies are sent together, when the newest of their commits is durable. So a pipeline of commands waits for the
//! disk once, and no thread waits: while one connection awaits the disk, others run.

use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use serde_json::json;
use smallvec::SmallVec;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use weft::htm::word::Ordering;

use crate::blocked::{AwaitedTurn, Blocked, Pause};
use crate::clients::Client;
use crate::commands::{self, Command};
use crate::log::{Level, log};
use crate::publish::Mailbox;
use crate::replication::{ABORTED, UNBLOCKED, UNKNOWN};
use crate::reply::Reply;
use crate::request::{Parsed, Parser, RANGES_KEPT};
use crate::server::Server;
use crate::session::{EXEC, Elements, FLUSH_BYTES, MULTI, Session};
use crate::socket::{Socket, Stream};
use crate::stop::text_of;
use crate::tls::Tls;
use crate::together::Plan;
use crate::workers::{self, Seat};

/// The most requests of a batch. One that ends between `MULTI` and `EXEC` goes on up to `EXEC`, if that is not far.
const BATCH_REQUESTS: usize = 16;
const BATCH_REQUESTS_TO_EXEC: usize = 4 * BATCH_REQUESTS;
/// Batches that need fewer rows have nothing fetched for them.
const FETCHED_ROWS_MIN: usize = 3;
/// How much is read at once.
const READ_BYTES: usize = 16 << 10;
/// What a connection may keep between commands, which the memory of all clients does not limit.
const KEPT_BYTES: usize =
    2 * FLUSH_BYTES + READ_BYTES + 2 * RANGES_KEPT * size_of::<Range<usize>>();
/// After so many commands of one client, others have their turn.
const COMMANDS_PER_TURN: usize = 1024;

/// What a connection begins with.
pub struct Opening {
    /// The socket, which no runtime watches.
    pub socket: Socket,
    /// With what it agrees on keys, if it is encrypted.
    pub tls: Option<Tls>,
    /// Its address, and that of the server to which it has connected.
    pub addresses: (String, String),
    /// Why it is refused, if it is.
    pub refused: Option<&'static str>,
}

/// Serves a connection until it ends, on the thread of its seat. A client counts from the beginning, also while it agrees on
/// keys. One that is refused gets no reply if it is encrypted, since it could not read it yet.
pub fn open(server: Arc<Server>, seat: Seat, opening: Opening) {
    let runtime = seat.runtime().clone();
    let Opening { mut socket, tls, addresses, refused } = opening;
    runtime.spawn(async move {
        let address = addresses.0.clone();
        let opened = match (Listed::new(&server, addresses, refused), socket.attach(), tls) {
            (_, Err(error), _) => Err(error),
            (Ok(listed), Ok(()), None) => {
                Connection::new(socket, listed, seat).serve().await;
                return;
            }
            // The client may be gone already.
            (Err(text), Ok(()), None) => return drop(socket.write_all(text.as_bytes()).await),
            (Err(_), Ok(()), Some(_)) => return,
            (Ok(listed), Ok(()), Some(tls)) => {
                let opened = tokio::select! {
                    () = listed.1.stop.notified() => return,
                    opened = tls.accept(socket) => opened,
                };
                opened.map(|stream| (stream, listed, seat))
            }
        };
        match opened {
            Ok((stream, listed, seat)) => Connection::new(stream, listed, seat).serve().await,
            Err(error) => {
                let error = error.to_string();
                log(
                    Level::Debug,
                    "a connection cannot begin",
                    json!({ "address": address, "error": error }),
                );
            }
        }
    });
}

/// A client in the list of clients, until its connection ends.
struct Listed(Arc<Server>, Arc<Client>);

impl Listed {
    /// Lists a client, unless it is refused, or there are too many.
    ///
    /// # Errors
    /// What to tell the client.
    fn new(
        server: &Arc<Server>,
        addresses: (String, String),
        refused: Option<&'static str>,
    ) -> Result<Self, &'static str> {
        let clients_max = server.clients_max.load(Ordering::Relaxed);
        let address = addresses.0.clone();
        let client = match refused {
            Some(_) => None,
            None => server.clients.add(addresses, clients_max),
        };
        let Some(client) = client else {
            server.counters.refused.fetch_add(1, Ordering::Relaxed);
            log(Level::Debug, "a client is refused", json!({ "address": address }));
            return Err(refused.unwrap_or("-ERR max number of clients reached\r\n"));
        };
        server.counters.accepted.fetch_add(1, Ordering::Relaxed);
        log(Level::Debug, "a client connects", json!({ "id": client.id, "address": address }));
        Ok(Listed(Arc::clone(server), client))
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.clients.remove(&self.1);
        log(Level::Debug, "a client is gone", json!({ "id": self.1.id }));
    }
}

struct Connection<S> {
    stream: S,
    session: Session,
    parser: Parser,
    reply: Reply,
    /// What has arrived.
    input: Vec<u8>,
    /// How much of it belongs to commands that were run.
    run: usize,
    /// Commands that were read and not run yet.
    batch: Batch,
    /// How much memory a command needs that waits.
    waiting_bytes: usize,
    /// How much memory the connection has counted for itself among that of all clients.
    counted: usize,
    seat: Seat,
    /// The last field, since the client is there until its session has ended.
    _listed: Listed,
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        // Subtracts, since the sum wraps around.
        let less = (self.counted as u64).wrapping_neg();
        self.session.server.clients_bytes.fetch_add(less, Ordering::Relaxed);
    }
}

impl<S: Stream> Connection<S> {
    fn new(stream: S, listed: Listed, seat: Seat) -> Self {
        let server = &listed.0;
        Connection {
            stream,
            session: Session::new(Arc::clone(server), Arc::clone(&listed.1)),
            parser: Parser::new(server.options.request_bytes),
            reply: Reply::new(server.options.output_bytes),
            input: Vec::new(),
            run: 0,
            batch: Batch::default(),
            waiting_bytes: 0,
            counted: 0,
            seat,
            _listed: listed,
        }
    }

    /// Serves the connection until it ends, or moves to another thread, which then goes on. (A box, since the future of an
    /// `async` function cannot have itself in it.)
    fn serve(mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let served = match self.run().await {
                Ok(Served::Moves) => self.stream.socket().detach(),
                Ok(Served::Ends) => return,
                Err(error) => Err(error),
            };
            match served {
                Ok(()) => {
                    let runtime = self.seat.runtime().clone();
                    runtime.spawn(async move {
                        match self.stream.socket().attach() {
                            Ok(()) => self.serve().await,
                            Err(error) => self.break_off(&error),
                        }
                    });
                }
                Err(error) => self.break_off(&error),
            }
        })
    }

    /// Notes that the connection breaks, which is no event for the server.
    fn break_off(&self, error: &io::Error) {
        let (id, error) = (self.session.client.id, error.to_string());
        log(Level::Debug, "a connection breaks", json!({ "id": id, "error": error }));
    }

    /// Counts the memory that the connection holds.
    ///
    /// # Errors
    /// All clients together hold too much, and this one more than what each needs.
    fn count_memory(&mut self) -> io::Result<()> {
        let ranges = size_of::<Range<usize>>() * self.batch.ranges.capacity();
        let requests = self.input.capacity() + ranges + self.parser.ranges_bytes();
        let replies = self.reply.capacity();
        let held = requests + replies + self.session.held_bytes() + self.waiting_bytes;
        if held == self.counted {
            return Ok(());
        }
        let (server, before) = (&self.session.server, self.counted as u64);
        self.counted = held;
        let more = (held as u64).wrapping_sub(before);
        let all = server.clients_bytes.fetch_add(more, Ordering::Relaxed).wrapping_add(more);
        let limit = server.clients_bytes_max.load(Ordering::Relaxed);
        if limit != 0 && all > limit && held > KEPT_BYTES {
            let (id, bytes) = (self.session.client.id, held);
            log(
                Level::Warn,
                "a client is closed, since all together need too much memory: see --clients-memory",
                json!({ "id": id, "bytes": bytes }),
            );
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(())
    }

    async fn run(&mut self) -> io::Result<Served> {
        loop {
            self.run_commands().await?;
            self.count_memory()?;
            workers::reply_together(self.session.awaited().is_some()).await;
            self.flush().await?;
            if !self.session.closes && self.seat.has_moved() {
                return Ok(Served::Moves);
            }
            if self.session.closes || self.read().await? == Next::End {
                if self.session.has_begun() {
                    self.say_if_over(ABORTED).await?;
                }
                return self.stream.shutdown().await.map(|()| Served::Ends);
            }
        }
    }

    /// Runs the commands that have arrived.
    async fn run_commands(&mut self) -> io::Result<()> {
        let mut commands = 0;
        while !self.session.closes {
            let mut ran = 0;
            if self.batch.is_empty() {
                self.batch.fill(&mut self.parser, &self.input, self.run, &self.session);
                ran = self.run_together();
            }
            if ran == 0 {
                match self.batch.next() {
                    Some(Ok(request)) => self.run_request(request).await?,
                    Some(Err(text)) => {
                        self.reply.error(&format!("ERR {text}"));
                        self.session.closes = true;
                    }
                    None => break,
                }
                ran = 1;
            }
            if self.reply.is_too_long() {
                // Part of the reply is missing, so nothing that follows would be understood.
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            if self.reply.len() >= FLUSH_BYTES {
                self.count_memory()?;
                self.flush().await?;
            }
            commands += ran;
            if commands >= COMMANDS_PER_TURN {
                commands = 0;
                tokio::task::yield_now().await;
                self.session.wake();
            }
        }
        self.input.drain(..self.run);
        self.run = 0;
        if self.input.is_empty() {
            self.input.shrink_to(FLUSH_BYTES);
        }
        Ok(())
    }

    /// Runs one command. If it waits, goes on with it when what it waits for has come.
    async fn run_request(&mut self, request: Request) -> io::Result<()> {
        {
            let bytes = if request.is_line { self.parser.words() } else { &self.input };
            let arguments = self.batch.ranges[request.arguments].iter();
            let arguments = arguments.map(|range| &bytes[range.clone()]);
            let arguments: SmallVec<[&[u8]; 8]> = arguments.collect();
            self.session.run_found(request.command, &arguments, &mut self.reply);
        }
        self.run = request.end;
        match self.session.pause.take() {
            None => Ok(()),
            Some(Pause::Element(blocked)) => self.wait(*blocked).await,
            Some(Pause::Sleep(time)) => self.sleep(time).await,
            Some(Pause::Turn(awaited)) => self.wait_for_turn(*awaited).await,
        }
    }

    /// Runs the first commands of a new batch together, if that is possible. Returns how many.
    fn run_together(&mut self) -> usize {
        let Connection { batch, input, session, reply, .. } = self;
        let begins = batch.requests.last().is_some_and(|first| {
            let command = first.command.filter(|_| !first.is_line && batch.requests.len() > 1);
            command.is_some_and(|command| Plan::begins_with(command, first.arguments.len()))
        });
        if !begins {
            return 0;
        }
        let arguments = batch.ranges.iter().map(|range| input.get(range.clone()).unwrap_or(&[]));
        let arguments: SmallVec<[&[u8]; 4 * BATCH_REQUESTS]> = arguments.collect();
        let requests = batch.requests.iter().rev().take_while(|request| !request.is_line);
        let requests =
            requests.map(|request| (request.command, &arguments[request.arguments.clone()]));
        let requests: SmallVec<[_; BATCH_REQUESTS]> = requests.collect();
        let ran = session.run_together(&requests, reply);
        for _ in 0..ran {
            let request = batch.requests.pop().expect("it was run");
            self.run = request.end;
        }
        ran
    }

    /// Goes on with a command that waits until it has found something, or its time is over.
    async fn wait(&mut self, mut blocked: Blocked) -> io::Result<()> {
        self.waiting_bytes = blocked.bytes();
        let client = Arc::clone(&self.session.client);
        loop {
            if self.flush_waiting(&mut blocked).await? && self.finds(&blocked, false) {
                return Ok(());
            }
            let mailbox = self.session.mailbox();
            // Input of a client that waits is kept up to a limit. The end of the connection ends the waiting.
            let reads = self.input.len() - self.run < READ_BYTES;
            let is_over = tokio::select! {
                biased;
                () = client.stop.notified() => {
                    self.say_if_over(UNBLOCKED).await?;
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                () = blocked.waiter.woken.notified() => false,
                () = until(blocked.deadline) => true,
                () = has_messages(mailbox.as_deref()) => continue,
                bytes = self.read_input(), if reads => match bytes? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    _ => continue,
                },
            };
            if self.finds(&blocked, is_over) {
                return Ok(());
            }
        }
    }

    /// Runs a command that waits again. Returns whether it has ended.
    fn finds(&mut self, blocked: &Blocked, is_over: bool) -> bool {
        let has_ended = self.session.look_again(blocked, is_over, &mut self.reply);
        if has_ended {
            // The time that was spent waiting is no work.
            self.session.wake();
            self.waiting_bytes = 0;
        }
        has_ended
    }

    /// As [`Self::flush`], for a client that waits. A client that does not take its output cannot look at its keys. So it
    /// leaves its lines until it has taken all of it, and then joins them again. Returns whether it did: the command then has
    /// to look.
    async fn flush_waiting(&mut self, blocked: &mut Blocked) -> io::Result<bool> {
        let mailbox = self.settle().await?;
        self.count_memory()?;
        let mut send = pin!(self.send(mailbox));
        match poll_fn(|context| Poll::Ready(send.as_mut().poll(context))).await {
            Poll::Ready(sent) => sent.map(|()| false),
            Poll::Pending => {
                blocked.leave();
                send.await?;
                blocked.rejoin();
                Ok(true)
            }
        }
    }

    /// Tells the client why its connection ends, if that is because the server is no longer the primary.
    async fn say_if_over(&mut self, text: &str) -> io::Result<()> {
        if !self.session.server.is_over() {
            return Ok(());
        }
        self.reply.truncate(0);
        self.reply.error(text);
        let limit = self.session.server.options.output_timeout;
        write_all(&mut self.stream, self.reply.bytes(), limit).await
    }

    /// Waits for a time, if the client stays that long.
    async fn sleep(&mut self, time: Duration) -> io::Result<()> {
        tokio::select! {
            () = self.session.client.stop.notified() => {
                self.say_if_over(UNBLOCKED).await?;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            () = tokio::time::sleep(time) => Ok(()),
        }
    }

    /// Goes on with a `WATCH` when it is the client's turn. Nothing is read until then, since that does not take long.
    async fn wait_for_turn(&mut self, mut awaited: AwaitedTurn) -> io::Result<()> {
        self.flush().await?;
        awaited.turn = tokio::select! {
            biased;
            () = self.session.client.stop.notified() => {
                self.say_if_over(UNBLOCKED).await?;
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            turn = async { awaited.turn.take()?.wait().await } => turn,
        };
        self.session.watch_in_turn(awaited, &mut self.reply);
        // The time that was spent waiting is no work.
        self.session.wake();
        Ok(())
    }

    /// Sends the replies, and the messages of subscriptions, when their commits are durable.
    async fn flush(&mut self) -> io::Result<()> {
        let mailbox = self.settle().await?;
        self.send(mailbox).await
    }

    /// Adds the messages of subscriptions to the replies, and waits until their commits are durable. Returns where messages
    /// wait.
    async fn settle(&mut self) -> io::Result<Option<Arc<Mailbox>>> {
        let Connection { session, reply, seat, .. } = self;
        let mailbox = session.mailbox();
        let server = &*session.server;
        if let Some(mailbox) = &mailbox {
            session.token = session.token.max(mailbox.take(reply));
            if reply.is_too_long() {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
        }
        let counters = &server.counters;
        let commands = std::mem::take(&mut session.commands);
        counters.commands.fetch_add(commands, Ordering::Relaxed);
        match std::mem::take(&mut session.errors) {
            0 => {}
            errors => drop(counters.errors.fetch_add(errors, Ordering::Relaxed)),
        }
        let awaited = session.awaited();
        (session.waits, session.token) = (false, None);
        let leads = std::mem::take(&mut session.leads);
        let failed = match awaited {
            Some(commit) => seat.when_durable(&session.server, commit).await.err(),
            None => None,
        };
        let is_proved = match &server.replication {
            Some(replication) if leads && !reply.is_empty() && failed.is_none() => {
                replication.is_proved().await
            }
            _ => true,
        };
        if failed.is_some() || !is_proved {
            // The replies would say that something has happened which a crash may undo, or that another primary has changed.
            reply.truncate(0);
            session.closes = true;
            match failed {
                Some(failure) if server.replication.is_none() => reply.error(&text_of(&failure)),
                // One for each command, so that the client knows to which one it belongs.
                _ => (0..commands.max(1)).for_each(|_| reply.error(UNKNOWN)),
            }
        }
        Ok(mailbox)
    }

    /// Sends the replies.
    async fn send(&mut self, mailbox: Option<Arc<Mailbox>>) -> io::Result<()> {
        let Connection { stream, session, reply, .. } = self;
        if reply.is_empty() {
            return Ok(());
        }
        let server = &*session.server;
        let bytes = reply.len() as u64;
        let limit = server.options.output_timeout;
        tokio::select! {
            biased;
            sent = write_all(stream, reply.bytes(), limit) => sent?,
            () = is_full(mailbox.as_deref()) => return Err(io::ErrorKind::OutOfMemory.into()),
        }
        server.counters.output_bytes.fetch_add(bytes, Ordering::Relaxed);
        reply.clear();
        Ok(())
    }

    /// Waits for what comes next, and reads it if it is input.
    async fn read(&mut self) -> io::Result<Next> {
        let mailbox = self.session.mailbox();
        let seconds = match mailbox {
            // Subscribers may be silent.
            Some(_) => 0,
            None => self.session.server.idle_seconds.load(Ordering::Relaxed),
        };
        let client = Arc::clone(&self.session.client);
        let read = async {
            let read = self.read_input();
            match seconds {
                0 => read.await,
                seconds => {
                    tokio::time::timeout(Duration::from_secs(seconds), read).await.unwrap_or(Ok(0))
                }
            }
        };
        let bytes = tokio::select! {
            biased;
            () = client.stop.notified() => 0,
            () = has_messages(mailbox.as_deref()) => return Ok(Next::Messages),
            bytes = read => bytes?,
        };
        Ok(if bytes > 0 { Next::Input } else { Next::End })
    }

    /// Reads what arrives next. Returns 0 if the connection ends.
    async fn read_input(&mut self) -> io::Result<usize> {
        // The memory for input at most doubles with the bytes that have arrived.
        self.input.reserve(READ_BYTES.min(self.session.server.options.request_bytes));
        let bytes = self.stream.read_buf(&mut self.input).await?;
        // The client was silent until now.
        let now = self.session.wake();
        self.session.client.note_activity(now);
        let counters = &self.session.server.counters;
        counters.input_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// Requests that are complete and were not run yet. The rows that they need are fetched together, so that the thread waits
/// for memory once and not for each of them.
#[derive(Default)]
struct Batch {
    /// The next one is the last.
    requests: SmallVec<[Request; BATCH_REQUESTS]>,
    ranges: Vec<Range<usize>>,
    /// Why what follows cannot be read.
    failure: Option<String>,
}

/// A request of a batch.
struct Request {
    /// The command, unless the server does not have it or it is a procedure.
    command: Option<&'static Command>,
    /// Where the batch says where the arguments are.
    arguments: Range<usize>,
    /// Whether it is a line of words, which the parser has.
    is_line: bool,
    /// Where it ends in the input.
    end: usize,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Takes the next request, or the reason why it cannot be read.
    fn next(&mut self) -> Option<Result<Request, String>> {
        self.requests.pop().map(Ok).or_else(|| self.failure.take().map(Err))
    }

    /// Reads requests from a place in the input on.
    fn fill(&mut self, parser: &mut Parser, input: &[u8], start: usize, session: &Session) {
        if self.failure.is_some() {
            return;
        }
        // What strangers may send depends on the commands that come before.
        let requests_max = if session.is_known { BATCH_REQUESTS } else { 1 };
        let mut start = start;
        self.ranges.clear();
        // Requests of so many arguments are rare.
        self.ranges.shrink_to(RANGES_KEPT);
        let (mut keys, mut elements) =
            (SmallVec::<[&[u8]; 2 * BATCH_REQUESTS]>::new(), Elements::new());
        let (mut last, mut is_in_queue) = (None, false);
        while self.requests.len() < requests_max
            || (is_in_queue && self.requests.len() < BATCH_REQUESTS_TO_EXEC)
        {
            match parser.parse(&input[start..], session.is_known) {
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Complete(length)) => {
                    let (first, is_line) = (self.ranges.len(), parser.is_line());
                    let (bytes, offset) =
                        if is_line { (parser.words(), 0) } else { (input, start) };
                    let ranges = parser.ranges().iter();
                    self.ranges
                        .extend(ranges.map(|range| offset + range.start..offset + range.end));
                    start += length;
                    let arguments = &self.ranges[first..];
                    let name = arguments.first().cloned();
                    // The command before is often the next one, too.
                    let command = match (&last, name.clone()) {
                        (Some((last, command)), Some(name))
                            if !is_line && input[name.clone()] == input[Range::clone(last)] =>
                        {
                            *command
                        }
                        (_, name) => name.and_then(|name| commands::find(&bytes[name])),
                    };
                    last = name.map(|name| (name, command));
                    if !is_line && let Some(command) = command {
                        let at = command.first_keys();
                        for range in arguments.iter().take(at.end).skip(at.start) {
                            let key = &input[range.clone()];
                            // The row of the key before is often that of the next.
                            if keys.last() != Some(&key) {
                                keys.push(key);
                            }
                        }
                        if let Some((kind, position)) = command.first_element()
                            && let (Some(key), Some(element)) =
                                (arguments.get(1), arguments.get(position))
                        {
                            elements.push((kind, &input[key.clone()], &input[element.clone()]));
                        }
                    }
                    is_in_queue = match command.map(|command| command.name) {
                        Some(MULTI) => session.is_known,
                        Some(EXEC) => false,
                        _ => is_in_queue,
                    };
                    let arguments = first..self.ranges.len();
                    self.requests.push(Request { command, arguments, is_line, end: start });
                    if is_line {
                        // The parser has the words until it reads on.
                        break;
                    }
                }
                Err(text) => {
                    self.failure = Some(text);
                    break;
                }
            }
        }
        if keys.len() + elements.len() >= FETCHED_ROWS_MIN {
            session.fetch(&keys, &elements);
        }
        self.requests.reverse();
    }
}

/// Why a thread serves a connection no more.
enum Served {
    /// Another thread serves it.
    Moves,
    /// It has ended.
    Ends,
}

/// What comes next on a connection.
#[derive(PartialEq)]
enum Next {
    /// Input has arrived.
    Input,
    /// Messages wait to be sent.
    Messages,
    /// The connection ends.
    End,
}

/// Waits until a time; for ever if there is no time.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// Waits until a mailbox has messages.
async fn has_messages(mailbox: Option<&Mailbox>) {
    match mailbox {
        Some(mailbox) => mailbox.arrived.notified().await,
        None => std::future::pending().await,
    }
}

/// Waits until a mailbox is full.
async fn is_full(mailbox: Option<&Mailbox>) {
    match mailbox {
        Some(mailbox) => mailbox.is_full.notified().await,
        None => std::future::pending().await,
    }
}

/// Sends bytes to a client that takes some of them at least once in `limit`.
async fn write_all(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    limit: Duration,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = within(limit, stream.write(bytes)).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[written..];
    }
    // A stream that encrypts may still hold what did not fit the socket.
    within(limit, stream.flush()).await
}

/// Waits for so long. Most of the time there is nothing to wait for, and then the clock is not read.
async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let mut work = pin!(work);
    match poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        Poll::Ready(done) => done,
        Poll::Pending => tokio::time::timeout(limit, work).await?,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;

    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

    use super::*;
    use crate::server::Options;
    use crate::tls::TlsFiles;
    use crate::workers::Workers;

    /// A client's end of a connection.
    trait End: Read + Write {}

    impl<S: Read + Write> End for S {}

    type Client = Box<dyn End>;

    fn send(client: &mut Client, request: &str) {
        client.write_all(request.as_bytes()).unwrap();
        client.flush().unwrap();
    }

    fn expect(client: &mut Client, reply: &str) {
        let mut bytes = vec![0; reply.len()];
        client.read_exact(&mut bytes).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), reply);
    }

    fn say(client: &mut Client, request: &str, reply: &str) {
        send(client, request);
        expect(client, reply);
    }

    /// Makes a certificate, and returns what a server and its clients need.
    fn certificate(folder: &Path) -> (Tls, Arc<ClientConfig>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let (certificate_file, key_file) = (folder.join("server.pem"), folder.join("server.key"));
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(&certificate_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        let (certificate_file, key_file) = (Some(certificate_file), Some(key_file));
        let files =
            TlsFiles { certificate: certificate_file, key: key_file, client_authority: None };
        let tls = Tls::open(&files).unwrap().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        (tls, Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
    }

    /// A connection moves with its session, with half a request, and with its subscriptions.
    fn move_connections(tls: Option<(Tls, Arc<ClientConfig>)>) {
        let server = Server::open(Options::default()).unwrap();
        let workers = Workers::start(3).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || -> Client {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (socket, _) = listener.accept().unwrap();
            socket.set_nonblocking(true).unwrap();
            let socket = Socket::DetachedTcp(socket);
            let addresses = (String::new(), String::new());
            let (tls, config) = tls.clone().unzip();
            let opening = Opening { socket, tls, addresses, refused: None };
            open(Arc::clone(&server), workers.seat(), opening);
            match config {
                None => Box::new(client),
                Some(config) => {
                    let name = ServerName::try_from("localhost").unwrap();
                    let connection = ClientConnection::new(config, name).unwrap();
                    Box::new(StreamOwned::new(connection, client))
                }
            }
        };
        let mut clients: Vec<Client> = (0..6).map(|_| connect()).collect();
        for client in &mut clients {
            say(client, "MULTI\r\nSET key value\r\n", "+OK\r\n+QUEUED\r\n");
        }
        assert_eq!(workers.spread(), [6, 0, 0]);
        for (round, threads) in [3, 2, 3, 1, 2].into_iter().enumerate() {
            workers.serve_by(threads);
            for (number, client) in clients.iter_mut().enumerate() {
                say(client, "GET key\r\nGE", "+QUEUED\r\n");
                say(client, "T key\r\n", "+QUEUED\r\n");
                if round == 4 {
                    let value = "$5\r\nvalue\r\n";
                    let replies = format!("*11\r\n+OK\r\n{}", value.repeat(10));
                    say(client, "EXEC\r\n", &replies);
                    let channel = format!("SUBSCRIBE channel{number}\r\n");
                    let reply = format!("*3\r\n$9\r\nsubscribe\r\n$8\r\nchannel{number}\r\n:1\r\n");
                    say(client, &channel, &reply);
                }
            }
            let each = (0..3).map(|thread| if thread < threads { 6 / threads } else { 0 });
            let each: Vec<usize> = each.collect();
            // A thread that has given a connection away may not have ended its task yet.
            while workers.spread() != each {
                std::thread::yield_now();
            }
        }
        workers.serve_by(3);
        for (number, client) in clients.iter_mut().enumerate() {
            say(client, "PING\r\n", "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
            let mut sender = connect();
            say(&mut sender, &format!("PUBLISH channel{number} text\r\n"), ":1\r\n");
            expect(
                client,
                &format!("*3\r\n$7\r\nmessage\r\n$8\r\nchannel{number}\r\n$4\r\ntext\r\n"),
            );
        }
    }

    #[test]
    fn connections_move_between_threads_with_all_they_have() {
        move_connections(None);
    }

    #[test]
    fn encrypted_connections_move_between_threads_with_all_they_have() {
        let folder = std::env::temp_dir().join(format!("weft-moves-{}", std::process::id()));
        move_connections(Some(certificate(&folder)));
    }
}
