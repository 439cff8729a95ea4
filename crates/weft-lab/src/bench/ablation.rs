//! `cargo lab bench map --ablation`: what each ingredient of `adaptive` gains.
//!
//! [`weft_figures::map::ablation`] has the points and the calls.

use std::io::{self, Write};

use weft_bench::harness::numeric;
use weft_bench::numbers;
use weft_bench::stop::Stop;
use weft_figures::map::ablation::{AblationPoint, INGREDIENTS, points};
use weft_figures::map::measure::Settings;
use weft_figures::map::{Grid, GridPoint};
use weft_figures::run::Runner;

const LEGEND: &str = "\
adaptive divided by its variant without the ingredient: the median of the pairs. Above 1, the
ingredient gains there. cold: points without contention, where it must not cost anything.";

/// Returns the name of a variant without that of its protocol.
fn short(variant: &str) -> &str {
    variant.split_once(':').map_or(variant, |(_, name)| name)
}

/// Measures the ingredients at those of the chosen points that they are for, and at the cold ones among them.
///
/// # Errors
/// No chosen point is one of these, or a run failed.
pub fn run(
    grid: &Grid,
    chosen: &[&GridPoint],
    settings: &Settings,
    runner: &dyn Runner,
) -> Result<(), Stop> {
    let points = points(grid, chosen);
    if points.is_empty() {
        return Err(Stop::Usage(
            "--ablation measures nothing at the points that --points names; leave --points out"
                .to_owned(),
        ));
    }
    let mut out = io::stdout().lock();
    let seconds: f64 = points.iter().map(|point| point.seconds(settings)).sum();
    let count = numbers::counted(points.len() as u64, "point");
    writeln!(out, "Ablation of adaptive, 2 threads: {count}, about {:.0} minutes", seconds / 60.0)?;
    let names: Vec<&str> = INGREDIENTS.iter().map(|ingredient| short(ingredient.variant)).collect();
    let mut table = numeric(&["point", "kind"], &names);
    let (mut failures, mut disturbed) = (Vec::new(), Vec::new());
    for point in &points {
        let result = point.measure(runner, settings);
        let gain = |gain: Option<f64>| gain.map_or("-".to_owned(), |gain| format!("{gain:.3}"));
        table.add_row(
            [kind(point).map(str::to_owned).to_vec(), result.gains.map(gain).to_vec()].concat(),
        );
        disturbed.extend(result.is_disturbed.then(|| point.title()));
        failures.extend(result.failure.map(|why| format!("{}: {why}", point.title())));
    }
    writeln!(out, "\n{table}\n{LEGEND}")?;
    if !disturbed.is_empty() {
        writeln!(out, "Other processes computed, so these say little: {}.", disturbed.join("; "))?;
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Stop::Failed(failures.join("\n"))),
    }
}

/// Returns the title of a point, and whether it is cold.
fn kind<'p>(point: &'p AblationPoint<'_>) -> [&'p str; 2] {
    [point.title(), if point.is_cold { "cold" } else { "contended" }]
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use weft_workloads::adaptive::options_of;

    use super::*;
    use crate::arguments::Arguments;

    /// The ingredients and their points are data, which no compiler checks.
    #[test]
    fn calls_name_variants_and_options_that_exist() {
        let grid = Grid::frozen();
        let settings = Settings { time: 1.0, with: Vec::new(), jobs: 1 };
        for ingredient in &INGREDIENTS {
            assert!(options_of(ingredient.variant).is_some(), "{}", ingredient.variant);
        }
        for point in points(&grid, &grid.points.iter().collect::<Vec<_>>()) {
            let words =
                std::iter::once("weft-lab".to_owned()).chain(point.call(&settings).arguments);
            let words: Vec<String> = words.collect();
            let parsed = Arguments::try_parse_from(&words);
            assert!(parsed.is_ok(), "{words:?}: {parsed:?}");
        }
    }
}
