//! A set-associative cache with exact least-recently-used replacement: which lines it holds, and
//! nothing about their contents.

use crate::profile::CacheSize;

const EMPTY: u32 = u32::MAX;

/// The lines of one cache, or of another structure that is organised like one.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    sets: u64,
    ways: usize,
    /// The lines of each set, the one used last first.
    lines: Vec<u32>,
}

/// What became of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// The line was there.
    Hit,
    /// It was not, and is now, in the place of the one named, if the set was full.
    Miss(Option<u32>),
}

impl Cache {
    pub(crate) fn new(size: CacheSize) -> Cache {
        let (sets, ways) = (u64::from(size.sets), size.ways as usize);
        Cache { sets, ways, lines: vec![EMPTY; size.sets as usize * ways] }
    }

    /// The set of the line at `place` of physical memory (its address divided by the size of lines).
    #[inline]
    fn set(&mut self, place: u64) -> &mut [u32] {
        let set = match self.sets.is_power_of_two() {
            true => place & (self.sets - 1),
            false => place % self.sets,
        };
        let start = set as usize * self.ways;
        &mut self.lines[start..start + self.ways]
    }

    /// Accesses a line, which is fetched if it is not there.
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
                // The places of lines that were removed are taken first: they are moved to the end.
                let last = set.len() - 1;
                let evicted = set[last];
                set.rotate_right(1);
                set[0] = line;
                Touched::Miss((evicted != EMPTY).then_some(evicted))
            }
        }
    }

    /// Whether the line is there.
    #[inline]
    pub(crate) fn holds(&mut self, line: u32, place: u64) -> bool {
        self.set(place).contains(&line)
    }

    /// Takes the line out, if it is there.
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

    /// Protects replacement: of a full set the line goes that was used longest ago.
    #[test]
    fn the_line_that_was_used_longest_ago_goes() {
        let mut cache = cache();
        assert_eq!(cache.touch(0, 0), Touched::Miss(None));
        assert_eq!(cache.touch(4, 4), Touched::Miss(None));
        assert_eq!(cache.touch(0, 0), Touched::Hit);
        assert_eq!(cache.touch(8, 8), Touched::Miss(Some(4)));
        assert!(cache.holds(0, 0) && cache.holds(8, 8) && !cache.holds(4, 4));
    }

    /// Protects the sets: lines of different ones do not get in each other's way.
    #[test]
    fn sets_are_by_place() {
        let mut cache = cache();
        for line in 0..8 {
            assert_eq!(cache.touch(line, u64::from(line)), Touched::Miss(None));
        }
        assert_eq!(cache.touch(100, 3), Touched::Miss(Some(3)));
    }

    /// Protects the places that a removal leaves: they are taken before anything is evicted.
    #[test]
    fn a_removed_line_leaves_room() {
        let mut cache = cache();
        cache.touch(0, 0);
        cache.touch(4, 4);
        cache.remove(4, 4);
        assert_eq!(cache.touch(8, 8), Touched::Miss(None));
        assert!(cache.holds(0, 0));
    }

    /// Protects caches whose number of sets is no power of two.
    #[test]
    fn any_number_of_sets_will_do() {
        let mut cache = Cache::new(CacheSize { sets: 3, ways: 1 });
        for line in 0..3 {
            assert_eq!(cache.touch(line, u64::from(line)), Touched::Miss(None));
        }
        assert_eq!(cache.touch(3, 3), Touched::Miss(Some(0)));
    }
}
