//! A set-associative cache with exact least-recently-used replacement. It knows which lines it holds, but not
//! their contents.

use crate::profile::CacheSize;

const EMPTY: u32 = u32::MAX;

/// The lines of one cache, or of another structure that is organised like one.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    sets: u64,
    ways: usize,
    /// The lines of each set, the most recently used one first.
    lines: Vec<u32>,
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// The line was there.
    Hit,
    /// The line was not there, and is now. It replaced the given line, if the set was full.
    Miss(Option<u32>),
}

impl Cache {
    pub(crate) fn new(size: CacheSize) -> Cache {
        let (sets, ways) = (u64::from(size.sets), size.ways as usize);
        Cache { sets, ways, lines: vec![EMPTY; size.sets as usize * ways] }
    }

    /// Returns the set of the line at `place` in physical memory (its address divided by the line size).
    #[inline]
    fn set(&mut self, place: u64) -> &mut [u32] {
        let set = match self.sets.is_power_of_two() {
            true => place & (self.sets - 1),
            false => place % self.sets,
        };
        let start = set as usize * self.ways;
        &mut self.lines[start..start + self.ways]
    }

    /// Accesses a line, and fetches it if it is not there.
    #[inline]
    pub(crate) fn touch(&mut self, line: u32, place: u64) -> Touched {
        let set = self.set(place);
        if set[0] == line {
            return Touched::Hit;
        }
        match set.iter().position(|&held| held == line) {
            Some(position) => {
                set[..=position].rotate_right(1);
                Touched::Hit
            }
            None => {
                // Places of removed lines are taken first: `remove` moves them to the end.
                let last = set.len() - 1;
                let evicted = set[last];
                set.rotate_right(1);
                set[0] = line;
                Touched::Miss((evicted != EMPTY).then_some(evicted))
            }
        }
    }

    /// Returns whether the line is there.
    #[inline]
    pub(crate) fn holds(&mut self, line: u32, place: u64) -> bool {
        self.set(place).contains(&line)
    }

    /// Removes the line, if it is there.
    #[inline]
    pub(crate) fn remove(&mut self, line: u32, place: u64) {
        let set = self.set(place);
        if let Some(position) = set.iter().position(|&held| held == line) {
            set[position..].rotate_left(1);
            *set.last_mut().expect("a set has ways") = EMPTY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> Cache {
        Cache::new(CacheSize { sets: 4, ways: 2 })
    }

    /// Protects replacement: a full set evicts the line that was used longest ago.
    #[test]
    fn the_line_that_was_used_longest_ago_goes() {
        let mut cache = cache();
        assert_eq!(cache.touch(0, 0), Touched::Miss(None));
        assert_eq!(cache.touch(4, 4), Touched::Miss(None));
        assert_eq!(cache.touch(0, 0), Touched::Hit);
        assert_eq!(cache.touch(8, 8), Touched::Miss(Some(4)));
        assert!(cache.holds(0, 0) && cache.holds(8, 8) && !cache.holds(4, 4));
    }

    /// Protects the sets: lines of different sets do not affect each other.
    #[test]
    fn sets_are_by_place() {
        let mut cache = cache();
        for line in 0..8 {
            assert_eq!(cache.touch(line, u64::from(line)), Touched::Miss(None));
        }
        assert_eq!(cache.touch(100, 3), Touched::Miss(Some(3)));
    }

    /// Protects the places that a removal leaves: they are taken before any line is evicted.
    #[test]
    fn a_removed_line_leaves_room() {
        let mut cache = cache();
        cache.touch(0, 0);
        cache.touch(4, 4);
        cache.remove(4, 4);
        assert_eq!(cache.touch(8, 8), Touched::Miss(None));
        assert!(cache.holds(0, 0));
    }

    /// Protects caches whose number of sets is not a power of two.
    #[test]
    fn any_number_of_sets_will_do() {
        let mut cache = Cache::new(CacheSize { sets: 3, ways: 1 });
        for line in 0..3 {
            assert_eq!(cache.touch(line, u64::from(line)), Touched::Miss(None));
        }
        assert_eq!(cache.touch(3, 3), Touched::Miss(Some(0)));
    }
}
