//! The bits that an abort leaves in EAX, as RTM defines them (Intel SDM, volume 1, chapter 16). They are
//! defined here again, so that the model shares no mistake with the engine that reads them.

/// XBEGIN has started a region. Never the status of an abort.
pub const STARTED: u32 = !0;
/// The region executed XABORT. Its operand is in the highest eight bits.
pub const EXPLICIT: u32 = 1 << 0;
/// The region may succeed if it is tried again.
pub const RETRY: u32 = 1 << 1;
/// Another thread touched what the region wrote, or wrote what it read.
pub const CONFLICT: u32 = 1 << 2;
/// The region touched more lines than can be tracked.
pub const CAPACITY: u32 = 1 << 3;
/// The abort happened inside a nested region.
pub const NESTED: u32 = 1 << 5;

/// Returns the status of XABORT with this operand.
pub const fn explicit(operand: u8) -> u32 {
    EXPLICIT | (operand as u32) << 24
}
