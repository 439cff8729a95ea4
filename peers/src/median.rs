//! The median and the extremes of a few rounds.

use serde::Serialize;

/// The median and the extremes of some measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median; of an even number of values, the mean of the middle two.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_odd_number_is_the_middle_one() {
        let spread = Spread::of([30.0, 10.0, 20.0]);
        assert_eq!(spread, Some(Spread { median: 20.0, min: 10.0, max: 30.0 }));
    }

    #[test]
    fn median_of_an_even_number_is_the_mean_of_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 100.0, 2.0]);
        assert_eq!(spread, Some(Spread { median: 3.0, min: 1.0, max: 100.0 }));
    }

    #[test]
    fn without_values_there_is_no_median() {
        assert_eq!(Spread::of([]), None);
    }
}
