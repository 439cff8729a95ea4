//! Parts: which instance has added which entries to lists that only grow.

use std::array;
use std::ops::Range;

use super::Instance;

/// The parts of `N` lists that instances have added to, in the order in which they did so.
#[derive(Debug)]
pub struct Parts<const N: usize> {
    begun: Vec<Part<N>>,
    /// The position after the part that was asked for last. The next question is mostly about the part there.
    asked: usize,
}

/// A part of each list. It ends where the next part begins.
#[derive(Debug)]
struct Part<const N: usize> {
    instance: Instance,
    starts: [usize; N],
    /// Whether this is the first part of the instance.
    is_first: bool,
    /// The position of the instance's next part, if any. Scans have several parts, since other steps run between
    /// their rows.
    next: Option<usize>,
}

impl<const N: usize> Default for Parts<N> {
    fn default() -> Self {
        Parts { begun: Vec::new(), asked: 0 }
    }
}

impl<const N: usize> Parts<N> {
    /// Begins a part: what is added to lists from these lengths on belongs to this instance. `goes_on` says that
    /// the instance may have a part already.
    #[inline]
    pub fn begin(&mut self, instance: Instance, goes_on: bool, lengths: [usize; N]) {
        let mut is_first = true;
        if goes_on {
            let position = self.begun.len();
            let last = self.begun.iter().rposition(|part| part.instance == instance);
            match last {
                // The instance's part is the one that is growing.
                Some(last) if last + 1 == position => return,
                Some(last) => (self.begun[last].next, is_first) = (Some(position), false),
                None => {}
            }
        }
        self.begun.push(Part { instance, starts: lengths, is_first, next: None });
    }

    /// Calls `part` with each part that an instance has added. `lengths` are the present lengths of the lists.
    pub fn of(
        &mut self,
        instance: Instance,
        lengths: [usize; N],
        mut part: impl FnMut([Range<usize>; N]),
    ) {
        let is_it = |position: &usize| {
            let part = &self.begun[*position];
            part.is_first && part.instance == instance
        };
        let mut found = (self.asked..self.begun.len()).chain(0..self.asked).find(is_it);
        if let Some(first) = found {
            self.asked = first + 1;
        }
        while let Some(position) = found {
            part(self.ranges(position, lengths));
            found = self.begun[position].next;
        }
    }

    /// Returns whether an instance has a part.
    pub fn has(&self, instance: Instance) -> bool {
        self.begun.iter().any(|part| part.instance == instance)
    }

    /// Returns all parts. `lengths` are the present lengths of the lists.
    pub fn all(&self, lengths: [usize; N]) -> impl Iterator<Item = (Instance, [Range<usize>; N])> {
        let all = self.begun.iter().enumerate();
        all.map(move |(position, part)| (part.instance, self.ranges(position, lengths)))
    }

    fn ranges(&self, position: usize, lengths: [usize; N]) -> [Range<usize>; N] {
        let starts = self.begun[position].starts;
        let ends = self.begun.get(position + 1).map_or(lengths, |next| next.starts);
        array::from_fn(|list| starts[list]..ends[list])
    }

    /// Removes all parts, when the lists have been emptied.
    pub fn clear(&mut self) {
        self.begun.clear();
        self.asked = 0;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn instance(step: usize) -> Instance {
        Instance { step, iteration: Default::default() }
    }

    fn parts_of(parts: &mut Parts<2>, step: usize) -> Vec<[Range<usize>; 2]> {
        let mut found = Vec::new();
        parts.of(instance(step), [7, 5], |part| found.push(part));
        found
    }

    #[test]
    fn a_part_ends_where_the_next_begins() {
        let mut parts = Parts::default();
        parts.begin(instance(0), false, [0, 0]);
        parts.begin(instance(2), false, [3, 0]);
        parts.begin(instance(1), false, [4, 4]);
        assert_eq!(parts_of(&mut parts, 2), [[3..4, 0..4]]);
        assert_eq!(parts_of(&mut parts, 1), [[4..7, 4..5]]);
        assert_eq!(parts_of(&mut parts, 0), [[0..3, 0..0]]);
        assert!(parts_of(&mut parts, 3).is_empty());
        assert_eq!(parts.all([7, 5]).count(), 3);
        parts.clear();
        assert!(parts_of(&mut parts, 0).is_empty());
    }

    #[test]
    fn a_scan_may_have_several_parts() {
        let mut parts = Parts::default();
        parts.begin(instance(0), false, [0, 0]);
        parts.begin(instance(0), true, [1, 0]);
        parts.begin(instance(1), false, [2, 0]);
        parts.begin(instance(0), true, [3, 3]);
        assert_eq!(parts_of(&mut parts, 0), [[0..2, 0..0], [3..7, 3..5]]);
        assert_eq!(parts_of(&mut parts, 1), [[2..3, 0..3]]);
        assert_eq!(parts_of(&mut parts, 0), [[0..2, 0..0], [3..7, 3..5]]);
    }
}
