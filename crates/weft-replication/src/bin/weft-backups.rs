//! Lists, verifies and restores the backups of a replicated database.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use weft_replication::backup::{Backup, Backups};

const USAGE: &str = "\
usage: weft-backups list STORE
       weft-backups verify STORE [NAME]
       weft-backups restore STORE DIRECTORY [NAME]

STORE is a directory, or the address of an object store, such as s3://bucket/accounts, with its options in the
environment (AWS_ACCESS_KEY_ID and so on). Without NAME, verify reads all backups, and restore takes the newest one. If
the backups are of several logs, their order is unknown, and restore needs NAME.";

type Outcome<R> = Result<R, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match &arguments[..] {
        ["list", store] => list(store),
        ["verify", store] => verify(store, None),
        ["verify", store, name] => verify(store, Some(name)),
        ["restore", store, directory] => restore(store, directory, None),
        ["restore", store, directory, name] => restore(store, directory, Some(name)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the identities of the logs that the backups are of.
fn logs(backups: &[Backup]) -> BTreeSet<&str> {
    backups.iter().map(Backup::log).collect()
}

/// Prints what there is, the backups of each log together. Returns whether all of it can be used.
fn list(store: &str) -> Outcome<bool> {
    let listing = Backups::at(store)?.list()?;
    for log in logs(&listing.backups) {
        let of_log = listing.backups.iter().filter(|backup| backup.log() == log);
        of_log.for_each(|backup| println!("{backup}"));
    }
    listing.unusable.iter().for_each(|(name, why)| println!("{name}  cannot be used: {why}"));
    Ok(listing.unusable.is_empty())
}

/// Returns the backup with a name, or the first one.
fn find<'b>(backups: &'b [Backup], name: Option<&str>) -> Outcome<&'b Backup> {
    let mut all = backups.iter();
    let found = all.find(|backup| name.is_none_or(|name| backup.name() == name));
    found.ok_or_else(|| "there is no such backup; `weft-backups list` shows what there is".into())
}

/// Returns the backup with a name, or the newest one.
fn choose<'b>(backups: &'b [Backup], name: Option<&str>) -> Outcome<&'b Backup> {
    // Names are in the order of their backups only if these are of the same log.
    let logs = logs(backups);
    if name.is_none() && logs.len() > 1 {
        let logs = logs.into_iter().collect::<Vec<_>>().join(", ");
        return Err(format!(
            "the backups are of several logs, and their order is unknown: {logs}. Name one of the backups that \
             `weft-backups list` shows"
        )
        .into());
    }
    find(backups, name)
}

/// Reads backups. Returns whether all of them are as they were written.
fn verify(store: &str, name: Option<&str>) -> Outcome<bool> {
    let backups = Backups::at(store)?;
    let listed = backups.list()?.backups;
    find(&listed, name)?;
    let mut are_whole = true;
    for backup in listed.iter().filter(|backup| name.is_none_or(|name| backup.name() == name)) {
        match backups.verify(backup) {
            Ok(()) => println!("{}  is as it was written", backup.name()),
            Err(error) => {
                are_whole = false;
                println!("{error}");
            }
        }
    }
    Ok(are_whole)
}

fn restore(store: &str, directory: &str, name: Option<&str>) -> Outcome<bool> {
    let backups = Backups::at(store)?;
    let listed = backups.list()?.backups;
    let backup = choose(&listed, name)?;
    backups.restore(backup, Path::new(directory))?;
    println!("{backup}\nis restored in {directory}");
    Ok(true)
}
