//! The command `weft-server`: serves a database to clients of Redis until it gets a signal.
//!
//! Its log goes to standard error, one JSON object a line. It exits with 0 after a signal or `SHUTDOWN`, with 1 if it cannot
//! serve, and with 2 if the settings ask for something impossible.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use weft_server::{
    ImportOptions, Level, Listeners, Options, SETTINGS, Server, import, log, read_settings,
};

const ABOUT: &str = "\
Serves a Weft database to clients of Redis.

Without --directory the data is in memory, and gone when the server stops. With it, a reply is sent when its commit is on the
disk. The server listens on this machine alone, until --bind says more.";

const EXAMPLES: &str = "\
Try it:
  weft-server &
  redis-cli set greeting hello

Keep the data, and let other machines connect by TLS with a password:
  weft-server --directory data --password-file password --bind 0.0.0.0 \\
    --port 0 --tls-port 6380 --tls-certificate cert.pem --tls-key key.pem

Where settings come from:
  The command line counts more than the environment, which counts more than the file, which counts more than the default.
  WEFT_SERVER_HTTP_PORT is the environment variable of --http-port, and so on. The file of --config has lines such as
  `http-port 9100`. Redis's names are understood, too: `maxmemory 4gb` is `memory 4gb`. CONFIG SET changes some settings
  while the server runs, and CONFIG REWRITE puts them into the file.";

const ABOUT_IMPORT: &str = "\
Copies the data of a Redis into a directory, which the server then serves.

SOURCE is the path of an RDB file, or the address of a server that runs: redis://[USER:PASSWORD@]HOST:PORT[/DATABASE], or
rediss:// for TLS. Without /DATABASE all databases are copied. A key that is there already is replaced.

An RDB file has all keys as they were at one moment. From a server that runs, each key is copied as it is at one moment, so
stop its writers first if keys belong together.";

const ABOUT_PROMOTE: &str = "\
Makes a standby of a replicated database the primary. If there is a primary, it steps down.

Waits until the standby serves, and for 30 seconds at most. It is what the command WEFT.PROMOTE does.";

/// Returns the definition of the command line.
fn command() -> Command {
    let source =
        Arg::new("source").value_name("SOURCE").required(true).help("RDB file, or address");
    let path = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("PATH").value_parser(value_parser!(PathBuf)).help(help)
    };
    let keeps = Arg::new("keep-fields")
        .long("keep-fields")
        .action(ArgAction::SetTrue)
        .help("Keep fields of hashes that expire in the source (Redis 7.4) as fields that do not");
    let import = Command::new("import")
        .about(ABOUT_IMPORT)
        .max_term_width(100)
        .arg(source)
        .arg(keeps)
        .arg(path("source-authority", "File with the certificates of authorities (PEM) for rediss://, in place of the system's"))
        .arg(path("source-certificate", "File with a certificate (PEM) that the source asks for").requires("source-key"))
        .arg(path("source-key", "File with its key (PEM)").requires("source-certificate"));
    let address = Arg::new("address")
        .value_name("ADDRESS")
        .required(true)
        .help("Address of the standby: redis://[USER:PASSWORD@]HOST:PORT");
    let promote = Command::new("promote").about(ABOUT_PROMOTE).max_term_width(100).arg(address);
    let serve = Command::new("weft-server").about(ABOUT).after_help(EXAMPLES);
    let serve = serve.version(env!("CARGO_PKG_VERSION")).args_conflicts_with_subcommands(true);
    with_settings(serve).subcommand(with_settings(import)).subcommand(promote)
}

/// Adds the options that set the settings.
fn with_settings(command: Command) -> Command {
    let config = Arg::new("config")
        .long("config")
        .short('c')
        .value_name("PATH")
        .value_parser(value_parser!(PathBuf))
        .help("File of settings [environment: WEFT_SERVER_CONFIG]");
    let mut command = command.max_term_width(100).arg(config);
    let defaults = Options::default();
    for setting in SETTINGS {
        let default = match setting.get(&defaults) {
            text if text.is_empty() => String::new(),
            text => format!(" [default: {text}]"),
        };
        let mut argument = Arg::new(setting.name)
            .long(setting.name)
            .value_name(setting.value)
            .allow_negative_numbers(true)
            .help(format!("{}{default}", setting.help));
        argument = match setting.name {
            "directory" => argument.short('d'),
            "port" => argument.short('p'),
            _ => argument,
        };
        if !setting.redis.is_empty() && setting.redis != setting.name {
            argument = argument.alias(setting.redis);
        }
        command = command.arg(argument);
    }
    command
}

/// Gathers the settings: those of the file, then of the environment, then of the command line.
fn options(matches: &ArgMatches) -> Result<Options, String> {
    let mut options = Options { notifies_systemd: true, ..Options::default() };
    let file = matches.get_one::<PathBuf>("config").cloned();
    options.settings_file =
        file.or_else(|| std::env::var_os("WEFT_SERVER_CONFIG").map(PathBuf::from));
    if let Some(path) = options.settings_file.clone() {
        for (setting, value) in read_settings(&path)? {
            let set = setting.set(&mut options, &value);
            set.map_err(|error| format!("{}: {} {value}: {error}", path.display(), setting.name))?;
        }
    }
    for setting in SETTINGS {
        let variable = setting.variable();
        if let Some(value) = std::env::var_os(&variable) {
            let value = value.to_string_lossy();
            let set = setting.set(&mut options, &value);
            set.map_err(|error| format!("{variable}={value}: {error}"))?;
        }
    }
    for setting in SETTINGS {
        if let Some(value) = matches.get_one::<String>(setting.name) {
            let set = setting.set(&mut options, value);
            set.map_err(|error| format!("--{} {value}: {error}", setting.name))?;
        }
    }
    Ok(options)
}

/// Checks that there is something to listen on.
fn check_listeners(options: Options) -> Result<Options, String> {
    let listen = &options.listen;
    if listen.port == 0 && listen.tls_port == 0 && listen.socket.is_none() {
        return Err(
            "there is nothing to listen on; give a --port, a --tls-port, or a --socket".into()
        );
    }
    if listen.tls_port != 0 && listen.tls.certificate.is_none() {
        return Err("--tls-port needs --tls-certificate and --tls-key".into());
    }
    Ok(options)
}

fn main() -> ExitCode {
    let matches = command().get_matches();
    let outcome = match matches.subcommand() {
        Some(("promote", matches)) => Ok(promote(matches)),
        Some((_, matches)) => options(matches).map(|options| run_import(matches, options)),
        None => options(&matches).and_then(check_listeners).map(run),
    };
    match outcome {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            log(Level::Error, "cannot go on", json!({ "error": error.to_string() }));
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

fn promote(matches: &ArgMatches) -> io::Result<()> {
    let address = matches.get_one::<String>("address").expect("it is required");
    let client = redis::Client::open(address.as_str()).map_err(io::Error::other)?;
    let mut connection = client.get_connection().map_err(io::Error::other)?;
    redis::cmd("WEFT.PROMOTE").query::<()>(&mut connection).map_err(io::Error::other)?;
    log(Level::Info, "promoted", json!({ "address": address.rsplit('@').next() }));
    Ok(())
}

fn run_import(matches: &ArgMatches, options: Options) -> io::Result<()> {
    if options.store.directory.is_none() {
        return Err(io::Error::other("name the --directory in which the data is to be kept"));
    }
    if !options.replication.log.is_empty() {
        return Err(io::Error::other(
            "a directory of a replicated server is a copy of the log, and nothing can be imported there: leave --replicate out",
        ));
    }
    // The import is not a client, so the rules of users are not for it.
    let options = Options { users_file: None, password: None, ..options };
    let server = Server::open(options)?;
    let source = matches.get_one::<String>("source").expect("it is required");
    let imported = import(&server, source, &import_options(matches)?).map_err(io::Error::other)?;
    server.database.close().map_err(io::Error::other)?;
    let (keys, skipped) = (imported.keys, imported.skipped);
    log(Level::Info, "imported", json!({ "keys": keys, "skipped": skipped }));
    if imported.lasting_fields > 0 {
        let fields = imported.lasting_fields;
        log(
            Level::Warn,
            "fields that expired in the source are kept for ever",
            json!({ "fields": fields }),
        );
    }
    Ok(())
}

/// Reads the files that the options name.
fn import_options(matches: &ArgMatches) -> io::Result<ImportOptions> {
    let read = |name: &str| {
        let path = matches.get_one::<PathBuf>(name);
        let told = |path: &PathBuf, error| io::Error::other(format!("{}: {error}", path.display()));
        path.map(|path| std::fs::read(path).map_err(|error| told(path, error))).transpose()
    };
    Ok(ImportOptions {
        keeps_fields: matches.get_flag("keep-fields"),
        authorities: read("source-authority")?,
        certificate: read("source-certificate")?.zip(read("source-key")?),
    })
}

fn run(options: Options) -> io::Result<()> {
    // The server has threads of its own for connections.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before clients can connect, so that no signal ends the process out of order.
        let (mut interrupted, mut terminated) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut hung_up = signal(SignalKind::hangup())?;
        let listeners = Listeners::bind(&options.listen).await?;
        let server = Server::open(options)?;
        let reloader = server.reloader();
        let stop = async move {
            loop {
                tokio::select! {
                    _ = interrupted.recv() => return,
                    _ = terminated.recv() => return,
                    _ = hung_up.recv() => reloader.reload(),
                }
            }
        };
        server.serve(listeners, stop).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }
}
