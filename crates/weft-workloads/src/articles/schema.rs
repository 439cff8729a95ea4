//! The three tables.
//!
//! | table | key | stored in | rows |
//! | --- | --- | --- | --- |
//! | [`Article`] | a | hash table | 100,000 |
//! | [`User`] | u | hash table; by address | 200 |
//! | [`Comment`] | a, c | B+-tree | 3.55 of an article on average; those of one lie side by side |
//!
//! `A_ATTR01` to `A_ATTR15`, and the ten of comments, are one column each. Those of users are left out:
//! nothing ever puts anything there. Identifiers begin at 0. Rows own no heap memory, so that under phase
//! reconciliation [`Article::a_num_comments`] can be split.

use arrayvec::ArrayString;
use weft::Record;

/// The length of all texts, at most.
pub const TEXT_BYTES_MAX: usize = 100;

/// A text: capital letters.
pub type Text = ArrayString<TEXT_BYTES_MAX>;

/// A column that only takes place.
pub type Attribute = ArrayString<8>;

/// A row of `ARTICLES`.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "articles", storage = "hash")]
#[allow(missing_docs, reason = "the columns are those of the benchmark")]
pub struct Article {
    #[record(key)]
    pub a_id: u64,
    pub a_title: Text,
    pub a_text: Text,
    /// How many comments there are on it.
    pub a_num_comments: i64,
    pub a_attr: [Attribute; 15],
}

/// A row of `USERS`.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "users", storage = "hash")]
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
#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "comments", key(c_a_id, c_id))]
#[allow(missing_docs, reason = "the columns are those of the benchmark")]
pub struct Comment {
    /// The article.
    pub c_a_id: u64,
    /// No two comments have the same, nor do those on two articles: see [`numbered_id`] and [`new_id`].
    pub c_id: u64,
    /// Who has written it.
    pub c_u_id: u64,
    pub c_text: Text,
    /// Empty in comments that were added later.
    pub c_attr: [Attribute; 10],
}

/// The identifier of the `number`-th comment on an article, counted from 0: that of all that are loaded,
/// and of those that are added after the number was read.
#[inline]
pub fn numbered_id(article: u64, number: u64) -> u64 {
    article << 32 | number
}

/// Whether a comment was numbered by its client.
const BY_CLIENT: u64 = 1 << 63;

/// The identifier of the `number`-th comment of a client, both counted from 0. It is found without asking
/// how many comments there are, and lies behind all that are loaded.
#[inline]
pub fn new_id(client: u32, number: u32) -> u64 {
    BY_CLIENT | u64::from(client) << 32 | u64::from(number)
}

/// The client that has chosen an identifier, and its number; `None` if it is one by the article.
pub(super) fn client_of(id: u64) -> Option<(u32, u32)> {
    (id & BY_CLIENT != 0).then_some(((id & !BY_CLIENT) >> 32) as u32).zip(Some(id as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_tell_who_has_chosen_them() {
        assert_eq!(client_of(new_id(0, 0)), Some((0, 0)));
        assert_eq!(client_of(new_id(7, u32::MAX)), Some((7, u32::MAX)));
        assert_eq!(client_of(numbered_id((1 << 28) - 1, 999)), None);
        assert!(new_id(0, 0) > numbered_id((1 << 28) - 1, u64::from(u32::MAX)));
    }
}
