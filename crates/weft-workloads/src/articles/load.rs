//! The initial population of Articles: articles with their comments, and users.
//!
//! The random choices for an article with its comments, and those for a user, come from separate sources. Each
//! source is derived from the seed and the identifier. So the rows do not depend on the number of threads, and
//! verification can draw them again. The text of a comment depends only on its user and article, even if it is
//! added later. A last name that is given later depends only on the client that gives it.

use weft::protocol::Protocol;
use weft::{Builder, Database, Failure};

use super::client::RequestSource;
use super::schema::{Article, Comment, TEXT_BYTES_MAX, Text, User, numbered_id};
use super::{Articles, Parameters, RECORDS_MAX, Tables};
use crate::load::LoadInProgress;
use crate::random::Random;
use crate::workload::LoadOptions;
use crate::ycsb::zipf::Zipf;

/// The streams of random numbers. Those of articles begin at 0; the others are above them.
const USER_STREAMS: u64 = 1 << 40;
const SAYING_STREAMS: u64 = 2 << 40;
const NAME_STREAM: u64 = 3 << 40;
pub(super) const CLIENT_STREAMS: u64 = 4 << 40;

/// An upper bound of the comments on a loaded article.
pub(super) const LOADED_COMMENTS_MAX: u64 = 1000;

/// The skew of the number of loaded comments: `k` comments are drawn in proportion to `1 / (k + 1)^2`.
const LOADED_COMMENTS_SIGMA: f64 = 2.0;

/// The minimum length of a user's texts.
const USER_TEXT_BYTES_MIN: usize = 5;

/// Returns random capital letters.
fn letters<const N: usize>(random: &mut Random, length: usize) -> arrayvec::ArrayString<N> {
    let mut characters = [0; N];
    for eight in characters.chunks_mut(8) {
        let mut bits = random.0.u64(..);
        for character in eight {
            *character = b'A' + (((bits & 0xFF) * 26) >> 8) as u8;
            bits >>= 8;
        }
    }
    let text = std::str::from_utf8(&characters[..length]).expect("letters are ASCII");
    arrayvec::ArrayString::from(text).expect("it fits")
}

/// Returns the length of a user's text, from a normal distribution. Its mean is the middle of the range, and its
/// standard deviation is a quarter of the range.
fn length(random: &mut Random) -> usize {
    let range = (TEXT_BYTES_MAX - USER_TEXT_BYTES_MIN) as f64;
    loop {
        // The sum of twelve uniform draws is close to normal, with a variance of 1.
        let normal = (0..12).map(|_| random.0.f64()).sum::<f64>() - 6.0;
        let share = (normal + 2.0) / 4.0;
        if (0.0..=1.0).contains(&share) {
            return USER_TEXT_BYTES_MIN + (share * range).round() as usize;
        }
    }
}

/// A loaded article with its comments.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Discussion {
    pub(super) article: Article,
    pub(super) comments: Vec<Comment>,
}

impl Discussion {
    /// Draws what H-Store's loader draws.
    pub(super) fn draw(seed: u64, a_id: u64, users: u64) -> Discussion {
        let mut random = Random::new(seed, a_id);
        let random = &mut random;
        let article = Article {
            a_id,
            a_title: letters(random, TEXT_BYTES_MAX),
            a_text: letters(random, TEXT_BYTES_MAX),
            a_num_comments: Zipf::new(LOADED_COMMENTS_MAX, LOADED_COMMENTS_SIGMA)
                .draw(&mut random.0) as i64,
            a_attr: std::array::from_fn(|_| letters(random, 8)),
        };
        let comments = (0..article.a_num_comments as u64).map(|number| {
            let c_u_id = random.0.u64(..users);
            Comment {
                c_a_id: a_id,
                c_id: numbered_id(a_id, number),
                c_u_id,
                c_text: saying(seed, a_id, c_u_id),
                c_attr: std::array::from_fn(|_| letters(random, 8)),
            }
        });
        let comments = comments.collect();
        Discussion { article, comments }
    }
}

/// Draws a user, as loaded.
pub(super) fn draw_user(seed: u64, u_id: u64) -> User {
    let mut random = Random::new(seed, USER_STREAMS + u_id);
    let random = &mut random;
    let mut text = || {
        let length = length(random);
        letters::<TEXT_BYTES_MAX>(random, length)
    };
    let (u_firstname, u_lastname, u_password) = (text(), text(), text());
    // The address is unique because it begins with the user's number.
    let mut u_email = Text::from(&format!("{u_id}@")).expect("it fits");
    let letters = text();
    u_email.push_str(&letters[..letters.len().min(u_email.remaining_capacity())]);
    User { u_id, u_firstname, u_lastname, u_password, u_email }
}

/// Returns what a user says about an article.
#[inline]
pub(super) fn saying(seed: u64, article: u64, user: u64) -> Text {
    // Users are scattered over all seeds, so that databases with different seeds have different texts.
    let seed = seed ^ user.wrapping_add(1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    letters(&mut Random::new(seed, SAYING_STREAMS + article), TEXT_BYTES_MAX)
}

/// The letters at the beginning of a name that encode its number: enough for 64 bits.
const NAME_DIGITS: usize = 14;

/// Returns the `number`-th name that a client gives, both counted from 0.
#[inline]
pub(super) fn name(seed: u64, client: u32, number: u32) -> Text {
    let stamp = u64::from(client) << 32 | u64::from(number);
    let (mut digits, mut rest) = ([b'A'; NAME_DIGITS], stamp);
    for digit in &mut digits {
        *digit += (rest % 26) as u8;
        rest /= 26;
    }
    let mut name =
        Text::from(std::str::from_utf8(&digits).expect("letters are ASCII")).expect("it fits");
    let mut random = Random::new(seed ^ stamp, NAME_STREAM);
    name.push_str(&letters::<{ TEXT_BYTES_MAX - NAME_DIGITS }>(
        &mut random,
        TEXT_BYTES_MAX - NAME_DIGITS,
    ));
    name
}

/// Returns the client that gave a name, and the number of the name; `None` if no client can have given it.
pub(super) fn giver(seed: u64, given: &Text) -> Option<(u32, u32)> {
    let digits = given.as_bytes().get(..NAME_DIGITS)?;
    let stamp = digits.iter().rev().try_fold(0_u64, |stamp, letter| {
        let digit = letter.checked_sub(b'A').filter(|&digit| digit < 26)?;
        stamp.checked_mul(26)?.checked_add(u64::from(digit))
    })?;
    let (client, number) = ((stamp >> 32) as u32, stamp as u32);
    (name(seed, client, number) == *given).then_some((client, number))
}

/// Adds the tables.
///
/// # Panics
/// A number in `parameters` is out of its range.
pub(super) fn declare<P: Protocol>(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
    let &Parameters { articles, users, alpha, .. } = parameters;
    assert!((1..=RECORDS_MAX).contains(&articles), "{articles} articles");
    assert!((1..=RECORDS_MAX).contains(&users), "{users} users");
    assert!(alpha >= 0.0 && alpha.is_finite(), "alpha is {alpha}");
    builder
        .table_with_capacity::<Article>(articles as usize)
        .table_with_capacity::<User>(users as usize)
        .table_with_capacity::<Comment>(articles as usize * 4)
}

/// Fills the tables.
pub(super) fn fill<P: Protocol>(
    database: Database<P>,
    parameters: &Parameters,
    options: &LoadOptions<'_>,
) -> Result<Articles<P>, Failure> {
    let &Parameters { articles, users, .. } = parameters;
    let tables = Tables {
        articles: database.table()?,
        users: database.table()?,
        comments: database.table()?,
    };
    let mut loading = LoadInProgress::new(options, users + articles * (10 + 36) / 10);
    let source = &(options.seed, users);
    loading.fill(&database, &tables.users, (source, users), |&(seed, _), u_id| {
        [draw_user(seed, u_id)]
    })?;
    loading.fill(&database, &tables.articles, (source, articles), |&(seed, users), a_id| {
        [Discussion::draw(seed, a_id, users).article]
    })?;
    loading.fill(&database, &tables.comments, (source, articles), |&(seed, users), a_id| {
        Discussion::draw(seed, a_id, users).comments
    })?;
    loading.finish();
    let (source, seed) = (RequestSource::new(parameters, options.seed), options.seed);
    Ok(Articles { database, tables, parameters: *parameters, seed, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_identify_their_client() {
        const SEED: u64 = 5;
        for (client, number) in [(0, 0), (0, 1), (3, 26), (u32::MAX, u32::MAX)] {
            let given = name(SEED, client, number);
            assert_eq!(given.len(), TEXT_BYTES_MAX);
            assert_eq!(giver(SEED, &given), Some((client, number)), "{given}");
            assert_eq!(giver(SEED + 1, &given), None, "{given}");
            // A name whose last letter belongs to another name.
            let torn = [&given[..99], if given.ends_with('A') { "B" } else { "A" }].concat();
            assert_eq!(giver(SEED, &Text::from(&torn).expect("it fits")), None, "{torn}");
        }
        for unknown in ["", "ABC", &"Z".repeat(100), &"a".repeat(100)] {
            assert_eq!(giver(SEED, &Text::from(unknown).expect("it fits")), None, "{unknown}");
        }
    }
}
