//! The log writes what was appended, and says no more of it than is so.
