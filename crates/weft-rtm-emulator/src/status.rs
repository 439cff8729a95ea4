//! The bits that an aborted region leaves in EAX, as Intel's manual defines them (Software
//! Developer's Manual, volume 1, "RTM Abort Status Definition").

/// The region executed XABORT. Its operand is in bits 31 to 24.
pub const EXPLICIT: u32 = 1 << 0;
/// A retry may succeed.
pub const RETRY: u32 = 1 << 1;
/// Another processor accessed a line of the region.
pub const CONFLICT: u32 = 1 << 2;
/// An internal buffer overflowed.
pub const CAPACITY: u32 = 1 << 3;
/// A debug trap was hit.
pub const DEBUG: u32 = 1 << 4;
/// The abort happened in a nested region.
pub const NESTED: u32 = 1 << 5;

/// Returns the status of an XABORT with this operand.
pub const fn explicit(operand: u8) -> u32 {
    (operand as u32) << 24 | EXPLICIT
}
