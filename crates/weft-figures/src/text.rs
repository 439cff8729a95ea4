//! Formatting of numbers, and escaping of text for markup.

use std::fmt;

use crate::definition::{Axis, By};

/// Formats a number of any size with about three digits: `0.052`, `1.25`, `442 k`, `133 M`.
pub fn number(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let (scaled, suffix) = match number.abs() {
        size if size >= 999_500_000.0 => (number / 1e9, " G"),
        size if size >= 999_500.0 => (number / 1e6, " M"),
        // Below this, a number of threads or of microseconds is easier to read without a suffix.
        size if size >= 9_999.5 => (number / 1e3, " k"),
        _ => (number, ""),
    };
    let whole = scaled.abs().log10().floor() as i32 + 1;
    let decimals = (3 - whole).clamp(0, 6) as usize;
    let text = format!("{scaled:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    };
    format!("{text}{suffix}")
}

/// Formats a number with its unit.
pub fn amount(value: f64, unit: &str) -> String {
    let number = number(value);
    match unit {
        "" => number,
        // `442 k tx/s` and `442 tx/s` both have one space.
        unit => format!("{number} {unit}"),
    }
}

/// Formats a value of an axis.
pub fn place(axis: &Axis, value: f64) -> String {
    match axis.by {
        By::Choices(choices) => {
            choices.get(value as usize).map_or_else(String::new, |choice| choice.label.to_owned())
        }
        By::Threads | By::Time => value.to_string(),
        By::Option(_, unit) => format!("{}{unit}", number(value)),
    }
}

/// Text in which markup is escaped.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                // Control characters are not allowed in XML.
                control if control.is_control() && control != '\n' => out.write_str(" ")?,
                other => write!(out, "{other}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_three_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.0523, "0.0523"),
            (1.256, "1.26"),
            (-1.5, "-1.5"),
            (99.96, "100"),
            (442.0, "442"),
            (4096.0, "4096"),
            (442_230.0, "442 k"),
            (1_000_000.0, "1 M"),
            (133_500_000.0, "134 M"),
            (2.5e9, "2.5 G"),
        ] {
            assert_eq!(number(value), expected);
        }
        assert_eq!(amount(442_230.0, "tx/s"), "442 k tx/s");
        assert_eq!(amount(0.5, ""), "0.5");
    }

    #[test]
    fn markup_is_escaped() {
        assert_eq!(Escaped("a<b> & \"c\"\u{1}").to_string(), "a&lt;b&gt; &amp; &quot;c&quot; ");
    }
}
