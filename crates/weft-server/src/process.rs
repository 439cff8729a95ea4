//! What the system says about the server's process: its processor time and its memory. Only Linux has these files.

use std::fs::read_to_string;

use rustix::param::{clock_ticks_per_second, page_size};

/// The processor time of all threads of the process, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessorTime {
    /// The time in the program.
    pub user: f64,
    /// The time in the system, for the program.
    pub system: f64,
}

/// Returns how much processor time the process has used.
pub fn processor_time() -> Option<ProcessorTime> {
    let (user, system) = ticks_of(&read_to_string("/proc/self/stat").ok()?)?;
    let seconds = |ticks: u64| ticks as f64 / clock_ticks_per_second() as f64;
    Some(ProcessorTime { user: seconds(user), system: seconds(system) })
}

/// Returns how many bytes of physical memory the process has.
pub fn resident_bytes() -> Option<u64> {
    let sizes = read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = sizes.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_size() as u64)
}

/// Returns the times in `/proc/self/stat`, in ticks: of the program, and of the system. The name of the program, which may have
/// spaces, is in brackets.
fn ticks_of(stat: &str) -> Option<(u64, u64)> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse().ok();
    Some((ticks()?, ticks()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_after_any_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 25 14 3 4 20 0 1 0 5 6 7";
        assert_eq!(ticks_of(stat), Some((25, 14)));
        assert_eq!(ticks_of("7 (a)"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn process_has_memory_and_time() {
        assert!(resident_bytes().unwrap() > 1 << 20);
        let time = processor_time().unwrap();
        assert!(time.user >= 0.0 && time.system >= 0.0);
    }
}
