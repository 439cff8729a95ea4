//! Keys and their values, as commands see them: a layer over the tables.

use std::borrow::Cow;
use std::cell::Cell;

use weft::htm::word::{Ordering, Word};
use weft::{Error, Failure, Transaction, column_of};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::effects::{Effects, Message, Topic, stripe_of};
use crate::named::slot_of_hash;
use crate::notifications;
use crate::request::parse_integer;
use crate::stop::{Done, Stop, texts};
use crate::stream_tables::{Consumer, Deletion, Entry, Group, Pending, Stream};
use crate::tables::{
    Deadline, Ends, Field, Garbage, Head, Kind, Member, Scored, Section, Size, Tables, Text,
    expiring, hash_of,
};

/// The tables, and the numbers for new collections.
#[derive(Debug)]
pub struct Store {
    /// The tables.
    pub tables: Tables,
    /// Which events are published: see [`notifications`].
    pub notifications: Word,
    next: Word,
    seed: Word,
    /// How far hashes are shifted. In unit tests names have few different ones, unless a test sets this to 0.
    #[cfg(test)]
    pub hash_shift: Word,
}

impl Store {
    /// Creates a store. It [begins](Store::begin) before anything is written, and knows the [seed](Store::seed) before
    /// anything is read.
    pub fn new(tables: Tables) -> Self {
        Store {
            tables,
            notifications: Word::new(0),
            next: Word::new(0),
            seed: Word::new(0),
            #[cfg(test)]
            hash_shift: Word::new(61),
        }
    }

    /// Gives numbers from `next` on, and hashes keys with the number `seed`.
    pub fn begin(&self, next: u64, seed: u64) {
        self.next.store(next, Ordering::Relaxed);
        self.set_seed(seed);
    }

    /// Returns the number with which keys are hashed, or 0 if it is not known yet.
    pub fn seed(&self) -> u64 {
        // Relaxed: it is set once, before commands are run.
        self.seed.load(Ordering::Relaxed)
    }

    /// Sets the number with which keys are hashed.
    pub fn set_seed(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
    }

    /// Returns the first [slot](crate::named) of a name. It depends on a secret of the database: otherwise clients could choose
    /// names with equal hashes, which are looked at one after the other. It is part of what is stored, so the hash must never
    /// change.
    #[inline]
    pub fn slot_of(&self, name: &[u8]) -> u64 {
        let hash = xxh3_64_with_seed(name, self.seed());
        #[cfg(test)]
        let hash = hash << self.hash_shift.load(Ordering::Relaxed);
        slot_of_hash(hash)
    }

    /// Returns the key of the row of a key that is watched.
    pub fn watched_row(&self, space: u8, key: &[u8]) -> (u8, u64) {
        (space, self.slot_of(key))
    }

    /// Returns a number that was never returned before.
    pub fn number(&self) -> u64 {
        // Only the number itself matters.
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

/// A key that a command names.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The numbered database.
    pub space: u8,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl<'a> Key<'a> {
    /// Creates the key of a numbered database.
    pub fn new(space: u8, bytes: &'a [u8]) -> Self {
        Key { space, bytes }
    }

    /// Returns a hash of the key, for what is shared by keys with equal hashes.
    pub fn hash(&self) -> u64 {
        hash_of(self.bytes).wrapping_add(self.space.into())
    }
}

/// The value of a string, or of a field of a hash.
#[derive(Clone, Debug)]
pub struct Value {
    /// The number, if `text` is `None`.
    pub number: i64,
    /// The bytes.
    pub text: Option<Text>,
}

impl Value {
    /// Creates the value with these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        match parse_integer(bytes) {
            Some(number) => Value { number, text: None },
            None => Value { number: 0, text: Some(bytes.into()) },
        }
    }

    /// Creates the value that is a number.
    pub fn number(number: i64) -> Self {
        Value { number, text: None }
    }
}

/// Returns the bytes of a value whose columns are these.
pub fn bytes_of(number: i64, text: &Option<Text>) -> Cow<'_, [u8]> {
    match text {
        Some(text) => Cow::Borrowed(text),
        None => Cow::Owned(itoa::Buffer::new().format(number).as_bytes().to_vec()),
    }
}

impl Head {
    /// Returns the bytes of a string.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        bytes_of(self.number, &self.text)
    }
}

impl Field {
    /// Returns the bytes of the value.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        bytes_of(self.number, &self.text)
    }
}

thread_local! {
    /// The stripe in which this thread counts. Threads beyond the first 256 share stripes.
    static STRIPE: Cell<Option<u8>> = const { Cell::new(None) };
}

/// Gives threads their stripes.
static STRIPES: Word = Word::new(0);

fn stripe() -> u8 {
    STRIPE.with(|stripe| {
        stripe.get().unwrap_or_else(|| {
            // Only the number itself matters.
            let given = STRIPES.fetch_add(1, Ordering::Relaxed) as u8;
            stripe.set(Some(given));
            given
        })
    })
}

/// A transaction with the tables of the server.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'c> {
    /// The transaction.
    pub tx: &'c Transaction<'c>,
    /// The tables.
    pub store: &'c Store,
    /// What the transaction does after its commit.
    pub effects: &'c Effects,
}

impl<'c> Keys<'c> {
    /// Runs a part of the transaction. If it fails, it is undone, with its effects.
    pub fn savepoint<R>(&self, body: impl FnOnce(&Keys<'c>) -> Done<R>) -> Done<R> {
        let mark = self.effects.mark();
        let done = self.tx.savepoint(|tx| body(&Keys { tx, ..*self }));
        if done.is_err() {
            self.effects.rewind(mark);
        }
        done
    }

    /// Returns the transaction's time, in milliseconds since 1970.
    pub fn now(&self) -> u64 {
        self.tx.now().as_millis()
    }

    fn has_expired(&self, expires_at: u64) -> bool {
        expires_at != 0 && expires_at <= self.now()
    }

    // ---- keys -----------------------------------------------------------------------------------

    /// Returns a key's row, or `None` if the key does not exist or has expired.
    pub fn head(&self, key: &Key<'_>) -> Done<Option<&'c Head>> {
        Ok(self.head_or_expired(key)?.filter(|head| !self.has_expired(head.expires_at)))
    }

    /// Returns a key's row, or `None` if it has none.
    pub fn head_or_expired(&self, key: &Key<'_>) -> Done<Option<&'c Head>> {
        self.named(&self.store.tables.heads, key.space, key.bytes)
    }

    /// Changes the row of a key: see [`Keys::change_named`].
    fn change_head<R>(
        &self,
        key: &Key<'_>,
        change: impl FnMut(&mut Head) -> R,
    ) -> Done<Result<R, u64>> {
        self.change_named(&self.store.tables.heads, key.space, key.bytes, change)
    }

    /// Deletes the row of a key.
    fn delete_head(&self, key: &Key<'_>) -> Done {
        self.delete_named(&self.store.tables.heads, key.space, key.bytes).map(|_| ())
    }

    /// Returns whether a row that a scan has found is of a key that exists.
    pub fn is_live(&self, head: &Head) -> bool {
        !self.has_expired(head.expires_at)
    }

    /// As [`Keys::head`], for a key that has to be of this type if it exists.
    pub fn expect(&self, key: &Key<'_>, kind: Kind) -> Done<Option<&'c Head>> {
        match self.head(key)? {
            Some(head) if head.kind != kind => Err(texts::WRONG_TYPE.into()),
            head => Ok(head),
        }
    }

    /// Returns the number of a collection, or `None` if the key does not exist.
    pub fn find(&self, key: &Key<'_>, kind: Kind) -> Done<Option<u64>> {
        Ok(self.expect(key, kind)?.map(|head| head.collection))
    }

    /// Returns the number of a collection, which is made if the key does not exist.
    pub fn open(&self, key: &Key<'_>, kind: Kind) -> Done<u64> {
        match self.expect(key, kind)? {
            Some(head) => Ok(head.collection),
            None => self.create(key, kind),
        }
    }

    /// Makes an empty collection. The caller adds an element to it.
    pub fn create(&self, key: &Key<'_>, kind: Kind) -> Done<u64> {
        let collection = self.store.number();
        let row = self.new_head(key, kind, collection);
        self.put(key, row)?;
        Ok(collection)
    }

    fn new_head(&self, key: &Key<'_>, kind: Kind, collection: u64) -> Head {
        Head {
            space: key.space,
            // Filled in when the row is inserted.
            slot: 0,
            key: key.bytes.into(),
            kind,
            collection,
            expires_at: 0,
            number: 0,
            text: None,
        }
    }

    /// Inserts the row of a key, which does not expire. If the key is there, and has expired, the row takes its place.
    fn put(&self, key: &Key<'_>, row: Head) -> Done {
        self.effects.note_arrival();
        let old = self.change_head(key, |head| {
            let slot = head.slot;
            std::mem::replace(head, Head { slot, ..row.clone() })
        })?;
        match old {
            Ok(old) => {
                self.event(notifications::EXPIRED, "expired", key);
                self.clean_up(key, &old, 0)?;
            }
            Err(slot) => self.insert_head(row, slot)?,
        }
        self.event(notifications::NEW, "new", key);
        Ok(())
    }

    /// Inserts the row of a new key.
    fn insert_head(&self, row: Head, slot: u64) -> Done {
        let space = u64::from(row.space);
        self.tx.insert(&self.store.tables.heads, Head { slot, ..row })?;
        self.grow(space, 1)
    }

    /// Removes what a row that was replaced or deleted has left in other tables: its elements, and its deadline if the
    /// key has a new one.
    fn clean_up(&self, key: &Key<'_>, old: &Head, expires_at: u64) -> Done {
        if old.collection != 0 {
            let garbage = Garbage { collection: old.collection, kind: old.kind };
            self.tx.insert(&self.store.tables.garbage, garbage)?;
        }
        self.move_deadline(key, old.expires_at, expires_at)
    }

    fn move_deadline(&self, key: &Key<'_>, old: u64, new: u64) -> Done {
        let deadlines = &self.store.tables.deadlines;
        if old == new {
            return Ok(());
        }
        if old != 0 {
            self.tx.delete(deadlines, (old, key.space, key.bytes))?;
        }
        if new != 0 {
            let key = Deadline { at: new, space: key.space, key: key.bytes.into() };
            self.tx.insert(deadlines, key)?;
        }
        self.grow(expiring(key.space), i64::from(new != 0) - i64::from(old != 0))
    }

    /// Writes a string, whatever the key was before. `expires_at` is 0 if it does not expire.
    pub fn write_text(&self, key: &Key<'_>, value: Value, expires_at: u64) -> Done {
        let mut value = Some(value);
        let old = self.change_head(key, |head| {
            let value = value.take().expect("an update calls its closure once");
            let old = (head.kind, head.collection, head.expires_at);
            (head.kind, head.collection, head.expires_at) = (Kind::Text, 0, expires_at);
            (head.number, head.text) = (value.number, value.text);
            old
        })?;
        let old_expires_at = old.map_or(0, |(_, _, expires_at)| expires_at);
        if self.has_expired(old_expires_at) {
            self.event(notifications::EXPIRED, "expired", key);
        }
        if old.is_err() || self.has_expired(old_expires_at) {
            self.event(notifications::NEW, "new", key);
        }
        if let Ok((Kind::Stream, ..)) = old {
            // Those who wait for a group of consumers are told that it is gone.
            self.effects.note_arrival();
        }
        match (old, value) {
            (Ok((Kind::Text, _, 0)), _) if expires_at == 0 => {}
            (Ok((kind, collection, old_expires_at)), _) => {
                let mut old = self.new_head(key, kind, collection);
                old.expires_at = old_expires_at;
                self.clean_up(key, &old, expires_at)?;
            }
            (Err(slot), value) => {
                let mut head = self.new_head(key, Kind::Text, 0);
                let value = value.expect("there was no row to put it in");
                head.expires_at = expires_at;
                (head.number, head.text) = (value.number, value.text);
                self.insert_head(head, slot)?;
                self.move_deadline(key, 0, expires_at)?;
            }
        }
        self.touch(key)?;
        if expires_at != 0 && expires_at != old_expires_at {
            self.event(notifications::GENERIC, "expire", key);
        }
        Ok(())
    }

    /// Adds to a string that is a number and has not expired, or to 0 if the key has no row, in one step. Returns `None` if
    /// it is anything else.
    pub fn add_in_place(&self, key: &Key<'_>, by: i64) -> Done<Option<i64>> {
        let sum = self.change_head(key, |head| {
            let is_there = !self.has_expired(head.expires_at);
            let is_number = head.kind == Kind::Text && head.text.is_none() && is_there;
            let sum = head.number.checked_add(by).filter(|_| is_number)?;
            head.number = sum;
            Some(sum)
        })?;
        let sum = match sum {
            Ok(Some(sum)) => sum,
            Ok(None) => return Ok(None),
            Err(slot) => {
                self.event(notifications::NEW, "new", key);
                let head = Head { number: by, ..self.new_head(key, Kind::Text, 0) };
                self.insert_head(head, slot)?;
                by
            }
        };
        self.touch(key)?;
        Ok(Some(sum))
    }

    /// Adds to a string that is a number and has not expired, by an operation that commutes, since the client does not
    /// want to know the sum. Returns false if it is anything else.
    pub fn add_unseen(&self, key: &Key<'_>, by: i64) -> Done<bool> {
        let heads = &self.store.tables.heads;
        let columns = weft::columns_of!(Head.{key, kind, expires_at, text});
        let at = (key.space, self.store.slot_of(key.bytes));
        let found = self.tx.get_columns(heads, &at, columns)?;
        // Keys that are not the first ones with their hash are so rare that they need no way of their own.
        let is_number = found.is_some_and(|(found, kind, expires_at, text)| {
            let is_there = **found == *key.bytes && !self.has_expired(*expires_at);
            is_there && *kind == Kind::Text && text.is_none()
        });
        if !is_number {
            return Ok(false);
        }
        checked(self.tx.add(heads, &at, column_of!(Head.number), by))?;
        self.touch(key)?;
        Ok(true)
    }

    /// As [`Keys::add_unseen`], for a field of a hash. The caller notes the change of the key.
    pub fn add_to_field_unseen(&self, collection: u64, name: &[u8], by: i64) -> Done<bool> {
        let fields = &self.store.tables.fields;
        let at = (collection, self.store.slot_of(name));
        let found = self.tx.get_columns(fields, &at, weft::columns_of!(Field.{name, text}))?;
        let is_number = found.is_some_and(|(found, text)| **found == *name && text.is_none());
        if is_number {
            checked(self.tx.add(fields, &at, column_of!(Field.number), by))?;
        }
        Ok(is_number)
    }

    /// Removes a key, whose row was just read. Its elements are removed in the background.
    pub fn remove(&self, key: &Key<'_>, head: &Head) -> Done {
        self.displace(key, head)?;
        match self.effects.command() {
            Some(_) => self.event(notifications::GENERIC, "del", key),
            // It is the background that removes the key.
            None => self.event(notifications::EXPIRED, "expired", key),
        }
        Ok(())
    }

    /// As [`Keys::remove`], for a key that gets another value at once.
    pub fn displace(&self, key: &Key<'_>, head: &Head) -> Done {
        if head.kind == Kind::Stream {
            // Those who wait for a group of consumers are told that it is gone.
            self.effects.note_arrival();
        }
        self.delete_head(key)?;
        self.clean_up(key, head, 0)?;
        self.grow(u64::from(key.space), -1)?;
        self.bump(key)
    }

    /// Removes a key, if it exists. Returns whether it did.
    pub fn remove_if_there(&self, key: &Key<'_>) -> Done<bool> {
        match self.head(key)? {
            Some(head) => self.remove(key, head).map(|()| true),
            None => Ok(false),
        }
    }

    /// Sets when a key expires; 0 if it does not.
    pub fn set_expiry(&self, key: &Key<'_>, head: &Head, expires_at: u64) -> Done {
        self.write_expiry(key, head.expires_at, expires_at)?;
        let name = if expires_at == 0 { "persist" } else { "expire" };
        self.event(notifications::GENERIC, name, key);
        self.bump(key)
    }

    /// Sets when a key expires that expired at `old`, without an event.
    pub fn write_expiry(&self, key: &Key<'_>, old: u64, expires_at: u64) -> Done {
        self.change_head(key, |head| head.expires_at = expires_at)?.ok();
        self.move_deadline(key, old, expires_at)
    }

    /// Gives the value of one key to another, which has none. `names` are the names of the events at the two.
    pub fn rename(
        &self,
        from: &Key<'_>,
        head: &Head,
        to: &Key<'_>,
        names: (&'static str, &'static str),
    ) -> Done {
        self.delete_head(from)?;
        self.move_deadline(from, head.expires_at, 0)?;
        self.grow(u64::from(from.space), -1)?;
        // Those who wait for a group of consumers are told that it is gone.
        self.effects.note_arrival();
        self.event(notifications::GENERIC, names.0, from);
        self.bump(from)?;
        let mut row = head.clone();
        (row.space, row.key, row.expires_at) = (to.space, to.bytes.into(), 0);
        self.put(to, row)?;
        if head.expires_at != 0 {
            self.write_expiry(to, 0, head.expires_at)?;
        }
        self.event(notifications::GENERIC, names.1, to);
        self.bump(to)
    }

    /// Copies the value of one key to another, which has none.
    pub fn copy(&self, head: &Head, to: &Key<'_>) -> Done {
        let tables = &self.store.tables;
        let (from, kind) = (head.collection, head.kind);
        if kind == Kind::Text {
            let value = Value { number: head.number, text: head.text.clone() };
            return self.write_text(to, value, head.expires_at);
        }
        let collection = self.create(to, kind)?;
        let mut elements = 0;
        match kind {
            Kind::Text => {}
            Kind::Hash => {
                for field in self.fields(from)? {
                    elements += 1;
                    self.tx.insert(&tables.fields, Field { collection, ..field.clone() })?;
                }
            }
            Kind::Set => {
                for member in self.members(from)? {
                    elements += 1;
                    self.tx.insert(&tables.members, Member { collection, ..member.clone() })?;
                }
            }
            Kind::SortedSet => {
                for scored in self.scored(from)? {
                    elements += 1;
                    self.tx.insert(&tables.scores, Scored { collection, ..scored.clone() })?;
                }
            }
            Kind::List => {
                let sections: Vec<_> =
                    self.tx.prefix(&tables.items, &from).collect::<Result<_, Error>>()?;
                for section in sections {
                    self.tx.insert(&tables.items, Section { collection, ..section.clone() })?;
                }
                if let Some(ends) = self.tx.get(&tables.ends, &from)? {
                    self.tx.insert(&tables.ends, Ends { collection, ..ends.clone() })?;
                }
            }
            Kind::Stream => elements = self.copy_stream(from, collection)?,
        }
        self.grow(collection, elements)?;
        if head.expires_at != 0 {
            self.write_expiry(to, 0, head.expires_at)?;
        }
        self.touch(to)
    }

    /// Copies the rows of a stream. Returns how many entries it has.
    fn copy_stream(&self, from: u64, collection: u64) -> Done<i64> {
        let of = &self.store.tables.of_streams;
        // Copies all rows of one table.
        macro_rules! copy {
            ($table:ident, $row:ident) => {{
                let rows = self.tx.prefix(&of.$table, &from);
                let rows: Vec<_> = rows.collect::<Result<_, Error>>()?;
                for row in &rows {
                    self.tx.insert(&of.$table, $row { collection, ..(*row).clone() })?;
                }
                rows.len()
            }};
        }
        copy!(streams, Stream);
        copy!(deletions, Deletion);
        copy!(groups, Group);
        copy!(consumers, Consumer);
        copy!(pending, Pending);
        Ok(i64::try_from(copy!(entries, Entry)).unwrap_or(i64::MAX))
    }

    /// Notes that the command has changed a key: for clients that watch it, wait for it, or are subscribed to its events.
    pub fn touch(&self, key: &Key<'_>) -> Done {
        self.note_change(key);
        self.bump(key)
    }

    /// Notes that a key has changed, for clients that watch it or wait for it.
    pub fn bump(&self, key: &Key<'_>) -> Done {
        let watched = self.store.watched_row(key.space, key.bytes);
        let is_watched = self.tx.update(&self.store.tables.watched, &watched, |watched| {
            watched.version += 1;
        })?;
        if is_watched.is_some() {
            self.effects.wake(key.space, key.bytes);
        }
        Ok(())
    }

    /// Publishes the event of the command that runs.
    pub fn note_change(&self, key: &Key<'_>) {
        if self.store.notifications.load(Ordering::Relaxed) != 0
            && let Some((class, name)) = self.effects.command().and_then(notifications::event_of)
        {
            self.event(class, self.effects.event_name().unwrap_or(name), key);
        }
    }

    /// Publishes an event of a key, if the setting `notify-keyspace-events` says so.
    pub fn event(&self, class: u64, name: &str, key: &Key<'_>) {
        let wanted = self.store.notifications.load(Ordering::Relaxed);
        if wanted & class == 0 {
            return;
        }
        let space = key.space;
        let stripe = stripe_of(key.hash());
        let publish = |kind: &str, about: &[u8], payload: &[u8]| {
            let mut channel = format!("__{kind}@{space}__:").into_bytes();
            channel.extend_from_slice(about);
            let topic = Topic::Channel;
            let (channel, payload) = (channel.into(), payload.into());
            self.effects.add(Message { topic, channel, payload, stripe });
        };
        if wanted & notifications::KEYSPACE != 0 {
            publish("keyspace", key.bytes, name.as_bytes());
        }
        if wanted & notifications::KEYEVENT != 0 {
            publish("keyevent", name.as_bytes(), key.bytes);
        }
    }

    // ---- collections ----------------------------------------------------------------------------

    /// Returns how many elements a collection has, or keys a space. Lists are not counted here.
    pub fn size(&self, of: u64) -> Done<i64> {
        let stripes = self.tx.prefix(&self.store.tables.sizes, &of);
        let sum = stripes.map(|size| Ok(size?.elements)).sum::<Result<i64, Error>>()?;
        Ok(sum)
    }

    /// Adds to the count of a collection or a space.
    pub fn grow(&self, of: u64, by: i64) -> Done {
        if by == 0 {
            return Ok(());
        }
        let sizes = &self.store.tables.sizes;
        let key = (of, stripe());
        match self.tx.add(sizes, &key, column_of!(Size.elements), by) {
            Ok(()) => Ok(()),
            Err(Error::Failure(Failure::NoSuchRow { .. })) => {
                match self.tx.insert(sizes, Size { of, stripe: key.1, elements: by }) {
                    Err(full @ Error::Failure(Failure::MemoryFull { .. })) => {
                        self.grow_elsewhere(of, by, full)
                    }
                    inserted => Ok(inserted?),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Adds to a count where another thread counts, since there is no room for a row of this thread. Otherwise a thread could
    /// not delete what another one has filled the memory with.
    #[cold]
    fn grow_elsewhere(&self, of: u64, by: i64, full: Error) -> Done {
        let sizes = &self.store.tables.sizes;
        let other = self.tx.prefix(sizes, &of).first_row()?.ok_or(full)?;
        Ok(self.tx.add(sizes, &(of, other.stripe), column_of!(Size.elements), by)?)
    }

    /// Removes a key whose collection has lost its last element. The caller has removed elements, and counted them.
    pub fn remove_if_empty(&self, key: &Key<'_>, kind: Kind, collection: u64) -> Done {
        let tables = &self.store.tables;
        let is_empty = match kind {
            Kind::Text | Kind::Stream => false,
            Kind::Hash => self.tx.prefix(&tables.fields, &collection).first_row()?.is_none(),
            // Lists know their ends: the caller has seen that there is nothing between them.
            Kind::List => true,
            Kind::Set => self.tx.prefix(&tables.members, &collection).first_row()?.is_none(),
            Kind::SortedSet => self.tx.prefix(&tables.scores, &collection).first_row()?.is_none(),
        };
        if !is_empty {
            return self.touch(key);
        }
        if kind == Kind::List {
            self.tx.delete(&tables.ends, &collection)?;
        } else {
            self.tx.delete_range(&tables.sizes, (collection, 0)..=(collection, u8::MAX))?;
        }
        match self.head(key)? {
            Some(head) => {
                // Nothing is left for the background to remove.
                let emptied = Head { collection: 0, ..head.clone() };
                self.note_change(key);
                self.remove(key, &emptied)
            }
            None => Ok(()),
        }
    }

    /// Returns the fields of a hash, in the order of their hashes.
    pub fn fields(&self, collection: u64) -> Done<Vec<&'c Field>> {
        let fields = self.tx.prefix(&self.store.tables.fields, &collection);
        Ok(fields.collect::<Result<_, Error>>()?)
    }

    /// Returns the members of a set, in the order of their hashes.
    pub fn members(&self, collection: u64) -> Done<Vec<&'c Member>> {
        let members = self.tx.prefix(&self.store.tables.members, &collection);
        Ok(members.collect::<Result<_, Error>>()?)
    }

    /// Returns the members of a sorted set, in the order of their scores.
    pub fn scored(&self, collection: u64) -> Done<Vec<&'c Scored>> {
        let scores = &self.store.tables.scores;
        let scored = self.tx.prefix_by(scores, Scored::BY_SCORE, &collection);
        Ok(scored.collect::<Result<_, Error>>()?)
    }
}

/// Returns the error of Redis if a sum is out of range.
fn checked(added: Result<(), Error>) -> Done {
    match added {
        Err(Error::Failure(Failure::OutOfRange { .. })) => Err(texts::OVERFLOW.into()),
        added => Ok(added?),
    }
}

/// Returns an error if a string of this length is too long to be stored.
pub fn check_length(length: usize) -> Result<(), Stop> {
    if length > TEXT_BYTES_MAX { Err(texts::TOO_LONG.into()) } else { Ok(()) }
}

/// The longest string, in bytes.
pub const TEXT_BYTES_MAX: usize = 256 << 20;
