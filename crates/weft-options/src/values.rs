//! Parsers for the values of options, with the messages for wrong values.

use std::ops::RangeInclusive;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use weft::protocol::ProtocolDescription;
use weft_protocols::PROTOCOLS;
use weft_workloads::{paper, variants};

use crate::protocols::RAW;

/// The seed of a run that names none. It is always the same, so that a run can be repeated.
pub const SEED_DEFAULT: u64 = 1;

/// The longest time span, in seconds.
const SECONDS_MAX: f64 = 86_400.0;

/// Accepts the names of the protocols, and describes each in the help.
pub fn protocol_names() -> impl TypedValueParser<Value = String> {
    contenders(PROTOCOLS.iter())
}

/// Accepts the names of these protocols only.
pub fn names_of(names: &'static [&'static str]) -> impl TypedValueParser<Value = String> {
    let protocols = PROTOCOLS.iter().filter(|protocol| names.contains(&protocol.name));
    PossibleValuesParser::new(protocols.map(possible))
}

/// Accepts the names of the protocols, and of the memory store without transactions.
pub fn protocol_names_or_raw() -> impl TypedValueParser<Value = String> {
    contenders(PROTOCOLS.iter().chain([&RAW]))
}

/// Accepts the names of these protocols, and of variants.
fn contenders(
    protocols: impl Iterator<Item = &'static ProtocolDescription>,
) -> impl TypedValueParser<Value = String> {
    let variants = variants::all();
    let variants = variants.map(|variant| PossibleValue::new(variant.name).help(variant.about));
    PossibleValuesParser::new(protocols.map(possible).chain(variants))
}

/// Accepts the mechanisms of the papers' variants.
pub fn paper_mechanisms() -> impl TypedValueParser<Value = String> {
    let value = |(name, about): (String, String)| PossibleValue::new(name).help(about);
    PossibleValuesParser::new(paper::values().map(value))
}

/// Returns a protocol as a value of an option.
fn possible(protocol: &'static ProtocolDescription) -> PossibleValue {
    PossibleValue::new(protocol.name).help(protocol.title)
}

/// Accepts a seed.
pub fn seed() -> impl Parser<u64> {
    whole_number(0..=u64::MAX)
}

/// Parses a time span in seconds that is greater than 0.
pub fn seconds_positive(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|&seconds| seconds > 0.0 && seconds <= SECONDS_MAX);
    seconds.ok_or_else(|| format!("expected a number of seconds above 0, at most {SECONDS_MAX}"))
}

/// Accepts a time span in seconds, 0 included.
pub fn seconds_or_zero() -> impl Parser<f64> {
    number(0.0..=SECONDS_MAX, "a number of seconds")
}

/// Accepts a time span in milliseconds, 0 included.
pub fn milliseconds_or_zero() -> impl Parser<f64> {
    number(0.0..=60_000.0, "a number of milliseconds")
}

/// Accepts the length of a phase, or another time span in milliseconds that is greater than 0.
pub fn milliseconds() -> impl Parser<f64> {
    number(0.01..=60_000.0, "a number of milliseconds")
}

/// Accepts numbers in a range. `what` is what the message calls them. The parser of `f64` itself would also
/// accept `NaN` and `inf`.
pub fn number(allowed: RangeInclusive<f64>, what: &'static str) -> impl Parser<f64> {
    move |text: &str| {
        let number = text.parse().ok().filter(|number| allowed.contains(number));
        number
            .ok_or_else(|| format!("expected {what} from {} to {}", allowed.start(), allowed.end()))
    }
}

/// Accepts whole numbers in a range. The message for any other value gives the range.
pub fn whole_number<N: TryFrom<u64> + 'static>(allowed: RangeInclusive<u64>) -> impl Parser<N> {
    move |text: &str| {
        let number = text.parse().ok().filter(|number| allowed.contains(number));
        number.and_then(|number| N::try_from(number).ok()).ok_or_else(|| {
            format!("expected a whole number from {} to {}", allowed.start(), allowed.end())
        })
    }
}

/// A function that clap accepts as a parser.
pub trait Parser<T>: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {}

impl<T, F: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static> Parser<T> for F {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_durations_are_refused() {
        for text in ["NaN", "inf", "-1", "-0.5", "1e9", "", "ten"] {
            assert!(seconds_or_zero()(text).is_err(), "{text:?} was accepted as a span");
        }
        assert_eq!(seconds_or_zero()("0"), Ok(0.0));
        assert_eq!(seconds_positive("0.25"), Ok(0.25));
        for text in ["0", "-0", "0.0"] {
            assert!(seconds_positive(text).is_err(), "{text:?} was accepted as a positive span");
        }
    }
}
