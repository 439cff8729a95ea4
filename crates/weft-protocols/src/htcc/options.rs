//! The options of [`Htcc`](super::Htcc).

use std::time::Duration;

/// How often a thread of its own looks which records are contended. (Virtual time on the simulated machine is short.)
const PERIOD: Duration = Duration::from_millis(1);

/// Which records are hot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HotRecords {
    /// Records with so many conflicts that second attempts mostly fail as well.
    #[default]
    Automatic,
    /// All records: two-phase locking with validation.
    All,
    /// No record: the protocol is DBX with repair.
    None,
    /// All records of the tables with these names, and no others.
    Tables(Vec<String>),
}

/// Options of HTCC.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HtccOptions {
    /// Which records are hot.
    pub hot: HotRecords,
    /// Whether transactions are repaired. If not, they are restarted, and nothing is cached: the paper's
    /// `HTCC(-SC)`.
    pub repairs: bool,
    /// Whether [procedures](weft_procedures::Execute::execute) are repaired by their dependencies, as in the
    /// paper's `HTCC`: only those operations run again that a stale read reaches. Otherwise all operations run
    /// again on the workset cache, like those of closures: the paper's `HTCC(-S)`. On two cores the latter is
    /// faster by far: running an operation on cached data costs less than tracking what it has done. With many
    /// cores dependencies may be worth it (simulated, 40 cores and four warehouses of TPC-C: faster by a
    /// sixth).
    pub dependencies: bool,
    /// Whether reads are validated, as they have to be. If not, transactions are **not serializable**: the
    /// paper's `HTCC(NV)`, by which it measures the cost of validation and repair. (Writes are validated
    /// nevertheless: the worker that reclaims the replaced version relies on that.) For measurements only.
    pub validates: bool,
    /// How many conflicts in an epoch of 40 ms make a record hot, beyond the usual number. The count is of
    /// transactions whose second attempt meets a conflict again; usual is that four of five do. (Below that, a
    /// repair is faster than waiting for locks.)
    pub hot_at: u32,
    /// Whether the locks of hot records bind, as in the paper (§3.2): a transaction that does not get one in time aborts.
    /// Otherwise it goes on without the lock, and its validation decides.
    pub binding_locks: bool,
    /// Whether a record becomes hot or cold only while no transaction accesses it, as in the paper (§3.1). Then a
    /// transaction that holds a binding lock does not validate what it has read there. (The records of
    /// [`HotRecords::All`] and [`HotRecords::Tables`] never change, so they need no validation without this option.)
    pub two_phase_flip: bool,
    /// Whether a thread of its own makes records hot and cold, as in the paper (§3.1). The application runs it by
    /// [`CoordinatedDatabase::coordinate`](crate::CoordinatedDatabase::coordinate). Every conflict counts then, and
    /// `hot_at` is a number for each [period](HtccOptions::period). While no such thread runs, no record becomes hot.
    pub background: bool,
    /// How often the thread of its own looks which records are contended: once in 60 seconds in the paper.
    pub period: Duration,
    /// The flaw that is planted.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub flaw: Option<HtccFlaw>,
}

/// Flaws that are made on purpose in the mechanisms of the paper, for tests that have to find them.
#[cfg(feature = "canary")]
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HtccFlaw {
    /// A record that is turning is hot without a grace period.
    TurnedAtOnce,
    /// A transaction that has read one cold record besides hot ones does not validate it.
    LoneReadPassed,
    /// A transaction that writes a hot record takes only a share of its lock.
    WritersShare,
    /// A repair gives up the locks of operations that do not run again.
    KeptUnlocked,
}

impl Default for HtccOptions {
    fn default() -> Self {
        // In tests, rare events are to happen often.
        let is_test = weft::store::RECLAIMS_EARLY;
        let (hot_at, dependencies) = if is_test { (1, true) } else { (32, false) };
        HtccOptions {
            hot: HotRecords::Automatic,
            repairs: true,
            dependencies,
            validates: true,
            hot_at,
            binding_locks: false,
            two_phase_flip: false,
            background: false,
            period: PERIOD,
            #[cfg(feature = "canary")]
            flaw: None,
        }
    }
}

impl HtccOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`HtccOptions::hot`].
    pub fn hot(mut self, hot: HotRecords) -> Self {
        self.hot = hot;
        self
    }

    /// Sets [`HtccOptions::repairs`].
    pub fn repairs(mut self, repairs: bool) -> Self {
        self.repairs = repairs;
        self
    }

    /// Sets [`HtccOptions::dependencies`].
    pub fn dependencies(mut self, dependencies: bool) -> Self {
        self.dependencies = dependencies;
        self
    }

    /// Sets [`HtccOptions::validates`].
    pub fn validates(mut self, validates: bool) -> Self {
        self.validates = validates;
        self
    }

    /// Sets [`HtccOptions::hot_at`].
    pub fn hot_at(mut self, hot_at: u32) -> Self {
        self.hot_at = hot_at;
        self
    }

    /// Sets [`HtccOptions::binding_locks`].
    pub fn binding_locks(mut self, binding_locks: bool) -> Self {
        self.binding_locks = binding_locks;
        self
    }

    /// Sets [`HtccOptions::two_phase_flip`].
    pub fn two_phase_flip(mut self, two_phase_flip: bool) -> Self {
        self.two_phase_flip = two_phase_flip;
        self
    }

    /// Sets [`HtccOptions::background`].
    pub fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// Sets [`HtccOptions::period`].
    pub fn period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// Plants a flaw.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub fn flawed(mut self, flaw: HtccFlaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// Returns whether this flaw is planted.
    #[cfg(feature = "canary")]
    pub(super) fn has_flaw(&self, flaw: HtccFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Whether the set of hot records never changes.
    pub(super) fn is_hot_set_fixed(&self) -> bool {
        matches!(self.hot, HotRecords::All | HotRecords::Tables(_))
    }

    /// Whether the lock of a hot record takes the place of validation.
    pub(super) fn locks_replace_validation(&self) -> bool {
        self.binding_locks && (self.two_phase_flip || self.is_hot_set_fixed())
    }
}
