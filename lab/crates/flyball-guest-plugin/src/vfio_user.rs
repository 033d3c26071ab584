//! The part of vfio-user that a PCI function needs if it has no interrupts and no access to the
//! guest's memory. QEMU is the client (`-device vfio-user-pci`), and a [`Function`] is the server.
//! The source is docs/interop/vfio-user.rst of QEMU.
//!
//! This module does no input or output: it takes bytes and returns bytes. A message is a header of
//! 16 bytes (identity, command, size, flags, error; all little-endian) and a body. Unknown commands
//! are answered with an error, so that the guest never waits forever. An impossible message size
//! ends the connection, because the start of the next message is then unknown.

/// One PCI function's regions.
pub trait Function {
    /// Size of a region in bytes; 0 if it does not exist. Region 0 is BAR 0.
    fn size(&self, region: u32) -> u64;
    /// Reads from within a region.
    fn read(&mut self, region: u32, offset: u64, data: &mut [u8]);
    /// Writes within a region.
    fn write(&mut self, region: u32, offset: u64, data: &[u8]);
}

/// The region of configuration space (VFIO_PCI_CONFIG_REGION_INDEX).
pub const CONFIG: u32 = 7;
/// Regions of a PCI device, configuration space and VGA included.
const REGIONS: u32 = 9;
/// Number of interrupt types of a PCI device.
const INTERRUPTS: u32 = 5;

const HEADER: usize = 16;
/// Maximum length of a message: an access has 8 bytes, and the longest message lists the other
/// side's capabilities.
const LONGEST: usize = 64 * 1024;
/// Maximum size of one access.
const MAX: u32 = 4096;

/// Flags: bits 3:0 type (0 command), 4 no reply wanted, 5 error.
const REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;
const EINVAL: u32 = 22;
const ENOTSUP: u32 = 95;

/// Splits a connection's stream into messages.
#[derive(Debug, Default)]
pub struct Connection {
    pending: Vec<u8>,
}

/// Returned when the stream can no longer be split into messages.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken;

impl Connection {
    /// Takes the bytes that were received, and returns the answers to all complete messages.
    ///
    /// # Errors
    /// If the stream can no longer be split into messages.
    pub fn take(&mut self, bytes: &[u8], function: &mut impl Function) -> Result<Vec<u8>, Broken> {
        self.pending.extend_from_slice(bytes);
        let mut answers = Vec::new();
        let mut done = 0;
        while let Some(header) = self.pending.get(done..done + HEADER) {
            let size = word(header, 4) as usize;
            // With an invalid size, the start of the next message is unknown, so the rest of the
            // stream cannot be read.
            if !(HEADER..=LONGEST).contains(&size) {
                return Err(Broken);
            }
            let Some(message) = self.pending.get(done..done + size) else { break };
            done += size;
            let flags = word(message, 8);
            if flags & 15 != 0 {
                continue; // a reply: we ask nothing
            }
            let command = u32::from(message[2]) | u32::from(message[3]) << 8;
            let answer = answer(command, &message[HEADER..], function);
            if flags & NO_REPLY == 0 {
                let (body, flags, error) = match answer {
                    Ok(body) => (body, REPLY, 0),
                    Err(errno) => (Vec::new(), REPLY | ERROR, errno),
                };
                answers.extend_from_slice(&message[..4]);
                for value in [(HEADER + body.len()) as u32, flags, error] {
                    answers.extend(value.to_le_bytes());
                }
                answers.extend(body);
            }
        }
        // The rest is an incomplete message.
        self.pending.drain(..done);
        Ok(answers)
    }
}

/// Returns the answer to a command, or an errno.
fn answer(command: u32, body: &[u8], function: &mut impl Function) -> Result<Vec<u8>, u32> {
    let words = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let at = |offset: usize| if body.len() >= offset + 4 { Ok(word(body, offset)) } else { Err(EINVAL) };
    match command {
        // Version 0.0; no descriptors are used or requested.
        1 => {
            let mut version = vec![0; 4];
            version.extend(br#"{"capabilities":{"max_msg_fds":16}}"#);
            version.push(0);
            Ok(version)
        }
        // The guest's memory is mapped (2) or unmapped (3): ignored.
        3 => Ok(body.to_vec()),
        // 13: reset. Resetting only the function does not change these registers.
        2 | 13 => Ok(Vec::new()),
        // The device: PCI (2), can be reset (1).
        4 => Ok(words(&[16, 3, REGIONS, INTERRUPTS])),
        5 => {
            let region = at(8)?;
            let size = function.size(region);
            let mut info = words(&[32, if size > 0 { 3 } else { 0 }, region, 0]);
            info.extend(size.to_le_bytes());
            info.extend([0; 8]);
            Ok(info)
        }
        // Interrupts: there are none of any type, so there is nothing to set (8).
        7 => Ok(words(&[16, 0, at(8)?, 0])),
        8 => Ok(Vec::new()),
        9 | 10 => {
            let offset = u64::from(at(0)?) | u64::from(at(4)?) << 32;
            let (region, count) = (at(8)?, at(12)?);
            // Check the bounds here, so that a function only gets accesses inside its regions.
            let end = offset.checked_add(u64::from(count)).ok_or(EINVAL)?;
            if count > MAX || end > function.size(region) {
                return Err(EINVAL);
            }
            let mut reply = body[..16].to_vec();
            if command == 9 {
                reply.resize(16 + count as usize, 0);
                function.read(region, offset, &mut reply[16..]);
            } else {
                function.write(region, offset, body.get(16..16 + count as usize).ok_or(EINVAL)?);
            }
            Ok(reply)
        }
        _ => Err(ENOTSUP),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Memory(Vec<u8>);

    impl Function for Memory {
        fn size(&self, region: u32) -> u64 {
            if region == 0 { self.0.len() as u64 } else { 0 }
        }
        fn read(&mut self, _: u32, offset: u64, data: &mut [u8]) {
            data.copy_from_slice(&self.0[offset as usize..][..data.len()]);
        }
        fn write(&mut self, _: u32, offset: u64, data: &[u8]) {
            self.0[offset as usize..][..data.len()].copy_from_slice(data);
        }
    }

    fn message(command: u16, flags: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = [7u16.to_le_bytes(), command.to_le_bytes()].concat();
        for value in [(HEADER + body.len()) as u32, flags, 0] {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(body);
        bytes
    }

    fn access(offset: u64, region: u32, count: u32, data: &[u8]) -> Vec<u8> {
        let mut body = offset.to_le_bytes().to_vec();
        body.extend(region.to_le_bytes());
        body.extend(count.to_le_bytes());
        body.extend(data);
        body
    }

    #[test]
    fn registers_are_written_and_read_however_the_stream_is_cut() {
        let (mut connection, mut memory) = (Connection::default(), Memory(vec![0; 64]));
        let mut stream = message(10, 0, &access(8, 0, 4, &[1, 2, 3, 4]));
        stream.extend(message(10, NO_REPLY, &access(12, 0, 1, &[5])));
        stream.extend(message(9, 0, &access(8, 0, 8, &[])));
        let answers: Vec<u8> =
            stream.iter().flat_map(|byte| connection.take(&[*byte], &mut memory).unwrap()).collect();
        let mut expected = message(10, REPLY, &access(8, 0, 4, &[]));
        expected.extend(message(9, REPLY, &access(8, 0, 8, &[1, 2, 3, 4, 5, 0, 0, 0])));
        assert_eq!(answers, expected);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let (mut connection, mut memory) = (Connection::default(), Memory(vec![0; 64]));
        for (command, body) in [
            (9, access(61, 0, 4, &[])),
            (9, access(u64::MAX, 0, 4, &[])),
            (9, access(0, 1, 1, &[])),
            (9, access(0, 0, u32::MAX, &[])),
            (10, access(0, 0, 8, &[1])),
            (5, vec![]),
            (99, vec![]),
        ] {
            let answer = connection.take(&message(command, 0, &body), &mut memory).unwrap();
            assert_eq!((answer.len(), word(&answer, 8)), (HEADER, REPLY | ERROR), "{command}");
            assert!(word(&answer, 12) > 0);
        }
        assert_eq!(memory.0, [0; 64]);
        for size in [0u32, 15, 1 << 20, u32::MAX] {
            let mut bytes = message(9, 0, &[]);
            bytes[4..8].copy_from_slice(&size.to_le_bytes());
            assert_eq!(Connection::default().take(&bytes, &mut memory), Err(Broken), "{size}");
        }
    }
}
