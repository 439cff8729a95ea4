//! What a procedure declares before it runs, and what follows from it: its [`Shape`], the columns that matter to each of
//! its steps, and the [pieces](Pieces) in which it may be committed beside others. (Who finds these is the crate
//! `weft-procedures`, which also runs procedures.)
#![allow(rustdoc::private_intra_doc_links, reason = "hidden: whoever reads it reads the source")]

mod pieces;
mod shape;
mod step_columns;

pub use pieces::Pieces;
pub use shape::{Access, Dependency, Loop, Rollback, Shape, Step, TableShape, has_integers};
pub use step_columns::StepColumns;
