//! The workloads' transactions as procedures: what each of them does, and what follows from what.

#[cfg(test)]
pub(crate) mod rehearsal;

use weft_procedures::Shape;
use weft_procedures::chopping::Outlines;

use crate::{articles, incr, like, rubis, tatp, tpcc};

/// The workloads whose transactions are procedures, by name.
pub const WORKLOADS: [&str; 6] = ["articles", "incr", "like", "rubis", "tatp", "tpcc"];

/// The shapes of a workload's procedures; `None` if it is none of [`WORKLOADS`].
pub fn of_workload(name: &str) -> Option<Vec<&'static Shape>> {
    match name {
        "articles" => Some(articles::procedures()),
        "incr" => Some(incr::procedures()),
        "like" => Some(like::procedures()),
        "rubis" => Some(rubis::procedures()),
        "tatp" => Some(tatp::procedures()),
        "tpcc" => Some(tpcc::procedures()),
        _ => None,
    }
}

/// What is known of a workload's procedures for [chopping](weft_procedures::chopping): by their shapes, and by
/// what it declares. `None` if it is none of [`WORKLOADS`].
pub fn outlines_of_workload(name: &str) -> Option<Outlines> {
    let outlines = Outlines::of(of_workload(name)?);
    Some(match name {
        "tpcc" => Outlines { tokens: tpcc::tokens(), ..outlines },
        _ => outlines,
    })
}
