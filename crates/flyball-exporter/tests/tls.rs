//! TLS of the server, with certificates made here: clients with and without a certificate, and
//! files that the server rejects.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::fd::BorrowedFd,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flyball_exporter::{
    Format,
    server::{Acceptor, Address, Handler, Server},
    web_config::{Guard, WebConfig},
};
use flyball_testing::skip;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    version,
};

/// Runs openssl(1). Returns `false` if it is not installed.
fn openssl(folder: &Path, words: &str) -> bool {
    match Command::new("openssl").args(words.split_whitespace()).current_dir(folder).output() {
        Ok(output) => {
            assert!(output.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(_) => false,
    }
}

/// Creates an authority, a server and a client certificate signed by it, and an unrelated key.
fn certificates(folder: &Path) -> bool {
    fs::write(folder.join("server.ext"), "subjectAltName=DNS:localhost\n").unwrap();
    fs::write(folder.join("client.ext"), "extendedKeyUsage=clientAuth\n").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    if !openssl(folder, &format!("req -x509 {key} -days 2 -subj /CN=ca -keyout ca.key -out ca.crt")) {
        return false;
    }
    for name in ["server", "client"] {
        openssl(folder, &format!("req {key} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        openssl(
            folder,
            &format!(
                "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile {name}.ext -out {name}.crt"
            ),
        );
    }
    openssl(folder, "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out other.key")
}

/// A page that is longer than a record of TLS (16 KiB) and a socket's buffer.
struct Page(Arc<AtomicBool>);

const LENGTH: usize = 3 << 20;

impl Handler for Page {
    fn metrics(&mut self, _: &str, _: Format) -> String {
        "x".repeat(LENGTH)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn tick(&mut self) -> Option<Option<Duration>> {
        (!self.0.load(Ordering::Relaxed)).then_some(Some(Duration::from_millis(20)))
    }
}

struct Running {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(config: &WebConfig) -> Running {
        let acceptor = config.tls.as_ref().map(|tls| Acceptor::new(tls).unwrap());
        let listeners = "127.0.0.1:0".parse::<Address>().unwrap().listen().unwrap();
        let address = listeners[0].to_string().parse().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let mut page = Page(Arc::clone(&ended));
        let guard = Guard::new(config.users.clone()).unwrap();
        let thread = std::thread::spawn(move || {
            Server::new(listeners, guard, acceptor, "/metrics".to_owned()).run(&mut page).unwrap();
        });
        Running { address, ended, thread: Some(thread) }
    }

    /// Returns the answer to a request, or the error.
    fn get(&self, client: ClientConfig, headers: &str) -> std::io::Result<String> {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(client), name).unwrap();
        let socket = TcpStream::connect(self.address)?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut stream = StreamOwned::new(connection, socket);
        stream.write_all(
            format!("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n").as_bytes(),
        )?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            // The server closes after the answer without a TLS message. The head has the answer's
            // length.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof && !answer.is_empty() => {}
            other => drop(other?),
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn client(
    folder: &Path,
    name: Option<&str>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca.crt")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    match name {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let chain = vec![CertificateDer::from_pem_file(folder.join(format!("{name}.crt"))).unwrap()];
            let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    }
}

const BOTH: &[&rustls::SupportedProtocolVersion] = &[&version::TLS12, &version::TLS13];

#[test]
fn answers_are_encrypted_and_clients_verified() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if !certificates(folder) {
        return skip(1, "TLS", "openssl is not installed");
    }
    let config = |more: &str| {
        let text = format!("tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n{more}");
        WebConfig::parse(&text, folder).unwrap()
    };
    let is_whole = |answer: &str| answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.len() > LENGTH;

    let server = Running::start(&config(""));
    assert!(is_whole(&server.get(client(folder, None, BOTH), "").unwrap()));
    assert!(is_whole(&server.get(client(folder, None, &[&version::TLS12]), "").unwrap()));
    // Plain HTTP to a TLS port gets no content, and the next client is answered.
    let mut plain = TcpStream::connect(server.address).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    plain.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1"), "{answer:?}");
    // Unfinished handshakes do not block others.
    let slow: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut socket = TcpStream::connect(server.address).unwrap();
            socket.write_all(b"\x16\x03\x01").unwrap();
            socket
        })
        .collect();
    assert!(is_whole(&server.get(client(folder, None, BOTH), "").unwrap()));
    drop(slow);

    let newest = Running::start(&config("  min_version: TLS13\n"));
    assert!(newest.get(client(folder, None, &[&version::TLS12]), "").is_err());
    assert!(is_whole(&newest.get(client(folder, None, BOTH), "").unwrap()));

    let ca = "  client_ca_file: ca.crt\n  client_auth_type: ";
    let strict = Running::start(&config(&format!("{ca}RequireAndVerifyClientCert\n")));
    assert!(strict.get(client(folder, None, BOTH), "").is_err());
    assert!(is_whole(&strict.get(client(folder, Some("client"), BOTH), "").unwrap()));
    let lenient = Running::start(&config(&format!("{ca}VerifyClientCertIfGiven\n")));
    assert!(is_whole(&lenient.get(client(folder, None, BOTH), "").unwrap()));

    // Passwords over TLS. The hash is of 'secret'.
    let users = "basic_auth_users:\n  prom: $2y$04$BhSgB/o39nTk95oRjFUa5.NORg0GVHpN/ZGPJyqjNEbLeYOAjv/HG\n";
    let asking = Running::start(&config(users));
    let refused = asking.get(client(folder, None, BOTH), "").unwrap();
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    let right = "Authorization: Basic cHJvbTpzZWNyZXQ=\r\n";
    assert!(is_whole(&asking.get(client(folder, None, BOTH), right).unwrap()));
    // An unmodified client by somebody else.
    let curl = Command::new("curl")
        .args(["--silent", "--show-error", "--user", "prom:secret", "--cacert"])
        .arg(folder.join("ca.crt"))
        .args(["--connect-to", &format!("localhost:1:{}", asking.address), "https://localhost:1/metrics"])
        .stderr(Stdio::inherit())
        .output();
    match curl {
        Ok(output) => assert_eq!(output.stdout.len(), LENGTH, "{:?}", output.status),
        Err(_) => skip(1, "TLS with curl", "curl is not installed"),
    }
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if !certificates(folder) {
        return skip(1, "TLS", "openssl is not installed");
    }
    fs::write(folder.join("empty.crt"), "").unwrap();
    for (cert, key, more, file) in [
        ("none.crt", "server.key", "", "none.crt"),
        ("server.crt", "none.key", "", "none.key"),
        ("server.crt", "other.key", "", "other.key"),
        ("empty.crt", "server.key", "", "empty.crt"),
        ("server.crt", "server.crt", "", "server.crt"),
        (
            "server.crt",
            "server.key",
            "  client_ca_file: none.ca\n  client_auth_type: RequireAndVerifyClientCert\n",
            "none.ca",
        ),
    ] {
        let text = format!("tls_server_config:\n  cert_file: {cert}\n  key_file: {key}\n{more}");
        let config = WebConfig::parse(&text, folder).unwrap();
        let error = Acceptor::new(config.tls.as_ref().unwrap()).unwrap_err().to_string();
        assert!(error.contains(file) && !error.contains('\n'), "{cert} {key}: {error}");
    }
}

/// An accepted password is remembered and not hashed again.
#[test]
fn a_flood_of_wrong_passwords_keeps_nobody_out() {
    // The hash of "test", with the usual cost of 10.
    let hash = bcrypt::hash_with_salt("test", 10, [7; 16]).unwrap();
    let text = format!("basic_auth_users:\n  prom: {hash}\n");
    let server = Running::start(&WebConfig::parse(&text, Path::new("/")).unwrap());
    let address = server.address;
    let get = move |credentials: &str| {
        let mut socket = TcpStream::connect(address).ok()?;
        socket.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        let head = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Basic";
        socket.write_all(format!("{head} {credentials}\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        // A rejected client may first see the connection close.
        let _ = socket.read_to_string(&mut answer);
        answer.get(9..12).map(str::to_owned)
    };
    // A single client: nothing else wakes the server.
    assert_eq!(get("cHJvbTp3cm9uZw==").as_deref(), Some("401"));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Send prom:wrong until the right password has been answered.
        let floods: Vec<_> = (0..12)
            .map(|_| {
                scope.spawn(|| {
                    let mut refused = 0;
                    while !ended.load(Ordering::Relaxed) {
                        refused += usize::from(get("cHJvbTp3cm9uZw==").as_deref() == Some("401"));
                    }
                    refused
                })
            })
            .collect();
        // prom:test, the right password.
        let right: Vec<_> = (0..10).map(|_| get("cHJvbTp0ZXN0")).collect();
        ended.store(true, Ordering::Relaxed);
        let refused: usize = floods.into_iter().map(|flood| flood.join().unwrap()).sum();
        assert!(right.iter().all(|status| status.as_deref() == Some("200")), "{right:?}");
        assert!(refused > 0);
    });
}
