//! Checks whether the server works: those of `/health`, and those of systemd's watchdog.
//!
//! The two differ while the disk is full. The server then serves reads and refuses writes, so load balancers should know. A
//! new start would change nothing, so the watchdog is content.

use serde_json::json;
use weft::durability::{LogState, StorageError};
use weft::{Error, Failure, TransactionOptions};

use crate::effects::Effects;
use crate::log::{Level, log};
use crate::replication::{Current, Replication};
use crate::server::Server;
use crate::stop::Stop;
use crate::store::Key;
use crate::systemd;

impl Server {
    /// Checks that the server can answer clients, by a transaction of its own.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check_health(&self) -> Result<(), String> {
        self.check(false)
    }

    /// Checks that a new start of the server would not help. Succeeds if the disk is full, and otherwise does what
    /// [`Self::check_health`] does.
    ///
    /// # Errors
    /// What a new start may repair.
    fn check_liveness(&self) -> Result<(), String> {
        self.check(true)
    }

    fn check(&self, admits_full_disk: bool) -> Result<(), String> {
        if *self.stopping.borrow() {
            return Err("the server stops".to_owned());
        }
        if self.is_over() {
            let fault = self.replication.as_ref().and_then(Replication::fault);
            return Err(fault.unwrap_or_else(|| "the server begins again as a standby".to_owned()));
        }
        if let Some(log) = self.database.log_metrics()
            && log.state != LogState::Running
            && !(admits_full_disk && log.state == LogState::DiskFull)
        {
            return Err(format!("the log is not running: {:?}", log.state));
        }
        let read = self.transact(&Effects::default(), &TransactionOptions::new(), |keys| {
            keys.head(&Key::new(0, b"")).map(|_| ())
        });
        match read {
            // A database of the program may let its reads wait until what they have seen is durable.
            Err(stop) if !(admits_full_disk && is_disk_full(&stop)) => {
                Err(stop.text().into_owned())
            }
            _ => Ok(()),
        }
    }
}

fn is_disk_full(stop: &Stop) -> bool {
    matches!(stop, Stop::Database(Error::Failure(Failure::Storage(StorageError::DiskFull { .. }))))
}

/// Tells systemd that the server works, as long as it does.
pub async fn watch_over(current: Current) {
    let Some(interval) = systemd::watchdog_interval() else { return };
    loop {
        tokio::time::sleep(interval / 2).await;
        let server = current.get();
        match tokio::task::spawn_blocking(move || server.check_liveness()).await {
            Ok(Ok(())) => systemd::notify("WATCHDOG=1"),
            Ok(Err(error)) => log(Level::Error, "not healthy", json!({ "error": error })),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use weft::durability::SimulatedDisk;
    use weft::{Acknowledge, Database, DurabilityOptions};

    use super::*;
    use crate::session::Session;
    use crate::with_tables;

    /// Fault: the watchdog took a full disk for a failure, so systemd killed a server that still served reads.
    #[test]
    fn full_disk_is_not_healthy_and_needs_no_new_start() {
        for acknowledge in [Acknowledge::Committed, Acknowledge::Durable] {
            let disk = SimulatedDisk::new(1);
            // Without zeros before the log, which would take half a minute to fill.
            let options = DurabilityOptions::new().spare_bytes(4096).reserve_bytes(0);
            let options = options.acknowledge(acknowledge);
            let builder = with_tables(Database::builder()).directory("/db");
            let builder = builder.backend(Arc::new(disk.clone()), false).durability(options);
            let server = Server::builder().database(builder.open().unwrap()).open().unwrap();
            let mut session = Session::of_a_test(&server);
            assert_eq!(session.say("SET key value"), "+OK\r\n");
            assert_eq!((server.check_health(), server.check_liveness()), (Ok(()), Ok(())));
            disk.set_capacity(Some(disk.used_bytes() + 100));
            let long = format!("SET long {}", "x".repeat(3 * 4096));
            let mut writes = 0;
            while server.check_health().is_ok() {
                session.say(&long);
                std::thread::sleep(Duration::from_millis(1));
                writes += 1;
                assert!(writes < 30_000, "the disk does not become full");
            }
            assert_eq!(server.check_liveness(), Ok(()), "{acknowledge:?}");
            disk.set_capacity(None);
        }
    }

    /// A log that has failed needs a new start.
    #[test]
    fn failed_log_is_not_alive() {
        let disk = SimulatedDisk::new(2);
        let options = DurabilityOptions::new().acknowledge(Acknowledge::Committed);
        let builder = with_tables(Database::builder()).directory("/db");
        let builder = builder.backend(Arc::new(disk.clone()), false).durability(options);
        let server = Server::builder().database(builder.open().unwrap()).open().unwrap();
        let mut session = Session::of_a_test(&server);
        let mut writes = 0;
        while server.check_liveness().is_ok() {
            disk.fail_sync(disk.syncs() + 1);
            session.say("SET key value");
            std::thread::sleep(Duration::from_millis(1));
            writes += 1;
            assert!(writes < 30_000, "the log does not fail");
        }
        assert!(server.check_liveness().unwrap_err().contains("Failed"));
    }
}
