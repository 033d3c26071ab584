//! HTTPS with rustls: certificates from the configured files, and a nonblocking session per
//! connection.

use std::{
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    RootCertStore, ServerConfig, ServerConnection,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
    version,
};

use super::socket::Socket;
use crate::web_config::{ClientAuth, Tls};

/// Creates sessions with the server's certificate.
#[derive(Debug, Clone)]
pub struct Acceptor(Arc<ServerConfig>);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}: {error}", path.display())]
    File { path: PathBuf, error: String },
    #[error("{} and {} do not make a server: {error}", cert.display(), key.display())]
    Pair { cert: PathBuf, key: PathBuf, error: String },
    #[error("clients cannot be verified: {0}")]
    Clients(String),
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fail = |error: String| TlsError::File { path: path.to_owned(), error };
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| fail(error.to_string()))?.collect();
    let found = found.map_err(|error| fail(error.to_string()))?;
    if found.is_empty() { Err(fail("there is no certificate in it".to_owned())) } else { Ok(found) }
}

impl Acceptor {
    /// Reads the files and checks that they match.
    ///
    /// # Errors
    /// A file cannot be read or is not valid, or the key does not match the certificate.
    pub fn new(tls: &Tls) -> Result<Acceptor, TlsError> {
        // ring needs only a C compiler to build; aws-lc needs cmake as well.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions: &[&rustls::SupportedProtocolVersion] =
            if tls.only_1_3 { &[&version::TLS13] } else { &[&version::TLS12, &version::TLS13] };
        let pair = |error: rustls::Error| TlsError::Pair {
            cert: tls.cert_file.clone(),
            key: tls.key_file.clone(),
            error: error.to_string(),
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(pair)?;
        let builder = match (&tls.client_ca_file, tls.client_auth) {
            (Some(file), auth) if auth != ClientAuth::Nothing => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(file)? {
                    roots.add(certificate).map_err(|error| TlsError::Clients(error.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier =
                    if auth == ClientAuth::IfGiven { verifier.allow_unauthenticated() } else { verifier };
                builder.with_client_cert_verifier(
                    verifier.build().map_err(|error| TlsError::Clients(error.to_string()))?,
                )
            }
            _ => builder.with_no_client_auth(),
        };
        let chain = certificates(&tls.cert_file)?;
        let key = PrivateKeyDer::from_pem_file(&tls.key_file)
            .map_err(|error| TlsError::File { path: tls.key_file.clone(), error: error.to_string() })?;
        Ok(Acceptor(Arc::new(builder.with_single_cert(chain, key).map_err(pair)?)))
    }
}

/// The TLS session of one connection.
#[derive(Debug)]
pub(super) struct Session(Box<ServerConnection>);

impl Session {
    pub(super) fn new(acceptor: &Acceptor) -> io::Result<Session> {
        let connection = ServerConnection::new(Arc::clone(&acceptor.0)).map_err(io::Error::other)?;
        Ok(Session(Box::new(connection)))
    }

    pub(super) fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    pub(super) fn read(&mut self, socket: &mut Socket, buffer: &mut [u8]) -> io::Result<usize> {
        rustls::Stream::new(&mut *self.0, socket).read(buffer)
    }

    /// Writes. If everything was accepted before, call with empty `bytes` to send what is already
    /// encrypted.
    pub(super) fn write(&mut self, socket: &mut Socket, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            while self.0.wants_write() {
                self.0.write_tls(socket)?;
            }
            return Ok(0);
        }
        rustls::Stream::new(&mut *self.0, socket).write(bytes)
    }
}
