//! The oracle for small runs, which tries every serial order.
//!
//! It knows nothing of versions, of the engine's recorder or of the checker. It knows what each committed
//! transaction was shown. It replays the transactions one after the other on a map, in every order that real
//! time allows. It checks whether some order shows every transaction the same, and leaves the same rows behind.

use crate::step::{State, Step, StepResult, is_explained};

/// The record of one transaction.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Its steps, and what it was shown.
    pub steps: Vec<(Step, StepResult)>,
    /// Whether it committed.
    pub committed: bool,
    /// When it began, on the clock of the run.
    pub began: usize,
    /// When it was seen to end. For a snapshot, when it was seen to be open.
    pub ended: usize,
}

impl Log {
    /// Returns whether this is a snapshot, which only reads.
    pub fn is_snapshot(&self) -> bool {
        matches!(self.steps.first(), Some((Step::Snapshot, _)))
    }
}

/// Returns whether some serial order of the committed transactions, starting from `initial`, explains what they
/// were shown, and leaves `left` behind. A transaction that had ended before another began must come before it.
pub fn is_serializable(initial: &State, logs: &[Log], left: &State) -> bool {
    let committed: Vec<&Log> = logs.iter().filter(|log| log.committed).collect();
    some_order_explains(initial, &committed, left)
}

fn some_order_explains(state: &State, rest: &[&Log], left: &State) -> bool {
    if rest.is_empty() {
        return state == left;
    }
    (0..rest.len()).any(|first| {
        let log = rest[first];
        if rest.iter().any(|other| other.ended < log.began) {
            return false;
        }
        let mut after = state.clone();
        if !log.steps.iter().all(|(step, shown)| is_explained(&mut after, *step, shown)) {
            return false;
        }
        let mut others = rest.to_vec();
        others.remove(first);
        some_order_explains(&after, &others, left)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::{Row, state_of};

    const X: u64 = 10;
    const Y: u64 = 20;

    fn read(key: u64, value: i64) -> (Step, StepResult) {
        (Step::Read(key), StepResult::Rows(vec![Row::new(key, value)]))
    }

    fn wrote(key: u64, value: i64) -> (Step, StepResult) {
        (Step::Write(key, value), StepResult::Happened(true))
    }

    fn log(steps: Vec<(Step, StepResult)>, began: usize, ended: usize) -> Log {
        Log { steps, committed: true, began, ended }
    }

    #[test]
    fn anomalies_are_not_serializable() {
        let initial = state_of(&[(X, 0), (Y, 0)]);
        let skew = [
            log(vec![read(X, 0), read(Y, 0), wrote(X, 1)], 0, 6),
            log(vec![read(X, 0), read(Y, 0), wrote(Y, 1)], 1, 7),
        ];
        assert!(!is_serializable(&initial, &skew, &state_of(&[(X, 1), (Y, 1)])), "write skew");
        let left = state_of(&[(X, 1), (Y, 0)]);
        let stale = [log(vec![wrote(X, 1)], 0, 1), log(vec![read(X, 0)], 2, 3)];
        assert!(!is_serializable(&initial, &stale, &left), "a stale read");
        let overlapping = [log(vec![wrote(X, 1)], 0, 3), log(vec![read(X, 0)], 2, 3)];
        assert!(is_serializable(&initial, &overlapping, &left));
        assert!(!is_serializable(&initial, &overlapping, &initial), "a write that is gone");
    }
}
