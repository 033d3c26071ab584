//! Properties of plans, on snapshots that are built without a kernel or a file.

use flyball_control::{
    At, Content, Cpu, Entry, Form, Id, Intent, Place, Policy, Reading, Slot, Snapshot, Topology, Value,
    plan::{PlanError, Refusal, plan},
    verify::verify,
};
use flyball_host::{CpuList, KiloHertz, Kind};
use proptest::prelude::*;

const GOVERNORS: [&str; 3] = ["performance", "powersave", "schedutil"];

/// Settings of the policies: governor, and limits in steps of 100 MHz.
#[derive(Debug, Clone)]
struct Held {
    governors: Vec<usize>,
    limits: Vec<(u64, u64)>,
}

fn held() -> impl Strategy<Value = Held> {
    proptest::collection::vec((0..GOVERNORS.len(), 8u64..=20, 20u64..=40), 1..6).prop_map(|policies| Held {
        governors: policies.iter().map(|(governor, ..)| *governor).collect(),
        limits: policies.iter().map(|(_, low, high)| (*low, *high)).collect(),
    })
}

fn number(place: &Place) -> usize {
    match place.at {
        At::Policy(number) => number as usize,
        _ => 0,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "`Snapshot::with` takes an Option")]
fn file(place: &Place, name: &str, form: Form, value: Value, text: String) -> Option<Entry> {
    let path = format!("/sys/devices/system/cpu/cpufreq/policy{}/{name}", number(place));
    let slot = Slot::file(path, form, Content::Text(format!("{text}\n")));
    let reading = Ok(Reading::Value { value, source: slot.location.clone() });
    Some(Entry { reading, slot: Some(Box::new(slot)) })
}

fn word(place: &Place, name: &str, word: &str) -> Option<Entry> {
    file(place, name, Form::Word, Value::Word(word.to_owned()), word.to_owned())
}

fn frequency(place: &Place, name: &str, hundreds: u64) -> Option<Entry> {
    let khz = hundreds * 100_000;
    file(place, name, Form::KHz, Value::Frequency(KiloHertz(khz)), khz.to_string())
}

/// Creates a machine of `count` CPUs, each online with its own core and policy.
fn topology_of(count: u32) -> Topology {
    let all: CpuList = (0..count).collect();
    let cpu = |number: u32| Cpu {
        number,
        online: true,
        package: Some(0),
        die: Some(0),
        core: Some(number),
        policy: Some(number),
        ..Cpu::default()
    };
    let policy = |number: u32| {
        let cpus = CpuList::from_iter([number]);
        Policy { number, cpus: cpus.clone(), online: cpus }
    };
    Topology {
        possible: all.clone(),
        present: all.clone(),
        online: all,
        online_is_listed: true,
        cpus: (0..count).map(|number| (number, cpu(number))).collect(),
        policies: (0..count).map(policy).collect(),
        ..Topology::default()
    }
}

impl Held {
    /// Builds a machine of one CPU per policy, from 0.8 to 4 GHz, whose driver accepts the kernel's
    /// governors.
    fn snapshot(&self) -> Snapshot {
        let topology = topology_of(self.governors.len() as u32);
        let governors = Value::Words(GOVERNORS.map(str::to_owned).to_vec());
        Snapshot::empty("made", Kind::Simulated, topology)
            .with(Id::Governor, |place| {
                word(place, "scaling_governor", GOVERNORS[self.governors[number(place)]])
            })
            .with(Id::AvailableGovernors, |place| {
                file(
                    place,
                    "scaling_available_governors",
                    Form::Words,
                    governors.clone(),
                    GOVERNORS.join(" "),
                )
            })
            .with(Id::Driver, |place| word(place, "scaling_driver", "intel_cpufreq"))
            .with(Id::MinFreq, |place| frequency(place, "scaling_min_freq", self.limits[number(place)].0))
            .with(Id::MaxFreq, |place| frequency(place, "scaling_max_freq", self.limits[number(place)].1))
            .with(Id::HwMinFreq, |place| frequency(place, "cpuinfo_min_freq", 8))
            .with(Id::HwMaxFreq, |place| frequency(place, "cpuinfo_max_freq", 40))
            .with(Id::BaseFreq, |_| None)
            .with(Id::NominalFreq, |_| None)
            .with(Id::AvailableFreqs, |_| None)
            .with(Id::BoostFreqs, |_| None)
            .with(Id::BiosLimit, |_| None)
            .with(Id::Turbo, |_| None)
            .with(Id::MinPerfPct, |_| None)
            .with(Id::MaxPerfPct, |_| None)
    }
}

fn intent(arguments: &[String]) -> Intent {
    Intent::from_arguments(arguments, None).unwrap()
}

proptest! {
    /// A governor is written only if the present one differs.
    #[test]
    fn what_holds_is_not_planned(held in held(), wanted in 0..GOVERNORS.len()) {
        let snapshot = held.snapshot();
        let intent = intent(&[format!("governor={}", GOVERNORS[wanted])]);
        let plan = plan(&snapshot, &intent).unwrap();
        let others = held.governors.iter().filter(|governor| **governor != wanted).count();
        prop_assert_eq!(plan.changes.len(), others);
        prop_assert!(plan.changes.iter().all(|change| change.new == GOVERNORS[wanted]));
        prop_assert_eq!(verify(&snapshot, &intent).unwrap().holds(), others == 0);
    }

    /// Limits are planned inside the hardware's range and never crossed. A second plan is empty. A
    /// refusal is about the value or the other limit.
    #[test]
    fn limits_are_planned_once_or_refused(held in held(), low in 5u64..45, high in 5u64..45) {
        let intent = intent(&[format!("min-freq={low}00MHz"), format!("max-freq={high}00MHz")]);
        let inside = |hundreds: u64| (8..=40).contains(&hundreds);
        match plan(&held.snapshot(), &intent) {
            Ok(planned) => {
                prop_assert!(low <= high && inside(low) && inside(high));
                let after = Held { limits: vec![(low, high); held.limits.len()], ..held };
                prop_assert!(plan(&after.snapshot(), &intent).unwrap().is_empty(), "{planned:?}");
            }
            Err(PlanError::Refused(refusals)) => {
                prop_assert!(low > high || !inside(low) || !inside(high));
                let expected = |refusal: &Refusal| {
                    matches!(refusal, Refusal::Crossed { .. } | Refusal::Value { .. })
                };
                prop_assert!(refusals.iter().all(expected), "{refusals:?}");
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    /// A governor for some CPUs changes only the policies of those CPUs.
    #[test]
    fn only_selected_places_are_planned(held in held(), first in 0u32..6, last in 0u32..6) {
        let all = held.governors.len() as u32;
        let (first, last) = (first.min(last), first.max(last));
        prop_assume!(last < all);
        let on = format!("{first}-{last}");
        let intent = Intent::from_arguments(&["governor=performance"], Some(&on)).unwrap();
        let selected: CpuList = on.parse().unwrap();
        for change in plan(&held.snapshot(), &intent).unwrap().changes {
            prop_assert!(change.cpus.is_subset(&selected), "{change:?}");
        }
    }
}
