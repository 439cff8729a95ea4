//! The `weft-lab` command from the outside: exit codes, messages, and the form of its output.

mod bench;
mod chop;
mod figures;
mod hot_keys;
mod procedures;
mod refusals;
mod support;
