//! Tests of the workload as a whole: the users and pages that clients choose, that every protocol counts every like
//! and never shows part of one, and that verification finds damage.

use std::thread;

use crate::trials::{runnable_protocols, with_protocol};
use weft::Error;
use weft::htm::Choice as Htm;
use weft::htm::word::{Ordering, Word};
use weft::protocol::{Dbx, Protocol};

use super::{Like, Page, Parameters, Request, User};
use crate::stashing::{ClientRequest, RequestClient};
use crate::workload::{LoadOptions, Workload};

/// Returns a loaded database, with the HTM backend that the environment names.
fn load<P: Protocol>(parameters: &Parameters, seed: u64, threads: usize) -> Like<P> {
    let htm = Htm::from_environment().expect("WEFT_HTM names a backend").unwrap_or(Htm::Auto);
    let options = LoadOptions { seed, threads, htm: Some(htm), ..LoadOptions::default() };
    Like::load(parameters, &options).expect("loads")
}

/// Returns the conditions that do not hold, in words.
fn broken<P: Protocol>(like: &Like<P>) -> Vec<String> {
    let conditions = like.verify(&|_, _| {}).expect("verification reads every row");
    assert_eq!(conditions.len(), 5);
    assert!(conditions.iter().all(|condition| condition.checked > 0), "{conditions:?}");
    conditions.iter().filter(|condition| !condition.holds).map(ToString::to_string).collect()
}

fn assert_consistent<P: Protocol>(like: &Like<P>, context: &str) {
    assert_eq!(broken(like), [""; 0], "{context}");
}

fn few(write_percent: u32) -> Parameters {
    Parameters { users: 40, pages: 30, alpha: 1.4, write_percent }
}

#[test]
fn transactions_users_and_pages_have_their_shares() {
    const SEED: u64 = 11;
    const DRAWS: usize = 60_000;
    for write_percent in [0, 30, 100] {
        let parameters = few(write_percent);
        let like: Like<Dbx> = load(&parameters, SEED, 1);
        let mut client = like.client(SEED, 0, 1);
        let (mut likes, mut users, mut pages) = (0, [0; 40], [0; 30]);
        for _ in 0..DRAWS {
            let request = client.draw();
            let (Request::Like { user, page, .. } | Request::Read { user, page }) = request;
            likes += usize::from(request.transaction() == 0);
            users[user as usize] += 1;
            pages[page as usize] += 1;
        }
        let near = |count: usize, expected: f64| {
            (count as f64 - expected).abs() <= 4.0 * expected.sqrt() + 1e-9
        };
        let expected = DRAWS as f64 * f64::from(write_percent) / 100.0;
        assert!(near(likes, expected), "seed {SEED}, {write_percent} %: {likes} likes");
        let expected = DRAWS as f64 / users.len() as f64;
        assert!(users.iter().all(|&count| near(count, expected)), "seed {SEED}: {users:?}");
        let total: f64 = (1..=30).map(|rank| f64::from(rank).powf(-1.4)).sum();
        let popular = like.source.popular[0] as usize;
        assert!(near(pages[popular], DRAWS as f64 / total), "seed {SEED}: {pages:?}");
    }
}

const THREADS: usize = 4;
const TRANSACTIONS_PER_THREAD: u32 = 3_000;

/// Runs clients on as many threads as the protocol allows, and checks the invariants. Returns how many transactions
/// of each type there were.
fn run<P: Protocol>(parameters: &Parameters, seed: u64) -> [u32; 2] {
    let threads = THREADS.min(P::WORKERS_MAX);
    let like: Like<P> = load(parameters, seed, threads);
    let ended = [Word::new(0), Word::new(0)];
    thread::scope(|scope| {
        for thread in 0..threads {
            let (like, ended) = (&like, &ended);
            scope.spawn(move || {
                let mut client = like.client(seed, thread, threads);
                for number in 0..TRANSACTIONS_PER_THREAD {
                    let outcome = like.execute(&mut client).expect("it runs to its end");
                    assert!(!outcome.rolled_back);
                    // Relaxed: the sum is read only after the threads have been joined.
                    ended[outcome.transaction].fetch_add(1, Ordering::Relaxed);
                    if number % 8 == 0 {
                        // Yield so often that other threads run in between, even if there are few cores.
                        thread::yield_now();
                    }
                }
            });
        }
    });
    let context = format!("{}, {parameters:?}, seed {seed}", P::NAME);
    assert_consistent(&like, &context);
    let ended = ended.map(|count| count.load(Ordering::Relaxed) as u32);
    assert_eq!(like.source.ledgers.changes().0, u64::from(ended[0]), "{context}");
    ended
}

#[test]
fn every_protocol_counts_every_like() {
    for name in runnable_protocols() {
        for (seed, write_percent) in [(12, 50), (13, 100), (14, 10)] {
            let [likes, reads] = with_protocol!(name, |P| run::<P>(&few(write_percent), seed))
                .expect("a name of the list");
            assert!(likes > 100 && (reads > 100 || write_percent == 100), "{name}, seed {seed}");
        }
    }
}

/// With one user and one page, a like changes both rows. So a transaction that reads both sees two equal numbers.
#[test]
fn readers_see_whole_likes() {
    fn run<P: Protocol>() {
        if P::WORKERS_MAX < 2 {
            return;
        }
        const SEED: u64 = 15;
        let parameters = Parameters { users: 1, pages: 1, alpha: 0.0, write_percent: 100 };
        let like: Like<P> = load(&parameters, SEED, 1);
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                let mut client = like.client(SEED, 0, 1);
                for _ in 0..TRANSACTIONS_PER_THREAD {
                    like.execute(&mut client).expect("it runs to its end");
                }
            });
            let mut looks = 0;
            while !client.is_finished() || looks < 10 {
                let found = like.database.transact(|tx| -> Result<(i64, u64), Error> {
                    let likes = tx.get(&like.pages, &0)?.expect("the page").likes;
                    Ok((likes, tx.get(&like.users, &0)?.expect("the user").likes_given))
                });
                let (received, given) = found.expect("it runs to its end");
                assert_eq!(u64::try_from(received), Ok(given), "{}", P::NAME);
                looks += 1;
            }
        });
        assert_consistent(&like, P::NAME);
    }
    for name in runnable_protocols() {
        with_protocol!(name, |P| run::<P>()).expect("a name of the list");
    }
}

#[test]
fn the_load_is_the_same_on_any_number_of_threads() {
    for threads in [1, 3] {
        let parameters = Parameters { users: 15_000, pages: 12_000, ..Parameters::default() };
        let like: Like<Dbx> = load(&parameters, 16, threads);
        assert_consistent(&like, &format!("{threads} threads"));
    }
}

/// Damages a database, and checks what verification reports.
#[test]
fn verification_finds_what_is_wrong() {
    const SEED: u64 = 17;
    type Damage = fn(&Like<Dbx>, u64) -> Result<(), Error>;
    let lost_like: Damage = |like, page| {
        let lose = |row: &mut Page| row.likes -= 1;
        like.database.transact(|tx| tx.update(&like.pages, &page, lose).map(drop))
    };
    let moved_like: Damage = |like, page| {
        like.database.transact(|tx| {
            tx.update(&like.pages, &page, |row| row.likes -= 1)?;
            let other = (page + 1) % like.parameters.pages;
            tx.update(&like.pages, &other, |row| row.likes += 1).map(drop)
        })
    };
    let half_a_like: Damage = |like, _| {
        let give = |row: &mut User| row.likes_given += 1;
        like.database.transact(|tx| tx.update(&like.users, &3, give).map(drop))
    };
    let forgotten: Damage = |like, _| {
        let forget = |row: &mut User| row.last_page = None;
        like.database.transact(|tx| tx.update(&like.users, &3, forget).map(drop))
    };
    let no_user: Damage = |like, _| {
        like.database.transact(|tx| {
            let row = *tx.get(&like.users, &3)?.expect("a user");
            tx.delete(&like.users, &3)?;
            tx.update(&like.users, &4, |other| other.likes_given += row.likes_given).map(drop)
        })
    };
    let cases: [(Damage, &[&str]); 5] = [
        (lost_like, &["sum of the pages' likes", "each popular page"]),
        (moved_like, &["each popular page"]),
        (half_a_like, &["sum of the likes that users gave"]),
        (forgotten, &["users: each"]),
        (no_user, &["users: each"]),
    ];
    for (damage, expected) in cases {
        let like: Like<Dbx> = load(&few(80), SEED, 1);
        let mut client = like.client(SEED, 0, 1);
        for _ in 0..2_000 {
            like.execute(&mut client).expect("it runs to its end");
        }
        assert_consistent(&like, "before");
        damage(&like, like.source.popular[0]).expect("it is done");
        let found = broken(&like);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found:?}");
        }
    }
}
