//! Executing instructions out of line: a copy of them runs on a page of the emulator's own, with a breakpoint behind
//! it. (Kernels' probes do the same.)
//!
//! The processor's trap flag would also stop behind an instruction, but on a virtual machine such a stop costs tens of
//! microseconds, because the kernel reads and clears the debug registers, for which the hypervisor steps in. A
//! breakpoint costs a signal and nothing else. It also needs no stop between instructions that access no memory.
//!
//! An instruction that addresses memory relative to itself gets another distance. So the page lies near the program's
//! code, and is within the reach of most such instructions.
use std::ptr::{self, NonNull};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use libc::{
    MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE,
    c_void, mmap, munmap,
};

use crate::processor::INSTRUCTION_BYTES_MAX;

const PAGE_BYTES: usize = 4096;
/// How many bytes of instructions run together at most, without the breakpoint.
const COPIED_BYTES_MAX: usize = 128;
/// INT3, which raises SIGTRAP.
const BREAKPOINT: u8 = 0xcc;
/// How far apart the addresses are at which the page is tried, and how many are tried.
const ADDRESSES_APART: usize = 16 << 20;
const ADDRESSES: usize = 100;

/// The page of one thread.
pub(crate) struct OutOfLine {
    page: NonNull<u8>,
    /// How many bytes have been copied.
    length: usize,
    /// Where the thread goes on behind the breakpoint, if a copy runs.
    next: Option<u64>,
}

impl OutOfLine {
    /// Maps a page. Returns `None` if the system does not give one that can be written and executed.
    pub(crate) fn new() -> Option<OutOfLine> {
        let code = (OutOfLine::new as *const () as usize) & !(PAGE_BYTES - 1);
        let access = PROT_READ | PROT_WRITE | PROT_EXEC;
        let kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        let addresses = (1..=ADDRESSES).map(|number| code.wrapping_sub(number * ADDRESSES_APART));
        let page = addresses.into_iter().find_map(|address| {
            // SAFETY: the mapping replaces no other.
            let page = unsafe {
                mmap(ptr::without_provenance_mut(address), PAGE_BYTES, access, kind, -1, 0)
            };
            (page != MAP_FAILED).then_some(page)
        })?;
        Some(OutOfLine { page: NonNull::new(page.cast())?, length: 0, next: None })
    }

    /// Returns whether an instruction does the same wherever it stands, but for an operand relative to itself.
    pub(crate) fn is_movable(instruction: &Instruction) -> bool {
        instruction.flow_control() == FlowControl::Next
            && !instruction.has_rep_prefix()
            && !instruction.has_repne_prefix()
    }

    /// Begins a copy.
    pub(crate) fn begin(&mut self) {
        self.length = 0;
    }

    /// Adds a [movable](OutOfLine::is_movable) instruction to the copy. Returns false if there is no room, or what it
    /// addresses cannot be reached from here.
    ///
    /// # Safety
    /// The instruction was decoded where it says that it stands.
    pub(crate) unsafe fn add(&mut self, instruction: &Instruction) -> bool {
        let length = instruction.len();
        if self.length + length > COPIED_BYTES_MAX {
            return false;
        }
        let mut copy = [0; INSTRUCTION_BYTES_MAX as usize];
        let bytes = &mut copy[..length];
        // SAFETY: by the contract there is an instruction of this length.
        bytes.copy_from_slice(unsafe {
            std::slice::from_raw_parts(instruction.ip() as *const u8, length)
        });
        if instruction.is_ip_rel_memory_operand() {
            let next = self.page.addr().get() + self.length + length;
            let distance = instruction.ip_rel_memory_address().wrapping_sub(next as u64) as i64;
            let mut decoder = Decoder::with_ip(64, bytes, instruction.ip(), DecoderOptions::NONE);
            let offsets = {
                let decoded = decoder.decode();
                decoder.get_constant_offsets(&decoded)
            };
            let Ok(distance) = i32::try_from(distance) else { return false };
            if offsets.displacement_size() != size_of::<i32>() {
                return false;
            }
            let at = offsets.displacement_offset();
            bytes[at..at + size_of::<i32>()].copy_from_slice(&distance.to_le_bytes());
        }
        // SAFETY: within the page, which only this thread uses; and it does not run the copy now.
        unsafe {
            self.page.add(self.length).copy_from_nonoverlapping(NonNull::from(&copy).cast(), length)
        };
        self.length += length;
        true
    }

    /// Takes the last instruction out of the copy again.
    pub(crate) fn take_back(&mut self, last: &Instruction) {
        self.length -= last.len();
    }

    /// Ends the copy, behind which the thread goes on at `next`. Returns where the copy begins.
    pub(crate) fn end(&mut self, next: u64) -> u64 {
        // SAFETY: within the page, which only this thread uses; and it does not run the copy now.
        unsafe { self.page.add(self.length).write(BREAKPOINT) };
        self.next = Some(next);
        self.page.addr().get() as u64
    }

    /// Returns where the thread goes on, if it has come to the breakpoint of a copy.
    pub(crate) fn take_next(&mut self) -> Option<u64> {
        self.next.take()
    }
}

impl Drop for OutOfLine {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no copy runs any more.
        unsafe { munmap(self.page.as_ptr().cast::<c_void>(), PAGE_BYTES) };
    }
}
