//! Unpacks compressed parts of packages and kernels: gzip, xz and Zstandard, recognised by their
//! first bytes.

use std::io::{self, Read};

use flyball_files::ZstdReader;

/// The supported ones among the compressions that distributions use for packages, modules and
/// kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    /// Not compressed, or an unknown compression.
    None,
    /// gzip (RFC 1952).
    Gzip,
    Xz,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Compression {
    /// Detects the compression by the first bytes.
    pub(crate) fn of(bytes: &[u8]) -> Compression {
        match bytes {
            [0x1f, 0x8b, 0x08, ..] => Compression::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            _ => Compression::None,
        }
    }
}

/// Maximum memory for an xz stream. The output of `xz -9` needs 65 MiB to unpack (xz(1)), so four
/// times that leaves room for larger dictionaries; the format allows 4 GiB.
const MAX_XZ: u64 = 256 << 20;

fn xz(bytes: &[u8]) -> io::Result<liblzma::read::XzDecoder<&[u8]>> {
    let stream = liblzma::stream::Stream::new_stream_decoder(MAX_XZ, 0).map_err(io::Error::from)?;
    Ok(liblzma::read::XzDecoder::new_stream(bytes, stream))
}

/// Unpacks `bytes` into memory, at most `limit` bytes. Bytes after the compressed stream are
/// ignored, because a kernel image is padded, and the kernel's build appends the unpacked size to
/// an xz stream.
pub(crate) fn unpack(bytes: &[u8], limit: u64) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let read = match Compression::of(bytes) {
        Compression::None => {
            out.extend_from_slice(bytes);
            out.len() as u64
        }
        Compression::Gzip => {
            flate2::read::GzDecoder::new(bytes).take(limit + 1).read_to_end(&mut out)? as u64
        }
        Compression::Xz => xz(bytes)?.take(limit + 1).read_to_end(&mut out)? as u64,
        Compression::Zstd => ZstdReader::first_frame(bytes).take(limit + 1).read_to_end(&mut out)? as u64,
    };
    if read > limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("unpacks to more than {limit} bytes"),
        ));
    }
    Ok(out)
}

/// A reader that unpacks `bytes`.
pub(crate) fn reader(bytes: &[u8]) -> io::Result<Box<dyn Read + '_>> {
    Ok(match Compression::of(bytes) {
        Compression::None => Box::new(bytes),
        Compression::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
        Compression::Xz => Box::new(xz(bytes)?),
        Compression::Zstd => Box::new(ZstdReader::new(bytes)),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn pack_xz(text: &[u8]) -> Vec<u8> {
        let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn unpacks_what_it_knows_and_ignores_what_follows() {
        let text = b"the kernel's own build appends four bytes ".repeat(50);
        for mut packed in [gzip(&text), pack_xz(&text), zstd::encode_all(&text[..], 1).unwrap()] {
            packed.extend_from_slice(&[1, 2, 3, 4]);
            assert_eq!(unpack(&packed, 1 << 20).unwrap(), text);
        }
        assert_eq!(unpack(&text, 1 << 20).unwrap(), text);
    }

    #[test]
    fn refuses_bombs_and_broken_streams() {
        let bomb = gzip(&vec![0; 1 << 20]);
        assert_eq!(unpack(&bomb, 1000).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        for packed in [gzip(b"abcdef"), pack_xz(b"abcdef"), zstd::encode_all(&b"abcdef"[..], 1).unwrap()] {
            for cut in 6..packed.len() - 1 {
                let _ = unpack(&packed[..cut], 1000); // whatever it says, it must say it without a panic
            }
            assert!(unpack(&packed[..packed.len() / 2], 1000).is_err());
        }
    }
}
