//! What a procedure declares before it runs, and what follows from it: its [`Shape`], the columns that matter to each of
//! its steps, and the [pieces](Pieces) in which it may be committed beside others, which [`chopping`] finds.

pub mod chopping;
mod pieces;
mod shape;
mod step_columns;

pub use pieces::Pieces;
pub use shape::{Access, Dependency, Loop, Rollback, Shape, Step, TableShape};
pub use step_columns::StepColumns;
