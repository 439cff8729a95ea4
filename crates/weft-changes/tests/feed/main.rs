//! Tests of the change feed: nothing is lost, doubled or out of order, whatever happens to the process and the disk.

mod bank;
mod basics;
mod crashes;
mod kill;
mod misuse;
mod operations;
mod pieces;
mod protocols;
mod ring;
mod watches;
