//! Model-specific meanings of registers on Intel's family 6, and the models that have hardware
//! P-states.
//!
//! Models that are not listed are unknown. Checks then say so instead of using a similar model's
//! meaning. Sources: the kernel's turbostat (tools/power/x86/turbostat/turbostat.c,
//! `turbostat_pdata`), Intel's Software Developer's Manual, volume 4, and
//! arch/x86/include/asm/intel-family.h for the models' names.

use super::{Facts, Vendor};

/// The meaning of the low bits of MSR 0xE2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PackageLimit {
    /// The deepest state that a package may enter.
    State(&'static str),
    /// A value without a meaning on this model.
    Reserved,
}

/// Returns the package C-state limit that the low bits of MSR 0xE2 select; `None` for a model whose
/// table is unknown.
pub(super) fn package_limit(model: u32, value: u64) -> Option<PackageLimit> {
    const R: &str = "";
    // turbostat's nhm_pkg_cstate_limits and its other tables, in turbostat's order.
    const NEHALEM: &[&str] = &["C0", "C1", "C3", "C6", "C7", R, R, "unlimited"];
    const SANDY_BRIDGE: &[&str] =
        &["C0", "C2", "C6 without retention", "C6 with retention", "C7", "C7s", R, "unlimited"];
    const HASWELL: &[&str] = &["C0", "C2", "C3", "C6", "C7", "C7s", "C8", "C9", "unlimited"];
    const SKYLAKE_SERVER: &[&str] =
        &["C0", "C2", "C6 without retention", "C6 with retention", R, R, R, "unlimited"];
    const ICE_LAKE_SERVER: &[&str] = &["C0", "C2", "C6", "C6", R, R, R, "unlimited"];
    const SILVERMONT: &[&str] = &["C0", "C1", R, R, "C4", R, "C6", "C7", R, R, R, R, R, R, "C6", "C7"];
    const AIRMONT: &[&str] = &["unlimited", "C1", "C2", R, R, R, "C6", "C7"];
    const GOLDMONT: &[&str] = &["unlimited", "C1", "C3", "C6", "C7", "C7s", "C8", "C9", "C10"];
    let table = match model {
        0x1a | 0x1e | 0x1f | 0x25 | 0x2c | 0x2e | 0x2f => NEHALEM,
        0x2a | 0x2d | 0x3a | 0x3e => SANDY_BRIDGE,
        // Clients from Haswell to Panther Lake, servers Haswell and Broadwell, and Gracemont alone
        // (Alder Lake-N).
        0x3c | 0x3f | 0x45 | 0x46 | 0x3d | 0x47 | 0x4f | 0x56 | 0x4e | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6
        | 0x66 | 0x7d | 0x7e | 0x9d | 0xa7 | 0x8c | 0x8d | 0x8a | 0x97 | 0x9a | 0xb7 | 0xba | 0xbf | 0xac
        | 0xaa | 0xc5 | 0xb5 | 0xc6 | 0xbd | 0xcc | 0xbe => HASWELL,
        0x6a | 0x6c => ICE_LAKE_SERVER,
        // Skylake-X to Granite Rapids, Sierra and Clearwater Forest, Grand Ridge, and Xeon Phi.
        0x55 | 0x8f | 0xcf | 0xad | 0xae | 0xaf | 0xb6 | 0xdd | 0x57 | 0x85 => SKYLAKE_SERVER,
        0x37 | 0x4d => SILVERMONT,
        0x4c => AIRMONT,
        0x5c | 0x5f | 0x7a | 0x86 | 0x96 | 0x9c => GOLDMONT,
        _ => return None,
    };
    // The field has three bits for tables of eight values, four for longer tables, as in the
    // manual.
    let mask = if table.len() > 8 { 15 } else { 7 };
    Some(match table.get((value & mask) as usize) {
        Some(&name) if name != R => PackageLimit::State(name),
        _ => PackageLimit::Reserved,
    })
}

/// Returns whether MSR 0xE2 bit 16 is autonomous C-state conversion, as on Broadwell-X and -D and
/// Skylake-X (turbostat's `has_cst_auto_convension`).
pub(super) fn converts_c_states(model: u32) -> bool {
    matches!(model, 0x4f | 0x56 | 0x55)
}

/// Returns whether this is a family 6 server since Sandy Bridge (intel_pstate_cpu_oob_ids and its
/// successors with HWP).
pub(super) fn server(model: u32) -> bool {
    matches!(
        model,
        0x2d | 0x3e
            | 0x3f
            | 0x4f
            | 0x55
            | 0x56
            | 0x6a
            | 0x6c
            | 0x86
            | 0x8f
            | 0xad
            | 0xae
            | 0xaf
            | 0xcf
            | 0xdd
    )
}

/// Returns whether the kernel knows no register for this processor's uncore frequencies.
/// `intel_uncore_cpu_ids` in uncore-frequency.c includes Broadwell-G (47h), -X and -D. It omits
/// everything before Broadwell and the clients Broadwell (3Dh) and Skylake (4Eh, 5Eh).
pub(super) fn before_uncore_control(facts: &Facts) -> bool {
    let is_skylake_client = family_6(facts) && matches!(facts.model, 0x4e | 0x5e);
    is_skylake_client || before_hwp(facts) && !matches!(facts.model, 0x47 | 0x4f | 0x56)
}

/// Returns whether this is model 55h before Cascade Lake (stepping 5), the first with Speed Select.
pub(super) fn is_skylake_server(facts: &Facts) -> bool {
    family_6(facts) && facts.model == 0x55 && facts.stepping < 5
}

/// Returns whether Speed Select's registers are in TPMI on this model: Granite Rapids, Sierra and
/// Clearwater Forest.
pub(super) fn has_tpmi(model: u32) -> bool {
    matches!(model, 0xad | 0xae | 0xaf | 0xdd)
}

/// Returns whether the processor is older than HWP: cores before Skylake and Atoms before Goldmont
/// (models of family 6), and earlier families.
pub(super) fn before_hwp(facts: &Facts) -> bool {
    const WITHOUT: &[u32] = &[
        0x0e, 0x0f, 0x16, 0x17, 0x1a, 0x1c, 0x1d, 0x1e, 0x1f, 0x25, 0x26, 0x27, 0x2a, 0x2c, 0x2d, 0x2e, 0x2f,
        0x35, 0x36, 0x37, 0x3a, 0x3c, 0x3d, 0x3e, 0x3f, 0x45, 0x46, 0x47, 0x4a, 0x4c, 0x4d, 0x4f, 0x56, 0x57,
        0x5a, 0x5d, 0x85,
    ];
    facts.family == 15 || (facts.family == 6 && WITHOUT.contains(&facts.model))
}

/// Returns whether every processor of this model has HWP: Skylake clients and servers, Ice Lake's
/// generation and later (families 6, 12h and 13h).
pub(super) fn always_hwp(facts: &Facts) -> bool {
    const WITH: &[u32] = &[
        0x4e, 0x5e, 0x55, 0x8e, 0x9e, 0x6a, 0x6c, 0x7d, 0x7e, 0x8c, 0x8d, 0x8f, 0x97, 0x9a, 0xa5, 0xa6, 0xa7,
        0xaa, 0xac, 0xad, 0xae, 0xaf, 0xb5, 0xb6, 0xb7, 0xba, 0xbd, 0xbe, 0xbf, 0xc5, 0xc6, 0xcc, 0xcf, 0xdd,
    ];
    (facts.family == 6 && WITH.contains(&facts.model)) || matches!(facts.family, 18 | 19)
}

/// Returns whether amd-pstate may map the words of the energy preference to different numbers on
/// each kind of core. Linux 7.4 does so for some models of family 1Ah (amd_pstate_epp_soc_ids), and
/// later kernels may add models.
pub(super) fn amd_words_differ(facts: &Facts) -> bool {
    let has_tables = facts.kernel_version().is_none_or(|version| version >= (7, 4));
    facts.vendor == Vendor::Amd && facts.family >= 0x1a && has_tables
}

/// Returns whether this is an Intel processor of family 6, whose models the tables here list.
pub(super) fn family_6(facts: &Facts) -> bool {
    facts.vendor == Vendor::Intel && facts.family == 6
}
