//! The rows that requests which have arrived together need. They are fetched into the processor's cache all at the same time, so
//! that the thread waits for memory once, and not for each of them.

use smallvec::SmallVec;
use weft::{Error, Transaction};

use crate::batch::BATCH_REQUESTS;
use crate::store::Store;
use crate::tables::Kind;
use crate::together::Arrived;

/// Requests that need fewer rows have nothing fetched for them.
const ROWS_MIN: usize = 3;

/// An element that a request names: the type of the key, the key, and the name of the element.
type Element<'a> = (Kind, &'a [u8], &'a [u8]);

/// The rows that some requests need.
#[derive(Debug, Default)]
pub struct NeededRows<'a> {
    keys: SmallVec<[&'a [u8]; 2 * BATCH_REQUESTS]>,
    elements: SmallVec<[Element<'a>; BATCH_REQUESTS]>,
}

impl<'a> NeededRows<'a> {
    /// Returns the rows of the keys and elements that requests name, in their order. `None` if these are few.
    pub fn of(requests: &[Arrived<'a>]) -> Option<Self> {
        let mut rows = NeededRows::default();
        for (command, arguments) in requests {
            let Some(command) = command else { continue };
            let at = command.first_keys();
            for &key in arguments.iter().take(at.end).skip(at.start) {
                // The row of the key before is often that of the next.
                if rows.keys.last() != Some(&key) {
                    rows.keys.push(key);
                }
            }
            if let Some((kind, position)) = command.first_element()
                && let (Some(key), Some(element)) = (arguments.get(1), arguments.get(position))
            {
                rows.elements.push((kind, key, element));
            }
        }
        (rows.keys.len() + rows.elements.len() >= ROWS_MIN).then_some(rows)
    }

    /// Fetches the rows. The transaction that does it also finds them sooner afterwards, if it looks for them in their order.
    ///
    /// # Errors
    /// Those of the database. The requests find out themselves what is wrong with them.
    pub fn fetch(&self, tx: &Transaction<'_>, store: &Store, space: u8) -> Result<(), Error> {
        let tables = &store.tables;
        let slots: SmallVec<[_; 2 * BATCH_REQUESTS]> =
            self.keys.iter().map(|key| (space, store.slot_of(key))).collect();
        tx.prefetch_for_update(&tables.heads, slots.iter().copied())?;
        if self.elements.is_empty() {
            return Ok(());
        }
        // The collection of the key before is often that of the next.
        let (mut last, mut rows) = (None, [(); 3].map(|()| SmallVec::<[_; BATCH_REQUESTS]>::new()));
        for &(kind, key, name) in &self.elements {
            let found = match last {
                Some((last, found)) if last == key => found,
                _ => tx.get(&tables.heads, &(space, store.slot_of(key)))?,
            };
            last = Some((key, found));
            if let Some(head) = found.filter(|head| head.kind == kind) {
                let table =
                    [Kind::Hash, Kind::Set, Kind::SortedSet].iter().position(|of| *of == kind);
                rows[table.unwrap_or(0)].push((head.collection, store.slot_of(name)));
            }
        }
        tx.prefetch_for_update(&tables.fields, rows[0].iter().copied())?;
        tx.prefetch_for_update(&tables.members, rows[1].iter().copied())?;
        tx.prefetch_for_update(&tables.scores, rows[2].iter().copied())
    }
}
