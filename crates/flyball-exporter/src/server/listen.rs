//! Where the server listens: addresses, files, and sockets that the service manager opened.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs as _},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::PathBuf,
    str::FromStr,
};

use super::socket::Socket;

/// Where to listen: `HOST:PORT`, `:PORT` for all addresses, or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum Address {
    #[display("{}", _0)]
    Tcp(String),
    #[display("unix:{}", _0.display())]
    Unix(PathBuf),
}

/// An address that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not an address to listen on; expected HOST:PORT, :PORT, [IPV6]:PORT or unix:PATH")]
pub struct AddressError {
    text: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let fail = || AddressError { text: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(fail()) } else { Ok(Address::Unix(path.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(fail)?;
        port.parse::<u16>().map_err(|_| fail())?;
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return Err(fail());
        }
        Ok(Address::Tcp(text.to_owned()))
    }
}

impl Address {
    /// Listens there.
    ///
    /// # Errors
    /// The name has no address, the port is taken, or the file cannot be made.
    pub fn listen(&self) -> io::Result<Vec<Listener>> {
        match self {
            Address::Tcp(text) => {
                let addresses: Vec<SocketAddr> = match text.strip_prefix(':') {
                    // As Go reads it: all addresses, which the IPv6 socket takes both kinds of;
                    // without IPv6 the other.
                    Some(port) => return all(port),
                    None => text.to_socket_addrs()?.collect(),
                };
                // One, as Go's net.Listen: `localhost` is 127.0.0.1 or ::1, in the order of the
                // system.
                let first = addresses.first().ok_or_else(|| io::Error::other("the name has no address"))?;
                Ok(vec![tcp(*first)?])
            }
            Address::Unix(path) => {
                let listener = flyball_files::listen_at(path)?;
                listener.set_nonblocking(true)?;
                Ok(vec![Listener::Unix(listener, Some(path.clone()))])
            }
        }
    }
}

fn all(port: &str) -> io::Result<Vec<Listener>> {
    let port = port.parse().unwrap_or(0);
    let any = |address: IpAddr| tcp(SocketAddr::new(address, port));
    let listener = any(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED));
    match listener {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            Ok(vec![any(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))?])
        }
        other => Ok(vec![other?]),
    }
}

fn tcp(address: SocketAddr) -> io::Result<Listener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(Listener::Tcp(listener))
}

/// A socket that is listened on.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    /// And the file to remove at the end.
    Unix(UnixListener, Option<PathBuf>),
}

impl Listener {
    /// A socket of the service manager.
    ///
    /// # Errors
    /// It is not a socket that is listened on.
    pub fn inherited(descriptor: OwnedFd) -> io::Result<Listener> {
        // Asked of the socket itself: the order and kind of ListenStream= lines is the
        // administrator's.
        let is_unix = matches!(
            rustix::net::getsockname(&descriptor)?.address_family(),
            rustix::net::AddressFamily::UNIX
        );
        if is_unix {
            let listener = UnixListener::from(descriptor);
            listener.set_nonblocking(true)?;
            return Ok(Listener::Unix(listener, None));
        }
        let listener = TcpListener::from(descriptor);
        listener.set_nonblocking(true)?;
        // Fails for what is not an internet socket.
        listener.local_addr()?;
        Ok(Listener::Tcp(listener))
    }

    /// Returns whether other machines can reach the listener.
    pub fn is_open_to_others(&self) -> bool {
        match self {
            Listener::Tcp(listener) => listener.local_addr().is_ok_and(|address| !address.ip().is_loopback()),
            Listener::Unix(..) => false,
        }
    }

    /// The next client, if one waits, and by what it is known: the address without the port, which
    /// is another each time.
    pub(super) fn accept(&self) -> io::Result<Option<(Socket, String)>> {
        let accepted = match self {
            Listener::Tcp(listener) => {
                listener.accept().map(|(socket, peer)| (Socket::Tcp(socket), peer.ip().to_string()))
            }
            Listener::Unix(listener, _) => {
                listener.accept().map(|(socket, _)| (Socket::Unix(socket), "unix".to_owned()))
            }
        };
        match accepted {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.fmt(f),
                Err(error) => error.fmt(f),
            },
            Listener::Unix(_, Some(path)) => write!(f, "unix:{}", path.display()),
            Listener::Unix(_, None) => f.write_str("a socket of the service manager"),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, Some(path)) = self {
            // Whether it is still there is of no matter at the end.
            let _ = flyball_files::remove_output(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for good in ["127.0.0.1:9735", ":9735", "[::1]:0", "localhost:1", "unix:/run/x"] {
            assert_eq!(good.parse::<Address>().unwrap().to_string(), good);
        }
        for bad in ["", "9735", "a:b", "a:99999", "::1:80", "unix:"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
