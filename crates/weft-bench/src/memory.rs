//! The memory of the process, and the memory that is available on the machine.

/// Returns the resident memory of this process in bytes; `None` if the system does not report it.
pub fn resident_bytes() -> Option<u64> {
    kibibytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Returns the memory in bytes that is available without swapping; `None` if the system does not report it.
pub fn available_bytes() -> Option<u64> {
    kibibytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// Returns the value in bytes of a line such as `VmRSS:     1234 kB`.
fn kibibytes(lines: &str, label: &str) -> Option<u64> {
    let value = lines.lines().find_map(|line| line.strip_prefix(label))?;
    value
        .trim()
        .strip_suffix("kB")?
        .trim_end()
        .parse::<u64>()
        .ok()
        .map(|kibibytes| kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::kibibytes;

    #[test]
    fn reads_the_labelled_line_only() {
        let status = "VmHWM:\t   999 kB\nVmRSS:\t   123 kB\nThreads:\t4\n";
        assert_eq!(kibibytes(status, "VmRSS:"), Some(123 * 1024));
        assert_eq!(kibibytes(status, "VmSwap:"), None);
        assert_eq!(kibibytes(status, "Threads:"), None, "a line without a unit is not a size");
    }
}
