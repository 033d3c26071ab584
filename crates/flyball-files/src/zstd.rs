//! Zstandard streams (RFC 8878): read with limited memory, and written as a sequence of frames.

use std::io::{self, Chain, Read, Write};

use ruzstd::{
    decoding::{
        BlockDecodingStrategy::UptoBlocks,
        FrameDecoder,
        errors::{FrameDecoderError, ReadFrameHeaderError},
    },
    encoding::{CompressionLevel, compress_to_vec},
};

/// Limit on the history that a frame may keep in memory: the same as for `zstd -d` without
/// `--long`.
const MAX_WINDOW: u64 = 128 << 20;
/// Bytes of content per frame that [`ZstdWriter`] writes.
const FRAME: usize = 4 << 20;

/// Reads the content of a Zstandard stream: all its frames in sequence, each with its checksum.
pub struct ZstdReader<R> {
    source: R,
    decoder: FrameDecoder,
    /// True if other bytes follow the first frame, as in a kernel image.
    single: bool,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    BetweenFrames,
    InFrame,
    Ended,
}

impl<R: Read> ZstdReader<R> {
    /// Reads all frames of `source`, to its end.
    pub fn new(source: R) -> ZstdReader<R> {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        ZstdReader { source, decoder, single: false, state: State::BetweenFrames }
    }

    /// Reads the first frame and nothing after it.
    pub fn first_frame(source: R) -> ZstdReader<R> {
        ZstdReader { single: true, ..ZstdReader::new(source) }
    }

    fn next_frame(&mut self) -> io::Result<()> {
        loop {
            // The decoder reports the end of the input as damage, so check for it first.
            let mut first = [0];
            if self.source.read(&mut first)? == 0 {
                self.state = State::Ended;
                return Ok(());
            }
            // The byte that was read belongs to the frame's header.
            let head: Chain<&[u8], &mut R> = first[..].chain(&mut self.source);
            match self.decoder.reset(head) {
                Ok(()) => {
                    self.state = State::InFrame;
                    return Ok(());
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    // A skippable frame (RFC 8878, section 3.1.2), such as pzstd writes before each
                    // frame.
                    io::copy(&mut (&mut self.source).take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(damaged(error)),
            }
        }
    }

    fn end_frame(&mut self) -> io::Result<()> {
        if let Some(stored) = self.decoder.get_checksum_from_data()
            && self.decoder.get_calculated_checksum() != Some(stored)
        {
            return Err(damaged("the checksum of a Zstandard frame is wrong"));
        }
        self.state = if self.single { State::Ended } else { State::BetweenFrames };
        Ok(())
    }
}

fn damaged(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl<R: Read> Read for ZstdReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            match self.state {
                State::Ended => return Ok(0),
                State::BetweenFrames => self.next_frame()?,
                State::InFrame => {
                    // Return decoded bytes first, so that at most a window and a block are in
                    // memory.
                    if self.decoder.can_collect() > 0 {
                        return self.decoder.read(out);
                    }
                    if self.decoder.is_finished() {
                        self.end_frame()?;
                    } else {
                        // A block has at most 128 KiB (RFC 8878, section 3.1.1.2.4).
                        self.decoder.decode_blocks(&mut self.source, UptoBlocks(1)).map_err(damaged)?;
                    }
                }
            }
        }
    }
}

/// Compresses the bytes written to it. Each [`FRAME`] bytes become a separate frame, to limit
/// memory.
pub struct ZstdWriter<W> {
    out: W,
    content: Vec<u8>,
}

impl<W: Write> ZstdWriter<W> {
    /// Creates a writer that compresses into `out`.
    pub fn new(out: W) -> ZstdWriter<W> {
        ZstdWriter { out, content: Vec::new() }
    }

    /// Writes the remaining content and returns `out`. Without this call the end of the content is
    /// lost.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.frame()?;
        Ok(self.out)
    }

    fn frame(&mut self) -> io::Result<()> {
        let packed = compress_to_vec(self.content.as_slice(), CompressionLevel::Fastest);
        self.content.clear();
        self.out.write_all(&packed)
    }
}

impl<W: Write> Write for ZstdWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Write a full frame only when more bytes follow, so that `finish` never adds an empty one.
        if self.content.len() >= FRAME {
            self.frame()?;
        }
        let taken = bytes.len().min(FRAME - self.content.len());
        self.content.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    /// Does nothing: frames are written when they are full, or at the end.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(content: &[u8]) -> Vec<u8> {
        let mut writer = ZstdWriter::new(Vec::new());
        writer.write_all(content).unwrap();
        writer.finish().unwrap()
    }

    fn unpacked(reader: impl Read) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        ZstdReader::new(reader).take(64 << 20).read_to_end(&mut content)?;
        Ok(content)
    }

    #[test]
    fn several_frames_are_one_content() {
        let content: Vec<u8> = (0..FRAME as u32 * 2 + 7).map(|n| (n % 251) as u8).collect();
        assert_eq!(unpacked(packed(&content).as_slice()).unwrap(), content);
        assert_eq!(unpacked(packed(b"").as_slice()).unwrap(), b"");
    }

    #[test]
    fn the_reference_implementation_reads_what_is_written_and_the_reverse() {
        let content: Vec<u8> = b"scaling_governor performance\n".repeat(5000);
        assert_eq!(zstd::decode_all(packed(&content).as_slice()).unwrap(), content);
        for level in [1, 9, 19] {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(&content).unwrap();
            let mut stream = encoder.finish().unwrap();
            assert_eq!(unpacked(stream.as_slice()).unwrap(), content);
            // The checksum is the last four bytes.
            *stream.last_mut().unwrap() ^= 1;
            assert!(unpacked(stream.as_slice()).is_err());
        }
    }

    #[test]
    fn frames_to_skip_are_skipped_and_what_follows_one_frame_is_left() {
        let mut stream = vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9];
        stream.extend(packed(b"content"));
        assert_eq!(unpacked(stream.as_slice()).unwrap(), b"content");
        stream.extend(b"padding of a kernel image");
        assert!(unpacked(stream.as_slice()).is_err());
        let mut content = Vec::new();
        ZstdReader::first_frame(stream.as_slice()).read_to_end(&mut content).unwrap();
        assert_eq!(content, b"content");
    }

    #[test]
    fn a_window_beyond_the_bound_is_refused() {
        // A frame without content size, whose descriptor requires 2^(10+18) bytes.
        let head = [0x28, 0xb5, 0x2f, 0xfd, 0, 18 << 3];
        let error = unpacked([&head[..], &[1, 0, 0]].concat().as_slice()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        #[test]
        fn damage_is_an_error_or_content_but_no_panic(at in 0usize..400, bit in 0u8..8, cut in 0usize..400) {
            let mut stream = packed(&b"0-511\n".repeat(300));
            let length = stream.len();
            stream[at % length] ^= 1 << bit;
            let _ = unpacked(stream.as_slice());
            stream.truncate(cut % length);
            let _ = unpacked(stream.as_slice());
        }
    }
}
