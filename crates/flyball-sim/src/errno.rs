//! The kernel's error numbers that simulated files return.

use std::fmt;

/// A Linux error number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

/// Result of an attribute's show or store function.
pub type Answer<T = ()> = Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident = $libc:ident;)*) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($libc), "`.")] pub const $name: Errno = Errno(libc::$libc);)*

            /// The symbolic name (`EBUSY`), if a simulated file can return this error.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Errno::$name => Some(stringify!($libc)),)*
                    _ => None,
                }
            }

            /// The number of a symbolic name.
            pub fn from_name(name: &str) -> Option<Errno> {
                match name {
                    $(stringify!($libc) => Some(Errno::$name),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    PERM = EPERM;
    NOENT = ENOENT;
    IO = EIO;
    NXIO = ENXIO;
    AGAIN = EAGAIN;
    NOMEM = ENOMEM;
    ACCES = EACCES;
    FAULT = EFAULT;
    BUSY = EBUSY;
    EXIST = EEXIST;
    NODEV = ENODEV;
    NOTDIR = ENOTDIR;
    ISDIR = EISDIR;
    INVAL = EINVAL;
    NOTTY = ENOTTY;
    RANGE = ERANGE;
    LOOP = ELOOP;
    NOSYS = ENOSYS;
    NODATA = ENODATA;
    OPNOTSUPP = EOPNOTSUPP;
    NAMETOOLONG = ENAMETOOLONG;
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}
