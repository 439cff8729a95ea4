//! A web shop on Weft: accounts, stock, carts, orders, auctions and a report.
//!
//! Each topic is a file with its row types and its transactions, which know nothing of HTTP: [`accounts`], [`stock`],
//! [`carts`], [`orders`], [`auctions`], [`report`] and [`limits`]. [`shop`] opens the database, [`http`] has the
//! requests, and [`live`] tells the browsers what changes.

pub mod accounts;
pub mod auctions;
pub mod carts;
pub mod http;
pub mod limits;
pub mod live;
pub mod metrics;
pub mod orders;
pub mod refused;
pub mod report;
pub mod shop;
pub mod stock;
