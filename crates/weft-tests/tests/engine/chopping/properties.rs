//! Properties of every chopping, checked by definitions that are independent of the analysis.

use std::collections::{BTreeMap, BTreeSet};

use weft_procedures::chopping::{
    Chopping, ConflictTreatment, NotAdmitted, Options, Outlines, PieceKind, StepNumber, admit, chop,
};

use super::generate::{Generator, options};

/// A step of one of the two instances of each procedure.
type Vertex = (u8, StepNumber);

/// Returns the steps of `procedure`'s first instance that can be reached from its step `from`, by C-edges and by
/// the S-edges of other instances.
fn reached(chopping: &Chopping, procedure: usize, from: usize) -> BTreeSet<usize> {
    let mut edges: BTreeMap<Vertex, Vec<Vertex>> = BTreeMap::new();
    for conflict in chopping.conflicts.iter().filter(|it| it.treatment == ConflictTreatment::Edge) {
        for (one, other) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            if conflict.one.procedure == conflict.other.procedure && one == other {
                continue;
            }
            edges.entry((one, conflict.one)).or_default().push((other, conflict.other));
            edges.entry((other, conflict.other)).or_default().push((one, conflict.one));
        }
    }
    for (number, outline) in chopping.outlines.procedures.iter().enumerate() {
        for instance in [1, 2] {
            for step in 1..outline.steps.len() {
                if (number, instance) == (procedure, 1) {
                    continue;
                }
                let vertex = |step| (instance, StepNumber { procedure: number, step });
                edges.entry(vertex(step - 1)).or_default().push(vertex(step));
                edges.entry(vertex(step)).or_default().push(vertex(step - 1));
            }
        }
    }
    let start = (1, StepNumber { procedure, step: from });
    let (mut known, mut open) = (BTreeSet::from([start]), vec![start]);
    while let Some(at) = open.pop() {
        for &next in edges.get(&at).into_iter().flatten() {
            if known.insert(next) {
                open.push(next);
            }
        }
    }
    let own = known.iter().filter(|(instance, step)| *instance == 1 && step.procedure == procedure);
    own.map(|(_, step)| step.step).collect()
}

/// Decides whether pieces are allowed. They are given as a bit for each cut, in the program's order of steps.
fn is_allowed(chopping: &Chopping, procedure: usize, cuts: u32) -> bool {
    let outline = chopping.outline(procedure);
    let steps = outline.steps.len();
    let mut pieces = vec![0];
    for step in 1..steps {
        pieces.push(pieces[step - 1] + (cuts >> (step - 1) & 1));
    }
    let has_cycle = (0..steps).any(|step| {
        reached(chopping, procedure, step).into_iter().any(|other| pieces[other] != pieces[step])
    });
    let divides_loop = (1..steps)
        .any(|step| pieces[step] != pieces[step - 1] && outline.share_a_loop(step - 1, step));
    let rolls_back_late =
        (0..steps).any(|step| outline.steps[step].may_roll_back && pieces[step] > 0);
    !(has_cycle || divides_loop || rolls_back_late)
}

#[test]
fn pieces_are_without_cycles_and_as_many_as_possible() {
    const SEED: u64 = 11;
    println!("seed {SEED}");
    let mut generator = Generator::new(SEED);
    for number in 0..600 {
        let set = generator.set();
        let mut options = options(&mut generator.random);
        // Pieces with tokens or deferral have further conditions.
        (options.tokens, options.deferral) = (false, false);
        let outlines = set.outlines();
        let best = chop(&outlines, options).expect("the set can be chopped");
        options.reordering = false;
        let chopping = chop(&outlines, options).expect("the set can be chopped");
        for (procedure, chopped) in chopping.procedures.iter().enumerate() {
            if chopped.on_snapshot {
                continue;
            }
            let context = format!("set {number}: {outlines}\n{options:?}\n{chopped:?}");
            let steps = chopping.outline(procedure).steps.len();
            let cuts = |chopped: &[weft_procedures::chopping::Piece]| -> u32 {
                let ends = chopped.iter().filter_map(|piece| piece.steps.last());
                ends.filter(|&&last| last + 1 < steps).map(|&last| 1 << last).sum()
            };
            assert!(chopped.is_as_written, "{context}");
            assert!(is_allowed(&chopping, procedure, cuts(&chopped.pieces)), "{context}");
            let most = (0..1_u32 << (steps - 1))
                .filter(|&cuts| is_allowed(&chopping, procedure, cuts))
                .map(|cuts| cuts.count_ones() as usize + 1)
                .max();
            assert_eq!(Some(chopped.pieces.len()), most, "{context}");
            assert!(best.procedures[procedure].pieces.len() >= chopped.pieces.len(), "{context}");
            // Each recorded merge has joined two groups of steps.
            let merged = chopped.pieces.iter().map(|piece| piece.steps.len() - 1).sum::<usize>();
            assert_eq!(chopped.merges.len(), merged, "{context}");
        }
    }
}

/// Checks Theorem 1.
#[test]
fn a_procedure_has_one_conflicting_piece_at_most() {
    const SEED: u64 = 12;
    println!("seed {SEED}");
    let mut generator = Generator::new(SEED);
    for _ in 0..1_000 {
        let outlines = generator.set().outlines();
        let options = options(&mut generator.random);
        let chopping = chop(&outlines, options).expect("the set can be chopped");
        for chopped in &chopping.procedures {
            let kinds = chopped.pieces.iter().filter(|piece| piece.kind == PieceKind::Conflicting);
            assert!(kinds.count() <= 1, "{outlines}\n{chopped:?}");
        }
    }
}

/// A procedure is admitted only if the pieces of the running procedures stay the same. A refusal names a running
/// procedure whose pieces would change.
#[test]
fn admission_keeps_the_pieces_of_running_procedures() {
    const SEED: u64 = 13;
    println!("seed {SEED}");
    let mut generator = Generator::new(SEED);
    let (mut admitted, mut refused) = (0, 0);
    for _ in 0..1_000 {
        let outlines = generator.set().outlines();
        let mut running = outlines.clone();
        let added = running.procedures.pop().expect("the set has procedures");
        let before = chop(&running, Options::ALL).expect("the set can be chopped");
        let after = chop(&outlines, Options::ALL).expect("the set can be chopped");
        let are_same = before.procedures.iter().zip(&after.procedures).all(|(old, new)| {
            let steps = |pieces: &[weft_procedures::chopping::Piece]| {
                pieces.iter().map(|piece| piece.steps.clone()).collect::<Vec<_>>()
            };
            steps(&old.pieces) == steps(&new.pieces)
        });
        match admit(&running, &added, Options::ALL) {
            Ok(chopping) => {
                assert!(are_same, "{outlines}");
                assert_eq!(chopping, after);
                admitted += 1;
            }
            Err(NotAdmitted::Changes(change)) => {
                let running: Vec<_> = running.procedures.iter().map(|it| &it.name).collect();
                assert!(running.contains(&&change.procedure), "{change}");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    println!("{admitted} admitted, {refused} refused");
    assert!(admitted > 100 && refused > 100, "{admitted} {refused}");
}

#[test]
fn outlines_round_trip_as_text() {
    const SEED: u64 = 14;
    println!("seed {SEED}");
    let mut generator = Generator::new(SEED);
    for _ in 0..1_000 {
        let mut outlines = generator.set().outlines();
        // The parser returns dependencies sorted, so sort these as well.
        for step in outlines.procedures.iter_mut().flat_map(|it| &mut it.steps) {
            for list in [&mut step.keys, &mut step.values, &mut step.guards] {
                list.sort_unstable();
                list.dedup();
            }
        }
        let text = outlines.to_string();
        let read: Outlines = text.parse().unwrap_or_else(|error| panic!("{error}:\n{text}"));
        assert_eq!(read, outlines, "{text}");
    }
}
