//! A small bank, with random transactions and a model of the state after each of them.

use std::collections::BTreeMap;

use weft::protocol::Protocol;
use weft::{Builder, Database, Error, Record, Table, Transaction};

/// An account.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "accounts")]
pub struct Account {
    #[record(key)]
    pub id: u32,
    #[record(index)]
    pub branch: u8,
    #[record(unique)]
    pub label: String,
    pub balance: i64,
}

/// The record of a transfer's effect on one account.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "postings", key(account, transfer))]
pub struct Posting {
    pub account: u32,
    #[record(index)]
    pub transfer: u32,
    pub amount: i64,
    pub text: String,
}

/// The upper bound of account identifiers.
const ACCOUNTS: u32 = 10;

/// All rows of the bank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    accounts: BTreeMap<u32, Account>,
    postings: BTreeMap<(u32, u32), Posting>,
}

/// A single change. A transaction applies several of them in order.
#[derive(Clone, Debug)]
pub enum Change {
    PutAccount(Account),
    DeleteAccount(u32),
    PutPosting(Posting),
    DeletePosting(u32, u32),
}

impl State {
    pub fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change.clone() {
                Change::PutAccount(account) => {
                    self.accounts.insert(account.id, account);
                }
                Change::DeleteAccount(id) => {
                    self.accounts.remove(&id);
                }
                Change::PutPosting(posting) => {
                    self.postings.insert((posting.account, posting.transfer), posting);
                }
                Change::DeletePosting(account, transfer) => {
                    self.postings.remove(&(account, transfer));
                }
            }
        }
    }

    /// Returns the sum of all balances, which no transaction changes.
    pub fn sum(&self) -> i64 {
        self.accounts.values().map(|account| account.balance).sum()
    }

    /// Returns whether the state includes the first transaction.
    pub fn is_founded(&self) -> bool {
        !self.accounts.is_empty()
    }

    /// Returns the changes of the first transaction.
    pub fn founding() -> Vec<Change> {
        let account = |id| Account { id, branch: 0, label: format!("first {id}"), balance: 0 };
        (0..4).map(|id| Change::PutAccount(account(id))).collect()
    }

    /// Draws the changes of transaction `number`. They may be empty.
    pub fn draw(&self, random: &mut fastrand::Rng, number: u32) -> Vec<Change> {
        let ids: Vec<u32> = self.accounts.keys().copied().collect();
        let any = |random: &mut fastrand::Rng| ids[random.usize(..ids.len())];
        let (one, other) = (any(random), any(random));
        match random.u8(..12) {
            0..5 if one != other => self.transfer(random, number, one, other),
            5 | 6 => {
                let id = random.u32(..ACCOUNTS);
                match self.accounts.get(&id) {
                    Some(account) => vec![Change::PutAccount(relabelled(account, number))],
                    None => vec![Change::PutAccount(Account {
                        id,
                        branch: random.u8(..3),
                        label: format!("{id} of {number}"),
                        balance: 0,
                    })],
                }
            }
            7 if one != other && ids.len() > 2 => {
                let mut changes = self.transfer(random, number, one, other);
                let mut after = self.clone();
                after.apply(&changes);
                changes.push(Change::DeleteAccount(one));
                let mut heir = after.accounts[&other].clone();
                heir.balance += after.accounts[&one].balance;
                changes.push(Change::PutAccount(heir));
                let of_one = after.postings.range((one, 0)..=(one, u32::MAX));
                changes.extend(of_one.map(|(key, _)| Change::DeletePosting(key.0, key.1)));
                changes
            }
            8 => {
                // Deletes the account and inserts it again, in one transaction.
                let account = relabelled(&self.accounts[&one], number);
                vec![Change::DeleteAccount(one), Change::PutAccount(account)]
            }
            9 => {
                let oldest = self.postings.keys().take(random.usize(..6));
                oldest.map(|key| Change::DeletePosting(key.0, key.1)).collect()
            }
            10 => {
                let account = self.accounts[&one].clone();
                // Writes the same row several times. The last write counts.
                let branches = (0..3).map(|branch| Account { branch, ..account.clone() });
                branches.map(Change::PutAccount).collect()
            }
            _ => Vec::new(),
        }
    }

    fn transfer(&self, random: &mut fastrand::Rng, number: u32, from: u32, to: u32) -> Vec<Change> {
        let amount = random.i64(1..100);
        let text = "x".repeat(random.usize(..60));
        let moved = [(from, -amount), (to, amount)].into_iter().flat_map(|(id, amount)| {
            let mut account = self.accounts[&id].clone();
            account.balance += amount;
            let posting = Posting { account: id, transfer: number, amount, text: text.clone() };
            [Change::PutAccount(account), Change::PutPosting(posting)]
        });
        moved.collect()
    }
}

fn relabelled(account: &Account, number: u32) -> Account {
    Account { label: format!("{} of {number}", account.id), ..account.clone() }
}

/// An open database with the two tables.
pub struct Bank<P: Protocol> {
    pub database: Database<P>,
    accounts: Table<Account>,
    postings: Table<Posting>,
}

pub fn builder<P: Protocol>() -> Builder<P> {
    Database::builder().protocol::<P>().table::<Account>().table::<Posting>()
}

impl<P: Protocol> Bank<P> {
    pub fn of(database: Database<P>) -> Self {
        let (accounts, postings) = (database.table().unwrap(), database.table().unwrap());
        Bank { database, accounts, postings }
    }

    /// Applies `changes` in a transaction.
    pub fn change(&self, tx: &Transaction<'_, P>, changes: &[Change]) -> Result<(), Error> {
        for change in changes {
            match change.clone() {
                Change::PutAccount(account) => {
                    let id = account.id;
                    if tx.get(&self.accounts, &id)?.is_none() {
                        tx.insert(&self.accounts, account)?;
                    } else if id % 2 == 0 {
                        tx.upsert(&self.accounts, account)?;
                    } else {
                        tx.update(&self.accounts, &id, |row| *row = account)?;
                    }
                }
                Change::DeleteAccount(id) => {
                    assert!(tx.delete(&self.accounts, &id)?, "account {id} does not exist");
                }
                Change::PutPosting(posting) => {
                    tx.upsert(&self.postings, posting)?;
                }
                Change::DeletePosting(account, transfer) => {
                    let key = (account, transfer);
                    assert!(tx.delete(&self.postings, &key)?, "posting {key:?} does not exist");
                }
            }
        }
        Ok(())
    }

    /// Returns all rows, and checks that every index has exactly these rows.
    pub fn state(&self) -> State {
        let read = self.database.snapshot(|snapshot| {
            let mut state = State::default();
            for account in snapshot.range(&self.accounts, ..) {
                let account = account?;
                let found = snapshot.get_by(&self.accounts, Account::LABEL, &account.label)?;
                assert_eq!(found, Some(account), "by its label");
                state.accounts.insert(account.id, account.clone());
            }
            for posting in snapshot.range(&self.postings, ..) {
                let posting = posting?;
                state.postings.insert((posting.account, posting.transfer), posting.clone());
            }
            let mut by_branch = BTreeMap::new();
            for account in snapshot.range_by(&self.accounts, Account::BRANCH, ..) {
                let account = account?;
                by_branch.insert(account.id, account.clone());
            }
            let mut by_transfer = BTreeMap::new();
            for posting in snapshot.range_by(&self.postings, Posting::TRANSFER, ..) {
                let posting = posting?;
                by_transfer.insert((posting.account, posting.transfer), posting.clone());
            }
            assert_eq!(by_branch, state.accounts, "by branch");
            assert_eq!(by_transfer, state.postings, "by transfer");
            let labels = snapshot.range_by(&self.accounts, Account::LABEL, ..).count();
            assert_eq!(labels, state.accounts.len(), "labels");
            Ok::<_, Error>(state)
        });
        read.unwrap()
    }
}
