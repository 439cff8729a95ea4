//! Every protocol, on a database so small that the clients' transactions conflict often.

use std::thread;

use crate::trials::with_protocol;
use weft::column_of;
use weft::operation::Add;
use weft::protocol::Protocol;
use weft_protocols::{Doppel, LabelledDatabase};

use super::{TINY, assert_consistent, load, runnable_protocols};
use crate::articles::schema::Article;
use crate::articles::{Articles, Mix, Parameters, TransactionType};
use crate::snapshots::Snapshots;
use crate::workload::Workload;

const THREADS: usize = 4;
const TRANSACTIONS_PER_THREAD: u32 = 1_500;

/// Runs clients on as many threads as the protocol allows, on a database of its own.
fn run<P: Protocol>(parameters: &Parameters, seed: u64) -> [u64; 4] {
    drive(&load::<P>(parameters, seed, THREADS), seed)
}

/// Runs clients, and checks the invariants. Returns how many transactions of each type there were.
fn drive<P: Protocol>(articles: &Articles<P>, seed: u64) -> [u64; 4] {
    let threads = THREADS.min(P::WORKERS_MAX);
    let mut ended = [0; 4];
    thread::scope(|scope| {
        let clients: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut client = articles.client(seed, thread, threads);
                    let mut ended = [0; 4];
                    for number in 0..TRANSACTIONS_PER_THREAD {
                        let outcome = articles.execute(&mut client).expect("it runs to its end");
                        assert!(!outcome.rolled_back, "every requested row exists");
                        ended[outcome.transaction] += 1;
                        if number % 8 == 0 {
                            // Yield so often that other threads run in between, even if there are few cores.
                            thread::yield_now();
                        }
                    }
                    articles.finish(&mut client).expect("all requests run to their end");
                    ended
                })
            })
            .collect();
        for client in clients {
            let counts: [u64; 4] = client.join().expect("no client panics");
            ended.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    });
    assert_consistent(articles, &format!("{}, {:?}, seed {seed}", P::NAME, articles.parameters));
    let (added, _) = articles.source.comments.changes();
    let added_at_least = ended[TransactionType::AddComment as usize];
    assert!(added >= added_at_least, "{}: {added} comments, of {added_at_least}", P::NAME);
    ended
}

/// As [`run`], under every protocol. Some transactions of each drawn type must have run.
fn run_all(parameters: &Parameters, seed: u64) {
    for name in runnable_protocols() {
        let ended =
            with_protocol!(name, |P| run::<P>(parameters, seed)).expect("a name of the list");
        for (count, weight) in ended.into_iter().zip(parameters.mix.weights()) {
            assert_eq!(count > 0, weight > 0, "{name}, {parameters:?}, seed {seed}: {ended:?}");
        }
    }
}

#[test]
fn the_standard_mix_keeps_every_condition() {
    run_all(&TINY, 51);
}

/// Comments on the same few articles, and names for the same few users.
#[test]
fn a_contended_mix_keeps_every_condition() {
    let mix = "1,1,6,4".parse().expect("a mix");
    run_all(&Parameters { articles: 2, users: 2, mix, alpha: 2.0, ..TINY }, 52);
}

/// If an update of a count is lost, two comments get the same number.
#[test]
fn comments_that_read_and_write_keep_every_condition() {
    let mix = "1,1,6,1".parse().expect("a mix");
    run_all(&Parameters { articles: 3, mix, operations: false, ..TINY }, 53);
}

/// Articles and comments are read on snapshots, while others are added.
#[test]
fn snapshots_beside_changes_keep_every_condition() {
    run_all(&Parameters { snapshots: Snapshots::On, ..TINY }, 54);
    run_all(&Parameters { snapshots: Snapshots::Recent, ..TINY }, 55);
}

/// The count of the most popular article is split. So a transaction that reads the article is set aside, or waits
/// for a snapshot.
#[test]
fn counts_that_are_split_keep_every_condition() {
    for (seed, snapshots) in [(56, Snapshots::Off), (57, Snapshots::On), (58, Snapshots::Recent)] {
        let articles: Articles<Doppel> = load(&Parameters { snapshots, ..TINY }, seed, THREADS);
        let (table, popular) = (&articles.tables.articles, articles.source.popular_articles[0]);
        let counts = column_of!(Article.a_num_comments);
        let labelled = articles.database.label_split::<_, _, Add<_>>(table, &popular, counts);
        labelled.expect("the column can be split");
        drive(&articles, seed);
        let phases = articles.database.metrics().phases.expect("the protocol has phases");
        assert!(phases.split_phases > 0 && phases.reconciled_rows > 0, "seed {seed}: {phases:?}");
        assert!(snapshots.are_used() || phases.stashed > 0, "seed {seed}: {phases:?}");
    }
}

#[test]
fn each_transaction_alone_keeps_every_condition() {
    for transaction in TransactionType::ALL {
        run_all(&Parameters { mix: Mix::only(transaction), ..TINY }, 55);
    }
}
