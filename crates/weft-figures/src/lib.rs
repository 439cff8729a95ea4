//! The figures and tables of the papers' evaluations: what was measured there, as data, and what is
//! measured here, as pictures beside it. The command `cargo lab figures` is made of it.
//!
//! Nothing here knows the engine. A point of a curve is one call of `cargo lab bench` or of `cargo simulate`,
//! in a process of its own, which writes JSON; so the command that stands below a picture is the one that
//! was run, and everybody can run it again.
//!
//! In the order in which a figure comes to be:
//!
//! 1. [`papers`] has an entry for every figure and table: the claim, what is run, and the shape that the
//!    claim expects. [`definition`] says of what an entry is made.
//! 2. [`plan`] turns an entry into calls, for a machine: this one, or a simulated one.
//! 3. [`run`] makes those calls whose results are not in the [`store`] yet.
//! 4. [`measured`] reads the numbers out of their JSON.
//! 5. [`claim`] says whether they have the expected shape.
//! 6. [`chart`] and [`svg`] draw them; [`table`] writes them as CSV and JSON; [`page`] puts all figures
//!    on one page that needs nothing else.
//!
//! A figure that does not agree with its paper, that could not be measured, or of which a call has failed
//! is shown as that. Nothing is left out.

pub mod chart;
pub mod claim;
pub mod definition;
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
