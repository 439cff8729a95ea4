//! A bank: clerks transfer money between a few accounts as fast as they can. At the same time an
//! auditor adds up all accounts in one transaction, again and again, and never finds a cent too
//! much or too little.
//!
//! `cargo run --release --example bank`

use std::time::{Duration, Instant};

use weft::{Database, Error, Record};

#[derive(Clone, Copy, Record)]
#[record(table = "accounts", check = "Account::check_balance")]
struct Account {
    #[record(key)]
    number: u32,
    balance_cents: i64,
}

impl Account {
    fn check_balance(&self) -> Result<(), weft::Violation> {
        if self.balance_cents < 0 {
            return Err(format!("{} cents is less than nothing", self.balance_cents).into());
        }
        Ok(())
    }
}

const ACCOUNTS: u32 = 100;
const OPENING_CENTS: i64 = 10_000;
const CLERKS: u64 = 4;
const RUNNING_TIME: Duration = Duration::from_secs(2);

fn main() -> Result<(), Error> {
    let database = Database::builder().table::<Account>().open()?;
    let accounts = database.table::<Account>()?;
    database.transact(|tx| {
        (0..ACCOUNTS).try_for_each(|number| {
            tx.insert(&accounts, Account { number, balance_cents: OPENING_CENTS })
        })
    })?;

    let end = Instant::now() + RUNNING_TIME;
    let (transfers, refused, audits) = std::thread::scope(|scope| {
        let clerks: Vec<_> = (0..CLERKS)
            .map(|clerk| {
                let (database, accounts) = (&database, &accounts);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(clerk);
                    let (mut transfers, mut refused) = (0u64, 0u64);
                    while Instant::now() < end {
                        let (from, to) = (random.u32(..ACCOUNTS), random.u32(..ACCOUNTS));
                        let cents = random.i64(1..=OPENING_CENTS);
                        match transfer(database, accounts, from, to, cents) {
                            Ok(()) => transfers += 1,
                            // The account is short: the row's own check refused the update.
                            Err(Error::Failure(weft::Failure::Constraint { .. })) => refused += 1,
                            Err(error) => return Err(error),
                        }
                    }
                    Ok((transfers, refused))
                })
            })
            .collect();
        let mut audits = 0u64;
        while Instant::now() < end {
            let total = database.transact(|tx| {
                tx.range(&accounts, ..)
                    .map(|account| account.map(|account| account.balance_cents))
                    .sum::<Result<i64, Error>>()
            })?;
            assert_eq!(total, i64::from(ACCOUNTS) * OPENING_CENTS, "the audit found a difference");
            audits += 1;
        }
        let (mut transfers, mut refused) = (0, 0);
        for clerk in clerks {
            let (done, not_done) = clerk.join().expect("a clerk does not panic")?;
            transfers += done;
            refused += not_done;
        }
        Ok::<_, Error>((transfers, refused, audits))
    })?;

    let aborted = database.metrics().aborted_total();
    println!(
        "{transfers} transfers by {CLERKS} clerks, {refused} refused for lack of money, \
         {audits} audits, all exact; {aborted} attempts aborted and were run again"
    );
    Ok(())
}

fn transfer(
    database: &Database,
    accounts: &weft::Table<Account>,
    from: u32,
    to: u32,
    cents: i64,
) -> Result<(), Error> {
    database.transact(|tx| {
        tx.update(accounts, &from, |account| account.balance_cents -= cents)?;
        tx.update(accounts, &to, |account| account.balance_cents += cents)?;
        Ok(())
    })
}
