//! The `weft-lab` command as a process: exit codes, messages, and the form of its output.

mod bench;
mod chop;
mod figures;
mod hot_keys;
mod map;
mod procedures;
mod refusals;
mod support;
mod waits;
