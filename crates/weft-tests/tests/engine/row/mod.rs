//! Properties of what rows are made of, on random values: encodings, columns, operations, and the types of other
//! libraries. They are here and not in the engine's own tests because those are optimised, which makes them compile
//! several times as long.

mod column;
mod encoding;
mod operation;
mod parts;
