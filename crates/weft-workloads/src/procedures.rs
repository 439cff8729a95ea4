//! The workloads' transactions as procedures, with their dependencies.

#[cfg(test)]
pub(crate) mod rehearsal;

use weft_procedures::Shape;
use weft_procedures::chopping::Outlines;

use crate::{articles, bank, flash_sale, incr, like, queue, rubis, shift, tatp, tpcc};

/// The workloads whose transactions are procedures, by name.
pub const WORKLOADS: [&str; 10] =
    ["articles", "bank", "flash-sale", "incr", "like", "queue", "rubis", "shift", "tatp", "tpcc"];

/// Returns the shapes of a workload's procedures; `None` if it is not in [`WORKLOADS`].
pub fn of_workload(name: &str) -> Option<Vec<&'static Shape>> {
    match name {
        "articles" => Some(articles::procedures()),
        "bank" => Some(bank::procedures()),
        "flash-sale" => Some(flash_sale::procedures()),
        "incr" => Some(incr::procedures()),
        "like" => Some(like::procedures()),
        "queue" => Some(queue::procedures()),
        "rubis" => Some(rubis::procedures()),
        "shift" => Some(shift::procedures()),
        "tatp" => Some(tatp::procedures()),
        "tpcc" => Some(tpcc::procedures()),
        _ => None,
    }
}

/// Returns what [chopping](weft_procedures::chopping) needs to know of a workload's procedures: their shapes, and
/// what the workload declares. Returns `None` if it is not in [`WORKLOADS`].
pub fn outlines_of_workload(name: &str) -> Option<Outlines> {
    let outlines = Outlines::of(of_workload(name)?);
    Some(match name {
        "tpcc" => Outlines { tokens: tpcc::tokens(), ..outlines },
        _ => outlines,
    })
}
