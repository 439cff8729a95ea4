//! Drills: what is lost, and what an operator sees.
