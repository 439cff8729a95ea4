//! Large blocks of memory, at the same addresses in every process.
//!
//! The operating system places mappings at random, and programs compare and hash addresses, for instance to
//! lock records in their order. The blocks of [`map`] lie in one range with a fixed address, later blocks
//! behind earlier ones. The range is never given back, and no address of it is used twice.

use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

/// Where the range begins: in the middle of a process's address space, far from where Linux places programs,
/// heaps and mappings.
const START: usize = 0x1000_0000_0000;
/// The length of the range. It reserves addresses, not memory.
const RESERVED_BYTES: usize = 1 << 45;
/// Blocks are aligned to this, which is the size of huge pages.
const ALIGNMENT: usize = 2 << 20;

const _: () = assert!(START.is_multiple_of(ALIGNMENT));

/// The part of the range that is not handed out yet.
struct Rest {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: no other code uses these addresses.
unsafe impl Send for Rest {}

static REST: Mutex<Rest> = Mutex::new(Rest { start: ptr::null_mut(), bytes: 0 });

/// Returns a zeroed block of `bytes` bytes, aligned to 2 MiB. [`None`] if there is no memory for it.
///
/// # Panics
/// If the process uses addresses of the range for something else.
pub fn map(bytes: usize) -> Option<NonNull<u8>> {
    let bytes = bytes.next_multiple_of(ALIGNMENT);
    let mut rest = REST.lock().unwrap_or_else(PoisonError::into_inner);
    if rest.start.is_null() {
        let wanted = ptr::without_provenance_mut::<u8>(START);
        // SAFETY: a new private mapping without access, which no other code knows.
        let start = unsafe {
            libc::mmap(
                wanted.cast(),
                RESERVED_BYTES,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        assert!(start.addr() == START, "the addresses of the simulated machine's memory are taken");
        *rest = Rest { start: start.cast(), bytes: RESERVED_BYTES };
    }
    if bytes > rest.bytes {
        return None;
    }
    let block = rest.start;
    // SAFETY: a part of the reserved range that was not handed out yet.
    unsafe {
        if libc::mprotect(block.cast(), bytes, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return None;
        }
        rest.start = block.add(bytes);
    }
    rest.bytes -= bytes;
    NonNull::new(block)
}

/// Gives the memory of a block back to the operating system.
///
/// # Safety
/// [`map`] returned the block for the same size, and no code uses it any more.
pub unsafe fn unmap(block: NonNull<u8>, bytes: usize) {
    let bytes = bytes.next_multiple_of(ALIGNMENT);
    // SAFETY: by this function's contract. The addresses stay reserved.
    unsafe {
        libc::madvise(block.as_ptr().cast(), bytes, libc::MADV_DONTNEED);
        libc::mprotect(block.as_ptr().cast(), bytes, libc::PROT_NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects the order of addresses: later blocks lie behind earlier ones, also after a block was given
    /// back.
    #[test]
    fn later_blocks_lie_behind_earlier_ones() {
        let first = map(1).unwrap();
        assert_eq!(first.addr().get(), START);
        // SAFETY: a block of 2 MiB, used only here, and given back once.
        unsafe {
            assert_eq!(first.add(ALIGNMENT - 1).read(), 0);
            first.write(1);
            unmap(first, 1);
        }
        let second = map(3 * ALIGNMENT).unwrap();
        let third = map(ALIGNMENT).unwrap();
        assert!(first < second && second.addr().get() + 3 * ALIGNMENT <= third.addr().get());
        assert!(second.addr().get().is_multiple_of(ALIGNMENT));
    }
}
