//! The options of `adaptive`.

/// Options of the protocol `adaptive`: what it may do about contention. By default it may do everything.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdaptiveOptions {
    /// Whether transactions queue for contended records and ranges.
    pub orders: bool,
    /// Whether contention points can be ranges, and not only records.
    pub orders_ranges: bool,
    /// Whether a transaction's turn at a range may end before the transaction does.
    pub releases_early: bool,
    /// Whether records may be split among the workers.
    pub splits: bool,
    /// If given, what is done at each point changes at random, in the midst of transactions: for tests. The random
    /// numbers come from this seed. The default of hasty builds is 0.
    #[doc(hidden)]
    pub forced_by_seed: Option<u64>,
    /// A flaw, made on purpose for tests.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub flaw: Option<AdaptiveFlaw>,
}

/// Flaws that are made on purpose, for tests that have to find them.
#[cfg(feature = "canary")]
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdaptiveFlaw {
    /// The phase changes while transactions run that have not been announced.
    UnannouncedPassed,
    /// What a transaction has read is not validated if it has its turn somewhere.
    TurnsTrusted,
    /// What a transaction has passed over because of a claim is not validated.
    ClaimsTrusted,
}

impl Default for AdaptiveOptions {
    fn default() -> Self {
        AdaptiveOptions {
            orders: true,
            orders_ranges: true,
            releases_early: true,
            splits: true,
            forced_by_seed: weft::store::RECLAIMS_EARLY.then_some(0),
            #[cfg(feature = "canary")]
            flaw: None,
        }
    }
}

impl AdaptiveOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`AdaptiveOptions::orders`].
    pub fn orders(mut self, orders: bool) -> Self {
        self.orders = orders;
        self
    }

    /// Sets [`AdaptiveOptions::orders_ranges`].
    pub fn orders_ranges(mut self, orders_ranges: bool) -> Self {
        self.orders_ranges = orders_ranges;
        self
    }

    /// Sets [`AdaptiveOptions::releases_early`].
    pub fn releases_early(mut self, releases_early: bool) -> Self {
        self.releases_early = releases_early;
        self
    }

    /// Sets [`AdaptiveOptions::splits`].
    pub fn splits(mut self, splits: bool) -> Self {
        self.splits = splits;
        self
    }

    /// Sets [`AdaptiveOptions::forced_by_seed`].
    #[doc(hidden)]
    pub fn forced_by_seed(mut self, seed: Option<u64>) -> Self {
        self.forced_by_seed = seed;
        self
    }
}
