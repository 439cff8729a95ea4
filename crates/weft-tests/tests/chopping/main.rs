//! Chopping, by brute force: random small sets of procedures are executed in the pieces that the analysis finds
//! for them, in every interleaving, on a store of a few rows; and each outcome has to be one of a serial order.

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

/// What has been met, so that a test is known to test something.
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

/// Executes a set in the pieces that are found for `known`, which should be the set's outlines. Returns an
/// outcome that no serial order has.
fn try_set(
    set: &Set,
    known: &Outlines,
    options: Options,
    random: &mut fastrand::Rng,
    tally: &mut Tally,
) -> Option<String> {
    let chopping = chop(known, options).expect("what is generated is possible");
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
        // Two of each, or three in all.
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
    for number in 0..800 {
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
        assert!(met > 50, "{tally:?}");
    }
}

/// What is concealed from the analysis.
#[derive(Clone, Copy, Debug)]
enum Concealed {
    /// That a step touches the table it does: its C-edges are left out.
    Table,
    /// What a step depends on.
    Dependencies,
    /// That it may roll back.
    Rollback,
    /// That a procedure touches rows whose token it does not have: its key is another.
    Token,
}

/// The test above can fail: it does if the analysis knows less than there is.
#[test]
fn an_edge_that_is_left_out_is_found_out() {
    println!("seed {SEED}");
    for concealed in
        [Concealed::Table, Concealed::Dependencies, Concealed::Rollback, Concealed::Token]
    {
        let mut generator = Generator::new(SEED);
        let mut tally = Tally::default();
        let mut found = 0;
        for _ in 0..1_000 {
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
            if in_question.is_empty() || found > 5 {
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
        assert!(found > 5, "{concealed:?}: {found}");
    }
}
