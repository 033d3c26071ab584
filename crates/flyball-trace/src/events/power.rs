//! Events of cpufreq and cpuidle (include/trace/events/power.h).

use super::{
    declare::event,
    field::{Below, Small},
};

event! {
    /// `power:cpu_frequency`: `cpu` was set to `khz`.
    Frequency = "power": "cpu_frequency",
    example "state=2900000 cpu_id=3",
    about cpu,
    {
        /// Frequency, kHz.
        // The field is called state, as in cpu_idle: both are DEFINE_EVENTs of the class `cpu`.
        khz: u32 as Small = ["state"], "state=";
        /// The CPU that was set.
        cpu: u32 as Small = ["cpu_id"], " cpu_id=";
    }
}

event! {
    /// `power:cpu_frequency_limits`: the limits of a policy.
    FrequencyLimits = "power": "cpu_frequency_limits",
    example "min=400000 max=4700000 cpu_id=3",
    about cpu,
    {
        /// Minimum frequency, kHz.
        min_khz: u32 as Small = ["min_freq"], "min=";
        /// Maximum frequency, kHz.
        max_khz: u32 as Small = ["max_freq"], " max=";
        /// The CPU that names the policy.
        cpu: u32 as Small = ["cpu_id"], " cpu_id=";
    }
}

event! {
    /// `power:cpu_idle`: `cpu` enters idle state `state`, or leaves idle (`u32::MAX`).
    Idle = "power": "cpu_idle",
    example "state=4294967295 cpu_id=15",
    about cpu,
    {
        /// State number, or `u32::MAX`.
        state: u32 as Small = ["state"], "state=";
        /// The CPU that enters or leaves idle.
        cpu: u32 as Small = ["cpu_id"], " cpu_id=";
    }
}

event! {
    /// `power:cpu_idle_miss`: the idle state was too deep or too shallow.
    IdleMiss = "power": "cpu_idle_miss",
    example "cpu_id=3 state=2 type=below",
    about cpu,
    {
        /// The CPU that was idle.
        cpu: u32 as Small = ["cpu_id"], "cpu_id=";
        /// State number.
        state: u32 as Small = ["state"], " state=";
        /// True if the state was too deep.
        below: bool as Below = ["below"], " type=";
    }
}
