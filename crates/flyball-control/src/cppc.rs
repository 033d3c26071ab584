//! Levels of CPPC, which are proportional to frequency. The nominal level has a known one.

/// Returns a level of a CPU, a file of its `acpi_cppc`; `None` if it has none or the file is 0.
pub(crate) fn cppc_level(read: impl Fn(&str) -> Option<String>, cpu: u32, name: &str) -> Option<f64> {
    let text = read(&format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/{name}"))?;
    text.trim().parse().ok().filter(|level| *level > 0.0)
}

/// Returns the frequency that a level of a CPU stands for, in kHz.
pub fn cppc_khz(read: impl Fn(&str) -> Option<String>, cpu: u32, name: &str) -> Option<f64> {
    let level = |name: &str| cppc_level(&read, cpu, name);
    Some(level(name)? * level("nominal_freq")? / level("nominal_perf")? * 1000.0)
}
