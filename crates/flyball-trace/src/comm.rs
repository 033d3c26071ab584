//! Names of tasks in records.

use std::fmt;

/// A task's name as the kernel keeps it: at most 15 bytes, any bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, schemars::JsonSchema)]
#[schemars(with = "String")]
pub struct Comm([u8; 16]);

impl Comm {
    /// The name in `bytes`, up to the first NUL, cut at 16 bytes (`TASK_COMM_LEN`).
    #[inline]
    pub fn new(bytes: &[u8]) -> Comm {
        // Fill up with zeros, whatever the kernel left there: names are compared and hashed as
        // arrays.
        let mut comm = [0; 16];
        let bytes = &bytes[..bytes.len().min(16)];
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        comm[..length].copy_from_slice(&bytes[..length]);
        Comm(comm)
    }

    /// A name that is padded with NULs.
    #[inline]
    pub(crate) const fn filled(bytes: [u8; 16]) -> Comm {
        Comm(bytes)
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.0[..self.0.iter().position(|byte| *byte == 0).unwrap_or(16)]
    }

    /// Returns whether there is no name: a ring-buffer record has only the task's number.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // prctl(PR_SET_NAME) accepts any bytes.
        f.pad(&String::from_utf8_lossy(self.bytes()))
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.bytes()))
    }
}

impl serde::Serialize for Comm {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_names_end_at_a_nul_and_at_sixteen_bytes() {
        assert_eq!(Comm::new(b"bash\0rest").bytes(), b"bash");
        assert_eq!(Comm::new(b"0123456789abcdefXYZ").bytes(), b"0123456789abcdef");
        assert!(Comm::new(b"").is_empty());
        assert_eq!(Comm::new(b"a\xff").to_string(), "a\u{fffd}");
    }
}
