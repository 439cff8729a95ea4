//! Holding all other threads while one of them is in a region.
//!
//! Threads that take part join a list. A thread that begins a region takes the only turn, sends every other
//! member a signal, and waits until each has entered its handler. There they wait until the region has ended.
//! Only the holder of the turn reads or changes the list.
//!
//! ```text
//!  in a region:   take the turn │ signal the others │ wait for all │ … region … │ release, pass on
//!  any other:                     … handler: report, wait ─────────────────────── │ go on
//! ```
//!
//! All waiting is on POSIX semaphores. Their functions only use atomic instructions and a system call, so the
//! handlers may call them.
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Once;

use libc::{
    SYS_gettid, SYS_tgkill, c_int, getpid, pid_t, sem_init, sem_post, sem_t, sem_wait, syscall,
};

/// How many threads can take part at a time.
const MEMBERS_MAX: usize = 64;

/// Returns the signal that holds a thread.
pub(crate) fn hold_signal() -> c_int {
    libc::SIGRTMIN() + 3
}

struct World {
    /// 1 while no thread is in a region or changes the list.
    turn: Semaphore,
    /// Raised by each thread that enters the handler.
    held: Semaphore,
    members: UnsafeCell<[pid_t; MEMBERS_MAX]>,
    /// One for each place in the list: it lets that thread go on.
    release: [Semaphore; MEMBERS_MAX],
}

// SAFETY: the list is used only between taking and passing on the turn. The rest is semaphores.
unsafe impl Sync for World {}

static WORLD: World = World {
    turn: Semaphore::unready(),
    held: Semaphore::unready(),
    members: UnsafeCell::new([NOBODY; MEMBERS_MAX]),
    release: [const { Semaphore::unready() }; MEMBERS_MAX],
};
const NOBODY: pid_t = 0;

/// Adds this thread to the list.
pub(crate) fn join() {
    static READY: Once = Once::new();
    READY.call_once(|| {
        WORLD.turn.prepare(1);
        WORLD.held.prepare(0);
        WORLD.release.iter().for_each(|release| release.prepare(0));
    });
    let me = this_thread();
    let joined = with_turn(|members| {
        let free = members.iter_mut().find(|member| **member == NOBODY);
        free.map(|free| *free = me)
    });
    assert!(joined.is_some(), "{MEMBERS_MAX} threads emulate RTM already");
}

/// Takes this thread off the list.
pub(crate) fn leave() {
    let me = this_thread();
    with_turn(|members| {
        for member in members.iter_mut().filter(|member| **member == me) {
            *member = NOBODY;
        }
    });
}

/// Takes the turn and holds all other members. Called in a signal handler.
pub(crate) fn stop() {
    WORLD.turn.wait();
    let me = this_thread();
    // SAFETY: we have the turn.
    let others =
        unsafe { &*WORLD.members.get() }.iter().filter(|&&member| member != NOBODY && member != me);
    let mut signalled = 0;
    for &member in others {
        // SAFETY: the system call sends a signal for which a handler is installed, to a thread of this process.
        // Members leave the list before they end.
        let sent = unsafe { syscall(SYS_tgkill, getpid(), member, hold_signal()) };
        signalled += c_int::from(sent == 0);
    }
    (0..signalled).for_each(|_| WORLD.held.wait());
}

/// Lets all members go on and passes the turn on. Called in a signal handler, after [`stop`].
pub(crate) fn resume() {
    let me = this_thread();
    // SAFETY: we have had the turn since `stop`.
    let members = unsafe { &*WORLD.members.get() };
    for (member, release) in members.iter().zip(&WORLD.release) {
        if *member != NOBODY && *member != me {
            release.post();
        }
    }
    WORLD.turn.post();
}

/// Holds this thread until the region of another has ended. The handler of the signal calls it.
pub(crate) fn hold() {
    let me = this_thread();
    // SAFETY: the thread that sent the signal has the turn and waits for our report, so no thread changes the
    // list now.
    let members = unsafe { &*WORLD.members.get() };
    let place = members.iter().position(|member| *member == me);
    WORLD.held.post();
    if let Some(place) = place {
        WORLD.release[place].wait();
    }
}

fn with_turn<R>(change: impl FnOnce(&mut [pid_t; MEMBERS_MAX]) -> R) -> R {
    WORLD.turn.wait();
    // SAFETY: we have the turn, and `change` keeps no reference.
    let result = change(unsafe { &mut *WORLD.members.get() });
    WORLD.turn.post();
    result
}

fn this_thread() -> pid_t {
    // SAFETY: a system call without arguments that cannot fail.
    unsafe { syscall(SYS_gettid) as pid_t }
}

/// A POSIX semaphore.
struct Semaphore(UnsafeCell<MaybeUninit<sem_t>>);

impl Semaphore {
    const fn unready() -> Semaphore {
        Semaphore(UnsafeCell::new(MaybeUninit::uninit()))
    }

    fn raw(&self) -> *mut sem_t {
        self.0.get().cast()
    }

    fn prepare(&self, value: u32) {
        // SAFETY: the semaphore lies in a static, and `join` calls this once for each, before any other use.
        let result = unsafe { sem_init(self.raw(), 0, value) };
        assert_eq!(result, 0, "an unnamed semaphore can be made");
    }

    fn post(&self) {
        // SAFETY: prepared by `join`, which every thread calls first, and never destroyed.
        unsafe { sem_post(self.raw()) };
    }

    /// Waits, also through signals: the waiting thread may be held while it waits.
    fn wait(&self) {
        // SAFETY: as in `post`. The only error is the interruption by a signal.
        while unsafe { sem_wait(self.raw()) } != 0 {}
    }
}
