//! Sizes of regions: their types, their text form, and the default sizes near a machine's expected limits.

use std::fmt;

use super::{Kind, MEMORY_BYTES};

/// The bytes of a cache line.
pub(super) const LINE_BYTES: u64 = 64;

/// The bytes between two lines of the same set of a first-level cache.
pub(super) const SET_STRIDE_BYTES: u64 = 4096;

/// The longest region that computes: one minute.
const NANOSECONDS_MAX: u64 = 60_000_000_000;

/// The properties of a machine on which the default sizes depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edges {
    /// The bytes of the first-level data cache, which limits what a region writes.
    pub first_level_bytes: u64,
    /// The number of lines of one of its sets.
    pub first_level_ways: u64,
}

impl Edges {
    /// The properties of the papers' machine.
    pub const HASWELL: Edges = Edges { first_level_bytes: 32 << 10, first_level_ways: 8 };
}

/// The size of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A number of bytes, rounded up to whole lines.
    Bytes(u64),
    /// A number of bytes to read, and a number of bytes to write.
    ReadAndWritten(u64, u64),
    /// A number of lines.
    Lines(u64),
    /// A number of nanoseconds.
    Nanoseconds(u64),
    /// A store without a region.
    Alone,
    /// A store in a region.
    InRegion,
    /// An empty region.
    Empty,
}

impl Size {
    /// Returns the default sizes of an experiment for a machine. Sizes are close together near the limits that the
    /// first-level cache sets. They are far apart for reads, because no processor's manual states their limits.
    pub fn of_machine(kind: Kind, edges: &Edges) -> Vec<Size> {
        let first_level = edges.first_level_bytes;
        let parts = |whole: u64, sixty_fourths: &[u64]| -> Vec<u64> {
            sixty_fourths.iter().map(|part| whole * part / 64).collect()
        };
        let multiples = |factors: &[u64]| -> Vec<u64> {
            factors.iter().map(|factor| first_level * factor / 2).collect()
        };
        let bytes = |sizes: Vec<u64>| sizes.into_iter().map(Size::Bytes).collect();
        match kind {
            Kind::Writes => {
                bytes(parts(first_level, &[16, 32, 40, 44, 48, 56, 60, 62, 64, 66, 80]))
            }
            Kind::RandomWrites => {
                let mut sizes = vec![7 * LINE_BYTES];
                sizes.extend(parts(first_level, &[2, 4, 8, 12, 16, 20, 24, 32, 40, 48]));
                bytes(sizes)
            }
            Kind::OneSet => {
                let ways = edges.first_level_ways;
                [ways / 2, ways - 1, ways, ways + 1, ways + 2].map(Size::Lines).into()
            }
            Kind::Reads | Kind::RandomReads => {
                bytes(multiples(&[2, 4, 8, 16, 64, 128, 192, 256, 320, 384]))
            }
            Kind::ReadsFirst | Kind::WritesFirst => {
                let written = parts(first_level, &[16, 32, 56]);
                let read = multiples(&[1, 2, 64, 192]);
                let pair = |&read: &u64| {
                    written.iter().map(move |&written| Size::ReadAndWritten(read, written))
                };
                read.iter().flat_map(pair).collect()
            }
            Kind::Duration => [1, 10, 100, 300, 1_000, 2_000, 3_000, 4_000]
                .map(|microseconds| Size::Nanoseconds(microseconds * 1_000))
                .into(),
            Kind::Price => vec![Size::Alone, Size::InRegion, Size::Empty],
        }
    }

    /// Parses the size of an experiment, as [`Display`](fmt::Display) writes it.
    ///
    /// # Errors
    /// `text` is not a size of this experiment; the error describes the valid sizes.
    pub fn parse(kind: Kind, text: &str) -> Result<Size, String> {
        let (size, expected) = match kind {
            Kind::Writes | Kind::RandomWrites | Kind::Reads | Kind::RandomReads => {
                (bytes(text).map(Size::Bytes), "bytes, such as 448, 31K or 4M, at most 16M")
            }
            Kind::OneSet => {
                let lines = text.parse().ok();
                let most = MEMORY_BYTES / SET_STRIDE_BYTES;
                let lines = lines.filter(|lines| (1..=most).contains(lines));
                (lines.map(Size::Lines), "a number of lines, at most 4096")
            }
            Kind::ReadsFirst | Kind::WritesFirst => {
                let both = text.split_once('+').and_then(|(read, written)| {
                    let (read, written) = (bytes(read)?, bytes(written)?);
                    (read + written <= MEMORY_BYTES).then_some(Size::ReadAndWritten(read, written))
                });
                (both, "bytes read and written, such as 3M+28K, together at most 16M")
            }
            Kind::Duration => {
                (nanoseconds(text).map(Size::Nanoseconds), "a span, such as 500ns, 30us or 4ms")
            }
            Kind::Price => {
                let sizes = [Size::Alone, Size::InRegion, Size::Empty];
                let named = sizes.into_iter().find(|size| size.to_string() == text);
                (named, "alone, region or empty")
            }
        };
        size.ok_or_else(|| format!("'{text}' is no size of {kind}: expected {expected}"))
    }
}

/// Parses a number of bytes, at least one and at most [`MEMORY_BYTES`].
fn bytes(text: &str) -> Option<u64> {
    let (number, factor) = match text.char_indices().last()? {
        (position, 'K') => (&text[..position], 1 << 10),
        (position, 'M') => (&text[..position], 1 << 20),
        _ => (text, 1),
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(factor)?;
    (1..=MEMORY_BYTES).contains(&bytes).then_some(bytes)
}

fn nanoseconds(text: &str) -> Option<u64> {
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000)];
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let nanoseconds = number.parse::<u64>().ok()?.checked_mul(*factor)?;
    (1..=NANOSECONDS_MAX).contains(&nanoseconds).then_some(nanoseconds)
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |bytes: u64| match bytes {
            _ if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
            _ if bytes.is_multiple_of(1 << 10) => format!("{}K", bytes >> 10),
            _ => bytes.to_string(),
        };
        let text = match *self {
            Size::Bytes(size) => bytes(size),
            Size::ReadAndWritten(read, written) => format!("{}+{}", bytes(read), bytes(written)),
            Size::Lines(lines) => lines.to_string(),
            Size::Nanoseconds(span) if span.is_multiple_of(1_000_000) => {
                format!("{}ms", span / 1_000_000)
            }
            Size::Nanoseconds(span) if span.is_multiple_of(1_000) => format!("{}us", span / 1_000),
            Size::Nanoseconds(span) => format!("{span}ns"),
            Size::Alone => "alone".to_owned(),
            Size::InRegion => "region".to_owned(),
            Size::Empty => "empty".to_owned(),
        };
        out.pad(&text)
    }
}
