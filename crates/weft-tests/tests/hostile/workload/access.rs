//! Single operations: compiled once for each row type, because the suite would compile slowly otherwise.

use weft::protocol::Protocol;
use weft::{Error, Table, Transaction, column_of};

use super::{Pair, World, options};
use crate::hook::quietly;
use crate::types::{Content, Indexed, Mark, PlainBare, RowBare, Short};

impl<P: Protocol> World<P> {
    #[inline(never)]
    pub(super) fn transact(
        &self,
        body: &dyn Fn(&Transaction<'_, P>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.database.transact_with(&options(), body)
    }

    #[inline(never)]
    pub(super) fn pair(&self, tx: &Transaction<'_, P>, id: u32) -> Result<Option<u64>, Error> {
        Ok(tx.get(&self.pairs, &id)?.map(|pair| pair.value))
    }

    #[inline(never)]
    pub(super) fn change_pair(
        &self,
        tx: &Transaction<'_, P>,
        id: u32,
        change: &dyn Fn(&mut Pair),
    ) -> Result<bool, Error> {
        Ok(tx.update(&self.pairs, &id, change)?.is_some())
    }

    #[inline(never)]
    pub(super) fn get<R: Indexed>(
        tx: &Transaction<'_, P>,
        table: &Table<R>,
        id: u32,
    ) -> Result<Option<Content>, Error> {
        Ok(tx.get(table, &R::key_of(id))?.map(Indexed::content))
    }

    #[inline(never)]
    pub(super) fn insert<R: Indexed>(
        tx: &Transaction<'_, P>,
        table: &Table<R>,
        id: u32,
        content: Content,
    ) -> Result<(), Error> {
        tx.insert(table, R::make(id, content))
    }

    #[inline(never)]
    pub(super) fn upsert<R: Indexed>(
        tx: &Transaction<'_, P>,
        table: &Table<R>,
        id: u32,
        content: Content,
    ) -> Result<bool, Error> {
        tx.upsert(table, R::make(id, content))
    }

    #[inline(never)]
    pub(super) fn update<R: Indexed>(
        tx: &Transaction<'_, P>,
        table: &Table<R>,
        id: u32,
        change: &dyn Fn(&mut R),
    ) -> Result<bool, Error> {
        let key = R::key_of(id);
        let updated = tx.update(table, &key, change);
        // If the test's own key panicked here, a caller that goes on after panics would take the update for undone.
        quietly(|| drop(key));
        Ok(updated?.is_some())
    }

    #[inline(never)]
    pub(super) fn delete<R: Indexed>(
        tx: &Transaction<'_, P>,
        table: &Table<R>,
        id: u32,
    ) -> Result<bool, Error> {
        let key = R::key_of(id);
        let deleted = tx.delete(table, &key);
        // As in `update`.
        quietly(|| drop(key));
        deleted
    }

    #[inline(never)]
    pub(super) fn insert_bare(&self, tx: &Transaction<'_, P>, id: u32) -> Result<(), Error> {
        tx.insert(&self.bare, RowBare::from_plain(PlainBare::new(id)))
    }

    #[inline(never)]
    pub(super) fn bare_count(
        &self,
        tx: &Transaction<'_, P>,
        id: u32,
    ) -> Result<Option<i64>, Error> {
        Ok(tx.get(&self.bare, &Short::new(id))?.map(|row| row.count))
    }

    /// Changes a bare row, and returns its new count.
    #[inline(never)]
    pub(super) fn change_bare(
        &self,
        tx: &Transaction<'_, P>,
        id: u32,
        change: &dyn Fn(&mut RowBare),
    ) -> Result<Option<i64>, Error> {
        tx.update(&self.bare, &Short::new(id), |row| {
            change(row);
            row.count
        })
    }

    #[inline(never)]
    pub(super) fn add(&self, tx: &Transaction<'_, P>, number: i64) -> Result<(), Error> {
        let (bare, key, count) = (&self.bare, &Short::new(1), column_of!(RowBare.count));
        tx.add(bare, key, count, number - 1)?;
        tx.give(bare, key, count, 2)?;
        tx.take(bare, key, count, 1)
    }

    #[inline(never)]
    pub(super) fn put(&self, tx: &Transaction<'_, P>, order: i64) -> Result<(), Error> {
        tx.ordered_put(
            &self.bare,
            &Short::new(1),
            column_of!(RowBare.winner),
            order,
            Mark(order as u32),
        )
    }

    #[inline(never)]
    pub(super) fn total(&self, tx: &Transaction<'_, P>) -> Result<Option<i64>, Error> {
        Ok(tx.get(&self.totals, &Short::new(2))?.map(|row| row.sum.0))
    }
}
