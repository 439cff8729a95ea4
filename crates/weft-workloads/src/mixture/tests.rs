//! Tests of the mixture: every protocol keeps the invariants of all its parts.

use crate::trials::with_protocol;
use weft::protocol::{Dbx, Protocol};

use super::{Mixture, PARTS, Parameters, SHARES, Scale};
use crate::trials::{broken, load, run, runnable_protocols};
use crate::workload::Workload;

#[test]
fn every_protocol_keeps_the_invariants_of_all_parts() {
    fn check<P: Protocol>() {
        const SEED: u64 = 71;
        let mixture: Mixture<P> = load(&Parameters::new(Scale::Tiny), SEED);
        let counts = run(&mixture, 1_000, SEED);
        assert!(counts.iter().all(|of_part| of_part[0] > 0), "{}: {counts:?}", P::NAME);
    }
    for name in runnable_protocols() {
        with_protocol!(name, |P| check::<P>()).expect("a name of the list");
    }
}

#[test]
fn parts_have_their_shares() {
    const SEED: u64 = 72;
    const DRAWS: u32 = 10_000;
    let mixture: Mixture<Dbx> = load(&Parameters::new(Scale::Tiny), SEED);
    let mut client = mixture.client(SEED, 0, 1);
    let mut counts = [0_u32; PARTS];
    for _ in 0..DRAWS {
        counts[mixture.execute(&mut client).expect("it runs to its end").transaction] += 1;
    }
    for (count, share) in counts.into_iter().zip(SHARES) {
        let expected = f64::from(DRAWS * share / 100);
        let is_near = (f64::from(count) - expected).abs() < 5.0 * expected.sqrt();
        assert!(is_near, "seed {SEED}: {counts:?}");
    }
}

/// Protects that the conditions of the parts are checked, each under its workload's name.
#[test]
fn broken_part_is_named() {
    let mixture: Mixture<Dbx> = load(&Parameters::new(Scale::Tiny), 73);
    let account = mixture.database.table::<crate::bank::Account>().expect("it has the table");
    let deleted = mixture.database.transact(|tx| tx.delete(&account, &3));
    assert!(deleted.expect("it is done"));
    let found = broken(&mixture);
    assert!(found.len() == 2 && found.iter().all(|found| found.starts_with("bank: ")), "{found:?}");
}
