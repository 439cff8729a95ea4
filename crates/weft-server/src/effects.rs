//! The effects of a transaction besides its changes of the tables: the messages that it publishes, and the clients that it
//! wakes.
//!
//! The body of a transaction may run several times, and a part of it may be undone. So commands note their effects in an
//! [`Effects`], and [`Server::transact`](crate::server::Server::transact) performs them once, after the commit.
//!
//! Messages are published in the order of the commits. Two threads that have committed one after the other may come here
//! in the other order. So a transaction that publishes takes numbers, as its last step: for each of its messages' stripes,
//! it adds 1 to a row of the table `orders`. Transactions that publish on the same stripe thus follow each other, and
//! [`PubSub`](crate::publish::PubSub) delivers their messages by number. A command that only publishes, outside of `MULTI`,
//! needs no number: no other transaction can depend on it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::commands::{Command, flags};
use crate::stop::Done;
use crate::store::Keys;
use crate::tables::{Order, Text, hash_of};
use crate::waiting::{Wait, Waiter};

/// How many orders there are. Messages of different stripes have no order among each other.
pub const STRIPES: u8 = 64;

/// The group of the commands that publish.
const PUBLISHES: &str = "pubsub";

/// The three kinds of names that a client subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// A channel.
    Channel,
    /// A pattern of channels.
    Pattern,
    /// A channel of a shard: a set of names of its own.
    Shard,
}

/// A message to publish.
#[derive(Clone, Debug)]
pub struct Message {
    /// A channel, of either kind.
    pub topic: Topic,
    /// The name of the channel.
    pub channel: Text,
    /// The content.
    pub payload: Text,
    /// Where the message is ordered.
    pub stripe: u8,
}

/// What runs in a transaction.
#[derive(Debug, Default)]
pub enum Role {
    /// Any number of commands: those of `MULTI`, or of a script. They neither wait nor care for those who do.
    #[default]
    Several,
    /// A single command that can wait or only publishes.
    Alone,
    /// A single command that waits.
    Waiter(Arc<Waiter>),
}

/// What a transaction does after its commit.
#[derive(Debug, Default)]
pub struct Effects {
    /// What runs in the transaction.
    pub role: Role,
    /// Whether something has appeared for which clients wait.
    has_arrivals: Cell<bool>,
    command: Cell<Option<&'static Command>>,
    /// The name of the event that the command causes, if it is not the usual one.
    event_name: Cell<Option<&'static str>>,
    /// What was noted. Most transactions note nothing.
    noted: RefCell<Option<Box<Noted>>>,
}

/// What the commands of a transaction have noted.
#[derive(Debug, Default)]
struct Noted {
    /// What the command waits for, since it has found nothing.
    wait: Option<Wait>,
    /// The keys whose waiters are woken.
    woken: Vec<(u8, Text)>,
    messages: Vec<Message>,
    /// The lines for clients that monitor: the commands of a script or between `MULTI` and `EXEC`.
    shown: Vec<String>,
    /// The stripes of the messages, with the transaction's number in each.
    numbers: SmallVec<[(u8, u64); 2]>,
}

/// How far the effects of a transaction had been noted.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

impl Effects {
    /// Creates the effects of a transaction that a command begins which is not in `MULTI`. The command may be a script.
    pub fn of(command: &'static Command) -> Self {
        let role = if Self::is_alone(command) { Role::Alone } else { Role::Several };
        Effects { role, command: Cell::new(Some(command)), ..Effects::default() }
    }

    /// Returns whether it matters that a command is the only one of its transaction.
    pub fn is_alone(command: &Command) -> bool {
        command.has(flags::BLOCKS) || command.group == PUBLISHES
    }

    /// Creates the effects of a transaction that is a command that waits.
    pub fn of_waiter(waiter: &Arc<Waiter>) -> Self {
        Effects { role: Role::Waiter(Arc::clone(waiter)), ..Effects::default() }
    }

    /// Forgets everything, since the body of the transaction begins again.
    pub fn clear(&self) {
        self.has_arrivals.set(false);
        self.noted.take();
    }

    /// Returns whether nothing was noted that is to be done after the commit.
    #[inline]
    pub fn are_none(&self) -> bool {
        self.noted.borrow().is_none()
    }

    fn note<R>(&self, note: impl FnOnce(&mut Noted) -> R) -> R {
        note(self.noted.borrow_mut().get_or_insert_default())
    }

    /// Takes a part of what was noted.
    fn take<R: Default>(&self, take: impl FnOnce(&mut Noted) -> R) -> R {
        self.noted.borrow_mut().as_deref_mut().map(take).unwrap_or_default()
    }

    /// Notes which command runs next.
    pub fn begin(&self, command: &'static Command) {
        self.command.set(Some(command));
        self.event_name.set(None);
    }

    /// Names the event that the command causes at the next key which it changes.
    pub fn name_event(&self, name: &'static str) {
        self.event_name.set(Some(name));
    }

    /// Returns the name that [`Effects::name_event`] has given.
    pub fn event_name(&self) -> Option<&'static str> {
        self.event_name.get()
    }

    /// Returns the command that runs.
    pub fn command(&self) -> Option<&'static Command> {
        self.command.get()
    }

    /// Notes that the command has found nothing, and what it waits for. A transaction of several commands does not wait.
    pub fn wait(&self, wait: Wait) {
        if !matches!(self.role, Role::Several) {
            self.note(|noted| noted.wait = Some(wait));
        }
    }

    /// Takes what the command waits for.
    pub fn take_wait(&self) -> Option<Wait> {
        self.take(|noted| noted.wait.take())
    }

    /// Notes that something has appeared for which clients may wait: see [`Effects::wake`].
    pub fn note_arrival(&self) {
        self.has_arrivals.set(true);
    }

    /// Notes that a key has changed for which a client may wait. If something has appeared, its waiters are woken.
    pub fn wake(&self, space: u8, key: &[u8]) {
        if self.has_arrivals.get() {
            self.note(|noted| noted.woken.push((space, key.into())));
        }
    }

    /// Takes the keys whose waiters are woken.
    pub fn take_woken(&self) -> Vec<(u8, Text)> {
        self.take(|noted| std::mem::take(&mut noted.woken))
    }

    /// Notes a message to a channel.
    pub fn publish(&self, topic: Topic, channel: &[u8], payload: &[u8]) {
        let stripe = stripe_of(hash_of(channel));
        self.add(Message { topic, channel: channel.into(), payload: payload.into(), stripe });
    }

    /// Notes a message.
    pub fn add(&self, message: Message) {
        self.note(|noted| noted.messages.push(message));
    }

    /// Notes a line for clients that monitor. It is shown although a later error undoes the command.
    pub fn show(&self, line: Option<String>) {
        if line.is_some() {
            self.note(|noted| noted.shown.extend(line));
        }
    }

    /// Takes the lines for clients that monitor.
    pub fn take_shown(&self) -> Vec<String> {
        self.take(|noted| std::mem::take(&mut noted.shown))
    }

    /// Returns how far effects have been noted.
    pub fn mark(&self) -> Mark {
        Mark(self.noted.borrow().as_ref().map_or(0, |noted| noted.messages.len()))
    }

    /// Forgets the effects after a mark, since what has caused them was undone.
    pub fn rewind(&self, mark: Mark) {
        self.take(|noted| noted.messages.truncate(mark.0));
    }

    /// Takes a number for each stripe of the messages. This is the transaction's last step.
    ///
    /// # Errors
    /// Those of the database.
    pub fn take_numbers(&self, keys: &Keys<'_>) -> Done {
        let mut noted = self.noted.borrow_mut();
        let Some(Noted { messages, numbers, .. }) = noted.as_deref_mut() else { return Ok(()) };
        let only_publishes = matches!(self.role, Role::Alone)
            && self.command.get().is_some_and(|command| command.group == PUBLISHES);
        if messages.is_empty() || only_publishes {
            return Ok(());
        }
        let mut stripes: SmallVec<[u8; 2]> =
            messages.iter().map(|message| message.stripe).collect();
        // All transactions take their numbers in the same order, so fewer conflict.
        stripes.sort_unstable();
        stripes.dedup();
        let orders = &keys.store.tables.orders;
        for stripe in stripes {
            let next = keys.tx.update(orders, &stripe, |order| {
                order.number += 1;
                order.number
            })?;
            let number = match next {
                Some(number) => number,
                None => keys.tx.insert(orders, Order { stripe, number: 1 }).map(|()| 1)?,
            };
            numbers.push((stripe, number));
        }
        Ok(())
    }

    /// Takes the messages, and the numbers of their stripes.
    pub fn take_messages(&self) -> (Vec<Message>, SmallVec<[(u8, u64); 2]>) {
        self.take(|noted| (std::mem::take(&mut noted.messages), std::mem::take(&mut noted.numbers)))
    }
}

/// Returns the stripe of a hash.
pub fn stripe_of(hash: u64) -> u8 {
    (hash % u64::from(STRIPES)) as u8
}
