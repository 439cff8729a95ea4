//! Tests of the checker: against brute force, on stored and planted histories, and the formats that it reads.

mod brute_force;
mod edges;
mod formats;
mod golden;
mod planted;
