//! The papers' variants of protocols, `NAME:paper`, and the option `--paper`, which selects among the mechanisms of
//! the papers.
//!
//! Each mechanism is a switch of the protocol's options. A variant has all mechanisms of its paper. The option
//! `--paper NAME,…` leaves only those, `--paper no-NAME,…` all but those, and `--paper none` leaves out all. So
//! measurements show one by one what the mechanisms gain or cost.
//!
//! To add a variant: define its list of [`Mechanism`]s beside its options, add the list to [`all`], and call
//! [`options`].

use crate::{dbx, dbx_tc, doppel, htcc};

/// The word that leaves out all mechanisms.
const NONE: &str = "none";

/// What comes before the name of a mechanism that is left out.
const WITHOUT: &str = "no-";

/// A mechanism of a paper: a switch of a protocol's options `O`.
#[derive(Clone, Copy, Debug)]
pub struct Mechanism<O> {
    /// The name on the command line.
    pub name: &'static str,
    /// The description in the help.
    pub about: &'static str,
    /// Switches the mechanism on or off.
    pub switch: fn(O, bool) -> O,
}

impl<O> Mechanism<O> {
    /// Returns the mechanism without its switch.
    fn described(&self, contender: &'static str) -> Described {
        Described { contender, name: self.name, about: self.about }
    }
}

/// A mechanism as it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// The variant that has it.
    pub contender: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
}

/// Returns the mechanisms of all variants.
pub fn all() -> impl Iterator<Item = Described> {
    let of_dbx = dbx::MECHANISMS.iter().map(|mechanism| mechanism.described(dbx::PAPER));
    let of_doppel = doppel::MECHANISMS.iter().map(|mechanism| mechanism.described("doppel:paper"));
    let of_htcc = htcc::MECHANISMS.iter().map(|mechanism| mechanism.described(htcc::PAPER));
    let of_dbx_tc = dbx_tc::MECHANISMS.iter().map(|mechanism| mechanism.described(dbx_tc::PAPER));
    of_dbx.chain(of_dbx_tc).chain(of_doppel).chain(of_htcc)
}

/// Returns the values of `--paper`, with their descriptions: each mechanism, the same with `no-` before it, and `none`.
pub fn values() -> impl Iterator<Item = (String, String)> {
    let with = |mechanism: Described| {
        (mechanism.name.to_owned(), format!("{}: {}", mechanism.contender, mechanism.about))
    };
    let without = |mechanism: Described| {
        (format!("{WITHOUT}{}", mechanism.name), format!("all but `{}`", mechanism.name))
    };
    let none = (NONE.to_owned(), "no mechanism of the papers".to_owned());
    all().flat_map(move |mechanism| [with(mechanism), without(mechanism)]).chain([none])
}

/// Checks the values of `--paper` against the contenders.
///
/// # Errors
/// A message that says what to write instead.
pub fn check<'a>(
    contenders: impl Iterator<Item = &'a str> + Clone,
    given: &[String],
) -> Result<(), String> {
    check_against(contenders, &all().collect::<Vec<_>>(), given)
}

fn check_against<'a>(
    contenders: impl Iterator<Item = &'a str> + Clone,
    known: &[Described],
    given: &[String],
) -> Result<(), String> {
    let excluded = given.iter().filter(|name| name.starts_with(WITHOUT)).count();
    let alone = given.iter().any(|name| name == NONE);
    if (excluded > 0 && excluded < given.len()) || (alone && given.len() > 1) {
        return Err(format!(
            "--paper is a list of mechanisms to have, a list with {WITHOUT} before each name, or {NONE} alone"
        ));
    }
    let is_contender = |mechanism: &&Described| {
        contenders.clone().any(|contender| contender == mechanism.contender)
    };
    let has = |name: &str| known.iter().filter(is_contender).any(|known| known.name == name);
    let is_known = |name: &&String| match name.as_str() {
        NONE => known.iter().any(|mechanism| is_contender(&mechanism)),
        name => has(name.strip_prefix(WITHOUT).unwrap_or(name)),
    };
    match given.iter().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => {
            let owner = known.iter().find(|known| name.ends_with(known.name));
            let owner = owner.map_or("a variant such as dbx:paper", |known| known.contender);
            Err(format!("--paper {name} needs --protocol {owner}"))
        }
    }
}

/// Returns a variant's options: `none`, with the mechanisms switched on that `given`, the values of `--paper`, select.
/// Names of other variants' mechanisms are ignored. Without a name of this variant's, all mechanisms are on.
pub fn options<O>(mechanisms: &[Mechanism<O>], none: O, given: &[String]) -> O {
    let is_given = |name: &str| given.iter().any(|given| given == name);
    let selects = mechanisms.iter().any(|mechanism| is_given(mechanism.name)) || is_given(NONE);
    let is_on = |mechanism: &Mechanism<O>| match selects {
        true => is_given(mechanism.name),
        false => !is_given(&format!("{WITHOUT}{}", mechanism.name)),
    };
    mechanisms.iter().fold(none, |options, mechanism| (mechanism.switch)(options, is_on(mechanism)))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Switches = [bool; 2];

    const MECHANISMS: [Mechanism<Switches>; 2] = [
        Mechanism { name: "bell", about: "rings", switch: |[_, horn], on| [on, horn] },
        Mechanism { name: "horn", about: "blows", switch: |[bell, _], on| [bell, on] },
    ];

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    fn check(contenders: &[&'static str], given: &[&str]) -> Result<(), String> {
        let known: Vec<_> = MECHANISMS.iter().map(|one| one.described("bike:paper")).collect();
        check_against(contenders.iter().copied(), &known, &names(given))
    }

    #[test]
    fn a_selection_has_all_these_or_all_but_these() {
        let of = |given: &[&str]| options(&MECHANISMS, [false; 2], &names(given));
        assert_eq!(of(&[]), [true, true]);
        assert_eq!(of(&["bell"]), [true, false]);
        assert_eq!(of(&["horn", "bell"]), [true, true]);
        assert_eq!(of(&["no-bell"]), [false, true]);
        assert_eq!(of(&["none"]), [false, false]);
        assert_eq!(of(&["brakes-of-another-variant"]), [true, true]);
    }

    #[test]
    fn a_wrong_selection_is_refused_with_what_to_write() {
        assert_eq!(check(&["bike", "bike:paper"], &["bell", "horn"]), Ok(()));
        assert_eq!(check(&["bike:paper"], &["no-bell", "no-horn"]), Ok(()));
        assert_eq!(check(&["bike:paper"], &["none"]), Ok(()));
        assert_eq!(check(&["bike"], &[]), Ok(()));
        for mixed in [["bell", "no-horn"], ["none", "bell"]] {
            let message = check(&["bike:paper"], &mixed).unwrap_err();
            assert!(message.contains("or none alone"), "{message}");
        }
        for alien in ["no-bell", "bell"] {
            let message = check(&["bike"], &[alien]).unwrap_err();
            assert_eq!(message, format!("--paper {alien} needs --protocol bike:paper"));
        }
        assert!(check(&["bike"], &["none"]).unwrap_err().contains("dbx:paper"));
    }

    #[test]
    fn mechanisms_of_all_variants_have_different_names() {
        let mut listed: Vec<_> = all().map(|mechanism| mechanism.name).collect();
        let all = listed.len();
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(listed.len(), all);
        assert!(!listed.contains(&NONE) && !listed.iter().any(|name| name.starts_with(WITHOUT)));
        assert_eq!(values().count(), 2 * all + 1);
    }
}
