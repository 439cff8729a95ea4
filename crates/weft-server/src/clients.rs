//! The clients that are connected, as other clients see them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use weft::htm::word::{Ordering, Word};

use crate::commands::COMMANDS;
use crate::poller::Bell;
use crate::waiting::{Unblocked, Waiter};

/// A client.
#[derive(Debug)]
pub struct Client {
    /// Its number.
    pub id: u64,
    /// Its address, and that of the server to which it has connected.
    pub addresses: (String, String),
    connected: Instant,
    texts: Mutex<ClientTexts>,
    /// The numbered database that it has selected.
    pub space: Word,
    /// Its last command: its place in the table of commands.
    pub last_command: Word,
    /// How much memory its connection holds.
    pub held_bytes: Word,
    /// When it sent something last, in milliseconds after it has connected.
    last_active: Word,
    /// Whether the connection is to end.
    is_stopped: Word,
    /// Wakes the connection's task when it is to end, ...
    stop: Notify,
    /// ... and the poller that serves the connection.
    bell: Mutex<Option<Bell>>,
    /// Where it waits, if it does.
    waiter: Mutex<Option<Arc<Waiter>>>,
}

/// What a client says about itself.
#[derive(Clone, Debug, Default)]
pub struct ClientTexts {
    /// The name of its user.
    pub user: String,
    /// `CLIENT SETNAME`
    pub name: String,
    /// `CLIENT SETINFO LIB-NAME`
    pub library: String,
    /// `CLIENT SETINFO LIB-VER`
    pub library_version: String,
}

impl Client {
    /// Returns what the client says about itself.
    pub fn texts(&self) -> MutexGuard<'_, ClientTexts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the client a name.
    pub fn set_name(&self, name: String) {
        self.texts().name = name;
    }

    /// Ends the connection, after the commands that have arrived.
    pub fn stop(&self) {
        // A poller that gets the connection at the same time sees this after it has left its bell, or the bell is rung.
        self.is_stopped.store(1, Ordering::Release);
        self.stop.notify_one();
        self.ring();
    }

    /// Waits until the connection is to end.
    pub async fn stopped(&self) {
        self.stop.notified().await;
    }

    /// Returns whether the connection is to end.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire) != 0
    }

    /// Notes which poller serves the connection.
    pub fn set_bell(&self, bell: Option<Bell>) {
        *self.bell.lock().unwrap_or_else(PoisonError::into_inner) = bell;
    }

    /// Has the connection go on as a task, if a poller serves it.
    fn ring(&self) {
        let bell = self.bell.lock().unwrap_or_else(PoisonError::into_inner);
        bell.iter().for_each(Bell::ring);
    }

    /// Notes where the client waits.
    pub fn wait(&self, waiter: Option<&Arc<Waiter>>) {
        *self.waiter.lock().unwrap_or_else(PoisonError::into_inner) = waiter.cloned();
    }

    /// Ends the client's waiting. Returns whether it waits.
    pub fn unblock(&self, how: Unblocked) -> bool {
        let waiter = self.waiter.lock().unwrap_or_else(PoisonError::into_inner);
        waiter.as_ref().inspect(|waiter| waiter.unblock(how)).is_some()
    }

    /// Notes that the client has sent something.
    pub fn note_activity(&self, now: Instant) {
        let time = now.saturating_duration_since(self.connected);
        let millis = time.as_secs() * 1000 + u64::from(time.subsec_millis());
        self.last_active.store(millis, Ordering::Relaxed);
    }

    /// Returns the client as a line of `CLIENT LIST`. Clients such as redis-py need all of these fields. Of those about memory
    /// and subscriptions the server knows only `tot-mem`; the others are always the same.
    pub fn line(&self) -> String {
        let texts = self.texts().clone();
        let age = self.connected.elapsed();
        let active = std::time::Duration::from_millis(self.last_active.load(Ordering::Relaxed));
        let last = usize::try_from(self.last_command.load(Ordering::Relaxed)).ok();
        format!(
            "id={} addr={} laddr={} name={} age={} idle={} db={} sub=0 psub=0 ssub=0 multi=-1 qbuf=0 qbuf-free=0 \
             argv-mem=0 obl=0 oll=0 omem=0 tot-mem={} cmd={} user={} lib-name={} lib-ver={}",
            self.id,
            self.addresses.0,
            self.addresses.1,
            texts.name,
            age.as_secs(),
            age.saturating_sub(active).as_secs(),
            self.space.load(Ordering::Relaxed),
            self.held_bytes.load(Ordering::Relaxed),
            last.and_then(|last| COMMANDS.get(last)).map_or("NULL", |command| command.name),
            texts.user,
            texts.library,
            texts.library_version,
        )
    }
}

/// All clients.
#[derive(Debug, Default)]
pub struct Clients {
    inner: Mutex<ClientsInner>,
}

#[derive(Debug, Default)]
struct ClientsInner {
    last_id: u64,
    clients: BTreeMap<u64, Arc<Client>>,
    is_stopped: bool,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, ClientsInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a client, unless there are `clients_max` already or all are being stopped.
    pub fn add(&self, addresses: (String, String), clients_max: u64) -> Option<Arc<Client>> {
        let mut inner = self.lock();
        if inner.is_stopped || inner.clients.len() as u64 >= clients_max {
            return None;
        }
        inner.last_id += 1;
        let client = Arc::new(Client {
            id: inner.last_id,
            addresses,
            connected: Instant::now(),
            texts: Mutex::default(),
            space: Word::new(0),
            last_command: Word::new(u64::MAX),
            held_bytes: Word::new(0),
            last_active: Word::new(0),
            is_stopped: Word::new(0),
            stop: Notify::new(),
            bell: Mutex::default(),
            waiter: Mutex::default(),
        });
        inner.clients.insert(client.id, Arc::clone(&client));
        Some(client)
    }

    /// Removes a client whose connection has ended.
    pub fn remove(&self, client: &Client) {
        self.lock().clients.remove(&client.id);
    }

    /// Returns all clients.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.lock().clients.values().cloned().collect()
    }

    /// Returns how many clients there are.
    pub fn len(&self) -> usize {
        self.lock().clients.len()
    }

    /// Returns whether there are no clients.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends all connections, each after the commands that have arrived, and refuses new ones.
    pub fn stop(&self) {
        let mut inner = self.lock();
        inner.is_stopped = true;
        inner.clients.values().for_each(|client| client.stop());
    }

    /// Has every connection go on as a task.
    pub fn ring(&self) {
        self.lock().clients.values().for_each(|client| client.ring());
    }
}
