//! Rounds in turns: the systems of a table's column run one round each, then the next one each, and so on.
//!
//! So whatever else the machine does, and whatever its clock rate is, hits all systems alike. A round in which
//! other processes computed is thrown away, and repeated at once if repetitions are left. They are few, so that a
//! busy machine cannot prolong the run by much.

use serde::Serialize;

use crate::median::Spread;
use crate::round::{Contender, Plan, Round};
use crate::store::Result;

/// One repetition is allowed for as many planned rounds.
const ROUNDS_PER_REPETITION: usize = 4;

/// A contender, with the name that errors give it and with its rounds so far.
pub struct Entrant {
    /// The name.
    pub name: String,
    /// The contender.
    pub contender: Box<dyn Contender>,
    /// All rounds, including those that are thrown away.
    pub rounds: Vec<Round>,
}

impl Entrant {
    fn run(&mut self, plan: &Plan) -> Result<Round> {
        let round = self.contender.round(plan);
        round.map_err(|error| format!("{}: {error}", self.name).into())
    }
}

/// Runs `rounds` rounds of every entrant, after a short one that only warms it up. Before each round it calls
/// `progress` with the number of the turn, which is 0 for the warm-up, and with the entrant's name.
///
/// # Errors
/// The first error of an entrant, with its name.
pub fn take_turns(
    entrants: &mut [Entrant],
    plan: &Plan,
    rounds: usize,
    progress: &dyn Fn(usize, &str),
) -> Result<()> {
    let mut repetitions = (entrants.len() * rounds).div_ceil(ROUNDS_PER_REPETITION);
    for entrant in &mut *entrants {
        progress(0, &entrant.name);
        entrant.run(&Plan { measured: plan.measured / 2, ..*plan })?;
    }
    for turn in 1..=rounds {
        for entrant in &mut *entrants {
            progress(turn, &entrant.name);
            loop {
                let round = entrant.run(plan)?;
                entrant.rounds.push(round);
                if !round.is_disturbed() || repetitions == 0 {
                    break;
                }
                repetitions -= 1;
            }
        }
    }
    Ok(())
}

/// The speed of a system: what is in one cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// Committed transactions per second.
    pub per_second: Spread,
    /// Whether some of the rounds that count were disturbed.
    pub is_disturbed: bool,
}

impl Speed {
    /// Returns the speed in the undisturbed rounds. If these are fewer than half of the planned ones, the rounds
    /// that were disturbed least count as well, until there are as many. `None` without rounds.
    pub fn of(rounds: &[Round], planned: usize) -> Option<Speed> {
        let mut rounds = rounds.to_vec();
        rounds.sort_by(|one, other| {
            one.is_late.cmp(&other.is_late).then(one.others.total_cmp(&other.others))
        });
        let undisturbed = rounds.iter().filter(|round| !round.is_disturbed()).count();
        let needed = planned.div_ceil(2);
        rounds.truncate(undisturbed.max(needed));
        let per_second = Spread::of(rounds.iter().map(|round| round.rate))?;
        Some(Speed { per_second, is_disturbed: undisturbed < needed })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use super::*;

    const PLAN: Plan =
        Plan { processors: 2, warmup: Duration::ZERO, measured: Duration::from_millis(1) };

    fn quiet(rate: f64) -> Round {
        Round { rate, seconds: 0.5, others: 0.01, is_late: false }
    }

    fn disturbed(rate: f64) -> Round {
        Round { rate, seconds: 0.5, others: 0.5 + rate / 1_000.0, is_late: false }
    }

    /// A contender whose rounds are known in advance.
    struct Scripted(std::vec::IntoIter<Round>);

    impl Contender for Scripted {
        fn round(&mut self, _: &Plan) -> Result<Round> {
            self.0.next().ok_or_else(|| "no round is left".into())
        }

        fn verify(&self) -> Result<()> {
            Ok(())
        }
    }

    fn entrant(name: &str, rounds: Vec<Round>) -> Entrant {
        let contender = Box::new(Scripted(rounds.into_iter()));
        Entrant { name: name.to_owned(), contender, rounds: Vec::new() }
    }

    #[test]
    fn entrants_take_turns() {
        let mut entrants = [entrant("a", vec![quiet(1.0); 3]), entrant("b", vec![quiet(2.0); 3])];
        let order = RefCell::new(Vec::new());
        let progress = |turn, name: &str| order.borrow_mut().push(format!("{turn}{name}"));
        take_turns(&mut entrants, &PLAN, 2, &progress).expect("the rounds suffice");
        assert_eq!(order.into_inner(), ["0a", "0b", "1a", "1b", "2a", "2b"]);
    }

    #[test]
    fn disturbed_rounds_are_repeated_as_long_as_repetitions_are_left() {
        // Two entrants with four rounds have two repetitions.
        let warmup = disturbed(0.0);
        let first = [warmup, disturbed(1.0), disturbed(2.0), disturbed(3.0)];
        let a = [first, [quiet(4.0); 4]].concat();
        let mut entrants = [entrant("a", a), entrant("b", vec![disturbed(5.0); 5])];
        take_turns(&mut entrants, &PLAN, 4, &|_, _| {}).expect("the rounds suffice");
        assert_eq!(entrants[0].rounds.len(), 6);
        assert_eq!(entrants[1].rounds.len(), 4);
    }

    #[test]
    fn errors_name_the_entrant() {
        let error = take_turns(&mut [entrant("a", vec![])], &PLAN, 1, &|_, _| {});
        assert_eq!(error.expect_err("no rounds").to_string(), "a: no round is left");
    }

    #[test]
    fn disturbed_rounds_are_thrown_away() {
        let rounds = [quiet(10.0), disturbed(1.0), quiet(30.0), disturbed(2.0), quiet(20.0)];
        let speed = Speed::of(&rounds, 5).expect("there are rounds");
        assert_eq!(speed.per_second, Spread { median: 20.0, min: 10.0, max: 30.0 });
        assert!(!speed.is_disturbed);
    }

    #[test]
    fn of_disturbed_rounds_those_count_that_were_disturbed_least() {
        let rounds =
            [quiet(30.0), disturbed(50.0), disturbed(20.0), disturbed(10.0), disturbed(40.0)];
        let speed = Speed::of(&rounds, 5).expect("there are rounds");
        assert_eq!(speed.per_second, Spread { median: 20.0, min: 10.0, max: 30.0 });
        assert!(speed.is_disturbed);
        assert_eq!(Speed::of(&[], 5), None);
    }
}
