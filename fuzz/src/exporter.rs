//! What the exporter takes from the network and from its configuration, and what the hold service
//! answers.

use flyball_exporter::{
    http::{self, Head},
    web_config::WebConfig,
};
use flyball_process::readings::Readings;

use crate::outcome;

/// The head of an HTTP request, whole and as it comes.
pub fn http(bytes: &[u8]) -> String {
    let whole = http::parse(bytes);
    if let Head::Request(request) = &whole {
        assert!(request.length <= bytes.len().min(http::MAX_HEAD));
        // Less than the head is never taken for a request.
        assert!(!matches!(http::parse(&bytes[..request.length - 1]), Head::Request(_)));
    }
    match whole {
        Head::Request(request) => {
            format!("{:?} {} {} {}", request.format, request.gzip, request.keep_alive, request.user.is_some())
        }
        other => format!("{other:?}"),
    }
}

/// The file of --web.config.file.
pub fn web_config(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    outcome(WebConfig::parse(&text, "/etc".as_ref()), |config| {
        format!("{} {}", config.users.len().min(5), config.tls.is_some())
    })
}

/// Readings of the hold service, printed and read again.
pub fn readings(bytes: &[u8]) -> String {
    let Some(readings) = Readings::parse(&String::from_utf8_lossy(bytes)) else { return String::new() };
    assert_eq!(Readings::parse(&readings.encode()).as_ref(), Some(&readings));
    readings.values.len().min(5).to_string()
}
