//! Rows that are found by a hash of their names.
//!
//! The key of such a row is its group, which is a numbered database or a collection, and its *slot*: 48 bits of the hash of
//! its name, and 16 bits that tell names of the group with equal hashes apart. These have the numbers from 0 on, without
//! gaps. So the key is two words however long the name is, and a comparison in the index needs no memory besides the node's.
//! A look-up compares the name with that of the row, and looks at the next number if it is another one.

use weft::{OrderedRecord, Table};

use crate::stop::Done;
use crate::store::Keys;
use crate::tables::{Field, Head, Member, Scored, Text};

/// How many bits of a slot tell names with equal hashes apart.
pub const NUMBER_BITS_COUNT: u32 = 16;
/// These bits, which are the lowest ones.
const NUMBER_BITS: u64 = (1 << NUMBER_BITS_COUNT) - 1;

/// Returns the first slot of a hash.
pub fn slot_of_hash(hash: u64) -> u64 {
    hash & !NUMBER_BITS
}

/// A row that is found by a hash of its name.
pub trait Named: OrderedRecord<Key = (<Self as Named>::Group, u64)> {
    /// A numbered database, or a collection.
    type Group: weft::Key + Copy;

    /// Returns the name.
    fn name(&self) -> &Text;

    /// Returns the slot.
    fn slot(&self) -> u64;

    /// Sets the slot.
    fn set_slot(&mut self, slot: u64);
}

macro_rules! named {
    ($($row:ident $group:ty, $name:ident;)*) => {$(
        impl Named for $row {
            type Group = $group;

            #[inline]
            fn name(&self) -> &Text {
                &self.$name
            }

            #[inline]
            fn slot(&self) -> u64 {
                self.slot
            }

            #[inline]
            fn set_slot(&mut self, slot: u64) {
                self.slot = slot;
            }
        }
    )*};
}

named! {
    Head u8, key;
    Field u64, name;
    Member u64, name;
    Scored u64, name;
}

impl<'c> Keys<'c> {
    /// Returns the row with a name.
    #[inline]
    pub fn named<T: Named>(
        &self,
        table: &'c Table<T>,
        group: T::Group,
        name: &[u8],
    ) -> Done<Option<&'c T>> {
        Ok(self.locate(table, group, name)?.ok())
    }

    /// Returns the row with a name. If there is no such row, returns the slot that it would have.
    #[inline]
    pub fn locate<T: Named>(
        &self,
        table: &'c Table<T>,
        group: T::Group,
        name: &[u8],
    ) -> Done<Result<&'c T, u64>> {
        let mut slot = self.store.slot_of(name);
        loop {
            match self.tx.get(table, &(group, slot))? {
                Some(row) if **row.name() != *name => slot = next(slot)?,
                row => return Ok(row.ok_or(slot)),
            }
        }
    }

    /// Changes the row with a name, and returns what `change` returns. If there is no such row, returns the slot that it
    /// would have.
    #[inline]
    pub fn change_named<T: Named, R>(
        &self,
        table: &'c Table<T>,
        group: T::Group,
        name: &[u8],
        mut change: impl FnMut(&mut T) -> R,
    ) -> Done<Result<R, u64>> {
        let mut slot = self.store.slot_of(name);
        loop {
            let changed = self.tx.update(table, &(group, slot), |row| {
                (**row.name() == *name).then(|| change(row))
            })?;
            match changed {
                Some(Some(result)) => return Ok(Ok(result)),
                Some(None) => slot = next(slot)?,
                None => return Ok(Err(slot)),
            }
        }
    }

    /// Inserts a row with a name that the group does not have, in a slot of its own. Returns false if the group has it.
    pub fn insert_named<T: Named>(
        &self,
        table: &'c Table<T>,
        group: T::Group,
        mut row: T,
    ) -> Done<bool> {
        let mut slot = self.store.slot_of(row.name());
        while let Some(found) = self.tx.get(table, &(group, slot))? {
            if found.name() == row.name() {
                return Ok(false);
            }
            slot = next(slot)?;
        }
        row.set_slot(slot);
        self.tx.insert(table, row)?;
        Ok(true)
    }

    /// Deletes the row with a name. The last one with the same hash takes its slot. Returns whether there was one.
    pub fn delete_named<T: Named>(
        &self,
        table: &'c Table<T>,
        group: T::Group,
        name: &[u8],
    ) -> Done<bool> {
        let Some(row) = self.named(table, group, name)? else { return Ok(false) };
        let slot = row.slot();
        self.tx.delete(table, &(group, slot))?;
        let mut last = None;
        let mut after = slot;
        while let Ok(following) = next(after)
            && let Some(row) = self.tx.get(table, &(group, following))?
        {
            (last, after) = (Some(row), following);
        }
        if let Some(last) = last {
            let mut moved = last.clone();
            moved.set_slot(slot);
            self.tx.delete(table, &(group, after))?;
            self.tx.insert(table, moved)?;
        }
        Ok(true)
    }
}

/// Returns the next slot of the same hash.
fn next(slot: u64) -> Done<u64> {
    match slot & NUMBER_BITS == NUMBER_BITS {
        true => Err("ERR there are too many names with the same hash".into()),
        false => Ok(slot + 1),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::server::{Options, Server};
    use crate::session::Session;

    /// In unit tests names have few hashes: see [`Store::slot_of`](crate::store::Store::slot_of).
    #[test]
    fn names_with_equal_hashes_are_told_apart() {
        let seed = fastrand::u64(..);
        eprintln!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let server = Server::open(Options::default()).unwrap();
        let mut session = Session::of_a_test(&server);
        let mut say = |command: &str| session.say(command);
        let shown = |value: Option<&u32>| match value {
            Some(value) => format!("${}\r\n{value}\r\n", value.to_string().len()),
            None => "$-1\r\n".to_owned(),
        };
        let (mut keys, mut fields) = (BTreeMap::new(), BTreeMap::new());
        for value in 0..2000_u32 {
            let (one, two) = (random.u8(..30), random.u8(..30));
            match random.u8(..9) {
                0 | 1 => {
                    say(&format!("SET key:{one} {value}"));
                    keys.insert(one, value);
                }
                2 => {
                    say(&format!("DEL key:{one} key:{two}"));
                    keys.retain(|key, _| *key != one && *key != two);
                }
                3 => {
                    say(&format!("RENAME key:{one} key:{two}"));
                    if let Some(value) = keys.remove(&one) {
                        keys.insert(two, value);
                    }
                }
                4 | 5 => {
                    for command in [
                        format!("HSET hash field:{one} {value}"),
                        format!("SADD set field:{one}"),
                        format!("ZADD sorted {value} field:{one}"),
                    ] {
                        say(&command);
                    }
                    fields.insert(one, value);
                }
                6 => {
                    let names = format!("field:{one} field:{two}");
                    for command in ["HDEL hash", "SREM set", "ZREM sorted"] {
                        say(&format!("{command} {names}"));
                    }
                    fields.retain(|field, _| *field != one && *field != two);
                }
                7 => assert_eq!(say(&format!("GET key:{one}")), shown(keys.get(&one))),
                _ => {
                    let expected = shown(fields.get(&one));
                    assert_eq!(say(&format!("HGET hash field:{one}")), expected);
                    assert_eq!(say(&format!("ZSCORE sorted field:{one}")), expected);
                    let is_in = u8::from(fields.contains_key(&one));
                    assert_eq!(say(&format!("SISMEMBER set field:{one}")), format!(":{is_in}\r\n"));
                }
            }
        }
        // Everything is found by walking, too, a page at a time.
        for (command, prefix, parts, expected) in
            [("SCAN", "key:", 1, keys.len()), ("HSCAN hash", "field:", 2, fields.len())]
        {
            let (mut cursor, mut found) = ("0".to_owned(), 0);
            loop {
                let reply = say(&format!("{command} {cursor} COUNT 3"));
                found += reply.matches(prefix).count();
                assert!(parts == 1 || reply.matches('$').count() % 2 == 1, "{reply}");
                cursor = reply.lines().nth(2).unwrap().to_owned();
                if cursor == "0" {
                    break;
                }
            }
            assert_eq!(found, expected, "{command}");
        }
    }
}
