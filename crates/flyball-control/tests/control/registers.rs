//! Registers whose bits have another meaning on other processors. If the meaning is unknown,
//! flyball reads nothing from them.

use flyball_control::{At, Id, Place, Reading, Snapshot, Value, Why};
use flyball_host::Host;

use crate::doctor::machines::{CPU, FileHost, Files, flags, haswell, intel, msr};

/// Reads the knob at its first place.
fn read(host: &dyn Host, knob: Id) -> Reading {
    let snapshot = Snapshot::take_knobs(host, &[knob]).unwrap();
    let place: Place = snapshot.places(knob).unwrap()[0].clone();
    snapshot.read(knob, &place).unwrap()
}

fn is_other_model(files: &Files, knob: Id) -> bool {
    matches!(read(&FileHost(files), knob), Reading::Absent(Why::OtherModel { .. }))
}

fn is_read(files: &Files, knob: Id) -> bool {
    matches!(read(&FileHost(files), knob), Reading::Value { .. })
}

/// Broadwell servers have HWP without the preference: bits 31:24 of the request are reserved and 0.
#[test]
fn no_preference_without_the_flag() {
    let mut files = intel();
    files.retain(|path, _| !path.ends_with("energy_performance_preference"));
    msr(&mut files, 0x774, "2708");
    assert!(matches!(read(&FileHost(&files), Id::Epp), Reading::Value { value: Value::Epp(_), .. }));
    flags(&mut files, " hwp_epp", "");
    assert!(!is_read(&files, Id::Epp));
}

#[test]
fn turbo_ratios_by_model() {
    let mut files = intel();
    msr(&mut files, 0x1ad, "1f1f212424242527");
    msr(&mut files, 0x1ae, "1c1814100c080402");
    assert!(is_read(&files, Id::TurboRatios) && is_read(&files, Id::TurboRatioCores));
    // On a Haswell server the second register has the ratios for nine and more cores.
    let mut files = haswell();
    msr(&mut files, 0x1ad, "1f1f212424242527");
    msr(&mut files, 0x1ae, "1c1c1c1c1c1c1c1c");
    assert!(is_read(&files, Id::TurboRatios) && is_other_model(&files, Id::TurboRatioCores));
    // Xeon Phi, and a future model.
    for model in [87, 250] {
        flags(&mut files, "model\t\t: 63", &format!("model\t\t: {model}"));
        assert!(is_other_model(&files, Id::TurboRatios) && is_other_model(&files, Id::TurboRatioCores));
        flags(&mut files, &format!("model\t\t: {model}"), "model\t\t: 63");
    }
}

#[test]
fn energy_efficiency_where_the_kernel_knows_the_bit() {
    let mut files = intel();
    assert!(!is_read(&files, Id::EnergyEfficiency));
    flags(&mut files, "model\t\t: 85", "model\t\t: 158");
    assert!(is_read(&files, Id::EnergyEfficiency));
    files.insert(format!("{CPU}/intel_pstate/energy_efficiency"), Some("0".to_owned()));
    let snapshot = Snapshot::take_knobs(&FileHost(&files), &[Id::EnergyEfficiency]).unwrap();
    let place = Place::new(At::Machine, snapshot.topology().present.clone());
    assert_eq!(snapshot.value(Id::EnergyEfficiency, &place).unwrap(), Some(Value::Switch(false)));
}
