//! The four transactions against a plain model: maps of rows, changed by one transaction at a time.

use std::collections::BTreeMap;

use crate::trials::with_protocol;
use weft::Error;
use weft::protocol::Protocol;

use super::{TINY, assert_consistent, load, runnable_protocols};
use crate::articles::load::{Discussion, draw_user};
use crate::articles::schema::{Article, Comment, User, new_id, numbered_id};
use crate::articles::{Articles, Parameters, Request, transactions};
use crate::stashing::RequestClient;
use crate::view::View;
use crate::walk;
use crate::workload::Workload;

/// The three tables.
#[derive(Debug, PartialEq)]
struct Model {
    articles: BTreeMap<u64, Article>,
    users: BTreeMap<u64, User>,
    comments: BTreeMap<(u64, u64), Comment>,
}

/// The result of a transaction that only reads.
#[derive(Debug, PartialEq)]
enum Answer {
    Article(Option<Box<Article>>),
    Comments(Vec<Comment>),
}

impl Model {
    fn empty() -> Model {
        Model { articles: BTreeMap::new(), users: BTreeMap::new(), comments: BTreeMap::new() }
    }

    fn loaded(seed: u64, parameters: &Parameters) -> Model {
        let mut model = Model::empty();
        for a_id in 0..parameters.articles {
            let Discussion { article, comments } = Discussion::draw(seed, a_id, parameters.users);
            model.articles.insert(a_id, article);
            model.comments.extend(comments.into_iter().map(|row| ((a_id, row.c_id), row)));
        }
        model.users.extend((0..parameters.users).map(|u_id| (u_id, draw_user(seed, u_id))));
        model
    }

    /// Reads all rows of a database.
    fn read<P: Protocol>(articles: &Articles<P>) -> Model {
        let Articles { database, tables, parameters, .. } = articles;
        let snapshot = database.open_snapshot().expect("a snapshot");
        let mut model = Model::empty();
        walk::keys(&snapshot, &tables.articles, 0..=parameters.articles, |key, row| {
            model.articles.extend(row.map(|row| (key, *row)));
        })
        .expect("reads");
        walk::keys(&snapshot, &tables.users, 0..=parameters.users, |key, row| {
            model.users.extend(row.map(|row| (key, *row)));
        })
        .expect("reads");
        for row in snapshot.rows(&tables.comments) {
            let row = row.expect("reads");
            model.comments.insert((row.c_a_id, row.c_id), *row);
        }
        model
    }

    /// Returns the result of a request, or `None` if it changes something.
    fn answer(&self, request: &Request) -> Option<Answer> {
        match request {
            Request::GetArticle { article } => {
                Some(Answer::Article(self.articles.get(article).cloned().map(Box::new)))
            }
            Request::GetComments { article } => {
                let on_it = self.comments.values().filter(|row| row.c_a_id == *article);
                Some(Answer::Comments(on_it.take(5).cloned().collect()))
            }
            Request::AddComment { .. } | Request::UpdateUser { .. } => None,
        }
    }

    fn change(&mut self, request: &Request, operations: bool) {
        match request {
            Request::AddComment { post, .. } => {
                let article = self.articles.get_mut(&post.article).expect("an article");
                let c_id = match operations {
                    true => new_id(post.client, post.number),
                    false => numbered_id(post.article, article.a_num_comments as u64),
                };
                article.a_num_comments += 1;
                let row = Comment {
                    c_a_id: post.article,
                    c_id,
                    c_u_id: post.user,
                    c_text: post.text,
                    c_attr: Default::default(),
                };
                assert!(self.comments.insert((post.article, c_id), row).is_none());
            }
            Request::UpdateUser { user, lastname, .. } => {
                self.users.get_mut(user).expect("a user").u_lastname = *lastname;
            }
            Request::GetArticle { .. } | Request::GetComments { .. } => {}
        }
    }
}

/// Returns the result of a request in the database.
fn ask<P: Protocol>(
    articles: &Articles<P>,
    view: &impl View<P>,
    request: &Request,
) -> Result<Option<Answer>, Error> {
    let tables = &articles.tables;
    Ok(match *request {
        Request::GetArticle { article } => {
            let row = transactions::get_article(tables, view, article)?;
            Some(Answer::Article(row.cloned().map(Box::new)))
        }
        Request::GetComments { article } => {
            let page = transactions::get_comments(tables, view, article)?;
            Some(Answer::Comments(page.into_iter().cloned().collect()))
        }
        Request::AddComment { .. } | Request::UpdateUser { .. } => None,
    })
}

/// Compares the result and the changes of every transaction with the model.
fn agrees<P: Protocol>(seed: u64) {
    for operations in [true, false] {
        let parameters = Parameters { operations, mix: "3,3,3,1".parse().expect("a mix"), ..TINY };
        let articles: Articles<P> = load(&parameters, seed, 1);
        let mut model = Model::loaded(seed, &parameters);
        let context = format!("{}, operations {operations}, seed {seed}", P::NAME);
        assert_eq!(Model::read(&articles), model, "{context}");
        let mut client = articles.client(seed, 0, 1);
        for number in 0..1_000 {
            let mut request = client.draw();
            if let Request::GetArticle { article } | Request::GetComments { article } = &mut request
                && number % 50 == 0
            {
                *article = parameters.articles;
            }
            let context = format!("{context}, {request:?}");
            let found = articles.database.transact(|tx| ask(&articles, tx, &request));
            let found = found.expect("it runs to its end");
            assert_eq!(found, model.answer(&request), "{context}");
            if number % 10 == 0 {
                let seen = articles.database.snapshot(|view| ask(&articles, view, &request));
                assert_eq!(seen.expect("snapshots read"), found, "{context}, on a snapshot");
            }
            let done = articles.database.transact(|tx| articles.run(tx, &request));
            assert!(done.expect("it runs to its end"), "{context}");
            client.note(&request, true);
            model.change(&request, operations);
        }
        assert_eq!(Model::read(&articles), model, "{context}");
        assert_consistent(&articles, &context);
    }
}

#[test]
fn every_protocol_agrees_with_the_model() {
    for name in runnable_protocols() {
        with_protocol!(name, |P| agrees::<P>(41)).expect("a name of the list");
    }
}
