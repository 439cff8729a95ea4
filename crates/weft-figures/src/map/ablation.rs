//! What each ingredient of `adaptive` gains: the protocol beside its variants, each of which lacks one ingredient, at the
//! points of the grid that the ingredient is for, and at five points without contention.
//!
//! Each point is one call of the benchmark on this machine: `adaptive` and the variants take turns, round by round, and
//! each round is a pair of `adaptive` and every variant. The gain is the median of the pairs' ratios, as in the map.

use super::measure::{Settings, pairs_of};
use super::results::{are_disturbed, ratio_of};
use super::{Grid, GridPlace, GridPoint, MachineKind};
use crate::plan::Call;
use crate::run::Runner;

/// The protocol, and the number of its threads.
const PROTOCOL: &str = "adaptive";
const THREADS: u32 = 2;

/// An ingredient of `adaptive`.
#[derive(Clone, Copy, Debug)]
pub struct Ingredient {
    /// The variant without it.
    pub variant: &'static str,
    /// The points that it is for.
    pub points: &'static [&'static str],
}

/// The ingredients.
pub const INGREDIENTS: [Ingredient; 5] = [
    Ingredient {
        variant: "adaptive:unordered",
        points: &["tpcc-1", "ycsb-a-1.2", "flash-sale-1", "queue"],
    },
    Ingredient { variant: "adaptive:by-records", points: &["tpcc-1", "queue"] },
    Ingredient { variant: "adaptive:held", points: &["tpcc-1", "queue"] },
    Ingredient { variant: "adaptive:unsplit", points: &["incr-50", "incr-100", "like-50"] },
    Ingredient { variant: "adaptive:nothing", points: &["tpcc-1", "incr-100", "queue"] },
];

/// The points without contention, at which every ingredient is measured.
pub const COLD: [&str; 5] = ["ycsb-a-0", "ycsb-b-0", "incr-0", "rubis-b", "tatp"];

/// A point with the variants that are measured there.
#[derive(Clone, Debug)]
pub struct AblationPoint<'g> {
    place: GridPlace<'g>,
    /// Whether there is no contention.
    pub is_cold: bool,
    /// The variants.
    pub variants: Vec<&'static str>,
}

/// The result at a point.
#[derive(Clone, Debug)]
pub struct AblationResult {
    /// For each ingredient, the throughput with it divided by that without it; `None` if it was not measured here.
    pub gains: [Option<f64>; INGREDIENTS.len()],
    /// Whether other processes computed during most pairs of an ingredient.
    pub is_disturbed: bool,
    /// Why there are no gains.
    pub failure: Option<String>,
}

/// Returns those among some points at which ingredients are measured.
pub fn points<'g>(grid: &'g Grid, chosen: &[&'g GridPoint]) -> Vec<AblationPoint<'g>> {
    let of = |&point: &&'g GridPoint| {
        let is_cold = COLD.contains(&point.name.as_str());
        let is_for = |it: &&Ingredient| is_cold || it.points.contains(&point.name.as_str());
        let variants: Vec<_> =
            INGREDIENTS.iter().filter(is_for).map(|ingredient| ingredient.variant).collect();
        let place = GridPlace {
            grid,
            point,
            machine: MachineKind::Real,
            simulated_machine: None,
            threads: THREADS,
            is_quick: false,
        };
        (!variants.is_empty()).then_some(AblationPoint { place, is_cold, variants })
    };
    chosen.iter().filter_map(of).collect()
}

impl AblationPoint<'_> {
    /// Returns the title of the point.
    pub fn title(&self) -> &str {
        &self.place.point.title
    }

    /// Returns the approximate seconds that it takes.
    pub fn seconds(&self, settings: &Settings) -> f64 {
        let (_, span) = self.place.spans(settings);
        let contenders = 1.0 + self.variants.len() as f64;
        let rounds = self.place.grid.pairs as f64;
        contenders * (rounds * (span.warmup + span.measured) + self.place.point.load)
    }

    /// Returns the call that measures it.
    pub fn call(&self, settings: &Settings) -> Call {
        let (_, span) = self.place.spans(settings);
        let protocols = [&[PROTOCOL], &self.variants[..]].concat().join(",");
        let Grid { seed, pairs, .. } = *self.place.grid;
        self.place.call(&protocols, seed, span, pairs, &settings.with)
    }

    /// Measures it.
    pub fn measure(&self, runner: &dyn Runner, settings: &Settings) -> AblationResult {
        let mut result =
            AblationResult { gains: [None; INGREDIENTS.len()], is_disturbed: false, failure: None };
        match runner.reports(&self.call(settings)) {
            Ok(reports) if reports.len() == 1 + self.variants.len() => {
                for (gain, ingredient) in result.gains.iter_mut().zip(&INGREDIENTS) {
                    let mut variants = self.variants.iter();
                    let position = variants.position(|variant| *variant == ingredient.variant);
                    let Some(position) = position else { continue };
                    let (with, without) = (&reports[0], &reports[position + 1]);
                    let found = pairs_of(MachineKind::Real, with, without).unwrap_or_default();
                    *gain = ratio_of(&found);
                    result.is_disturbed |= are_disturbed(&found);
                }
            }
            Ok(reports) => result.failure = Some(format!("{} reports", reports.len())),
            Err(why) => result.failure = Some(why),
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::Program;

    const SETTINGS: Settings = Settings { time: 1.0, with: Vec::new(), jobs: 1 };

    /// A runner in which `adaptive` has 100 transactions a second, and each variant 10 less than the one before. Where there are
    /// several variants, other processes compute.
    struct Fake;

    impl Runner for Fake {
        fn reports(&self, call: &Call) -> Result<Vec<Value>, String> {
            let position = call.arguments.iter().position(|word| word == "--protocol");
            let names = &call.arguments[position.expect("it names protocols") + 1];
            let report = |(number, _): (usize, &str)| {
                let throughput = 100.0 - 10.0 * number as f64;
                let elsewhere = if names.len() > 30 { 0.5 } else { 0.0 };
                let round =
                    json!({ "throughput_per_second": throughput, "cores_elsewhere": elsewhere });
                json!({ "rounds": vec![round; 7] })
            };
            Ok(names.split(',').enumerate().map(report).collect())
        }

        fn build(&self, _program: Program) -> Result<String, String> {
            Ok("one".to_owned())
        }
    }

    #[test]
    fn every_ingredient_is_measured_where_it_is_for_and_at_cold_points() {
        let grid = Grid::frozen();
        let points = points(&grid, &grid.points.iter().collect::<Vec<_>>());
        assert_eq!(points.iter().filter(|point| point.is_cold).count(), COLD.len());
        for ingredient in &INGREDIENTS {
            let there = points.iter().filter(|point| point.variants.contains(&ingredient.variant));
            assert_eq!(there.count(), COLD.len() + ingredient.points.len(), "{ingredient:?}");
        }
    }

    #[test]
    fn gain_is_the_ratio_to_the_variant_without_the_ingredient() {
        let grid = Grid::frozen();
        let chosen = grid.chosen(&["like-50".to_owned(), "tatp".to_owned()]).expect("points");
        let points = points(&grid, &chosen);
        let [like, tatp] = &points[..] else { panic!("two points: {points:?}") };
        let AblationResult { gains, is_disturbed, .. } = like.measure(&Fake, &SETTINGS);
        assert!(!is_disturbed && tatp.measure(&Fake, &SETTINGS).is_disturbed);
        assert_eq!(gains, [None, None, None, Some(100.0 / 90.0), None]);
        let gains = tatp.measure(&Fake, &SETTINGS).gains;
        assert_eq!(gains, [90.0, 80.0, 70.0, 60.0, 50.0].map(|without| Some(100.0 / without)));
        assert_eq!(
            like.call(&SETTINGS).to_string(),
            "cargo lab bench like --write 50 --users 200000 --pages 200000 --protocol \
             adaptive,adaptive:unsplit --threads 2 --rounds 7 --seconds 1.2 --warmup 0.3 --seed 1 \
             --json -"
        );
    }
}
