//! The emulated processor of one thread: what happens to a region from XBEGIN to its end.
//!
//! The thread executes its own instructions. Between two of them the emulator decodes the next one. If it is an
//! instruction of RTM or a branch, the emulator carries it out. If it is a forbidden one, the region aborts. For any
//! other one the emulator first notes the memory that it will access.
//!
//! ```text
//!               XBEGIN ─▶ depth 1 ──XBEGIN─▶ depth 2 ─ … 7
//!                 │         │  ▲                │
//!   outside ◀─────┤         │  └─────XEND───────┘
//!      ▲          │         ▼
//!      │          │      XEND: commit ──────────────────────────────▶ outside
//!      └── abort: memory and registers as at the outermost XBEGIN, status in EAX
//! ```
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    InstructionInfoOptions, Mnemonic, OpAccess, OpKind, UsedMemory,
};

use crate::context::{Context, Registers};
use crate::lines::{Lines, Overflow};
use crate::out_of_line::OutOfLine;
use crate::{memory, status, world};

const PAGE_BYTES: u64 = 4096;
pub(crate) const INSTRUCTION_BYTES_MAX: u64 = 15;
/// How deep regions may be nested. One more level aborts.
const DEPTH_MAX: u32 = 7;
/// How many memory operands one instruction may have here. PUSH of a memory word and the string instructions
/// have two.
const TOUCHES_MAX: usize = 4;

/// The properties of the emulated processor.
#[derive(Clone, Copy, Debug)]
pub struct Processor {
    /// Ways of the first-level cache, which has 64 sets. A region that writes to more lines than this in one
    /// set overflows.
    pub ways: usize,
    /// The number of lines that a region can read.
    pub read_lines: usize,
    /// The number of instructions after which a timer interrupt aborts a region.
    pub instructions: u32,
    /// How many conflicts strike per million instructions.
    pub conflicts_per_million: u32,
    /// Whether instructions are executed out of line where they can be, which is several times as fast. If not, each is
    /// executed where it stands.
    pub out_of_line: bool,
}

impl Default for Processor {
    /// Much like the processors that had RTM: a first-level cache of 32 KiB with 8 ways.
    fn default() -> Self {
        Processor {
            ways: 8,
            read_lines: 4096,
            instructions: 100_000,
            conflicts_per_million: 0,
            out_of_line: true,
        }
    }
}

/// When a planned abort strikes a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the instruction with this number, counted from 0 behind XBEGIN.
    Before(u32),
    /// At the outermost XEND, when all the work is done.
    AtEnd,
}

/// How often the regions of one thread ended in each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Outermost regions begun.
    pub begun: u64,
    /// Outermost regions committed.
    pub committed: u64,
    /// Regions aborted.
    pub aborted: u64,
    /// The status of the last abort.
    pub last_status: u32,
    /// Instructions emulated in regions.
    pub instructions: u64,
}

/// The state of one emulated processor.
pub(crate) struct State {
    processor: Processor,
    counts: Counts,
    plan: Plan,
    random: u64,
    /// 0 outside a region.
    depth: u32,
    /// The number of instructions of this region so far.
    age: u32,
    /// Whether a conflict strikes at the next instruction that accesses no memory: it was drawn already.
    is_struck: bool,
    /// The address at which the outermost XBEGIN goes on after an abort. The registers to restore follow.
    fallback: u64,
    registers: Registers,
    lines: Lines,
    info: InstructionInfoFactory,
    /// Where instructions are executed, or `None` to execute them where they stand.
    out_of_line: Option<OutOfLine>,
}

/// The aborts that are still to come.
#[derive(Clone, Copy)]
struct Plan {
    moment: Moment,
    status: u32,
    regions: u32,
}

impl State {
    pub(crate) fn new(processor: Processor, seed: u64) -> State {
        let mut state = State {
            processor,
            counts: Counts::default(),
            plan: Plan { moment: Moment::AtEnd, status: 0, regions: 0 },
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            depth: 0,
            age: 0,
            is_struck: false,
            fallback: 0,
            registers: Registers::new(),
            lines: Lines::new(processor.ways, processor.read_lines),
            info: InstructionInfoFactory::new(),
            out_of_line: processor.out_of_line.then(OutOfLine::new).flatten(),
        };
        // ENTER with 31 levels accesses more memory than any other instruction. After this, neither the decoder
        // nor the instruction information allocates in a handler.
        let enter = decode(&[0xc8, 0x10, 0x00, 0x1f], 0);
        assert_eq!(enter.mnemonic(), Mnemonic::Enter);
        assert!(touches(&mut state.info, &enter).len() > TOUCHES_MAX);
        state
    }

    pub(crate) fn plan(&mut self, moment: Moment, status: u32, regions: u32) {
        self.plan = Plan { moment, status, regions };
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn is_in_region(&self) -> bool {
        self.depth > 0
    }

    /// Carries out an instruction of RTM outside a region. Returns `false` if the next instruction is not one.
    pub(crate) fn undefined_instruction(&mut self, context: &mut Context) -> bool {
        let instruction = instruction_at(context.instruction_pointer());
        match instruction.mnemonic() {
            Mnemonic::Xbegin => self.begin(context, &instruction),
            Mnemonic::Xtest => {
                context.skip(instruction.len());
                context.set_test_result(false);
            }
            Mnemonic::Xabort => context.skip(instruction.len()),
            _ => return false,
        }
        true
    }

    fn begin(&mut self, context: &mut Context, instruction: &Instruction) {
        world::stop();
        self.counts.begun += 1;
        (self.depth, self.age, self.is_struck) = (1, 0, false);
        self.lines.clear();
        self.fallback = instruction.near_branch_target();
        context.save(&mut self.registers);
        context.skip(instruction.len());
        self.step(context);
    }

    /// Handles the next instruction inside a region. An instruction of RTM or a branch is carried out immediately, and
    /// then the one behind it is handled.
    pub(crate) fn step(&mut self, context: &mut Context) {
        context.set_single_step(false);
        if let Some(next) = self.out_of_line.as_mut().and_then(OutOfLine::take_next) {
            context.jump(next);
        }
        loop {
            if let Some(status) = self.status_due() {
                return self.abort(context, status);
            }
            self.count_instruction();
            let instruction = instruction_at(context.instruction_pointer());
            match instruction.mnemonic() {
                Mnemonic::Xbegin if self.depth == DEPTH_MAX => {
                    return self.abort(context, status::CAPACITY);
                }
                Mnemonic::Xbegin => self.depth += 1,
                Mnemonic::Xend if self.depth == 1 => return self.commit(context, &instruction),
                Mnemonic::Xend => self.depth -= 1,
                Mnemonic::Xtest => context.set_test_result(true),
                Mnemonic::Xabort => {
                    return self.abort(context, status::explicit(instruction.immediate8()));
                }
                forbidden if is_forbidden(forbidden) => return self.abort(context, 0),
                _ => {
                    if let Err(status) = self.allow(context, &instruction) {
                        return self.abort(context, status);
                    }
                    let Some(next) = branch(context, &instruction) else {
                        return self.execute(context, &instruction);
                    };
                    context.jump(next);
                    continue;
                }
            }
            context.skip(instruction.len());
        }
    }

    /// Returns the status with which the region aborts before its next instruction, if it does.
    fn status_due(&self) -> Option<u32> {
        if self.age == self.processor.instructions {
            return Some(0);
        }
        let is_planned = self.plan.regions > 0 && self.plan.moment == Moment::Before(self.age);
        is_planned.then_some(self.plan.status)
    }

    fn count_instruction(&mut self) {
        self.age += 1;
        self.counts.instructions += 1;
    }

    /// Allows an ordinary instruction, unless a conflict strikes or the memory that it accesses does not fit. Then it
    /// returns the status with which the region aborts.
    fn allow(&mut self, context: &Context, instruction: &Instruction) -> Result<(), u32> {
        if std::mem::take(&mut self.is_struck) || self.conflict_strikes() {
            return Err(status::CONFLICT | status::RETRY);
        }
        self.note_touches(context, instruction).map_err(|refusal| match refusal {
            Refusal::Overflow => status::CAPACITY,
            Refusal::Untraceable => 0,
        })
    }

    /// Lets the thread execute an ordinary instruction, and those behind it that access no memory.
    fn execute(&mut self, context: &mut Context, instruction: &Instruction) {
        match self.copy(instruction) {
            Some(copy) => context.jump(copy),
            None => context.set_single_step(true),
        }
    }

    /// Copies an instruction and those behind it that access no memory. Returns the address of the copy, or `None` if
    /// the instruction must be executed where it stands.
    fn copy(&mut self, first: &Instruction) -> Option<u64> {
        let mut copy = self.out_of_line.take()?;
        copy.begin();
        // SAFETY: both this instruction and the ones behind it were decoded where they stand.
        let is_copied = OutOfLine::is_movable(first) && unsafe { copy.add(first) };
        let begin = is_copied.then(|| {
            let mut next = first.next_ip();
            while self.status_due().is_none() {
                let instruction = instruction_at(next);
                let needs_stop = !OutOfLine::is_movable(&instruction)
                    || is_transactional(instruction.mnemonic())
                    || is_forbidden(instruction.mnemonic())
                    || accesses_memory(&mut self.info, &instruction);
                // SAFETY: as above.
                if needs_stop || !unsafe { copy.add(&instruction) } {
                    break;
                }
                if self.conflict_strikes() {
                    copy.take_back(&instruction);
                    self.is_struck = true;
                    break;
                }
                self.count_instruction();
                next = instruction.next_ip();
            }
            copy.end(next)
        });
        self.out_of_line = Some(copy);
        begin
    }

    fn conflict_strikes(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1_000_000 < u64::from(self.processor.conflicts_per_million)
    }

    fn note_touches(
        &mut self,
        context: &Context,
        instruction: &Instruction,
    ) -> Result<(), Refusal> {
        let touched = touches(&mut self.info, instruction);
        if touched.len() > TOUCHES_MAX {
            return Err(Refusal::Untraceable);
        }
        for memory in touched {
            if memory.access() == OpAccess::NoMemAccess {
                continue;
            }
            let address = memory
                .virtual_address(0, |register, _, _| context.address_part(register))
                .ok_or(Refusal::Untraceable)?;
            let size = match memory.memory_size().size() {
                0 => return Err(Refusal::Untraceable),
                size => size as u64,
            };
            // Every access but a pure write counts as a read, and every one but a pure read as a write.
            if memory.access() != OpAccess::Write {
                self.lines.note_read(address, size)?;
            }
            if !matches!(memory.access(), OpAccess::Read | OpAccess::CondRead) {
                self.lines.note_write(address, size)?;
            }
        }
        Ok(())
    }

    /// Handles a fault inside the region: the region aborts, and the program never sees the fault.
    pub(crate) fn fault(&mut self, context: &mut Context) {
        // A copy may have faulted, so its breakpoint is not reached.
        self.out_of_line.as_mut().and_then(OutOfLine::take_next);
        self.abort(context, 0);
    }

    fn commit(&mut self, context: &mut Context, instruction: &Instruction) {
        if self.plan.regions > 0 && self.plan.moment == Moment::AtEnd {
            return self.abort(context, self.plan.status);
        }
        self.counts.committed += 1;
        context.skip(instruction.len());
        self.leave();
    }

    fn abort(&mut self, context: &mut Context, status: u32) {
        let nested = if self.depth > 1 { status::NESTED } else { 0 };
        // SAFETY: the region ends here by a rollback, and every thread that takes part is held.
        unsafe { self.lines.undo() };
        self.counts.aborted += 1;
        self.counts.last_status = status | nested;
        // The saved registers include the flags from before the region, without the trap flag.
        context.restore(&self.registers, status | nested, self.fallback);
        self.leave();
    }

    fn leave(&mut self) {
        self.depth = 0;
        self.plan.regions = self.plan.regions.saturating_sub(1);
        world::resume();
    }
}

/// Why an instruction cannot be executed in a region.
enum Refusal {
    /// Its memory does not fit into the read set or the write set.
    Overflow,
    /// The emulator cannot tell which memory it accesses.
    Untraceable,
}

impl From<Overflow> for Refusal {
    fn from(_: Overflow) -> Refusal {
        Refusal::Overflow
    }
}

/// Returns whether an instruction aborts every region: it leaves user mode, or the manual names it.
fn is_forbidden(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Syscall
            | Mnemonic::Sysenter
            | Mnemonic::Int
            | Mnemonic::Int1
            | Mnemonic::Int3
            | Mnemonic::Ud2
            | Mnemonic::INVALID
            | Mnemonic::Cpuid
            | Mnemonic::Pause
            | Mnemonic::Hlt
            | Mnemonic::Xsave
            | Mnemonic::Xsavec
            | Mnemonic::Xsaveopt
            | Mnemonic::Xrstor
            | Mnemonic::Fxsave
            | Mnemonic::Fxrstor
            | Mnemonic::Clflush
            | Mnemonic::Clflushopt
            | Mnemonic::Popfq
    )
}

/// Returns whether this is an instruction of RTM.
fn is_transactional(mnemonic: Mnemonic) -> bool {
    matches!(mnemonic, Mnemonic::Xbegin | Mnemonic::Xend | Mnemonic::Xtest | Mnemonic::Xabort)
}

fn accesses_memory(info: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    touches(info, instruction).iter().any(|memory| memory.access() != OpAccess::NoMemAccess)
}

/// Carries out a branch whose target the instruction or the stack names. Returns the target, or `None` if the
/// instruction is not such a branch, or its memory cannot be accessed.
fn branch(context: &mut Context, instruction: &Instruction) -> Option<u64> {
    let word = size_of::<u64>() as u64;
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch if instruction.op0_kind() == OpKind::NearBranch64 => {
            Some(instruction.near_branch_target())
        }
        FlowControl::ConditionalBranch => {
            let is_taken = context.meets(instruction.condition_code())?;
            Some(if is_taken { instruction.near_branch_target() } else { instruction.next_ip() })
        }
        FlowControl::Call if instruction.op0_kind() == OpKind::NearBranch64 => {
            let top = context.stack_pointer() - word;
            // SAFETY: the instruction would write the same, and the line's old contents have been saved.
            let is_written = unsafe { memory::write(top, &instruction.next_ip().to_le_bytes()) };
            is_written.then(|| context.set_stack_pointer(top))?;
            Some(instruction.near_branch_target())
        }
        FlowControl::Return
            if instruction.mnemonic() == Mnemonic::Ret && instruction.op_count() == 0 =>
        {
            let (mut target, top) = ([0; size_of::<u64>()], context.stack_pointer());
            memory::read(top, &mut target).then(|| context.set_stack_pointer(top + word))?;
            Some(u64::from_le_bytes(target))
        }
        _ => None,
    }
}

/// Returns the memory that an instruction accesses, explicitly or not.
fn touches<'a>(
    info: &'a mut InstructionInfoFactory,
    instruction: &Instruction,
) -> &'a [UsedMemory] {
    info.info_options(instruction, InstructionInfoOptions::NO_REGISTER_USAGE).used_memory()
}

/// Returns the instruction at an address that the thread is about to reach.
fn instruction_at(address: u64) -> Instruction {
    let in_page = (PAGE_BYTES - address % PAGE_BYTES).min(INSTRUCTION_BYTES_MAX);
    // SAFETY: the thread is about to execute the instruction there, so its page is mapped.
    let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, in_page as usize) };
    let instruction = decode(bytes, address);
    if !instruction.is_invalid() || in_page == INSTRUCTION_BYTES_MAX {
        return instruction;
    }
    // SAFETY: a valid instruction that does not end in its page goes on in the next one, which is then mapped.
    // The code of these tests contains no invalid one.
    let bytes =
        unsafe { std::slice::from_raw_parts(address as *const u8, INSTRUCTION_BYTES_MAX as usize) };
    decode(bytes, address)
}

fn decode(bytes: &[u8], address: u64) -> Instruction {
    Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode()
}
