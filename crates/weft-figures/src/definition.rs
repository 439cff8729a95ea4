//! Of what the entry of a figure is made. Entries are constants: all that a figure is lies in one place,
//! and a mistake in it is found by the tests, or by the compiler.

use std::fmt;

/// A paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Paper {
    /// Wang et al., EuroSys 2014.
    Dbx,
    /// Qian et al., 2015.
    DbxTc,
    /// Wu and Tan, USENIX ATC 2016.
    Htcc,
    /// Narula et al., OSDI 2014.
    Doppel,
    /// Cervini et al., DaMoN 2015.
    NoFreeLunch,
}

impl Paper {
    /// All of them, in the order of the page.
    pub const ALL: [Paper; 5] =
        [Paper::Dbx, Paper::DbxTc, Paper::Htcc, Paper::Doppel, Paper::NoFreeLunch];

    /// As on the command line and in the names of files.
    pub fn name(self) -> &'static str {
        match self {
            Paper::Dbx => "dbx",
            Paper::DbxTc => "dbx-tc",
            Paper::Htcc => "htcc",
            Paper::Doppel => "doppel",
            Paper::NoFreeLunch => "no-free-lunch",
        }
    }

    /// As people call it.
    pub fn title(self) -> &'static str {
        match self {
            Paper::Dbx => "DBX",
            Paper::DbxTc => "DBX-TC",
            Paper::Htcc => "HTCC",
            Paper::Doppel => "Doppel",
            Paper::NoFreeLunch => "No Free Lunch",
        }
    }

    /// Authors, title and place.
    pub fn citation(self) -> &'static str {
        match self {
            Paper::Dbx => {
                "Z. Wang, H. Qian, J. Li, H. Chen: Using Restricted Transactional Memory to Build a \
                 Scalable In-Memory Database. EuroSys 2014"
            }
            Paper::DbxTc => {
                "H. Qian, Z. Wang, H. Guan, B. Zang, H. Chen: Exploiting Hardware Transactional \
                 Memory for Efficient In-Memory Transaction Processing. 2015"
            }
            Paper::Htcc => {
                "Y. Wu, K.-L. Tan: Scalable In-Memory Transaction Processing with HTM. USENIX ATC 2016"
            }
            Paper::Doppel => {
                "N. Narula, C. Cutler, E. Kohler, R. Morris: Phase Reconciliation for Contended \
                 In-Memory Transactions. OSDI 2014"
            }
            Paper::NoFreeLunch => {
                "D. Cervini, D. Porobic, P. Tözün, A. Ailamaki: Applying HTM to an OLTP System: No \
                 Free Lunch. DaMoN 2015"
            }
        }
    }
}

/// What something is called in its paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// A figure.
    Figure(u8),
    /// A part of a figure, `Part(1, "a")`.
    Part(u8, &'static str),
    /// A table.
    Table(u8),
}

impl Number {
    /// Whether a name on the command line means it: `1` and `1a` of a figure, `table-1` of a table.
    pub fn is_meant_by(self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        match self {
            Number::Figure(number) => name == number.to_string(),
            Number::Part(number, part) => {
                name == number.to_string() || name == format!("{number}{part}")
            }
            Number::Table(number) => name == format!("table-{number}"),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Figure(number) => write!(out, "Figure {number}"),
            Number::Part(number, part) => write!(out, "Figure {number}{part}"),
            Number::Table(number) => write!(out, "Table {number}"),
        }
    }
}

/// A figure or table of a paper.
#[derive(Debug)]
pub struct Figure {
    /// Of which paper.
    pub paper: Paper,
    /// What it is called there.
    pub number: Number,
    /// The section that discusses it.
    pub section: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What it is evidence for, in a sentence.
    pub claim: &'static str,
    /// What is run for it.
    pub content: Content,
}

impl Figure {
    /// Whether this is that figure, of which there may be several copies: definitions are constants.
    pub fn is_same(&self, other: &Figure) -> bool {
        (self.paper, self.number) == (other.paper, other.number)
    }

    /// Its name in files and links, such as `htcc-figure-14`.
    pub fn id(&self) -> String {
        let number = self.number.to_string().to_ascii_lowercase().replace(' ', "-");
        format!("{}-{number}", self.paper.name())
    }

    /// What is run for it, if anything is.
    pub fn experiment(&self) -> Option<&Experiment> {
        match &self.content {
            Content::Experiment(experiment) => Some(experiment),
            Content::NotMeasured(_) => None,
        }
    }
}

/// What is run for a figure.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "these are constants, and most are experiments")]
pub enum Content {
    /// This.
    Experiment(Experiment),
    /// Nothing, and why.
    NotMeasured(&'static str),
}

/// What is run for a figure: for each series and each value of the axis one call.
#[derive(Debug)]
pub struct Experiment {
    /// The command of `cargo lab bench` and of `cargo simulate`, and the options of each point.
    pub workload: &'static [&'static str],
    /// Whether transactions are run for some time, or so many regions are tried.
    pub subject: Subject,
    /// On this machine: how, or why not.
    pub real: Result<Real, &'static str>,
    /// On a simulated one: how, or why not.
    pub simulated: Result<Simulated, &'static str>,
    /// What is varied.
    pub axis: Axis,
    /// What is compared, by the paper's names.
    pub series: &'static [Series],
    /// What is measured: a panel of the picture for each.
    pub metrics: &'static [Metric],
    /// The shape that the claim expects.
    pub expectations: &'static [Expectation],
    /// Numbers that the paper's text gives.
    pub published: &'static [Published],
    /// What differs from the paper, and why.
    pub differs: &'static [&'static str],
}

impl Experiment {
    /// The position of a series.
    pub fn series(&self, name: &str) -> Option<usize> {
        self.series.iter().position(|series| series.name == name)
    }
}

/// What a point runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Transactions, for some time.
    Transactions,
    /// Hardware regions, so and so often; the number of threads is theirs to say.
    Regions,
    /// Nothing: procedures are analysed, which is the same on every machine.
    Analysis,
}

/// In options, the directory of the figures, where there is a disk to write to.
pub const DIRECTORY: &str = "{directory}";

/// How something is run on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Real {
    /// On how many threads, unless that is the axis.
    pub threads: u32,
    /// Whether it says little without hardware regions.
    pub needs_rtm: bool,
    /// Options that only `cargo lab bench` has.
    pub arguments: &'static [&'static str],
}

/// How something is run on a simulated machine.
#[derive(Clone, Copy, Debug)]
pub struct Simulated {
    /// Its name.
    pub machine: &'static str,
    /// On how many hardware threads, unless that is the axis.
    pub cores: u32,
    /// How long, in milliseconds of virtual time, in a quick run.
    pub quick: Span,
    /// Likewise, in a full one.
    pub full: Span,
    /// Options that only `cargo simulate` has.
    pub arguments: &'static [&'static str],
}

/// For how long something is run, in milliseconds of virtual time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Before anything counts.
    pub warmup: f64,
    /// What is measured.
    pub measured: f64,
    /// About how many seconds of the host's time it takes to load what is run.
    pub load: f64,
    /// Options of runs of this length.
    pub arguments: &'static [&'static str],
}

/// A span.
pub const fn span(warmup: f64, measured: f64) -> Span {
    Span { warmup, measured, load: 3.0, arguments: &[] }
}

impl Span {
    /// The same of what takes so many seconds to load.
    pub const fn loading(self, load: f64) -> Span {
        Span { load, ..self }
    }

    /// The same, with options.
    pub const fn with(self, arguments: &'static [&'static str]) -> Span {
        Span { arguments, ..self }
    }
}

/// What is varied.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// What it is, with its unit.
    pub label: &'static str,
    /// By what it is varied.
    pub by: By,
    /// How it is drawn.
    pub scale: Scale,
    /// The values of a quick run, ascending; unused where there are choices.
    pub quick: &'static [f64],
    /// Those of a full one; the quick ones are among them.
    pub full: &'static [f64],
}

/// By what something is varied.
#[derive(Clone, Copy, Debug)]
pub enum By {
    /// The number of threads, or of virtual cores.
    Threads,
    /// An option with a number, behind which a unit may stand.
    Option(&'static str, &'static str),
    /// Nothing: a value is a time in milliseconds, and all of a series are of one call. The metric's path says
    /// where that stands, with [`AT`] for the value.
    Time,
    /// Some settings that have no order. Their position is the value on the axis.
    Choices(&'static [Choice]),
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// What the axis calls it.
    pub label: &'static str,
    /// Its options.
    pub arguments: &'static [&'static str],
}

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The same distance for the same difference, from 0 on.
    Linear,
    /// The same distance for the same factor.
    Logarithmic,
}

/// Who is compared.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// The paper's name.
    pub name: &'static str,
    /// Options that choose it.
    pub arguments: &'static [&'static str],
}

/// A series.
pub const fn series(name: &'static str, arguments: &'static [&'static str]) -> Series {
    Series { name, arguments }
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// What it is.
    pub name: &'static str,
    /// Its unit; empty if it has none.
    pub unit: &'static str,
    /// How it is drawn.
    pub scale: Scale,
    /// Where `cargo lab bench` writes it.
    pub real: Reading,
    /// Where `cargo simulate` writes it.
    pub simulated: Reading,
}

impl Metric {
    /// The same, drawn by factors.
    pub const fn logarithmic(self) -> Metric {
        Metric { scale: Scale::Logarithmic, ..self }
    }

    /// What an axis of it is called.
    pub fn label(&self) -> String {
        match self.unit {
            "" => self.name.to_owned(),
            unit => format!("{}, {unit}", self.name),
        }
    }
}

/// In paths, the value of the axis.
pub const AT: &str = "{at}";

/// A number in a report, or a quotient of two.
///
/// A path is made of steps with `/` between them: `key` into an object, `key=value` to the first object of an
/// array whose `key` is that text or number, `#` to the number of elements of an array. [`AT`] stands for the
/// value of the axis.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The number.
    pub of: &'static str,
    /// By what it is divided, if by anything.
    pub over: &'static str,
    /// By what it is multiplied.
    pub factor: f64,
}

impl Reading {
    /// A number as it stands.
    pub const fn of(path: &'static str) -> Reading {
        Reading { of: path, over: "", factor: 1.0 }
    }

    /// A quotient.
    pub const fn ratio(of: &'static str, over: &'static str) -> Reading {
        Reading { of, over, factor: 1.0 }
    }

    /// Times something.
    pub const fn times(self, factor: f64) -> Reading {
        Reading { factor, ..self }
    }
}

/// A value of the axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum At {
    /// This one.
    Value(f64),
    /// The least that was measured.
    First,
    /// The greatest that was measured.
    Last,
}

/// Something that the claim expects of the numbers, and that can be otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Expectation {
    /// What it is, in words.
    pub says: &'static str,
    /// What the paper's text says of it, and where; empty if only its picture does.
    pub paper: &'static str,
    /// About which metric.
    pub metric: usize,
    /// What is looked at.
    pub shape: Shape,
    /// Between what it has to be.
    pub bounds: Bounds,
}

/// A number that a curve, or two, have.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// One series divided by another.
    Ratio {
        /// This one.
        of: &'static str,
        /// By that one.
        to: &'static str,
        /// Where.
        at: At,
    },
    /// A series at one place divided by the same at another.
    Change {
        /// Which one.
        of: &'static str,
        /// By what it is there.
        from: At,
        /// What it is here.
        until: At,
    },
    /// A series divided by the greatest of all others: the least such ratio from somewhere on.
    Ahead {
        /// Which one.
        of: &'static str,
        /// From where on.
        from: At,
    },
    /// The number itself.
    Value {
        /// Of which series.
        of: &'static str,
        /// Where.
        at: At,
    },
}

/// Between what a number has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// At least this.
    pub least: f64,
    /// At most this.
    pub most: f64,
}

/// At least so much.
pub const fn at_least(least: f64) -> Bounds {
    Bounds { least, most: f64::INFINITY }
}

/// At most so much.
pub const fn at_most(most: f64) -> Bounds {
    Bounds { least: f64::NEG_INFINITY, most }
}

/// From here to there.
pub const fn between(least: f64, most: f64) -> Bounds {
    Bounds { least, most }
}

/// The same, but for what runs this short tell apart.
pub const ALIKE: Bounds = between(0.8, 1.25);

/// A number that the paper's text gives.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Of which series.
    pub series: &'static str,
    /// Of which metric.
    pub metric: usize,
    /// Where on the axis.
    pub at: f64,
    /// The number, in the metric's unit.
    pub value: f64,
}

/// A published number of the first metric.
pub const fn published(series: &'static str, at: f64, value: f64) -> Published {
    Published { series, metric: 0, at, value }
}
