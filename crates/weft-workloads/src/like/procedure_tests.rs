//! The two transactions as procedures.

use std::cell::RefCell;

use weft::protocol::Dbx;

use super::{Like, LikePage, Page, Parameters, ReadPage, Request, User};
use crate::procedures::rehearsal::{Change, Met, Tally, subject};
use crate::stashing::Draws;
use crate::workload::{LoadOptions, Workload};

#[test]
fn a_repair_comes_to_the_same_as_a_run_from_the_start() {
    let parameters = Parameters { users: 20, pages: 20, ..Parameters::default() };
    let like: Like<Dbx> = Like::load(&parameters, &LoadOptions::default()).expect("loads");
    let mut client = like.client(1, 0, 1);
    let mut tally = Tally::default();
    for seed in 0..300 {
        let random = RefCell::new(fastrand::Rng::with_seed(seed));
        let choose = |met: &[Met]| {
            let random = &mut random.borrow_mut();
            let (met, number) = (&met[random.usize(..met.len())], random.u64(..100));
            vec![match (met.key::<User>(), met.key::<Page>()) {
                (Some(&key), _) => Change::update(&like.users, key, move |row: &mut User| {
                    row.likes_given += number;
                }),
                (_, Some(&key)) => {
                    Change::update(&like.pages, key, |row: &mut Page| row.likes += 1)
                }
                _ => unreachable!("only two tables"),
            }]
        };
        let mut own = fastrand::Rng::with_seed(!seed);
        let (users, pages) = (&like.users, &like.pages);
        let request = client.draw();
        let subject = match &request {
            Request::Like { user, page, .. } => {
                subject!(|| LikePage::new(users, pages, *user, *page))
            }
            Request::Read { user, page } => subject!(|| ReadPage::new(users, pages, *user, *page)),
        };
        let context = format!("seed {seed}");
        tally.trial(like.database(), &subject, subject.shape, &mut own, &choose, &context);
    }
    println!("{tally:?}");
    assert!(tally.kept > 0 && tally.ran_again > 0, "{tally:?}");
}
