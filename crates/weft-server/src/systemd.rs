//! Tells systemd about the server's state, by the socket that it names in the environment.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Sends a state, such as `READY=1`, if systemd has started the process and wants to know.
pub fn notify(state: &str) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET") {
        // If systemd does not listen any more, no one else wants to know.
        let _ = send(path.as_bytes(), state);
    }
}

fn send(path: &[u8], state: &str) -> io::Result<()> {
    let address = match path {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

/// Returns how often systemd wants to hear `WATCHDOG=1`, if it does.
pub fn watchdog_interval() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = number("WATCHDOG_PID").is_none_or(|id| id == u64::from(std::process::id()));
    number("WATCHDOG_USEC").filter(|micros| is_ours && *micros > 0).map(Duration::from_micros)
}
