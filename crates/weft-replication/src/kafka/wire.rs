//! A connection with a broker for requests that the client library does not have.
//!
//! A request is its length in four bytes, its kind and version (two bytes each), its number (four), the name of the client,
//! and the rest. An answer is its length, the number, and the rest. Numbers are big-endian. A string is its length in two
//! bytes, and its bytes; an absent one has the length -1.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rsasl::config::SASLConfig;
use rsasl::prelude::{Mechname, SASLClient};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{KafkaLogin, KafkaOptions, KafkaTls};
use crate::log::LogError;

const SASL_HANDSHAKE: (i16, i16) = (17, 1);
const SASL_AUTHENTICATE: (i16, i16) = (36, 0);
/// The longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// How connections are encrypted, and who logs in.
pub struct Security {
    pub tls: Option<Arc<ClientConfig>>,
    login: Option<KafkaLogin>,
}

impl Security {
    /// Reads the certificates.
    pub fn new(options: &KafkaOptions) -> Result<Security, LogError> {
        let tls = options.tls.as_ref().map(read_tls).transpose()?;
        Ok(Security { tls: tls.map(Arc::new), login: options.login.clone() })
    }
}

fn read_tls(tls: &KafkaTls) -> Result<ClientConfig, LogError> {
    let unreadable = |path: &std::path::Path, error: &dyn std::fmt::Display| {
        let path = path.display();
        LogError::Misconfigured(format!("cannot read a certificate or key from {path}: {error}"))
    };
    let read = |path: &std::path::Path| -> Result<Vec<CertificateDer<'static>>, LogError> {
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        let read: Vec<_> = read.map_err(|error| unreadable(path, &error))?;
        match read.is_empty() {
            true => Err(unreadable(path, &"it has none, in the format PEM")),
            false => Ok(read),
        }
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(read(&tls.authorities)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let unusable = |error: rustls::Error| LogError::Misconfigured(format!("TLS: {error}"));
    let builder = builder.map_err(unusable)?.with_root_certificates(roots);
    let Some((certificate, key)) = &tls.client else { return Ok(builder.with_no_client_auth()) };
    let certificates = read(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
    builder.with_client_auth_cert(certificates, key).map_err(unusable)
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn both(&mut self) -> &mut dyn ReadWrite {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream,
        }
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// A connection with a broker.
pub struct Wire {
    broker: String,
    stream: Stream,
}

impl Wire {
    /// Connects with a broker. Nothing on this connection takes longer than `limit`.
    ///
    /// # Errors
    /// [`LogError::Misconfigured`] if the broker and this client do not agree on certificates or the password;
    /// [`LogError::Unavailable`].
    pub fn connect(broker: &str, security: &Security, limit: Duration) -> Result<Wire, LogError> {
        let failed = |error: &io::Error| LogError::Unavailable(format!("broker {broker}: {error}"));
        let tcp = connect_tcp(broker, limit).map_err(|error| failed(&error))?;
        let stream = match &security.tls {
            None => Stream::Plain(tcp),
            Some(tls) => encrypt(broker, tcp, tls)?,
        };
        let mut wire = Wire { broker: broker.to_owned(), stream };
        if let Some(login) = &security.login {
            wire.log_in(login)?;
        }
        Ok(wire)
    }

    /// Describes an error of this connection.
    pub fn unavailable(&self, error: &io::Error) -> LogError {
        let broker = &self.broker;
        LogError::Unavailable(match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::InvalidData => {
                format!(
                    "broker {broker} has closed the connection ({error}). If that happens always, it may want TLS or a password here, or not know the request: it must be Kafka 2.8 or later"
                )
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("broker {broker} does not answer in time")
            }
            _ => format!("broker {broker}: {error}"),
        })
    }

    /// Sends a request of a kind and a version, and returns the answer behind its number.
    pub fn ask(&mut self, (kind, version): (i16, i16), body: &[u8]) -> Result<Vec<u8>, LogError> {
        self.try_ask(kind, version, body).map_err(|error| self.unavailable(&error))
    }

    fn try_ask(&mut self, kind: i16, version: i16, body: &[u8]) -> io::Result<Vec<u8>> {
        let mut request = Vec::new();
        request.extend_from_slice(&kind.to_be_bytes());
        request.extend_from_slice(&version.to_be_bytes());
        request.extend_from_slice(&1_i32.to_be_bytes());
        put_string(&mut request, "weft");
        request.extend_from_slice(body);
        let stream = self.stream.both();
        stream.write_all(&[&(request.len() as u32).to_be_bytes(), &request[..]].concat())?;
        stream.flush()?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if !(4..=ANSWER_BYTES_MAX).contains(&length) {
            let what = "the answer is not one of Kafka's";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer)?;
        answer.drain(..4);
        Ok(answer)
    }

    fn log_in(&mut self, login: &KafkaLogin) -> Result<(), LogError> {
        let name = login.mechanism.name();
        let (broker, user) = (self.broker.clone(), &login.user);
        let refused = |why: &dyn std::fmt::Display| {
            LogError::Misconfigured(format!(
                "broker {broker} does not let user `{user}` in ({name}): {why}"
            ))
        };
        let mut body = Vec::new();
        put_string(&mut body, name);
        let answer = self.ask(SASL_HANDSHAKE, &body)?;
        let (code, offered) =
            mechanisms(&mut Answer(&answer)).map_err(|error| self.unavailable(&error))?;
        if code != 0 {
            let offered = offered.join(", ");
            return Err(refused(&format_args!("it offers {offered}; set KafkaLogin::mechanism")));
        }
        let config = SASLConfig::with_credentials(None, user.clone(), login.password.clone());
        let client = SASLClient::new(config.map_err(|error| refused(&error))?);
        let mechanism = Mechname::parse(name.as_bytes()).expect("it is a mechanism's name");
        let mut session = client.start_suggested(&[mechanism]).map_err(|error| refused(&error))?;
        let mut received: Option<Vec<u8>> = None;
        loop {
            let mut message = Vec::new();
            let step = session.step(received.as_deref(), &mut message);
            let state = step.map_err(|error| refused(&error))?;
            if state.has_sent_message() {
                let body = [&(message.len() as u32).to_be_bytes(), &message[..]].concat();
                let answer = self.ask(SASL_AUTHENTICATE, &body)?;
                let (code, why, bytes) = authenticated(&mut Answer(&answer))
                    .map_err(|error| self.unavailable(&error))?;
                if code != 0 {
                    return Err(refused(&why.unwrap_or_else(|| format!("error {code}"))));
                }
                received = Some(bytes);
            }
            if state.is_finished() {
                return Ok(());
            }
        }
    }
}

fn connect_tcp(broker: &str, limit: Duration) -> io::Result<TcpStream> {
    let mut failure = io::ErrorKind::AddrNotAvailable.into();
    for address in broker.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(stream) => {
                stream.set_read_timeout(Some(limit))?;
                stream.set_write_timeout(Some(limit))?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn encrypt(broker: &str, mut tcp: TcpStream, tls: &Arc<ClientConfig>) -> Result<Stream, LogError> {
    let host = broker.rsplit_once(':').map_or(broker, |(host, _)| host).to_owned();
    let disagree = |error: &dyn std::fmt::Display| {
        LogError::Misconfigured(format!(
            "no encrypted connection with broker {broker}: {error}; check KafkaOptions::tls, and that the broker speaks TLS on this port"
        ))
    };
    let name = ServerName::try_from(host).map_err(|error| disagree(&error))?;
    let connection = ClientConnection::new(Arc::clone(tls), name);
    let mut connection = connection.map_err(|error| disagree(&error))?;
    while connection.is_handshaking() {
        if let Err(error) = connection.complete_io(&mut tcp) {
            let is_tls = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
            return Err(match is_tls {
                true => disagree(&error),
                false => LogError::Unavailable(format!("broker {broker}: {error}")),
            });
        }
    }
    Ok(Stream::Tls(Box::new(StreamOwned::new(connection, tcp))))
}

pub fn put_string(output: &mut Vec<u8>, string: &str) {
    output.extend_from_slice(&(string.len() as u16).to_be_bytes());
    output.extend_from_slice(string.as_bytes());
}

/// Returns the code of an error, and the mechanisms that a broker offers.
fn mechanisms(answer: &mut Answer<'_>) -> io::Result<(i16, Vec<String>)> {
    let code = i16::from_be_bytes(answer.array()?);
    let mut offered = Vec::new();
    for _ in 0..u32::from_be_bytes(answer.array()?) {
        offered.push(answer.string()?.unwrap_or_default());
    }
    Ok((code, offered))
}

/// Returns the code of an error, what it means, and the broker's message.
fn authenticated(answer: &mut Answer<'_>) -> io::Result<(i16, Option<String>, Vec<u8>)> {
    let code = i16::from_be_bytes(answer.array()?);
    let why = answer.string()?;
    let length = u32::from_be_bytes(answer.array()?) as usize;
    Ok((code, why, answer.take(length)?.to_vec()))
}

/// The rest of an answer.
pub struct Answer<'a>(pub &'a [u8]);

impl Answer<'_> {
    pub fn take(&mut self, count: usize) -> io::Result<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many bytes"))
    }

    pub fn string(&mut self) -> io::Result<Option<String>> {
        let Ok(length) = usize::try_from(i16::from_be_bytes(self.array()?)) else {
            return Ok(None);
        };
        Ok(Some(String::from_utf8_lossy(self.take(length)?).into_owned()))
    }

    /// Reads a number of seven bits a byte, the lowest first.
    pub fn short_number(&mut self) -> io::Result<usize> {
        let mut number = 0;
        for shift in (0..28).step_by(7) {
            let [byte] = self.array()?;
            number |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Reads a string whose length is a short number, one too high. That of an absent one is 0.
    pub fn short_string(&mut self) -> io::Result<Option<String>> {
        match self.short_number()? {
            0 => Ok(None),
            length => Ok(Some(String::from_utf8_lossy(self.take(length - 1)?).into_owned())),
        }
    }
}
