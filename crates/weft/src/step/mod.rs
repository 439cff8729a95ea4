//! Which execution of which step of a procedure something belongs to ([`Instance`]), and lists that are grouped by it
//! ([`Parts`]).
#![allow(rustdoc::private_intra_doc_links, reason = "hidden: whoever reads it reads the source")]

mod instance;
mod parts;

pub use instance::{Instance, Iteration, LOOPS_MAX};
pub use parts::Parts;
