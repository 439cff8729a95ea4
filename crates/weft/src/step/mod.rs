//! Steps of procedures at run time: which execution of which step something belongs to ([`Instance`]), and lists
//! that are grouped by this ([`Parts`]).
#![allow(rustdoc::private_intra_doc_links, reason = "hidden: its readers have the source")]

mod instance;
mod parts;

pub use instance::{Instance, Iteration, LOOPS_MAX};
pub use parts::Parts;
