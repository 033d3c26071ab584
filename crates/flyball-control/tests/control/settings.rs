//! Settings of every kind for every knob, to plan on many machines.

use flyball_control::{
    Access, Intent, ReadError, Setting, Snapshot, TABLE,
    plan::{PlanError, plan},
};
use flyball_host::Host;

/// Words, of which each knob accepts some.
const WORDS: &[&str] = &[
    "on",
    "off",
    "min",
    "max",
    "base",
    "nominal",
    "efficient",
    "75%",
    "performance",
    "powersave",
    "schedutil",
    "power",
    "default",
    "active",
    "passive",
    "disable",
    "ordered",
    "proportional",
    "none",
    "0",
    "1",
    "5",
    "128",
    "900",
    "0-1",
    "C1",
    "C9",
    "20us",
    "28s",
    "1GHz",
    "2.4GHz",
    "99GHz",
    "65W",
    "10mW",
    "menu",
    "balanced",
    "cache",
    "no-limit",
    "0x2020202020202020",
];

/// Plans each knob with the words that it accepts, at most `most` of them, for all CPUs and for a
/// single CPU.
///
/// # Panics
/// If the planner reads a knob that the snapshot for the intent does not contain.
pub(crate) fn plan_every_knob(host: &dyn Host, most: usize) -> usize {
    let mut planned = 0;
    for row in TABLE.iter().filter(|row| row.access() == Access::ReadWrite) {
        let mut accepted = 0;
        for word in WORDS {
            for on in [None, Some("0")] {
                let Ok(setting) = Setting::new(row.name, word, on, format!("{}={word}", row.name)) else {
                    continue;
                };
                accepted += 1;
                if accepted > 2 * most {
                    continue;
                }
                let intent = Intent { settings: vec![setting] };
                let snapshot = Snapshot::for_intent(host, &intent).unwrap();
                match plan(&snapshot, &intent) {
                    Ok(_) => planned += 1,
                    Err(PlanError::Read(ReadError::NotTaken(missing))) => {
                        panic!("{}={word} on {}: looks at {missing}", row.name, host.name())
                    }
                    Err(_) => {}
                }
            }
        }
        assert!(accepted > 0, "no word here is a value of {}", row.name);
    }
    planned
}
