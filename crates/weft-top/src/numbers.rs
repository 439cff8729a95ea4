//! Numbers with units, short enough for a column.

/// Returns a number with a unit, from steps of which the largest comes first.
fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    let &(limit, unit) =
        steps.iter().find(|(limit, _)| value >= *limit).unwrap_or(&steps[steps.len() - 1]);
    let value = value / limit;
    let digits = if value >= 100.0 || value.fract() == 0.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    match unit {
        "" => format!("{value:.digits$}"),
        unit => format!("{value:.digits$} {unit}"),
    }
}

/// Returns a count.
pub fn count(value: f64) -> String {
    scaled(value, &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")])
}

/// Returns a size.
pub fn bytes(value: f64) -> String {
    const KIB: f64 = 1024.0;
    scaled(value, &[(KIB * KIB * KIB, "GiB"), (KIB * KIB, "MiB"), (KIB, "KiB"), (1.0, "B")])
}

/// Returns a time of so many nanoseconds.
pub fn time(ns: f64) -> String {
    scaled(ns, &[(60e9, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")])
}
