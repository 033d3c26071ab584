//! The file of `--web.config.file`, in exporter-toolkit's format (docs/web-configuration.md there):
//! users with bcrypt hashes, and TLS. Supports only mappings and plain values of YAML. Anchors and
//! aliases are rejected, because they could make a small file expand to a large one.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
};

use rustix::event::{EventfdFlags, eventfd};
use saphyr_parser::{Event, Parser};
use sha2::{Digest as _, Sha256};

/// Maximum bytes of the file.
pub const MAX_BYTES: u64 = 64 << 10;
/// Maximum number of accepted passwords that are remembered. Hashing takes tens of milliseconds by
/// design.
const MAX_KNOWN: usize = 100;

/// Contents of a web configuration file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebConfig {
    /// bcrypt hashes by user. If empty, no password is required.
    pub users: BTreeMap<String, String>,
    pub tls: Option<Tls>,
}

/// The section `tls_server_config`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
    pub client_ca_file: Option<PathBuf>,
    pub client_auth: ClientAuth,
    /// Accept only TLS 1.3.
    pub only_1_3: bool,
}

/// Which client certificates the server requires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientAuth {
    #[default]
    Nothing,
    /// `VerifyClientCertIfGiven`
    IfGiven,
    /// `RequireAndVerifyClientCert`
    Required,
}

/// Errors in the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebConfigError {
    #[error("line {line}: {what}")]
    Yaml { line: usize, what: String },
    #[error("line {line}: '{key}' is not a key that is known here; known are {known}")]
    Key { line: usize, key: String, known: &'static str },
    #[error("line {line}: {key}: '{value}' is not accepted; {expected}")]
    Value { line: usize, key: String, value: String, expected: &'static str },
    #[error("tls_server_config needs {0}")]
    Missing(&'static str),
}

const TOP: &str = "tls_server_config and basic_auth_users";
const OF_TLS: &str = "cert_file, key_file, client_ca_file, client_auth_type, min_version";

impl WebConfig {
    /// Parses the file. File names in it are relative to `folder`.
    ///
    /// # Errors
    /// Something is not YAML, not known, or not possible; nothing is ignored.
    pub fn parse(text: &str, folder: &std::path::Path) -> Result<WebConfig, WebConfigError> {
        let mut config = WebConfig::default();
        let mut has_tls = false;
        let mut tls = Tls::default();
        for Entry { line, section, key, value } in entries(text)? {
            match section.as_str() {
                "basic_auth_users" => {
                    // The same check as in bcrypt, without computing a hash.
                    if value.parse::<bcrypt::HashParts>().is_err() {
                        // Do not print the value: it may be a secret.
                        let (value, expected) =
                            ("...".to_owned(), "a bcrypt hash ($2y$10$...), as htpasswd -nBC 10 makes it");
                        return Err(WebConfigError::Value { line, key, value, expected });
                    }
                    config.users.insert(key, value);
                }
                "tls_server_config" => {
                    has_tls = true;
                    let file = || folder.join(&value);
                    match key.as_str() {
                        "cert_file" => tls.cert_file = file(),
                        "key_file" => tls.key_file = file(),
                        "client_ca_file" => tls.client_ca_file = Some(file()),
                        "client_auth_type" => tls.client_auth = client_auth(line, &value)?,
                        "min_version" => {
                            tls.only_1_3 = match value.as_str() {
                                "TLS13" => true,
                                "TLS12" => false,
                                _ => {
                                    let expected = "TLS12 or TLS13";
                                    return Err(WebConfigError::Value { line, key, value, expected });
                                }
                            }
                        }
                        _ => return Err(WebConfigError::Key { line, key, known: OF_TLS }),
                    }
                }
                _ => return Err(WebConfigError::Key { line, key: section, known: TOP }),
            }
        }
        if has_tls {
            for (file, name) in [(&tls.cert_file, "cert_file"), (&tls.key_file, "key_file")] {
                if file.as_os_str().is_empty() {
                    return Err(WebConfigError::Missing(name));
                }
            }
            if tls.client_auth != ClientAuth::Nothing && tls.client_ca_file.is_none() {
                return Err(WebConfigError::Missing("client_ca_file to verify clients with"));
            }
            config.tls = Some(tls);
        }
        Ok(config)
    }
}

fn client_auth(line: usize, value: &str) -> Result<ClientAuth, WebConfigError> {
    match value {
        "NoClientCert" => Ok(ClientAuth::Nothing),
        "VerifyClientCertIfGiven" => Ok(ClientAuth::IfGiven),
        "RequireAndVerifyClientCert" => Ok(ClientAuth::Required),
        other => Err(WebConfigError::Value {
            line,
            key: "client_auth_type".to_owned(),
            value: other.to_owned(),
            expected: "NoClientCert, VerifyClientCertIfGiven or RequireAndVerifyClientCert",
        }),
    }
}

/// `key: value` of a section.
struct Entry {
    line: usize,
    section: String,
    key: String,
    value: String,
}

/// Parses a file of two levels into entries.
fn entries(text: &str) -> Result<Vec<Entry>, WebConfigError> {
    let mut entries = Vec::new();
    let (mut section, mut key): (Option<String>, Option<String>) = (None, None);
    let mut depth = 0;
    let mut seen = BTreeSet::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| WebConfigError::Yaml {
            line: error.marker().line(),
            what: error.info().to_owned(),
        })?;
        let line = span.start.line();
        let fail = |what: &str| Err(WebConfigError::Yaml { line, what: what.to_owned() });
        match event {
            Event::Scalar(value, _, anchor, _) => {
                let value = value.into_owned();
                if anchor != 0 {
                    return fail("anchors are not used here");
                }
                match (depth, &section, &key) {
                    (1, None, _) => section = Some(value),
                    // `section:` without entries.
                    (1, Some(_), _) if value.is_empty() || value == "~" => section = None,
                    (2, Some(_), None) => key = Some(value),
                    (2, Some(of), Some(name)) => {
                        if !seen.insert((of.clone(), name.clone())) {
                            return fail("the same key twice");
                        }
                        entries.push(Entry { line, section: of.clone(), key: name.clone(), value });
                        key = None;
                    }
                    // An empty file is one empty value.
                    (0, ..) if value.is_empty() || value == "~" => {}
                    _ => return fail("expected 'section:' with lines 'key: value' below it"),
                }
            }
            Event::MappingStart(0, _) if depth < 2 && (depth == 0 || section.is_some()) => depth += 1,
            Event::MappingStart(..) | Event::SequenceStart(..) => {
                return fail("expected 'section:' with lines 'key: value' below it");
            }
            Event::MappingEnd => {
                depth -= 1;
                if depth == 1 {
                    section = None;
                }
            }
            Event::Alias(_) => return fail("aliases are not used here"),
            _ => {}
        }
    }
    Ok(entries)
}

/// Decides whether a client gets an answer.
#[derive(Debug)]
pub struct Guard {
    users: BTreeMap<String, String>,
    /// SHA-256 of accepted users and passwords.
    known: BTreeSet<[u8; 32]>,
    /// The password that a thread is hashing. One at a time, so that a flood of passwords costs at
    /// most one CPU and delays no scrape.
    hashed: Option<Hashed>,
    /// Written when a hash is done.
    done: Arc<OwnedFd>,
}

/// A password that is being hashed.
#[derive(Debug)]
struct Hashed {
    /// The connection that sent it.
    number: u64,
    digest: [u8; 32],
    is_right: mpsc::Receiver<bool>,
}

/// Whether a client gets an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    Refused,
    /// Its password must be hashed first.
    Unknown,
}

/// A hash of cost 10 for unknown users, so that they take as long as known ones.
const OF_NO_ONE: &str = "$2b$10$7EqJtq98hPqEX7fNZaFWoOhi5BXX4Z1M1kkYlv1SCgQ3yDfnIbV1S";

impl Guard {
    /// # Errors
    /// The kernel is out of descriptors.
    pub fn new(users: BTreeMap<String, String>) -> io::Result<Guard> {
        let done = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Guard { users, known: BTreeSet::new(), hashed: None, done: Arc::new(done) })
    }

    /// Checks a client's user and password. Without users, everyone is admitted.
    pub fn judge(&self, given: Option<&(String, String)>) -> Admission {
        match given {
            _ if self.users.is_empty() => Admission::Admitted,
            None => Admission::Refused,
            Some(given) if self.known.contains(&digest(given)) => Admission::Admitted,
            Some(_) => Admission::Unknown,
        }
    }

    /// Returns whether a password can be hashed now.
    pub fn is_free(&self) -> bool {
        self.hashed.is_none()
    }

    /// Starts hashing the password from the connection with this number.
    pub fn hash(&mut self, number: u64, given: &(String, String)) {
        let (user, password) = given;
        let (result, is_right) = mpsc::channel();
        let (own, password, done) = (self.users.get(user).cloned(), password.clone(), Arc::clone(&self.done));
        thread::spawn(move || {
            let hash = own.as_deref().unwrap_or(OF_NO_ONE);
            let is_right = bcrypt::verify(password, hash).unwrap_or(false) && own.is_some();
            // Nobody receives the result if the server has stopped.
            let _ = result.send(is_right);
            let _ = rustix::io::write(&done, &1_u64.to_ne_bytes());
        });
        self.hashed = Some(Hashed { number, digest: digest(given), is_right });
    }

    /// Returns the connection whose password has been hashed, and the result.
    pub fn verdict(&mut self) -> Option<(u64, Admission)> {
        let is_right = match self.hashed.as_ref()?.is_right.try_recv() {
            Err(mpsc::TryRecvError::Empty) => return None,
            // The thread ended without a result.
            Err(mpsc::TryRecvError::Disconnected) => false,
            Ok(is_right) => is_right,
        };
        let Hashed { number, digest, .. } = self.hashed.take()?;
        // Reset the counter, so that it does not wake the server again.
        let _ = rustix::io::read(&self.done, &mut [0; 8]);
        if !is_right {
            return Some((number, Admission::Refused));
        }
        // There are only more accepted passwords than this if users changed, which needs a restart.
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(digest);
        Some((number, Admission::Admitted))
    }
}

impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }
}

fn digest((user, password): &(String, String)) -> [u8; 32] {
    let mut digest = Sha256::new();
    // The length distinguishes `a` + `bc` from `ab` + `c`.
    digest.update((user.len() as u64).to_le_bytes());
    digest.update(user.as_bytes());
    digest.update(password.as_bytes());
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Result<WebConfig, WebConfigError> {
        WebConfig::parse(text, Path::new("/etc/flyball"))
    }

    /// Hash of the password `test`, cost 4.
    const HASH: &str = "$2b$04$fXf7b8DJNVnBnKBJgZ0AvuS6ocBNhGuMr9VPyXC3C8zWT7ssIbsWW";

    #[test]
    fn users_and_tls() {
        let text = format!(
            "# as exporter-toolkit\ntls_server_config:\n  cert_file: web.crt\n  key_file: /k/web.key\n  min_version: TLS13\nbasic_auth_users:\n  prom: {HASH}\n"
        );
        let config = parse(&text).unwrap();
        let tls = config.tls.unwrap();
        assert_eq!(tls.cert_file, Path::new("/etc/flyball/web.crt"));
        assert_eq!((tls.key_file.to_str(), tls.only_1_3), (Some("/k/web.key"), true));
        assert_eq!(config.users["prom"], HASH);
        for empty in ["", "# nothing\n", "basic_auth_users:\n", "{}"] {
            assert_eq!(parse(empty), Ok(WebConfig::default()), "{empty}");
        }
    }

    #[test]
    fn nothing_is_ignored() {
        for (text, line) in [
            ("basic_auth_user:\n  a: b\n", 2),
            ("basic_auth_users:\n  prom: secret\n", 2),
            ("tls_server_config:\n  cert: a\n", 2),
            ("tls_server_config:\n  client_auth_type: Any\n", 2),
            ("tls_server_config: [a]\n", 1),
            ("basic_auth_users: &a\n  b: c\n", 2),
            ("- a\n", 1),
            ("a: *b\n", 1),
            ("basic_auth_users:\n  a:\n    b: c\n", 3),
        ] {
            match parse(text) {
                Err(
                    WebConfigError::Yaml { line: at, .. }
                    | WebConfigError::Key { line: at, .. }
                    | WebConfigError::Value { line: at, .. },
                ) => assert!(at.abs_diff(line) <= 1, "{text}: line {at}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert_eq!(parse("tls_server_config:\n  cert_file: a\n"), Err(WebConfigError::Missing("key_file")));
        // Never print what may be a password.
        let error = parse("basic_auth_users:\n  prom: secret\n").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn passwords() {
        let hash = bcrypt::hash_with_salt("test", 4, [7; 16]).unwrap().to_string();
        let mut guard = Guard::new([("prom".to_owned(), hash)].into()).unwrap();
        let of = |user: &str, password: &str| (user.to_owned(), password.to_owned());
        let mut verdict = |given| {
            assert_eq!(guard.judge(Some(&given)), Admission::Unknown);
            guard.hash(7, &given);
            loop {
                if let Some(verdict) = guard.verdict() {
                    return verdict;
                }
                thread::yield_now();
            }
        };
        assert_eq!(verdict(of("prom", "tes")), (7, Admission::Refused));
        assert_eq!(verdict(of("other", "test")), (7, Admission::Refused));
        assert_eq!(verdict(of("prom", "test")), (7, Admission::Admitted));
        assert_eq!(guard.judge(Some(&of("prom", "test"))), Admission::Admitted);
        assert_eq!(guard.judge(Some(&of("other", "test"))), Admission::Unknown);
        assert_eq!(guard.judge(None), Admission::Refused);
        assert_eq!(guard.known.len(), 1);
        assert_eq!(Guard::new(BTreeMap::new()).unwrap().judge(None), Admission::Admitted);
    }
}
