//! The decisions of a run: how many points until the next decision, and which thread goes on. All of them come
//! from the seed, in a fixed order.
use super::Strategy;

/// SplitMix64 (Steele, Lea and Flood, 2014). It is written here and not taken from a library, so that a seed
/// means the same with every version of every library.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `bound`, which must not be 0.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// The output function of SplitMix64: each bit of the argument affects each bit of the result.
pub(super) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Why a decision is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The granted points are used up.
    Point,
    /// The thread waits for another.
    Wait,
    /// The thread has ended.
    End,
}

/// The state of a strategy in a run.
#[derive(Debug)]
pub(super) struct Decisions {
    random: Random,
    /// Never [`Strategy::FromSeed`].
    strategy: Strategy,
    priorities: Priorities,
}

/// The state of [`Strategy::Priorities`].
#[derive(Debug, Default)]
struct Priorities {
    /// By thread; all differ. The thread with the highest one runs. At first they are above the priorities of
    /// all changes.
    of_thread: Vec<i64>,
    /// The changes to come, the next one last: the point, and the new priority.
    changes: Vec<(u64, i64)>,
    /// The priority for the next thread that waits: below all that exist.
    bottom: i64,
}

impl Decisions {
    pub(super) fn new(
        strategy: Strategy,
        seed: u64,
        threads: usize,
        points_expected: u64,
    ) -> Decisions {
        let mut random = Random::new(seed);
        let strategy = match strategy {
            Strategy::FromSeed if random.below(2) == 0 => {
                Strategy::Random { one_in: [2, 8, 32, 128][random.below(4) as usize] }
            }
            Strategy::FromSeed => Strategy::Priorities { changes: 1 + random.below(4) as u32 },
            given => given,
        };
        let priorities = match strategy {
            Strategy::Priorities { changes } => {
                Priorities::new(&mut random, threads, changes, points_expected)
            }
            _ => Priorities::default(),
        };
        Decisions { random, strategy, priorities }
    }

    pub(super) fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Returns after how many points the next decision is due, in a run that is at `point`.
    pub(super) fn points_ahead(&mut self, point: u64) -> u64 {
        match self.strategy {
            Strategy::Random { one_in } if one_in > 1000 => {
                1 + self.random.below(2 * u64::from(one_in) - 1)
            }
            Strategy::Random { one_in } => {
                let mut points = 1;
                while self.random.below(u64::from(one_in.max(1))) != 0 {
                    points += 1;
                }
                points
            }
            _ => self.priorities.changes.last().map_or(u64::MAX, |(at, _)| at - point),
        }
    }

    /// Returns which thread goes on, in a run that is at `point`. `current` held the baton until now. `live`
    /// lists the threads that have not ended, in ascending order. It is not empty.
    pub(super) fn next(&mut self, why: Why, point: u64, current: usize, live: &[usize]) -> usize {
        match self.strategy {
            Strategy::Random { .. } => {
                let others = live.len() as u64 - u64::from(live.contains(&current));
                if others == 0 {
                    return current;
                }
                let chosen = self.random.below(others) as usize;
                // Choose among the others only, so that the baton does pass on.
                let passed = live.iter().filter(|&&thread| thread != current).nth(chosen);
                *passed.expect("chosen below their number")
            }
            _ => self.priorities.next(why, point, current, live),
        }
    }

    /// Returns which thread begins.
    pub(super) fn first(&mut self, live: &[usize]) -> usize {
        match self.strategy {
            Strategy::Random { .. } => live[self.random.below(live.len() as u64) as usize],
            _ => self.priorities.highest(live),
        }
    }
}

impl Priorities {
    fn new(random: &mut Random, threads: usize, changes: u32, points_expected: u64) -> Priorities {
        // A random order of the threads (Fisher-Yates shuffle), above the priorities 1, 2, … that the changes
        // give.
        let mut of_thread: Vec<i64> =
            (0..threads as i64).map(|i| i64::from(changes) + 1 + i).collect();
        for last in (1..threads).rev() {
            of_thread.swap(last, random.below(last as u64 + 1) as usize);
        }
        let mut changes: Vec<(u64, i64)> = (1..=i64::from(changes))
            .map(|priority| (1 + random.below(points_expected.max(1)), priority))
            .collect();
        changes.sort_unstable_by(|one, other| other.cmp(one));
        Priorities { of_thread, changes, bottom: 0 }
    }

    fn next(&mut self, why: Why, point: u64, current: usize, live: &[usize]) -> usize {
        match why {
            Why::Point => {
                while self.changes.last().is_some_and(|(at, _)| *at <= point) {
                    self.of_thread[current] = self.changes.pop().expect("there is one").1;
                }
            }
            Why::Wait => {
                self.of_thread[current] = self.bottom;
                self.bottom -= 1;
            }
            Why::End => {}
        }
        self.highest(live)
    }

    fn highest(&self, live: &[usize]) -> usize {
        let highest = live.iter().max_by_key(|&&thread| self.of_thread[thread]);
        *highest.expect("at least one thread is live")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects the meaning of seeds: the numbers are those of SplitMix64's authors.
    #[test]
    fn the_random_numbers_are_those_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
        ];
        assert_eq!([(); 4].map(|()| random.next()), expected);
    }

    /// Protects the choice of the next thread: never the current one while there are others, and every other
    /// one eventually.
    #[test]
    fn random_switches_reach_all_others() {
        let mut decisions = Decisions::new(Strategy::Random { one_in: 2 }, 1, 5, 0);
        let mut times = [0; 5];
        for _ in 0..3000 {
            times[decisions.next(Why::Point, 0, 3, &[0, 1, 3, 4])] += 1;
        }
        assert_eq!((times[2], times[3]), (0, 0));
        assert!([0, 1, 4].iter().all(|&thread| times[thread] > 800), "{times:?}");
        assert_eq!(decisions.next(Why::Wait, 0, 3, &[3]), 3);
        assert_eq!(decisions.next(Why::End, 0, 3, &[2]), 2);
    }

    /// Protects the probability of a switch.
    #[test]
    fn random_switches_are_as_frequent_as_asked() {
        for one_in in [1, 2, 8, 128, 100_000] {
            let mut decisions = Decisions::new(Strategy::Random { one_in }, 1, 2, 0);
            let points: u64 = (0..10_000).map(|_| decisions.points_ahead(0)).sum();
            let expected = 10_000 * u64::from(one_in);
            assert!(points.abs_diff(expected) <= expected / 20, "one in {one_in}: {points}");
        }
    }

    /// Protects the order of priorities. A change takes effect at its point, and sinks the thread below all
    /// threads that had no change. A wait sinks a thread below all threads that did not wait later.
    #[test]
    fn priorities_sink_by_changes_and_waits() {
        for seed in 0..50 {
            let strategy = Strategy::Priorities { changes: 2 };
            let mut decisions = Decisions::new(strategy, seed, 4, 100);
            let live = [0, 1, 2, 3];
            let first = decisions.first(&live);
            let change = decisions.points_ahead(0);
            assert!((1..=100).contains(&change));
            let second = decisions.next(Why::Point, change, first, &live);
            assert_ne!(second, first);
            // No other thread has sunk: the threads above `first` run to their ends before it.
            let rest: Vec<usize> = live.into_iter().filter(|&thread| thread != second).collect();
            let third = decisions.next(Why::End, change, second, &rest);
            assert!(third != first && third != second);
            // A wait sinks below even that, and a second wait below the first.
            assert_ne!(decisions.next(Why::Wait, change, third, &[first, third]), third);
            assert_eq!(decisions.next(Why::Wait, change, first, &[first, third]), third);
        }
    }

    /// Protects the spread over the strategies.
    #[test]
    fn seeds_choose_all_strategies() {
        let chosen: std::collections::HashSet<String> = (0..200)
            .map(|seed| Decisions::new(Strategy::FromSeed, seed, 2, 100).strategy().to_string())
            .collect();
        assert_eq!(chosen.len(), 8, "{chosen:?}");
    }
}
