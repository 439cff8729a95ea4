//! Regions: choosing the backend, running a body in hardware, retrying by cause, and counting.
//!
//! A database opens one [`Htm`], which fixes the [`Backend`] for its lifetime. Each worker thread makes its own
//! [`Regions`] from it and calls [`Regions::run`].
//!
//! **Retrying** follows DBX §6.1. Each cause of an abort has a threshold, and a run gives up at the abort that
//! reaches one of them. A conflict is probably gone at the next try, so its threshold is high. A region that is
//! too large will be too large again. A system event that comes twice is probably not a chance interrupt, but a
//! fault or a forbidden instruction. A region that finds a word locked counts against the threshold of
//! conflicts, because it conflicts with a software twin. It first waits, outside, until the lock is free. That
//! wait is bounded too. So a run always ends, whatever the holder of the lock does. At worst the caller's twin
//! queues for the lock, as it would anyway.
//!
//! **Counting** must not cost what it measures. Each worker adds to words of its own, by a plain load and a
//! plain store, outside the region. The words are shared by reference: any thread may read them through a
//! [`StatisticsReader`]. The software backend counts nothing.
mod elided;
#[cfg(any(test, loom, feature = "locks"))]
mod elision;
mod open;

use std::cell::Cell;
use std::fmt;
use std::iter::Sum;
use std::marker::PhantomData;
use std::ops::{Add, AddAssign};
use std::str::FromStr;
use std::sync::Arc;

pub use elided::ElidedLock;
pub use open::OpenOutcome;

use open::Section;

use crate::code_pages;
use crate::rtm::Rtm;
use crate::status::{Cause, LOCKED};
use crate::word::{Ordering, Word, spin_loop, yield_now};

/// The environment variable that [`Choice::from_environment`] reads.
pub const ENVIRONMENT_VARIABLE: &str = "WEFT_HTM";

/// The backend that the user asks for, written `auto`, `rtm` or `software`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// RTM if it works here, otherwise software.
    #[default]
    Auto,
    /// RTM, or an error that says why not.
    Rtm,
    /// Software twins only.
    Software,
}

impl Choice {
    /// Reads the choice from the environment variable `WEFT_HTM`. Returns `None` if it is not set.
    ///
    /// # Errors
    ///
    /// The variable is set to something other than `auto`, `rtm` or `software`.
    pub fn from_environment() -> Result<Option<Choice>, InvalidChoice> {
        match std::env::var_os(ENVIRONMENT_VARIABLE) {
            None => Ok(None),
            Some(value) => value.to_string_lossy().parse().map(Some),
        }
    }
}

impl FromStr for Choice {
    type Err = InvalidChoice;

    fn from_str(text: &str) -> Result<Choice, InvalidChoice> {
        match text {
            "auto" => Ok(Choice::Auto),
            "rtm" => Ok(Choice::Rtm),
            "software" => Ok(Choice::Software),
            _ => Err(InvalidChoice(text.to_owned())),
        }
    }
}

/// The error for a text that is not a [`Choice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidChoice(String);

impl fmt::Display for InvalidChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:?} names no HTM backend: write auto, rtm or software ({ENVIRONMENT_VARIABLE})",
            self.0
        )
    }
}

impl std::error::Error for InvalidChoice {}

/// What runs a region: the processor, or the caller's software twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Intel's Restricted Transactional Memory.
    Rtm,
    /// No hardware: [`Regions::run`] always returns `None`.
    Software,
    /// The regions of the simulated machine, in its runs.
    #[cfg(weft_sim)]
    Simulated,
}

impl fmt::Display for Backend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Backend::Rtm => "rtm",
            Backend::Software => "software",
            #[cfg(weft_sim)]
            Backend::Simulated => "simulated",
        })
    }
}

/// Why RTM cannot be used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unavailable {
    /// This build has no RTM path: the architecture is not x86-64, or the build is for a model checker.
    NotBuilt,
    /// The processor, or the virtual machine, does not report RTM.
    NotReported,
    /// The processor reports that every region aborts. Microcode updates make some processors do that.
    AlwaysAborts,
    /// RTM is reported, but no trial region committed.
    NeverCommits {
        /// The status that the last abort left in EAX.
        status: u32,
    },
    /// RTM is reported, but a trial region did not do what the manual says.
    Misbehaves,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("RTM is not available: ")?;
        match self {
            Unavailable::NotBuilt => out.write_str("this build has no RTM path (it needs x86-64)"),
            Unavailable::NotReported => {
                out.write_str("the processor does not report it (CPUID leaf 7, EBX bit 11)")
            }
            Unavailable::AlwaysAborts => out.write_str(
                "the processor reports that every region aborts (CPUID leaf 7, EDX bit 11)",
            ),
            Unavailable::NeverCommits { status } => write!(
                out,
                "the processor reports it, but no trial region committed (last status {status:#x})"
            ),
            Unavailable::Misbehaves => {
                out.write_str("a trial region was not carried out, or not undone, as it must be")
            }
        }
    }
}

impl std::error::Error for Unavailable {}

/// How many aborts of each cause one run survives. A run gives up at the abort that reaches the threshold of
/// its cause, so 0 and 1 both mean a single try.
///
/// The default is DBX's (§6.1), except for conflicts: DBX survives a hundred of them. Decision 19
/// (`docs/decisions/0019-conflicts-survived.md`) says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Conflicts with other threads, and words found locked.
    pub conflict: u32,
    /// Regions too large for the caches.
    pub capacity: u32,
    /// Interrupts, faults and forbidden instructions.
    pub system_event: u32,
}

impl RetryPolicy {
    /// The default.
    pub const DEFAULT: RetryPolicy = RetryPolicy { conflict: 8, capacity: 10, system_event: 2 };
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy::DEFAULT
    }
}

/// The backend that a database chose when it was opened, and its retry policy.
#[derive(Clone, Debug)]
pub struct Htm {
    rtm: Option<Rtm>,
    unavailable: Option<Unavailable>,
    policy: RetryPolicy,
}

impl Htm {
    /// Chooses the backend. Detecting RTM takes some microseconds where it works. Then all code of the program
    /// is brought into memory, and may have to be read from its file.
    ///
    /// # Errors
    ///
    /// Only for [`Choice::Rtm`]: RTM does not work here. The error says why.
    pub fn open(choice: Choice, policy: RetryPolicy) -> Result<Htm, Unavailable> {
        let (rtm, unavailable) = match choice {
            Choice::Software => (None, None),
            Choice::Rtm => (Some(Rtm::detect()?), None),
            Choice::Auto => match Rtm::detect() {
                Ok(rtm) => (Some(rtm), None),
                Err(why) => (None, Some(why)),
            },
        };
        if rtm.is_some() {
            code_pages::map_all();
        }
        Ok(Htm { rtm, unavailable, policy })
    }

    /// Returns the software backend, which works everywhere.
    pub fn software() -> Htm {
        Htm { rtm: None, unavailable: None, policy: RetryPolicy::default() }
    }

    /// Returns the RTM backend without detection, on a processor that may not have RTM. For tests that emulate
    /// it.
    ///
    /// # Safety
    ///
    /// While a thread runs a region of this `Htm`, its RTM instructions are emulated, or its processor executes
    /// them.
    #[doc(hidden)]
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, weft_sim))))]
    pub unsafe fn assume_rtm(policy: RetryPolicy) -> Htm {
        Htm {
            // SAFETY: the caller vouches for the instructions on every thread that runs regions.
            rtm: Some(unsafe { Rtm::assume() }),
            unavailable: None,
            policy,
        }
    }

    /// Returns the backend in use.
    pub fn backend(&self) -> Backend {
        match self.rtm {
            #[cfg(not(weft_sim))]
            Some(_) => Backend::Rtm,
            #[cfg(weft_sim)]
            Some(_) => Backend::Simulated,
            None => Backend::Software,
        }
    }

    /// Returns why [`Choice::Auto`] took software. `None` if it took RTM, or if the choice was not `Auto`.
    pub fn unavailable(&self) -> Option<Unavailable> {
        self.unavailable
    }

    /// Returns the retry policy.
    pub fn policy(&self) -> RetryPolicy {
        self.policy
    }
}

/// Runs and counts the regions of one worker thread.
#[derive(Debug)]
pub struct Regions {
    rtm: Option<Rtm>,
    policy: RetryPolicy,
    counters: Arc<Counters>,
    /// Whether the worker is inside a section that it opened: between [`ElidedLock::enter`] and
    /// [`ElidedLock::leave`], or between [`Regions::open`] and [`Regions::close`]. The counters have one
    /// writer, so no two threads may share a `Regions`. The cell forbids that as well.
    section: Cell<Section>,
    /// The aborts so far of the region that is being opened. They are kept here because a thread that unwinds
    /// loses its locals.
    #[cfg(weft_sim)]
    suffered: Cell<Aborts>,
}

impl Regions {
    /// Makes the regions of one worker, with the backend of `htm`.
    pub fn new(htm: &Htm) -> Regions {
        Regions {
            rtm: htm.rtm,
            policy: htm.policy,
            counters: Arc::default(),
            section: Cell::new(Section::Outside),
            #[cfg(weft_sim)]
            suffered: Cell::default(),
        }
    }

    /// Returns whether there is a hardware path to try, so that a caller can skip preparing for it.
    #[inline(always)]
    pub fn is_hardware(&self) -> bool {
        self.hardware().is_some()
    }

    /// Returns the database's retry policy.
    pub fn policy(&self) -> RetryPolicy {
        self.policy
    }

    /// Returns whether this thread is inside a region now. For assertions in code that must not run there.
    #[inline(always)]
    pub fn is_inside(&self) -> bool {
        self.hardware().is_some_and(Rtm::is_inside)
    }

    /// Runs `body` as one hardware region, again and again as the policy allows, until it commits. Returns
    /// `None` if there is no hardware or the policy gave up. The caller then runs its software twin. A body
    /// that did not commit leaves no effect.
    ///
    /// After an abort by [`Region::abort_locked`], this calls `still_locked`, outside the region, until it
    /// returns `false`. Then it tries the region again. If the wait takes too long (some hundred yielded time
    /// slices), the policy gives up.
    ///
    /// The [crate's documentation](crate) lists what `body` must not do. It may run further regions. They
    /// become part of the outermost one. Only the outermost region is retried, and only its `still_locked` is
    /// called.
    ///
    /// While the worker has a region [open](Regions::open), or holds an [`ElidedLock`], `body` runs as part of
    /// that region and is not counted separately. If the worker holds the lock itself, rather than eliding it,
    /// `body` does not run: the worker has exclusive access, so it runs the software twin.
    #[must_use = "`None` asks for the software twin"]
    #[inline(always)]
    pub fn run<R>(
        &self,
        body: impl Fn(&Region) -> R,
        still_locked: impl Fn() -> bool,
    ) -> Option<R> {
        let rtm = self.hardware()?;
        match self.section.get() {
            Section::Outside => {}
            Section::InRegion => return Some(body(&Region { rtm, not_send: PhantomData })),
            Section::UnderLock => return None,
        }
        let mut aborts = Aborts::default();
        loop {
            match rtm.attempt(|| body(&Region { rtm, not_send: PhantomData })) {
                Ok(result) => {
                    self.counters.add(Counter::Committed);
                    return Some(result);
                }
                Err(status) => {
                    if !self.may_retry(status, self.policy, &mut aborts, &still_locked) {
                        return None;
                    }
                }
            }
        }
    }

    /// Returns the hardware, if there is any that can be used here.
    #[inline(always)]
    fn hardware(&self) -> Option<Rtm> {
        self.rtm.filter(|rtm| rtm.is_here())
    }

    /// Runs `attempt`, which may open and close a region, or enter and leave an [`ElidedLock`]. On a processor
    /// this is just a call: an abort jumps back to where the region was opened. On the simulated machine an
    /// abort unwinds to here, and `attempt` runs again from its beginning. So `attempt` must do nothing before
    /// its region that must not be repeated.
    #[inline(always)]
    pub fn restarting<R>(&self, mut attempt: impl FnMut() -> R) -> R {
        loop {
            if let Some(result) = self.unless_undone(&mut attempt) {
                return result;
            }
        }
    }

    /// Runs `body`, which may open or close a region. Returns `None`, on the simulated machine only, if the
    /// region was rolled back and the thread has unwound to here. The next region that is opened continues that
    /// one's retries.
    #[inline(always)]
    pub fn unless_undone<R>(&self, body: impl FnOnce() -> R) -> Option<R> {
        #[cfg(weft_sim)]
        {
            let result = weft_sim::region::catch_undone(body);
            if result.is_none() {
                self.section.set(Section::Outside);
            }
            result
        }
        #[cfg(not(weft_sim))]
        Some(body())
    }

    /// Runs `body` such that no other thread runs during it on the simulated machine. It is for accesses of
    /// regions to shared memory that is not a word: a processor would see their collisions, but the simulated
    /// machine does not.
    #[inline(always)]
    pub fn uninterrupted<R>(&self, body: impl FnOnce() -> R) -> R {
        #[cfg(weft_sim)]
        return weft_sim::uninterrupted(body);
        #[cfg(not(weft_sim))]
        body()
    }

    /// Returns whether this code belongs to a region that was rolled back, and is unwinding out of it. What
    /// such code does to words has no effect, and memory that it believes unused may be in use, so it must not
    /// free it. This happens only on the simulated machine: on a processor, no code of a rolled-back region
    /// goes on running.
    #[inline(always)]
    pub fn is_undone(&self) -> bool {
        #[cfg(weft_sim)]
        return weft_sim::region::is_undone();
        #[cfg(not(weft_sim))]
        false
    }

    /// Counts an abort, waits if a word was locked, and returns whether the policy allows another try.
    #[cold]
    #[inline(never)]
    fn may_retry(
        &self,
        status: u32,
        policy: RetryPolicy,
        aborts: &mut Aborts,
        still_locked: &dyn Fn() -> bool,
    ) -> bool {
        let (counter, suffered, threshold) = match Cause::of(status) {
            Cause::Locked => (Counter::Locked, &mut aborts.conflict, policy.conflict),
            Cause::Conflict => (Counter::Conflict, &mut aborts.conflict, policy.conflict),
            Cause::Capacity => (Counter::Capacity, &mut aborts.capacity, policy.capacity),
            Cause::SystemEvent => {
                (Counter::SystemEvent, &mut aborts.system_event, policy.system_event)
            }
        };
        self.counters.add(counter);
        *suffered += 1;
        let retry = *suffered < threshold
            && (!matches!(counter, Counter::Locked) || wait_until_free(still_locked));
        if !retry {
            self.count_fallback();
        }
        retry
    }

    fn count_fallback(&self) {
        self.counters.add(Counter::Fallback);
        if self.counters.get(Counter::Fallback).is_multiple_of(FALLBACKS_BEFORE_MAPPING) {
            code_pages::map_all();
        }
    }

    /// Returns what this worker has counted so far.
    pub fn statistics(&self) -> Statistics {
        self.counters.snapshot()
    }

    /// Returns a handle with which other threads can read this worker's statistics, also after the worker's
    /// end.
    pub fn reader(&self) -> StatisticsReader {
        StatisticsReader(Arc::clone(&self.counters))
    }
}

/// The aborts that one run has suffered, by the threshold that they count against.
#[derive(Clone, Copy, Debug, Default)]
struct Aborts {
    conflict: u32,
    capacity: u32,
    system_event: u32,
}

/// How many fallbacks of one worker pass before it brings the program's code into memory again. The kernel may
/// have taken a page away, and a region that needs the page would fall back for ever. If no page is missing,
/// this takes ten to a hundred nanoseconds per page. Divided by this number, that is little beside the cost of
/// a fallback, even for a large program.
const FALLBACKS_BEFORE_MAPPING: u64 = 8192;

/// Rounds of a wait that spin, each twice as long as the one before: 127 pauses in all, about the time for
/// which a twin holds a lock if it is not interrupted.
const WAIT_ROUNDS_SPINNING: u32 = 7;
/// Rounds that follow, each of which yields the processor, so that a preempted holder can run.
const WAIT_ROUNDS_YIELDING: u32 = 256;

/// Waits until `still_locked` returns `false`. Returns `false` if it did not within the rounds above.
fn wait_until_free(still_locked: &dyn Fn() -> bool) -> bool {
    for round in 0..WAIT_ROUNDS_SPINNING + WAIT_ROUNDS_YIELDING {
        if !still_locked() {
            return true;
        }
        if round < WAIT_ROUNDS_SPINNING {
            (0..1 << round).for_each(|_| spin_loop());
        } else {
            yield_now();
        }
    }
    false
}

/// Proof of being inside a region. Only code of this module makes one, inside, and lends it to the body.
#[derive(Debug)]
pub struct Region {
    rtm: Rtm,
    /// Another thread would not be inside the region.
    not_send: PhantomData<*const ()>,
}

impl Region {
    /// Rolls the region back, because a software twin holds the lock of a word that the region needs.
    /// [`Regions::run`] then waits for the lock.
    #[inline(always)]
    pub fn abort_locked(&self) -> ! {
        // SAFETY: the body of `Regions::run` has this reference only while the region runs, and only on its own
        // thread.
        unsafe { self.rtm.abort::<LOCKED>() }
    }
}

/// How often the regions of one worker, or of several workers together, ended in each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Regions started and ended, counting each retry: the sum of the commits and the aborts.
    pub started: u64,
    /// Regions that committed.
    pub committed: u64,
    /// Aborts because another thread touched the same lines.
    pub aborted_conflict: u64,
    /// Aborts because the region was too large for the caches.
    pub aborted_capacity: u64,
    /// Aborts by interrupts, faults and forbidden instructions.
    pub aborted_system_event: u64,
    /// Aborts by [`Region::abort_locked`].
    pub aborted_explicit: u64,
    /// Runs that the policy gave up. The software twin did their work.
    pub fallbacks: u64,
}

impl AddAssign for Statistics {
    fn add_assign(&mut self, other: Statistics) {
        self.started += other.started;
        self.committed += other.committed;
        self.aborted_conflict += other.aborted_conflict;
        self.aborted_capacity += other.aborted_capacity;
        self.aborted_system_event += other.aborted_system_event;
        self.aborted_explicit += other.aborted_explicit;
        self.fallbacks += other.fallbacks;
    }
}

impl Add for Statistics {
    type Output = Statistics;

    fn add(mut self, other: Statistics) -> Statistics {
        self += other;
        self
    }
}

impl Sum for Statistics {
    fn sum<I: Iterator<Item = Statistics>>(each: I) -> Statistics {
        each.fold(Statistics::default(), Add::add)
    }
}

/// Reads the statistics of one worker from any thread.
#[derive(Clone, Debug)]
pub struct StatisticsReader(Arc<Counters>);

impl StatisticsReader {
    /// Returns what the worker has counted so far. Each number only grows from one call to the next. The
    /// numbers are read one after the other, so a call may see one of them from before and another from after a
    /// region that ends at the same time.
    pub fn statistics(&self) -> Statistics {
        self.0.snapshot()
    }
}

/// The indexes of [`Counters`].
#[derive(Clone, Copy)]
enum Counter {
    Committed,
    Conflict,
    Capacity,
    SystemEvent,
    Locked,
    Fallback,
}

/// What one worker counts. Aligned so that two workers share neither a cache line nor a pair of lines that the
/// processor fetches together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counters([Word; 6]);

impl Counters {
    /// Adds one. Only the worker that owns the counters calls this.
    #[inline(always)]
    fn add(&self, counter: Counter) {
        let word = &self.0[counter as usize];
        // Relaxed, and not a read-modify-write: there is one writer, so nothing can come between the load and
        // the store. The partner is `snapshot`. It accepts any value that was there, and concludes nothing
        // about other memory from it.
        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn get(&self, counter: Counter) -> u64 {
        // Relaxed: see `add`.
        self.0[counter as usize].load(Ordering::Relaxed)
    }

    fn snapshot(&self) -> Statistics {
        let count = |counter: Counter| self.get(counter);
        let mut statistics = Statistics {
            started: 0,
            committed: count(Counter::Committed),
            aborted_conflict: count(Counter::Conflict),
            aborted_capacity: count(Counter::Capacity),
            aborted_system_event: count(Counter::SystemEvent),
            aborted_explicit: count(Counter::Locked),
            fallbacks: count(Counter::Fallback),
        };
        statistics.started = statistics.committed
            + statistics.aborted_conflict
            + statistics.aborted_capacity
            + statistics.aborted_system_event
            + statistics.aborted_explicit;
        statistics
    }
}

#[cfg(all(test, not(any(loom, shuttle, weft_sim))))]
mod tests {
    use super::*;

    /// Protects the words that users write, and the error message for any other.
    #[test]
    fn choices_are_three_words() {
        assert_eq!("auto".parse(), Ok(Choice::Auto));
        assert_eq!("rtm".parse(), Ok(Choice::Rtm));
        assert_eq!("software".parse(), Ok(Choice::Software));
        for wrong in ["", "RTM", " auto", "auto ", "hardware", "1"] {
            let error = wrong.parse::<Choice>().unwrap_err();
            assert_eq!(error, InvalidChoice(wrong.to_owned()));
            let message = error.to_string();
            assert!(message.contains(&format!("{wrong:?}")), "{message}");
            assert!(message.contains("auto, rtm or software"), "{message}");
        }
    }

    /// Protects the agreement of the three choices with each other and with the processor's flags in the
    /// kernel's list. Hardware is used only where it exists, and never claimed otherwise.
    #[test]
    fn the_backend_is_what_the_processor_has() {
        let policy = RetryPolicy::default();
        let software = Htm::open(Choice::Software, policy).unwrap();
        assert_eq!(software.backend(), Backend::Software);
        assert_eq!(software.unavailable(), None);
        let auto = Htm::open(Choice::Auto, policy).unwrap();
        match Htm::open(Choice::Rtm, policy) {
            Ok(htm) => {
                assert_eq!(htm.backend(), Backend::Rtm);
                assert_eq!(auto.backend(), Backend::Rtm);
                assert_eq!(auto.unavailable(), None);
            }
            Err(why) => {
                assert_eq!(auto.backend(), Backend::Software);
                assert_eq!(auto.unavailable(), Some(why));
                assert!(why.to_string().starts_with("RTM is not available: "));
            }
        }
        if let Ok(processors) = std::fs::read_to_string("/proc/cpuinfo") {
            let listed = processors.split_whitespace().any(|flag| flag == "rtm");
            let checked_later = matches!(
                auto.unavailable(),
                Some(Unavailable::NeverCommits { .. } | Unavailable::Misbehaves)
            );
            let reported = auto.backend() == Backend::Rtm || checked_later;
            assert!(listed || !reported, "RTM found where the kernel lists none");
        }
    }

    /// Protects the messages: each names the check that failed.
    #[test]
    fn each_reason_names_its_check() {
        for (why, words) in [
            (Unavailable::NotBuilt, "x86-64"),
            (Unavailable::NotReported, "EBX bit 11"),
            (Unavailable::AlwaysAborts, "EDX bit 11"),
            (Unavailable::NeverCommits { status: 0x2a }, "0x2a"),
            (Unavailable::Misbehaves, "undone"),
        ] {
            let message = why.to_string();
            assert!(message.contains(words), "{message}");
        }
    }

    /// Protects the default thresholds: the paper's, except for conflicts, which is decision 19's.
    #[test]
    fn default_policy_is_that_of_the_decision() {
        let policy = Htm::software().policy();
        assert_eq!(policy.conflict, 8);
        assert_eq!(policy.capacity, 10);
        assert_eq!(policy.system_event, 2);
    }

    /// Protects the software backend: it never runs the body, and counts nothing.
    #[test]
    fn software_never_runs_a_body() {
        let regions = Regions::new(&Htm::software());
        assert!(!regions.is_hardware());
        assert!(!regions.is_inside());
        let answer = regions.run(|_| panic!("ran"), || panic!("asked"));
        assert_eq!(answer, None::<()>);
        assert_eq!(regions.statistics(), Statistics::default());
    }

    /// Protects the sums over workers: every field is added to itself.
    #[test]
    fn statistics_add_field_by_field() {
        let one = Statistics {
            started: 1,
            committed: 2,
            aborted_conflict: 3,
            aborted_capacity: 4,
            aborted_system_event: 5,
            aborted_explicit: 6,
            fallbacks: 7,
        };
        let three = Statistics {
            started: 3,
            committed: 6,
            aborted_conflict: 9,
            aborted_capacity: 12,
            aborted_system_event: 15,
            aborted_explicit: 18,
            fallbacks: 21,
        };
        assert_eq!([one; 3].into_iter().sum::<Statistics>(), three);
        assert_eq!(one + one + one, three);
    }

    /// Protects what may cross threads: a database's choice and a reader may be shared, and a worker's regions
    /// may be moved. (The cell in `section` ensures that they may not be shared.)
    #[test]
    fn handles_cross_threads() {
        fn shared<T: Send + Sync>() {}
        fn moved<T: Send>() {}
        shared::<Htm>();
        shared::<StatisticsReader>();
        moved::<Regions>();
    }

    /// Protects the bound of a wait: it asks that many times and no more, and stops at the first "free".
    #[test]
    fn a_wait_is_bounded() {
        let asked = Cell::new(0);
        let locked_for = |times: u32| {
            asked.set(0);
            wait_until_free(&|| {
                asked.set(asked.get() + 1);
                asked.get() <= times
            })
        };
        assert!(locked_for(0));
        assert_eq!(asked.get(), 1);
        assert!(locked_for(20));
        assert_eq!(asked.get(), 21);
        assert!(!locked_for(u32::MAX));
        assert_eq!(asked.get(), WAIT_ROUNDS_SPINNING + WAIT_ROUNDS_YIELDING);
    }
}
