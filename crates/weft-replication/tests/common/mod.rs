//! What all tests of nodes have in common.

use std::time::Duration;

use weft_replication::Options;

/// Longer than anything takes. No test waits for this long unless it fails.
pub const LONG: Duration = Duration::from_secs(60);

/// Options for nodes that become the primary only when they are told.
pub fn by_call() -> Options {
    Options {
        lease: Duration::from_millis(60),
        heartbeat: Duration::from_millis(10),
        silence: None,
        deadline: LONG,
        poll: Duration::from_millis(1),
        ..Options::default()
    }
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{what} does not happen");
}
