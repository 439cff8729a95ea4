//! The figures and tables of the papers' evaluations, as data, and pictures of what Weft measures for them. The
//! command `cargo lab figures` is built on this crate.
//!
//! The crate does not know the engine. A point of a curve is one call of `cargo lab bench` or of `cargo simulate`,
//! in a process of its own, which writes JSON. So the command below a picture is the one that was run, and anyone
//! can run it again.
//!
//! A figure is made in these steps:
//!
//! 1. [`papers`] has an entry for every figure and table: the claim, the experiment, and the shape that the claim
//!    expects. [`definition`] has the types of an entry.
//! 2. [`plan`] turns an entry into calls, for this machine or for a simulated one.
//! 3. [`run`] makes the calls whose results are not in the [`store`] yet.
//! 4. [`measured`] reads the numbers from their JSON.
//! 5. [`claim`] decides whether the numbers have the expected shape.
//! 6. [`chart`] and [`svg`] draw them; [`table`] writes them as CSV and JSON; [`page`] puts all figures on one page
//!    that needs no other file.
//!
//! A figure that does not agree with its paper, that could not be measured, or for which a call failed is shown as
//! such. No figure is left out.

pub mod chart;
pub mod claim;
pub mod definition;
pub mod map;
pub mod measured;
pub mod page;
pub mod papers;
pub mod plan;
pub mod report;
pub mod run;
pub mod store;
pub mod svg;
pub mod table;
mod text;
