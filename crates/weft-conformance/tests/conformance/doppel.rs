//! The bugs that are planted in the mechanisms of Doppel's paper must be found. Without them nothing is: the variant with
//! all mechanisms runs through the suite with the protocols.

use weft_conformance::random::{self, Size};
use weft_conformance::subject::Subject;
use weft_conformance::threads::{Mode, for_each_seed, seeds};
use weft_protocols::{DoppelFlaw, Merging, PhaseOptions};

use crate::expect_nothing;

/// After this many seeds without a finding a flaw counts as missed. (On the simulated machine the first one that finds
/// slices that are merged in vain is the 4551st.)
const SEEDS: u64 = 20_000;

/// Few transactions, so that each run can be tried in every serial order. (The checker looks at versions, and the bugs are
/// about sums.)
const SMALL: Size = Size { threads: 3, transactions: 2, steps_max: 4, readers: 0 };

fn seed_that_finds(flaw: DoppelFlaw) -> Option<u64> {
    let subject = Subject::doppel_paper(Some(flaw));
    (0..SEEDS).find(|&seed| random::check(&subject, Mode::Interleaved(seed), SMALL).is_err())
}

#[test]
fn each_mechanism_alone_is_strictly_serializable() {
    let options = PhaseOptions::new;
    let alone = [
        options().merging(Merging::OneWorker),
        options().merging(Merging::OwnSlices),
        options().applies_at_commit(true),
        options().has_coordinator(true),
        options().has_whole_joined_phases(true),
        options().counts_same_time(true),
    ];
    for options in alone {
        let subject = Subject::doppel_with(options);
        for_each_seed(seeds(200), |seed| {
            expect_nothing(&subject, random::check(&subject, Mode::Interleaved(seed), SMALL));
        });
    }
}

#[test]
fn slices_that_their_workers_merge_in_vain_are_found() {
    let seed = seed_that_finds(DoppelFlaw::OwnSlicesForgotten);
    println!("own slices forgotten: found by seed {seed:?}");
    assert!(seed.is_some());
}

#[test]
fn operations_of_aborted_transactions_are_found() {
    let seed = seed_that_finds(DoppelFlaw::AbortedApplied);
    println!("aborted operations applied: found by seed {seed:?}");
    assert!(seed.is_some());
}
