//! The settings: one table, from which the options of the command line, the environment, the file, `CONFIG` and the help
//! follow.
//!
//! A setting has a name of its own, and that of Redis where Redis has it; both are understood everywhere. Its value is text,
//! and [`Options`] has what it means.

use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use weft::DurabilityOptions;
use weft::htm::word::Ordering;

use crate::glob;
use crate::log::{Level, set_level};
use crate::notifications;
use crate::replication::MECHANISMS;
use crate::request::split_words;
use crate::server::{Options, Server};
use crate::stop::Done;
use crate::tables::SPACES;
use crate::users::{DEFAULT, replace_file};

/// Returns a value as text.
type Get = fn(&Options) -> String;

/// Gives the running server a new value.
type Apply = fn(&Server, &Options);

/// A setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its name in Redis, or an empty text if Redis does not have it.
    pub redis: &'static str,
    /// What its value is, for the help.
    pub value: &'static str,
    /// What it does, and what follows from it.
    pub help: &'static str,
    get: Get,
    set: fn(&mut Options, &str) -> Result<(), String>,
    apply: Option<Apply>,
}

impl Setting {
    /// Returns its value, as text. Passwords are not shown.
    pub fn get(&self, options: &Options) -> String {
        (self.get)(options)
    }

    /// Sets it.
    ///
    /// # Errors
    /// Why the value is wrong.
    pub fn set(&self, options: &mut Options, value: &str) -> Result<(), String> {
        (self.set)(options, value)
    }

    /// Returns whether it can be changed while the server runs.
    pub fn is_live(&self) -> bool {
        self.apply.is_some()
    }

    /// Returns the environment variable that sets it.
    pub fn variable(&self) -> String {
        format!("WEFT_SERVER_{}", self.name.replace('-', "_").to_uppercase())
    }

    fn is_named(&self, name: &str) -> bool {
        self.name == name || (!self.redis.is_empty() && self.redis == name)
    }

    const fn live(mut self, apply: Apply) -> Self {
        self.apply = Some(apply);
        self
    }
}

const fn setting(
    name: &'static str,
    redis: &'static str,
    value: &'static str,
    help: &'static str,
    get: Get,
    set: fn(&mut Options, &str) -> Result<(), String>,
) -> Setting {
    Setting { name, redis, value, help, get, set, apply: None }
}

/// All settings.
pub static SETTINGS: &[Setting] = &[
    setting(
        "directory", "dir", "PATH",
        "Directory of the data, which is made if it does not exist; without it, the data is in memory",
        |options| options.store.directory.as_ref().map_or(String::new(), |(path, _)| shown(path)),
        |options, text| {
            let path = optional_path(text);
            options.store.directory = path.map(|path| (path, DurabilityOptions::new()));
            Ok(())
        },
    ),
    setting(
        "acknowledge", "", "durable|at-once",
        "When a reply is sent: when its commit is on the disk, or at once (a crash loses about the last 10 ms)",
        |options| if options.waits { "durable" } else { "at-once" }.to_owned(),
        |options, text| put(&mut options.waits, one_of(text, &["durable", "at-once"]).map(|place| place == 0)),
    ),
    setting(
        "port", "port", "N",
        "Port for TCP; 0 to use none",
        |options| options.listen.port.to_string(),
        |options, text| put(&mut options.listen.port, number(text, 0..=u16::MAX)),
    ),
    setting(
        "tls-port", "tls-port", "N",
        "Port for TLS over TCP; 0 to use none. It needs --tls-certificate and --tls-key",
        |options| options.listen.tls_port.to_string(),
        |options, text| put(&mut options.listen.tls_port, number(text, 0..=u16::MAX)),
    ),
    setting(
        "bind", "bind", "ADDRESS",
        "Addresses to listen on, with commas between them. As long as there is no password, clients of other machines are \
         refused: see --protected-mode",
        |options| joined(&options.listen.bind),
        |options, text| put(&mut options.listen.bind, addresses(text)),
    ),
    setting(
        "socket", "unixsocket", "PATH",
        "Path of a Unix socket to listen on, too; only this user may connect",
        |options| options.listen.socket.as_deref().map_or(String::new(), shown),
        |options, text| put(&mut options.listen.socket, Ok(optional_path(text))),
    ),
    setting(
        "http-port", "", "N",
        "Port for HTTP, with /metrics for Prometheus and /health; 0 to use none",
        |options| options.listen.http_port.to_string(),
        |options, text| put(&mut options.listen.http_port, number(text, 0..=u16::MAX)),
    ),
    setting(
        "inspect-port", "", "N",
        "Port of a page, on this machine alone, that shows which keys and commands conflict (also for weft top); 0 for none",
        |options| options.listen.inspect_port.to_string(),
        |options, text| put(&mut options.listen.inspect_port, number(text, 0..=u16::MAX)),
    ),
    setting(
        "http-bind", "", "ADDRESS",
        "Addresses for HTTP, with commas between them. What it shows has no password",
        |options| joined(&options.listen.http_bind),
        |options, text| put(&mut options.listen.http_bind, addresses(text)),
    ),
    setting(
        "tls-certificate", "tls-cert-file", "PATH",
        "File with the server's certificate, and those between it and the authority (PEM). SIGHUP reads it again",
        |options| options.listen.tls.certificate.as_deref().map_or(String::new(), shown),
        |options, text| put(&mut options.listen.tls.certificate, Ok(optional_path(text))),
    ),
    setting(
        "tls-key", "tls-key-file", "PATH",
        "File with the key of the certificate (PEM)",
        |options| options.listen.tls.key.as_deref().map_or(String::new(), shown),
        |options, text| put(&mut options.listen.tls.key, Ok(optional_path(text))),
    ),
    setting(
        "tls-client-authority", "tls-ca-cert-file", "PATH",
        "File with the certificates of authorities (PEM), one of which must have signed each client's certificate",
        |options| options.listen.tls.client_authority.as_deref().map_or(String::new(), shown),
        |options, text| put(&mut options.listen.tls.client_authority, Ok(optional_path(text))),
    ),
    setting(
        "password-file", "", "PATH",
        "File whose first line is the password of the user `default`, which clients give by AUTH",
        |_| String::new(),
        |options, text| put(&mut options.password, first_line(text).map(Some)),
    ),
    setting(
        "password", "requirepass", "PASSWORD",
        "The same password itself. Other users of the machine see the command line: prefer --password-file",
        |_| String::new(),
        |options, text| put(&mut options.password, Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))),
    )
    .live(|server, options| {
        let password = options.password.as_ref().map(|password| format!(">{password}"));
        let rules = ["resetpass".to_owned(), password.unwrap_or_else(|| "nopass".to_owned())];
        let set = server.users.set(DEFAULT, rules.iter().map(|rule| rule.as_bytes()));
        set.expect("every password is possible");
    }),
    setting(
        "users-file", "aclfile", "PATH",
        "File of users and their rights, as Redis has it. ACL SAVE writes it, ACL LOAD and SIGHUP read it again",
        |options| options.users_file.as_deref().map_or(String::new(), shown),
        |options, text| put(&mut options.users_file, Ok(optional_path(text))),
    ),
    setting(
        "protected-mode", "protected-mode", "yes|no",
        "Whether clients of other machines are refused while the user `default` needs no password",
        |options| yes_or_no(options.is_protected),
        |options, text| put(&mut options.is_protected, flag(text)),
    )
    .live(|server, options| {
        server.is_protected.store(u64::from(options.is_protected), Ordering::Relaxed);
    }),
    setting(
        "memory", "maxmemory", "BYTES",
        "The most memory for the data (such as 4gb), at least 32mb; 0 for no limit. Commands that need more are refused",
        |options| options.store.memory_limit.unwrap_or(0).to_string(),
        |options, text| {
            let limit = bytes(text, 0..=1 << 50)?;
            if (1..32 << 20).contains(&limit) {
                return Err("argument must be at least 32mb, or 0 for no limit".to_owned());
            }
            options.store.memory_limit = Some(limit).filter(|limit| *limit > 0);
            Ok(())
        },
    ),
    setting(
        "replicate", "", "LOG",
        "Replicated log, such as kafka://one:9092,two:9092/topic. The server is a standby until it is promoted",
        |options| options.replication.log.clone(),
        |options, text| put(&mut options.replication.log, Ok(text.to_owned())),
    ),
    setting(
        "replicate-address", "replica-announce-ip", "HOST:PORT",
        "Where clients and the other servers find this one when it is the primary",
        |options| options.replication.address.clone(),
        |options, text| put(&mut options.replication.address, Ok(text.to_owned())),
    ),
    setting(
        "replicate-silence", "", "MILLISECONDS",
        "After how long without a sign of the primary a standby takes over; 0 to promote by hand. At least twice the lease",
        |options| options.replication.node.silence.map_or(0, |silence| silence.as_millis()).to_string(),
        |options, text| {
            let silence = number(text, 0..=u64::MAX).map(Duration::from_millis)?;
            options.replication.node.silence = Some(silence).filter(|silence| !silence.is_zero());
            Ok(())
        },
    ),
    setting(
        "replicate-lease", "", "MILLISECONDS",
        "For how long an append proves that the primary is the only one, the same for all servers; 0 to prove every reply",
        |options| options.replication.node.lease.as_millis().to_string(),
        |options, text| put(&mut options.replication.node.lease, number(text, 0..=u64::MAX).map(Duration::from_millis)),
    ),
    setting(
        "replicate-heartbeat", "", "MILLISECONDS",
        "How often the primary shows that it is there; less than the lease",
        |options| options.replication.node.heartbeat.as_millis().to_string(),
        |options, text| put(&mut options.replication.node.heartbeat, number(text, 1..=u64::MAX).map(Duration::from_millis)),
    ),
    setting(
        "replicate-deadline", "", "MILLISECONDS",
        "For how long the log may fail to answer before the primary gives up, and the outcome of commands that wait is unknown",
        |options| options.replication.node.deadline.as_millis().to_string(),
        |options, text| put(&mut options.replication.node.deadline, number(text, 1..=u64::MAX).map(Duration::from_millis)),
    ),
    setting(
        "replicate-copies", "", "N",
        "On how many machines the log has what it has acknowledged, at least (min.insync.replicas): what WAIT returns",
        |options| options.replication.copies.to_string(),
        |options, text| put(&mut options.replication.copies, number(text, 1..=u32::MAX)),
    ),
    setting(
        "replicate-authorities", "", "PATH",
        "File with the certificates of the authorities of Kafka's brokers (PEM). Encrypts the connections with them",
        |options| options.replication.kafka.authorities.as_deref().map_or(String::new(), shown),
        |options, text| put(&mut options.replication.kafka.authorities, Ok(optional_path(text))),
    ),
    setting(
        "replicate-certificate", "", "PATH",
        "File with this server's certificate (PEM), if the brokers want one",
        |options| options.replication.kafka.certificate.as_deref().map_or(String::new(), shown),
        |options, text| put(&mut options.replication.kafka.certificate, Ok(optional_path(text))),
    ),
    setting(
        "replicate-key", "", "PATH",
        "File with the key of that certificate (PEM)",
        |options| options.replication.kafka.key.as_deref().map_or(String::new(), shown),
        |options, text| put(&mut options.replication.kafka.key, Ok(optional_path(text))),
    ),
    setting(
        "replicate-user", "", "NAME",
        "User that logs in at the brokers",
        |options| options.replication.kafka.user.clone(),
        |options, text| put(&mut options.replication.kafka.user, Ok(text.to_owned())),
    ),
    setting(
        "replicate-password-file", "", "PATH",
        "File whose first line is the password of that user",
        |_| String::new(),
        |options, text| put(&mut options.replication.kafka.password, first_line(text)),
    ),
    setting(
        "replicate-mechanism", "", "plain|scram-sha-256|scram-sha-512",
        "How the password is proved",
        |options| options.replication.kafka.mechanism.to_owned(),
        |options, text| {
            let known = MECHANISMS.into_iter().find(|name| name.eq_ignore_ascii_case(text));
            let known = known.ok_or_else(|| format!("argument must be one of: {}", MECHANISMS.join(", ")));
            put(&mut options.replication.kafka.mechanism, known)
        },
    ),
    setting(
        "replicate-identity", "", "IDENTITY",
        "Cluster and topic that the log must be (CLUSTER/TOPIC, as INFO replication shows it), so that one that was made again \
         is refused",
        |options| options.replication.kafka.identity.clone(),
        |options, text| put(&mut options.replication.kafka.identity, Ok(text.to_owned())),
    ),
    setting(
        "replicate-backups", "", "STORE",
        "Directory or object store (such as s3://bucket/weft) for backups: WEFT.BACKUP writes one, and a new server begins with \
         the newest",
        |options| options.replication.backups.clone(),
        |options, text| put(&mut options.replication.backups, Ok(text.to_owned())),
    ),
    setting(
        "replica-serve-reads", "", "yes|no",
        "Whether a standby answers reads of clients that have not said READONLY",
        |options| yes_or_no(options.replication.serves_reads),
        |options, text| put(&mut options.replication.serves_reads, flag(text)),
    )
    .live(|server, options| {
        server.serves_reads.store(u64::from(options.replication.serves_reads), Ordering::Relaxed);
    }),
    setting(
        "clients", "maxclients", "N",
        "The most connections at the same time",
        |options| options.clients_max.to_string(),
        |options, text| put(&mut options.clients_max, number(text, 1..=u64::MAX)),
    )
    .live(|server, options| server.clients_max.store(options.clients_max, Ordering::Relaxed)),
    setting(
        "clients-memory", "maxmemory-clients", "BYTES",
        "The most memory for the requests and replies of all clients; 0 for no limit. Beyond it, a connection that needs \
         more is closed",
        |options| options.clients_bytes.to_string(),
        |options, text| put(&mut options.clients_bytes, bytes(text, 0..=1 << 50)),
    )
    .live(|server, options| server.clients_bytes_max.store(options.clients_bytes, Ordering::Relaxed)),
    setting(
        "request-bytes", "proto-max-bulk-len", "BYTES",
        "The longest request, and the longest queue of MULTI (such as 64mb)",
        |options| options.request_bytes.to_string(),
        |options, text| put(&mut options.request_bytes, size(text, 1024..=512 << 20)),
    ),
    setting(
        "script-time", "", "MILLISECONDS",
        "How long a call of a script may take; then it is stopped, and rolled back",
        |options| options.script_time.as_millis().to_string(),
        |options, text| put(&mut options.script_time, number(text, 1..=u64::MAX).map(Duration::from_millis)),
    ),
    setting(
        "script-bytes", "", "BYTES",
        "The most memory that a call of a script may need (such as 64mb); then it is stopped, and rolled back",
        |options| options.script_bytes.to_string(),
        |options, text| put(&mut options.script_bytes, size(text, 65_536..=1 << 40)),
    ),
    setting(
        "output-bytes", "", "BYTES",
        "The longest reply that may wait for one client (such as 256mb); beyond it the connection is closed",
        |options| options.output_bytes.to_string(),
        |options, text| put(&mut options.output_bytes, size(text, 1024..=1 << 40)),
    ),
    setting(
        "mailbox-bytes", "", "BYTES",
        "The longest output of messages that may wait for one subscriber (such as 32mb); beyond it the connection is closed",
        |options| options.mailbox_bytes.to_string(),
        |options, text| put(&mut options.mailbox_bytes, size(text, 1024..=1 << 40)),
    ),
    setting(
        "output-timeout", "", "SECONDS",
        "Close connections that take none of their output for so long",
        |options| options.output_timeout.as_secs().to_string(),
        |options, text| put(&mut options.output_timeout, number(text, 1..=86_400).map(Duration::from_secs)),
    ),
    setting(
        "idle", "timeout", "SECONDS",
        "Close connections that were silent for so long; 0 for never",
        |options| options.idle_seconds.to_string(),
        |options, text| put(&mut options.idle_seconds, number(text, 0..=u64::MAX / 2)),
    )
    .live(|server, options| {
        server.idle_seconds.store(options.idle_seconds, Ordering::Relaxed);
        // Pollers do not know of it.
        server.clients.ring();
    }),
    setting(
        "keep-alive", "tcp-keepalive", "SECONDS",
        "Ask silent clients so often whether they are still there; 0 for never",
        |options| options.keep_alive.as_secs().to_string(),
        |options, text| put(&mut options.keep_alive, number(text, 0..=86_400).map(Duration::from_secs)),
    ),
    setting(
        "stop-timeout", "shutdown-timeout", "SECONDS",
        "How long connections have to end when the server stops",
        |options| options.stop_timeout.as_secs().to_string(),
        |options, text| put(&mut options.stop_timeout, number(text, 0..=86_400).map(Duration::from_secs)),
    ),
    setting(
        "slow-log-micros", "slowlog-log-slower-than", "MICROSECONDS",
        "SLOWLOG shows commands that take at least so long; -1 for none",
        |options| options.slow_log_micros.to_string(),
        |options, text| put(&mut options.slow_log_micros, number(text, -1..=i64::MAX)),
    )
    .live(|server, options| {
        // The greatest number keeps none.
        let micros = u64::try_from(options.slow_log_micros).unwrap_or(u64::MAX);
        server.slow_log.threshold_micros.store(micros, Ordering::Relaxed);
    }),
    setting(
        "slow-log-length", "slowlog-max-len", "N",
        "How many commands SLOWLOG shows",
        |options| options.slow_log_length.to_string(),
        |options, text| put(&mut options.slow_log_length, number(text, 0..=1 << 20)),
    )
    .live(|server, options| {
        server.slow_log.length_max.store(options.slow_log_length, Ordering::Relaxed);
    }),
    setting(
        "latency-millis", "latency-monitor-threshold", "MILLISECONDS",
        "LATENCY shows commands that take at least so long; 0 for none",
        |options| options.latency_millis.to_string(),
        |options, text| put(&mut options.latency_millis, number(text, 0..=u64::MAX)),
    )
    .live(|server, options| {
        server.latency.threshold_millis.store(options.latency_millis, Ordering::Relaxed);
    }),
    setting(
        "notifications", "notify-keyspace-events", "EVENTS",
        "Which changes of keys are published, in Redis's letters: KEA for all; nothing by default",
        |options| notifications::show(options.notifications),
        |options, text| put(&mut options.notifications, notifications::parse(text)),
    )
    .live(|server, options| {
        server.store.notifications.store(options.notifications, Ordering::Relaxed);
    }),
    setting(
        "threads", "", "N",
        "The most threads that serve connections, of which as many do as the load needs; 0 for one for each core",
        |options| options.threads.to_string(),
        |options, text| put(&mut options.threads, number(text, 0..=1024)),
    ),
    setting(
        "log-level", "", "error|warn|info|debug",
        "What the log has: one JSON object a line, on standard error. debug has every connection",
        |options| options.log_level.name().to_owned(),
        |options, text| {
            let names: Vec<_> = Level::ALL.iter().map(|level| level.name()).collect();
            put(&mut options.log_level, one_of(text, &names).map(|place| Level::ALL[place]))
        },
    )
    .live(|_, options| set_level(options.log_level)),
];

/// What `CONFIG GET` shows beside the settings, because clients ask for it.
static SHOWN: &[(&str, Get)] = &[
    ("appendfsync", |options| if options.waits { "always" } else { "everysec" }.to_owned()),
    ("appendonly", |options| yes_or_no(options.store.directory.is_some())),
    ("databases", |_| SPACES.to_string()),
    ("maxmemory-policy", |_| "noeviction".to_owned()),
    ("save", |_| String::new()),
];

/// Returns the setting with this name, which may be Redis's.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.is_named(name))
}

/// Returns the settings of a file, each with its value: lines of a name and a value, and comments after `#`.
///
/// # Errors
/// The file cannot be read, or a line of it is wrong.
pub fn read_file(path: &Path) -> Result<Vec<(&'static Setting, String)>, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", shown(path)))?;
    let mut settings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |error: &str| format!("{}:{}: {error}", shown(path), number + 1);
        if line.trim_start().starts_with('#') {
            continue;
        }
        let words = split_words(line).ok_or_else(|| wrong("the quotes are not balanced"))?;
        let [name, values @ ..] = &words[..] else { continue };
        let unknown = || wrong(&format!("there is no setting '{name}'; --help has all of them"));
        let setting = find(&name.to_lowercase()).ok_or_else(unknown)?;
        if values.is_empty() {
            return Err(wrong(&format!("write the value of '{name}' after it")));
        }
        settings.push((setting, values.join(" ")));
    }
    Ok(settings)
}

impl Server {
    /// Gives the server the values that it was started with.
    pub fn apply_settings(&self) {
        let options = self.live();
        // The users have their passwords already.
        let settings = SETTINGS.iter().filter(|setting| setting.name != "password");
        settings.filter_map(|setting| setting.apply).for_each(|apply| apply(self, &options));
    }

    /// Returns the settings that match one of these patterns, for `CONFIG GET`.
    pub fn settings(&self, patterns: &[&[u8]]) -> Vec<(&'static str, String)> {
        let matches = |name: &str| {
            let is_match = |pattern: &&[u8]| {
                !name.is_empty() && glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes())
            };
            patterns.iter().any(is_match)
        };
        let options = self.live();
        let settings = SETTINGS.iter().filter_map(|setting| {
            let names = [setting.redis, setting.name];
            let name = names.into_iter().find(|name| matches(name))?;
            Some((name, setting.get(&options)))
        });
        let shown = SHOWN.iter().filter(|(name, _)| matches(name));
        let mut found: Vec<_> =
            settings.chain(shown.map(|(name, get)| (*name, get(&options)))).collect();
        found.sort();
        found
    }

    /// Changes settings, all or none.
    ///
    /// # Errors
    /// There is no such setting, or it can only be set when the server is started, or a value is wrong.
    pub fn set(&self, pairs: &[(String, String)]) -> Done {
        let mut live = self.live();
        let mut options = live.clone();
        let failed = |name: &str, error: &str| {
            format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {error}")
        };
        let mut changes = Vec::new();
        for (name, value) in pairs {
            let Some(setting) = find(name) else {
                if SHOWN.iter().any(|(shown, _)| shown == name) {
                    return Err(failed(name, IMMUTABLE).into());
                }
                let error =
                    format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
                return Err(error.into());
            };
            let apply = setting.apply.ok_or_else(|| failed(name, IMMUTABLE))?;
            setting.set(&mut options, value).map_err(|error| failed(name, &error))?;
            changes.push((setting.name, apply));
        }
        for (name, apply) in changes {
            apply(self, &options);
            self.changed().insert(name);
        }
        // The user has its hash.
        options.password = None;
        *live = options;
        Ok(())
    }

    /// `CONFIG REWRITE`: writes what `CONFIG SET` has changed into the file of settings. The file does not get a password that
    /// was changed: the server has only its hash.
    ///
    /// # Errors
    /// The server was started without a file, or it cannot be written. Or the password was changed: the other settings are
    /// in the file then.
    pub fn rewrite_settings(&self) -> Result<(), String> {
        let path = self.options.settings_file.as_ref();
        let path = path.ok_or("The server is running without a config file")?;
        let told = |error: std::io::Error| format!("{}: {error}", shown(path));
        let text = std::fs::read_to_string(path).map_err(told)?;
        let live = self.live();
        let mut changed = self.changed().clone();
        let has_new_password = changed.remove("password");
        let line_of = |setting: &Setting| format!("{} \"{}\"", setting.name, setting.get(&live));
        let (mut lines, mut left) = (Vec::new(), changed.clone());
        for line in text.lines() {
            let name = line.split_ascii_whitespace().next().unwrap_or_default().to_lowercase();
            match find(&name).filter(|setting| changed.contains(setting.name)) {
                None => lines.push(line.to_owned()),
                Some(setting) if left.remove(setting.name) => lines.push(line_of(setting)),
                // A second line would override the first.
                Some(_) => {}
            }
        }
        let left = SETTINGS.iter().filter(|setting| left.contains(setting.name));
        lines.extend(left.map(line_of));
        replace_file(path, &(lines.join("\n") + "\n")).map_err(told)?;
        match (has_new_password, &self.options.users_file) {
            (false, _) => Ok(()),
            (true, Some(_)) => Err(PASSWORD_IN_USERS_FILE.to_owned()),
            (true, None) => Err(PASSWORD_IN_SETTINGS.to_owned()),
        }
    }
}

const PASSWORD_IN_USERS_FILE: &str =
    "the new password was not written, and all other settings were: keep it by ACL SAVE";
const PASSWORD_IN_SETTINGS: &str = "the new password was not written, and all other settings were: change it in the file of \
     --config or --password-file, or start the server with --users-file and keep it by ACL SAVE";
const IMMUTABLE: &str = "can't set immutable config: use the server's options";

/// Sets what a setting means, if its value is right.
fn put<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn shown(path: impl AsRef<Path>) -> String {
    path.as_ref().display().to_string()
}

fn optional_path(text: &str) -> Option<PathBuf> {
    Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty())
}

fn joined(values: &[impl Display]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    let words = text.split([',', ' ']).filter(|word| !word.is_empty());
    words
        .map(|word| match word {
            "*" => Ok(IpAddr::from([0, 0, 0, 0])),
            word => word.parse().map_err(|_| format!("'{word}' is not an IP address")),
        })
        .collect()
}

fn yes_or_no(flag: bool) -> String {
    if flag { "yes" } else { "no" }.to_owned()
}

fn flag(text: &str) -> Result<bool, String> {
    match text {
        "yes" | "on" => Ok(true),
        "no" | "off" => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".to_owned()),
    }
}

fn one_of(text: &str, names: &[&str]) -> Result<usize, String> {
    let found = names.iter().position(|name| *name == text);
    found.ok_or_else(|| format!("argument must be one of: {}", names.join(", ")))
}

fn number<T: FromStr + PartialOrd + Display>(
    text: &str,
    range: RangeInclusive<T>,
) -> Result<T, String> {
    let number = text.parse().map_err(|_| "argument couldn't be parsed into an integer")?;
    if !range.contains(&number) {
        let (least, most) = range.into_inner();
        return Err(format!("argument must be between {least} and {most} inclusive"));
    }
    Ok(number)
}

/// Returns a number of bytes: digits, and perhaps a unit. As in Redis, `kb` is 1024 bytes, and `k` is 1000.
fn bytes(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match &lower[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return Err("argument must be a memory value, such as 100mb".to_owned()),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let bytes = bytes.ok_or("argument must be a memory value, such as 100mb")?;
    number(&bytes.to_string(), range)
}

fn size(text: &str, range: RangeInclusive<u64>) -> Result<usize, String> {
    usize::try_from(bytes(text, range)?).map_err(|_| "argument is too large".to_owned())
}

fn first_line(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(format!("{path}: the first line is empty; write the password there")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value() {
        let defaults = Options::default();
        for setting in SETTINGS {
            let value = setting.get(&defaults);
            let mut options = Options::default();
            if !setting.name.ends_with("password-file") {
                let set = setting.set(&mut options, &value);
                assert_eq!(set, Ok(()), "{} {value}", setting.name);
            }
            assert_eq!(setting.get(&options), value, "{}", setting.name);
            let same = SETTINGS
                .iter()
                .filter(|other| other.is_named(setting.name) || other.is_named(setting.redis));
            assert_eq!(same.count(), 1, "{}", setting.name);
        }
    }

    #[test]
    fn wrong_values_say_what_is_right() {
        let mut options = Options::default();
        for (name, value, error) in [
            ("port", "70000", "argument couldn't be parsed into an integer"),
            ("clients", "0", "argument must be between 1 and"),
            ("memory", "1mb", "argument must be at least 32mb, or 0 for no limit"),
            ("memory", "4gib", "argument must be a memory value, such as 100mb"),
            ("protected-mode", "maybe", "argument must be 'yes' or 'no'"),
            ("acknowledge", "never", "argument must be one of: durable, at-once"),
            ("bind", "localhost", "'localhost' is not an IP address"),
            ("password-file", "/nonexistent/file", "/nonexistent/file: No such file"),
        ] {
            let found = find(name).unwrap().set(&mut options, value).unwrap_err();
            assert!(found.starts_with(error), "{name} {value}: {found}");
        }
        assert_eq!(find("maxmemory").unwrap().set(&mut options, "1gb"), Ok(()));
        assert_eq!(options.store.memory_limit, Some(1 << 30));
    }
}
