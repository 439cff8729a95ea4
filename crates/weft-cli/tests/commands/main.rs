//! The `weft` command from the outside: exit codes, messages, and the form of its output.

mod durable;
mod product;
mod support;
