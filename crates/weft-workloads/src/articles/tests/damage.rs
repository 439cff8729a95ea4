//! Each rule can fail: the test damages one row, and exactly the rules about this row must report it.

use weft::protocol::Dbx;
use weft::{Error, Transaction};

use super::{TINY, conditions, load};
use crate::articles::conditions::Rule;
use crate::articles::load::{Discussion, draw_user, name, saying};
use crate::articles::schema::{Comment, client_of, new_id, numbered_id};
use crate::articles::{Articles, Parameters, Tables};
use crate::workload::Workload;

const SEED: u64 = 61;

/// A small database on which all transactions have been run.
fn database(operations: bool) -> Articles<Dbx> {
    let articles: Articles<Dbx> = load(&Parameters { operations, ..TINY }, SEED, 1);
    let mut client = articles.client(SEED, 0, 1);
    for _ in 0..1_000 {
        articles.execute(&mut client).expect("a transaction runs to its end");
    }
    articles
}

/// Returns the rules that do not hold.
fn broken_rules(articles: &Articles<Dbx>) -> Vec<Rule> {
    let rules = Rule::ALL.into_iter().zip(conditions(articles));
    rules.filter(|(_, condition)| !condition.holds).map(|(rule, _)| rule).collect()
}

type Damage = fn(&Articles<Dbx>, &Tables, &Transaction<'_, Dbx>) -> Result<(), Error>;

/// Changes rows without the clients, and compares the rules that break.
#[track_caller]
fn assert_breaks_with(operations: bool, expected: &[Rule], damage: Damage) {
    let articles = database(operations);
    assert_eq!(broken_rules(&articles), [], "before the change");
    let damaged = articles.database.transact(|tx| damage(&articles, &articles.tables, tx));
    damaged.expect("the change commits");
    assert_eq!(broken_rules(&articles), expected);
}

#[track_caller]
fn assert_breaks(expected: &[Rule], damage: Damage) {
    assert_breaks_with(true, expected, damage);
}

/// Returns the article with the most comments.
fn popular(articles: &Articles<Dbx>) -> u64 {
    articles.source.popular_articles[0]
}

/// Returns a comment that a client added to an article.
fn added(tables: &Tables, tx: &Transaction<'_, Dbx>, article: u64) -> Result<Comment, Error> {
    let mut rows = tx.prefix(&tables.comments, &article);
    let row = rows.find(|row| row.as_ref().is_ok_and(|row| client_of(row.c_id).is_some()));
    Ok(*row.expect("the article has new comments")?)
}

/// Returns an article that was loaded with comments.
fn discussed(users: u64) -> Discussion {
    let mut all = (0..TINY.articles).map(|a_id| Discussion::draw(SEED, a_id, users));
    all.find(|discussion| discussion.comments.len() > 1).expect("one has comments")
}

#[test]
fn loaded_row_has_changed() {
    assert_breaks(&[Rule::Articles], |_, tables, tx| {
        tx.update(&tables.articles, &3, |row| row.a_attr[14].clear()).map(drop)
    });
    assert_breaks(&[Rule::Users], |_, tables, tx| {
        tx.update(&tables.users, &3, |row| row.u_password.clear()).map(drop)
    });
    assert_breaks(&[Rule::Comments], |_, tables, tx| {
        let Comment { c_a_id, c_id, .. } = discussed(TINY.users).comments[0];
        tx.update(&tables.comments, &(c_a_id, c_id), |row| row.c_attr[9].clear()).map(drop)
    });
}

#[test]
fn one_too_many() {
    assert_breaks(&[Rule::Articles], |articles, tables, tx| {
        let row = Discussion::draw(SEED, articles.parameters.articles, TINY.users).article;
        tx.insert(&tables.articles, row)
    });
    assert_breaks(&[Rule::Users, Rule::Addresses], |articles, tables, tx| {
        tx.insert(&tables.users, draw_user(SEED, articles.parameters.users))
    });
}

#[test]
fn article_that_was_lost() {
    let expected = [Rule::Articles, Rule::PopularCounted, Rule::References];
    assert_breaks(&expected, |articles, tables, tx| {
        tx.delete(&tables.articles, &popular(articles)).map(drop)
    });
}

#[test]
fn user_that_was_lost() {
    assert_breaks(&[Rule::Users, Rule::PopularNames, Rule::Addresses], |articles, tables, tx| {
        tx.delete(&tables.users, &articles.source.popular_users[0]).map(drop)
    });
}

#[test]
fn count_that_was_lost() {
    assert_breaks(&[Rule::CommentsCounted, Rule::PopularCounted], |articles, tables, tx| {
        tx.update(&tables.articles, &popular(articles), |row| row.a_num_comments -= 1).map(drop)
    });
}

#[test]
fn comment_that_was_lost() {
    assert_breaks(&[Rule::CommentsCounted, Rule::AllCounted], |articles, tables, tx| {
        let row = added(tables, tx, popular(articles))?;
        tx.delete(&tables.comments, &(row.c_a_id, row.c_id)).map(drop)
    });
}

#[test]
fn loaded_comment_that_was_lost() {
    let expected = [Rule::CommentsCounted, Rule::Comments, Rule::AllCounted];
    assert_breaks(&expected, |_, tables, tx| {
        let Comment { c_a_id, c_id, .. } = discussed(TINY.users).comments[1];
        tx.delete(&tables.comments, &(c_a_id, c_id)).map(drop)
    });
}

/// The number of comments is right, and each article counts its own. Only the counts of the popular articles
/// differ.
#[test]
fn comment_on_another_article() {
    assert_breaks(&[Rule::PopularCounted], |articles, tables, tx| {
        let row = added(tables, tx, popular(articles))?;
        let c_a_id = (row.c_a_id + 1) % TINY.articles;
        tx.delete(&tables.comments, &(row.c_a_id, row.c_id))?;
        tx.update(&tables.articles, &row.c_a_id, |row| row.a_num_comments -= 1)?;
        tx.update(&tables.articles, &c_a_id, |row| row.a_num_comments += 1)?;
        let c_text = saying(SEED, c_a_id, row.c_u_id);
        tx.insert(&tables.comments, Comment { c_a_id, c_text, ..row })
    });
}

/// As after a lost update: two comments, but the identifier of one transaction.
#[test]
fn comment_that_was_added_twice() {
    let expected =
        [Rule::CommentsCounted, Rule::PopularCounted, Rule::Identifiers, Rule::AllCounted];
    assert_breaks(&expected, |articles, tables, tx| {
        let row = added(tables, tx, popular(articles))?;
        tx.update(&tables.articles, &row.c_a_id, |row| row.a_num_comments += 1)?;
        let c_a_id = (row.c_a_id + 1) % TINY.articles;
        let c_text = saying(SEED, c_a_id, row.c_u_id);
        tx.insert(&tables.comments, Comment { c_a_id, c_text, ..row })
    });
}

#[test]
fn comment_of_another_user() {
    assert_breaks(&[Rule::Comments], |articles, tables, tx| {
        let row = added(tables, tx, popular(articles))?;
        let other = (row.c_u_id + 1) % TINY.users;
        tx.update(&tables.comments, &(row.c_a_id, row.c_id), |row| row.c_u_id = other).map(drop)
    });
}

#[test]
fn comment_by_an_unknown_user() {
    assert_breaks(&[Rule::References], |articles, tables, tx| {
        let row = added(tables, tx, popular(articles))?;
        let (key, c_u_id) = ((row.c_a_id, row.c_id), TINY.users);
        let c_text = saying(SEED, row.c_a_id, c_u_id);
        tx.update(&tables.comments, &key, |row| (row.c_u_id, row.c_text) = (c_u_id, c_text))
            .map(drop)
    });
}

#[test]
fn comment_on_nothing() {
    assert_breaks(&[Rule::References, Rule::AllCounted], |articles, tables, tx| {
        let row = added(tables, tx, popular(articles))?;
        tx.insert(&tables.comments, Comment { c_a_id: TINY.articles, ..row })
    });
}

/// Otherwise the comment is as if a client had added it correctly.
#[test]
fn identifier_of_no_client() {
    assert_breaks(&[Rule::Identifiers], |articles, tables, tx| {
        let row = added(tables, tx, popular(articles))?;
        tx.delete(&tables.comments, &(row.c_a_id, row.c_id))?;
        tx.insert(&tables.comments, Comment { c_id: new_id(1, 0), ..row })
    });
}

/// Comments that are numbered by their articles have no gaps.
#[test]
fn number_that_was_left_out() {
    assert_breaks_with(false, &[Rule::Identifiers], |articles, tables, tx| {
        let a_id = popular(articles);
        let count = tx.get(&tables.articles, &a_id)?.expect("an article").a_num_comments as u64;
        let last = numbered_id(a_id, count - 1);
        let row = *tx.get(&tables.comments, &(a_id, last))?.expect("the last");
        tx.delete(&tables.comments, &(a_id, last))?;
        tx.insert(&tables.comments, Comment { c_id: last + 1, ..row })
    });
}

#[test]
fn name_of_no_client() {
    assert_breaks(&[Rule::Users, Rule::PopularNames], |articles, tables, tx| {
        let user = articles.source.popular_users[0];
        let halves = [name(SEED, 0, 0), name(SEED, 0, 1)];
        let torn = [&halves[0][..50], &halves[1][50..]].concat();
        tx.update(&tables.users, &user, |row| {
            row.u_lastname = torn.parse().expect("it fits");
        })
        .map(drop)
    });
}

/// A name that the client has not drawn yet.
#[test]
fn name_from_the_future() {
    assert_breaks(&[Rule::Users, Rule::PopularNames], |articles, tables, tx| {
        let drawn = articles.source.names.drawn()[0];
        let next = name(SEED, 0, drawn as u32);
        let user = articles.source.popular_users[0];
        tx.update(&tables.users, &user, |row| row.u_lastname = next).map(drop)
    });
}

/// The client's last update has been lost: the row has an earlier name by this client, or the loaded one.
#[test]
fn name_that_was_lost() {
    assert_breaks(&[Rule::PopularNames], |articles, tables, tx| {
        let user = articles.source.popular_users[0];
        let last = articles.source.names.last(0)[0].expect("there was one");
        let earlier = name(SEED, 0, last as u32 - 1);
        tx.update(&tables.users, &user, |row| row.u_lastname = earlier).map(drop)
    });
    assert_breaks(&[Rule::PopularNames], |articles, tables, tx| {
        let user = articles.source.popular_users[0];
        let loaded = draw_user(SEED, user).u_lastname;
        tx.update(&tables.users, &user, |row| row.u_lastname = loaded).map(drop)
    });
}

/// A test cannot damage an index without its table. So this changes the row that the index leads to.
#[test]
fn address_of_no_user() {
    assert_breaks(&[Rule::Users, Rule::Addresses], |_, tables, tx| {
        tx.update(&tables.users, &3, |row| row.u_email.push('A')).map(drop)
    });
}

#[test]
fn violation_shows_both_sides() {
    let articles = database(true);
    let change = |tx: &Transaction<'_, Dbx>| {
        tx.update(&articles.tables.articles, &2, |row| row.a_num_comments = 1_234).map(drop)
    };
    articles.database.transact(change).expect("the change commits");
    let condition = &conditions(&articles)[Rule::CommentsCounted as usize];
    let detail = condition.detail.as_ref().expect("a violation");
    assert!(detail.starts_with("A_ID 2: 1234, not "), "{detail}");
}
