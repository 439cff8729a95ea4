//! Numbers as text: with grouped digits, and only as many digits as are significant.

/// Formats `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a rate without decimals, because rounds differ by more than that.
pub fn rate(per_second: f64) -> String {
    // The cast saturates. A rate is finite and not negative.
    grouped(per_second.round() as u64)
}

/// Formats a duration in microseconds: two decimals below ten, one below a millisecond, else no decimals.
pub fn microseconds(us: f64) -> String {
    match us {
        _ if us < 9.995 => format!("{us:.2}"),
        _ if us < 1000.0 => format!("{us:.1}"),
        _ => grouped(us.round() as u64),
    }
}

/// Formats a size in MiB or GiB.
pub fn size(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    if mebibytes < 1024.0 {
        format!("{mebibytes:.0} MiB")
    } else {
        format!("{:.1} GiB", mebibytes / 1024.0)
    }
}

/// Formats a number with its noun: `1 thread`, `2 threads`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// Formats a span of time: seconds below two minutes, else minutes and seconds.
pub fn span(seconds: f64) -> String {
    if seconds < 120.0 {
        // At most three decimals, without trailing zeros.
        let text = format!("{seconds:.3}");
        format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
    } else {
        format!("{} min {} s", (seconds / 60.0).floor(), (seconds % 60.0).round())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three_from_the_right() {
        let pairs = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
        for (number, text) in pairs {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn precision_follows_the_magnitude() {
        assert_eq!(microseconds(0.456), "0.46");
        assert_eq!(microseconds(9.996), "10.0");
        assert_eq!(microseconds(12.345), "12.3");
        assert_eq!(microseconds(12_345.6), "12,346");
        assert_eq!(size(3 << 20), "3 MiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(span(0.2), "0.2 s");
        assert_eq!(span(60.0), "60 s");
        assert_eq!(span(135.2), "2 min 15 s");
        assert_eq!(counted(1, "round"), "1 round");
        assert_eq!(counted(1_500, "round"), "1,500 rounds");
    }
}
