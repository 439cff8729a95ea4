//! The signal handlers. SIGILL and SIGTRAP drive the emulation, faults inside a region abort it, and one more
//! signal holds a thread while another is in a region.
//!
//! The handlers run on a stack of their own. A rollback rewrites the stack of the region, and the kernel would
//! otherwise build its signal frames just below it.
//!
//! A signal that is not the emulator's goes to its previous handler: our handler restores the old action and
//! returns, and the instruction faults again.
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::mem::{MaybeUninit, zeroed};
use std::ptr::{self, NonNull};
use std::sync::Once;

use libc::{
    MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, SA_ONSTACK, SA_RESTART,
    SA_SIGINFO, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP, c_int, mmap, munmap, sigaction,
    sigaltstack, siginfo_t, stack_t, ucontext_t,
};

use crate::context::Context;
use crate::processor::State;
use crate::world;

const STACK_BYTES: usize = 256 << 10;
/// The signals that belong to regions.
const REGION_SIGNALS: [c_int; 5] = [SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGFPE];

thread_local! {
    /// The emulated processor of this thread; null if it has none. The cell has no destructor and no lazy
    /// initialisation, so a handler may read it at any time.
    static PROCESSOR: Cell<*mut State> = const { Cell::new(ptr::null_mut()) };
}

/// The signal stack of one thread, and the previous one.
#[derive(Debug)]
pub(crate) struct Stack {
    memory: *mut c_void,
    before: stack_t,
}

/// Makes `processor` the emulated processor of this thread.
pub(crate) fn install(processor: NonNull<State>) -> Stack {
    assert!(PROCESSOR.get().is_null(), "this thread emulates RTM already");
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(install_handlers);
    // SAFETY: the memory is fresh and used for nothing else, and the kernel gets its true size. It is unmapped
    // only after another stack has taken its place (`uninstall`).
    let stack = unsafe {
        let access = PROT_READ | PROT_WRITE;
        let kind = MAP_PRIVATE | MAP_ANONYMOUS;
        let memory = mmap(ptr::null_mut(), STACK_BYTES, access, kind, -1, 0);
        assert_ne!(memory, MAP_FAILED, "no memory for a signal stack");
        let new = stack_t { ss_sp: memory, ss_flags: 0, ss_size: STACK_BYTES };
        let mut before: stack_t = zeroed();
        assert_eq!(sigaltstack(&new, &mut before), 0);
        Stack { memory, before }
    };
    PROCESSOR.set(processor.as_ptr());
    stack
}

/// Undoes [`install`], on the same thread.
pub(crate) fn uninstall(stack: &Stack) {
    PROCESSOR.set(ptr::null_mut());
    // SAFETY: no handler runs on this thread now, so its stack is not in use. The previous stack still exists:
    // the code that made it keeps it until the thread ends.
    unsafe {
        sigaltstack(&stack.before, ptr::null_mut());
        munmap(stack.memory, STACK_BYTES);
    }
}

/// The actions that were in place before, for the signals that are not ours.
struct Before(UnsafeCell<[MaybeUninit<sigaction>; REGION_SIGNALS.len()]>);
// SAFETY: written once, before the handlers that read it are installed.
unsafe impl Sync for Before {}
static BEFORE: Before = Before(UnsafeCell::new([MaybeUninit::uninit(); REGION_SIGNALS.len()]));

fn install_handlers() {
    for (place, signal) in REGION_SIGNALS.into_iter().enumerate() {
        // SAFETY: this is called once. The handler for this signal is the only reader of this place, and is
        // installed after the place has been written. The handler has the type that SA_SIGINFO requires, and
        // does only what a handler may do.
        unsafe {
            let before = (*BEFORE.0.get())[place].as_mut_ptr();
            assert_eq!(sigaction(signal, ptr::null(), before), 0);
            let mut action: sigaction = zeroed();
            action.sa_sigaction = on_region_signal as *const () as usize;
            action.sa_flags = SA_SIGINFO | SA_ONSTACK;
            assert_eq!(sigaction(signal, &action, ptr::null_mut()), 0);
        }
    }
    // SAFETY: as above. Interrupted system calls are restarted, so the thread does not notice.
    unsafe {
        let mut action: sigaction = zeroed();
        action.sa_sigaction = on_hold_signal as *const () as usize;
        action.sa_flags = SA_ONSTACK | SA_RESTART;
        assert_eq!(sigaction(world::hold_signal(), &action, ptr::null_mut()), 0);
    }
}

extern "C" fn on_region_signal(signal: c_int, _: *mut siginfo_t, context: *mut c_void) {
    keeping_errno(|| {
        // SAFETY: the kernel passes the context of the interrupted thread. It is ours until we return.
        let mut context =
            unsafe { Context::new(NonNull::new_unchecked(context.cast::<ucontext_t>())) };
        // SAFETY: the state lives until `uninstall` clears the pointer. Only this thread uses it, and not now:
        // the thread is at the instruction that raised the signal, in a region or at XBEGIN.
        let ours = unsafe { PROCESSOR.get().as_mut() }.is_some_and(|processor| {
            match (processor.is_in_region(), signal) {
                (true, SIGTRAP) => processor.step(&mut context),
                (true, _) => processor.fault(&mut context),
                (false, SIGILL) => return processor.undefined_instruction(&mut context),
                (false, _) => return false,
            }
            true
        });
        if !ours {
            give_back(signal);
        }
    });
}

extern "C" fn on_hold_signal(_: c_int) {
    keeping_errno(world::hold);
}

/// Reinstalls the action that was in place before ours.
fn give_back(signal: c_int) {
    let place = REGION_SIGNALS.iter().position(|&ours| ours == signal);
    if let Some(place) = place {
        // SAFETY: `install_handlers` wrote this place before it installed the handler that calls this function.
        unsafe { sigaction(signal, (*BEFORE.0.get())[place].as_ptr(), ptr::null_mut()) };
    }
}

/// Runs a handler and restores `errno`, which the interrupted code may be about to read.
fn keeping_errno(handler: impl FnOnce()) {
    // SAFETY: the address is that of this thread's `errno`, and lives as long as the thread.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        handler();
        *errno = before;
    }
}
