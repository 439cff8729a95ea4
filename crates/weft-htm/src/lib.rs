//! Shared words and hardware-transactional-memory regions for the Weft database.
pub mod word;
