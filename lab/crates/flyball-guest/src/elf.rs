//! Reads parts of ELF files: the kernel's PVH entry note, and a module's information about itself.
//!
//! Only 64-bit little-endian files; every offset is checked.

/// A view of an ELF file's bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elf<'a> {
    bytes: &'a [u8],
}

/// Xen's note with the address at which a kernel may be entered without a boot loader
/// (`XEN_ELFNOTE_PHYS32_ENTRY`, include/xen/interface/elfnote.h).
const PHYS32_ENTRY: u32 = 18;

impl<'a> Elf<'a> {
    /// Accepts bytes that begin like a 64-bit little-endian ELF file.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Elf<'a>> {
        (bytes.len() >= 64 && bytes.starts_with(b"\x7fELF\x02\x01")).then_some(Elf { bytes })
    }

    fn uint<const N: usize>(&self, at: u64) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let slice = self.bytes.get(at..at.checked_add(N)?)?;
        Some(slice.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn range(&self, offset: u64, size: u64) -> Option<&'a [u8]> {
        self.bytes.get(usize::try_from(offset).ok()?..usize::try_from(offset.checked_add(size)?).ok()?)
    }

    /// Offset and size of entry `index` of the section table, and its name's offset.
    fn section_header(&self, index: u64) -> Option<(u64, u64, u64)> {
        // e_shoff, e_shentsize; sh_name, sh_offset, sh_size (elf(5)).
        let table = self.uint::<8>(0x28)?;
        let entry = table.checked_add(index.checked_mul(self.uint::<2>(0x3a)?)?)?;
        let name = self.uint::<4>(entry)?;
        Some((self.uint::<8>(entry.checked_add(0x18)?)?, self.uint::<8>(entry.checked_add(0x20)?)?, name))
    }

    /// The bytes of the section with this name.
    pub(crate) fn section(&self, name: &str) -> Option<&'a [u8]> {
        // e_shnum, e_shstrndx.
        let count = self.uint::<2>(0x3c)?;
        let (names, size, _) = self.section_header(self.uint::<2>(0x3e)?)?;
        let names = self.range(names, size)?;
        (0..count).find_map(|index| {
            let (offset, size, at) = self.section_header(index)?;
            let found = names.get(usize::try_from(at).ok()?..)?.split(|byte| *byte == 0).next()?;
            if found == name.as_bytes() { self.range(offset, size) } else { None }
        })
    }

    /// Returns whether the kernel has a PVH entry, through which QEMU starts an uncompressed kernel
    /// (`CONFIG_PVH`).
    pub(crate) fn has_pvh_entry(&self) -> bool {
        self.notes().is_some_and(|notes| {
            notes.iter().any(|(name, kind)| *kind == PHYS32_ENTRY && name.starts_with(b"Xen"))
        })
    }

    /// Returns whether the program needs a dynamic loader.
    pub(crate) fn is_dynamic(&self) -> bool {
        self.interpreter().is_some()
    }

    /// The dynamic loader that the program requires.
    pub(crate) fn interpreter(&self) -> Option<String> {
        const PT_INTERP: u64 = 3;
        let (table, size, count) = (self.uint::<8>(0x20)?, self.uint::<2>(0x36)?, self.uint::<2>(0x38)?);
        (0..count).find_map(|index| {
            let entry = table.checked_add(index * size)?;
            if self.uint::<4>(entry)? != PT_INTERP {
                return None;
            }
            // The segment's content ends with the zero byte of a C string.
            let text = self
                .range(self.uint::<8>(entry.checked_add(8)?)?, self.uint::<8>(entry.checked_add(0x20)?)?)?;
            Some(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
        })
    }

    /// Name and type of every note.
    fn notes(&self) -> Option<Vec<(&'a [u8], u32)>> {
        const PT_NOTE: u64 = 4;
        let (table, size, count) = (self.uint::<8>(0x20)?, self.uint::<2>(0x36)?, self.uint::<2>(0x38)?);
        let mut found = Vec::new();
        for index in 0..count {
            let entry = table.checked_add(index * size)?;
            if self.uint::<4>(entry)? != PT_NOTE {
                continue;
            }
            let mut notes = self
                .range(self.uint::<8>(entry.checked_add(8)?)?, self.uint::<8>(entry.checked_add(0x20)?)?)?;
            // Name and content are each padded to four bytes.
            while notes.len() >= 12 {
                let word =
                    |at: usize| u32::from_le_bytes([notes[at], notes[at + 1], notes[at + 2], notes[at + 3]]);
                let (name, content, kind) = (word(0) as usize, word(4) as usize, word(8));
                // The lengths of name and content, and the type, have 32 bits each, even in a
                // 64-bit file.
                let Some(text) = notes.get(12..12usize.saturating_add(name)) else { break };
                found.push((text, kind));
                let next = 12usize
                    .saturating_add(name.next_multiple_of(4))
                    .saturating_add(content.checked_next_multiple_of(4)?);
                notes = notes.get(next..).unwrap_or_default();
            }
        }
        Some(found)
    }

    /// The values of `key` in a module's `.modinfo`.
    pub(crate) fn modinfo(&self, key: &str) -> Vec<&'a str> {
        let Some(section) = self.section(".modinfo") else { return Vec::new() };
        section
            .split(|byte| *byte == 0)
            .filter_map(|line| std::str::from_utf8(line).ok()?.strip_prefix(key)?.strip_prefix('='))
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A minimal module with this `.modinfo`.
    pub(crate) fn module(modinfo: &str) -> Vec<u8> {
        let names = b"\0.shstrtab\0.modinfo\0";
        let mut file = vec![0u8; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let at_names = file.len();
        file.extend_from_slice(names);
        let at_info = file.len();
        file.extend_from_slice(modinfo.as_bytes());
        let table = file.len() as u64;
        file[0x28..0x30].copy_from_slice(&table.to_le_bytes());
        file[0x3a] = 64;
        file[0x3c] = 3;
        file[0x3e] = 1;
        for (name, offset, size) in [(0u32, 0, 0), (1, at_names, names.len()), (11, at_info, modinfo.len())] {
            let mut header = [0u8; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(offset as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
            file.extend_from_slice(&header);
        }
        file
    }

    #[test]
    fn reads_what_a_module_says() {
        let file = module("license=GPL\0depends=a,b\0name=c\0");
        let elf = Elf::new(&file).unwrap();
        assert_eq!(elf.modinfo("depends"), ["a,b"]);
        assert_eq!(elf.modinfo("name"), ["c"]);
        assert!(elf.modinfo("alias").is_empty());
        assert!(!elf.has_pvh_entry());
    }

    #[test]
    fn broken_files_do_no_harm() {
        let file = module("depends=\0");
        for cut in 0..file.len() {
            if let Some(elf) = Elf::new(&file[..cut]) {
                let _ = (elf.modinfo("depends"), elf.has_pvh_entry());
            }
        }
        for at in 0..64 {
            let mut broken = file.clone();
            broken[at] = 0xff;
            if let Some(elf) = Elf::new(&broken) {
                let _ = (elf.modinfo("depends"), elf.has_pvh_entry());
            }
        }
    }
}
