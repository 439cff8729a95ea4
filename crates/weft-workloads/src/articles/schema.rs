//! The three tables of Articles.
//!
//! | table | key | stored in | rows |
//! | --- | --- | --- | --- |
//! | [`Article`] | a | hash table | 100,000 |
//! | [`User`] | u | hash table; by address | 200 |
//! | [`Comment`] | a, c | B+-tree | 3.55 per article on average; those of an article are adjacent |
//!
//! `A_ATTR01` to `A_ATTR15`, and the ten attributes of comments, are one column each. Those of users are left out,
//! because the benchmark never uses them. Identifiers begin at 0. Rows own no heap memory, so that
//! [`Article::a_num_comments`] can be split under phase reconciliation.

use arrayvec::ArrayString;
use weft::Record;

/// The maximum length of texts.
pub const TEXT_BYTES_MAX: usize = 100;

/// A text of capital letters.
pub type Text = ArrayString<TEXT_BYTES_MAX>;

/// A column that only takes space.
pub type Attribute = ArrayString<8>;

/// A row of `ARTICLES`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "articles", storage = "hash")]
#[allow(missing_docs, reason = "the columns are those of the benchmark")]
pub struct Article {
    #[record(key)]
    pub a_id: u64,
    pub a_title: Text,
    pub a_text: Text,
    /// The number of comments on the article.
    pub a_num_comments: i64,
    pub a_attr: [Attribute; 15],
}

/// A row of `USERS`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "article_users", storage = "hash")]
#[allow(missing_docs, reason = "the columns are those of the benchmark")]
pub struct User {
    #[record(key)]
    pub u_id: u64,
    pub u_firstname: Text,
    pub u_lastname: Text,
    pub u_password: Text,
    #[record(unique)]
    pub u_email: Text,
}

/// A row of `COMMENTS`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "article_comments", key(c_a_id, c_id))]
#[allow(missing_docs, reason = "the columns are those of the benchmark")]
pub struct Comment {
    /// The article.
    pub c_a_id: u64,
    /// The comment's identifier, unique over all articles: see [`numbered_id`] and [`new_id`].
    pub c_id: u64,
    /// The user who wrote it.
    pub c_u_id: u64,
    pub c_text: Text,
    /// Empty for comments that were added later.
    pub c_attr: [Attribute; 10],
}

/// Returns the identifier of the `number`-th comment on an article, counted from 0. Loaded comments have such
/// identifiers, and comments that are added after reading the number.
#[inline]
pub fn numbered_id(article: u64, number: u64) -> u64 {
    article << 32 | number
}

/// The bit that marks a comment numbered by its client.
const BY_CLIENT: u64 = 1 << 63;

/// Returns the identifier of the `number`-th comment of a client, both counted from 0. It does not depend on the
/// number of comments, and is greater than the identifiers of loaded comments.
#[inline]
pub fn new_id(client: u32, number: u32) -> u64 {
    BY_CLIENT | u64::from(client) << 32 | u64::from(number)
}

/// Returns the client that chose an identifier, and its number; `None` if the identifier comes from the article.
pub(super) fn client_of(id: u64) -> Option<(u32, u32)> {
    (id & BY_CLIENT != 0).then_some(((id & !BY_CLIENT) >> 32) as u32).zip(Some(id as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_identify_their_client() {
        assert_eq!(client_of(new_id(0, 0)), Some((0, 0)));
        assert_eq!(client_of(new_id(7, u32::MAX)), Some((7, u32::MAX)));
        assert_eq!(client_of(numbered_id((1 << 28) - 1, 999)), None);
        assert!(new_id(0, 0) > numbered_id((1 << 28) - 1, u64::from(u32::MAX)));
    }
}
