//! All workloads with their procedures in pieces, on more threads than most machines have cores. Every condition
//! must hold after the run.

use std::thread::scope;
use std::time::{Duration, Instant};

use weft::htm::word::{Ordering, Word};
use weft_protocols::{DbxTc, DbxTcOptions};
use weft_workloads::articles::{self, Articles};
use weft_workloads::bank::{self, Bank};
use weft_workloads::flash_sale::{self, FlashSale};
use weft_workloads::incr::{self, Change, Incr};
use weft_workloads::like::{self, Like};
use weft_workloads::mixture::{self, Mixture};
use weft_workloads::queue::{self, Queue};
use weft_workloads::rubis::{self, Rubis};
use weft_workloads::shift::{self, Shift};
use weft_workloads::snapshots::Snapshots;
use weft_workloads::tatp::{self, Tatp};
use weft_workloads::tpcc::{self, Scale, Tpcc};
use weft_workloads::{LoadOptions, Workload, dbx_tc};

const THREADS: usize = 8;
const SEED: u64 = 31;

/// Runs a workload under `dbx-tc` and its variants. `in_pieces` says whether some of its procedures have several
/// pieces.
fn keeps_every_condition<W: Workload<DbxTc>>(
    parameters: &W::Parameters,
    transactions: usize,
    in_pieces: bool,
) {
    let variants = dbx_tc::VARIANTS.iter().map(|variant| variant.name);
    for contender in std::iter::once("dbx-tc").chain(variants) {
        let known = dbx_tc::options_of(contender, &[]);
        let options = LoadOptions { seed: SEED, dbx_tc: known.as_ref(), ..LoadOptions::default() };
        let workload = W::load(parameters, &options).expect("loads");
        scope(|scope| {
            for thread in 0..THREADS {
                let workload = &workload;
                scope.spawn(move || {
                    let mut client = workload.client(SEED, thread, THREADS);
                    for _ in 0..transactions {
                        workload.execute(&mut client).expect("ends");
                    }
                    workload.finish(&mut client).expect("ends");
                });
            }
        });
        for condition in workload.verify(&|_, _| {}).expect("verification reads") {
            assert!(condition.holds, "{}, {contender}, seed {SEED}: {condition}", W::NAME);
        }
        let metrics = workload.database().metrics();
        if matches!(contender, "dbx-tc:finest" | "dbx-tc:regions") && in_pieces {
            assert!(metrics.committed_in_pieces > 0, "{}: {metrics:?}", W::NAME);
        }
        if contender == "dbx-tc:deferred" && W::NAME == "tpcc" {
            assert!(metrics.deferred > 0, "{metrics:?}");
        }
        if contender == "dbx-tc:unchopped" {
            assert_eq!(metrics.committed_in_pieces, 0, "{}", W::NAME);
        }
    }
}

#[test]
fn tpcc_keeps_every_condition() {
    for snapshots in Snapshots::ALL {
        let parameters =
            tpcc::Parameters { scale: Scale::TINY, snapshots, ..tpcc::Parameters::default() };
        keeps_every_condition::<Tpcc<DbxTc>>(&parameters, 400, true);
    }
}

/// Checks all conditions on one snapshot after the other, while clients run. Returns how many checks found a violation.
fn violations_on_snapshots(known: &DbxTcOptions, checks: usize) -> usize {
    let parameters = tpcc::Parameters { scale: Scale::TINY, ..tpcc::Parameters::default() };
    let options = LoadOptions { seed: SEED, dbx_tc: Some(known), ..LoadOptions::default() };
    let tpcc = Tpcc::<DbxTc>::load(&parameters, &options).expect("loads");
    let is_over = Word::new(0);
    scope(|scope| {
        for thread in 0..THREADS {
            let (tpcc, is_over) = (&tpcc, &is_over);
            scope.spawn(move || {
                let mut client = tpcc.client(SEED, thread, THREADS);
                while is_over.load(Ordering::Relaxed) == 0 {
                    tpcc.execute(&mut client).expect("ends");
                }
            });
        }
        let is_violated = |_: &usize| {
            let conditions = tpcc.verify(&|_, _| {}).expect("verification reads");
            conditions.iter().any(|condition| !condition.holds)
        };
        let violations = (0..checks).filter(is_violated).count();
        is_over.store(1, Ordering::Relaxed);
        violations
    })
}

#[test]
fn eventual_snapshots_are_consistent_while_procedures_run() {
    for paper in [&[][..], &["no-deferred-execution".to_owned()]] {
        let known = dbx_tc::options_of("dbx-tc:paper", paper).expect("a variant");
        assert_eq!(violations_on_snapshots(&known, 8 * weft_tests::stress()), 0, "{paper:?}");
    }
}

#[test]
fn articles_keeps_every_condition() {
    for operations in [true, false] {
        let parameters = articles::Parameters {
            articles: 20,
            users: 4,
            operations,
            snapshots: Snapshots::Recent,
            ..articles::Parameters::default()
        };
        keeps_every_condition::<Articles<DbxTc>>(&parameters, 1000, operations);
    }
}

#[test]
fn tatp_keeps_every_condition() {
    let parameters = tatp::Parameters { subscribers: 20, ..tatp::Parameters::default() };
    keeps_every_condition::<Tatp<DbxTc>>(&parameters, 1000, false);
}

#[test]
fn rubis_keeps_every_condition() {
    let parameters = rubis::Parameters {
        users: 100,
        items: 20,
        mix: rubis::Mix::Contended { alpha: 1.8 },
        ..rubis::Parameters::default()
    };
    keeps_every_condition::<Rubis<DbxTc>>(&parameters, 400, true);
}

#[test]
fn like_keeps_every_condition() {
    let parameters = like::Parameters { users: 50, pages: 20, ..like::Parameters::default() };
    keeps_every_condition::<Like<DbxTc>>(&parameters, 1000, true);
}

#[test]
fn incr_keeps_every_condition() {
    let parameters = incr::Parameters { records: 1000, ..incr::Parameters::default() };
    keeps_every_condition::<Incr<DbxTc>>(&parameters, 1000, false);
}

#[test]
fn bank_keeps_every_condition() {
    let parameters = bank::Parameters { accounts: 20, ..bank::Parameters::default() };
    keeps_every_condition::<Bank<DbxTc>>(&parameters, 1000, false);
}

#[test]
fn flash_sale_keeps_every_condition() {
    for takes in [false, true] {
        let few = flash_sale::Parameters { items: 10, buyers: 10, ..Default::default() };
        let parameters = flash_sale::Parameters { takes, ..few };
        keeps_every_condition::<FlashSale<DbxTc>>(&parameters, 1000, true);
    }
}

#[test]
fn queue_keeps_every_condition() {
    keeps_every_condition::<Queue<DbxTc>>(&queue::Parameters { backlog: 10 }, 1000, false);
}

#[test]
fn shift_keeps_every_condition() {
    let change = Change { since: Instant::now(), every: Duration::from_millis(1) };
    let parameters = shift::Parameters { records: 80, hot_percent: 80, change };
    // Without deferral each procedure is one piece: `modify` reads and writes the column that all of them change.
    keeps_every_condition::<Shift<DbxTc>>(&parameters, 1000, false);
}

#[test]
fn mixture_keeps_every_condition() {
    let parameters = mixture::Parameters::new(mixture::Scale::Tiny);
    keeps_every_condition::<Mixture<DbxTc>>(&parameters, 400, true);
}
