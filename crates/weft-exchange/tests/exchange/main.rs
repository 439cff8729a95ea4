//! Tests of exports, imports and dumps.

mod damaged;
mod dump;
mod foreign;
mod golden;
mod newtypes;
mod refused;
mod round_trip;
mod table;
