//! Access to memory that may not be mapped.
//!
//! A region may access addresses that are unmapped or read-only. The fault is then the region's, and must not
//! become a fault of the signal handler. So the emulator never dereferences such an address. It asks the kernel
//! to copy, and the kernel returns an error instead of raising a signal.
use std::ffi::c_void;

use libc::{getpid, iovec, process_vm_readv, process_vm_writev};

/// Copies the bytes at `address` to `bytes`. Returns `false` if they cannot all be read.
pub(crate) fn read(address: u64, bytes: &mut [u8]) -> bool {
    let here = vector(bytes.as_mut_ptr().cast(), bytes.len());
    let there = vector(address as *mut c_void, bytes.len());
    // SAFETY: the kernel writes within `bytes`, which we own, and checks the other range itself.
    let copied = unsafe { process_vm_readv(getpid(), &here, 1, &there, 1, 0) };
    copied == bytes.len() as isize
}

/// Copies `bytes` to `address`. Returns `false` if they cannot all be written there.
///
/// # Safety
///
/// No other thread uses those bytes now, and later users of them expect what is written.
pub(crate) unsafe fn write(address: u64, bytes: &[u8]) -> bool {
    let here = vector(bytes.as_ptr().cast_mut().cast(), bytes.len());
    let there = vector(address as *mut c_void, bytes.len());
    // SAFETY: the kernel only reads `bytes` and checks the other range itself. The caller is responsible for
    // the effect of the write.
    let copied = unsafe { process_vm_writev(getpid(), &here, 1, &there, 1, 0) };
    copied == bytes.len() as isize
}

/// Returns whether the kernel allows these calls at all.
pub(crate) fn is_accessible() -> bool {
    let mut from = [1_u8];
    let mut to = [0_u8];
    let readable = read(from.as_ptr() as u64, &mut to);
    // SAFETY: the target is our own local.
    let writable = unsafe { write(from.as_mut_ptr() as u64, &[2]) };
    readable && writable
}

fn vector(base: *mut c_void, length: usize) -> iovec {
    iovec { iov_base: base, iov_len: length }
}
