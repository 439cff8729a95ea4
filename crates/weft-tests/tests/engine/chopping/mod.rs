//! Brute-force tests of chopping. Random small sets of procedures run in the pieces that the analysis finds for
//! them, in every interleaving, on a store of a few rows. Each outcome must be that of a serial order.

mod cases;
mod generate;
mod interleavings;
mod program;
mod properties;
mod text;

use weft_procedures::chopping::{Options, Outlines, PieceKind, chop};

use generate::{Generator, options};
use interleavings::{Run, explore, serial_outcomes};
use program::Set;

/// Counts of the cases that a test has covered, so that it is known to test something.
#[derive(Debug, Default)]
struct Tally {
    sets: usize,
    states: usize,
    outcomes: usize,
    in_pieces: usize,
    reordered: usize,
    commutative: usize,
    exclusive: usize,
    deferred: usize,
    rolled_back: usize,
}

/// Runs a set in the pieces that the analysis finds for `known`, which should be the set's outlines. Returns an
/// outcome that no serial order has, if there is one.
fn try_set(
    set: &Set,
    known: &Outlines,
    options: Options,
    random: &mut fastrand::Rng,
    tally: &mut Tally,
) -> Option<String> {
    let chopping = chop(known, options).expect("the generated set can be chopped");
    tally.sets += 1;
    for chopped in chopping.procedures.iter().filter(|chopped| !chopped.on_snapshot) {
        let has = |kind| usize::from(chopped.pieces.iter().any(|piece| piece.kind == kind));
        tally.in_pieces += usize::from(chopped.pieces.len() > 1);
        tally.reordered += usize::from(!chopped.is_as_written);
        tally.commutative += has(PieceKind::Commutative);
        tally.exclusive += has(PieceKind::Exclusive);
        tally.deferred += has(PieceKind::Deferred);
    }
    let in_graph: Vec<usize> =
        (0..set.programs.len()).filter(|&it| !chopping.procedures[it].on_snapshot).collect();
    if in_graph.is_empty() {
        return None;
    }
    for _ in 0..2 {
        // Two instances of each procedure, or three instances in all.
        let mut programs: Vec<usize> = in_graph.iter().flat_map(|&it| [it, it]).collect();
        if programs.len() > 4 {
            random.shuffle(&mut programs);
            programs.truncate(3);
        }
        let runs: Vec<Run> = programs.iter().map(|&it| Run::draw(it, random)).collect();
        let expected = serial_outcomes(set, &runs);
        tally.rolled_back += expected.iter().filter(|outcome| outcome.has_rolled_back()).count();
        let explored = explore(set, &runs, &chopping);
        tally.states += explored.states;
        tally.outcomes += explored.outcomes.len();
        if let Some(wrong) = explored.outcomes.iter().find(|outcome| !expected.contains(outcome)) {
            return Some(format!(
                "{known}\n{options:?}\npieces: {:?}\nruns: {runs:?}\noutcome: {wrong:?}\nserial: {expected:?}",
                chopping.procedures.iter().map(|it| &it.pieces).collect::<Vec<_>>()
            ));
        }
    }
    None
}

const SEED: u64 = 0x5eed_c40b;

#[test]
fn every_interleaving_of_the_pieces_is_serializable() {
    println!("seed {SEED}");
    let mut generator = Generator::new(SEED);
    let mut tally = Tally::default();
    for number in 0..240 * weft_tests::stress() {
        let set = generator.set();
        let options = options(&mut generator.random);
        let known = set.outlines();
        let wrong = try_set(&set, &known, options, &mut generator.random, &mut tally);
        assert!(wrong.is_none(), "seed {SEED}, set {number}: {}", wrong.unwrap_or_default());
    }
    println!("{tally:?}");
    for met in [
        tally.in_pieces,
        tally.reordered,
        tally.commutative,
        tally.exclusive,
        tally.deferred,
        tally.rolled_back,
    ] {
        assert!(met > 20, "{tally:?}");
    }
}

/// A fact about a set that the test hides from the analysis.
#[derive(Clone, Copy, Debug)]
enum Concealed {
    /// The table that a step touches, so that the step's C-edges are missing.
    Table,
    /// The dependencies of a step.
    Dependencies,
    /// That a step may roll back.
    Rollback,
    /// That a procedure touches rows whose token it does not hold: it uses another key.
    Token,
}

/// Shows that the test above can fail: it fails if the analysis does not know a fact about the set.
#[test]
fn facts_hidden_from_the_analysis_are_detected() {
    println!("seed {SEED}");
    for concealed in
        [Concealed::Table, Concealed::Dependencies, Concealed::Rollback, Concealed::Token]
    {
        let mut generator = Generator::new(SEED);
        let mut tally = Tally::default();
        let mut found = 0;
        for _ in 0..1_000 {
            if found > 3 {
                break;
            }
            let mut set = generator.set();
            let mut known = set.outlines();
            let random = &mut generator.random;
            let steps = known.procedures.iter_mut().flat_map(|it| &mut it.steps);
            let mut in_question: Vec<_> = match concealed {
                Concealed::Table => steps.collect(),
                Concealed::Dependencies => {
                    steps.filter(|step| step.dependencies().next().is_some()).collect()
                }
                Concealed::Rollback => steps.filter(|step| step.may_roll_back).collect(),
                Concealed::Token if set.tokens.is_empty() => Vec::new(),
                Concealed::Token => steps.collect(),
            };
            if in_question.is_empty() {
                continue;
            }
            let position = random.usize(..in_question.len());
            let step = &mut in_question[position];
            match concealed {
                Concealed::Table => step.table = "elsewhere".to_owned(),
                Concealed::Dependencies => {
                    (step.keys, step.values, step.guards) = Default::default();
                }
                Concealed::Rollback => step.may_roll_back = false,
                Concealed::Token => set.forget_tokens(),
            }
            let wrong = try_set(&set, &known, Options::ALL, &mut generator.random, &mut tally);
            found += usize::from(wrong.is_some());
        }
        println!("{concealed:?}: {found} of {}", tally.sets);
        assert!(found > 3, "{concealed:?}: {found}");
    }
}
