//! Copies the data of a Redis into a server: of one that runs, key by key, or of a file that it has saved.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Client, ClientTlsConfig, Cmd, Connection, TlsCertificates, Value};

use crate::import_streams;
use crate::rdb::{self, file::Part};
use crate::reply::{Reply, double_text};
use crate::server::Server;
use crate::session::Session;
use crate::tables::SPACES;

/// How many keys are read together from a server that runs.
const KEYS_PER_READ: usize = 64;
/// How often keys are read again if the type of one has changed since it was asked for.
const READS_MAX: usize = 10;
/// How many elements are written in one transaction.
const ELEMENTS_PER_WRITE: usize = 512;
/// How long the server has to accept the connection, and to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What an import has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Keys that are there now.
    pub keys: u64,
    /// Keys that were left out, because their types are not copied: those of modules.
    pub skipped: u64,
    /// Fields of hashes that expire in the file, and do not any more.
    pub lasting_fields: u64,
}

/// How an import reads its source.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Whether fields of hashes that expire in the source, as in Redis 7.4, become fields that do not. Otherwise the import ends
    /// when it finds such a field.
    pub keeps_fields: bool,
    /// The certificates of the authorities that may have signed the one of the source (PEM), in place of those of the system.
    pub authorities: Option<Vec<u8>>,
    /// A certificate and its key (PEM), if the source asks clients for one.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
}

/// How commands of Redis make a value.
enum Content {
    /// A command that adds elements.
    Elements(&'static str, Vec<Vec<u8>>),
    /// Several commands, with all their arguments.
    Commands(Vec<Vec<Vec<u8>>>),
}

/// A key with its value.
struct Entry {
    key: Vec<u8>,
    content: Content,
    /// When the key expires, in milliseconds since 1970.
    expires_at: Option<u64>,
}

/// Copies all keys. `source` is an address such as `redis://HOST:PORT`, or `rediss://HOST:PORT` for TLS, with a numbered database behind it if only that
/// one is copied, or the path of an RDB file. A key that the server has already is replaced.
///
/// From a server that runs, each key is copied as it is at one moment, and different keys at different moments. An RDB
/// file has all keys as they were at one.
///
/// # Errors
/// The source cannot be read, or the server cannot keep what it has.
pub fn import(
    server: &Arc<Server>,
    source: &str,
    options: &ImportOptions,
) -> Result<Imported, String> {
    let mut target = Target::new(server)?;
    match source.contains("://") {
        true => copy_server(source, options, &mut target)?,
        false => copy_file(Path::new(source), options, &mut target)?,
    }
    Ok(target.imported)
}

/// A session that writes keys.
struct Target {
    session: Session,
    reply: Reply,
    imported: Imported,
}

impl Drop for Target {
    fn drop(&mut self) {
        self.session.server.clients.remove(&self.session.client);
    }
}

impl Target {
    fn new(server: &Arc<Server>) -> Result<Self, String> {
        let addresses = ("import".to_owned(), String::new());
        let client = server.clients.add(addresses, u64::MAX).ok_or("the server stops")?;
        let session = Session::new(Arc::clone(server), client);
        let reply = Reply::new(server.options.output_bytes);
        Ok(Target { session, reply, imported: Imported::default() })
    }

    fn run(&mut self, arguments: &[&[u8]]) -> Result<(), String> {
        self.session.run(arguments, &mut self.reply);
        let outcome = match self.reply.bytes().strip_prefix(b"-") {
            Some(error) => Err(String::from_utf8_lossy(error).trim().to_owned()),
            None => Ok(()),
        };
        self.reply.clear();
        outcome
    }

    fn select(&mut self, space: u64) -> Result<(), String> {
        if space >= u64::from(SPACES) {
            return Err(format!(
                "the source has a database {space}, and Weft has those from 0 to {}",
                SPACES - 1
            ));
        }
        self.run(&[b"SELECT", space.to_string().as_bytes()])
    }

    fn write(&mut self, entry: &Entry) -> Result<(), String> {
        let told = |error: String| format!("the key '{}': {error}", entry.key.escape_ascii());
        match &entry.content {
            // The key is gone.
            Content::Elements(_, elements) if elements.is_empty() => return Ok(()),
            Content::Elements(command, elements) => {
                self.run(&[b"DEL", &entry.key]).map_err(told)?;
                for elements in elements.chunks(ELEMENTS_PER_WRITE) {
                    let mut arguments = vec![command.as_bytes(), &entry.key];
                    arguments.extend(elements.iter().map(Vec::as_slice));
                    self.run(&arguments).map_err(told)?;
                }
            }
            Content::Commands(commands) => {
                self.run(&[b"DEL", &entry.key]).map_err(told)?;
                for command in commands {
                    let arguments: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
                    self.run(&arguments).map_err(told)?;
                }
            }
        }
        if let Some(expires_at) = entry.expires_at {
            self.run(&[b"PEXPIREAT", &entry.key, expires_at.to_string().as_bytes()])
                .map_err(told)?;
        }
        self.imported.keys += 1;
        Ok(())
    }
}

/// What to do if fields of hashes expire.
const WITHOUT_TIMES: &str = "which fields do not in Weft: let the key expire in their place, or give --keep-fields to keep them for ever";

// ---- files ----------------------------------------------------------------------------------------

fn copy_file(path: &Path, options: &ImportOptions, target: &mut Target) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| told(&error))?;
    let mut file = rdb::file::File::open(BufReader::new(file)).map_err(|error| told(&error))?;
    while let Some(part) = file.next().map_err(|error| told(&error))? {
        match part {
            Part::Space(space) => target.select(space)?,
            Part::Library(code) => target
                .run(&[b"FUNCTION", b"LOAD", b"REPLACE", &code])
                .map_err(|error| format!("a library of functions: {error}"))?,
            Part::Key(_, None, _) => target.imported.skipped += 1,
            Part::Key(key, Some(value), expires_at) => {
                let (value, expiring) = value.at(now());
                if expiring > 0 && !options.keeps_fields {
                    let key = key.escape_ascii();
                    return Err(format!(
                        "{expiring} fields of the hash '{key}' expire, {WITHOUT_TIMES}"
                    ));
                }
                target.imported.lasting_fields += expiring as u64;
                let content = content_of_file(&key, value);
                target.write(&Entry { key, content, expires_at })?;
            }
        }
    }
    Ok(())
}

/// Returns how a value of a file is made by commands.
fn content_of_file(key: &[u8], value: rdb::Value) -> Content {
    let flat = |pairs: Vec<(Vec<u8>, Vec<u8>)>| {
        pairs.into_iter().flat_map(|(first, second)| [first, second]).collect()
    };
    match value {
        rdb::Value::Text(text) => Content::Elements("SET", vec![text]),
        rdb::Value::List(texts) => Content::Elements("RPUSH", texts),
        rdb::Value::Set(texts) => Content::Elements("SADD", texts),
        rdb::Value::Hash(fields) => Content::Elements("HSET", flat(fields)),
        rdb::Value::TimedHash(fields) => {
            let pairs = fields.into_iter().map(|field| (field.name, field.value));
            Content::Elements("HSET", flat(pairs.collect()))
        }
        rdb::Value::SortedSet(members) => {
            let scored = members.into_iter();
            let scored = scored.map(|(member, score)| (double_text(score).into_bytes(), member));
            Content::Elements("ZADD", flat(scored.collect()))
        }
        rdb::Value::Stream(stream) => Content::Commands(import_streams::commands_of(key, &stream)),
    }
}

// ---- servers --------------------------------------------------------------------------------------

fn copy_server(url: &str, options: &ImportOptions, target: &mut Target) -> Result<(), String> {
    let told = |error: redis::RedisError| format!("the server to copy from: {error}");
    let client = client_of(url, options).map_err(told)?;
    let mut source = client.get_connection_with_timeout(PATIENCE).map_err(told)?;
    source.set_read_timeout(Some(PATIENCE)).map_err(told)?;
    let only: Option<u64> = url.split('/').nth(3).and_then(|space| space.parse().ok());
    let info: String = redis::cmd("INFO").arg("keyspace").query(&mut source).map_err(told)?;
    let mut spaces = spaces_of(&info);
    if let Some(only) = only {
        spaces.retain(|space| space.number == only);
    }
    let timed: u64 = spaces.iter().map(|space| space.timed_hashes).sum();
    if timed > 0 && !options.keeps_fields {
        return Err(format!(
            "{timed} hashes of the source have fields that expire, {WITHOUT_TIMES}"
        ));
    }
    // Servers before Redis 7 have none.
    if only.is_none()
        && let Ok(functions) = redis::cmd("FUNCTION").arg("DUMP").query::<Vec<u8>>(&mut source)
    {
        target
            .run(&[b"FUNCTION", b"RESTORE", &functions, b"REPLACE"])
            .map_err(|error| format!("the functions: {error}"))?;
    }
    for space in spaces.iter().map(|space| space.number) {
        target.select(space)?;
        redis::cmd("SELECT").arg(space).exec(&mut source).map_err(told)?;
        let mut cursor = 0_u64;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("COUNT").arg(KEYS_PER_READ);
            let (next, keys): (u64, Vec<Vec<u8>>) = scan.query(&mut source).map_err(told)?;
            for keys in keys.chunks(KEYS_PER_READ) {
                let (entries, skipped) = read(&mut source, keys).map_err(told)?;
                entries.iter().try_for_each(|entry| target.write(entry))?;
                target.imported.skipped += skipped;
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
    }
    Ok(())
}

/// Returns the client of a source. With `rediss://` the source has to show a certificate.
fn client_of(url: &str, options: &ImportOptions) -> redis::RedisResult<Client> {
    if !url.starts_with("rediss://") {
        return Client::open(url);
    }
    // The other libraries of the server name theirs. The one of the process may have been set by the program.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client_tls = options.certificate.clone();
    let client_tls =
        client_tls.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    let root_cert = options.authorities.clone();
    Client::build_with_tls(url, TlsCertificates { client_tls, root_cert })
}

/// A numbered database of the source.
#[derive(Debug, PartialEq, Eq)]
struct Space {
    number: u64,
    /// How many hashes have fields that expire.
    timed_hashes: u64,
}

/// Returns the numbered databases that have keys, of the reply to `INFO keyspace`.
fn spaces_of(info: &str) -> Vec<Space> {
    let space = |line: &str| {
        let (number, counts) = line.strip_prefix("db")?.split_once(':')?;
        let mut counts = counts.trim_end().split(',');
        let timed = counts.find_map(|count| count.strip_prefix("subexpiry=")?.parse().ok());
        Some(Space { number: number.parse().ok()?, timed_hashes: timed.unwrap_or(0) })
    };
    info.lines().filter_map(space).collect()
}

/// Reads keys in one transaction, after their types. If a type has changed in between, reads them again.
fn read(source: &mut Connection, keys: &[Vec<u8>]) -> redis::RedisResult<(Vec<Entry>, u64)> {
    let mut reads = 0;
    loop {
        reads += 1;
        let mut types = redis::pipe();
        for key in keys {
            types.cmd("TYPE").arg(key);
        }
        let types: Vec<String> = types.query(source)?;
        let mut pipe = redis::pipe();
        pipe.atomic();
        let mut found = Vec::new();
        for (key, kind) in keys.iter().zip(&types) {
            if let Some((read, command)) = command_of(kind, key) {
                pipe.cmd("PTTL").arg(key).add_command(read);
                found.push((key, command));
            }
        }
        let skipped = types.iter().filter(|kind| *kind != "none").count() - found.len();
        if found.is_empty() {
            return Ok((Vec::new(), skipped as u64));
        }
        match pipe.query::<Vec<Value>>(source) {
            Ok(values) => {
                // The time that is left, and the value, of each key in turn.
                let mut values = values.into_iter();
                let entries = found.into_iter().map_while(|(key, command)| {
                    let (left, value) = (values.next()?, values.next()?);
                    let left = match left {
                        Value::Int(left) => u64::try_from(left).ok(),
                        _ => None,
                    };
                    Some(Entry {
                        key: key.clone(),
                        content: content_of(key, value, command),
                        expires_at: left.map(|left| now() + left),
                    })
                });
                return Ok((entries.collect(), skipped as u64));
            }
            Err(error) if reads == READS_MAX => return Err(error),
            Err(error) if error.is_io_error() || error.is_connection_dropped() => {
                return Err(error);
            }
            Err(_) => {}
        }
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the command that reads a value of this type, and the one that writes it.
fn command_of(kind: &str, key: &[u8]) -> Option<(Cmd, &'static str)> {
    if kind == "stream" {
        return Some((import_streams::read(key), "XADD"));
    }
    let (name, rest, command): (_, &[&str], _) = match kind {
        "string" => ("GET", &[], "SET"),
        "list" => ("LRANGE", &["0", "-1"], "RPUSH"),
        "set" => ("SMEMBERS", &[], "SADD"),
        "hash" => ("HGETALL", &[], "HSET"),
        "zset" => ("ZRANGE", &["0", "-1", "WITHSCORES"], "ZADD"),
        _ => return None,
    };
    let mut read = redis::cmd(name);
    read.arg(key);
    rest.iter().for_each(|argument| {
        read.arg(argument);
    });
    Some((read, command))
}

/// Returns how a value is made by commands, of which this is the one that adds elements.
fn content_of(key: &[u8], value: Value, command: &'static str) -> Content {
    match import_streams::stream_of(&value).filter(|_| command == "XADD") {
        Some(stream) => Content::Commands(import_streams::commands_of(key, &stream)),
        None => Content::Elements(command, elements_of(value, command)),
    }
}

/// Returns the arguments for the command that writes the value.
fn elements_of(value: Value, command: &str) -> Vec<Vec<u8>> {
    let values = match value {
        Value::BulkString(text) => return vec![text],
        Value::Array(values) => values,
        _ => return Vec::new(),
    };
    let texts = values.into_iter().filter_map(|value| match value {
        Value::BulkString(text) => Some(text),
        _ => None,
    });
    let mut texts: Vec<_> = texts.collect();
    if command == "ZADD" {
        // The score comes first.
        texts.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_with_fields_that_expire_are_counted() {
        let info = "# Keyspace\r\ndb0:keys=3,expires=0,avg_ttl=0\r\ndb7:keys=2,expires=1,avg_ttl=5,subexpiry=2\r\n";
        let expected =
            [(0, 0), (7, 2)].map(|(number, timed_hashes)| Space { number, timed_hashes });
        assert_eq!(spaces_of(info), expected);
    }
}
