//! The four transactions of Articles, one of them in two forms.
//!
//! `GetArticle` and `GetComments` are written against a [`View`], so they run on snapshots, too.

use arrayvec::ArrayVec;
use weft::protocol::Protocol;
use weft::{Error, Transaction, column_of};
use weft_procedures::procedure;

use super::Tables;
use super::schema::{Article, Comment, Text, new_id, numbered_id};
use crate::view::View;

/// The number of comments that a page shows.
pub(super) const PAGE: usize = 5;

/// The first comments on an article.
pub(super) type Page<'a> = ArrayVec<&'a Comment, PAGE>;

/// `GetArticle`: reads the whole row of an article.
#[procedure(GetArticle, transaction = view)]
#[inline]
pub(super) fn get_article<'v, P: Protocol>(
    tables: &'v Tables,
    view: &'v impl View<P>,
    article: u64,
) -> Result<Option<&'v Article>, Error> {
    view.get(&tables.articles, &article)
}

/// `GetComments`: reads the first five comments on an article.
#[procedure(GetComments, transaction = view)]
#[inline]
pub(super) fn get_comments<'v, P: Protocol>(
    tables: &'v Tables,
    view: &'v impl View<P>,
    article: u64,
) -> Result<Page<'v>, Error> {
    let mut page = Page::new();
    for comment in view.prefix(&tables.comments, &article).take(PAGE) {
        page.push(comment?);
    }
    Ok(page)
}

/// A comment on an article, as its user sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post {
    /// The article.
    pub article: u64,
    /// The user.
    pub user: u64,
    /// The text.
    pub text: Text,
    /// The client, if clients number their comments.
    pub client: u32,
    /// The number of the comment among its client's comments.
    pub number: u32,
}

impl Post {
    /// Returns the row with this identifier.
    pub(super) fn row(&self, c_id: u64) -> Comment {
        let &Post { article, user, text, .. } = self;
        let c_attr = Default::default();
        Comment { c_a_id: article, c_id, c_u_id: user, c_text: text, c_attr }
    }
}

/// `AddComment` by a commutative operation. It reads nothing, so two comments on the same article do not conflict.
#[procedure(AddComment)]
#[inline]
pub(super) fn add_comment<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    post: &Post,
) -> Result<(), Error> {
    tx.insert(&tables.comments, post.row(new_id(post.client, post.number)))?;
    tx.add(&tables.articles, &post.article, column_of!(Article.a_num_comments), 1)
}

/// `AddComment` as in H-Store: it reads the number of comments, numbers the comment by it, and writes the new
/// number.
#[procedure(AddCommentByReading)]
#[inline]
pub(super) fn add_comment_by_reading<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    post: &Post,
) -> Result<(), Error> {
    let article = tx.get(&tables.articles, &post.article)?.expect("articles are never removed");
    let number = article.a_num_comments;
    tx.insert(&tables.comments, post.row(numbered_id(post.article, number as u64)))?;
    tx.update(&tables.articles, &post.article, |row| row.a_num_comments = number + 1)?
        .expect("articles are never removed");
    Ok(())
}

/// `UpdateUserInfo`: changes a user's last name.
#[procedure(UpdateUser)]
#[inline]
pub(super) fn update_user<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    user: u64,
    lastname: &Text,
) -> Result<(), Error> {
    tx.update(&tables.users, &user, |row| row.u_lastname = *lastname)?
        .expect("users are never removed");
    Ok(())
}
