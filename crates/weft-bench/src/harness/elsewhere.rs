//! What other processes computed during a round, by the system's accounts of processor time. A round in which they
//! did is not worth much.

use std::time::Duration;

/// The system counts processor time in hundredths of a second, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time so far, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorTime {
    /// Of all processes, of the kernel, and what the machine's host took away.
    all: u64,
    /// Of this process.
    own: u64,
}

impl ProcessorTime {
    /// Reads the accounts. Returns `None` where the system has none in `/proc`.
    pub fn now() -> Option<ProcessorTime> {
        let read = |path| std::fs::read_to_string(path).ok();
        ProcessorTime::parse(&read("/proc/stat")?, &read("/proc/self/stat")?)
    }

    /// Reads the texts of `/proc/stat` and `/proc/self/stat`.
    fn parse(system: &str, process: &str) -> Option<ProcessorTime> {
        // `cpu`, then the time as user, nice, system, idle, waiting for a disk, in interrupts (two), and taken by
        // the host.
        let line = system.lines().next()?.strip_prefix("cpu ")?;
        let times: Option<Vec<u64>> =
            line.split_whitespace().take(8).map(|time| time.parse().ok()).collect();
        let [user, nice, system, _idle, _waiting, interrupts, soft, stolen] = times?[..] else {
            return None;
        };
        // The name of the program is in parentheses, and may contain any character. The 12th and 13th fields after
        // it are the process's time as user and in the system.
        let (_, fields) = process.rsplit_once(')')?;
        let mut own = fields.split_whitespace().skip(11).map(|time| time.parse::<u64>().ok());
        Some(ProcessorTime {
            all: user + nice + system + interrupts + soft + stolen,
            own: own.next()?? + own.next()??,
        })
    }

    /// Returns how many cores others kept busy since `before`, on average.
    pub fn others_since(self, before: ProcessorTime, span: Duration) -> f64 {
        // The two accounts are not read at the same instant, so the difference may be slightly negative.
        let others = (self.all - before.all).saturating_sub(self.own - before.own);
        others as f64 / TICKS_PER_SECOND / span.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_read_from_their_texts() {
        let system = "cpu  100 20 30 4000 500 6 7 8 0 0\ncpu0 1 2 3\n";
        let process = "42 (a (strange) name) R 1 1 1 0 -1 0 0 0 0 0 25 5 0 0 20 0 1 0 9 9 9\n";
        let time = ProcessorTime::parse(system, process);
        assert_eq!(time, Some(ProcessorTime { all: 171, own: 30 }));
        for (system, process) in [("", process), ("cpu 1 2", process), (system, "42 (short) R")] {
            assert_eq!(ProcessorTime::parse(system, process), None);
        }
    }

    #[test]
    fn others_are_what_is_not_ours() {
        let (before, after) =
            (ProcessorTime { all: 1_000, own: 300 }, ProcessorTime { all: 1_450, own: 700 });
        assert_eq!(after.others_since(before, Duration::from_secs(2)), 0.25);
        let later = ProcessorTime { all: 1_010, own: 311 };
        assert_eq!(later.others_since(before, Duration::from_secs(1)), 0.0);
    }
}
