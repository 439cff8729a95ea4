//! Prefetching: asking for memory before it is needed.
//!
//! In a database larger than the caches, a transaction spends most of its time waiting for memory, one line
//! after the other: bucket, record, row; bucket, record, row. A processor can wait for ten or more lines at a
//! time, if it gets their addresses early enough.

/// Size of a cache line in bytes.
pub const LINE_BYTES: usize = 64;

/// How many keys are prefetched together: about as many lines as a core can wait for at a time.
pub const BATCH_KEYS: usize = 16;

/// Asks the processor to bring the lines that hold the `bytes` bytes from `address` on into its cache. Does not
/// wait for them, and never faults. Does nothing on processors other than x86-64.
#[inline(always)]
pub fn prefetch_lines(address: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
    for line in 0..bytes.div_ceil(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = address.cast::<i8>().wrapping_add(line * LINE_BYTES);
        // SAFETY: a prefetch reads nothing as far as the program is concerned, and never faults,
        // whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle)))))]
    let _ = (address, bytes);
}
