//! A simulated multicore machine with hardware transactional memory, in virtual time: for those who
//! have neither RTM nor eighty cores, and for tests that want every interleaving.
//!
//! [`machine`] is the model: caches, coherence, hardware threads and regions, driven by calls.
//! [`profile`] has the machines that can be simulated, with the sources of their numbers.
//!
//! Everything follows from a seed. Two runs of the same accesses with the same seed end with the same
//! clocks and counts, bit for bit, in whatever process.
//!
//! # What the model leaves out
//!
//! Figures from it are shapes and ratios, not predictions. It knows nothing of
//!
//! - **store buffers**: each access takes effect at once, in program order, so memory is
//!   sequentially consistent. A missing fence is not found here (but by loom), and a store that
//!   misses is as slow as a load;
//! - **out-of-order execution**: a miss is waited for before the next access begins. Only lines that
//!   follow one another are fetched ahead, and without taking room in the first level;
//! - **bandwidth and queues**: an access to memory, or to a line that many want, costs the same
//!   however many others are under way;
//! - **instructions**: no instruction cache, no branches; computing is what the program says it is;
//! - **address translation**: no TLB; pages are of 4 KiB;
//! - **replacement that is not exact**: least recently used, where processors approximate it;
//! - **the rest of an operating system**: threads stay on their hardware threads, and are interrupted
//!   by a timer and nothing else;
//! - **evictions that are not the program's**: code, page tables and the kernel take no room in any
//!   cache.

pub mod machine;
pub mod profile;
pub mod status;

pub use machine::{Aborted, Access, Counts, Machine, Overwritten};
pub use profile::{PROFILES, Profile};
