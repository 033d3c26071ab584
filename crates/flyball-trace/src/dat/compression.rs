//! How sections of version 7 are packed.

/// How version 7 packs its sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Zstd,
    Zlib,
}

impl Compression {
    #[cfg(feature = "compressed")]
    pub(super) fn unpack(self, bytes: &[u8], size: usize) -> Result<Vec<u8>, String> {
        use std::io::Read;
        let unpacked = match self {
            Compression::None => return Err("compressed data in a file that names no compression".into()),
            Compression::Zstd => {
                // Trust the frame, not the claim, with memory: it is grown as bytes come out.
                let mut unpacked = Vec::new();
                flyball_files::ZstdReader::new(bytes)
                    // One byte more than claimed distinguishes a stream that goes on from one that
                    // ends.
                    .take(size as u64 + 1)
                    .read_to_end(&mut unpacked)
                    .map_err(|error| format!("zstd: {error}"))?;
                unpacked
            }
            Compression::Zlib => {
                let mut unpacked = Vec::new();
                let decoder = flate2::read::ZlibDecoder::new(bytes);
                decoder
                    .take(size as u64 + 1)
                    .read_to_end(&mut unpacked)
                    .map_err(|error| format!("zlib: {error}"))?;
                unpacked
            }
        };
        if unpacked.len() == size {
            Ok(unpacked)
        } else {
            Err(format!("compressed data should hold {size} bytes and holds {}", unpacked.len()))
        }
    }

    #[cfg(not(feature = "compressed"))]
    pub(super) fn unpack(self, _bytes: &[u8], _size: usize) -> Result<Vec<u8>, String> {
        Err("this build cannot read compressed sections (feature `compressed`)".into())
    }
}
