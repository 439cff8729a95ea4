//! Accesses to working sets of several sizes, on this processor and on a simulated machine.
//!
//! ```console
//! $ cargo run --release -p weft-sim --example chase -- [PROFILE]
//! ```
//!
//! The same code runs twice: with the processor's atomics, in measured time, and with the words of the simulated
//! machine, in virtual time. Other programs only make the processor slower, so the measured time is the shortest of
//! many rounds.
//!
//! | kind | what follows what |
//! | --- | --- |
//! | dependent | each load gets its address from the load before it |
//! | independent | loads of lines in a computed order |
//! | stores | stores to lines in a computed order |
//! | exchanges | instructions with a `lock` prefix, one after the other, in a computed order |
//! | fences | a store and a full fence, again and again, in a computed order |

#![allow(clippy::disallowed_types, reason = "one side of the comparison is the processor")]

use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use weft_sim::{Options, PROFILES, Profile, Program};

/// Working sets for the first, second and last level of most profiles, and for memory.
const SIZES: [usize; 4] = [16 << 10, 512 << 10, 4 << 20, 256 << 20];
/// Rounds of each measurement.
const ROUNDS: usize = 100;
/// Accesses in a round.
const ACCESSES: usize = 1 << 14;

/// What the accesses do.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Dependent,
    Independent,
    Stores,
    Exchanges,
    Fences,
}

impl Kind {
    const ALL: [Kind; 5] =
        [Kind::Dependent, Kind::Independent, Kind::Stores, Kind::Exchanges, Kind::Fences];
}

/// A cache line with a pointer to another one.
trait Line: Sized {
    fn new() -> Self;
    fn link(&mut self, next: *mut Self);
    fn next(&self) -> *mut Self;
    fn load(&self) -> u64;
    fn store(&self);
    fn exchange(&self) -> u64;
    fn fence();
}

/// Defines a type of lines whose words and fences are those of a module.
macro_rules! line {
    ($name:ident, $($module:tt)+) => {
        #[repr(align(64))]
        struct $name {
            next: $($module)+::AtomicPtr<$name>,
            value: $($module)+::AtomicU64,
        }

        impl Line for $name {
            fn new() -> Self {
                use $($module)+::{AtomicPtr, AtomicU64};
                $name { next: AtomicPtr::new(ptr::null_mut()), value: AtomicU64::new(0) }
            }

            fn link(&mut self, next: *mut Self) {
                self.next = $($module)+::AtomicPtr::new(next);
            }

            #[inline(always)]
            fn next(&self) -> *mut Self {
                self.next.load($($module)+::Ordering::Relaxed)
            }

            #[inline(always)]
            fn load(&self) -> u64 {
                self.value.load($($module)+::Ordering::Relaxed)
            }

            #[inline(always)]
            fn store(&self) {
                self.value.store(1, $($module)+::Ordering::Relaxed);
            }

            #[inline(always)]
            fn exchange(&self) -> u64 {
                self.value.fetch_add(1, $($module)+::Ordering::Relaxed)
            }

            #[inline(always)]
            fn fence() {
                $($module)+::fence($($module)+::Ordering::SeqCst);
            }
        }
    };
}

line!(ProcessorLine, std::sync::atomic);
line!(SimulatedLine, weft_sim::sync);

/// The lines of a working set, and where the next round begins.
struct WorkingSet<L> {
    lines: Vec<L>,
    pointer: *const L,
    position: usize,
}

impl<L: Line> WorkingSet<L> {
    /// Makes lines that fill `bytes` bytes, linked to one cycle in a random order by Sattolo's algorithm.
    fn new(bytes: usize) -> WorkingSet<L> {
        let mut lines: Vec<L> = Vec::with_capacity(bytes / size_of::<L>());
        // The engine's rows have huge pages as well, and the model has no address translation.
        #[cfg(target_os = "linux")]
        // SAFETY: this is advice about whole pages of a block that the vector owns.
        unsafe {
            let start = lines.as_mut_ptr().addr().next_multiple_of(4096);
            let end = (lines.as_mut_ptr().addr() + bytes) / 4096 * 4096;
            let block = ptr::with_exposed_provenance_mut(start);
            libc::madvise(block, end - start, libc::MADV_HUGEPAGE);
        }
        lines.resize_with(bytes / size_of::<L>(), L::new);
        let mut random = fastrand::Rng::with_seed(1);
        let mut order: Vec<usize> = (0..lines.len()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, random.usize(0..last));
        }
        let start = lines.as_mut_ptr();
        for (from, to) in order.into_iter().enumerate() {
            lines[from].link(start.wrapping_add(to));
        }
        WorkingSet { lines, pointer: start, position: 0 }
    }

    fn access(&mut self, kind: Kind, accesses: usize) {
        if let Kind::Dependent = kind {
            for _ in 0..accesses {
                // SAFETY: all pointers lead to lines of the working set.
                self.pointer = unsafe { (*self.pointer).next() };
            }
            black_box(self.pointer);
            return;
        }
        for _ in 0..accesses {
            // A sequence that visits every line, since their number is a power of two.
            self.position = (self.position * 0x9E37_79B5 + 1) & (self.lines.len() - 1);
            let line = &self.lines[self.position];
            match kind {
                Kind::Dependent => unreachable!("handled above"),
                Kind::Independent => _ = black_box(line.load()),
                Kind::Stores => line.store(),
                Kind::Exchanges => _ = black_box(line.exchange()),
                Kind::Fences => {
                    line.store();
                    L::fence();
                }
            }
        }
    }
}

/// Returns the nanoseconds of an access on this processor.
fn measured(set: &mut WorkingSet<ProcessorLine>, kind: Kind) -> f64 {
    set.access(kind, set.lines.len());
    let round = |_| {
        let begin = Instant::now();
        set.access(kind, ACCESSES);
        begin.elapsed().as_nanos() as f64 / ACCESSES as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// Returns the nanoseconds of an access on the simulated machine.
fn simulated(profile: &'static Profile, set: &mut WorkingSet<SimulatedLine>, kind: Kind) -> f64 {
    let mut cycles = 0;
    let now = || weft_sim::cycles().expect("this is a virtual core");
    let program: Program<'_> = Box::new(|| {
        set.access(kind, set.lines.len());
        let begin = now();
        set.access(kind, ACCESSES);
        cycles = now() - begin;
    });
    let options = Options { cycles_per_access: 0, ..Options::new(profile, 1) };
    weft_sim::run(&options, vec![program]).expect("one program ends");
    profile.seconds(cycles) * 1e9 / ACCESSES as f64
}

fn main() {
    let name = std::env::args().nth(1).unwrap_or_else(|| "epyc-2c".to_owned());
    let Some(profile) = Profile::named(&name) else {
        let names = PROFILES.each_ref().map(|profile| profile.name).join(", ");
        eprintln!("error: no machine is called '{name}'; the machines are {names}");
        std::process::exit(2);
    };
    println!("| kind | working set | measured, ns | simulated, ns |\n| --- | --- | --- | --- |");
    for bytes in SIZES {
        let (mut real, mut model) = (WorkingSet::new(bytes), WorkingSet::new(bytes));
        for kind in Kind::ALL {
            let times = (measured(&mut real, kind), simulated(profile, &mut model, kind));
            println!("| {kind:?} | {} KiB | {:.2} | {:.2} |", bytes >> 10, times.0, times.1);
        }
    }
}
