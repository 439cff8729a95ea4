//! The registers of an interrupted thread, as the kernel hands them to a signal handler. What the handler
//! changes there takes effect when it returns.
use std::ptr::NonNull;

use iced_x86::{ConditionCode, Register};
use libc::{REG_EFL, REG_RAX, REG_RIP, REG_RSP, c_int, greg_t, ucontext_t};

/// Flag bit: stop after the next instruction.
const TRAP_FLAG: greg_t = 0x100;
/// Flag bits that XTEST writes: carry, parity, adjust, zero, sign, overflow.
const ARITHMETIC_FLAGS: greg_t = 0x8d5;
const CARRY_FLAG: greg_t = 0x1;
const PARITY_FLAG: greg_t = 0x4;
const ZERO_FLAG: greg_t = 0x40;
const SIGN_FLAG: greg_t = 0x80;
const OVERFLOW_FLAG: greg_t = 0x800;

/// The general registers, the instruction pointer and the flags come first in the kernel's array.
const SAVED_REGISTERS: usize = REG_EFL as usize + 1;

/// The kernel writes the size of the vector state into its first 512 bytes, behind a mark.
const LEGACY_STATE_BYTES: usize = 512;
const MARK_AT: usize = 464;
const MARK: u32 = 0x4650_5853;
const SIZE_AT: usize = 468;
/// More than the largest vector state (with AMX tiles it is about 11 KiB).
const VECTOR_STATE_BYTES_MAX: usize = 16 << 10;

/// The registers of the thread that a signal interrupted.
pub(crate) struct Context(NonNull<ucontext_t>);

/// A copy of all registers.
pub(crate) struct Registers {
    general: [greg_t; SAVED_REGISTERS],
    vector: Vec<u8>,
}

impl Registers {
    /// Makes room for a copy.
    pub(crate) fn new() -> Registers {
        Registers {
            general: [0; SAVED_REGISTERS],
            vector: Vec::with_capacity(VECTOR_STATE_BYTES_MAX),
        }
    }
}

impl Context {
    /// # Safety
    ///
    /// `context` is what the kernel passed to the signal handler that is running, and no other
    /// `Context` of it is in use.
    pub(crate) unsafe fn new(context: NonNull<ucontext_t>) -> Context {
        Context(context)
    }

    fn register(&self, index: c_int) -> greg_t {
        // SAFETY: the caller of `new` promised a live context that only we use. The indices are libc's own.
        unsafe { (*self.0.as_ptr()).uc_mcontext.gregs[index as usize] }
    }

    fn set_register(&mut self, index: c_int, value: greg_t) {
        // SAFETY: as in `register`.
        unsafe { (*self.0.as_ptr()).uc_mcontext.gregs[index as usize] = value }
    }

    /// Returns the address of the next instruction.
    pub(crate) fn instruction_pointer(&self) -> u64 {
        self.register(REG_RIP) as u64
    }

    /// Makes the thread go on at this address.
    pub(crate) fn jump(&mut self, address: u64) {
        self.set_register(REG_RIP, address as greg_t);
    }

    /// Returns the address of the top of the stack.
    pub(crate) fn stack_pointer(&self) -> u64 {
        self.register(REG_RSP) as u64
    }

    /// Sets the address of the top of the stack.
    pub(crate) fn set_stack_pointer(&mut self, address: u64) {
        self.set_register(REG_RSP, address as greg_t);
    }

    /// Returns whether the flags meet the condition of a conditional jump. `None` if it depends on more than flags.
    pub(crate) fn meets(&self, condition: ConditionCode) -> Option<bool> {
        let flags = self.register(REG_EFL);
        let is_set = |flag: greg_t| flags & flag != 0;
        let is_less = is_set(SIGN_FLAG) != is_set(OVERFLOW_FLAG);
        Some(match condition {
            ConditionCode::o => is_set(OVERFLOW_FLAG),
            ConditionCode::no => !is_set(OVERFLOW_FLAG),
            ConditionCode::b => is_set(CARRY_FLAG),
            ConditionCode::ae => !is_set(CARRY_FLAG),
            ConditionCode::e => is_set(ZERO_FLAG),
            ConditionCode::ne => !is_set(ZERO_FLAG),
            ConditionCode::be => is_set(CARRY_FLAG) || is_set(ZERO_FLAG),
            ConditionCode::a => !is_set(CARRY_FLAG) && !is_set(ZERO_FLAG),
            ConditionCode::s => is_set(SIGN_FLAG),
            ConditionCode::ns => !is_set(SIGN_FLAG),
            ConditionCode::p => is_set(PARITY_FLAG),
            ConditionCode::np => !is_set(PARITY_FLAG),
            ConditionCode::l => is_less,
            ConditionCode::ge => !is_less,
            ConditionCode::le => is_set(ZERO_FLAG) || is_less,
            ConditionCode::g => !is_set(ZERO_FLAG) && !is_less,
            _ => return None,
        })
    }

    /// Makes the thread go on behind the next instruction, which is `length` bytes long.
    pub(crate) fn skip(&mut self, length: usize) {
        self.set_register(REG_RIP, self.register(REG_RIP) + length as greg_t);
    }

    /// Sets whether the thread stops after its next instruction.
    pub(crate) fn set_single_step(&mut self, on: bool) {
        let flags = self.register(REG_EFL);
        self.set_register(REG_EFL, if on { flags | TRAP_FLAG } else { flags & !TRAP_FLAG });
    }

    /// Sets the flags as XTEST does.
    pub(crate) fn set_test_result(&mut self, inside: bool) {
        let zero = if inside { 0 } else { ZERO_FLAG };
        let flags = self.register(REG_EFL) & !ARITHMETIC_FLAGS | zero;
        self.set_register(REG_EFL, flags);
    }

    /// Returns the value of a register that can be part of an address. `None` if it cannot.
    pub(crate) fn address_part(&self, register: Register) -> Option<u64> {
        use libc::{
            REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RBP, REG_RBX,
            REG_RCX, REG_RDI, REG_RDX, REG_RSI,
        };
        let index = match register.full_register() {
            Register::FS => return Some(thread_pointer()),
            Register::ES | Register::CS | Register::SS | Register::DS => return Some(0),
            Register::RAX => REG_RAX,
            Register::RBX => REG_RBX,
            Register::RCX => REG_RCX,
            Register::RDX => REG_RDX,
            Register::RSI => REG_RSI,
            Register::RDI => REG_RDI,
            Register::RBP => REG_RBP,
            Register::RSP => REG_RSP,
            Register::R8 => REG_R8,
            Register::R9 => REG_R9,
            Register::R10 => REG_R10,
            Register::R11 => REG_R11,
            Register::R12 => REG_R12,
            Register::R13 => REG_R13,
            Register::R14 => REG_R14,
            Register::R15 => REG_R15,
            _ => return None,
        };
        let value = self.register(index) as u64;
        match register.size() {
            8 => Some(value),
            4 => Some(value & 0xffff_ffff),
            _ => None,
        }
    }

    /// Copies all registers.
    pub(crate) fn save(&self, registers: &mut Registers) {
        for (index, saved) in registers.general.iter_mut().enumerate() {
            *saved = self.register(index as c_int);
        }
        registers.vector.clear();
        registers.vector.extend_from_slice(self.vector_state());
    }

    /// Restores all registers, except that RAX gets `status` and the thread goes on at `address`.
    pub(crate) fn restore(&mut self, registers: &Registers, status: u32, address: u64) {
        for (index, saved) in registers.general.iter().enumerate() {
            self.set_register(index as c_int, *saved);
        }
        assert_eq!(self.vector_state().len(), registers.vector.len());
        // SAFETY: the kernel put the vector state of the interrupted thread there, and the assertion above has
        // compared its length. The copy is in memory of our own.
        unsafe {
            let state = (*self.0.as_ptr()).uc_mcontext.fpregs.cast::<u8>();
            state.copy_from_nonoverlapping(registers.vector.as_ptr(), registers.vector.len());
        }
        self.set_register(REG_RAX, greg_t::from(status));
        self.set_register(REG_RIP, address as greg_t);
    }

    /// Returns the floating-point and vector registers as the kernel stored them.
    fn vector_state(&self) -> &[u8] {
        // SAFETY: on x86-64 the kernel always stores this state, at least its first 512 bytes. Behind the mark
        // it writes how many bytes it stored in all.
        unsafe {
            let state = (*self.0.as_ptr()).uc_mcontext.fpregs.cast::<u8>();
            let field = |at: usize| state.add(at).cast::<u32>().read_unaligned();
            let size = match field(MARK_AT) {
                MARK => field(SIZE_AT) as usize,
                _ => LEGACY_STATE_BYTES,
            };
            assert!(size <= VECTOR_STATE_BYTES_MAX);
            std::slice::from_raw_parts(state, size)
        }
    }
}

/// Returns the base of the FS segment. The handler runs on the interrupted thread, so this is that thread's base.
fn thread_pointer() -> u64 {
    let base: u64;
    // SAFETY: the thread control block begins with a pointer to itself (x86-64 System V ABI).
    unsafe {
        std::arch::asm!(
            "mov {}, fs:[0]",
            out(reg) base,
            options(nostack, readonly, preserves_flags)
        );
    }
    base
}
