//! The command `weft-server`: serves a database to clients of Redis until it gets a signal.
//!
//! Its log goes to standard error, one JSON object a line. It exits with 0 after a signal, with 1 if it cannot serve, and
//! with 2 if the arguments ask for something impossible.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use weft::DurabilityOptions;
use weft_server::{Options, Server, StoreOptions, log};

/// Serves a Weft database to clients of Redis.
///
/// Without --directory the data is in memory, and gone when the server stops. With it, a reply is sent when its commit is on
/// the disk. The server listens on this machine alone, until --bind says more.
///
/// Try it: `weft-server &`, then `redis-cli set greeting hello`.
///
/// Each option can also be given by an environment variable: WEFT_SERVER_PORT for --port, and so on.
#[derive(Debug, Parser)]
#[command(name = "weft-server", version, max_term_width = 100)]
struct Arguments {
    /// Directory of the data, which is made if it does not exist
    #[arg(long, short, value_name = "PATH", env = "WEFT_SERVER_DIRECTORY")]
    directory: Option<PathBuf>,

    /// When a reply is sent: durable (its commit is on the disk) or at-once (a crash loses the newest commits)
    #[arg(long, value_name = "WHEN", default_value = "durable", env = "WEFT_SERVER_ACKNOWLEDGE")]
    acknowledge: When,

    /// Port for TCP; 0 to use none
    #[arg(long, short, value_name = "N", default_value_t = 6379, env = "WEFT_SERVER_PORT")]
    port: u16,

    /// Addresses to listen on, with commas between them
    ///
    /// Clients of other machines are refused as long as there is no password: see --protected-mode. The connections are not
    /// encrypted.
    #[arg(
        long,
        value_name = "ADDRESS",
        value_delimiter = ',',
        default_value = "127.0.0.1",
        env = "WEFT_SERVER_BIND"
    )]
    bind: Vec<IpAddr>,

    /// Path of a Unix socket to listen on, too
    #[arg(long, value_name = "PATH", env = "WEFT_SERVER_SOCKET")]
    socket: Option<PathBuf>,

    /// File whose first line is the password that clients give by AUTH
    #[arg(long, value_name = "PATH", env = "WEFT_SERVER_PASSWORD_FILE")]
    password_file: Option<PathBuf>,

    /// Whether clients of other machines are refused while there is no password
    #[arg(long, value_name = "on|off", default_value = "on", env = "WEFT_SERVER_PROTECTED_MODE")]
    protected_mode: Switch,

    /// The most memory for the data, in MiB; beyond it commands that need more are refused
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(32..1 << 30),
          env = "WEFT_SERVER_MEMORY")]
    memory: Option<u64>,

    /// The most connections at the same time
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(1..), env = "WEFT_SERVER_CLIENTS")]
    clients: u64,

    /// The longest request, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20,
          value_parser = clap::value_parser!(u64).range(1024..=512 << 20),
          env = "WEFT_SERVER_REQUEST_BYTES")]
    request_bytes: u64,

    /// How long a call of a script may take, in milliseconds; then it is stopped, and rolled back
    #[arg(long, value_name = "MS", default_value_t = 5000,
          value_parser = clap::value_parser!(u64).range(1..), env = "WEFT_SERVER_SCRIPT_MS")]
    script_ms: u64,

    /// The most memory that a call of a script may need, in bytes; then it is stopped, and rolled back
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20,
          value_parser = clap::value_parser!(u64).range(65_536..=1 << 40),
          env = "WEFT_SERVER_SCRIPT_BYTES")]
    script_bytes: u64,

    /// The longest reply that may wait for one client, in bytes; beyond it the connection is closed
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20,
          value_parser = clap::value_parser!(u64).range(1024..=1 << 40),
          env = "WEFT_SERVER_OUTPUT_BYTES")]
    output_bytes: u64,

    /// Close connections that were silent for so many seconds; 0 for never
    #[arg(long, value_name = "SECONDS", default_value_t = 0, env = "WEFT_SERVER_IDLE")]
    idle: u64,

    /// Threads that run commands; by default one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024),
          env = "WEFT_SERVER_THREADS")]
    threads: Option<u16>,
}

/// When a reply is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    /// When its commit is on the disk.
    Durable,
    /// When its commit is in memory.
    AtOnce,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

impl Arguments {
    fn options(&self) -> Result<Options, String> {
        let password = self.password_file.as_ref().map(|path| {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            match text.lines().next() {
                Some(password) if !password.is_empty() => Ok(password.to_owned()),
                _ => Err(format!(
                    "{}: the first line is empty; write the password there",
                    path.display()
                )),
            }
        });
        let bytes = |bytes: u64| usize::try_from(bytes).map_err(|_| format!("{bytes} is too much"));
        let directory = self.directory.clone().map(|path| (path, DurabilityOptions::new()));
        let memory_limit = self.memory.map(|mebibytes| mebibytes << 20);
        Ok(Options {
            store: StoreOptions { directory, memory_limit },
            waits: self.acknowledge == When::Durable,
            password: password.transpose()?,
            is_protected: self.protected_mode == Switch::On,
            clients_max: self.clients,
            request_bytes: bytes(self.request_bytes)?,
            script_time: Duration::from_millis(self.script_ms),
            script_bytes: bytes(self.script_bytes)?,
            output_bytes: bytes(self.output_bytes)?,
            idle_seconds: self.idle,
            output_timeout: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(10),
        })
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.port == 0 && arguments.socket.is_none() {
        eprintln!("error: there is nothing to listen on; give a --port, or a --socket");
        return ExitCode::from(2);
    }
    let options = match arguments.options() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments, options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log("error", "cannot serve", json!({ "error": error.to_string() }));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments, options: Options) -> Result<(), Box<dyn std::error::Error>> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = arguments.threads {
        runtime.worker_threads(threads.into());
    }
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(async {
        let mut listeners = Vec::new();
        if arguments.port != 0 {
            for address in &arguments.bind {
                let listener = TcpListener::bind((*address, arguments.port)).await;
                let told = |error| {
                    format!("{address}, port {}: {error}; give another --port", arguments.port)
                };
                listeners.push(listener.map_err(told)?);
            }
        }
        let unix = arguments.socket.as_ref().map(listen_on).transpose()?;
        let server = Server::open(options)?;
        let (mut interrupted, mut terminated) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let stop = async move {
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
        };
        Ok(server.serve(listeners, unix, stop).await?)
    })
}

/// Listens on a Unix socket. One that a server has left which is gone is replaced.
fn listen_on(path: &PathBuf) -> Result<(UnixListener, PathBuf), String> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }
}
