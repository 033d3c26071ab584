//! Events of amd-pstate (drivers/cpufreq/amd-pstate-trace.h).

use super::{
    declare::event,
    field::{Counter, Digit, Khz, Level, Maybe, Signed, Small, Truth},
};

event! {
    /// `amd_cpu:amd_pstate_perf`: one request of the AMD driver in its passive and guided modes.
    /// [`AmdRequest`] is the event of the first kernels that had it.
    AmdPerf = "amd_cpu": "amd_pstate_perf",
    example "amd_min_perf=15 amd_des_perf=112 amd_max_perf=166 freq=2473320 mperf=8832012 aperf=6619514 \
             tsc=17826780 cpu_id=3 changed=true fast_switch=false",
    about cpu,
    {
        /// Minimum performance of the request.
        min: u32 as Level = ["min_perf"], "amd_min_perf=";
        /// Desired performance; 0 lets the firmware choose.
        des: u32 as Level = ["target_perf", "des_perf"], " amd_des_perf=";
        /// Maximum performance of the request.
        max: u32 as Level = ["capacity", "max_perf"], " amd_max_perf=";
        /// Estimated frequency since the CPU's previous request, kHz.
        khz: u64 as Khz = ["freq"], " freq=";
        /// Increase of MPERF, which counts at nominal frequency while the CPU is not idle.
        mperf: u64 as Counter = ["mperf"], " mperf=";
        /// Increase of APERF, which counts at the actual frequency while the CPU is not idle.
        aperf: u64 as Counter = ["aperf"], " aperf=";
        /// Increase of the time stamp counter.
        tsc: u64 as Counter = ["tsc"], " tsc=";
        /// The CPU that the request is for.
        cpu: u32 as Small = ["cpu_id"], " cpu_id=";
        /// True if the request differed from the previous one; only kernels up to 6.12 report this.
        changed: Option<bool> as Maybe<Truth> = ["changed"], " changed=";
        /// True if the request was made in the scheduler's context.
        fast_switch: bool as Truth = ["fast_switch"], " fast_switch=";
    }
}

event! {
    /// `amd_cpu:amd_pstate_perf` of kernel 5.17, as in the kernel's document on amd-pstate. It has
    /// neither frequency nor counters, so the effect of a request cannot be judged.
    AmdRequest = "amd_cpu": "amd_pstate_perf",
    example "amd_min_perf=85 amd_des_perf=85 amd_max_perf=166 cpu_id=15 changed=false fast_switch=true",
    about cpu,
    // Otherwise a truncated line of the newer layout would be read as one without counters.
    without "tsc=",
    {
        /// Minimum performance of the request.
        min: u32 as Level = ["min_perf"], "amd_min_perf=";
        /// Desired performance; 0 lets the firmware choose.
        des: u32 as Level = ["target_perf", "des_perf"], " amd_des_perf=";
        /// Maximum performance of the request.
        max: u32 as Level = ["capacity", "max_perf"], " amd_max_perf=";
        /// The CPU that the request is for.
        cpu: u32 as Small = ["cpu_id"], " cpu_id=";
        /// True if the request differed from the previous one.
        changed: Option<bool> as Maybe<Truth> = ["changed"], " changed=";
        /// True if the request was made in the scheduler's context.
        fast_switch: bool as Truth = ["fast_switch"], " fast_switch=";
    }
}

event! {
    /// `amd_cpu:amd_pstate_epp_perf`: one request of the AMD driver in its active mode.
    AmdEpp = "amd_cpu": "amd_pstate_epp_perf",
    example "cpu12: [15<->196]/255, epp=128, boost=1, changed=0",
    about cpu,
    {
        /// The CPU that the request is for.
        cpu: u32 as Small = ["cpu_id"], "cpu";
        /// Minimum performance.
        min: u32 as Level = ["min_perf"], ": [";
        /// Maximum performance.
        max: u32 as Level = ["max_perf"], "<->";
        /// The CPU's highest performance.
        highest: u32 as Level = ["highest_perf"], "]/";
        /// Energy performance preference, 0 to 255.
        epp: u32 as Level = ["epp"], ", epp=";
        /// True if boost is on.
        boost: bool as Digit = ["boost"], ", boost=";
        /// True if the request differed from the previous one.
        changed: bool as Digit = ["changed"], ", changed=";
    }
}

event! {
    /// `amd_cpu:amd_pstate_cppc_req2`: a floor performance was requested.
    AmdReq2 = "amd_cpu": "amd_pstate_cppc_req2",
    example "cpu2: floor_perf=15, changed=1 (error = -5)",
    about cpu,
    {
        /// The CPU that the request is for.
        cpu: u32 as Small = ["cpu_id"], "cpu";
        /// The requested floor.
        floor: u32 as Level = ["floor_perf"], ": floor_perf=";
        /// True if the request differed from the previous one.
        changed: bool as Digit = ["changed"], ", changed=";
        /// 0, or the negative errno of the register write.
        error: i32 as Signed = ["err_code", "error", "err"], " (error = ";
    } then ")"
}
