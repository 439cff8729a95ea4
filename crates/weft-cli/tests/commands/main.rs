//! The `weft` command as a process: exit codes, messages, and the form of its output.

mod durable;
mod exchange;
mod product;
mod programs;
mod report;
mod schema;
mod support;
