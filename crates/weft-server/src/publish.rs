//! Publish/subscribe: the subscriptions of all clients, and the messages that wait for each client.
//!
//! A client that subscribes gets a [`Mailbox`]. Publishers write messages into the mailboxes, in the form in which they are
//! sent, and the client's connection sends them. A mailbox is bounded. If it is full, its client reads too slowly, and its
//! connection ends.
//!
//! A message has the token of the commit that has published it. The subscriber's connection waits until that commit is
//! durable, as it does with replies.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use smallvec::SmallVec;
use tokio::sync::Notify;
use weft::CommitToken;
use weft::htm::word::{Ordering, Word};

use crate::effects::{Effects, Message, STRIPES, Topic};
use crate::glob;
use crate::reply::{Reply, Version};
use crate::tables::Text;
use crate::users::User;

/// How many transactions of a stripe may wait for one before them.
const HELD_MAX: usize = 1 << 14;

/// Messages that wait for a client.
#[derive(Debug)]
pub struct Mailbox {
    content: Mutex<Content>,
    /// Wakes the client's connection: there are messages.
    pub arrived: Notify,
    /// Ends the client's connection, even while it sends.
    pub is_full: Notify,
}

#[derive(Debug)]
struct Content {
    output: Reply,
    /// The newest commit whose messages are in the output.
    token: Option<CommitToken>,
}

impl Mailbox {
    /// Creates a mailbox for messages of up to `bytes_max` bytes.
    pub fn new(bytes_max: usize, version: Version) -> Self {
        let mut output = Reply::new(bytes_max);
        output.set_version(version);
        let content = Mutex::new(Content { output, token: None });
        Mailbox { content, arrived: Notify::new(), is_full: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a message. Returns whether it is the one for which there is no room.
    fn push(&self, token: CommitToken, parts: &[&[u8]]) -> bool {
        self.write(Some(token), |output| {
            output.push_header(parts.len());
            parts.iter().for_each(|part| output.text(part));
        })
    }

    /// Writes a line. Returns whether it is the one for which there is no room.
    pub fn push_line(&self, line: &str) -> bool {
        self.write(None, |output| output.simple(line))
    }

    fn write(&self, token: Option<CommitToken>, write: impl FnOnce(&mut Reply)) -> bool {
        let mut content = self.lock();
        if content.output.is_too_long() {
            return false;
        }
        write(&mut content.output);
        content.token = content.token.max(token);
        let is_full = content.output.is_too_long();
        drop(content);
        // The connection waits either for messages, or until all that it sends is taken.
        self.arrived.notify_one();
        if is_full {
            self.is_full.notify_one();
        }
        is_full
    }

    /// Sets the version of the protocol for the messages that follow.
    pub fn set_version(&self, version: Version) {
        self.lock().output.set_version(version);
    }

    /// Moves the messages into a reply. Returns the newest commit that they show.
    pub fn take(&self, reply: &mut Reply) -> Option<CommitToken> {
        let mut content = self.lock();
        reply.append(&mut content.output);
        content.token.take()
    }
}

/// What a client is subscribed to.
#[derive(Debug)]
pub struct Subscriptions {
    client: u64,
    /// The messages that wait.
    pub mailbox: Arc<Mailbox>,
    names: [BTreeSet<Text>; 3],
    bytes: usize,
}

/// What a subscription needs besides the bytes of its name: here, and among those of all clients. An estimate.
const SUBSCRIPTION_BYTES: usize = 256;

impl Subscriptions {
    /// Creates the subscriptions of a client, which has none yet.
    pub fn new(client: u64, mailbox: Arc<Mailbox>) -> Self {
        Subscriptions { client, mailbox, names: Default::default(), bytes: 0 }
    }

    /// Returns how many bytes of memory the subscriptions need, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the names of one kind.
    pub fn names(&self, topic: Topic) -> &BTreeSet<Text> {
        &self.names[topic as usize]
    }

    /// Returns the count that a reply shows after a change: channels and patterns are counted together.
    pub fn count(&self, topic: Topic) -> usize {
        match topic {
            Topic::Shard => self.names(Topic::Shard).len(),
            _ => self.names(Topic::Channel).len() + self.names(Topic::Pattern).len(),
        }
    }

    /// Returns whether a user may be subscribed to all of this.
    pub fn are_permitted(&self, user: &User) -> bool {
        [Topic::Channel, Topic::Pattern, Topic::Shard].into_iter().all(|topic| {
            let mut names = self.names(topic).iter();
            names.all(|name| user.may_use_channel(name, topic == Topic::Pattern))
        })
    }

    /// Returns whether there are no subscriptions.
    pub fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }
}

/// The mailboxes of the clients that are subscribed to a name.
type Subscribers = BTreeMap<u64, Arc<Mailbox>>;

/// The messages of a stripe in their order.
#[derive(Debug, Default)]
struct Stripe {
    /// The number of the transaction that was delivered last.
    delivered: u64,
    /// Messages of transactions that have come before the one with the next number.
    held: BTreeMap<u64, Vec<(Message, CommitToken)>>,
}

/// All subscriptions, and the order of messages.
#[derive(Debug)]
pub struct PubSub {
    subscribers: RwLock<[HashMap<Text, Subscribers>; 3]>,
    stripes: [Mutex<Stripe>; STRIPES as usize],
    /// How many clients were dropped because they read too slowly.
    pub dropped: Word,
}

impl Default for PubSub {
    fn default() -> Self {
        PubSub {
            subscribers: RwLock::default(),
            stripes: std::array::from_fn(|_| Mutex::default()),
            dropped: Word::new(0),
        }
    }
}

impl PubSub {
    fn read(&self) -> RwLockReadGuard<'_, [HashMap<Text, Subscribers>; 3]> {
        self.subscribers.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, [HashMap<Text, Subscribers>; 3]> {
        self.subscribers.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes a client to a name.
    pub fn subscribe(&self, subscriptions: &mut Subscriptions, topic: Topic, name: &[u8]) {
        let name: Text = name.into();
        if subscriptions.names[topic as usize].insert(name.clone()) {
            subscriptions.bytes += SUBSCRIPTION_BYTES + name.len();
            let mailbox = Arc::clone(&subscriptions.mailbox);
            let mut subscribers = self.write();
            let subscribed = subscribers[topic as usize].entry(name).or_default();
            subscribed.insert(subscriptions.client, mailbox);
        }
    }

    /// Ends a subscription. No message of it arrives in the mailbox after this.
    pub fn unsubscribe(&self, subscriptions: &mut Subscriptions, topic: Topic, name: &[u8]) {
        if subscriptions.names[topic as usize].remove(name) {
            subscriptions.bytes -= SUBSCRIPTION_BYTES + name.len();
            let mut subscribers = self.write();
            if let Some(subscribed) = subscribers[topic as usize].get_mut(name) {
                subscribed.remove(&subscriptions.client);
                if subscribed.is_empty() {
                    subscribers[topic as usize].remove(name);
                }
            }
        }
    }

    /// Ends all subscriptions of a client.
    pub fn unsubscribe_all(&self, subscriptions: &mut Subscriptions) {
        for topic in [Topic::Channel, Topic::Pattern, Topic::Shard] {
            for name in subscriptions.names(topic).clone() {
                self.unsubscribe(subscriptions, topic, &name);
            }
        }
    }

    /// Returns the names that have subscribers, and how many each has.
    pub fn subscribed(&self, topic: Topic) -> Vec<(Text, usize)> {
        let subscribers = self.read();
        let counted = subscribers[topic as usize].iter();
        counted.map(|(name, subscribed)| (name.clone(), subscribed.len())).collect()
    }

    /// Returns how many subscribers a name has.
    pub fn count(&self, topic: Topic, name: &[u8]) -> usize {
        self.read()[topic as usize].get(name).map_or(0, BTreeMap::len)
    }

    /// Returns the clients that are subscribed to anything.
    pub fn clients(&self) -> BTreeSet<u64> {
        let subscribers = self.read();
        let subscribed = subscribers.iter().flat_map(HashMap::values);
        subscribed.flat_map(BTreeMap::keys).copied().collect()
    }

    /// Returns the clients that are subscribed to names which a user may not use.
    pub fn clients_beyond(&self, user: &User) -> BTreeSet<u64> {
        let subscribers = self.read();
        let mut clients = BTreeSet::new();
        for topic in [Topic::Channel, Topic::Pattern, Topic::Shard] {
            for (name, subscribed) in &subscribers[topic as usize] {
                if !user.may_use_channel(name, topic == Topic::Pattern) {
                    clients.extend(subscribed.keys());
                }
            }
        }
        clients
    }

    /// Returns how many clients would get a message, counting a client once for each pattern.
    pub fn receivers(&self, topic: Topic, channel: &[u8]) -> usize {
        let mut count = 0;
        self.each_receiver(topic, channel, |_, _| count += 1);
        count
    }

    /// Calls a function for each mailbox that gets messages of a channel, with the pattern if there is one.
    fn each_receiver(
        &self,
        topic: Topic,
        channel: &[u8],
        mut receive: impl FnMut(&Mailbox, Option<&[u8]>),
    ) {
        let subscribers = self.read();
        let subscribed = subscribers[topic as usize].get(channel);
        for mailbox in subscribed.into_iter().flat_map(BTreeMap::values) {
            receive(mailbox, None);
        }
        if topic == Topic::Channel {
            for (pattern, subscribed) in &subscribers[Topic::Pattern as usize] {
                if glob::matches(pattern, channel) {
                    subscribed.values().for_each(|mailbox| receive(mailbox, Some(pattern)));
                }
            }
        }
    }

    /// Publishes the messages of a transaction that has committed.
    pub fn publish(&self, effects: &Effects, token: CommitToken) {
        let (messages, numbers) = effects.take_messages();
        if messages.is_empty() {
            return;
        }
        if numbers.is_empty() {
            // A single command: each of its messages comes after those of its stripe that wait.
            for message in messages {
                let mut stripe = self.lock(message.stripe);
                match stripe.held.values_mut().next_back() {
                    Some(last) => last.push((message, token)),
                    None => self.deliver(&message, token),
                }
            }
            return;
        }
        // The numbers are in the order of the stripes, so two threads cannot wait for each other.
        let mut stripes: SmallVec<[_; 2]> =
            numbers.iter().map(|(stripe, number)| (*stripe, *number, self.lock(*stripe))).collect();
        if stripes.iter().all(|(_, number, stripe)| stripe.delivered + 1 == *number) {
            // The usual case keeps the order of the messages of all stripes.
            messages.iter().for_each(|message| self.deliver(message, token));
            stripes.iter_mut().for_each(|(_, number, stripe)| stripe.delivered = *number);
        } else {
            for (at, number, stripe) in &mut stripes {
                let of_stripe = messages.iter().filter(|message| message.stripe == *at);
                let of_stripe = of_stripe.map(|message| (message.clone(), token)).collect();
                stripe.held.insert(*number, of_stripe);
            }
        }
        stripes.iter_mut().for_each(|(_, _, stripe)| self.deliver_held(stripe));
    }

    fn lock(&self, stripe: u8) -> MutexGuard<'_, Stripe> {
        self.stripes[usize::from(stripe)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers the messages whose turn it is.
    fn deliver_held(&self, stripe: &mut Stripe) {
        loop {
            // If a number is missing for so long, its thread was lost after the commit.
            let is_lost = stripe.held.len() > HELD_MAX;
            let Some(first) = stripe.held.first_entry() else { return };
            if *first.key() != stripe.delivered + 1 && !is_lost {
                return;
            }
            stripe.delivered = *first.key();
            for (message, token) in first.remove() {
                self.deliver(&message, token);
            }
        }
    }

    fn deliver(&self, message: &Message, token: CommitToken) {
        let (channel, payload) = (&*message.channel, &*message.payload);
        self.each_receiver(message.topic, channel, |mailbox, pattern| {
            let is_dropped = match (pattern, message.topic) {
                (Some(pattern), _) => {
                    mailbox.push(token, &[b"pmessage", pattern, channel, payload])
                }
                (None, Topic::Shard) => mailbox.push(token, &[b"smessage", channel, payload]),
                (None, _) => mailbox.push(token, &[b"message", channel, payload]),
            };
            if is_dropped {
                // Only the number itself matters.
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}
