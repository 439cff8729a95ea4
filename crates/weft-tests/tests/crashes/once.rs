//! Crashes at every operation that changes the disk, while transactions run once for their keys. A transaction has
//! happened if, and only if, its result is found afterwards.

use weft::durability::SimulatedDisk;
use weft::protocol::{Dbx, Protocol, TwoPhaseLocking};
use weft::{
    Database, DurabilityOptions, Error, Failure, OnceOptions, Record, Table, TransactionOptions,
};
use weft_protocols::TimestampOrdering;

use super::place;
use weft_tests::{Named, stress};

/// What a payment did.
#[derive(Clone, Debug, Record)]
struct Payment {
    #[record(key)]
    request: u64,
    balance: u64,
}

/// The sum of all payments.
#[derive(Clone, Debug, Record)]
struct Account {
    #[record(key)]
    id: u32,
    balance: u64,
}

struct Bank<P: Protocol> {
    database: Database<P>,
    payments: Table<Payment>,
    accounts: Table<Account>,
}

const REQUESTS: u64 = 40;

impl<P: Protocol> Bank<P> {
    fn open(disk: &SimulatedDisk, options: OnceOptions) -> Result<Self, Failure> {
        let builder = Database::builder().protocol::<P>().table::<Payment>().table::<Account>();
        let durability = DurabilityOptions::new().segment_bytes(1500).threads(1);
        let database = place(builder.once(options), disk, durability, true).open()?;
        let (payments, accounts) = (database.table()?, database.table()?);
        Ok(Bank { database, payments, accounts })
    }

    /// Pays `request` into the account. Returns the balance, and whether the transaction has run now.
    fn pay(&self, request: u64) -> Result<(u64, bool), Error> {
        let options = TransactionOptions::new().label("pay").once(request);
        let mut ran = false;
        let balance = self.database.transact_with(&options, |tx| {
            ran = true;
            let balance = tx.get(&self.accounts, &0)?.map_or(0, |account| account.balance);
            let balance = balance + request;
            tx.upsert(&self.accounts, Account { id: 0, balance })?;
            tx.insert(&self.payments, Payment { request, balance })?;
            Ok::<u64, Error>(balance)
        })?;
        Ok((balance, ran))
    }

    /// Returns the balance after a payment, if it has happened.
    fn paid(&self, request: u64) -> Option<u64> {
        let paid = self.database.transact(|tx| {
            Ok::<_, Error>(tx.get(&self.payments, &request)?.map(|payment| payment.balance))
        });
        paid.unwrap()
    }
}

/// Pays requests, some of them again, and takes checkpoints. Returns the acknowledged requests with the error of the
/// disk that ended the run.
fn run<P: Protocol>(
    disk: &SimulatedDisk,
    seed: u64,
    options: &OnceOptions,
) -> (Vec<u64>, Result<(), Error>) {
    let mut acknowledged = Vec::new();
    let random = &mut fastrand::Rng::with_seed(seed);
    let mut work = || {
        let bank = Bank::<P>::open(disk, options.clone())?;
        for request in 1..=REQUESTS {
            bank.pay(request)?;
            acknowledged.push(request);
            if random.u8(..3) == 0 {
                bank.pay(request)?;
            }
            if random.u8(..12) == 0 {
                bank.database.checkpoint()?;
            }
        }
        bank.database.close()?;
        Ok(())
    };
    let ended = work();
    (acknowledged, ended)
}

fn campaign<P: Protocol>(options: &OnceOptions, every: usize, keeps_all: bool) {
    let _named = Named(P::NAME);
    for seed in 0..stress() as u64 {
        let whole = SimulatedDisk::new(seed);
        let (acknowledged, ended) = run::<P>(&whole, seed, options);
        ended.unwrap();
        assert_eq!(acknowledged.len() as u64, REQUESTS);
        let (mut found, mut lost) = (0, 0);
        for stop in (1..=whole.operations()).step_by(every) {
            let disk = SimulatedDisk::new(seed);
            disk.stop_at(stop);
            let (acknowledged, ended) = run::<P>(&disk, seed, options);
            let circumstances = format!("{}, seed {seed}, operation {stop}", P::NAME);
            assert!(ended.is_err(), "{circumstances}: the crash went unnoticed");
            let bank = Bank::<P>::open(&disk.crash(stop), options.clone()).unwrap();
            let paid: Vec<_> = (1..=REQUESTS).map(|request| bank.paid(request)).collect();
            for request in 1..=REQUESTS {
                let paid = paid[request as usize - 1];
                let circumstances = format!("{circumstances}, request {request}, paid {paid:?}");
                assert!(paid.is_some() || !acknowledged.contains(&request), "{circumstances}");
                match (bank.pay(request), paid) {
                    (Ok((balance, false)), Some(paid)) if balance == paid => found += 1,
                    (Ok((_, true)), None) => lost += 1,
                    // The result was removed, and the payment is there.
                    (Err(Error::Failure(Failure::DuplicateKey { .. })), Some(_)) if !keeps_all => {}
                    (again, _) => panic!("{circumstances}: {again:?}"),
                }
            }
            let sum = bank.paid(REQUESTS).map(|_| ()).and_then(|()| {
                let account = bank.database.transact(|tx| {
                    Ok::<_, Error>(tx.get(&bank.accounts, &0)?.map(|account| account.balance))
                });
                account.unwrap()
            });
            assert_eq!(sum, Some((1..=REQUESTS).sum()), "{circumstances}");
        }
        println!("{}: {found} results were found, and {lost} transactions ran again", P::NAME);
        assert!(found > 0 && lost > 0);
    }
}

#[test]
fn transactions_with_a_key_happen_once_across_any_crash() {
    campaign::<Dbx>(&OnceOptions::new(), 1, true);
    campaign::<TwoPhaseLocking>(&OnceOptions::new(), 5, true);
    campaign::<TimestampOrdering>(&OnceOptions::new(), 5, true);
}

/// Results are removed in transactions of their own. A crash between them loses nothing.
#[test]
fn removed_results_are_those_of_transactions_that_happened() {
    campaign::<Dbx>(&OnceOptions::new().results_max(8), 1, false);
}
