//! The ACPI tables that a guest's firmware adds to QEMU's own: the processors' abilities, and how
//! to request performance.
//!
//! QEMU's q35 machine already has a device `\_SB.CPUS.Cnnn` for every CPU. An SSDT puts `_CPC`
//! (CPPC), `_PSS`, `_PCT`, `_PPC` and `_PSD` (P-states) and `_CST` (idle states) into these
//! devices, and a PCCT describes the mailbox through which CPPC registers are reached on processors
//! without CPPC MSRs. Chapter numbers are those of ACPI 6.5.
//!
//! Firmware that the guest may break has devices with which the guest triggers it (`events`).

use flyball_guest_plugin::layout::block;

use crate::aml::{self, Aml, Register, Space};

/// The contents of the firmware's tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Firmware {
    /// The processors, in QEMU's order.
    pub processors: Vec<Processor>,
    /// The CPPC mailbox, if a processor uses it.
    pub mailbox: Option<Mailbox>,
    /// True if firmware sends notifications and changes limits when the guest reads the devices of
    /// `events`.
    pub acts: bool,
}

/// The tables' contents for one processor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Processor {
    /// `_CPC`.
    pub cppc: Option<Cppc>,
    /// `_PSS` and the objects that belong to it.
    pub states: Option<PerformanceStates>,
    /// `_CST`; empty to use the kernel's own halt.
    pub idle: Vec<IdleState>,
}

/// Continuous performance control (8.4.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cppc {
    pub highest: u32,
    pub nominal: u32,
    /// The lowest level that still saves energy.
    pub lowest_nonlinear: u32,
    pub lowest: u32,
    /// Performance level at which the reference counter counts.
    pub reference: u32,
    /// Frequency at lowest performance, MHz.
    pub lowest_mhz: u32,
    /// Frequency at nominal performance, MHz.
    pub nominal_mhz: u32,
    /// Location of the registers.
    pub registers: CppcRegisters,
}

/// Location of a processor's CPPC registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CppcRegisters {
    /// In the mailbox, in the block with this number.
    Mailbox(u32),
    /// AMD's registers 0xC00102B0 to 0xC00102B4 (arch/x86/include/asm/msr-index.h,
    /// `MSR_AMD_CPPC_*`).
    AmdMsr,
}

/// P-states (8.4.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerformanceStates {
    /// `_PSS`, fastest first.
    pub states: Vec<PerformanceState>,
    /// `_PCT`.
    pub control: Control,
    /// `_PSD`: the domain, its kind of coordination, and its number of CPUs.
    pub domain: (u32, Coordination, u32),
}

/// One row of `_PSS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerformanceState {
    /// Frequency in MHz.
    pub mhz: u32,
    /// Power in milliwatts.
    pub milliwatts: u32,
    /// Transition latency, microseconds.
    pub latency_us: u32,
    /// Value to write to request the state.
    pub control: u32,
    /// Value to read once the state is reached.
    pub status: u32,
}

/// How to request P-states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// An I/O port of one byte, for reading and writing.
    Port(u16),
    /// The processor's own registers.
    FixedHardware,
}

/// What coordinates the CPUs of a domain (table 8.16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coordination {
    /// The system software, by writing on any CPU.
    Any = 0xfd,
    /// The system software, by writing on all.
    All = 0xfc,
    Hardware = 0xfe,
}

/// One idle state (8.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleState {
    /// C1, C2, C3.
    pub kind: u8,
    /// The register that enters the state.
    pub entry: Register,
    /// Worst exit latency, microseconds.
    pub latency_us: u16,
    /// Power in the state, milliwatts.
    pub milliwatts: u32,
}

/// The halt instruction as a C1 state (8.4.1.1, functional fixed hardware). The bit offset is
/// Intel's class of the entry; 2 would mean MWAIT (arch/x86/kernel/acpi/cstate.c,
/// `NATIVE_CSTATE_BEYOND_HALT`), which does not halt in TCG.
pub(crate) const HALT: Register =
    Register { space: Space::FixedHardware, bits: 1, offset: 0, access: 0, address: 0 };

/// The CPPC mailbox: a PCC subspace of type 0 (14.1.2) in a part of the guest's memory that its
/// kernel does not use.
///
/// The doorbell is the mailbox's own status word, and ringing it sets "command complete": every
/// command completes at once, and written values are visible in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mailbox {
    /// Guest-physical address.
    pub base: u64,
    /// Number of blocks after the header.
    pub blocks: u32,
}

impl Mailbox {
    /// `PCC` in the signature's upper half (14.2).
    const SIGNATURE: u32 = 0x5043_4300;
    const HEADER: u32 = 8;

    /// Offset of a processor's block from the mailbox's base.
    pub fn block(number: u32) -> u32 {
        block::offset(number)
    }

    /// Size in bytes.
    pub fn size(&self) -> u32 {
        Mailbox::block(self.blocks)
    }

    /// Content before the guest starts: the header, whose status is "complete", and the value at
    /// which counters wrap.
    pub fn initial(&self, guaranteed: impl Fn(u32) -> u32) -> Vec<u8> {
        let mut memory = vec![0; self.size() as usize];
        let mut put = |at: u32, bytes: &[u8]| {
            // Always in range: every offset is in a block that `size` counts.
            memory[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        };
        put(0, &Mailbox::SIGNATURE.to_le_bytes());
        put(6, &1u16.to_le_bytes());
        for number in 0..self.blocks {
            let at = Mailbox::block(number);
            put(at + block::GUARANTEED, &guaranteed(number).to_le_bytes());
            // Set although it equals the specification's default, because the kernel reads the
            // register if `_CPC` names one (cppc_get_perf_ctrs).
            put(at + block::WRAP, &u64::MAX.to_le_bytes());
        }
        memory
    }

    /// The table that describes the mailbox.
    fn pcct(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&0u32.to_le_bytes()); // flags: no interrupt
        body.extend_from_slice(&0u64.to_le_bytes());
        body.extend_from_slice(&[0, 62]); // a generic subspace and its length
        body.extend_from_slice(&[0; 6]);
        body.extend_from_slice(&self.base.to_le_bytes());
        body.extend_from_slice(&u64::from(self.size()).to_le_bytes());
        body.extend_from_slice(&[Space::Memory as u8, 16, 0, 2]); // the doorbell: the status word
        body.extend_from_slice(&(self.base + 6).to_le_bytes());
        body.extend_from_slice(&0xfffeu64.to_le_bytes()); // preserved bits
        body.extend_from_slice(&1u64.to_le_bytes()); // written bits: command complete
        body.extend_from_slice(&1u32.to_le_bytes()); // latency, microseconds
        body.extend_from_slice(&0u32.to_le_bytes()); // commands a minute: no limit (drivers/acpi/cppc_acpi.c)
        // If this is not 0, the kernel waits between commands (send_pcc_cmd), in emulated time.
        body.extend_from_slice(&0u16.to_le_bytes()); // least time between commands
        aml::table(*b"PCCT", 2, &body)
    }

    fn register(number: u32, at: u32, bits: u8) -> Aml {
        // Addresses in the PCC space count from the end of the header (GET_PCC_VADDR,
        // drivers/acpi/cppc_acpi.c).
        let address = u64::from(Mailbox::block(number) + at - Mailbox::HEADER);
        Register { space: Space::Pcc, bits, offset: 0, access: 0, address }.resource()
    }
}

impl Firmware {
    /// The tables to add.
    pub fn tables(&self) -> Vec<Vec<u8>> {
        let mut terms = vec![capabilities()];
        if self.acts {
            terms.push(aml::scope("\\_SB", &self.events()));
        }
        // Three upper-case digits, QEMU's names of processors (hw/acpi/cpu.c); the kernel would not
        // find another scope.
        for (number, processor) in self.processors.iter().enumerate() {
            let objects = processor.objects(self.acts);
            if !objects.is_empty() {
                terms.push(aml::scope(&format!("\\_SB.CPUS.C{number:03X}"), &objects));
            }
        }
        let mut tables = vec![aml::table(*b"SSDT", 2, &terms.concat())];
        tables.extend(self.mailbox.map(|mailbox| mailbox.pcct()));
        tables
    }

    /// Devices whose `_STA` triggers an event of the firmware. The kernel evaluates it when it
    /// finds the device, and whenever /sys/bus/acpi/devices/HID:00/status is read
    /// (drivers/acpi/device_sysfs.c, `status_show`). `FLYB00nn` notifies every processor with code
    /// nn and changes nothing; `FLYB01nn` sets `_PPC` to nn, and then notifies with 80h (8.4.5.3).
    fn events(&self) -> Vec<Aml> {
        let count = self.processors.len();
        let device = |kind: u8, number: u8, term: Option<Aml>, code: u8| {
            let mut terms: Vec<Aml> = term.into_iter().collect();
            terms.extend((0..count).map(|cpu| aml::notify(&format!("\\_SB.CPUS.C{cpu:03X}"), code)));
            terms.push(aml::give_back(&aml::int(0x0f)));
            aml::device(
                &format!("F{kind}{number:02X}"),
                &[
                    aml::name("_HID", &aml::string(&format!("FLYB{kind:02X}{number:02X}"))),
                    aml::method("_STA", 0, &terms),
                ],
            )
        };
        let mut all = vec![aml::name(LIMIT, &aml::int(0))];
        // Performance limit, idle states, throttling, guaranteed and highest performance (table
        // 5.162).
        all.extend([0x80, 0x81, 0x82, 0x83, 0x85].map(|code| device(0, code, None, code)));
        let states = self.processors.iter().filter_map(|processor| processor.states.as_ref());
        let states = states.map(|states| states.states.len()).max().unwrap_or(0).min(0x100);
        let limit = format!("\\_SB.{LIMIT}");
        // "No limit" comes last, because the kernel evaluates all of them in this order while it
        // boots.
        for number in (0..states).rev() {
            let set = aml::store(&aml::int(number as u64), &aml::path(&limit));
            all.push(device(1, number as u8, Some(set), 0x80));
        }
        all
    }
}

/// The variable that `_PPC` returns if firmware has events.
const LIMIT: &str = "FLIM";

/// `\_SB._OSC`: acknowledges all of the kernel's capabilities. Without it the kernel ignores `_CPC`
/// (drivers/acpi/bus.c, `acpi_bus_osc_negotiate_platform_control`).
fn capabilities() -> Aml {
    let platform = aml::uuid("0811b06e-4a27-44f9-8d60-3cbbc22e7b48");
    // Bit 2 of the first word of the answer (6.2.11, "Unrecognized UUID").
    let unknown_uuid = aml::int(4);
    let method = aml::method(
        "_OSC",
        4,
        &[
            aml::if_true(&aml::equal(&aml::arg(0), &platform), &[aml::give_back(&aml::arg(3))]),
            // Reject any other list of capabilities as specified: return its buffer.
            aml::dword_field(&aml::arg(3), 0, "STAT"),
            aml::or(&aml::path("STAT"), &unknown_uuid, &aml::path("STAT")),
            aml::give_back(&aml::arg(3)),
        ],
    );
    aml::scope("\\_SB", &[method])
}

impl Processor {
    fn objects(&self, acts: bool) -> Vec<Aml> {
        let mut objects = Vec::new();
        if let Some(cppc) = &self.cppc {
            objects.push(aml::name("_CPC", &cppc.package()));
        }
        if let Some(states) = &self.states {
            objects.extend(states.objects(acts));
        }
        if !self.idle.is_empty() {
            // The package begins with the number of states, which the kernel compares with the
            // package's length (acpi_processor_evaluate_cst, drivers/acpi/acpi_processor.c).
            let count = aml::int(self.idle.len() as u64);
            let rows = self.idle.iter().map(|state| {
                aml::package(&[
                    state.entry.resource(),
                    aml::int(u64::from(state.kind)),
                    aml::int(u64::from(state.latency_us)),
                    aml::int(u64::from(state.milliwatts)),
                ])
            });
            let all: Vec<Aml> = std::iter::once(count).chain(rows).collect();
            objects.push(aml::name("_CST", &aml::package(&all)));
        }
        objects
    }
}

impl Cppc {
    /// The 23 entries of revision 3 (table 8.22).
    fn package(&self) -> Aml {
        let int = |value: u32| aml::int(u64::from(value));
        let none = || Register::NONE.resource();
        // The kernel rejects a package whose count does not match its revision
        // (acpi_cppc_processor_probe). Revision 3 has 23 entries, so every entry must exist, if
        // only as an empty register.
        let mut entries = vec![int(23), int(3)];
        match self.registers {
            CppcRegisters::Mailbox(number) => {
                let at = |offset| Mailbox::register(number, offset, 32);
                let wide = |offset| Mailbox::register(number, offset, 64);
                entries.extend([
                    int(self.highest),
                    int(self.nominal),
                    int(self.lowest_nonlinear),
                    int(self.lowest),
                    at(block::GUARANTEED),
                    at(block::DESIRED),
                    at(block::MINIMUM),
                    at(block::MAXIMUM),
                    at(block::TOLERANCE),
                    at(block::TIME_WINDOW),
                    wide(block::WRAP),
                    wide(block::REFERENCE),
                    wide(block::DELIVERED),
                    at(block::LIMITED),
                    at(block::ENABLE),
                    at(block::AUTONOMOUS),
                    at(block::WINDOW),
                    at(block::PREFERENCE),
                ]);
            }
            CppcRegisters::AmdMsr => {
                // Width and first bit of the registers' fields, as in
                // arch/x86/include/asm/msr-index.h (AMD_CPPC_*_MASK).
                let msr = |address, bits, offset| {
                    Register { space: Space::FixedHardware, bits, offset, access: 4, address }.resource()
                };
                const CAPABILITIES: u64 = 0xc001_02b0;
                const ENABLE: u64 = 0xc001_02b1;
                const REQUEST: u64 = 0xc001_02b3;
                const STATUS: u64 = 0xc001_02b4;
                entries.extend([
                    msr(CAPABILITIES, 8, 24),
                    msr(CAPABILITIES, 8, 16),
                    msr(CAPABILITIES, 8, 8),
                    msr(CAPABILITIES, 8, 0),
                    none(),
                    msr(REQUEST, 8, 16),
                    msr(REQUEST, 8, 8),
                    msr(REQUEST, 8, 0),
                    none(),
                    none(),
                    none(),
                    // MPERF and APERF: reference and delivered performance counters.
                    msr(0xe7, 64, 0),
                    msr(0xe8, 64, 0),
                    msr(STATUS, 1, 1),
                    msr(ENABLE, 1, 0),
                    none(),
                    none(),
                    msr(REQUEST, 8, 24),
                ]);
            }
        }
        entries.extend([int(self.reference), int(self.lowest_mhz), int(self.nominal_mhz)]);
        aml::package(&entries)
    }
}

impl PerformanceStates {
    fn objects(&self, acts: bool) -> Vec<Aml> {
        let limit = if acts {
            aml::method("_PPC", 0, &[aml::give_back(&aml::path(&format!("\\_SB.{LIMIT}")))])
        } else {
            aml::name("_PPC", &aml::int(0))
        };
        let int = |value: u32| aml::int(u64::from(value));
        let register = match self.control {
            Control::Port(port) => {
                Register { space: Space::Io, bits: 8, offset: 0, access: 1, address: u64::from(port) }
            }
            Control::FixedHardware => {
                Register { space: Space::FixedHardware, bits: 0, offset: 0, access: 0, address: 0 }
            }
        };
        let rows: Vec<Aml> = self
            .states
            .iter()
            .map(|state| {
                aml::package(&[
                    int(state.mhz),
                    int(state.milliwatts),
                    // Transition latency and bus master latency: no bus stops here, so both are
                    // equal.
                    int(state.latency_us),
                    int(state.latency_us),
                    int(state.control),
                    int(state.status),
                ])
            })
            .collect();
        let (domain, coordination, members) = self.domain;
        // Five entries, revision 0: the kernel rejects a _PSD with other values
        // (acpi_processor_get_psd).
        let psd = aml::package(&[int(5), int(0), int(domain), int(coordination as u32), int(members)]);
        vec![
            limit,
            aml::name("_PCT", &aml::package(&[register.resource(), register.resource()])),
            aml::name("_PSS", &aml::package(&rows)),
            aml::name("_PSD", &aml::package(&[psd])),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    pub(crate) fn example(registers: CppcRegisters, control: Control) -> Firmware {
        let processor = Processor {
            cppc: Some(Cppc {
                highest: 166,
                nominal: 117,
                lowest_nonlinear: 39,
                lowest: 15,
                reference: 117,
                lowest_mhz: 400,
                nominal_mhz: 3301,
                registers,
            }),
            states: Some(PerformanceStates {
                states: [3300, 2400, 1600]
                    .into_iter()
                    .enumerate()
                    .map(|(n, mhz)| PerformanceState {
                        mhz,
                        milliwatts: mhz * 3,
                        latency_us: 10,
                        control: n as u32,
                        status: n as u32,
                    })
                    .collect(),
                control,
                domain: (0, Coordination::Hardware, 1),
            }),
            idle: vec![IdleState { kind: 1, entry: HALT, latency_us: 1, milliwatts: 100 }],
        };
        Firmware {
            processors: vec![processor; 3],
            mailbox: Some(Mailbox { base: 0x0f00_0000, blocks: 3 }),
            acts: false,
        }
    }

    #[test]
    fn the_mailbox_fits_its_description() {
        let mailbox = Mailbox { base: 0x0f00_0000, blocks: 4 };
        let memory = mailbox.initial(|number| 100 + number);
        assert_eq!(memory.len(), 0x500);
        assert_eq!(memory[0x100 + 0x20], 100);
        assert_eq!(memory[0x400 + 0x20], 103);
        let pcct = mailbox.pcct();
        assert_eq!(pcct.len(), 36 + 12 + 62);
    }

    /// Checks the tables with another implementation of ACPI.
    #[test]
    fn iasl_reads_the_tables_back() {
        if Command::new("iasl").arg("-v").output().is_err() {
            eprintln!("skipped 1: no iasl on this machine");
            return;
        }
        for (registers, control, expected) in [
            (CppcRegisters::Mailbox(1), Control::Port(0x81), "Register (PCC,"),
            (CppcRegisters::AmdMsr, Control::FixedHardware, "0x00000000C00102B3"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let firmware = Firmware { acts: true, ..example(registers, control) };
            for (n, table) in firmware.tables().iter().enumerate() {
                let file = dir.path().join(format!("t{n}.aml"));
                std::fs::write(&file, table).unwrap();
                let out = Command::new("iasl").arg("-d").arg(&file).output().unwrap();
                assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
                let text = std::fs::read_to_string(file.with_extension("dsl")).unwrap();
                assert!(!text.contains("Invalid") && !text.contains("Checksum Error"), "{text}");
                if n == 0 {
                    for word in ["_OSC", "_CPC", "_PSS", "_PCT", "_PPC", "_PSD", "_CST", "FLYB0102", expected]
                    {
                        assert!(text.contains(word), "no {word} in {text}");
                    }
                    assert!(text.contains("Scope (\\_SB.CPUS.C002)"), "{text}");
                }
            }
        }
    }
}
