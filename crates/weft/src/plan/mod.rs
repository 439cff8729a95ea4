//! Plans of procedures: what a procedure declares before it runs, and what follows from that. This is its
//! [`Shape`], the columns that matter to each of its steps, and the [pieces](Pieces) in which it may be committed
//! while others run. (The crate `weft-procedures` finds the pieces, and runs procedures.)
#![allow(rustdoc::private_intra_doc_links, reason = "hidden: its readers have the source")]

mod pieces;
mod shape;
mod step_columns;

pub use pieces::Pieces;
pub use shape::{Access, Dependency, Loop, Rollback, Shape, Step, TableShape, has_integers};
