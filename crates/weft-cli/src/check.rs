//! `weft check`: decides whether a recorded history is serializable.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde::Serialize;
use weft_checker::format::{self, Format};
use weft_checker::{Level, Options, Phase, Report, check_with_progress};

use weft_bench::progress::Progress;
use weft_bench::stop::Stop;

/// How many bytes of a file are read at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// The help text below the options.
const EXAMPLE: &str = "\
Example: two transactions that both read the first version of an account, and both write it.

  $ cat withdrawals.jsonl
  {\"format\":\"weft-history\",\"version\":1}
  {\"id\":1,\"status\":\"committed\",\"ops\":[[\"read\",\"accounts\",5,0],[\"write\",\"accounts\",5,1]]}
  {\"id\":2,\"status\":\"committed\",\"ops\":[[\"read\",\"accounts\",5,0],[\"write\",\"accounts\",5,2]]}
  $ weft check withdrawals.jsonl
  NOT serializable (strict): 2 transactions …
  anomaly 1 of 1: lost update (G-single)
    1. T2 read the initial version of accounts/5, which T1 overwrote with version 1
       so T2 precedes T1  [rw]
    2. T1 wrote version 1 of accounts/5, which T2 overwrote with version 2
       so T1 precedes T2  [ww]

docs/history-format.md describes the formats. Exit code: 0 if all histories satisfy the level; 1 if
one does not; 2 if one cannot be read.";

/// The options of `weft check`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLE)]
pub struct CheckArguments {
    /// Histories to check; `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// What the histories must satisfy
    #[arg(long, value_enum, default_value_t = LevelName::Strict)]
    level: LevelName,

    /// The format of the files [default: detected from each file's first lines]
    #[arg(long, value_parser = formats())]
    format: Option<Format>,

    /// The most anomalies to describe; further ones are only counted
    #[arg(long, value_name = "N", default_value_t = 10)]
    anomalies: usize,

    /// Print a JSON array with one object per file instead of the report
    #[arg(long)]
    json: bool,

    /// Write the cycles found as a graph in Graphviz's language; for one FILE only
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
}

/// A level, as named on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LevelName {
    /// Some serial order of the transactions explains everything that they read
    Serializable,
    /// As `serializable`; and a transaction that started after another had completed comes after it in that order
    Strict,
}

fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name)).map(|name| {
        let found = Format::ALL.into_iter().find(|format| format.name() == name);
        found.expect("the parser accepts only these names")
    })
}

/// One file's result in the JSON report.
#[derive(Serialize)]
struct FileReport<'a> {
    file: String,
    format: &'a str,
    ok: bool,
    #[serde(flatten)]
    report: &'a Report,
}

/// Checks every file.
///
/// # Errors
/// A file cannot be read or is malformed, a history does not satisfy the level, or the results cannot be written.
pub fn run(arguments: &CheckArguments) -> Result<(), Stop> {
    if arguments.dot.is_some() && arguments.files.len() > 1 {
        return Err(Stop::Usage("--dot takes one FILE to check, not several".to_owned()));
    }
    let level = match arguments.level {
        LevelName::Serializable => Level::Serializable,
        LevelName::Strict => Level::Strict,
    };
    let options = Options { level, anomalies_max: arguments.anomalies };
    let mut results = Vec::new();
    let mut anomalous = Vec::new();
    for path in &arguments.files {
        let (format, report) = check_file(path, arguments.format, &options)?;
        if !report.is_ok() {
            anomalous.push(shown(path));
        }
        if let Some(dot) = &arguments.dot {
            std::fs::write(dot, report.to_dot())
                .map_err(|error| Stop::Usage(format!("--dot {}: {error}", dot.display())))?;
        }
        if arguments.json {
            results.push((path, format, report));
        } else {
            if arguments.files.len() > 1 {
                writeln!(io::stdout(), "{}:", shown(path))?;
            }
            write!(io::stdout(), "{report}")?;
        }
    }
    if arguments.json {
        let results: Vec<FileReport<'_>> = results
            .iter()
            .map(|(path, format, report)| {
                let (format, ok) = (format.name(), report.is_ok());
                FileReport { file: shown(path), format, ok, report }
            })
            .collect();
        let text = serde_json::to_string_pretty(&results).map_err(io::Error::from)?;
        writeln!(io::stdout(), "{text}")?;
    }
    match anomalous.as_slice() {
        [] => Ok(()),
        files => Err(Stop::Failed(format!("not {}: {}", level_words(level), files.join(", ")))),
    }
}

fn level_words(level: Level) -> &'static str {
    match level {
        Level::Serializable => "serializable",
        Level::Strict => "strictly serializable",
    }
}

/// Returns the name of a file in messages.
fn shown(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

fn check_file(
    path: &Path,
    format: Option<Format>,
    options: &Options,
) -> Result<(Format, Report), Stop> {
    let unreadable = |error: io::Error| Stop::Usage(format!("{}: {error}", shown(path)));
    let reading = Progress::new(&format!("reading {}", shown(path)));
    let read = if path == Path::new("-") {
        format::read(io::stdin().lock(), format, &mut |_| {})
    } else {
        let file = File::open(path).map_err(unreadable)?;
        let size_bytes = file.metadata().map_err(unreadable)?.len();
        let reader = BufReader::with_capacity(BUFFER_BYTES, file);
        let reader = Counted { reader, size_bytes, read_bytes: 0, progress: &reading };
        format::read(reader, format, &mut |_| {})
    };
    let read = read.map_err(|error| Stop::Usage(format!("{}: {error}", shown(path))))?;
    drop(reading);
    let checking = Progress::new(&format!("checking {}", shown(path)));
    let report = check_with_progress(&read.history, options, &mut |phase| match phase {
        Phase::Versions => checking.set(0, 1),
        // Finding cycles takes about as long as finding edges.
        Phase::Edges { done, total } => checking.set(done as u64, 2 * total as u64),
        Phase::Cycles => checking.set(1, 2),
        Phase::Witness => checking.set(9, 10),
    });
    Ok((read.format, report))
}

/// A reader of a file that shows how much of it has been read.
struct Counted<'a> {
    reader: BufReader<File>,
    size_bytes: u64,
    read_bytes: u64,
    progress: &'a Progress,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl BufRead for Counted<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.reader.buffer().is_empty() {
            self.progress.set(self.read_bytes.min(self.size_bytes), self.size_bytes);
        }
        self.reader.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.read_bytes += bytes as u64;
        self.reader.consume(bytes);
    }
}
