//! The event of intel_pstate (include/trace/events/power.h).

use super::{
    declare::event,
    field::{Counter, Level, OrZero},
};

event! {
    /// `power:pstate_sample`: one sample of intel_pstate.
    IntelSample = "power": "pstate_sample",
    example "core_busy=97 scaled=8 from=9 to=10 mperf=1 aperf=2 tsc=3 freq=2900000 io_boost=4",
    {
        /// Busy share at the actual frequency, percent; 10 and 90 mark the two paths of the passive
        /// mode.
        core_busy: u32 as Level = ["core_busy"], "core_busy=";
        /// Busy share after scaling by the algorithm, percent.
        scaled_busy: u32 as Level = ["scaled_busy"], " scaled=";
        /// Previous P-state.
        from: u32 as Level = ["from"], " from=";
        /// Requested P-state.
        to: u32 as Level = ["to"], " to=";
        /// Increase of MPERF.
        mperf: u64 as Counter = ["mperf"], " mperf=";
        /// Increase of APERF.
        aperf: u64 as Counter = ["aperf"], " aperf=";
        /// Increase of the time stamp counter.
        tsc: u64 as Counter = ["tsc"], " tsc=";
        /// Average frequency since the previous sample, kHz.
        khz: u32 as Level = ["freq"], " freq=";
        /// Boost for tasks that wait for IO, percent; 0 before kernel 4.7, which lacks the field.
        io_boost: u32 as OrZero = ["io_boost"], " io_boost=";
    }
}
