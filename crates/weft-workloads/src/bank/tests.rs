//! Tests of the bank: under every protocol no money is lost, no balance becomes negative, and audits agree.

use std::cell::RefCell;

use crate::trials::with_protocol;
use weft::Error;
use weft::protocol::{Dbx, Protocol};

use super::{Account, Audit, BALANCE_LOADED, Bank, HOT, Parameters, Request, Transfer};
use crate::procedures::rehearsal::{AccessedRow, Change, Tally, subject};
use crate::stashing::RequestClient;
use crate::trials::{broken, load, run, runnable_protocols};
use crate::workload::{LoadOptions, Workload};

const FEW: Parameters = Parameters { accounts: 20, hot_percent: 50, audit_percent: 10 };

#[test]
fn money_is_conserved_and_audits_agree() {
    fn check<P: Protocol>() {
        const SEED: u64 = 31;
        let bank: Bank<P> = load(&FEW, SEED);
        let counts = run(&bank, 2_000, SEED);
        let [transfers, audits] = counts[..] else { panic!("two types: {counts:?}") };
        assert!(transfers[0] > 1_000 && audits[0] > 100, "{}: {counts:?}", P::NAME);
        assert_eq!(audits[1], 0, "{}: no audit is wrong", P::NAME);
    }
    for name in runnable_protocols() {
        with_protocol!(name, |P| check::<P>()).expect("a name of the list");
    }
}

#[test]
fn transfers_have_two_sides_and_their_shares() {
    const SEED: u64 = 32;
    const DRAWS: usize = 40_000;
    let bank: Bank<Dbx> = load(&FEW, SEED);
    let mut client = bank.client(SEED, 0, 1);
    let (mut audits, mut pays, mut is_paid) = (0, 0, 0);
    for _ in 0..DRAWS {
        match client.draw() {
            Request::Audit => audits += 1,
            Request::Transfer { from, to, amount } => {
                assert!(from != to && from < 20 && to < 20 && (1..=100).contains(&amount));
                pays += usize::from(from == HOT);
                is_paid += usize::from(to == HOT);
            }
        }
    }
    let near = |count: usize, share: f64| {
        let expected = share * DRAWS as f64;
        (count as f64 - expected).abs() < 5.0 * expected.sqrt()
    };
    let counts = (audits, pays, is_paid);
    assert!(near(audits, 0.1) && near(pays, 0.225) && near(is_paid, 0.225), "{counts:?}");
}

#[test]
fn account_without_money_cannot_pay() {
    let bank: Bank<Dbx> = load(&FEW, 33);
    let pay = |amount| {
        let request = Request::Transfer { from: 1, to: 2, amount };
        bank.database.transact(|tx| bank.run(tx, &request)).expect("it runs to its end")
    };
    assert!(!pay(BALANCE_LOADED + 1) && pay(BALANCE_LOADED) && !pay(1));
    assert_eq!(broken(&bank), [""; 0]);
}

/// Damages a database, and checks what verification reports.
#[test]
fn verification_finds_what_is_wrong() {
    type Damage = fn(&Bank<Dbx>) -> Result<(), Error>;
    fn change(bank: &Bank<Dbx>, id: u64, amount: i64) -> Result<(), Error> {
        let change = |row: &mut Account| row.balance += amount;
        bank.database.transact(|tx| tx.update(&bank.accounts, &id, change).map(drop))
    }
    let cases: [(Damage, &[&str]); 4] = [
        (|bank| change(bank, 3, 1), &["the sum of all balances"]),
        (
            |bank| {
                change(bank, 3, -2 * BALANCE_LOADED)?;
                change(bank, 4, 2 * BALANCE_LOADED)
            },
            &["accounts: each"],
        ),
        (
            |bank| bank.database.transact(|tx| tx.delete(&bank.accounts, &19).map(drop)),
            &["accounts: each", "the sum of all balances"],
        ),
        (
            |bank| {
                change(bank, 3, 1)?;
                let mut client = bank.client(34, 0, 1);
                (0..200).for_each(|_| drop(bank.execute(&mut client)));
                change(bank, 3, -1)
            },
            &["every audit"],
        ),
    ];
    for (damage, expected) in cases {
        let bank: Bank<Dbx> = load(&FEW, 34);
        damage(&bank).expect("it is done");
        let found = broken(&bank);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found:?}");
        }
    }
}

#[test]
fn repair_equals_a_run_from_the_start() {
    let bank: Bank<Dbx> = Bank::load(&FEW, &LoadOptions::default()).expect("loads");
    let mut client = bank.client(1, 0, 1);
    let mut tally = Tally::default();
    for seed in 0..300 {
        let random = RefCell::new(fastrand::Rng::with_seed(seed));
        let choose = |met: &[AccessedRow]| {
            let random = &mut random.borrow_mut();
            let met = (!met.is_empty()).then(|| &met[random.usize(..met.len())]);
            let key = met.and_then(AccessedRow::key::<Account>).copied();
            let key = key.unwrap_or_else(|| random.u64(..FEW.accounts));
            let balance = random.i64(0..200);
            vec![Change::update(&bank.accounts, key, move |row: &mut Account| {
                row.balance = balance;
            })]
        };
        let mut own = fastrand::Rng::with_seed(!seed);
        let accounts = &bank.accounts;
        let request = client.draw();
        let subject = match &request {
            Request::Transfer { from, to, amount } => {
                subject!(|| Transfer::new(accounts, *from, *to, *amount))
            }
            Request::Audit => subject!(|| Audit::new(accounts)),
        };
        let context = format!("seed {seed}");
        tally.trial(bank.database(), &subject, subject.shape, &mut own, &choose, &context);
    }
    assert!(tally.kept > 0 && tally.ran_again > 0, "{tally:?}");
}
