//! A connection: reads requests, runs them, and sends the replies.
//!
//! The commands that have arrived together are run one after the other, on the thread that serves the connection, and in one
//! transaction if they are short. The rows that they need are fetched before, all at the same time.
//! Their replies are sent together, when the newest of their commits is durable. So a pipeline of commands waits for the
//! disk once, and no thread waits: while one connection awaits the disk, others run.
//!
//! A connection begins as a task of its thread's runtime, which can wait for anything. One that has waited for nothing but
//! requests for some time goes to its thread's [poller](crate::poller), and comes back when it has to wait for something else.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use serde_json::json;
use smallvec::SmallVec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft::htm::word::Ordering;
use weft::{CommitToken, Database};

use crate::batch::{BATCH_REQUESTS, Batch, Request};
use crate::blocked::{AwaitedCommit, AwaitedTurn, Blocked, Pause};
use crate::clients::Client;
use crate::log::{Level, log};
use crate::publish::Mailbox;
use crate::replication::{ABORTED, UNBLOCKED, UNKNOWN};
use crate::reply::Reply;
use crate::request::{Parser, RANGES_KEPT};
use crate::server::Server;
use crate::session::{FLUSH_BYTES, Session};
use crate::socket::{Socket, Stream};
use crate::stop::text_of;
use crate::tls::Tls;
use crate::workers::{self, Seat};

/// How much is read at once.
pub const READ_BYTES: usize = 16 << 10;
/// What a connection may keep between commands, which the memory of all clients does not limit.
const KEPT_BYTES: usize =
    2 * FLUSH_BYTES + READ_BYTES + 2 * RANGES_KEPT * size_of::<Range<usize>>();
/// After so many commands of one client, others have their turn.
const COMMANDS_PER_TURN: usize = 1024;
/// After so many requests for which it has waited for nothing else, a connection goes to its thread's poller. Tests see both
/// ways, and the change from one to the other, all the time.
const PLAIN_REQUESTS: u32 = if cfg!(debug_assertions) { 1 } else { 16 };
/// With what a new connection begins to count them. A pool of clients has many connections that never send anything, and with a
/// task the thread could not [wait in its poller](crate::poller).
const PLAIN_AT_FIRST: u32 = if cfg!(debug_assertions) { 0 } else { PLAIN_REQUESTS };

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
    let spawner = seat.spawner();
    let Opening { mut socket, tls, addresses, refused } = opening;
    spawner.spawn(async move {
        let address = addresses.0.clone();
        let opened = match (Listed::new(&server, addresses, refused), socket.attach(), tls) {
            (_, Err(error), _) => Err(error),
            (Ok(listed), Ok(()), None) => Ok((Stream::Plain(socket), listed, seat)),
            // The client may be gone already.
            (Err(text), Ok(()), None) => return drop(socket.write_all(text.as_bytes()).await),
            (Err(_), Ok(()), Some(_)) => return,
            (Ok(listed), Ok(()), Some(tls)) => {
                let opened = tokio::select! {
                    () = listed.1.stopped() => return,
                    opened = tls.accept(socket) => opened,
                };
                opened.map(|stream| (Stream::Encrypted(Box::new(stream)), listed, seat))
            }
        };
        match opened {
            Ok((stream, listed, seat)) => {
                Box::new(Connection::new(stream, listed, seat)).serve().await
            }
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

/// A connection.
pub struct Connection {
    stream: Stream,
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
    /// For how many requests one after the other it has waited for nothing else.
    plain: u32,
    seat: Seat,
    /// The last field, since the client is there until its session has ended.
    _listed: Listed,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Subtracts, since the sum wraps around.
        let less = (self.counted as u64).wrapping_neg();
        self.session.server.clients_bytes.fetch_add(less, Ordering::Relaxed);
    }
}

impl Connection {
    fn new(stream: Stream, listed: Listed, seat: Seat) -> Self {
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
            plain: PLAIN_AT_FIRST,
            seat,
            _listed: listed,
        }
    }

    /// Serves the connection as a task of its seat's runtime.
    pub fn spawn(self: Box<Self>) {
        self.seat.spawner().spawn(self.serve());
    }

    /// Serves the connection until it ends, or goes to another thread or to the poller. (A box, since the future of an `async`
    /// function cannot have itself in it.)
    fn serve(mut self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let served = match self.stream.socket().attach() {
                Ok(()) => self.run().await,
                Err(error) => Err(error),
            };
            let detached = match served {
                Ok(Served::Ends) => return,
                Ok(left) => self.stream.socket().detach().map(|()| left),
                Err(error) => Err(error),
            };
            match detached {
                Ok(Served::Rests) => Arc::clone(self.seat.poller()).serve(self),
                Ok(_) => self.spawn(),
                Err(error) => self.break_off(&error),
            }
        })
    }

    /// Notes that the connection breaks, which is no event for the server.
    pub fn break_off(&self, error: &io::Error) {
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
        self.session.client.held_bytes.store(held as u64, Ordering::Relaxed);
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
            let waits = self.session.awaited().is_some();
            if self.session.is_slow() {
                self.plain = 0;
            }
            workers::reply_together(waits).await;
            self.flush().await?;
            if !self.session.closes && self.seat.has_moved() {
                return Ok(Served::Moves);
            }
            if self.may_rest() {
                return Ok(Served::Rests);
            }
            if self.session.closes || self.read().await? == Next::End {
                if self.session.has_begun() {
                    self.say_if_over(ABORTED).await?;
                }
                return self.stream.shutdown().await.map(|()| Served::Ends);
            }
            self.plain = self.plain.saturating_add(1);
        }
    }

    /// Returns whether the poller is to serve the connection.
    fn may_rest(&self) -> bool {
        self.plain >= PLAIN_REQUESTS && !self.needs_task()
    }

    /// Returns whether the connection waits for something that the poller does not know of, besides its replies.
    pub fn needs_task(&self) -> bool {
        let session = &self.session;
        !matches!(self.stream, Stream::Plain(_))
            || session.closes
            || session.has_mailbox()
            || session.client.is_stopped()
            || session.server.idle_seconds.load(Ordering::Relaxed) != 0
            || session.server.replication.is_some()
    }

    /// Returns the socket of a connection that no runtime watches.
    pub fn socket(&mut self) -> &mut Socket {
        self.stream.socket()
    }

    /// Returns what others see of the client.
    pub fn client(&self) -> &Client {
        &self.session.client
    }

    /// Returns the connection's place.
    pub fn seat(&mut self) -> &mut Seat {
        &mut self.seat
    }

    /// Takes what has arrived, without waiting for more: at most `buffer.len()` bytes, which come by way of the buffer. Returns
    /// how many there were; 0 if the connection ends.
    ///
    /// # Errors
    /// Nothing has arrived, or the connection is broken.
    pub fn receive(&mut self, buffer: &mut [u8], now: Instant) -> io::Result<usize> {
        let bytes = self.stream.socket().receive(buffer)?;
        if bytes == 0 {
            self.plain = 0;
        }
        self.input.extend_from_slice(&buffer[..bytes]);
        self.session.wake_at(now);
        self.note_input(bytes, now);
        Ok(bytes)
    }

    /// Runs the commands that have arrived, without waiting for anything.
    ///
    /// # Errors
    /// The client is to be closed, or the connection is broken.
    pub fn answer(&mut self) -> io::Result<Answer> {
        loop {
            match self.advance()? {
                Halt::Silent => break,
                Halt::Full => {
                    self.count_memory()?;
                    if !matches!(self.settle_now(), Answer::Complete) || !self.send_now()? {
                        self.plain = 0;
                        return Ok(Answer::Unfinished);
                    }
                }
                Halt::Paused | Halt::Turn => {
                    self.plain = 0;
                    return Ok(Answer::Unfinished);
                }
            }
        }
        self.count_memory()?;
        Ok(self.settle_now())
    }

    /// Does what [`Self::settle`] does if it has nothing to wait for.
    fn settle_now(&mut self) -> Answer {
        if self.session.is_slow() || self.needs_task() {
            self.plain = 0;
            return Answer::Unfinished;
        }
        match self.session.awaited() {
            Some(commit) => Answer::Waits(commit),
            None => {
                self.note_durable();
                Answer::Complete
            }
        }
    }

    /// Notes that all is on the disk which the replies show.
    pub fn note_durable(&mut self) {
        self.count_commands();
        self.session.token = None;
    }

    /// Returns the database.
    pub fn database(&self) -> &Database {
        &self.session.server.database
    }

    /// Sends the replies as far as the socket takes them. Returns whether it has taken all of them.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send_now(&mut self) -> io::Result<bool> {
        if self.reply.is_empty() {
            return Ok(true);
        }
        let (all, mut sent) = (self.reply.bytes().len(), 0);
        while sent < all {
            match self.stream.socket().send(&self.reply.bytes()[sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let counters = &self.session.server.counters;
        counters.output_bytes.fetch_add(sent as u64, Ordering::Relaxed);
        if sent < all {
            self.reply.forget(sent);
            self.plain = 0;
            return Ok(false);
        }
        self.reply.clear();
        Ok(true)
    }

    /// Returns when the last command has ended.
    pub fn last(&self) -> Instant {
        self.session.last()
    }

    /// Runs the commands that have arrived, and waits for what they wait for.
    async fn run_commands(&mut self) -> io::Result<()> {
        loop {
            match self.advance()? {
                Halt::Silent => return Ok(()),
                Halt::Paused => {
                    self.plain = 0;
                    match self.session.pause.take() {
                        None => {}
                        Some(Pause::Element(blocked)) => self.wait(*blocked).await?,
                        Some(Pause::Sleep(time)) => self.sleep(time).await?,
                        Some(Pause::Turn(awaited)) => self.wait_for_turn(*awaited).await?,
                        Some(Pause::Commit(awaited)) => self.wait_for_commit(&awaited).await?,
                    }
                }
                Halt::Full => {
                    self.count_memory()?;
                    self.flush().await?;
                }
                Halt::Turn => {
                    tokio::task::yield_now().await;
                    self.session.wake();
                }
            }
        }
    }

    /// Runs commands that have arrived as long as nothing has to be awaited.
    ///
    /// # Errors
    /// The replies are too long.
    fn advance(&mut self) -> io::Result<Halt> {
        let mut commands = 0;
        while !self.session.closes {
            if self.session.pause.is_some() {
                return Ok(Halt::Paused);
            }
            let mut ran = 0;
            if self.batch.is_empty() {
                self.batch.fill(&mut self.parser, &self.input, self.run, &self.session);
                ran = self.run_together();
            }
            if ran == 0 {
                match self.batch.next() {
                    Some(Ok(request)) => self.run_request(&request),
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
                return Ok(Halt::Full);
            }
            commands += ran;
            if commands >= COMMANDS_PER_TURN {
                return Ok(Halt::Turn);
            }
        }
        if self.run == self.input.len() {
            self.input.clear();
            if self.input.capacity() > FLUSH_BYTES {
                self.input.shrink_to(FLUSH_BYTES);
            }
        } else {
            self.input.drain(..self.run);
        }
        self.run = 0;
        Ok(Halt::Silent)
    }

    /// Runs one command. If it has to wait for something, the session has a pause then.
    fn run_request(&mut self, request: &Request) {
        let bytes = if request.is_line { self.parser.words() } else { &self.input };
        let arguments = self.batch.ranges[request.arguments.clone()].iter();
        let arguments = arguments.map(|range| &bytes[range.clone()]);
        let arguments: SmallVec<[&[u8]; 8]> = arguments.collect();
        self.session.run_found(request.command, &arguments, &mut self.reply);
        self.run = request.end;
    }

    /// Runs the first commands of a new batch together, if that is possible, and fetches the rows that the others need. Returns
    /// how many were run.
    fn run_together(&mut self) -> usize {
        let Connection { batch, input, session, reply, .. } = self;
        // One needs too few rows.
        if batch.requests.len() < 2 {
            return 0;
        }
        let arguments = batch.ranges.iter().map(|range| input.get(range.clone()).unwrap_or(&[]));
        let arguments: SmallVec<[&[u8]; 4 * BATCH_REQUESTS]> = arguments.collect();
        let requests = batch.requests.iter().rev().take_while(|request| !request.is_line);
        let requests =
            requests.map(|request| (request.command, &arguments[request.arguments.clone()]));
        let requests: SmallVec<[_; BATCH_REQUESTS]> = requests.collect();
        let ran = session.run_together(&requests, reply);
        session.fetch(&requests[ran..]);
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
                () = client.stopped() => {
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
            () = self.session.client.stopped() => {
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
            () = self.session.client.stopped() => {
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

    /// Replies to a `WAIT` or `WAITAOF` when the client's commits are in the log, or when its time is over. Nothing is read
    /// until then.
    async fn wait_for_commit(&mut self, awaited: &AwaitedCommit) -> io::Result<()> {
        self.flush().await?;
        if self.session.closes {
            // A commit before it cannot become durable, which the client has heard.
            return Ok(());
        }
        if let Err(failure) = awaited.wait(&self.session.server.database, &mut self.reply).await {
            self.session.count_error(&text_of(&failure));
        }
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
        let Connection { session, reply, .. } = self;
        let mailbox = session.mailbox();
        if let Some(mailbox) = &mailbox {
            session.token = session.token.max(mailbox.take(reply));
            if reply.is_too_long() {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
        }
        let commands = self.count_commands();
        let Connection { session, reply, seat, .. } = self;
        let server = &*session.server;
        let awaited = session.awaited();
        session.token = None;
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

    /// Adds the commands that were run to those of the server, and returns how many they are.
    fn count_commands(&mut self) -> u64 {
        let commands = std::mem::take(&mut self.session.commands);
        let errors = std::mem::take(&mut self.session.errors);
        let counters = &self.session.server.counters;
        counters.commands.fetch_add(commands, Ordering::Relaxed);
        match errors {
            0 => {}
            errors => drop(counters.errors.fetch_add(errors, Ordering::Relaxed)),
        }
        commands
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
        let awake_until = self.session.awake_until();
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
            () = client.stopped() => 0,
            () = has_messages(mailbox.as_deref()) => return Ok(Next::Messages),
            bytes = read => bytes?,
            never = stay_awake(awake_until) => match never {},
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
        self.note_input(bytes, now);
        Ok(bytes)
    }

    fn note_input(&self, bytes: usize, now: Instant) {
        self.session.client.note_activity(now);
        let counters = &self.session.server.counters;
        counters.input_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Why a thread serves a connection no more.
enum Served {
    /// Another thread serves it.
    Moves,
    /// The thread's poller serves it.
    Rests,
    /// It has ended.
    Ends,
}

/// What a connection needs after it has run the commands that have arrived.
pub enum Answer {
    /// The replies can be sent.
    Complete,
    /// The replies can be sent when this commit is on the disk.
    Waits(CommitToken),
    /// It has to wait for something else: it goes on as a task.
    Unfinished,
}

/// Why a connection does not run the next command.
enum Halt {
    /// No other one has arrived, or the connection closes.
    Silent,
    /// The command before it waits for something: see [`Session::pause`].
    Paused,
    /// Replies have to be sent first.
    Full,
    /// Other connections have their turn.
    Turn,
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

/// Keeps the thread awake until a time, and then waits for ever.
async fn stay_awake(until: Option<Instant>) -> Infallible {
    if let Some(until) = until {
        while Instant::now() < until {
            tokio::task::yield_now().await;
        }
    }
    std::future::pending().await
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
async fn write_all(stream: &mut Stream, mut bytes: &[u8], limit: Duration) -> io::Result<()> {
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
