//! The fields of the events that are known, as the kernel's `print fmt` writes them.
//!
//! The two events that come by the million are read key by key in the kernel's order first; text in another order
//! (another kernel, another printer) is searched for its keys.

#![expect(clippy::inline_always, reason = "measured: calls here cost a fifth of the time that text takes")]

use crate::{
    record::{AmdEpp, AmdPerf, AmdReq2, Comm, Event, IntelSample, Switch, Thermal, ThermalKind},
    scan::{decimal, long_decimal, short_decimal, signed, value_of},
};

/// Steps over `key` at `at`, and reads the number behind it.
#[inline(always)]
fn keyed(bytes: &[u8], at: usize, key: &[u8]) -> Option<(u64, usize)> {
    let at = after(bytes, at, key)?;
    short_decimal(bytes, at)
}

/// As [`keyed`], for a counter, which has more digits than other numbers.
#[inline(always)]
fn counter(bytes: &[u8], at: usize, key: &[u8]) -> Option<(u64, usize)> {
    let at = after(bytes, at, key)?;
    long_decimal(bytes, at)
}

#[inline(always)]
fn after(bytes: &[u8], at: usize, key: &[u8]) -> Option<usize> {
    bytes.get(at..)?.starts_with(key).then_some(at + key.len())
}

#[inline(always)]
fn yes_no(bytes: &[u8], at: usize) -> Option<(bool, usize)> {
    match after(bytes, at, b"true") {
        Some(end) => Some((true, end)),
        None => after(bytes, at, b"false").map(|end| (false, end)),
    }
}

/// `amd_pstate_perf` in the order that kernels from 5.18 on print, from `at` in a larger text; and where it ends.
#[inline(always)]
pub(super) fn amd_perf(bytes: &[u8], at: usize) -> Option<(AmdPerf, usize)> {
    let (min, at) = keyed(bytes, at, b"amd_min_perf=")?;
    let (des, at) = keyed(bytes, at, b" amd_des_perf=")?;
    let (max, at) = keyed(bytes, at, b" amd_max_perf=")?;
    let (khz, at) = keyed(bytes, at, b" freq=")?;
    let (mperf, at) = counter(bytes, at, b" mperf=")?;
    let (aperf, at) = counter(bytes, at, b" aperf=")?;
    let (tsc, at) = counter(bytes, at, b" tsc=")?;
    let (cpu, at) = keyed(bytes, at, b" cpu_id=")?;
    let (changed, at) = match after(bytes, at, b" changed=") {
        Some(at) => yes_no(bytes, at).map(|(changed, at)| (Some(changed), at))?,
        None => (None, at),
    };
    let (fast_switch, at) = yes_no(bytes, after(bytes, at, b" fast_switch=")?)?;
    let level = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let event = AmdPerf {
        min: level(min),
        des: level(des),
        max: level(max),
        cpu: u32::try_from(cpu).ok()?,
        khz,
        mperf,
        aperf,
        tsc,
        changed,
        fast_switch,
    };
    Some((event, at))
}

/// `pstate_sample` in the kernel's order, from `at` in a larger text; and where it ends.
#[inline(always)]
pub(super) fn intel_sample(bytes: &[u8], at: usize) -> Option<(IntelSample, usize)> {
    let (core_busy, at) = keyed(bytes, at, b"core_busy=")?;
    let (scaled, at) = keyed(bytes, at, b" scaled=")?;
    let (from, at) = keyed(bytes, at, b" from=")?;
    let (to, at) = keyed(bytes, at, b" to=")?;
    let (mperf, at) = counter(bytes, at, b" mperf=")?;
    let (aperf, at) = counter(bytes, at, b" aperf=")?;
    let (tsc, at) = counter(bytes, at, b" tsc=")?;
    let (khz, at) = keyed(bytes, at, b" freq=")?;
    // Kernels before 4.7 have no io_boost.
    let (io_boost, at) = match after(bytes, at, b" io_boost=") {
        Some(at) => decimal(bytes, at)?,
        None => (0, at),
    };
    let event = IntelSample {
        core_busy: core_busy as u32,
        scaled_busy: scaled as u32,
        from: from as u32,
        to: to as u32,
        mperf,
        aperf,
        tsc,
        khz: khz as u32,
        io_boost: io_boost as u32,
    };
    Some((event, at))
}

/// A number by its key, wherever it stands.
fn find(text: &[u8], key: &str) -> Option<u64> {
    decimal(text, value_of(text, key.as_bytes())?).map(|(value, _)| value)
}

fn find_signed(text: &[u8], key: &str) -> Option<i64> {
    signed(text, value_of(text, key.as_bytes())?).map(|(value, _)| value)
}

fn find_small(text: &[u8], key: &str) -> Option<u32> {
    find(text, key).and_then(|value| u32::try_from(value).ok())
}

fn find_flag(text: &[u8], key: &str) -> Option<bool> {
    let at = value_of(text, key.as_bytes())?;
    yes_no(text, at).map(|(flag, _)| flag).or_else(|| decimal(text, at).map(|(value, _)| value != 0))
}

/// The word behind `key`, up to a blank.
fn find_word(text: &[u8], key: &str) -> Comm {
    value_of(text, key.as_bytes()).and_then(|at| text.get(at..)).map_or_else(Comm::default, |rest| {
        Comm::new(rest.split(|byte| matches!(byte, b' ' | b'\n')).next().unwrap_or_default())
    })
}

/// The event called `name` out of the text behind its name. `None` for an event that is not known, and for one
/// whose fields are not there: both are passed through.
pub(super) fn known(name: &[u8], text: &[u8]) -> Option<Event> {
    Some(match name {
        b"amd_pstate_perf" => Event::AmdPerf(match amd_perf(text, 0) {
            Some((event, _)) => event,
            None => AmdPerf {
                min: find_small(text, "amd_min_perf=")?,
                des: find_small(text, "amd_des_perf=")?,
                max: find_small(text, "amd_max_perf=")?,
                cpu: find_small(text, "cpu_id=")?,
                khz: find(text, "freq=")?,
                mperf: find(text, "mperf=")?,
                aperf: find(text, "aperf=")?,
                tsc: find(text, "tsc=")?,
                changed: find_flag(text, "changed="),
                fast_switch: find_flag(text, "fast_switch=")?,
            },
        }),
        b"amd_pstate_epp_perf" => Event::AmdEpp(amd_epp(text)?),
        b"amd_pstate_cppc_req2" => Event::AmdReq2(amd_req2(text)?),
        b"pstate_sample" => Event::Intel(match intel_sample(text, 0) {
            Some((event, _)) => event,
            None => IntelSample {
                core_busy: find_small(text, "core_busy=")?,
                scaled_busy: find_small(text, "scaled=")?,
                from: find_small(text, "from=")?,
                to: find_small(text, "to=")?,
                mperf: find(text, "mperf=")?,
                aperf: find(text, "aperf=")?,
                tsc: find(text, "tsc=")?,
                khz: find_small(text, "freq=")?,
                io_boost: find_small(text, "io_boost=").unwrap_or(0),
            },
        }),
        b"cpu_frequency" => {
            Event::Frequency { cpu: find_small(text, "cpu_id=")?, khz: find_small(text, "state=")? }
        }
        b"cpu_frequency_limits" => Event::Limits {
            cpu: find_small(text, "cpu_id=")?,
            min_khz: find_small(text, "min=")?,
            max_khz: find_small(text, "max=")?,
        },
        b"cpu_idle" => Event::Idle { cpu: find_small(text, "cpu_id=")?, state: find_small(text, "state=")? },
        b"cpu_idle_miss" => Event::IdleMiss {
            cpu: find_small(text, "cpu_id=")?,
            state: find_small(text, "state=")?,
            below: text.get(value_of(text, b"type=")?..)?.starts_with(b"below"),
        },
        b"sched_switch" => Event::Switch(switch(text).or_else(|| switch_of_trace_cmd(text))?),
        b"thermal_temperature" => Event::Thermal(Thermal {
            kind: ThermalKind::Temperature,
            id: find_signed(text, "id=")? as i32,
            value: find_signed(text, "temp=")?,
            name: find_word(text, "thermal_zone="),
        }),
        b"thermal_zone_trip" => Event::Thermal(Thermal {
            kind: ThermalKind::Trip,
            id: find_signed(text, "id=")? as i32,
            value: find_signed(text, "trip=")?,
            name: find_word(text, "thermal_zone="),
        }),
        b"cdev_update" => Event::Thermal(Thermal {
            kind: ThermalKind::Cooling,
            id: -1,
            value: find_signed(text, "target=")?,
            name: find_word(text, "type="),
        }),
        b"hw_pressure_update" => pressure(text, "hw_pressure=")?,
        b"thermal_pressure_update" => pressure(text, "thermal_pressure=")?,
        _ => return None,
    })
}

fn pressure(text: &[u8], key: &str) -> Option<Event> {
    let (id, value) = (find_signed(text, "cpu=")? as i32, find_signed(text, key)?);
    Some(Event::Thermal(Thermal { kind: ThermalKind::Pressure, id, value, name: Comm::default() }))
}

/// `cpu3: [15<->255]/255, epp=128, boost=1, changed=0`
fn amd_epp(text: &[u8]) -> Option<AmdEpp> {
    let (cpu, at) = keyed(text, 0, b"cpu")?;
    let (min, at) = keyed(text, at, b": [")?;
    let (max, at) = keyed(text, at, b"<->")?;
    let (highest, at) = keyed(text, at, b"]/")?;
    let (epp, at) = keyed(text, at, b", epp=")?;
    let (boost, at) = keyed(text, at, b", boost=")?;
    let (changed, _) = keyed(text, at, b", changed=")?;
    Some(AmdEpp {
        cpu: u32::try_from(cpu).ok()?,
        highest: highest as u32,
        epp: epp as u32,
        min: min as u32,
        max: max as u32,
        boost: boost != 0,
        changed: changed != 0,
    })
}

/// `cpu3: floor_perf=15, changed=1 (error = 0)`
fn amd_req2(text: &[u8]) -> Option<AmdReq2> {
    let (cpu, at) = keyed(text, 0, b"cpu")?;
    let (floor, at) = keyed(text, at, b": floor_perf=")?;
    let (changed, at) = keyed(text, at, b", changed=")?;
    let (error, _) = signed(text, after(text, at, b" (error = ")?)?;
    Some(AmdReq2 {
        cpu: u32::try_from(cpu).ok()?,
        floor: floor as u32,
        changed: changed != 0,
        error: error as i32,
    })
}

/// `prev_comm=a b prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=c next_pid=2 next_prio=120`
fn switch(text: &[u8]) -> Option<Switch> {
    let at = after(text, 0, b"prev_comm=")?;
    let arrow = memchr::memmem::find(text, b" ==> next_comm=")?;
    let previous = text.get(at..arrow)?;
    let pid = memchr::memmem::rfind(previous, b" prev_pid=")?;
    let next = &text[arrow + 15..];
    let next_pid = memchr::memmem::rfind(next, b" next_pid=")?;
    Some(Switch {
        prev_comm: Comm::new(&previous[..pid]),
        prev_pid: signed(previous, pid + 10)?.0 as i32,
        prev_prio: find_signed(&previous[pid..], "prev_prio=")? as i32,
        next_comm: Comm::new(&next[..next_pid]),
        next_pid: signed(next, next_pid + 10)?.0 as i32,
        next_prio: find_signed(&next[next_pid..], "next_prio=")? as i32,
    })
}

/// `a b:1 [120] S ==> c:2 [120]`: how trace-cmd prints the same event.
fn switch_of_trace_cmd(text: &[u8]) -> Option<Switch> {
    let arrow = memchr::memmem::find(text, b" ==> ")?;
    let task = |part: &[u8]| {
        let bracket = memchr::memrchr(b'[', part)?;
        let colon = memchr::memrchr(b':', &part[..bracket])?;
        let pid = signed(part, colon + 1)?.0 as i32;
        let prio = signed(part, bracket + 1)?.0 as i32;
        Some((Comm::new(&part[..colon]), pid, prio))
    };
    let (prev_comm, prev_pid, prev_prio) = task(&text[..arrow])?;
    let (next_comm, next_pid, next_prio) = task(&text[arrow + 5..])?;
    Some(Switch { prev_comm, prev_pid, prev_prio, next_comm, next_pid, next_prio })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_all_kernels_are_read() {
        let new = b"amd_min_perf=15 amd_des_perf=39 amd_max_perf=166 freq=1100000 mperf=10 aperf=11 tsc=12 cpu_id=3 fast_switch=true";
        let Some(Event::AmdPerf(event)) = known(b"amd_pstate_perf", new) else { panic!() };
        assert_eq!((event.min, event.des, event.max, event.cpu, event.khz), (15, 39, 166, 3, 1_100_000));
        assert_eq!((event.changed, event.fast_switch), (None, true));
        let old = b"amd_min_perf=15 amd_des_perf=39 amd_max_perf=166 freq=1100000 mperf=10 aperf=11 tsc=12 cpu_id=3 changed=true fast_switch=false";
        let Some(Event::AmdPerf(event)) = known(b"amd_pstate_perf", old) else { panic!() };
        assert_eq!((event.changed, event.fast_switch, event.tsc), (Some(true), false, 12));
        let other = b"fast_switch=true cpu_id=3 tsc=12 aperf=11 mperf=10 freq=9 amd_max_perf=8 amd_des_perf=7 amd_min_perf=6";
        let Some(Event::AmdPerf(event)) = known(b"amd_pstate_perf", other) else { panic!() };
        assert_eq!((event.min, event.aperf, event.mperf), (6, 11, 10));
        assert_eq!(known(b"amd_pstate_perf", b"amd_min_perf=15 amd_des_perf=39"), None);
    }

    #[test]
    fn active_mode_and_floor_requests_are_read() {
        let Some(Event::AmdEpp(event)) =
            known(b"amd_pstate_epp_perf", b"cpu12: [15<->196]/255, epp=128, boost=1, changed=0")
        else {
            panic!()
        };
        assert_eq!((event.cpu, event.min, event.max, event.highest, event.epp), (12, 15, 196, 255, 128));
        let Some(Event::AmdReq2(event)) =
            known(b"amd_pstate_cppc_req2", b"cpu2: floor_perf=15, changed=1 (error = -5)")
        else {
            panic!()
        };
        assert_eq!((event.cpu, event.floor, event.error), (2, 15, -5));
    }

    #[test]
    fn samples_without_io_boost_are_read() {
        let text = b"core_busy=97 scaled=8 from=9 to=10 mperf=1 aperf=2 tsc=3 freq=2900000";
        let Some(Event::Intel(event)) = known(b"pstate_sample", text) else { panic!() };
        assert_eq!((event.core_busy, event.to, event.khz, event.io_boost), (97, 10, 2_900_000, 0));
    }

    #[test]
    fn switches_with_odd_names_are_read() {
        let text = b"prev_comm=a prev_pid=9 prev_pid=7 prev_prio=120 prev_state=R+ ==> next_comm=next_pid=3 x next_pid=8 next_prio=-1";
        let Some(Event::Switch(event)) = known(b"sched_switch", text) else { panic!() };
        assert_eq!(event.prev_comm.to_string(), "a prev_pid=9");
        assert_eq!((event.prev_pid, event.next_pid, event.next_prio), (7, 8, -1));
        let text = b"kworker/1:1:41 [120] D ==> swapper/1:0 [120]";
        let Some(Event::Switch(event)) = known(b"sched_switch", text) else { panic!() };
        assert_eq!(
            (event.prev_comm.to_string().as_str(), event.prev_pid, event.next_pid),
            ("kworker/1:1", 41, 0)
        );
    }

    #[test]
    fn thermal_events_are_read() {
        let text = b"thermal_zone=x86_pkg_temp id=2 temp_prev=0 temp=71000";
        let Some(Event::Thermal(event)) = known(b"thermal_temperature", text) else { panic!() };
        assert_eq!((event.id, event.value, event.name.to_string().as_str()), (2, 71_000, "x86_pkg_temp"));
    }
}
