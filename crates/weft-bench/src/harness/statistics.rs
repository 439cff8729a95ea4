//! The median and the extremes of a few rounds.
//!
//! The median is used, not the mean, because a disturbance (another process, a slower clock) only ever makes a
//! round slower, and by any amount.

use serde::Serialize;

/// The median and the extremes of some measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median; of an even number of values, the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of `values`; `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Spread { median, min, max })
    }

    /// Returns the spread of the same values, each multiplied by `factor`.
    pub fn times(self, factor: f64) -> Spread {
        Spread { median: self.median * factor, min: self.min * factor, max: self.max * factor }
    }
}

/// Returns the median of `a / b` over the rounds, where `a` and `b` of a round are close in time; `None` if some
/// `b` is 0, or there are no rounds.
pub fn median_ratio(rounds: impl IntoIterator<Item = (f64, f64)>) -> Option<f64> {
    let ratios: Option<Vec<f64>> =
        rounds.into_iter().map(|(a, b)| (b != 0.0).then(|| a / b)).collect();
    Spread::of(ratios?).map(|spread| spread.median)
}

/// Returns `part / whole`; `None` if `whole` is 0.
pub fn fraction(part: u64, whole: u64) -> Option<f64> {
    (whole != 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_odd_number_is_the_middle_one() {
        let spread = Spread::of([30.0, 10.0, 20.0]);
        assert_eq!(spread, Some(Spread { median: 20.0, min: 10.0, max: 30.0 }));
        assert_eq!(Spread::of([7.0]), Some(Spread { median: 7.0, min: 7.0, max: 7.0 }));
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 100.0, 2.0]);
        assert_eq!(spread, Some(Spread { median: 3.0, min: 1.0, max: 100.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_ratio_is_taken_within_each_round() {
        // The ratios are 2, 1/2 and 1, with the median 1. The ratio of the medians would be 1, too.
        assert_eq!(median_ratio([(20.0, 10.0), (30.0, 60.0), (20.0, 20.0)]), Some(1.0));
        assert_eq!(median_ratio([(3.0, 2.0), (5.0, 2.0)]), Some(2.0));
        assert_eq!(median_ratio([(1.0, 1.0), (1.0, 0.0)]), None);
    }

    #[test]
    fn nothing_is_no_fraction() {
        assert_eq!(fraction(1, 4), Some(0.25));
        assert_eq!(fraction(0, 4), Some(0.0));
        assert_eq!(fraction(1, 0), None);
    }
}
