//! The invariants of Articles, checked on a database at rest.
//!
//! A run changes little: it adds and counts comments, and gives users other last names. Everything else must be as
//! it was loaded; it is drawn again for the comparison. A comment that was lost, added twice or added by half
//! breaks one of the counts. A name that was lost, or mixed from two names, was not given by the client that it
//! identifies.

use std::fmt;

use weft::{Failure, Snapshot};

use super::client::RequestSource;
use super::load::{Discussion, draw_user, giver, saying};
use super::schema::{Article, Comment, User, client_of, numbered_id};
use super::{Parameters, Tables};
use crate::finding::Finding;
use crate::walk;
use crate::workload::{Condition, Progress};

/// The invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Articles,
    CommentsCounted,
    PopularCounted,
    Comments,
    References,
    Identifiers,
    AllCounted,
    Users,
    PopularNames,
    Addresses,
}

impl Rule {
    /// Every rule, in order.
    pub(super) const ALL: [Rule; 10] = [
        Rule::Articles,
        Rule::CommentsCounted,
        Rule::PopularCounted,
        Rule::Comments,
        Rule::References,
        Rule::Identifiers,
        Rule::AllCounted,
        Rule::Users,
        Rule::PopularNames,
        Rule::Addresses,
    ];

    /// The rule in words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Rule::Articles => {
                "ARTICLES: each exists once, and is as loaded except for A_NUM_COMMENTS; no others exist"
            }
            Rule::CommentsCounted => "ARTICLES: A_NUM_COMMENTS = count(COMMENTS) of the article",
            Rule::PopularCounted => {
                "ARTICLES: popular ones have as many comments as were loaded and committed"
            }
            Rule::Comments => {
                "COMMENTS: loaded ones are unchanged, and others have the text of their users"
            }
            Rule::References => "COMMENTS: the article and the user of each exist",
            Rule::Identifiers => {
                "COMMENTS: C_ID was chosen by the rule, by the article or by a client, and no two comments have the \
                 same"
            }
            Rule::AllCounted => "COMMENTS: as many as were loaded and committed",
            Rule::Users => {
                "USERS: each exists once, and is as loaded except for U_LASTNAME, which a client has given; \
                 no others exist"
            }
            Rule::PopularNames => {
                "USERS: popular ones have the last name that its client committed last"
            }
            Rule::Addresses => {
                "U_EMAIL: the address of each user leads to this user; no other address leads to a user"
            }
        }
    }
}

/// The findings so far, one for each rule.
#[derive(Debug)]
struct Findings([Finding; Rule::ALL.len()]);

impl Findings {
    /// Records that `rule` was checked in one more place. `violation` describes the violation if the rule does not
    /// hold there.
    #[inline]
    fn check(&mut self, rule: Rule, holds: bool, violation: fmt::Arguments<'_>) {
        self.0[rule as usize].check(holds, violation);
    }
}

/// A database at rest, and what it should contain.
pub(super) struct DatabaseAtRest<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) tables: &'a Tables,
    pub(super) parameters: &'a Parameters,
    /// The seed of the load.
    pub(super) seed: u64,
    pub(super) source: &'a RequestSource,
}

/// Checks every rule.
pub(super) fn verify(
    articles: &DatabaseAtRest<'_>,
    progress: Progress<'_>,
) -> Result<Vec<Condition>, Failure> {
    let mut findings = Findings(Rule::ALL.map(|rule| Finding::new(rule.name())));
    let rows = articles.parameters.articles + articles.parameters.users;
    let report = |done: u64| {
        if done.is_multiple_of(4096) {
            progress(done, 2 * rows);
        }
    };
    let counts = check_articles(articles, &mut findings, report)?;
    check_comments(articles, counts, &mut findings, report)?;
    let before_users = 2 * articles.parameters.articles;
    check_users(articles, &mut findings, |done| report(before_users + done))?;
    let before_addresses = before_users + articles.parameters.users;
    check_addresses(articles, &mut findings, |done| report(before_addresses + done))?;
    Ok(findings.0.map(Finding::into_condition).into())
}

/// Checks ARTICLES, and returns A_NUM_COMMENTS of each article.
fn check_articles(
    &DatabaseAtRest { snapshot, tables, parameters, seed, source }: &DatabaseAtRest<'_>,
    findings: &mut Findings,
    report: impl Fn(u64),
) -> Result<Vec<Option<i64>>, Failure> {
    let mut counts = Vec::with_capacity(parameters.articles as usize);
    let keys = 0..=parameters.articles;
    walk::keys(snapshot, &tables.articles, keys, |a_id, row| {
        report(a_id);
        if a_id == parameters.articles {
            findings.check(Rule::Articles, row.is_none(), format_args!("one too many: {row:?}"));
            return;
        }
        let loaded = Discussion::draw(seed, a_id, parameters.users).article;
        let a_num_comments = row.map(|row| row.a_num_comments);
        counts.push(a_num_comments);
        let loaded = Article { a_num_comments: a_num_comments.unwrap_or(0), ..loaded };
        let holds = row == Some(&loaded);
        findings.check(Rule::Articles, holds, format_args!("A_ID {a_id}: {row:?}, not {loaded:?}"));
    })?;
    let (_, added) = source.comments.changes();
    for (&a_id, added) in source.popular_articles.iter().zip(added) {
        let loaded = Discussion::draw(seed, a_id, parameters.users).article.a_num_comments;
        let found = counts[a_id as usize];
        findings.check(
            Rule::PopularCounted,
            found.is_some_and(|found| i128::from(found) == i128::from(loaded) + i128::from(added)),
            format_args!(
                "A_ID {a_id}: {found:?}, where {loaded} were loaded and {added} committed"
            ),
        );
    }
    Ok(counts)
}

/// A pass over the comments, article by article.
struct Survey<'a> {
    findings: &'a mut Findings,
    /// A_NUM_COMMENTS of each article that exists.
    counts: Vec<Option<i64>>,
    seed: u64,
    users: u64,
    operations: bool,
    clients: usize,
    /// The article whose comments are visited now, as it was loaded; `None` after the last article.
    current: Option<Discussion>,
    /// The number of comments found on the current article, and of those that were loaded.
    of_current: u64,
    of_current_loaded: usize,
    /// The number of comments found, and of those loaded, over all articles so far.
    found: u64,
    loaded: u64,
    /// The identifiers that clients have chosen.
    chosen: Vec<u64>,
}

impl Survey<'_> {
    /// Begins with the comments on an article.
    fn begin(&mut self, a_id: u64) {
        let is_one = a_id < self.counts.len() as u64;
        self.current = is_one.then(|| Discussion::draw(self.seed, a_id, self.users));
        (self.of_current, self.of_current_loaded) = (0, 0);
    }

    /// Checks and ends the current article, and all articles before `a_id`.
    fn end_before(&mut self, a_id: u64) {
        while let Some(Discussion { article, comments }) = &self.current
            && article.a_id < a_id
        {
            let (a_id, of_loaded) = (article.a_id, comments.len());
            self.loaded += of_loaded as u64;
            self.findings.check(
                Rule::Comments,
                self.of_current_loaded == of_loaded,
                format_args!("A_ID {a_id}: {} of {of_loaded} are there", self.of_current_loaded),
            );
            if let Some(counted) = self.counts[a_id as usize] {
                let found = self.of_current;
                self.findings.check(
                    Rule::CommentsCounted,
                    u64::try_from(counted) == Ok(found),
                    format_args!("A_ID {a_id}: {counted}, not {found}"),
                );
            }
            self.begin(a_id + 1);
        }
    }

    fn visit(&mut self, row: &Comment) {
        self.end_before(row.c_a_id);
        self.found += 1;
        let article = self.counts.get(row.c_a_id as usize).copied().flatten();
        let holds = article.is_some() && row.c_u_id < self.users;
        self.findings.check(Rule::References, holds, format_args!("{row:?}"));

        // A number within the loaded comments means that the comment was loaded.
        let Some(Discussion { comments, .. }) = &self.current else { return };
        let number = row.c_id.wrapping_sub(numbered_id(row.c_a_id, 0));
        let loaded = usize::try_from(number).ok().and_then(|number| comments.get(number));
        let said = saying(self.seed, row.c_a_id, row.c_u_id);
        let holds = match loaded {
            Some(loaded) => row == loaded,
            None => row.c_text == said && row.c_attr.iter().all(|attribute| attribute.is_empty()),
        };
        self.findings.check(
            Rule::Comments,
            holds,
            format_args!("{row:?}, not {said} ({loaded:?})"),
        );
        let holds = match client_of(row.c_id) {
            _ if loaded.is_some() => true,
            Some((client, _)) if self.operations => (client as usize) < self.clients,
            // Comments are numbered consecutively.
            None if !self.operations => number == self.of_current,
            _ => false,
        };
        self.findings.check(Rule::Identifiers, holds, format_args!("{row:?}"));
        self.of_current += 1;
        self.of_current_loaded += usize::from(loaded.is_some());
        if loaded.is_none() && self.operations {
            self.chosen.push(row.c_id);
        }
    }
}

/// Checks COMMENTS, and the number of comments on each article.
fn check_comments(
    &DatabaseAtRest { snapshot, tables, parameters, seed, source }: &DatabaseAtRest<'_>,
    counts: Vec<Option<i64>>,
    findings: &mut Findings,
    report: impl Fn(u64),
) -> Result<(), Failure> {
    let mut survey = Survey {
        findings,
        counts,
        seed,
        users: parameters.users,
        operations: parameters.operations,
        clients: source.names.drawn().len(),
        current: None,
        of_current: 0,
        of_current_loaded: 0,
        found: 0,
        loaded: 0,
        chosen: Vec::new(),
    };
    survey.begin(0);
    for row in snapshot.rows(&tables.comments) {
        let row = row?;
        report(parameters.articles + row.c_a_id);
        survey.visit(row);
    }
    survey.end_before(parameters.articles);
    let Survey { findings, found, loaded, mut chosen, .. } = survey;
    chosen.sort_unstable();
    for pair in chosen.windows(2) {
        let (client, number) = client_of(pair[0]).unwrap_or_default();
        findings.check(
            Rule::Identifiers,
            pair[0] != pair[1],
            format_args!("two have that of comment {number} of client {client}"),
        );
    }
    let (added, _) = source.comments.changes();
    findings.check(
        Rule::AllCounted,
        found == loaded + added,
        format_args!("{found}, where {loaded} were loaded and {added} committed"),
    );
    Ok(())
}

/// Checks USERS, and that a client has given each new name.
fn check_users(
    &DatabaseAtRest { snapshot, tables, parameters, seed, source }: &DatabaseAtRest<'_>,
    findings: &mut Findings,
    report: impl Fn(u64),
) -> Result<(), Failure> {
    let drawn = source.names.drawn();
    let keys = 0..=parameters.users;
    walk::keys(snapshot, &tables.users, keys, |u_id, row| {
        report(u_id);
        if u_id == parameters.users {
            findings.check(Rule::Users, row.is_none(), format_args!("one too many: {row:?}"));
            return;
        }
        let loaded = draw_user(seed, u_id);
        let holds = row.is_some_and(|row| {
            let is_given = giver(seed, &row.u_lastname).is_some_and(|(client, number)| {
                drawn.get(client as usize).is_some_and(|&drawn| u64::from(number) < drawn)
            });
            let mut expected = loaded;
            if is_given {
                expected.u_lastname = row.u_lastname;
            }
            *row == expected
        });
        findings.check(Rule::Users, holds, format_args!("U_ID {u_id}: {row:?}, not {loaded:?}"));
    })?;
    let mut ranks = 0..source.popular_users.len();
    let visit = |u_id, row: Option<&User>| {
        let last = source.names.last(ranks.next().expect("as many as there are popular users"));
        let given = row.and_then(|row| giver(seed, &row.u_lastname));
        let holds = match given {
            None => last.iter().all(Option::is_none),
            Some((client, number)) => last.get(client as usize) == Some(&Some(u64::from(number))),
        };
        findings.check(
            Rule::PopularNames,
            holds,
            format_args!(
                "U_ID {u_id}: that of {given:?} (client, number), of {last:?} (by client)"
            ),
        );
    };
    let popular = source.popular_users.iter().copied();
    walk::keys(snapshot, &tables.users, popular, visit)
}

/// Checks the unique index of USERS.
fn check_addresses(
    &DatabaseAtRest { snapshot, tables, parameters, seed, .. }: &DatabaseAtRest<'_>,
    findings: &mut Findings,
    report: impl Fn(u64),
) -> Result<(), Failure> {
    for u_id in 0..=parameters.users {
        report(u_id);
        let u_email = draw_user(seed, u_id).u_email;
        let found = snapshot.get_by(&tables.users, User::U_EMAIL, &u_email)?.map(|row| row.u_id);
        let expected = (u_id < parameters.users).then_some(u_id);
        let holds = found == expected;
        findings.check(Rule::Addresses, holds, format_args!("{u_email} leads to {found:?}"));
    }
    Ok(())
}
