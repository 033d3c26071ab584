//! Replaces `tls.rs` in builds without the feature: a configuration with TLS is an error, and never
//! served as plain HTTP.

use std::io;

use super::socket::Socket;
use crate::web_config::Tls;

/// Cannot be created in this build.
#[derive(Debug)]
pub enum Acceptor {}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error(
        "this build has no TLS (cargo feature 'tls'); the configuration asks for it, so nothing is served"
    )]
    NotBuilt,
}

impl Acceptor {
    /// # Errors
    /// Always.
    pub fn new(_: &Tls) -> Result<Acceptor, TlsError> {
        Err(TlsError::NotBuilt)
    }
}

#[derive(Debug)]
pub(super) enum Session {}

impl Session {
    pub(super) fn new(acceptor: &Acceptor) -> io::Result<Session> {
        match *acceptor {}
    }

    pub(super) fn wants_write(&self) -> bool {
        match *self {}
    }

    pub(super) fn read(&mut self, _: &mut Socket, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn write(&mut self, _: &mut Socket, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }
}
