//! The four transactions as procedures.

use std::cell::RefCell;

use weft::protocol::Dbx;
use weft_procedures::Access;

use super::{TINY, load};
use crate::articles::load::saying;
use crate::articles::schema::{Article, Comment, User, new_id, numbered_id};
use crate::articles::{Articles, Request, TransactionType, procedures, transactions};
use crate::procedures::rehearsal::{Change, Met, Subject, Tally, subject};
use crate::stashing::Draws;
use crate::workload::Workload;

/// Returns some changes to an article, and to rows that a transaction has accessed.
fn changes(
    articles: &Articles<Dbx>,
    random: &mut fastrand::Rng,
    met: &[Met],
    article: u64,
) -> Vec<Change> {
    (0..random.usize(1..=3)).map(|_| change(articles, random, met, article)).collect()
}

fn change(
    articles: &Articles<Dbx>,
    random: &mut fastrand::Rng,
    met: &[Met],
    article: u64,
) -> Change {
    let tables = &articles.tables;
    let number = random.u64(..8);
    let user = number % TINY.users;
    let met = (!met.is_empty()).then(|| &met[random.usize(..met.len())]);
    if let Some(&key) = met.and_then(Met::key::<User>) {
        return Change::update(&tables.users, key, |row: &mut User| {
            row.u_firstname.clear();
        });
    }
    match random.u32(..3) {
        0 => Change::update(&tables.articles, article, move |row: &mut Article| {
            row.a_num_comments = number as i64 + 1_000;
        }),
        1 => Change::update(&tables.articles, article, |row: &mut Article| row.a_title.clear()),
        _ => {
            // An early number of its article, or a client's number.
            let c_id = match random.bool() {
                true => numbered_id(article, number),
                false => new_id(1_000, number as u32),
            };
            let row = random.bool().then(|| Comment {
                c_a_id: article,
                c_id,
                c_u_id: user,
                c_text: saying(0, article, user),
                c_attr: Default::default(),
            });
            Change::put(&tables.comments, (article, c_id), row)
        }
    }
}

/// Tries a transaction, with both ways to add comments.
fn try_one(articles: &Articles<Dbx>, request: &Request, seed: u64, tally: &mut Tally) {
    let random = RefCell::new(fastrand::Rng::with_seed(seed));
    let tables = &articles.tables;
    let around = match request {
        Request::GetArticle { article } | Request::GetComments { article } => *article,
        Request::AddComment { post, .. } => post.article,
        Request::UpdateUser { .. } => 0,
    };
    let mut attempt = |subject: &Subject<'_>| {
        let choose = |met: &[Met]| changes(articles, &mut random.borrow_mut(), met, around);
        let mut own = fastrand::Rng::with_seed(!seed);
        let context = format!("seed {seed}");
        tally.trial(articles.database(), subject, subject.shape, &mut own, &choose, &context);
    };
    match request {
        Request::GetArticle { article } => {
            attempt(&subject!(|| transactions::GetArticle::new(tables, *article)));
        }
        Request::GetComments { article } => {
            attempt(&subject!(|| transactions::GetComments::new(tables, *article)));
        }
        Request::AddComment { post, .. } => {
            attempt(&subject!(|| transactions::AddComment::new(tables, post)));
            attempt(&subject!(|| transactions::AddCommentByReading::new(tables, post)));
        }
        Request::UpdateUser { user, lastname, .. } => {
            attempt(&subject!(|| transactions::UpdateUser::new(tables, *user, lastname)));
        }
    }
}

#[test]
fn a_repair_comes_to_the_same_as_a_run_from_the_start() {
    let articles: Articles<Dbx> = load(&TINY, 3, 1);
    let mut client = articles.client(1, 0, 1);
    let mut tallies: [Tally; 4] = Default::default();
    for seed in 0..2_000 {
        let request = client.draw();
        try_one(&articles, &request, seed, &mut tallies[request.transaction_type() as usize]);
    }
    for (tally, of_type) in tallies.iter().zip(TransactionType::ALL) {
        println!("{of_type:?}: {tally:?}");
        assert!(tally.trials > 100 && tally.ran_again > 0, "{of_type:?}: {tally:?}");
    }
    let comments = &tallies[TransactionType::AddComment as usize];
    assert!(comments.kept > 0, "{comments:?}");
}

/// Checks the dependencies in AddComment, which limit chopping and repair. With an operation, no step depends on
/// another. With reading and writing, every step depends on the first read.
#[test]
fn a_comment_depends_on_nothing_but_by_reading() {
    let shapes = procedures();
    let shape = |name| *shapes.iter().find(|shape| shape.name == name).expect("it is listed");
    let by_operation = shape("add_comment");
    assert_eq!(by_operation.steps.len(), 2);
    assert!(by_operation.steps.iter().all(|step| step.dependencies().next().is_none()));
    assert!(matches!(by_operation.steps[1].access, Access::Operation(_)));
    assert_eq!(by_operation.steps[1].writes, Some(&["a_num_comments"][..]));

    let by_reading = shape("add_comment_by_reading");
    let [read, insert, update] = by_reading.steps else { panic!("{by_reading:?}") };
    assert_eq!(read.reads, Some(&["a_num_comments"][..]));
    for step in [insert, update] {
        assert!(step.dependencies().any(|dependency| dependency.on == 0), "{step:?}");
    }
}
