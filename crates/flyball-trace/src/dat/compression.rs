//! Compression of version 7's sections.

/// Compression of version 7's sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Zstd,
    Zlib,
}

/// Why a section cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnpackError {
    #[cfg(feature = "compressed")]
    #[error("compressed data in a file that names no compression")]
    NotNamed,
    #[cfg(feature = "compressed")]
    #[error("zstd: {0}")]
    Zstd(std::io::Error),
    #[cfg(feature = "compressed")]
    #[error("zlib: {0}")]
    Zlib(std::io::Error),
    #[cfg(feature = "compressed")]
    #[error("compressed data should hold {size} bytes and holds {found}")]
    Size { size: usize, found: usize },
    #[cfg(not(feature = "compressed"))]
    #[error("this build cannot read compressed sections (feature `compressed`)")]
    NotBuilt,
}

impl Compression {
    #[cfg(feature = "compressed")]
    pub(super) fn unpack(self, bytes: &[u8], size: usize) -> Result<Vec<u8>, UnpackError> {
        use std::io::Read;
        let unpacked = match self {
            Compression::None => return Err(UnpackError::NotNamed),
            Compression::Zstd => {
                // Do not allocate the claimed size: memory grows as bytes are unpacked.
                let mut unpacked = Vec::new();
                flyball_files::ZstdReader::new(bytes)
                    // Ask for one more byte than claimed, to detect a stream that is longer.
                    .take(size as u64 + 1)
                    .read_to_end(&mut unpacked)
                    .map_err(UnpackError::Zstd)?;
                unpacked
            }
            Compression::Zlib => {
                let mut unpacked = Vec::new();
                let decoder = flate2::read::ZlibDecoder::new(bytes);
                decoder.take(size as u64 + 1).read_to_end(&mut unpacked).map_err(UnpackError::Zlib)?;
                unpacked
            }
        };
        if unpacked.len() == size {
            Ok(unpacked)
        } else {
            Err(UnpackError::Size { size, found: unpacked.len() })
        }
    }

    #[cfg(not(feature = "compressed"))]
    pub(super) fn unpack(self, _bytes: &[u8], _size: usize) -> Result<Vec<u8>, UnpackError> {
        Err(UnpackError::NotBuilt)
    }
}
