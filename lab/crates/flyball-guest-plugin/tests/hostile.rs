//! A guest may write any value to any register, port, mailbox and function, and QEMU may send any
//! bytes. None of this may crash the host process, make it hang, or produce invalid numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use flyball_guest_plugin::{
    chip::{Chip, Mailbox},
    layout::PORTS,
    machine::{Interface, Reduction},
    punit::{self, Function},
    vfio_user::Connection,
};
use flyball_silicon::{MachineSpec, Silicon};
use proptest::prelude::*;

/// An action of a guest.
#[derive(Debug, Clone)]
enum Act {
    Write { cpu: usize, register: u32, value: u64 },
    Read { cpu: usize, register: u32, elapsed: u64 },
    Cpuid { cpu: usize, leaf: u32, subleaf: u32 },
    Out { port: u16, value: u8 },
    Mailbox { word: usize, value: u64 },
    Pci { function: usize, write: bool, config: bool, offset: u64, bytes: Vec<u8> },
    Bytes { function: usize, bytes: Vec<u8> },
    Time { ns: u64, busy: u64 },
}

/// Registers with a function are chosen more often than others.
fn register() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        0u32..0x1000,
        0xc001_0000u32..0xc001_0400,
        prop::sample::select(vec![
            0xb0,
            0xb1,
            0x10,
            0x3b,
            0xe7,
            0xe8,
            0x128,
            0x199,
            0x1a0,
            0x1ad,
            0x1b0,
            0x606,
            0x610,
            0x611,
            0x620,
            0x64b,
            0x770,
            0x771,
            0x772,
            0x773,
            0x774,
            0x777,
            0xc001_0015,
            0xc001_0062,
            0xc001_02b1,
            0xc001_02b3,
        ]),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let cpu = 0usize..6;
    let value = prop_oneof![any::<u64>(), 0u64..0x1_0000, Just(u64::MAX), Just(1 << 31 | 0x7f)];
    prop_oneof![
        4 => (cpu.clone(), register(), value.clone()).prop_map(|(cpu, register, value)| Act::Write { cpu, register, value }),
        // No CPU executes for longer than the step.
        1 => (cpu.clone(), register(), 0u64..10_000_000)
            .prop_map(|(cpu, register, elapsed)| Act::Read { cpu, register, elapsed }),
        1 => (0usize..4, any::<u32>(), any::<u32>()).prop_map(|(cpu, leaf, subleaf)| Act::Cpuid { cpu, leaf, subleaf }),
        1 => (0u16..6, any::<u8>()).prop_map(|(port, value)| Act::Out { port: PORTS.wrapping_add(port), value }),
        1 => (any::<usize>(), value).prop_map(|(word, value)| Act::Mailbox { word, value }),
        3 => (
            0usize..4,
            any::<bool>(),
            any::<bool>(),
            prop_oneof![0u64..0x120, 0u64..0x1_0000, any::<u64>()],
            prop::collection::vec(any::<u8>(), 1..9),
        )
            .prop_map(|(function, write, config, offset, bytes)| Act::Pci { function, write, config, offset, bytes }),
        1 => (0usize..4, prop::collection::vec(any::<u8>(), 0..80)).prop_map(|(function, bytes)| Act::Bytes { function, bytes }),
        2 => (1u64..3_000_000, any::<u64>()).prop_map(|(ns, busy)| Act::Time { ns, busy }),
    ]
}

const MACHINES: &[(&str, Option<Interface>, u32)] = &[
    ("ryzen-5750g", None, 4),
    ("ryzen-5750g", Some(Interface::CppcMailbox), 4),
    ("ryzen-5750g", Some(Interface::PStates), 4),
    ("sst-guide", None, 4),
    ("tpmi-small", None, 4),
    ("hybrid-laptop", None, 4),
];

/// A vfio-user message: read or write in a function's region.
fn message(write: bool, config: bool, offset: u64, bytes: &[u8]) -> Vec<u8> {
    let mut body = offset.to_le_bytes().to_vec();
    body.extend(if config { 7u32 } else { 0 }.to_le_bytes());
    body.extend((bytes.len() as u32).to_le_bytes());
    if write {
        body.extend(bytes);
    }
    let mut out = vec![1, 0, if write { 10 } else { 9 }, 0];
    out.extend((16 + body.len() as u32).to_le_bytes());
    out.extend([0; 8]);
    out.extend(body);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_guest_does(machine in prop::sample::select(MACHINES), acts in prop::collection::vec(act(), 1..120)) {
        let (name, interface, cpus) = machine;
        let toml = MachineSpec::builtin_text(name).expect("a machine").to_owned();
        let (spec, _) = Reduction { toml, cpus, interface }.make().expect("a machine");
        let words: Vec<AtomicU64> = (0..4096).map(|_| AtomicU64::new(0)).collect();
        // Kept as long as the test runs, like a guest's memory.
        let mailbox: Mailbox = Box::leak(words.into_boxed_slice());
        let places = punit::places(&spec);
        let silicon = Silicon::new(spec, 0).expect("a machine");
        let mut functions: Vec<(Connection, Function)> =
            places.iter().map(|place| (Connection::default(), Function::new(*place, &silicon))).collect();
        let mut chip = Chip::new(silicon, (interface == Some(Interface::CppcMailbox)).then_some(mailbox));
        for act in acts {
            match act {
                Act::Write { cpu, register, value } => {
                    chip.write_msr(cpu, register, value, 0);
                }
                Act::Read { cpu, register, elapsed } => {
                    let _ = chip.read_msr(cpu, register, elapsed);
                }
                Act::Cpuid { cpu, leaf, subleaf } => {
                    let _ = chip.cpuid(cpu, leaf, subleaf);
                }
                Act::Out { port, value } => {
                    chip.write_port(0, port, value, 0);
                    let _ = chip.read_port(port);
                }
                Act::Mailbox { word, value } => mailbox[word % mailbox.len()].store(value, Ordering::Relaxed),
                Act::Pci { function, write, config, offset, bytes } => {
                    if let Some((connection, function)) = functions.get_mut(function) {
                        let bytes = message(write, config, offset, &bytes);
                        let answer = chip.pci(connection, &bytes, function).expect("a whole message");
                        prop_assert!((16..=64).contains(&answer.len()), "an answer, and no long one");
                    }
                }
                Act::Bytes { function, bytes } => {
                    if let Some((connection, function)) = functions.get_mut(function)
                        && chip.pci(&mut Connection::default(), &bytes, function).is_none()
                    {
                        *connection = Connection::default();
                    }
                }
                Act::Time { ns, busy } => {
                    chip.advance(ns, [busy % (ns + 1); 4].into_iter());
                    for cpu in 0..4 {
                        prop_assert!((1..=100_000_000).contains(&chip.khz(cpu)));
                    }
                    let (watts, celsius) = (chip.silicon().power(0).0, chip.silicon().temperature(0).0);
                    prop_assert!(watts.is_finite() && (0.0..5000.0).contains(&watts), "{watts} W");
                    prop_assert!(celsius.is_finite() && celsius < 1000.0, "{celsius} C");
                }
            }
        }
    }
}
