//! Types that describe a figure. The descriptions are constants: everything about a figure is in one place, and the
//! compiler or the tests find mistakes in it.

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
    /// All papers, in the order of the page.
    pub const ALL: [Paper; 5] =
        [Paper::Dbx, Paper::DbxTc, Paper::Htcc, Paper::Doppel, Paper::NoFreeLunch];

    /// Returns the name on the command line and in the names of files.
    pub fn name(self) -> &'static str {
        match self {
            Paper::Dbx => "dbx",
            Paper::DbxTc => "dbx-tc",
            Paper::Htcc => "htcc",
            Paper::Doppel => "doppel",
            Paper::NoFreeLunch => "no-free-lunch",
        }
    }

    /// Returns the paper's short title.
    pub fn title(self) -> &'static str {
        match self {
            Paper::Dbx => "DBX",
            Paper::DbxTc => "DBX-TC",
            Paper::Htcc => "HTCC",
            Paper::Doppel => "Doppel",
            Paper::NoFreeLunch => "No Free Lunch",
        }
    }

    /// Returns what Weft took from the paper, in a sentence or two.
    pub fn taken(self) -> &'static str {
        match self {
            Paper::Dbx => {
                "The default protocol, dbx: a transaction validates and writes in one hardware region. A region that gives \
                 up takes the locks of its own records, not one lock for all."
            }
            Paper::DbxTc => {
                "The protocol dbx-tc, which commits procedures in pieces, the analysis that finds the pieces, and snapshots \
                 that readers share."
            }
            Paper::Htcc => {
                "The protocol htcc: locks for contended records, and repair of transactions in place of restarts."
            }
            Paper::Doppel => {
                "The protocol doppel: operations that commute change one row on many cores at once."
            }
            Paper::NoFreeLunch => {
                "Locks that a hardware region can replace, and the rule to measure before one does."
            }
        }
    }

    /// Returns the authors, title and venue.
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

/// The number of a figure or table in its paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// A whole figure.
    Figure(u8),
    /// A part of a figure, such as `Part(1, "a")`.
    Part(u8, &'static str),
    /// A table.
    Table(u8),
}

impl Number {
    /// Returns whether a name on the command line means it: `1` and `1a` for a figure, `table-1` for a table.
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

    /// Returns a short form for lists: `14`, `1a`, or `Table 1`.
    pub fn short(self) -> String {
        match self {
            Number::Figure(number) => number.to_string(),
            Number::Part(number, part) => format!("{number}{part}"),
            Number::Table(number) => format!("Table {number}"),
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
    /// The paper.
    pub paper: Paper,
    /// The number in the paper.
    pub number: Number,
    /// The section that discusses it.
    pub section: &'static str,
    /// The title.
    pub title: &'static str,
    /// The paper's claim that it supports, in a sentence.
    pub claim: &'static str,
    /// The experiment.
    pub content: Content,
}

impl Figure {
    /// Returns whether both are the same figure. Definitions are constants, so a figure may have several copies.
    pub fn is_same(&self, other: &Figure) -> bool {
        (self.paper, self.number) == (other.paper, other.number)
    }

    /// Returns the name in files and links, such as `htcc-figure-14`.
    pub fn id(&self) -> String {
        let number = self.number.to_string().to_ascii_lowercase().replace(' ', "-");
        format!("{}-{number}", self.paper.name())
    }

    /// Returns the experiment, if the figure is measured.
    pub fn experiment(&self) -> Option<&Experiment> {
        match &self.content {
            Content::Experiment(experiment) => Some(experiment),
            Content::NotMeasured(_) => None,
        }
    }
}

/// How a figure is measured.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "these are constants, and most are experiments")]
pub enum Content {
    /// By this experiment.
    Experiment(Experiment),
    /// Not at all, for this reason.
    NotMeasured(&'static str),
}

/// The experiment for a figure: one call for each series and each value of the axis.
#[derive(Debug)]
pub struct Experiment {
    /// The command of `cargo lab bench` and of `cargo simulate`, and the options of all points.
    pub workload: &'static [&'static str],
    /// What each point runs.
    pub subject: Subject,
    /// How it is measured on this machine, or why it cannot be.
    pub real: Result<Real, &'static str>,
    /// How it is measured on a simulated machine, or why it cannot be.
    pub simulated: Result<Simulated, &'static str>,
    /// The axis: what is varied.
    pub axis: Axis,
    /// The series to compare, by the paper's names.
    pub series: &'static [Series],
    /// The metrics: one panel of the picture for each.
    pub metrics: &'static [Metric],
    /// The expectations that follow from the claim.
    pub expectations: &'static [Expectation],
    /// Numbers that the paper's text gives.
    pub published: &'static [PaperNumber],
    /// Differences from the paper, with reasons.
    pub differs: &'static [&'static str],
}

impl Experiment {
    /// Returns the position of the series with this name.
    pub fn series(&self, name: &str) -> Option<usize> {
        self.series.iter().position(|series| series.name == name)
    }
}

/// What a point runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Transactions, for some time.
    Transactions,
    /// A number of hardware regions. The options of the point choose the number of threads.
    Regions,
    /// An analysis of procedures, which gives the same result on every machine.
    Analysis,
}

/// A placeholder in options for the directory of the figures, where there is a disk to write to.
pub const DIRECTORY: &str = "{directory}";

/// How an experiment runs on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Real {
    /// The number of threads, unless that is the axis.
    pub threads: u32,
    /// Whether the result says little without hardware regions.
    pub needs_rtm: bool,
    /// Options that only `cargo lab bench` has.
    pub arguments: &'static [&'static str],
}

/// How an experiment runs on a simulated machine.
#[derive(Clone, Copy, Debug)]
pub struct Simulated {
    /// The machine's name.
    pub machine: &'static str,
    /// The number of hardware threads, unless that is the axis.
    pub cores: u32,
    /// The length of a quick run.
    pub quick: Span,
    /// The length of a full run.
    pub full: Span,
    /// Options that only `cargo simulate` has.
    pub arguments: &'static [&'static str],
}

/// The length of a simulated run. Its times are milliseconds of virtual time, except `load`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The time before the measurement.
    pub warmup: f64,
    /// The measured time.
    pub measured: f64,
    /// The approximate time that loading takes, in seconds of the host.
    pub load: f64,
    /// Options of runs of this length.
    pub arguments: &'static [&'static str],
}

/// Returns a span with these times, a load of 3 seconds, and no options.
pub const fn span(warmup: f64, measured: f64) -> Span {
    Span { warmup, measured, load: 3.0, arguments: &[] }
}

impl Span {
    /// Returns the same span with this load time, in seconds.
    pub const fn loading(self, load: f64) -> Span {
        Span { load, ..self }
    }

    /// Returns the same span with these options.
    pub const fn with(self, arguments: &'static [&'static str]) -> Span {
        Span { arguments, ..self }
    }
}

/// The axis of an experiment: what is varied.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The label, with its unit.
    pub label: &'static str,
    /// The quantity that varies along the axis.
    pub by: AxisVariable,
    /// How it is drawn.
    pub scale: Scale,
    /// The values of a quick run, ascending; unused with choices.
    pub quick: &'static [f64],
    /// The values of a full run, which include those of a quick run.
    pub full: &'static [f64],
}

/// What an axis varies.
#[derive(Clone, Copy, Debug)]
pub enum AxisVariable {
    /// The number of threads, or of virtual cores.
    Threads,
    /// An option with a number, and the unit appended to the number.
    Option(&'static str, &'static str),
    /// Nothing: a value is a time in milliseconds, and all values of a series come from one call. The metric's path
    /// finds the number of a time, with [`AT`] for the value.
    Time,
    /// Settings without an order. The position of a setting is its value on the axis.
    Choices(&'static [AxisChoice]),
}

/// A setting of an axis.
#[derive(Clone, Copy, Debug)]
pub struct AxisChoice {
    /// The label on the axis.
    pub label: &'static str,
    /// The options of the setting.
    pub arguments: &'static [&'static str],
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from 0.
    Linear,
    /// Logarithmic: the same distance for the same factor.
    Logarithmic,
}

/// A series: one of the systems or variants that are compared.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// The paper's name, or the name of Weft's own protocol.
    pub name: &'static str,
    /// The options that select it.
    pub arguments: &'static [&'static str],
    /// Whether it is Weft's own protocol, drawn beside the paper's.
    pub is_ours: bool,
}

impl Series {
    /// Returns the same series as one of Weft's own.
    pub const fn ours(self) -> Series {
        Series { is_ours: true, ..self }
    }
}

/// Returns a series of the paper with this name and these options.
pub const fn series(name: &'static str, arguments: &'static [&'static str]) -> Series {
    Series { name, arguments, is_ours: false }
}

/// A metric: what is measured.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name.
    pub name: &'static str,
    /// The unit; may be empty.
    pub unit: &'static str,
    /// How it is drawn.
    pub scale: Scale,
    /// Where it is in the report of `cargo lab bench`.
    pub real: Reading,
    /// Where it is in the report of `cargo simulate`.
    pub simulated: Reading,
}

impl Metric {
    /// Returns the same metric with a logarithmic scale.
    pub const fn logarithmic(self) -> Metric {
        Metric { scale: Scale::Logarithmic, ..self }
    }

    /// Returns the label of its axis.
    pub fn label(&self) -> String {
        match self.unit {
            "" => self.name.to_owned(),
            unit => format!("{}, {unit}", self.name),
        }
    }
}

/// A placeholder in paths for the value of the axis.
pub const AT: &str = "{at}";

/// A number in a report, or a quotient of two.
///
/// A path consists of steps separated by `/`. `key` selects a member of an object. `key=value` selects the first
/// object of an array whose `key` is that text or number. `#` is the number of elements of an array. [`AT`] stands
/// for the value of the axis.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The path of the number.
    pub of: &'static str,
    /// The path of the divisor; empty for no divisor.
    pub over: &'static str,
    /// The factor by which the number is multiplied.
    pub factor: f64,
}

impl Reading {
    /// Returns the reading of a number.
    pub const fn of(path: &'static str) -> Reading {
        Reading { of: path, over: "", factor: 1.0 }
    }

    /// Returns the reading of a quotient.
    pub const fn ratio(of: &'static str, over: &'static str) -> Reading {
        Reading { of, over, factor: 1.0 }
    }

    /// Returns the same reading, multiplied by `factor`.
    pub const fn times(self, factor: f64) -> Reading {
        Reading { factor, ..self }
    }
}

/// A position on the axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AxisPosition {
    /// This value.
    Value(f64),
    /// The least value that was measured.
    First,
    /// The greatest value that was measured.
    Last,
}

/// An expectation about the numbers that follows from a claim, and that measurements can refute.
#[derive(Clone, Copy, Debug)]
pub struct Expectation {
    /// The expectation, in words.
    pub says: &'static str,
    /// What the paper's text says about it, and where; empty if only the paper's picture shows it.
    pub paper: &'static str,
    /// The position of the metric.
    pub metric: usize,
    /// The number that is computed from the curves.
    pub shape: Shape,
    /// The bounds of that number.
    pub bounds: Bounds,
}

/// A number computed from one or two curves.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// One series divided by another, at the same position.
    Ratio {
        /// The dividend.
        of: &'static str,
        /// The divisor.
        to: &'static str,
        /// The position.
        at: AxisPosition,
    },
    /// A series at one position, divided by the same series at another.
    Change {
        /// The series.
        of: &'static str,
        /// The position of the divisor.
        from: AxisPosition,
        /// The position of the dividend.
        until: AxisPosition,
    },
    /// A series divided by the greatest of all others of the paper: the least such ratio from a position on.
    Ahead {
        /// The series.
        of: &'static str,
        /// The first position.
        from: AxisPosition,
    },
    /// The value of a series.
    Value {
        /// The series.
        of: &'static str,
        /// The position.
        at: AxisPosition,
    },
}

/// The bounds of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The lower bound.
    pub least: f64,
    /// The upper bound.
    pub most: f64,
}

/// Returns bounds with only a lower bound.
pub const fn at_least(least: f64) -> Bounds {
    Bounds { least, most: f64::INFINITY }
}

/// Returns bounds with only an upper bound.
pub const fn at_most(most: f64) -> Bounds {
    Bounds { least: f64::NEG_INFINITY, most }
}

/// Returns bounds from `least` to `most`.
pub const fn between(least: f64, most: f64) -> Bounds {
    Bounds { least, most }
}

/// The bounds of a ratio that counts as equal; such short runs cannot distinguish smaller differences.
pub const ALIKE: Bounds = between(0.8, 1.25);

/// A number that the paper's text gives.
#[derive(Clone, Copy, Debug)]
pub struct PaperNumber {
    /// The series.
    pub series: &'static str,
    /// The position of the metric.
    pub metric: usize,
    /// The value on the axis.
    pub at: f64,
    /// The number, in the metric's unit.
    pub value: f64,
}

/// Returns a published number of the first metric.
pub const fn published(series: &'static str, at: f64, value: f64) -> PaperNumber {
    PaperNumber { series, metric: 0, at, value }
}
