//! Machines on which nothing limits but what a test plants.

use flyball_sim::silicon::MachineSpec;

/// The simulated machine of this name without limits of power, heat, current and wide
/// instructions, and with cores that are alike.
pub(crate) fn machine(name: &str) -> MachineSpec {
    let mut spec = MachineSpec::builtin(name).unwrap();
    spec.power.pl1_w = 9000.0;
    spec.power.pl2_w = 0.0;
    spec.power.pl1_s = 1.0;
    spec.power.locked = false;
    spec.thermal.ambient_c = 5.0;
    // Cooling that never is the limit.
    spec.thermal.sink_k_per_w = 0.01;
    spec.thermal.die_k_per_w = 0.01;
    spec.thermal.core_k_per_w = 0.05;
    spec.turbo.avx2_mhz.clear();
    spec.turbo.avx512_mhz.clear();
    for core in &mut spec.core {
        core.budget_w = 0.0;
        core.better.clear();
        core.ranking.clear();
    }
    spec
}
