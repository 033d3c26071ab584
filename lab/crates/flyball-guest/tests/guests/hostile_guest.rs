//! Real guests that write random values to all registers and flood the plug-in's PCI functions: the
//! host's side must survive and report the guest's end. (`flyball-guest-plugin/tests/hostile.rs`
//! does this without a guest.)
//!
//! By default one machine is attacked; `FLYBALL_GUEST_TESTS=all` attacks all, also with registers
//! that a kernel does not survive.

use std::{path::Path, process::Command, time::Duration};

use crate::common::Guest;
use flyball_guest::{Interface, guest::Request, initramfs::JobFile};
use flyball_testing::skip;

/// Machine, interface, number of CPUs, whether it has functions to flood.
const MACHINES: &[(&str, Option<Interface>, u32, bool)] = &[
    ("tpmi-small", None, 4, true),
    ("sst-guide", None, 4, true),
    ("msr-mailbox", None, 4, false),
    ("ryzen-5750g", Some(Interface::CppcMailbox), 4, false),
    ("ryzen-5750g", None, 4, false),
];

#[test]
fn a_hostile_guest_harms_itself_alone() {
    let Some((guest, kernels)) = Guest::new("a_hostile_guest_harms_itself_alone") else { return };
    let kernel = kernels.last().expect("a kernel");
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("hostile");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/hostile.c");
    let built = Command::new("cc").args(["-O1", "-w", "-o"]).arg(&program).arg(source).output();
    if !built.is_ok_and(|built| built.status.success()) {
        skip(1, "hostile guest", "no C compiler");
        return;
    }
    let all = std::env::var_os("FLYBALL_GUEST_TESTS").is_some_and(|value| value == "all");
    let mut skipped = 0;
    for (index, (machine, interface, cpus, functions)) in MACHINES.iter().enumerate() {
        if index > 0 && !all {
            skipped += 1;
            continue;
        }
        for closed in [false, true] {
            if closed && !all {
                continue;
            }
            let script = format!(
                "./hostile {index} 60000 ours && echo survived; {}echo end",
                if all { "./hostile 77 3000 any; " } else { "" }
            );
            let mut request = Request::new(machine, kernel, &[&script]);
            request.cpus = *cpus;
            request.interface = *interface;
            request.closed = closed;
            request.files = vec![JobFile { source: program.clone(), name: "hostile".into() }];
            request.modules = vec!["msr".into()];
            request.append = vec!["msr.allow_writes=on iomem=relaxed".into()];
            request.timeout = Some(Duration::from_secs(if all { 120 } else { 300 }));
            let ended = guest.run(&request);
            let what =
                format!("{machine} {interface:?} closed {closed}: {}{}", ended.out, ended.end.emulator);
            eprintln!("{what}");
            assert!(ended.out.contains("survived\n"), "{what}\n{}\n{}", ended.err, ended.end.last_words(30));
            let counted = |word: &str| {
                let before = ended.out.split(word).next()?;
                before.split_whitespace().last()?.parse::<u64>().ok()
            };
            assert!(counted(" writes taken").is_some_and(|count| count > 40_000), "{what}");
            if *functions {
                assert!(counted(" of configuration").is_some_and(|count| count >= 2_500), "{what}");
                assert!(*machine != "tpmi-small" || counted(" accesses of memory") >= Some(20_000), "{what}");
            }
            // Whatever happens to the guest, the plug-in must not crash the emulator.
            for word in ["panicked", "Assertion", "SIGSEGV", "core dumped"] {
                assert!(!ended.end.emulator.contains(word), "{what}");
            }
            // With random values in its registers, a kernel may also crash when its first process
            // ends, which harms only the guest.
            let last = ended.end.last_words(30);
            assert!(all || ended.end.exit_code() == 0 || last.contains("Kernel panic"), "{what}\n{last}");
        }
    }
    if skipped > 0 {
        skip(skipped, "hostile guests", "FLYBALL_GUEST_TESTS is not all");
    }
}
