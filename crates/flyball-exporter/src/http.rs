//! Parses the head of an HTTP request from the network, and writes the head of an answer.
//!
//! httparse (hyper's parser, without dependencies) reads the lines. A complete HTTP library would
//! bring a runtime (hyper), or threads without a time limit on a head (tiny_http), to serve three
//! pages without bodies. `server.rs` does everything else.

use crate::Format;

/// Maximum bytes of a request's head.
pub const MAX_HEAD: usize = 8 << 10;
/// Maximum header lines. Browsers send about twenty.
const MAX_HEADERS: usize = 64;

/// A parsed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// HEAD: the answer has no body.
    pub is_head: bool,
    /// The path without the query.
    pub path: String,
    pub format: Format,
    /// The client accepts gzip.
    pub gzip: bool,
    /// User and password of basic authentication.
    pub user: Option<(String, String)>,
    /// Keep the connection open after the answer.
    pub keep_alive: bool,
    /// Bytes of the head. The next request begins after it.
    pub length: usize,
}

/// Result of parsing received bytes as a request's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// The head is not complete yet.
    Partial,
    Request(Request),
    /// The request is rejected with this status.
    Refused(u16),
}

/// Parses the head of a request.
pub fn parse(bytes: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    // Cut first: httparse does not limit the length of a line.
    let length = match request.parse(&bytes[..bytes.len().min(MAX_HEAD)]) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() >= MAX_HEAD => return Head::Refused(431),
        Ok(httparse::Status::Partial) => return Head::Partial,
        Err(httparse::Error::TooManyHeaders) => return Head::Refused(431),
        Err(_) => return Head::Refused(400),
    };
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Head::Refused(405),
    };
    let path = request.path.unwrap_or_default();
    let mut found = Request {
        is_head,
        path: path.split('?').next().unwrap_or_default().to_owned(),
        format: Format::Text,
        gzip: false,
        user: None,
        keep_alive: request.version == Some(1),
        length,
    };
    // If a header comes twice, the last one counts, except for those that reject the request.
    for header in request.headers.iter() {
        let value = String::from_utf8_lossy(header.value);
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("accept") {
            found.format = format(&value);
        } else if is("accept-encoding") {
            found.gzip =
                choices(&value).any(|(name, quality, _)| name.eq_ignore_ascii_case("gzip") && quality > 0.0);
        } else if is("connection") {
            let has = |word: &str| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word));
            found.keep_alive = !has("close") && (found.keep_alive || has("keep-alive"));
        } else if is("authorization") {
            found.user = basic(&value);
        } else if is("transfer-encoding") || (is("content-length") && value.trim() != "0") {
            // A body would be read as the next request.
            return Head::Refused(400);
        }
    }
    Head::Request(found)
}

/// Returns the entries of a preference list: name, quality, parameters.
fn choices(value: &str) -> impl Iterator<Item = (&str, f32, Vec<&str>)> {
    value.split(',').map(|choice| {
        let mut parts = choice.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let parameters: Vec<&str> = parts.collect();
        let quality = parameters.iter().find_map(|part| part.strip_prefix("q="));
        (name, quality.map_or(1.0, |quality| quality.parse().unwrap_or(0.0)), parameters)
    })
}

/// Returns OpenMetrics if the client prefers it in a version that we write, otherwise text.
fn format(accept: &str) -> Format {
    let quality = |is: &dyn Fn(&str, &[&str]) -> bool| {
        choices(accept)
            .filter(|(name, _, parameters)| is(name, parameters))
            .map(|(_, q, _)| q)
            .fold(0.0, f32::max)
    };
    let open = quality(&|name, parameters| {
        let version = parameters.iter().find_map(|part| part.strip_prefix("version="));
        name == "application/openmetrics-text" && version.is_none_or(|version| version == "1.0.0")
    });
    let plain = quality(&|name, _| name == "text/plain");
    // For `*/*`, use text: curl and browsers send it, and people read text.
    if open > 0.0 && open >= plain { Format::OpenMetrics } else { Format::Text }
}

/// Decodes user and password from `Basic BASE64` (RFC 7617).
fn basic(value: &str) -> Option<(String, String)> {
    let (scheme, text) = value.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let bytes = base64(text.trim().as_bytes())?;
    let (user, password) = std::str::from_utf8(&bytes).ok()?.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits = text.iter().rev().skip_while(|byte| **byte == b'=').count();
    let mut bytes = Vec::with_capacity(text.len());
    for group in text[..digits].chunks(4) {
        let mut bits = 0u32;
        for &byte in group {
            bits = bits << 6 | u32::from(digit(byte)?);
        }
        // Two digits hold one byte, three hold two. A single digit is not valid base64.
        let count = group.len().checked_sub(1).filter(|count| *count > 0)?;
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..=count]);
    }
    Some(bytes)
}

/// Returns the reason phrase of a status.
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    }
}

/// The head of an answer with a body of `length` bytes.
pub fn answer(status: u16, content_type: &str, length: usize, keep_alive: bool, more: &str) -> String {
    let connection = if keep_alive { "keep-alive" } else { "close" };
    format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: {connection}\r\n{more}\r\n",
        reason(status)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(head: &str) -> Request {
        match parse(head.as_bytes()) {
            Head::Request(request) => request,
            other => panic!("{head}: {other:?}"),
        }
    }

    #[test]
    fn what_prometheus_sends() {
        let found = request(
            "GET /metrics?x=1 HTTP/1.1\r\nHost: a:9735\r\nUser-Agent: Prometheus/2.42.0\r\nAccept: \
             application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n\
             Accept-Encoding: gzip\r\nX-Prometheus-Scrape-Timeout-Seconds: 10\r\nAuthorization: Basic cHJvbTpzZTpjcmV0\r\n\r\nGET",
        );
        assert_eq!((found.path.as_str(), found.format, found.gzip), ("/metrics", Format::OpenMetrics, true));
        assert_eq!(found.user, Some(("prom".to_owned(), "se:cret".to_owned())));
        assert!(found.keep_alive && !found.is_head);
    }

    #[test]
    fn preferences() {
        for (accept, expected) in [
            ("text/plain", Format::Text),
            ("*/*", Format::Text),
            ("application/openmetrics-text; version=0.0.1", Format::Text),
            ("application/openmetrics-text;version=1.0.0;q=0.2, text/plain;q=0.5", Format::Text),
            ("application/openmetrics-text;version=1.0.0;q=0", Format::Text),
            ("application/openmetrics-text", Format::OpenMetrics),
        ] {
            assert_eq!(format(accept), expected, "{accept}");
        }
        assert!(!request("GET / HTTP/1.1\r\nAccept-Encoding: gzip;q=0, br\r\n\r\n").gzip);
        assert!(!request("GET / HTTP/1.0\r\n\r\n").keep_alive);
        assert!(request("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").keep_alive);
        assert!(!request("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").keep_alive);
    }

    #[test]
    fn what_is_refused() {
        for (head, expected) in [
            ("POST / HTTP/1.1\r\n\r\n", Head::Refused(405)),
            ("\x16\x03\x01\x02\x00\x01\x00", Head::Refused(400)),
            ("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", Head::Refused(400)),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Head::Refused(400)),
            ("GET / HT", Head::Partial),
            (&format!("GET /{} HTTP/1.1\r\n", "a".repeat(MAX_HEAD)), Head::Refused(431)),
            (&format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(65)), Head::Refused(431)),
        ] {
            assert_eq!(parse(head.as_bytes()), expected, "{head}");
        }
    }

    #[test]
    fn base64_is_read() {
        for (text, expected) in [
            ("", Some(&b""[..])),
            ("YQ==", Some(b"a")),
            ("YWI", Some(b"ab")),
            ("YWJj", Some(b"abc")),
            ("Y", None),
            ("Y*==", None),
        ] {
            assert_eq!(base64(text.as_bytes()).as_deref(), expected, "{text}");
        }
    }
}
