//! Where a server listens.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;

use tokio::net::{TcpListener, UnixListener};

use crate::tls::TlsFiles;

/// Where to listen.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// The port for TCP; 0 for none.
    pub port: u16,
    /// The port for TLS; 0 for none.
    pub tls_port: u16,
    /// The addresses for both.
    pub bind: Vec<IpAddr>,
    /// The path of a Unix socket.
    pub socket: Option<PathBuf>,
    /// The port for HTTP; 0 for none.
    pub http_port: u16,
    /// The port of the page that looks inside the database; 0 for none. A database that is given to the server must be opened
    /// with [`weft_inspect::InspectBuilder::inspect`] for the page to show more than totals.
    pub inspect_port: u16,
    /// The addresses for HTTP.
    pub http_bind: Vec<IpAddr>,
    /// The certificates.
    pub tls: TlsFiles,
}

impl Default for ListenOptions {
    fn default() -> Self {
        let local = vec![IpAddr::from(Ipv4Addr::LOCALHOST)];
        ListenOptions {
            port: 6379,
            tls_port: 0,
            bind: local.clone(),
            socket: None,
            http_port: 0,
            inspect_port: 0,
            http_bind: local,
            tls: TlsFiles::default(),
        }
    }
}

/// Sockets on which clients can connect.
#[derive(Debug, Default)]
pub struct Listeners {
    /// For TCP.
    pub tcp: Vec<TcpListener>,
    /// For TLS.
    pub tls: Vec<TcpListener>,
    /// A Unix socket, with its path, which is removed at the end.
    pub unix: Option<(UnixListener, PathBuf)>,
    /// For HTTP.
    pub http: Vec<TcpListener>,
}

impl Listeners {
    /// Begins to listen.
    ///
    /// # Errors
    /// There is nothing to listen on, or an address cannot be used.
    pub async fn bind(options: &ListenOptions) -> io::Result<Self> {
        let unix = options.socket.as_ref().map(listen_on).transpose();
        Ok(Listeners {
            tcp: bind_all(&options.bind, options.port, "--port").await?,
            tls: bind_all(&options.bind, options.tls_port, "--tls-port").await?,
            unix: unix.map_err(io::Error::other)?,
            http: bind_all(&options.http_bind, options.http_port, "--http-port").await?,
        })
    }
}

async fn bind_all(addresses: &[IpAddr], port: u16, option: &str) -> io::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for address in addresses.iter().filter(|_| port != 0) {
        let listener = TcpListener::bind((*address, port)).await;
        listeners.push(listener.map_err(|error| {
            io::Error::other(format!("{address}, port {port}: {error}; give another {option}"))
        })?);
    }
    Ok(listeners)
}

/// Listens on a Unix socket. One that a server has left which is gone is replaced.
fn listen_on(path: &PathBuf) -> Result<(UnixListener, PathBuf), String> {
    let told = |error: io::Error| format!("{}: {error}", path.display());
    let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    if is_socket {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(format!(
                "{}: another server listens there; give another --socket",
                path.display()
            ));
        }
        std::fs::remove_file(path).map_err(told)?;
    }
    let listener = UnixListener::bind(path).map_err(told)?;
    // Only this user may connect.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(told)?;
    Ok((listener, path.clone()))
}
