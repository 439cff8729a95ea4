//! Weft.
#![allow(dead_code)]
pub mod index;
