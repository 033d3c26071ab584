//! Checks the table for errors that the compiler cannot find: a knob that passes can be read,
//! written, undone, recorded and shown.

use std::collections::BTreeSet;

use flyball_host::recorder;
use flyball_sst::setting::Field;

use super::{auxiliary::AUXILIARIES, *};
use crate::{
    Access, Content, Id, Location, Scope,
    knob::{AppearsWith, Check, Disturbs, Ends, Form, Role, When, Writing},
    knob::{spelling::Spelling, subject::Subject},
    write::reasons::placeholders,
};

/// Returns an example path for a pattern.
fn example(pattern: &str) -> String {
    [
        ("{cpu}", "3"),
        ("{policy}", "0"),
        ("{any-policy}", "0"),
        ("{state}", "2"),
        ("{zone}", "intel-rapl:0"),
        ("{constraint}", "1"),
        ("{uncore}", "package_00_die_00"),
        ("{governor}", "schedutil"),
        ("{tunable}", "rate_limit_us"),
        ("{irq}", "24"),
        ("{hwmon}", "hwmon0"),
        ("{sensor}", "1"),
        ("{profile-device}", "platform-profile-0"),
    ]
    .iter()
    .fold(pattern.to_owned(), |path, (name, value)| path.replace(name, value))
}

/// Returns the writing of every knob and auxiliary setting, with its name.
fn writings() -> impl Iterator<Item = (String, &'static Writing)> {
    let knobs =
        TABLE.iter().filter_map(|row| row.control().map(|control| (row.name.to_owned(), &control.writing)));
    knobs.chain(AUXILIARIES.iter().map(|row| (row.title.to_owned(), &row.writing)))
}

#[test]
fn rows_stand_where_their_identity_says() {
    assert_eq!(TABLE.len(), Id::ALL.len());
    for (id, row) in Id::ALL.iter().zip(TABLE) {
        assert_eq!(*id, row.id, "{}", row.name);
    }
    for (index, row) in AUXILIARIES.iter().enumerate() {
        assert_eq!(row.id as usize, index, "{}", row.title);
    }
}

#[test]
fn rows_are_complete_and_names_are_unique() {
    let mut names = BTreeSet::new();
    let mut facts = false;
    for row in TABLE {
        let name = row.name;
        assert!(names.insert(name), "{name} twice");
        assert!(!row.title.is_empty() && !row.mechanisms.is_empty(), "{name}");
        assert!(row.about.len() > 80, "{name} is not explained");
        let is_knob = row.access() == Access::ReadWrite;
        assert_eq!(is_knob, !row.accepts().is_empty(), "{name}");
        assert_eq!(is_knob, row.mechanisms.iter().any(Mechanism::writes), "{name}");
        assert_eq!(is_knob, row.step().is_some(), "{name}");
        for mechanism in row.mechanisms {
            assert_eq!(mechanism.form().unit(), row.unit(), "{name}");
        }
        assert!(is_knob <= !facts, "{name}: knobs come before facts");
        facts |= !is_knob;
        for (other, how) in row.interacts {
            assert!(*other != row.id && !how.is_empty(), "{name} with {other}");
        }
    }
}

#[test]
fn every_word_is_checked_before_it_is_written() {
    for knob in TABLE {
        let is_word = knob.mechanisms.iter().any(|mechanism| mechanism.form() == Form::Word);
        if let (true, Role::Knob(control)) = (is_word, &knob.role) {
            assert!(!matches!(control.check, Check::Any), "{}: any word passes the plan", knob.name);
        }
    }
}

/// A row may only refer to rows of a suitable kind.
#[test]
fn rows_name_rows_that_fit() {
    for row in TABLE {
        let name = row.name;
        if let When::Holds(other, value) = row.shown.when {
            assert!(other.knob().control().is_some() && !value.is_empty(), "{name}: shown with {other}");
        }
        let Some(control) = row.control() else { continue };
        match control.ends {
            Ends::Rows(low, high) => {
                assert_eq!(low.knob().unit(), row.unit(), "{name}");
                assert_eq!(high.knob().unit(), row.unit(), "{name}");
            }
            Ends::UpToRow(high) => assert_eq!(high.knob().unit(), row.unit(), "{name}"),
            Ends::Numbers(low, high) => assert!(low < high, "{name}"),
            Ends::None => {}
        }
        match control.check {
            Check::Listed(list) => assert_eq!(list.knob().form(), Form::Words, "{name}"),
            Check::BetweenEnds | Check::BetweenEndsInSteps => {
                assert!(matches!(control.ends, Ends::Rows(..)), "{name}");
            }
            _ => {}
        }
        if let Some(narrower) = row.narrower() {
            assert_eq!(row.scope, Scope::Machine, "{name}");
            assert_ne!(narrower.knob().scope, Scope::Machine, "{name}");
        }
    }
}

/// Writing and restoring find a location's row by these patterns, so each must lead back to its own
/// row.
#[test]
fn a_location_leads_to_its_row() {
    for row in TABLE.iter().filter(|row| row.control().is_some()) {
        for mechanism in row.mechanisms.iter().filter(|mechanism| mechanism.writes()) {
            let location = match *mechanism {
                Mechanism::File { path, .. } => Location::file(example(path)),
                Mechanism::Msr { register, bits, .. } => {
                    Location::Msr { cpu: 3, register, mask: crate::knob::mask(bits) }
                }
                Mechanism::SpeedSelect { field, .. } => {
                    let setting = match field {
                        Field::Class(_) => "sst:tpmi3:0.1:class:7".to_owned(),
                        _ if field.is_of_domain() => format!("sst:tpmi3:0.1:{}", field.name()),
                        _ => format!("sst:tpmi3:0.1:{}:2", row.name),
                    };
                    Location::SpeedSelect(setting.parse().unwrap())
                }
                Mechanism::Member { .. } => continue,
            };
            assert_eq!(Subject::from_location(&location), Some(Subject::Knob(row.id)), "{location}");
            let text = location.to_text();
            assert_eq!(text.parse(), Ok(location), "{text}: the journal's form");
        }
    }
    for row in AUXILIARIES {
        for file in row.files {
            let location = Location::file(example(file));
            assert_eq!(Subject::from_location(&location), Some(Subject::Auxiliary(row.id)), "{location}");
        }
    }
}

/// Every setting that a row disturbs must be writable, so that it can be restored.
#[test]
fn what_is_disturbed_can_be_restored() {
    for (name, writing) in writings() {
        for disturbs in writing.disturbs {
            let (Disturbs::Here(subjects) | Disturbs::Everywhere(subjects)) = disturbs else { continue };
            assert!(!subjects.is_empty(), "{name}");
            for subject in *subjects {
                assert!(subject.writing().is_some(), "{name} disturbs {subject}, which cannot be written");
            }
        }
        for refusal in writing.refusals {
            assert!(!refusal.errnos.is_empty() && !refusal.means.is_empty(), "{name}");
            for file in placeholders(refusal.means) {
                let known = TABLE.iter().flat_map(|row| row.mechanisms).any(|mechanism| {
                    matches!(mechanism, Mechanism::File { path, .. } if path.ends_with(&format!("/{file}")))
                });
                assert!(known, "{name}: no file {file}");
            }
        }
    }
}

/// If a knob disappears with a policy, a driver or a CPU, it must be saved before that changes.
#[test]
fn what_goes_with_a_driver_or_a_cpu_is_in_its_group() {
    for row in TABLE.iter().filter(|row| row.control().is_some()) {
        let subject = Subject::Knob(row.id);
        for file in subject.files() {
            let of_driver = ["intel_pstate", "amd_pstate", "cpufreq"]
                .iter()
                .any(|folder| file.starts_with(&format!("/sys/devices/system/cpu/{folder}/")));
            if of_driver {
                assert!(effects::EVERYTHING.contains(&subject), "{}: a driver switch resets it", row.name);
            }
            if file.contains("{policy}") {
                assert!(effects::POLICY.contains(&subject), "{}: it goes with its policy", row.name);
            }
            if file.contains("{cpu}") && row.id != Id::Online {
                assert!(effects::CPU.contains(&subject), "{}: it goes with its CPU", row.name);
            }
        }
    }
}

/// If changes of a plan create a knob's files, the plan must wait for them instead of refusing the
/// setting.
#[test]
fn files_of_a_driver_a_policy_or_a_cpu_say_what_they_appear_with() {
    for row in TABLE {
        let Some(control) = row.control() else { continue };
        let has = |with: AppearsWith| control.appears_with.contains(&with);
        for file in Subject::Knob(row.id).files() {
            if file.contains("{policy}") {
                assert!(has(AppearsWith::DriverMode) && has(AppearsWith::Cpu), "{}: {file}", row.name);
            }
            if file.contains("/intel_pstate/") && row.id != Id::DriverMode {
                assert!(has(AppearsWith::DriverMode), "{}: {file}", row.name);
            }
            if file.contains("/cpu{cpu}/") && row.id != Id::Online {
                assert!(has(AppearsWith::Cpu), "{}: {file}", row.name);
            }
            // Tunables are in a folder named after their governor.
            for governor in ["conservative", "ondemand", "schedutil"] {
                if file.contains(&format!("/{governor}/")) {
                    assert!(has(AppearsWith::Governor(governor)), "{}: {file}", row.name);
                }
            }
        }
    }
}

/// Content that a knob's file prints can be written back, and then matches itself.
#[test]
fn every_knob_has_a_writable_spelling() {
    for row in TABLE {
        let Some(control) = row.control() else { continue };
        let spelling = control.writing.spelling;
        for mechanism in row.mechanisms.iter().filter(|mechanism| mechanism.writes()) {
            let printed = match mechanism.form() {
                Form::Word | Form::Epp if spelling == Spelling::Hexadecimal => "0x1f",
                Form::Word | Form::Epp => "performance",
                Form::Switch | Form::InvertedSwitch => "1",
                Form::Epb => "6",
                Form::KHz => "2000000",
                Form::LatencyLimit => "20",
                Form::MHz | Form::Percent | Form::Micros | Form::MicroWatts | Form::Count => "12",
                form => panic!("{}: no example of {form:?}", row.name),
            };
            let content = Content::Text(format!("{printed}\n"));
            let bytes = spelling.writable(&content).unwrap_or_else(|| panic!("{}: not writable", row.name));
            let written = String::from_utf8(bytes).unwrap();
            assert!(spelling.agrees(&written, &format!("{printed}\n")), "{}", row.name);
            assert!(!spelling.agrees(&written, "0x9999"), "{}: everything agrees", row.name);
            crate::parse::value(mechanism.form(), printed)
                .unwrap_or_else(|expected| panic!("{}: '{printed}' is not {expected}", row.name));
        }
    }
}

/// A recording that lacks a row's file would show the row as absent.
#[test]
fn a_recording_has_every_row() {
    for row in TABLE {
        for mechanism in row.mechanisms {
            match *mechanism {
                Mechanism::File { path, .. } | Mechanism::Member { path } => {
                    assert!(recorder::covers(&example(path)), "{}: {path} is not recorded", row.name);
                }
                Mechanism::Msr { register, .. } => {
                    assert!(
                        recorder::covers_register(register),
                        "{}: {register:#x} is not recorded",
                        row.name
                    );
                }
                Mechanism::SpeedSelect { .. } => {}
            }
        }
    }
    for name in crate::owners::processes() {
        assert!(recorder::covers_process(name), "{name} is not recorded");
    }
}

/// A journal may contain every location that flyball writes, and no other.
#[test]
fn a_journal_may_name_every_file_that_is_written() {
    let files = Id::ALL
        .iter()
        .map(|id| Subject::Knob(*id))
        .chain(AUXILIARIES.iter().map(|row| Subject::Auxiliary(row.id)));
    for pattern in files.flat_map(Subject::files) {
        assert!(Location::file(example(pattern)).is_flyballs(), "{pattern}");
    }
    for row in TABLE {
        for mechanism in row.mechanisms {
            if let Mechanism::Msr { register, bits, write: true, .. } = *mechanism {
                let location = Location::Msr { cpu: 3, register, mask: crate::knob::mask(bits) };
                assert!(location.is_flyballs(), "{}", row.name);
            }
        }
    }
    for other in ["/etc/passwd", "/sys/devices/system/cpu/../x", "/sys/devices/system/cpu//x", "/proc/irqx/1"]
    {
        assert!(!Location::file(other).is_flyballs(), "{other}");
    }
    for (group, is_ours) in [("flyball-quiet", true), ("flyball/x", false), ("system.slice", false)] {
        let group = format!("{}/{group}", crate::partition::ROOT);
        assert_eq!(Location::Partition(group.clone()).is_flyballs(), is_ours, "{group}");
    }
}

#[test]
fn names_of_files_lead_to_their_rows() {
    for (file, knob) in [
        ("amd_pstate_max_freq", "amd-max-freq"),
        ("amd_pstate_highest_perf", "amd-highest-perf"),
        ("energy_performance_preference", "epp"),
        ("no_turbo", "turbo"),
    ] {
        assert_eq!(super::called(file).map(|row| row.name), Some(knob), "{file}");
    }
    assert_eq!(Knob::named("amd_pstate_max_freq").unwrap_err().nearest, Some("amd-max-freq"));
    // This word is also the name of a file.
    assert!(super::called("latency").is_none());
}
