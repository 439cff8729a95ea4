//! Reports of cuts, problems and files, as text and as JSON.

use std::path::{Path, PathBuf};

use serde::Serialize;
use weft::durability::{LogCut, StorageError};

use weft_bench::numbers::counted;

/// A part of the log that does not count.
#[derive(Serialize)]
pub struct CutReport {
    file: String,
    offset: u64,
    bytes: u64,
    reason: String,
}

/// A problem in the database's files.
#[derive(Serialize)]
pub struct ProblemReport {
    file: Option<String>,
    offset: Option<u64>,
    message: String,
}

/// Returns the cuts for a JSON report.
pub fn cuts(cuts: &[LogCut]) -> Vec<CutReport> {
    let report = |cut: &LogCut| CutReport {
        file: cut.path.display().to_string(),
        offset: cut.offset,
        bytes: cut.bytes,
        reason: cut.what.clone(),
    };
    cuts.iter().map(report).collect()
}

/// Returns one line of text per cut. `verb` says what happens to the cut, or has happened.
pub fn cut_lines(cuts: &[LogCut], verb: &str) -> String {
    let line = |cut: &LogCut| {
        let (bytes, path) = (counted(cut.bytes, "byte"), cut.path.display());
        format!("{verb}: {bytes} of {path} from byte {} on: {}\n", cut.offset, cut.what)
    };
    cuts.iter().map(line).collect()
}

/// Returns the problems for a JSON report.
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

/// Returns one line of text per problem.
pub fn problem_lines(problems: &[StorageError]) -> String {
    problems.iter().map(|problem| format!("problem: {problem}\n")).collect()
}

/// Returns the path of a file relative to the database's directory.
pub fn within(path: &Path, directory: &Path) -> String {
    path.strip_prefix(directory).unwrap_or(path).display().to_string()
}

/// The first line of a report if another process has the database open.
pub const OPEN: &str = "\
the database is open: a write in progress may show up as a tail that is cut off
";
