//! The PCI functions through which a guest's drivers access Speed Select: which functions a machine
//! has, their location in the guest, their configuration spaces and their memory. flyball-silicon
//! defines the meaning of the registers.
//!
//! - Ice Lake to Emerald Rapids: the mailbox, 8086:3459 (later 8086:3259), in configuration space,
//!   for isst_if_mbox_pci; the PUNIT's registers, 8086:3451 (later 8086:3251), in memory, for
//!   isst_if_mmio.
//! - Granite Rapids and later: TPMI, 8086:09a7, in memory, for intel_vsec, intel_vsec_tpmi and the
//!   drivers of the features that these find.
//!
//! The first two are device 30 function 1 and device 0 function 1 of a bus for each package, whose
//! number is in MSR 128h; in the guest the bus is behind a bridge. The memory driver computes the
//! address from two words of configuration space, 0xD0 (bits from 23 up) and 0xFC (bits 22:12),
//! which are set to point at BAR 0 (isst_if_mmio.c). TPMI is device 3 function 1 and up of bus 0,
//! because a conventional PCI bridge does not pass on accesses to extended configuration space.

use flyball_silicon::{MachineSpec, Silicon, spec::SstClass};

use crate::{
    tpmi::TpmiDevice,
    vfio_user::{self, CONFIG},
};

/// The kind of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The mailbox in configuration space.
    Mailbox,
    /// The PUNIT's memory-mapped registers.
    Registers,
    /// The TPMI device.
    Tpmi,
}

/// A function and its location in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub kind: Kind,
    pub package: usize,
    /// Device and function number.
    pub slot: (u32, u32),
    /// Whether it is behind the package's bridge.
    pub bridged: bool,
}

impl Place {
    /// The file name of its socket in the directory of sockets.
    pub fn socket(&self) -> String {
        let kind = match self.kind {
            Kind::Mailbox => "mailbox",
            Kind::Registers => "registers",
            Kind::Tpmi => "tpmi",
        };
        format!("{kind}{}", self.package)
    }
}

/// The guest's bus number behind a package's bridge: SeaBIOS numbers bridges in order.
pub fn bus(package: usize) -> u32 {
    package as u32 + 1
}

/// The functions of a machine that a guest gets.
pub fn places(spec: &MachineSpec) -> Vec<Place> {
    let Some(sst) = &spec.sst else { return Vec::new() };
    let packages = 0..spec.topology.packages as usize;
    match sst.class {
        SstClass::MailboxMsr => Vec::new(),
        SstClass::MailboxPci => packages
            .flat_map(|package| {
                let place = |kind, slot| Place { kind, package, slot, bridged: true };
                [place(Kind::Registers, (0, 1)), place(Kind::Mailbox, (30, 1))]
            })
            .collect(),
        // A device has eight functions, and the others are only found if the first exists.
        SstClass::Tpmi => packages
            .map(|package| Place {
                kind: Kind::Tpmi,
                package,
                slot: (3 + package as u32 / 7, 1 + package as u32 % 7),
                bridged: false,
            })
            .collect(),
    }
}

/// A function's configuration space while the guest runs. Its registers are in the silicon.
#[derive(Debug)]
pub struct Function {
    place: Place,
    config: [u8; 4096],
    memory: u32,
    tpmi: Option<TpmiDevice>,
}

const BAR: usize = 0x10;
/// Configuration words with the address of the PUNIT's registers.
const BASE: [usize; 2] = [0xd0, 0xfc];
/// The mailbox's words.
const MAILBOX: [usize; 2] = [0xa0, 0xa4];

impl Function {
    pub fn new(place: Place, silicon: &Silicon) -> Function {
        // Sapphire and Emerald Rapids.
        let later = matches!(silicon.spec().identity.model, 0x8f | 0xcf);
        let tpmi = TpmiDevice::new(silicon, place.package).filter(|_| place.kind == Kind::Tpmi);
        let (device, memory) = match place.kind {
            Kind::Mailbox => (if later { 0x3259 } else { 0x3459 }, 0),
            Kind::Registers => (if later { 0x3251 } else { 0x3451 }, 4096),
            Kind::Tpmi => (0x09a7, tpmi.as_ref().map_or(0, |device| device.bytes.max(4096))),
        };
        let features = tpmi.as_ref().map(|device| device.features);
        let mut function = Function { place, config: [0; 4096], memory, tpmi };
        function.put(0, 0x8086 | device << 16);
        function.put(8, 0x08_8000 << 8); // another system peripheral
        function.put(0x2c, 0x8086);
        if let Some(features) = features {
            // A capability list with one entry: PCI Express, an endpoint integrated into the root
            // complex.
            function.put(4, 1 << 20);
            function.put(0x34, 0x40);
            function.put(0x40, 0x0092_0010);
            // Intel's capability 66, TPMI: the number of entries, of two doublewords each, starting
            // at offset 0 of BAR 0.
            function.put(0x100, 1 << 16 | 0x23);
            function.put(0x104, 16 << 20 | 1 << 16 | 0x8086);
            function.put(0x108, 66 | features << 16 | 2 << 24);
        }
        function
    }

    /// The function's location.
    pub fn place(&self) -> Place {
        self.place
    }

    fn put(&mut self, at: usize, value: u32) {
        self.config[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn bar(&self) -> u32 {
        u32::from_le_bytes([
            self.config[BAR],
            self.config[BAR + 1],
            self.config[BAR + 2],
            self.config[BAR + 3],
        ]) & !0xfff
    }

    fn config_size(&self) -> u64 {
        // Only PCI Express has extended configuration space.
        if self.place.kind == Kind::Tpmi { 4096 } else { 256 }
    }

    /// One byte of configuration space.
    fn config_byte(&self, silicon: &Silicon, at: usize) -> u8 {
        let word = match (self.place.kind, at & !3) {
            (Kind::Mailbox, word) if MAILBOX.contains(&word) => {
                silicon.mailbox_config_read(self.place.package, word as u32)
            }
            (Kind::Registers, 0xd0) => Some(self.bar() >> 23),
            (Kind::Registers, 0xfc) => Some(self.bar() >> 12 & 0x7ff),
            _ => None,
        };
        word.map_or(self.config[at], |word| word.to_le_bytes()[at & 3])
    }

    fn write_config(&mut self, silicon: &mut Silicon, at: usize, data: &[u8]) {
        if self.place.kind == Kind::Mailbox
            && MAILBOX.contains(&at)
            && let Ok(word) = <[u8; 4]>::try_from(data)
        {
            silicon.mailbox_config_write(self.place.package, at as u32, u32::from_le_bytes(word));
            return;
        }
        for (at, byte) in (at..).zip(data) {
            // The bytes that a kernel may write: command, cache line and latency, BAR 0 if there is
            // one, and the interrupt line. All others are read-only.
            let own =
                matches!(at, 4 | 5 | 0x0c | 0x0d | 0x3c) || (self.memory > 0 && (BAR..BAR + 4).contains(&at));
            if own && !BASE.contains(&(at & !3)) {
                self.config[at] = *byte;
            }
        }
    }

    /// Reads 64 bits of memory at a multiple of 8.
    fn memory_word(&self, silicon: &Silicon, at: u32) -> u64 {
        let package = self.place.package;
        match self.place.kind {
            // On PCI, reading from a missing device returns all ones.
            Kind::Tpmi => self.tpmi.as_ref().map_or(u64::MAX, |device| device.read(silicon, at)),
            Kind::Registers => {
                let half = |at| u64::from(silicon.mmio_read(package, at).unwrap_or(u32::MAX));
                half(at) | half(at + 4) << 32
            }
            Kind::Mailbox => u64::MAX,
        }
    }

    fn write_memory(&mut self, silicon: &mut Silicon, at: u32, data: &[u8]) {
        match self.place.kind {
            Kind::Tpmi => {
                let Some(device) = &mut self.tpmi else { return };
                // A guest's access is within 64 bits; the other bytes of the word keep their
                // values.
                let mut word = device.read(silicon, at & !7).to_le_bytes();
                let from = (at & 7) as usize;
                let count = data.len().min(8 - from);
                word[from..from + count].copy_from_slice(&data[..count]);
                device.write(silicon, at & !7, u64::from_le_bytes(word));
            }
            Kind::Registers if at.is_multiple_of(4) => {
                for (number, word) in data.chunks_exact(4).enumerate() {
                    let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                    silicon.mmio_write(self.place.package, at + 4 * number as u32, value);
                }
            }
            _ => {}
        }
    }
}

/// A function with the silicon behind it, for the duration of a message.
#[derive(Debug)]
pub struct ServedFunction<'a> {
    pub function: &'a mut Function,
    pub silicon: &'a mut Silicon,
    /// Writes, for a log: region, offset, value.
    pub written: Vec<(u32, u64, u64)>,
}

impl vfio_user::Function for ServedFunction<'_> {
    fn size(&self, region: u32) -> u64 {
        match region {
            0 => u64::from(self.function.memory),
            CONFIG => self.function.config_size(),
            _ => 0,
        }
    }

    fn read(&mut self, region: u32, offset: u64, data: &mut [u8]) {
        for (at, byte) in (offset..).zip(data) {
            *byte = if region == CONFIG {
                self.function.config_byte(self.silicon, at as usize)
            } else {
                let word = self.function.memory_word(self.silicon, at as u32 & !7);
                word.to_le_bytes()[(at & 7) as usize]
            };
        }
    }

    fn write(&mut self, region: u32, offset: u64, data: &[u8]) {
        let value = data.iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        self.written.push((region, offset, value));
        if region == CONFIG {
            self.function.write_config(self.silicon, offset as usize, data);
        } else {
            self.function.write_memory(self.silicon, offset as u32, data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{machine::Reduction, vfio_user::Function as _};

    fn made(name: &str, cpus: u32) -> (Silicon, Vec<Place>) {
        let toml = MachineSpec::builtin_text(name).unwrap().to_owned();
        let (spec, _) = Reduction { toml, cpus, interface: None }.make().unwrap();
        let places = places(&spec);
        (Silicon::new(spec, 0).unwrap(), places)
    }

    fn word(served: &mut ServedFunction<'_>, region: u32, at: u64) -> u32 {
        let mut bytes = [0; 4];
        served.read(region, at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn the_mailbox_answers_in_configuration_space() {
        let (mut silicon, places) = made("sst-guide", 4);
        assert_eq!(places.len(), 2);
        let place = *places.iter().find(|place| place.kind == Kind::Mailbox).unwrap();
        let mut function = Function::new(place, &silicon);
        let mut served =
            ServedFunction { function: &mut function, silicon: &mut silicon, written: Vec::new() };
        assert_eq!(word(&mut served, CONFIG, 0), 0x3459_8086);
        served.write(CONFIG, 0xa0, &[0; 4]);
        served.write(CONFIG, 0xa4, &0x8000_007fu32.to_le_bytes());
        assert_eq!(word(&mut served, CONFIG, 0xa4) >> 31, 0, "done");
        assert_eq!(word(&mut served, CONFIG, 0xa0), 0x8000_0401, "version 1, levels to 4, level 0, enabled");
        served.write(CONFIG, 0, &[9; 4]);
        assert_eq!(word(&mut served, CONFIG, 0), 0x3459_8086, "what it is stays");
        assert_eq!(silicon.read_msr(0, 0x128).unwrap() & 0xffff, 0x0101);
    }

    #[test]
    fn the_registers_are_where_two_words_say() {
        let (mut silicon, places) = made("sst-guide", 4);
        let mut function = Function::new(places[0], &silicon);
        let mut served =
            ServedFunction { function: &mut function, silicon: &mut silicon, written: Vec::new() };
        served.write(CONFIG, 0x10, &0xfea3_5000u32.to_le_bytes());
        let base = u64::from(word(&mut served, CONFIG, 0xd0)) << 23
            | u64::from(word(&mut served, CONFIG, 0xfc) & 0x7ff) << 12;
        assert_eq!(base, 0xfea3_5000);
        served.write(0, 0x0c, &0x00ff_1a50u32.to_le_bytes());
        assert_eq!(word(&mut served, 0, 0x0c), 0x00ff_1a50);
        assert_eq!(word(&mut served, 0, 0x08) & 0x00ff_0000, 0x00ff_0000, "the neighbour is as it was");
    }

    #[test]
    fn tpmi_is_found_and_written_by_halves() {
        let (mut silicon, places) = made("tpmi-small", 8);
        let mut function = Function::new(places[0], &silicon);
        let mut served =
            ServedFunction { function: &mut function, silicon: &mut silicon, written: Vec::new() };
        assert_eq!(word(&mut served, CONFIG, 0), 0x09a7_8086);
        let capability = word(&mut served, CONFIG, 0x108);
        let entries = u64::from(capability >> 16 & 0xff);
        let sst = (0..entries).find(|n| word(&mut served, 0, 8 * n) & 0xff == 5).unwrap();
        let at = u64::from(word(&mut served, 0, 8 * sst + 4) & 0xffff) * 1024;
        assert_eq!(word(&mut served, 0, 8 * sst) >> 8 & 0xff, 4, "two dies and two IO dies");
        // Set a class of the second domain, with two writes of 32 bits.
        let size = u64::from(word(&mut served, 0, 8 * sst) >> 16) * 4;
        served.write(0, at + size + 0x28, &0x0019_0a50u32.to_le_bytes());
        served.write(0, at + size + 0x2c, &0u32.to_le_bytes());
        assert_eq!(word(&mut served, 0, at + size + 0x28), 0x0019_0a50);
        assert_eq!(served.written.len(), 2);
    }
}
