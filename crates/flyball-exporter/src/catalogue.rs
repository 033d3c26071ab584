//! The table of metrics: every name with its type, unit and labels, and the maximum number of its
//! series. docs/metrics.md, the dashboard and the rules are checked against it.

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    Counter,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        }
    }
}

/// Which option adds a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    Default,
    Why,
    Wakes,
    PerCpu,
    /// `--node`: node_exporter's own names.
    Node,
    NodePerCpu,
}

/// A metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Name in text format 0.0.4, where counters end in `_total`.
    pub name: &'static str,
    pub kind: Kind,
    /// The last part of the name without `_total`, if that is a unit. Printed in OpenMetrics.
    pub unit: &'static str,
    pub set: Set,
    /// Names of the labels, separated by commas.
    pub labels: &'static str,
    /// Maximum number of series, in words.
    pub most: &'static str,
    pub help: &'static str,
}

macro_rules! families {
    ($($constant:ident = $kind:ident $name:literal $unit:literal $set:ident [$labels:literal] $most:literal $help:literal;)*) => {
        $(pub const $constant: &Family = &Family {
            name: $name, kind: Kind::$kind, unit: $unit, set: Set::$set, labels: $labels, most: $most, help: $help,
        };)*

        /// All metrics, in the order of the output.
        pub const ALL: &[&Family] = &[$($constant),*];
    };
}

families! {
    BUILD_INFO = Gauge "flyball_build_info" "" Default ["version"] "1"
        "The version of flyball.";
    MACHINE_INFO = Gauge "flyball_machine_info" "" Default ["vendor,model,driver,driver_mode,kernel,simulated"] "1"
        "The processor, its cpufreq driver and the kernel.";
    CPUS = Gauge "flyball_cpus" "" Default ["knob,value,package"] "packages x values of each knob (--max-values)"
        "CPUs whose setting has this value.";
    SETTING_RATIO = Gauge "flyball_setting_ratio" "ratio" Default ["knob,package,stat"] "2 per package and knob"
        "Lowest and highest value of a setting that is a share.";
    SETTING_HERTZ = Gauge "flyball_setting_hertz" "hertz" Default ["knob,package,stat"] "2 per package and knob"
        "Lowest and highest value of a setting that is a frequency.";
    EFFECTIVE = Gauge "flyball_cpu_effective_hertz" "hertz" Default ["package,type,stat"] "3 per package and type of core"
        "Frequency that CPUs had while they ran, since the last scrape.";
    REQUESTED = Gauge "flyball_cpu_requested_hertz" "hertz" Default ["package,type,stat"] "3 per package and type of core"
        "Highest frequency that CPUs may have (scaling_max_freq).";
    DELIVERED = Gauge "flyball_cpu_delivered_ratio" "ratio" Default ["package,type,stat"] "3 per package and type of core"
        "Effective frequency of CPUs that were busy for over half of the time, by the one requested.";
    BUSY = Gauge "flyball_cpu_busy_ratio" "ratio" Default ["package,type,stat"] "3 per package and type of core"
        "Share of the time in which CPUs ran, since the last scrape.";
    THREAD_EFFECTIVE = Gauge "flyball_cpu_thread_effective_hertz" "hertz" PerCpu ["cpu"] "CPUs"
        "Frequency that the CPU had while it ran, since the last scrape.";
    THREAD_REQUESTED = Gauge "flyball_cpu_thread_requested_hertz" "hertz" PerCpu ["cpu"] "CPUs"
        "Highest frequency that the CPU may have (scaling_max_freq).";
    THREAD_BUSY = Gauge "flyball_cpu_thread_busy_ratio" "ratio" PerCpu ["cpu"] "CPUs"
        "Share of the time in which the CPU ran, since the last scrape.";
    ENERGY = Counter "flyball_energy_joules_total" "joules" Default ["zone,package"] "3 per package"
        "Energy since the exporter started; a meter that wraps goes on.";
    POWER_LIMIT = Gauge "flyball_power_limit_watts" "watts" Default ["package,constraint"] "2 per package"
        "Power limit of a package.";
    TEMPERATURE = Gauge "flyball_package_temperature_celsius" "celsius" Default ["package"] "packages"
        "Temperature of the package, or of its hottest CPU that ran.";
    THROTTLE = Counter "flyball_throttle_seconds_total" "seconds" Default ["package,scope"] "2 per package"
        "Time in which heat throttled the cores of a package, summed up, and the package.";
    LIMIT_ACTIVE = Gauge "flyball_limit_active" "" Default ["package,reason"] "10 per package"
        "1 if a busy CPU of the package was kept below its request for this reason at the last sample.";
    LIMIT_SECONDS = Counter "flyball_limit_seconds_total" "seconds" Default ["package,reason"] "10 per package"
        "Time for which the reason was seen, in whole intervals between samples.";
    LOST = Gauge "flyball_cpu_lost_hertz" "hertz" Why ["package,reason"] "reasons of each package"
        "Frequency that the reason took from CPUs while they ran, as flyball why explains it. A question mark: the evidence does not show it.";
    WAKES = Counter "flyball_cpu_wakes_total" "" Wakes ["state"] "idle states"
        "Exits of all CPUs from this idle state.";
    TOO_DEEP = Counter "flyball_cpu_idle_too_deep_total" "" Wakes ["state"] "idle states"
        "Exits before the state's target residency, although a lighter state was allowed.";
    TOO_LIGHT = Counter "flyball_cpu_idle_too_light_total" "" Wakes ["state"] "idle states"
        "Exits after which a deeper state would have paid.";
    SST_LEVEL = Gauge "flyball_sst_level" "" Default ["package,power_domain"] "power domains"
        "Speed Select performance level.";
    SST_ENABLED = Gauge "flyball_sst_enabled" "" Default ["package,power_domain,feature"] "3 per power domain"
        "1 if the Speed Select feature is on: bf, tf or cp.";
    SST_CLOS = Gauge "flyball_sst_clos_cpus" "" Default ["package,clos"] "4 per package"
        "CPUs in a class of service of Speed Select.";
    DRIFT_PLACES = Gauge "flyball_drift_places" "" Default ["knob"] "knobs that are held"
        "Places that differ from the holds and were left; absent where nothing is held or the service does not run.";
    DRIFT = Counter "flyball_drift_total" "" Default ["knob,by"] "held knobs x 32 writers"
        "Changes of settings that are held, by the program that made them.";
    REAPPLIED = Counter "flyball_reapplied_writes_total" "" Default ["why"] "5"
        "Changes that the hold service corrected, by what had happened.";
    HOLD_ACTIVE = Gauge "flyball_hold_active" "" Default ["hold,owner"] "64"
        "1 if the hold applies, 0 if its condition is not met or the machine refuses it. Drift is counted by flyball_drift_places.";
    HOLD_SERVICE = Gauge "flyball_hold_service_up" "" Default [""] "1"
        "1 if the hold service runs.";
    HOLD_FAILED = Gauge "flyball_hold_failed" "" Default [""] "1"
        "1 if something that holds want could not be brought about; `flyball hold status` says why.";
    HOLD_CONFIG_ERROR = Gauge "flyball_hold_config_error" "" Default [""] "1"
        "1 if /etc/flyball/hold.toml or a profile in it is wrong and was ignored.";
    DOCTOR_FINDINGS = Gauge "flyball_doctor_findings" "" Default ["verdict"] "5"
        "Answers of the doctor by verdict.";
    DOCTOR_FINDING = Gauge "flyball_doctor_finding" "" Default ["id,verdict"] "warnings and faults"
        "1 for each warning and fault of the doctor.";
    DOCTOR_TIME = Gauge "flyball_doctor_timestamp_seconds" "seconds" Default [""] "1"
        "When the doctor looked last, in seconds since 1970.";
    UNREADABLE = Gauge "flyball_unreadable" "" Default ["what,why"] "8"
        "1 for what should be there and cannot be read.";
    SCRAPE_CPU = Counter "flyball_scrape_cpu_seconds_total" "seconds" Default [""] "1"
        "CPU time of all scrapes, the machine's reading and the text.";
    PROCESS_CPU = Counter "process_cpu_seconds_total" "seconds" Default [""] "1"
        "CPU time of the exporter, user and system.";
    PROCESS_MEMORY = Gauge "process_resident_memory_bytes" "bytes" Default [""] "1"
        "Resident memory of the exporter.";

    NODE_HERTZ_MAX = Gauge "node_cpu_frequency_max_hertz" "hertz" NodePerCpu ["cpu"] "CPUs"
        "Maximum CPU thread frequency in hertz.";
    NODE_HERTZ_MIN = Gauge "node_cpu_frequency_min_hertz" "hertz" NodePerCpu ["cpu"] "CPUs"
        "Minimum CPU thread frequency in hertz.";
    NODE_SCALING = Gauge "node_cpu_scaling_frequency_hertz" "hertz" NodePerCpu ["cpu"] "CPUs"
        "Current scaled CPU thread frequency in hertz.";
    NODE_SCALING_MAX = Gauge "node_cpu_scaling_frequency_max_hertz" "hertz" NodePerCpu ["cpu"] "CPUs"
        "Maximum scaled CPU thread frequency in hertz.";
    NODE_SCALING_MIN = Gauge "node_cpu_scaling_frequency_min_hertz" "hertz" NodePerCpu ["cpu"] "CPUs"
        "Minimum scaled CPU thread frequency in hertz.";
    NODE_GOVERNOR = Gauge "node_cpu_scaling_governor" "" NodePerCpu ["cpu,governor"] "CPUs x available governors"
        "Current enabled CPU frequency governor.";
    NODE_SECONDS = Counter "node_cpu_seconds_total" "seconds" NodePerCpu ["cpu,mode"] "8 per CPU"
        "Seconds the CPUs spent in each mode.";
    NODE_GUEST = Counter "node_cpu_guest_seconds_total" "seconds" NodePerCpu ["cpu,mode"] "2 per CPU"
        "Seconds the CPUs spent in guests (VMs) for each mode.";
    NODE_ISOLATED = Gauge "node_cpu_isolated" "" NodePerCpu ["cpu"] "CPUs"
        "Whether each core is isolated, information from /sys/devices/system/cpu/isolated.";
    NODE_ONLINE = Gauge "node_cpu_online" "" NodePerCpu ["cpu"] "CPUs"
        "CPUs that are online and being scheduled.";
    NODE_CORE_THROTTLES = Counter "node_cpu_core_throttles_total" "" NodePerCpu ["package,core"] "cores"
        "Number of times this CPU core has been throttled.";
    NODE_PACKAGE_THROTTLES = Counter "node_cpu_package_throttles_total" "" Node ["package"] "packages"
        "Number of times this CPU package has been throttled.";
    NODE_RAPL_DRAM = Counter "node_rapl_dram_joules_total" "joules" Node ["index,path"] "zones"
        "Current RAPL dram value in joules.";
    NODE_RAPL_PACKAGE = Counter "node_rapl_package_joules_total" "joules" Node ["index,path"] "zones"
        "Current RAPL package value in joules.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        for family in ALL {
            let stem = family.name.strip_suffix("_total");
            assert_eq!(stem.is_some(), family.kind == Kind::Counter, "{}", family.name);
            let stem = stem.unwrap_or(family.name);
            assert!(
                family.unit.is_empty() || stem.ends_with(&format!("_{}", family.unit)),
                "{}: OpenMetrics requires the unit at the end",
                family.name
            );
            assert!(
                family.help.ends_with('.') && !family.help.contains(['\n', '\\', '"']),
                "{}",
                family.help
            );
            assert_eq!(ALL.iter().filter(|other| other.name == family.name).count(), 1);
        }
    }
}
