//! TLS: with redis-py, if Python has it or can install it, and with certificates of clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use weft_server::{ListenOptions, Options, TlsFiles};

use crate::client::TestServer;
use crate::durable::{Directory, Program};
use crate::missing::skip;

/// An authority, and certificates that it has signed, as files.
struct Certificates {
    authority: PathBuf,
    server: (PathBuf, PathBuf),
    client: (PathBuf, PathBuf),
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

impl Certificates {
    fn new(folder: &Path) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let sign = |name: &str| {
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &authority).unwrap();
            (
                write(folder, &format!("{name}.pem"), &certificate.pem()),
                write(folder, &format!("{name}.key"), &key.serialize_pem()),
            )
        };
        let (server, client) = (sign("server"), sign("client"));
        Certificates { authority: write(folder, "authority.pem", &authority.pem()), server, client }
    }

    fn files(&self, asks_clients: bool) -> TlsFiles {
        TlsFiles {
            certificate: Some(self.server.0.clone()),
            key: Some(self.server.1.clone()),
            client_authority: asks_clients.then(|| self.authority.clone()),
        }
    }

    fn connect(
        &self,
        address: SocketAddr,
        certificate: Option<&(PathBuf, PathBuf)>,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.authority).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let certificate = CertificateDer::from_pem_file(certificate).unwrap();
                let key = PrivateKeyDer::from_pem_file(key).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(connection, TcpStream::connect(address).unwrap())
    }
}

fn start(certificates: &Certificates, asks_clients: bool) -> TestServer {
    let listen =
        ListenOptions { tls: certificates.files(asks_clients), ..ListenOptions::default() };
    TestServer::with(Options { listen, ..Options::default() })
}

/// Says a line, and returns what comes back before the server closes the connection.
fn say(mut stream: impl Read + Write, line: &str) -> Result<String, std::io::Error> {
    stream.write_all(format!("{line}\r\nQUIT\r\n").as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

#[test]
fn clients_connect_by_tls() {
    let directory = Directory::new("tls");
    let certificates = Certificates::new(&directory.0);
    let server = start(&certificates, false);
    let reply = say(certificates.connect(server.tls_address, None), "PING").unwrap();
    assert_eq!(reply, "+PONG\r\n+OK\r\n");
    // A reply that is longer than what the socket and the encryption hold.
    let value = vec![b'x'; 8 << 20];
    assert_eq!(server.client().call(&[b"SET", b"k", &value]).shown(), "+OK");
    let reply = say(certificates.connect(server.tls_address, None), "GET k").unwrap();
    assert!(reply.starts_with("$8388608\r\nxxx") && reply.ends_with("xxx\r\n+OK\r\n"));
    // A client that does not speak TLS, and others are served.
    let _ = say(TcpStream::connect(server.tls_address).unwrap(), "PING");
    assert_eq!(server.client().say("PING"), "+PONG");
    // A client that connects and says nothing counts, and is gone when the server stops.
    let silent = TcpStream::connect(server.tls_address).unwrap();
    let mut client = server.client();
    while !client.say("INFO clients").contains("connected_clients:2") {}
    drop(server);
    drop(silent);
}

#[test]
fn clients_need_a_certificate_if_there_is_an_authority() {
    let directory = Directory::new("tls-clients");
    let certificates = Certificates::new(&directory.0);
    let server = start(&certificates, true);
    say(certificates.connect(server.tls_address, None), "PING").unwrap_err();
    let known = certificates.connect(server.tls_address, Some(&certificates.client));
    assert_eq!(say(known, "PING").unwrap(), "+PONG\r\n+OK\r\n");
    let strangers = Directory::new("tls-strangers");
    let strangers = Certificates::new(&strangers.0);
    let unknown = certificates.connect(server.tls_address, Some(&strangers.client));
    say(unknown, "PING").unwrap_err();
}

#[test]
fn wrong_certificates_are_named() {
    let directory = Directory::new("tls-wrong");
    let certificates = Certificates::new(&directory.0);
    let other = Directory::new("tls-other");
    let other = Certificates::new(&other.0);
    let files = certificates.files(false);
    for (files, expected) in [
        (TlsFiles { key: None, ..files.clone() }, "TLS needs both"),
        (
            TlsFiles { key: Some(files.certificate.clone().unwrap()), ..files.clone() },
            "no key in PEM format",
        ),
        (
            TlsFiles { certificate: Some(files.key.clone().unwrap()), ..files.clone() },
            "no certificate in PEM format",
        ),
        (TlsFiles { certificate: Some("/nonexistent".into()), ..files.clone() }, "/nonexistent"),
        (TlsFiles { key: Some(other.server.1.clone()), ..files }, "does not fit"),
    ] {
        let listen = ListenOptions { tls: files, ..ListenOptions::default() };
        let options = Options { listen, ..Options::default() };
        let error = weft_server::Server::open(options).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn clients_of_redis_connect_by_tls() {
    let directory = Directory::new("tls-cli");
    let certificates = Certificates::new(&directory.0);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (certificate, key) = (text(&certificates.server.0), text(&certificates.server.1));
    let (authority, port) = (text(&certificates.authority), port.to_string());
    let arguments = ["--tls-port", &port, "--tls-certificate", &certificate, "--tls-key", &key];
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-server"));
    let _program = Program::start_with(&mut command, &directory.0, &arguments);
    let cli = ["-h", "localhost", "-p", &port, "--tls", "--cacert", &authority, "set", "k", "v"];
    match Command::new("redis-cli").args(cli).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(said.trim(), "OK", "{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(_) => skip("redis-cli", "redis-tools"),
    }
    let python = format!(
        "import redis\nclient = redis.Redis('localhost', {port}, ssl=True, ssl_ca_certs='{authority}')\n\
         assert client.set('k', 'v') and client.get('k') == b'v'\n\
         with client.pipeline() as pipe:\n    print(pipe.incr('n').incr('n').execute())"
    );
    match Command::new("python3").args(["-c", "import redis"]).output() {
        Ok(found) if found.status.success() => {
            let output = Command::new("python3").args(["-c", &python]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(said.trim(), "[1, 2]", "{}", String::from_utf8_lossy(&output.stderr));
        }
        _ => skip("redis-py for Python 3", "python3-redis"),
    }
}

#[test]
fn a_source_of_an_import_shows_its_certificate() {
    let directory = Directory::new("tls-import");
    let certificates = Certificates::new(&directory.0);
    let server = start(&certificates, true);
    let mut client = server.client();
    for line in ["SET text value", "HSET hash a 1 b 2", "EXPIRE hash 1000"] {
        client.say(line);
    }
    let source = format!("rediss://localhost:{}", server.tls_address.port());
    let import = |options: &[(&str, &Path)]| {
        let target = directory.0.join("data");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft-server"));
        command.args(["import", &source, "--directory"]).arg(target);
        for (name, path) in options {
            command.arg(name).arg(path);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let authority = ("--source-authority", &*certificates.authority);
    let (certificate, key) = &certificates.client;
    let certificate = [("--source-certificate", &**certificate), ("--source-key", &**key)];
    let (is_ok, said) = import(&[authority, certificate[0], certificate[1]]);
    assert!(is_ok && said.contains("\"keys\":2"), "{said}");
    // The source asks for a certificate, and no authority of the system has signed its own.
    for options in [&[authority][..], &certificate] {
        let (is_ok, said) = import(options);
        assert!(!is_ok && said.contains("the server to copy from"), "{said}");
    }
}
