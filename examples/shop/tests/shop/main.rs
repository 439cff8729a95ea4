//! Tests of the shop over HTTP, on a real socket and a real directory.

mod carts;
mod contention;
mod http;
mod lines;
mod live;
mod server;
