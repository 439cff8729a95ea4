//! Finds out whether other processes computed during a round.
//!
//! The kernel counts how long all processors were busy (`/proc/stat`), and how long they worked for this process
//! (`getrusage`). The difference of the two was spent on other processes, or was taken by the host of a virtual
//! machine. On systems other than Linux nothing is known, and no round counts as disturbed.

use std::time::Duration;

/// The largest share of the machine's processor time that other processes may take in an undisturbed round. It is
/// well above the error of `/proc/stat`, which counts in steps of 10 ms.
pub const TOLERATED_SHARE: f64 = 0.05;

/// Processor time that was used since some moment in the past.
#[derive(Clone, Copy, Debug)]
pub struct ProcessorTime {
    /// By all processes, and by the host of a virtual machine.
    machine: Duration,
    /// By this process.
    own: Duration,
}

impl ProcessorTime {
    /// Reads the clocks; `None` if the system does not have them.
    pub fn now() -> Option<Self> {
        let statistics = std::fs::read_to_string("/proc/stat").ok()?;
        Some(ProcessorTime { machine: busy_time(&statistics, ticks_per_second()?)?, own: own()? })
    }

    /// Returns the share of the machine's processor time that others took from `self` to `end`, which is `elapsed`
    /// later.
    pub fn share_of_others(&self, end: &Self, elapsed: Duration, processors: usize) -> f64 {
        let machine = end.machine.saturating_sub(self.machine);
        let own = end.own.saturating_sub(self.own);
        let others = machine.saturating_sub(own);
        others.as_secs_f64() / (elapsed.as_secs_f64() * processors as f64)
    }
}

/// Returns the sum of the busy times in the first line of `/proc/stat`.
fn busy_time(statistics: &str, ticks_per_second: u64) -> Option<Duration> {
    let line = statistics.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    // The time of guests, which follows, is part of `user` and `nice`.
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else {
        return None;
    };
    let busy = user + nice + system + irq + softirq + steal;
    Some(Duration::from_millis(busy * 1_000 / ticks_per_second))
}

#[cfg(target_os = "linux")]
fn ticks_per_second() -> Option<u64> {
    // SAFETY: it reads a constant of the system.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0)
}

/// Returns the processor time of this process, with all its threads.
#[cfg(target_os = "linux")]
fn own() -> Option<Duration> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` has room for the result.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: `getrusage` has succeeded, so it has written all of it.
    let usage = unsafe { usage.assume_init() };
    let duration = |time: libc::timeval| {
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).ok()?);
        Some(seconds + Duration::from_micros(u64::try_from(time.tv_usec).ok()?))
    };
    Some(duration(usage.ru_utime)? + duration(usage.ru_stime)?)
}

#[cfg(not(target_os = "linux"))]
fn ticks_per_second() -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
fn own() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_leaves_out_idle_time_and_guests() {
        let statistics = "cpu  100 20 30 9999 8888 4 5 6 70 80\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_time(statistics, 100), Some(Duration::from_millis(1_650)));
        assert_eq!(busy_time("cpu  1 2 3\n", 100), None);
        assert_eq!(busy_time("", 100), None);
    }

    #[test]
    fn own_time_is_not_that_of_others() {
        let milliseconds = Duration::from_millis;
        let begin = ProcessorTime { machine: milliseconds(5_000), own: milliseconds(1_000) };
        let end = ProcessorTime { machine: milliseconds(5_900), own: milliseconds(1_800) };
        let share = begin.share_of_others(&end, milliseconds(500), 2);
        assert!((share - 0.1).abs() < 1e-9, "{share}");
    }

    #[test]
    fn own_time_measured_longer_than_that_of_the_machine_is_no_disturbance() {
        let milliseconds = Duration::from_millis;
        let begin = ProcessorTime { machine: milliseconds(0), own: milliseconds(0) };
        let end = ProcessorTime { machine: milliseconds(490), own: milliseconds(500) };
        assert_eq!(begin.share_of_others(&end, milliseconds(500), 1), 0.0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn work_of_this_process_counts_as_its_own() {
        let begin = ProcessorTime::now().expect("Linux has the clocks");
        let deadline = std::time::Instant::now() + Duration::from_millis(50);
        while std::time::Instant::now() < deadline {}
        let end = ProcessorTime::now().expect("Linux has the clocks");
        assert!(end.own > begin.own);
        assert!(end.machine >= begin.machine);
    }
}
