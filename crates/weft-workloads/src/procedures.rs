//! The workloads' transactions as procedures: what each of them does, and what follows from what.

#[cfg(test)]
pub(crate) mod rehearsal;

use weft::procedure::Shape;

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
