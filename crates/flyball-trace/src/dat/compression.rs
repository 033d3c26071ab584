//! How sections of version 7 are packed.

/// How version 7 packs its sections.
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
                // Trust the frame, not the claim, with memory: it is grown as bytes come out.
                let mut unpacked = Vec::new();
                flyball_files::ZstdReader::new(bytes)
                    // One byte more than claimed distinguishes a stream that goes on from one that
                    // ends.
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
