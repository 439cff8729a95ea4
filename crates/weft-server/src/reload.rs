//! Reading the certificates and the users again while the server runs.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Notify;

use crate::clients::Client;
use crate::log::{Level, log};
use crate::monitor;
use crate::replication::Current;
use crate::server::Server;
use crate::tls::Tls;

/// Asks a server to read its certificates and users again, as `weft-server` does after SIGHUP.
///
/// It does not keep the database open. If the server is replicated and steps down, this reaches the server that follows.
#[derive(Clone, Debug)]
pub struct Reloader(Arc<Notify>);

impl Reloader {
    /// Asks the server. The log says whether the files could be read. Until [`Server::serve`] runs, this has no effect.
    pub fn reload(&self) {
        self.0.notify_one();
    }
}

/// Reads the files again each time the server is asked to, until the task is aborted.
pub async fn when_asked(current: Current, asked: Arc<Notify>) {
    loop {
        asked.notified().await;
        current.get().reload();
    }
}

impl Server {
    /// Returns what asks this server, and those that follow it, to read the certificates and the users again.
    pub fn reloader(&self) -> Reloader {
        Reloader(Arc::clone(&self.reloading))
    }

    /// Reads the certificates and the users again. What is wrong is in the log, and changes nothing.
    fn reload(&self) {
        let tls = self.tls.as_ref().map_or(Ok(()), Tls::reload);
        let users = self.options.users_file.as_ref().map_or(Ok(()), |_| self.users.load());
        for (what, outcome) in [("certificates", tls), ("users", users)] {
            match outcome {
                Ok(()) => log(Level::Info, "read again", json!({ "what": what })),
                Err(error) => {
                    log(Level::Error, "cannot read again", json!({ "what": what, "error": error }));
                }
            }
        }
        self.end_lost_connections();
    }

    /// Ends the connections whose user was removed, and those of subscribers whose user may not use the channel any more.
    /// Called after each change of users.
    pub fn end_lost_connections(&self) {
        let clients = self.clients.all();
        let mut names: Vec<_> = clients.iter().map(|client| client.texts().user.clone()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let user = self.users.find(&name);
            let beyond = user.as_ref().map(|user| {
                let mut beyond = self.publish.clients_beyond(user);
                if !monitor::is_permitted(user) {
                    beyond.extend(self.monitors.clients());
                }
                beyond
            });
            let is_lost = |client: &&Arc<Client>| {
                beyond.as_ref().is_none_or(|beyond| beyond.contains(&client.id))
                    && client.texts().user == name
            };
            clients.iter().filter(is_lost).for_each(|client| client.stop());
        }
    }
}
