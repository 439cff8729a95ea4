//! A terminal view of a database that a program serves with `weft_inspect::serve`.
//!
//! `client` asks for reports on a thread of its own, and `view` draws them. The program `weft-top` connects both with the
//! terminal.

pub mod client;
mod numbers;
pub mod view;
