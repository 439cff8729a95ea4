//! The results that the instances of a step have returned, kept until the procedure ends.

use std::cell::{RefCell, RefMut};

use smallvec::SmallVec;

use crate::place::Place;
use weft::step::Iteration;

/// The results of a step, one for each of its instances. There is one slot per step, in the frame of
/// [`Procedure::execute`](crate::Procedure::execute), where the compiler infers its type.
#[derive(Debug)]
pub struct Slot<R>(RefCell<Entries<R>>);

/// Most steps have one entry; a step in a loop has one for each iteration.
type Entries<R> = SmallVec<[Entry<R>; 1]>;

/// The number of iterations for which room is allocated at once.
const ITERATIONS: usize = 16;

/// The result of one instance.
#[derive(Debug)]
pub(super) struct Entry<R> {
    pub(super) iteration: Iteration,
    pub(super) place: Place,
    pub(super) result: R,
    /// The last pass that reached the instance.
    pub(super) pass: u32,
}

impl<R> Default for Slot<R> {
    fn default() -> Self {
        Slot(RefCell::default())
    }
}

impl<R> Slot<R> {
    /// Returns the entry of an iteration. The entries are sorted, because loops run in order.
    pub(super) fn find(&self, iteration: Iteration) -> Option<RefMut<'_, Entry<R>>> {
        RefMut::filter_map(self.0.borrow_mut(), |entries| {
            // Mostly it is the last entry, which the first pass has just made.
            if entries.last().is_some_and(|last| last.iteration == iteration) {
                return entries.last_mut();
            }
            let found = entries.binary_search_by_key(&iteration, |entry| entry.iteration);
            found.ok().map(|position| &mut entries[position])
        })
        .ok()
    }

    /// Puts an entry in, and replaces the earlier entry of the same iteration.
    pub(super) fn put(&self, entry: Entry<R>) {
        let mut entries = self.0.borrow_mut();
        if entries.last().is_none_or(|last| last.iteration < entry.iteration) {
            if entries.len() == 1 {
                entries.reserve(ITERATIONS - 1);
            }
            entries.push(entry);
            return;
        }
        match entries.binary_search_by_key(&entry.iteration, |entry| entry.iteration) {
            Ok(position) => entries[position] = entry,
            Err(position) => entries.insert(position, entry),
        }
    }

    /// Removes and returns the entry of an iteration.
    pub(super) fn remove(&self, iteration: Iteration) -> Option<Entry<R>> {
        let mut entries = self.0.borrow_mut();
        let found = entries.binary_search_by_key(&iteration, |entry| entry.iteration);
        found.ok().map(|position| entries.remove(position))
    }

    /// Calls `each` with all iterations and their places.
    pub(super) fn for_each(&self, mut each: impl FnMut(Iteration, &Place)) {
        self.0.borrow().iter().for_each(|entry| each(entry.iteration, &entry.place));
    }

    /// Removes the entries that this pass has not reached, and calls `swept` with their iterations.
    pub(super) fn sweep(&self, pass: u32, mut swept: impl FnMut(Iteration)) {
        self.0.borrow_mut().retain(|entry| {
            let stays = entry.pass == pass;
            if !stays {
                swept(entry.iteration);
            }
            stays
        });
    }
}
