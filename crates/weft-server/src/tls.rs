//! TLS: the certificates, and how connections begin.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use std::{fmt, io};

use crate::socket::Socket;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a client has to agree on keys.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Files of certificates, in the format PEM.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and the authority.
    pub certificate: Option<PathBuf>,
    /// The key of the certificate.
    pub key: Option<PathBuf>,
    /// The authorities, one of which must have signed each client's certificate. Without it, clients need none.
    pub client_authority: Option<PathBuf>,
}

/// What the connections of a server need for TLS.
#[derive(Clone)]
pub struct Tls {
    files: TlsFiles,
    config: Arc<RwLock<Arc<ServerConfig>>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The keys are not for any log.
        formatter.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files. Returns `None` if no file is named.
    ///
    /// # Errors
    /// A file is missing, or cannot be read, or does not fit the others.
    pub fn open(files: &TlsFiles) -> Result<Option<Self>, String> {
        match files {
            TlsFiles { certificate: None, key: None, client_authority: None } => Ok(None),
            files => {
                let config = Arc::new(RwLock::new(read(files)?));
                Ok(Some(Tls { files: files.clone(), config }))
            }
        }
    }

    /// Reads the files again, for connections that begin from now on.
    ///
    /// # Errors
    /// As [`Tls::open`]. The certificates before are used then.
    pub fn reload(&self) -> Result<(), String> {
        let config = read(&self.files)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Agrees with a client on keys.
    ///
    /// # Errors
    /// The client does not speak TLS, or has no certificate that is needed, or takes too long.
    pub async fn accept(self, socket: Socket) -> io::Result<TlsStream<Socket>> {
        let config = Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner));
        tokio::time::timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(config).accept(socket)).await?
    }
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>, String> {
    let (Some(certificate), Some(key)) = (&files.certificate, &files.key) else {
        return Err("TLS needs both --tls-certificate and --tls-key".to_owned());
    };
    let certificates = read_certificates(certificate)?;
    let private_key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| format!("{}: no key in PEM format: {error}", key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder =
        builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = match &files.client_authority {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let wrong = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
            let mut roots = RootCertStore::empty();
            for certificate in read_certificates(path)? {
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|error| wrong(&error))?)
        }
    };
    let config = builder.with_single_cert(certificates, private_key).map_err(|error| {
        format!("{} does not fit {}: {error}", key.display(), certificate.display())
    })?;
    Ok(Arc::new(config))
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let certificates: Vec<_> = read.map_err(|error| format!("{}: {error}", path.display()))?;
    match certificates.is_empty() {
        true => Err(format!("{}: no certificate in PEM format", path.display())),
        false => Ok(certificates),
    }
}
