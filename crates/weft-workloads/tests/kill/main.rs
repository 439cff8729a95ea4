//! Processes that run transactions on a database in a directory, and are killed in the middle of it.
//!
//! The process runs this test program again, with the test [`runs_until_it_is_killed`]. It writes to its standard
//! output which transactions were acknowledged as durable. After the kill, all of them must be in the database, and
//! every consistency condition must hold.

mod bids;
mod process;
mod tpcc;

use std::path::Path;

use weft::protocol::{Dbx, Protocol, TwoPhaseLocking};
use weft_protocols::{Adaptive, Doppel, DoppelLocking};
use weft_tests::stress;

#[test]
#[ignore = "the others run it, as a process of its own"]
fn runs_until_it_is_killed() {
    let Ok(directory) = std::env::var(process::DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let told = |what| std::env::var(what).expect("the variable is set");
    let seed = told(process::SEED).parse().expect("a number");
    match (&*told(process::WORKLOAD), &*told(process::PROTOCOL)) {
        (tpcc::NAME, Dbx::NAME) => tpcc::run::<Dbx>(directory, seed),
        (tpcc::NAME, TwoPhaseLocking::NAME) => tpcc::run::<TwoPhaseLocking>(directory, seed),
        (bids::NAME, Doppel::NAME) => bids::run::<Doppel>(directory, seed),
        (bids::NAME, DoppelLocking::NAME) => bids::run::<DoppelLocking>(directory, seed),
        (bids::NAME, Adaptive::NAME) => bids::run::<Adaptive>(directory, seed),
        (workload, protocol) => panic!("no {workload} under {protocol}"),
    }
}

#[test]
fn killed_process_keeps_acknowledged_commits_dbx() {
    tpcc::kill_again_and_again::<Dbx>(15 * stress() as u32);
}

#[test]
fn killed_process_keeps_acknowledged_commits_2pl() {
    tpcc::kill_again_and_again::<TwoPhaseLocking>(15 * stress() as u32);
}

#[test]
fn killed_process_keeps_acknowledged_commits_doppel() {
    bids::kill_again_and_again::<Doppel>(15 * stress() as u32);
}

#[test]
fn killed_process_keeps_acknowledged_commits_doppel_2pl() {
    bids::kill_again_and_again::<DoppelLocking>(15 * stress() as u32);
}

#[test]
fn killed_process_keeps_acknowledged_commits_adaptive() {
    bids::kill_again_and_again::<Adaptive>(15 * stress() as u32);
}
