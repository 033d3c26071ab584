//! Replays recorded answers of the real Speed Select drivers, call by call, on the simulator.
//!
//! The recordings are text files that a probe wrote in guests with real kernels and simulated
//! firmware: a call's name, its return value or errno, and the first 160 bytes of its argument
//! afterwards. They are in `$FLYBALL_SHARED/lab/results/sst` (else `../shared` next to the
//! workspace); without them the tests skip and say so. The TPMI guests had the registers of this
//! repository's recorded Granite Rapids.

mod calls;
pub(crate) mod machines;

use calls::script;
use flyball_sim::{Boot, SimMachine};
use flyball_testing::skip;
use machines::{folder, machine};

/// Known differences: (file, call, reason). Each must occur.
const KNOWN: &[(&str, &str, &str)] = &[
    ("clx", "msr read 0x1af", EMULATOR),
    ("clx", "msr read 0x54", EMULATOR),
    ("icx", "msr read 0x1af", EMULATOR),
    ("icx", "msr read 0x54", EMULATOR),
    ("spr", "msr read 0x1af", EMULATOR),
    ("spr", "msr read 0x54", EMULATOR),
    ("gnr", "msr read 0x1af", EMULATOR),
    ("gnr-6.12", "perf levels 0/0", CLASSES),
    ("gnr-levels3-6.12", "perf levels 0/0", CLASSES),
    ("gnr-levels3-6.12", "mask", NEIGHBOURS),
    ("gnr-6.12", "mask", NEIGHBOURS),
    ("gnr-levels3", "bf info 2", REST),
    ("gnr-levels3", "bf mask 2", REST),
    ("gnr-levels3", "tf info 2", REST),
    ("gnr-levels3", "msr read", LIMITS),
];

const REST: &str = "the laboratory's firmware leaves the numbers of features that its third level has not";
const LIMITS: &str = "a level brings its turbo limits along, which the laboratory's firmware does not";
const EMULATOR: &str = "the emulator reads registers that the processor has not as 0; here they fault";
const CLASSES: &str =
    "6.12 had let classes of service be switched off before; here turbo-freq is then refused by the firmware";
const NEIGHBOURS: &str =
    "6.12 reads beyond its table of levels; here that faults at once, there after one or two";

#[test]
fn calls_are_answered_as_by_the_real_drivers() {
    let Some(folder) = folder() else {
        skip(1, "replay of the drivers' recorded answers", "no lab/results/sst");
        return;
    };
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_string_lossy().strip_suffix(".txt").map(str::to_owned))
        .filter(|name| name.starts_with("isst-"))
        .collect();
    names.sort();
    let (mut compared, mut skipped) = (0, 0);
    let mut wrong = String::new();
    let mut met = vec![false; KNOWN.len()];
    for name in names {
        let Some((spec, kernel)) = machine(&name) else {
            skipped += 1;
            continue;
        };
        let tpmi = name.contains("gnr");
        let mut machine = SimMachine::boot(spec, kernel, Boot::default(), 0).unwrap();
        let recorded = std::fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap();
        let highest = if name.contains("levels3") { 2 } else { 0 };
        let cpus = if tpmi { 6 } else { 4 };
        // Calls in order: the name in 58 columns, then the answer.
        let mut lines = recorded.lines().filter(|line| {
            !["modprobe", "node", "--", "open:", "rmmod", "    "].iter().any(|word| line.starts_with(word))
        });
        for mut call in script(cpus, highest) {
            let Some(line) = lines.next() else { break };
            if line.contains("killed by signal") {
                let _ = machine.isst(call.number, &mut call.argument, call.caller);
                assert!(machine.kernel_fault().is_some(), "{name}: {line}");
                break;
            }
            let (title, theirs) = line.split_at(line.len().min(58));
            assert_eq!(title.trim_end(), call.name, "{name}");
            let ours = match machine.isst(call.number, &mut call.argument, call.caller) {
                Ok(value) => {
                    let bytes: String =
                        call.argument.iter().take(160).map(|byte| format!("{byte:02x}")).collect();
                    format!("{value}  {bytes}")
                }
                Err(errno) => format!("{errno:?}"),
            };
            compared += 1;
            let theirs = theirs.trim();
            if ours != theirs {
                let known =
                    KNOWN.iter().position(|(file, what, _)| name.contains(file) && call.name.contains(what));
                match known {
                    Some(index) => met[index] = true,
                    None => wrong.push_str(&format!(
                        "{name}: {}\n  recorded  {theirs}\n  simulated {ours}\n",
                        call.name
                    )),
                }
            }
        }
    }
    eprintln!("{compared} calls compared; {skipped} recordings skipped");
    assert!(wrong.is_empty(), "{wrong}");
    assert!(compared > 500);
    if skipped == 0 {
        let never: Vec<_> =
            KNOWN.iter().zip(&met).filter(|(_, met)| !**met).map(|(known, _)| known).collect();
        assert!(never.is_empty(), "known differences that do not occur: {never:?}");
    }
}
