//! The transaction as a procedure.

use weft::protocol::Dbx;

use super::{Counter, Incr, IncrementCounter, Parameters};
use crate::procedures::rehearsal::{AccessedRow, Change, Tally, subject};
use crate::stashing::RequestClient;
use crate::workload::{LoadOptions, Workload};

#[test]
fn repair_equals_a_run_from_the_start() {
    let parameters = Parameters { records: 20, ..Parameters::default() };
    let incr: Incr<Dbx> = Incr::load(&parameters, &LoadOptions::default()).expect("loads");
    let mut client = incr.client(1, 0, 1);
    let mut tally = Tally::default();
    for seed in 0..100 {
        let choose = |met: &[AccessedRow]| {
            let &key = met[0].key::<Counter>().expect("there is one table");
            vec![Change::update(&incr.counters, key, |row: &mut Counter| row.value += 10)]
        };
        let mut own = fastrand::Rng::with_seed(!seed);
        let key = client.draw().key;
        let subject = subject!(|| IncrementCounter::new(&incr.counters, key));
        let context = format!("seed {seed}");
        tally.trial(incr.database(), &subject, subject.shape, &mut own, &choose, &context);
    }
    assert_eq!(tally.kept, 0, "its one step is stale: {tally:?}");
    assert!(tally.ran_again > 0, "{tally:?}");
}
