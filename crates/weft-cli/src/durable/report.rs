//! How cuts, problems and files are told, to people and to machines.

use std::path::{Path, PathBuf};

use serde::Serialize;
use weft::durability::{Cut, StorageError};

use weft_bench::numbers::counted;

/// Something that does not count of the log.
#[derive(Serialize)]
pub struct CutReport {
    file: String,
    offset: u64,
    bytes: u64,
    reason: String,
}

/// Something that is wrong.
#[derive(Serialize)]
pub struct ProblemReport {
    file: Option<String>,
    offset: Option<u64>,
    message: String,
}

/// Cuts for machines.
pub fn cuts(cuts: &[Cut]) -> Vec<CutReport> {
    let report = |cut: &Cut| CutReport {
        file: cut.path.display().to_string(),
        offset: cut.offset,
        bytes: cut.bytes,
        reason: cut.what.clone(),
    };
    cuts.iter().map(report).collect()
}

/// A line for each cut, for people. `verb`: what happens to it, or has happened.
pub fn cut_lines(cuts: &[Cut], verb: &str) -> String {
    let line = |cut: &Cut| {
        let (bytes, path) = (counted(cut.bytes, "byte"), cut.path.display());
        format!("{verb}: {bytes} of {path} from byte {} on: {}\n", cut.offset, cut.what)
    };
    cuts.iter().map(line).collect()
}

/// Problems for machines.
pub fn problems(problems: &[StorageError]) -> Vec<ProblemReport> {
    problems.iter().map(problem).collect()
}

fn problem(error: &StorageError) -> ProblemReport {
    let (file, offset) = match error {
        StorageError::Damaged { path, offset, .. } => (Some(path), Some(*offset)),
        StorageError::Io { path, .. }
        | StorageError::NotAFile { path, .. }
        | StorageError::UnknownVersion { path, .. }
        | StorageError::SyncFailed { path, .. }
        | StorageError::DiskFull { path } => (Some(path), None),
        StorageError::NotADatabase { directory, .. } | StorageError::AlreadyOpen { directory } => {
            (Some(directory), None)
        }
        _ => (None, None),
    };
    let file = file.map(|path: &PathBuf| path.display().to_string());
    ProblemReport { file, offset, message: error.to_string() }
}

/// A line for each problem, for people.
pub fn problem_lines(problems: &[StorageError]) -> String {
    problems.iter().map(|problem| format!("problem: {problem}\n")).collect()
}

/// The path of a file in the database's directory, from there.
pub fn within(path: &Path, directory: &Path) -> String {
    path.strip_prefix(directory).unwrap_or(path).display().to_string()
}

/// What is said first if somebody has the database open.
pub const OPEN: &str = "\
the database is open: what is being written at this moment may show up as a tail that is cut off
";
