//! The load, and how often clients draw each transaction, article and user.

use weft::protocol::Dbx;

use super::{TINY, assert_consistent, load};
use crate::articles::load::{Discussion, LOADED_COMMENTS_MAX, draw_user};
use crate::articles::schema::{TEXT_BYTES_MAX, numbered_id};
use crate::articles::{Articles, Parameters, Request};
use crate::stashing::Draws;
use crate::workload::Workload;

#[test]
fn the_load_is_the_same_on_any_number_of_threads() {
    const SEED: u64 = 31;
    // Units of the load are 10,000 rows. One of them has articles and users.
    let parameters = Parameters { articles: 15_000, users: 12_000, ..TINY };
    for threads in [1, 3] {
        let articles: Articles<Dbx> = load(&parameters, SEED, threads);
        assert_consistent(&articles, &format!("{threads} threads, seed {SEED}"));
    }
}

#[test]
fn the_population_has_the_proportions_of_the_benchmark() {
    const SEED: u64 = 32;
    const ARTICLES: u64 = 20_000;
    const USERS: u64 = 10;
    let (mut with, mut comments, mut by) = ([0_u64; 4], 0, [0_u64; USERS as usize]);
    for a_id in 0..ARTICLES {
        let discussion = Discussion::draw(SEED, a_id, USERS);
        assert_eq!(discussion, Discussion::draw(SEED, a_id, USERS));
        assert_ne!(discussion, Discussion::draw(SEED + 1, a_id, USERS));
        let Discussion { article, comments: on_it } = discussion;
        assert_eq!((article.a_id, article.a_num_comments as usize), (a_id, on_it.len()));
        assert!(on_it.len() < LOADED_COMMENTS_MAX as usize);
        assert_eq!((article.a_title.len(), article.a_text.len()), (100, 100));
        assert!(article.a_attr.iter().all(|attribute| attribute.len() == 8));
        comments += on_it.len() as u64;
        with.get_mut(on_it.len()).into_iter().for_each(|count| *count += 1);
        for (number, comment) in on_it.iter().enumerate() {
            assert_eq!(comment.c_id, numbered_id(a_id, number as u64));
            assert!(comment.c_attr.iter().all(|attribute| attribute.len() == 8));
            by[comment.c_u_id as usize] += 1;
        }
    }
    // The probability of k is proportional to 1 / (k + 1)^2.
    let total: f64 = (1..=LOADED_COMMENTS_MAX).map(|k| (k as f64).powi(-2)).sum();
    for (k, &count) in with.iter().enumerate() {
        let expected = ARTICLES as f64 * ((k + 1) as f64).powi(-2) / total;
        let bound = 4.0 * expected.sqrt();
        assert!((count as f64 - expected).abs() < bound, "seed {SEED}: {k} comments: {count}");
    }
    let mean = comments as f64 / ARTICLES as f64;
    assert!((2.8..4.4).contains(&mean), "seed {SEED}: {mean} comments, where 3.55 are expected");
    let even = comments / USERS;
    assert!(by.iter().all(|&by| by.abs_diff(even) < even / 10), "seed {SEED}: {by:?}");

    let lengths = (0..2_000).flat_map(|u_id| {
        let user = draw_user(SEED, u_id);
        assert_eq!(user, draw_user(SEED, u_id));
        assert!(user.u_email.starts_with(&format!("{u_id}@")), "{user:?}");
        [user.u_firstname.len(), user.u_lastname.len(), user.u_password.len()]
    });
    let (mut outer, mut inner) = (0, 0);
    for length in lengths {
        assert!((5..=TEXT_BYTES_MAX).contains(&length), "seed {SEED}: {length}");
        // The middle half of the range: one standard deviation to each side.
        let is_inner = (29..=76).contains(&length);
        (outer, inner) = (outer + u32::from(!is_inner), inner + u32::from(is_inner));
    }
    assert!(inner > 2 * outer && outer > inner / 4, "seed {SEED}: {inner} and {outer}");
}

#[test]
fn the_shares_of_transactions_articles_and_users_are_those_asked_for() {
    const SEED: u64 = 33;
    const DRAWS: usize = 100_000;
    for alpha in [0.0, 1.0] {
        let parameters = Parameters { articles: 30, users: 7, alpha, ..TINY };
        let articles: Articles<Dbx> = load(&parameters, SEED, 1);
        let mut client = articles.client(SEED, 0, 1);
        let (mut types, mut of_articles, mut of_users) = ([0_u32; 4], [0_u32; 30], [0_u32; 7]);
        for _ in 0..DRAWS {
            let request = client.draw();
            types[request.transaction_type() as usize] += 1;
            match request {
                Request::GetArticle { article } | Request::GetComments { article } => {
                    of_articles[article as usize] += 1;
                }
                Request::AddComment { post, .. } => {
                    of_articles[post.article as usize] += 1;
                    of_users[post.user as usize] += 1;
                }
                Request::UpdateUser { user, .. } => of_users[user as usize] += 1,
            }
        }
        let near = |count: u32, of: &[u32], share: f64| {
            let expected = f64::from(of.iter().sum::<u32>()) * share;
            (f64::from(count) - expected).abs() <= 5.0 * expected.sqrt()
        };
        for (count, weight) in types.into_iter().zip(parameters.mix.weights()) {
            let share = f64::from(weight) / 100.0;
            assert!(near(count, &types, share), "seed {SEED}, alpha {alpha}: {types:?}");
        }
        let first = |records: u32| {
            1.0 / (1..=records).map(|rank| f64::from(rank).powf(-alpha)).sum::<f64>()
        };
        let popular = of_articles[articles.choice.popular_articles[0] as usize];
        assert!(near(popular, &of_articles, first(30)), "seed {SEED}: {of_articles:?}");
        let popular = of_users[articles.choice.popular_users[0] as usize];
        assert!(near(popular, &of_users, first(7)), "seed {SEED}: {of_users:?}");
    }
}

/// Protects against two clients that choose the same identifier or name.
#[test]
fn no_two_requests_are_numbered_alike() {
    const SEED: u64 = 34;
    let articles: Articles<Dbx> = load(&TINY, SEED, 1);
    let (mut posts, mut names) = (Vec::new(), Vec::new());
    // Two rounds with the same seed, as in a benchmark.
    for thread in [0, 1, 0, 1] {
        let mut client = articles.client(SEED, thread, 2);
        for _ in 0..500 {
            match client.draw() {
                Request::AddComment { post, .. } => posts.push((post.client, post.number)),
                Request::UpdateUser { lastname, .. } => names.push(lastname),
                _ => {}
            }
        }
    }
    let (all_posts, all_names) = (posts.len(), names.len());
    posts.sort_unstable();
    posts.dedup();
    names.sort_unstable();
    names.dedup();
    assert!(all_posts > 100 && all_names > 50);
    assert_eq!((posts.len(), names.len()), (all_posts, all_names), "seed {SEED}");
}
