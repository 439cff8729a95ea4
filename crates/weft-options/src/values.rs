//! How values of options are parsed, and what the message for a wrong one says.

use std::ops::RangeInclusive;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use weft::protocol::ProtocolDescription;
use weft_protocols::PROTOCOLS;
use weft_workloads::variants;

use crate::protocols::RAW;

/// The seed of a run that names none: the same for everybody, so that a run can be repeated.
pub const SEED_DEFAULT: u64 = 1;

/// The longest span, in seconds.
const SECONDS_MAX: f64 = 86_400.0;

/// Accepts the names of the protocols, and shows in the help what each is.
pub fn protocol_names() -> impl TypedValueParser<Value = String> {
    contenders(PROTOCOLS.iter())
}

/// Accepts the names of these protocols only.
pub fn names_of(names: &'static [&'static str]) -> impl TypedValueParser<Value = String> {
    let protocols = PROTOCOLS.iter().filter(|protocol| names.contains(&protocol.name));
    PossibleValuesParser::new(protocols.map(possible))
}

/// Accepts also the name of what is measured without transactions.
pub fn protocol_names_or_raw() -> impl TypedValueParser<Value = String> {
    contenders(PROTOCOLS.iter().chain([&RAW]))
}

/// Accepts the names of protocols, and of variants.
fn contenders(
    protocols: impl Iterator<Item = &'static ProtocolDescription>,
) -> impl TypedValueParser<Value = String> {
    let variants = variants::all();
    let variants = variants.map(|variant| PossibleValue::new(variant.name).help(variant.about));
    PossibleValuesParser::new(protocols.map(possible).chain(variants))
}

/// A protocol as a value of an option.
fn possible(protocol: &'static ProtocolDescription) -> PossibleValue {
    PossibleValue::new(protocol.name).help(protocol.title)
}

/// Accepts a seed.
pub fn seed() -> impl Parser<u64> {
    whole_number(0..=u64::MAX)
}

/// Parses a span of time that is not 0.
pub fn seconds_positive(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|&seconds| seconds > 0.0 && seconds <= SECONDS_MAX);
    seconds.ok_or_else(|| format!("expected a number of seconds above 0, at most {SECONDS_MAX}"))
}

/// Accepts a span of time in seconds, 0 among them.
pub fn seconds_or_zero() -> impl Parser<f64> {
    number(0.0..=SECONDS_MAX, "a number of seconds")
}

/// Accepts a span of time in milliseconds, 0 among them.
pub fn milliseconds_or_zero() -> impl Parser<f64> {
    number(0.0..=60_000.0, "a number of milliseconds")
}

/// Accepts the length of a phase, or another span of time in milliseconds that is not 0.
pub fn milliseconds() -> impl Parser<f64> {
    number(0.01..=60_000.0, "a number of milliseconds")
}

/// Accepts numbers of a range; `what` is what the message calls them. `f64` itself would also take `NaN` and `inf`.
pub fn number(allowed: RangeInclusive<f64>, what: &'static str) -> impl Parser<f64> {
    move |text: &str| {
        let number = text.parse().ok().filter(|number| allowed.contains(number));
        number
            .ok_or_else(|| format!("expected {what} from {} to {}", allowed.start(), allowed.end()))
    }
}

/// Accepts whole numbers of a range. The message for anything else says which.
pub fn whole_number<N: TryFrom<u64> + 'static>(allowed: RangeInclusive<u64>) -> impl Parser<N> {
    move |text: &str| {
        let number = text.parse().ok().filter(|number| allowed.contains(number));
        number.and_then(|number| N::try_from(number).ok()).ok_or_else(|| {
            format!("expected a whole number from {} to {}", allowed.start(), allowed.end())
        })
    }
}

/// A function that clap takes for a parser.
pub trait Parser<T>: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {}

impl<T, F: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static> Parser<T> for F {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_no_clock_counts_are_refused() {
        for text in ["NaN", "inf", "-1", "-0.5", "1e9", "", "ten"] {
            assert!(seconds_or_zero()(text).is_err(), "{text:?} was taken for a span");
        }
        assert_eq!(seconds_or_zero()("0"), Ok(0.0));
        assert_eq!(seconds_positive("0.25"), Ok(0.25));
        for text in ["0", "-0", "0.0"] {
            assert!(seconds_positive(text).is_err(), "{text:?} was taken for a positive span");
        }
    }
}
