//! The figures and tables: a module for each paper, and an entry for each figure.
//!
//! An entry says what is run on both machines, if it can run there, and what the claim expects of the result. If
//! the paper's text gives a ratio, the expected bound is about its square root: the same direction, and at least
//! half of the way, in factors. Quick runs cannot distinguish differences of less than a fifth.

use crate::definition::{Figure, Metric, Paper, Reading, Scale, Series};

mod dbx;
mod dbx_regions;
mod dbx_tc;
mod dbx_tc_regions;
mod doppel;
mod htcc;
mod no_free_lunch;
#[cfg(test)]
pub mod sample;
#[cfg(test)]
mod tests;

/// Returns all figures and tables, paper by paper.
pub fn all() -> impl Iterator<Item = &'static Figure> {
    let papers = [
        dbx_regions::FIGURES,
        dbx::FIGURES,
        dbx_tc_regions::FIGURES,
        dbx_tc::FIGURES,
        htcc::FIGURES,
        doppel::FIGURES,
        no_free_lunch::FIGURES,
    ];
    papers.into_iter().flatten()
}

/// Returns the figures of these papers with these names. An empty list selects all papers, or all names.
///
/// # Errors
/// A name matches no figure of these papers.
pub fn chosen(papers: &[Paper], names: &[String]) -> Result<Vec<&'static Figure>, String> {
    let of_papers = || all().filter(|figure| papers.is_empty() || papers.contains(&figure.paper));
    for name in names {
        if !of_papers().any(|figure| figure.number.is_meant_by(name)) {
            return Err(format!(
                "no figure is '{name}': expected a number such as 8 or 1a, or table-1; --list shows all"
            ));
        }
    }
    let is_meant = |figure: &&Figure| {
        names.is_empty() || names.iter().any(|name| figure.number.is_meant_by(name))
    };
    Ok(of_papers().filter(is_meant).collect())
}

/// Defines a series of a protocol, or of a variant of a protocol.
macro_rules! protocol {
    ($name:literal, $protocol:literal $(, $more:literal)*) => {
        $crate::definition::series($name, &["--protocol", $protocol $(, $more)*])
    };
}
pub(crate) use protocol;

/// Series with the HTCC paper's names.
const OCC: Series = protocol!("OCC", "occ", "--by-rows");
const SOCC: Series = protocol!("SOCC", "silo", "--by-rows");
const HTO: Series = protocol!("HTO", "tso");
const TWO_PHASE_LOCKING: Series = protocol!("2PL", "2pl");

/// Weft's own protocols, which depart from the papers.
const WEFTS_DBX: Series = protocol!("Weft's dbx", "dbx").ours();
const WEFTS_HTCC: Series = protocol!("Weft's htcc", "htcc").ours();
const WEFTS_DOPPEL: Series = protocol!("Weft's doppel", "doppel").ours();

/// Committed transactions per second.
const THROUGHPUT: Metric = Metric {
    name: "throughput",
    unit: "tx/s",
    scale: Scale::Linear,
    real: Reading::of("throughput_per_second/median"),
    simulated: Reading::of("transactions_per_second"),
};

/// Throughput per core.
const THROUGHPUT_PER_CORE: Metric = Metric {
    name: "throughput per core",
    unit: "tx/s",
    scale: Scale::Linear,
    real: Reading::ratio("throughput_per_second/median", "threads"),
    simulated: Reading::ratio("transactions_per_second", "cores"),
};

/// Aborted attempts per transaction.
const ABORTS: Metric = Metric {
    name: "aborts per transaction",
    unit: "",
    scale: Scale::Linear,
    real: Reading::of("aborts_per_commit"),
    simulated: Reading::of("aborts_per_transaction"),
};

/// Regions that ended in the software twin or under the lock, per transaction.
const FALLBACKS: Metric = Metric {
    name: "fallbacks per transaction",
    unit: "",
    scale: Scale::Linear,
    real: Reading::ratio("htm/fallbacks", "committed"),
    simulated: Reading::of("fallbacks_per_transaction"),
};

/// The time until a commit for which no thread waits is durable.
const UNTIL_DURABLE: Metric = Metric {
    name: "median latency until durable",
    unit: "ms",
    scale: Scale::Linear,
    real: Reading::of("log/durable_after_us/p50").times(0.001),
    simulated: Reading::of("log/durable_after_us/p50"),
};

/// Returns a metric of the share of regions that abort for one cause, by the report's counters.
const fn region_aborts(name: &'static str, real: &'static str, simulated: &'static str) -> Metric {
    Metric {
        name,
        unit: "%",
        scale: Scale::Linear,
        real: Reading::ratio(real, "htm/started").times(100.0),
        simulated: Reading::ratio(simulated, "regions_begun").times(100.0),
    }
}

/// Regions that abort by a conflict.
const ABORTED_BY_CONFLICT: Metric = region_aborts(
    "regions aborted by conflict",
    "htm/aborted_conflict",
    "regions_aborted_conflict",
);

/// Regions that abort because they do not fit.
const ABORTED_BY_CAPACITY: Metric = region_aborts(
    "regions aborted by capacity",
    "htm/aborted_capacity",
    "regions_aborted_capacity",
);

/// The share of tried regions that aborted.
const REGIONS_ABORTED: Metric = Metric {
    name: "regions that aborted",
    unit: "%",
    scale: Scale::Linear,
    real: Reading::of("abort_rate").times(100.0),
    simulated: Reading::of("abort_rate").times(100.0),
};

/// Returns a metric of the latency of one transaction type, in microseconds.
const fn latency(name: &'static str, real: &'static str, simulated: &'static str) -> Metric {
    Metric {
        name,
        unit: "µs",
        scale: Scale::Logarithmic,
        real: Reading::of(real),
        simulated: Reading::of(simulated),
    }
}
