//! Machines as data: how many processors, which caches, what each step costs.
//!
//! All times are cycles of the profile's own clock. A published number has its source beside it. A number
//! without a source is marked *estimate*. The reorder windows, fill buffers and store buffers of Intel's cores are
//! those that Intel's *Optimization Reference Manual* has for the generation.
//!
//! A profile does not claim to be one real machine. It is the smallest description with the proportions on which
//! the papers' results depend. The [crate's documentation](crate) lists what every profile leaves out.

/// Cache lines in a page of 4 KiB.
pub(crate) const LINES_PER_PAGE: u64 = 64;
/// Size of a cache line in bytes.
pub(crate) const LINE_BYTES: u64 = 64;

/// Size of a set-associative cache with lines of 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Number of sets.
    pub sets: u32,
    /// Lines that a set holds.
    pub ways: u32,
}

impl CacheSize {
    /// Returns its size in bytes.
    pub const fn bytes(self) -> u64 {
        self.sets as u64 * self.ways as u64 * LINE_BYTES
    }
}

/// The costs of accesses and other steps, in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// An access that hits the first-level cache.
    pub first_level: u64,
    /// An access that hits the second level.
    pub second_level: u64,
    /// An access that hits the socket's last level.
    pub last_level: u64,
    /// An access to a line that another core of the socket holds modified or exclusive.
    pub other_core: u64,
    /// An access to a line that a core of another socket holds, in any state.
    pub other_socket: u64,
    /// An access to memory of the own socket.
    pub memory: u64,
    /// An access to memory of another socket.
    pub other_memory: u64,
    /// A line from the last level or from memory that follows, in its page, the line that the thread fetched
    /// before: the prefetcher is already fetching it.
    pub streamed: u64,
    /// The cost that a `lock` prefix adds.
    pub locked: u64,
    /// A full fence.
    pub fence: u64,
    /// PAUSE.
    pub pause: u64,
    /// Yielding the processor, and getting it back immediately.
    pub yielding: u64,
    /// The first touch of a page: the fault, and clearing the page.
    pub page_fault: u64,
    /// A timer interrupt.
    pub interrupt: u64,
    /// XBEGIN.
    pub begin: u64,
    /// XEND of the outermost region.
    pub commit: u64,
    /// The time from an abort to the first instruction behind it.
    pub abort: u64,
}

/// The description of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name on the command line.
    pub name: &'static str,
    /// Which machine it stands for.
    pub description: &'static str,
    /// Millions of cycles per second.
    pub megahertz: u64,
    /// Sockets.
    pub sockets: usize,
    /// Cores of a socket.
    pub cores_per_socket: usize,
    /// Hardware threads of a core, 1 or 2: they share its caches.
    pub threads_per_core: usize,
    /// First-level data cache of a core.
    pub first_level: CacheSize,
    /// Second-level cache of a core.
    pub second_level: CacheSize,
    /// Last-level cache of a socket.
    pub last_level: CacheSize,
    /// Whether a line that leaves the last level leaves the caches of the cores as well.
    pub is_inclusive: bool,
    /// The structure of a core, beside its caches, that tracks what regions have read and what is no longer in
    /// the first level. A line that falls out of it aborts its region. `None` if there is no RTM.
    pub read_set: Option<CacheSize>,
    /// Instructions that a core holds between their start and their end, in order: the reorder window.
    pub reorder_window: u64,
    /// Misses of the first level that a core has in progress at once.
    pub fill_buffers: usize,
    /// Stores of a core that wait for their lines at once.
    pub store_buffer: u64,
    /// How long computing takes while the core's other thread runs, as a percentage of its time alone.
    pub sibling_percent: u64,
    /// Cycles between two timer interrupts of a hardware thread.
    pub timer_period: u64,
    /// The costs of accesses and other steps.
    pub latencies: Latencies,
}

impl Profile {
    /// Returns the number of cores of all sockets.
    pub const fn cores(&self) -> usize {
        self.sockets * self.cores_per_socket
    }

    /// Returns the number of hardware threads of all cores.
    pub const fn threads(&self) -> usize {
        self.cores() * self.threads_per_core
    }

    /// Returns the core of a hardware thread. The first threads have a core each, socket by socket. Threads
    /// that share a core with one of these come after them, as the papers place theirs.
    pub const fn core_of(&self, thread: usize) -> usize {
        thread % self.cores()
    }

    /// Returns the socket of a core.
    pub const fn socket_of(&self, core: usize) -> usize {
        core / self.cores_per_socket
    }

    /// Returns the seconds that a number of cycles takes.
    pub fn seconds(&self, cycles: u64) -> f64 {
        cycles as f64 / (self.megahertz as f64 * 1e6)
    }

    /// Returns the profile of this name, if there is one.
    pub fn named(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }
}

/// All profiles.
pub static PROFILES: [Profile; 5] = [HASWELL_4C8T, XEON_E7_4X10, XEON_8X10, TODAY_64C, EPYC_2C];

/// Intel Core i7-4770, on which the papers about RTM ran.
///
/// Cores, clock and cache sizes: DBX §7, DBX-TC §6. Latencies of the caches and of memory: measured by
/// 7-cpu.com (first level 4 cycles, second 12, last 36; memory 36 cycles + 57 ns). A line from another core,
/// the `lock` prefix, fences, PAUSE and lines in a row (10 GB/s for a thread): orders of magnitude of
/// microbenchmarks of that generation, *estimates*. Beginning, ending and aborting a region: *estimates*; an
/// empty region costs about as much as three uncontended `lock` instructions. Timer: every 4 ms (DBX §2.2).
///
/// The structure of the read set is not described anywhere. Its size is fitted to the paper: four threads on a
/// core each read 4 MB in half of their regions, eight threads 2 MB (DBX, Figure 1a and b). So the structure
/// belongs to the core and not to the socket, and random placement of pages fills one of its sets at about half
/// its size.
const HASWELL_4C8T: Profile = Profile {
    name: "haswell-4c8t",
    description: "Intel i7-4770 (Haswell), 4 cores, 8 threads, 3.4 GHz: DBX, DBX-TC, No Free Lunch",
    megahertz: 3400,
    sockets: 1,
    cores_per_socket: 4,
    threads_per_core: 2,
    first_level: CacheSize { sets: 64, ways: 8 },
    second_level: CacheSize { sets: 512, ways: 8 },
    last_level: CacheSize { sets: 8192, ways: 16 },
    is_inclusive: true,
    read_set: Some(CacheSize { sets: 8192, ways: 16 }),
    reorder_window: 192,
    fill_buffers: 10,
    store_buffer: 42,
    sibling_percent: 160,
    timer_period: 13_600_000,
    latencies: Latencies {
        first_level: 4,
        second_level: 12,
        last_level: 36,
        other_core: 70,
        other_socket: 70,
        memory: 230,
        other_memory: 230,
        streamed: 20,
        locked: 16,
        fence: 33,
        pause: 9,
        yielding: 1_000,
        page_fault: 2_500,
        interrupt: 5_000,
        begin: 25,
        commit: 20,
        abort: 150,
    },
};

/// Four Intel Xeon E7-4820 of ten cores, HTCC's machine. The paper ran RTM on another machine, the Haswell.
/// This profile has RTM, so that the paper's figures can be drawn for more cores than the Haswell has.
///
/// Cores, clock and cache sizes: HTCC §5. Latencies: Molka et al., *Cache Coherence Protocol and Memory
/// Performance of the Intel Haswell-EP Architecture* (ICPP 2015), scaled to 1.9 GHz and rounded. The rest: as
/// for `haswell-4c8t`, *estimates*.
const XEON_E7_4X10: Profile = Profile {
    name: "xeon-e7-4x10",
    description: "4 x Intel Xeon E7-4820, 40 cores, 80 threads, 1.9 GHz, with RTM: HTCC",
    megahertz: 1900,
    sockets: 4,
    cores_per_socket: 10,
    threads_per_core: 2,
    first_level: CacheSize { sets: 64, ways: 8 },
    second_level: CacheSize { sets: 512, ways: 8 },
    last_level: CacheSize { sets: 20480, ways: 20 },
    is_inclusive: true,
    read_set: Some(CacheSize { sets: 8192, ways: 16 }),
    reorder_window: 192,
    fill_buffers: 10,
    store_buffer: 42,
    sibling_percent: 160,
    timer_period: 7_600_000,
    latencies: Latencies {
        first_level: 4,
        second_level: 12,
        last_level: 45,
        other_core: 90,
        other_socket: 200,
        memory: 185,
        other_memory: 280,
        streamed: 20,
        locked: 16,
        fence: 33,
        pause: 9,
        yielding: 800,
        page_fault: 2_000,
        interrupt: 4_000,
        begin: 25,
        commit: 20,
        abort: 150,
    },
};

/// Eight Intel Xeon of ten cores, Doppel's machine: no RTM.
///
/// Cores and clock: Doppel §8. Cache sizes: Westmere-EX. Latencies: David, Guerraoui and Trigonakis,
/// *Everything You Always Wanted to Know About Synchronization but Were Afraid to Ask* (SOSP 2013), which
/// measures a machine of that kind. Between sockets: a mean of one and two hops. All are rounded.
/// The rest: *estimates*.
const XEON_8X10: Profile = Profile {
    name: "xeon-8x10",
    description: "8 x 10-core Intel Xeon, 80 cores, 2.4 GHz, no RTM: Doppel",
    megahertz: 2400,
    sockets: 8,
    cores_per_socket: 10,
    threads_per_core: 1,
    first_level: CacheSize { sets: 64, ways: 8 },
    second_level: CacheSize { sets: 512, ways: 8 },
    last_level: CacheSize { sets: 20480, ways: 24 },
    is_inclusive: true,
    read_set: None,
    reorder_window: 128,
    fill_buffers: 10,
    store_buffer: 32,
    sibling_percent: 100,
    timer_period: 9_600_000,
    latencies: Latencies {
        first_level: 5,
        second_level: 11,
        last_level: 44,
        other_core: 110,
        other_socket: 350,
        memory: 355,
        other_memory: 550,
        streamed: 20,
        locked: 20,
        fence: 40,
        pause: 9,
        yielding: 1_000,
        page_fault: 2_500,
        interrupt: 5_000,
        begin: 0,
        commit: 0,
        abort: 0,
    },
};

/// One socket of 64 recent Intel cores with RTM.
///
/// First and second level, what a region can hold, and the 20 ns of a region around one store: measured by Weft
/// (docs/rtm.md). The structure of the read set is fitted to three of the four kinds of regions there that fail
/// because of their reads. (Regions that read random lines fail less often on the model than on the processor.)
/// The latencies beyond the second level, and PAUSE: of the order published for the generation, *estimates*.
const TODAY_64C: Profile = Profile {
    name: "today-64c",
    description: "one socket of 64 recent Intel Xeon cores, 128 threads, 2.6 GHz, with RTM",
    megahertz: 2600,
    sockets: 1,
    cores_per_socket: 64,
    threads_per_core: 2,
    first_level: CacheSize { sets: 64, ways: 12 },
    second_level: CacheSize { sets: 2048, ways: 16 },
    last_level: CacheSize { sets: 131072, ways: 15 },
    is_inclusive: false,
    read_set: Some(CacheSize { sets: 512, ways: 6 }),
    reorder_window: 512,
    fill_buffers: 16,
    store_buffer: 112,
    sibling_percent: 150,
    timer_period: 10_400_000,
    latencies: Latencies {
        first_level: 5,
        second_level: 15,
        last_level: 90,
        other_core: 150,
        other_socket: 150,
        memory: 290,
        other_memory: 290,
        streamed: 20,
        locked: 18,
        fence: 35,
        pause: 140,
        yielding: 1_000,
        page_fault: 2_500,
        interrupt: 5_000,
        begin: 28,
        commit: 24,
        abort: 170,
    },
};

/// Two cores of an AMD EPYC of the fourth generation (Zen 4) in a virtual machine: no RTM. The model is compared
/// with measurements of this machine.
///
/// Clock, latencies of all levels, PAUSE, page faults and interrupts: measured by Weft (docs/simulated.md). A line
/// from the other core: measured by two threads that write one word in turns. It takes as long as between distant
/// parts of such a processor. `locked` and `fence`: what an exchange and a fence of a line of the first level took
/// in addition to a load and a store. Cache sizes: reported by the processor, with the ways of the generation.
/// Reorder window and store buffer: published by AMD for Zen 4. Fill buffers: twelve of the core's 24, because twelve
/// explain the measured time of independent loads from memory. Lines in a row, yielding: *estimates*.
const EPYC_2C: Profile = Profile {
    name: "epyc-2c",
    description: "2 cores of an AMD EPYC (Zen 4), 3.7 GHz, no RTM: compared with measurements",
    megahertz: 3700,
    sockets: 1,
    cores_per_socket: 2,
    threads_per_core: 1,
    first_level: CacheSize { sets: 64, ways: 8 },
    second_level: CacheSize { sets: 2048, ways: 8 },
    last_level: CacheSize { sets: 32768, ways: 16 },
    is_inclusive: false,
    read_set: None,
    reorder_window: 320,
    fill_buffers: 12,
    store_buffer: 64,
    sibling_percent: 100,
    timer_period: 14_800_000,
    latencies: Latencies {
        first_level: 4,
        second_level: 17,
        last_level: 57,
        other_core: 525,
        other_socket: 525,
        memory: 575,
        other_memory: 575,
        streamed: 20,
        locked: 8,
        fence: 5,
        pause: 90,
        yielding: 1_000,
        page_fault: 4_100,
        interrupt: 15_000,
        begin: 0,
        commit: 0,
        abort: 0,
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::FILL_BUFFERS_MAX;

    /// Protects what the papers say about their machines, and what the model assumes.
    #[test]
    fn profiles_are_the_papers_machines() {
        let kib = |kib: u64| kib << 10;
        let haswell = Profile::named("haswell-4c8t").unwrap();
        assert_eq!((haswell.cores(), haswell.threads()), (4, 8));
        assert_eq!(haswell.first_level.bytes(), kib(32));
        assert_eq!(haswell.second_level.bytes(), kib(256));
        assert_eq!(haswell.last_level.bytes(), kib(8 << 10));
        let e7 = Profile::named("xeon-e7-4x10").unwrap();
        assert_eq!((e7.cores(), e7.threads()), (40, 80));
        assert_eq!(e7.last_level.bytes(), kib(25 << 10));
        assert_eq!(Profile::named("xeon-8x10").unwrap().threads(), 80);
        assert_eq!(Profile::named("today-64c").unwrap().first_level.bytes(), kib(48));
        assert!(Profile::named("haswell").is_none());
        for profile in &PROFILES {
            assert!(profile.threads() <= super::super::machine::THREADS_MAX, "{}", profile.name);
            assert!((1..=2).contains(&profile.threads_per_core), "{}", profile.name);
            assert!((1..=FILL_BUFFERS_MAX).contains(&profile.fill_buffers), "{}", profile.name);
            assert_eq!(profile.core_of(profile.cores()), 0, "siblings come last");
        }
    }
}
