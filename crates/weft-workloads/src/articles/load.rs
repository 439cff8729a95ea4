//! The initial population: articles with the comments on them, and users.
//!
//! All random choices for an article with its comments, and for a user, come from a source of their own,
//! drawn from the seed and the identifier. So the rows do not depend on the number of threads, and
//! verification can draw them again. What a comment says follows from who says it of which article, also
//! if it is added later; and a last name that is given later from who gives it.

use weft::protocol::Protocol;
use weft::{Database, Failure};

use super::client::Choice;
use super::schema::{Article, Comment, TEXT_BYTES_MAX, Text, User, numbered_id};
use super::{Articles, Parameters, RECORDS_MAX, Tables};
use crate::load::Loading;
use crate::random::Random;
use crate::workload::LoadOptions;
use crate::ycsb::zipf::Zipf;

/// The sources of random numbers: those of articles begin at 0, and above them are the others'.
const USER_STREAMS: u64 = 1 << 40;
const SAYING_STREAMS: u64 = 2 << 40;
const NAME_STREAM: u64 = 3 << 40;
pub(super) const CLIENT_STREAMS: u64 = 4 << 40;

/// There are fewer comments than this on an article that is loaded.
pub(super) const LOADED_COMMENTS_MAX: u64 = 1000;

/// How unevenly articles are commented on when they are loaded: one with `k` comments is drawn in
/// proportion to `1 / (k + 1)^2`.
const LOADED_COMMENTS_SIGMA: f64 = 2.0;

/// The shortest of a user's texts.
const USER_TEXT_BYTES_MIN: usize = 5;

/// Random capital letters.
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

/// The length of a user's text: by a normal distribution, of which the middle is that of the range and a
/// quarter of the range is the standard deviation.
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

/// An article and the comments on it, as they are loaded.
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

/// Draws a user that is loaded.
pub(super) fn draw_user(seed: u64, u_id: u64) -> User {
    let mut random = Random::new(seed, USER_STREAMS + u_id);
    let random = &mut random;
    let mut text = || {
        let length = length(random);
        letters::<TEXT_BYTES_MAX>(random, length)
    };
    let (u_firstname, u_lastname, u_password) = (text(), text(), text());
    // Unique by what it begins with.
    let mut u_email = Text::from(&format!("{u_id}@")).expect("it fits");
    let letters = text();
    u_email.push_str(&letters[..letters.len().min(u_email.remaining_capacity())]);
    User { u_id, u_firstname, u_lastname, u_password, u_email }
}

/// What a user says of an article.
#[inline]
pub(super) fn saying(seed: u64, article: u64, user: u64) -> Text {
    // Users are scattered over all seeds, so that those of one database do not meet those of another.
    let seed = seed ^ user.wrapping_add(1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    letters(&mut Random::new(seed, SAYING_STREAMS + article), TEXT_BYTES_MAX)
}

/// Digits of the number that a name begins with, in letters: as many as a word needs.
const NAME_DIGITS: usize = 14;

/// The `number`-th name that a client gives to somebody, both counted from 0.
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

/// Who has given a name, and which of theirs it is; `None` if nobody can have.
pub(super) fn giver(seed: u64, given: &Text) -> Option<(u32, u32)> {
    let digits = given.as_bytes().get(..NAME_DIGITS)?;
    let stamp = digits.iter().rev().try_fold(0_u64, |stamp, letter| {
        let digit = letter.checked_sub(b'A').filter(|&digit| digit < 26)?;
        stamp.checked_mul(26)?.checked_add(u64::from(digit))
    })?;
    let (client, number) = ((stamp >> 32) as u32, stamp as u32);
    (name(seed, client, number) == *given).then_some((client, number))
}

/// Opens a database and fills it.
///
/// # Panics
/// If a number in `parameters` is out of its range.
pub(super) fn load<P: Protocol>(
    parameters: &Parameters,
    options: &LoadOptions<'_>,
) -> Result<Articles<P>, Failure> {
    let &Parameters { articles, users, alpha, .. } = parameters;
    assert!((1..=RECORDS_MAX).contains(&articles), "{articles} articles");
    assert!((1..=RECORDS_MAX).contains(&users), "{users} users");
    assert!(alpha >= 0.0 && alpha.is_finite(), "alpha is {alpha}");
    let database: Database<P> = options
        .builder_with(super::procedures_by(parameters.operations), Vec::new())
        .table_with_capacity::<Article>(articles as usize)
        .table_with_capacity::<User>(users as usize)
        .table_with_capacity::<Comment>(articles as usize * 4)
        .open()?;
    let tables = Tables {
        articles: database.table()?,
        users: database.table()?,
        comments: database.table()?,
    };
    let mut loading = Loading::new(options, users + articles * (10 + 36) / 10);
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
    let (choice, seed) = (Choice::new(parameters, options.seed), options.seed);
    Ok(Articles { database, tables, parameters: *parameters, seed, choice })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_who_has_given_them() {
        const SEED: u64 = 5;
        for (client, number) in [(0, 0), (0, 1), (3, 26), (u32::MAX, u32::MAX)] {
            let given = name(SEED, client, number);
            assert_eq!(given.len(), TEXT_BYTES_MAX);
            assert_eq!(giver(SEED, &given), Some((client, number)), "{given}");
            assert_eq!(giver(SEED + 1, &given), None, "{given}");
            // One letter of another name.
            let torn = [&given[..99], if given.ends_with('A') { "B" } else { "A" }].concat();
            assert_eq!(giver(SEED, &Text::from(&torn).expect("it fits")), None, "{torn}");
        }
        for nobodys in ["", "ABC", &"Z".repeat(100), &"a".repeat(100)] {
            assert_eq!(giver(SEED, &Text::from(nobodys).expect("it fits")), None, "{nobodys}");
        }
    }
}
