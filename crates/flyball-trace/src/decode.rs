//! From a ring-buffer record's bytes to an [`Event`], by the layouts that the trace's own format files describe.
//!
//! Each format is compiled once into a [`Plan`]: for the events that this library knows, the place of every field
//! as one load, one shift and one mask, so that a record costs a few nanoseconds whatever its layout.

use crate::{
    detail::Detail,
    error::Malformed,
    format::{EventFormat, Field, Shape},
    record::{
        AmdEpp, AmdPerf, AmdReq2, Comm, Event, IntelSample, NameId, Names, Record, Switch, Thermal,
        ThermalKind,
    },
};

/// Where an integer lies: `(eight bytes at load) >> shift & mask`, sign-extended from `sign` if that is not 0.
#[derive(Debug, Clone, Copy)]
struct Slot {
    load: usize,
    shift: u32,
    mask: u64,
    sign: u64,
}

impl Slot {
    /// `size` is how long every record of the event is at least.
    fn new(field: &Field, size: usize) -> Option<Slot> {
        if field.shape != Shape::Integer || field.offset.saturating_add(field.size) > size || size < 8 {
            return None;
        }
        let load = field.offset.min(size - 8);
        let bits = 8 * field.size as u32;
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        let sign = if field.signed && bits < 64 { 1 << (bits - 1) } else { 0 };
        Some(Slot { load, shift: 8 * (field.offset - load) as u32, mask, sign })
    }

    /// 0 where the record is too short, which [`Plan::decode`] excludes.
    #[inline]
    fn get(self, record: &[u8]) -> u64 {
        let word =
            record.get(self.load..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word));
        let value = (word >> self.shift) & self.mask;
        (value ^ self.sign).wrapping_sub(self.sign)
    }
}

/// How to read one event's records.
#[derive(Debug, Clone)]
enum Plan {
    AmdPerf {
        min: Slot,
        des: Slot,
        max: Slot,
        freq: Slot,
        counters: [Slot; 3],
        cpu: Slot,
        changed: Option<Slot>,
        fast: Slot,
    },
    AmdEpp {
        cpu: Slot,
        highest: Slot,
        epp: Slot,
        min: Slot,
        max: Slot,
        boost: Slot,
        changed: Slot,
    },
    AmdReq2 {
        cpu: Slot,
        floor: Slot,
        changed: Slot,
        error: Slot,
    },
    Intel {
        levels: [Slot; 4],
        counters: [Slot; 3],
        freq: Slot,
        boost: Option<Slot>,
    },
    Frequency {
        cpu: Slot,
        khz: Slot,
    },
    Limits {
        cpu: Slot,
        min: Slot,
        max: Slot,
    },
    Idle {
        cpu: Slot,
        state: Slot,
    },
    IdleMiss {
        cpu: Slot,
        state: Slot,
        below: Slot,
    },
    Switch {
        prev: Field,
        next: Field,
        prev_pid: Slot,
        prev_prio: Slot,
        next_pid: Slot,
        next_prio: Slot,
    },
    Thermal {
        kind: ThermalKind,
        id: Option<Slot>,
        value: Slot,
        name: Option<Field>,
    },
    Other,
}

impl Plan {
    /// The plan for this format; [`Plan::Other`] for an event that is not known or lacks a field that it should have.
    fn new(format: &EventFormat) -> Plan {
        let size = format.size();
        let slot = |name: &str| format.field(name).and_then(|field| Slot::new(field, size));
        let text = |name: &str| {
            let field = format.field(name)?;
            let text = matches!(field.shape, Shape::Text | Shape::Located { .. } | Shape::Relative { .. });
            text.then(|| field.clone())
        };
        let known = || -> Option<Plan> {
            Some(match format.name.as_str() {
                "amd_pstate_perf" => Plan::AmdPerf {
                    min: slot("min_perf")?,
                    des: slot("target_perf").or_else(|| slot("des_perf"))?,
                    max: slot("capacity").or_else(|| slot("max_perf"))?,
                    // The first kernels with the event (5.17) had neither frequency nor counters.
                    freq: slot("freq")?,
                    counters: [slot("mperf")?, slot("aperf")?, slot("tsc")?],
                    cpu: slot("cpu_id")?,
                    changed: slot("changed"),
                    fast: slot("fast_switch")?,
                },
                "amd_pstate_epp_perf" => Plan::AmdEpp {
                    cpu: slot("cpu_id")?,
                    highest: slot("highest_perf")?,
                    epp: slot("epp")?,
                    min: slot("min_perf")?,
                    max: slot("max_perf")?,
                    boost: slot("boost")?,
                    changed: slot("changed")?,
                },
                "amd_pstate_cppc_req2" => Plan::AmdReq2 {
                    cpu: slot("cpu_id")?,
                    floor: slot("floor_perf")?,
                    changed: slot("changed")?,
                    error: slot("err_code").or_else(|| slot("error")).or_else(|| slot("err"))?,
                },
                "pstate_sample" => Plan::Intel {
                    levels: [slot("core_busy")?, slot("scaled_busy")?, slot("from")?, slot("to")?],
                    counters: [slot("mperf")?, slot("aperf")?, slot("tsc")?],
                    freq: slot("freq")?,
                    boost: slot("io_boost"),
                },
                "cpu_frequency" => Plan::Frequency { cpu: slot("cpu_id")?, khz: slot("state")? },
                "cpu_frequency_limits" => {
                    Plan::Limits { cpu: slot("cpu_id")?, min: slot("min_freq")?, max: slot("max_freq")? }
                }
                "cpu_idle" => Plan::Idle { cpu: slot("cpu_id")?, state: slot("state")? },
                "cpu_idle_miss" => {
                    Plan::IdleMiss { cpu: slot("cpu_id")?, state: slot("state")?, below: slot("below")? }
                }
                "sched_switch" => Plan::Switch {
                    prev: text("prev_comm")?,
                    next: text("next_comm")?,
                    prev_pid: slot("prev_pid")?,
                    prev_prio: slot("prev_prio")?,
                    next_pid: slot("next_pid")?,
                    next_prio: slot("next_prio")?,
                },
                "thermal_temperature" => Plan::Thermal {
                    kind: ThermalKind::Temperature,
                    id: slot("id"),
                    value: slot("temp")?,
                    name: text("thermal_zone"),
                },
                "thermal_zone_trip" => Plan::Thermal {
                    kind: ThermalKind::Trip,
                    id: slot("id"),
                    value: slot("trip")?,
                    name: text("thermal_zone"),
                },
                "cdev_update" => Plan::Thermal {
                    kind: ThermalKind::Cooling,
                    id: None,
                    value: slot("target")?,
                    name: text("type"),
                },
                "hw_pressure_update" => Plan::Thermal {
                    kind: ThermalKind::Pressure,
                    id: Some(slot("cpu")?),
                    value: slot("hw_pressure")?,
                    name: None,
                },
                "thermal_pressure_update" => Plan::Thermal {
                    kind: ThermalKind::Pressure,
                    id: Some(slot("cpu")?),
                    value: slot("thermal_pressure")?,
                    name: None,
                },
                "powernv_throttle" => Plan::Thermal {
                    kind: ThermalKind::Throttle,
                    id: Some(slot("chip_id")?),
                    value: slot("pmax")?,
                    name: text("reason"),
                },
                _ => return None,
            })
        };
        known().unwrap_or(Plan::Other)
    }

    #[inline]
    fn decode(&self, record: &[u8], name: NameId) -> Event {
        let get = |slot: &Slot| slot.get(record);
        let small = |slot: &Slot| slot.get(record) as u32;
        let flag = |slot: &Slot| slot.get(record) != 0;
        match self {
            Plan::AmdPerf { min, des, max, freq, counters, cpu, changed, fast } => Event::AmdPerf(AmdPerf {
                min: small(min),
                des: small(des),
                max: small(max),
                cpu: small(cpu),
                khz: get(freq),
                mperf: get(&counters[0]),
                aperf: get(&counters[1]),
                tsc: get(&counters[2]),
                changed: changed.as_ref().map(flag),
                fast_switch: flag(fast),
            }),
            Plan::Intel { levels, counters, freq, boost } => Event::Intel(IntelSample {
                core_busy: small(&levels[0]),
                scaled_busy: small(&levels[1]),
                from: small(&levels[2]),
                to: small(&levels[3]),
                mperf: get(&counters[0]),
                aperf: get(&counters[1]),
                tsc: get(&counters[2]),
                khz: small(freq),
                io_boost: boost.as_ref().map_or(0, small),
            }),
            Plan::AmdEpp { cpu, highest, epp, min, max, boost, changed } => Event::AmdEpp(AmdEpp {
                cpu: small(cpu),
                highest: small(highest),
                epp: small(epp),
                min: small(min),
                max: small(max),
                boost: flag(boost),
                changed: flag(changed),
            }),
            Plan::AmdReq2 { cpu, floor, changed, error } => Event::AmdReq2(AmdReq2 {
                cpu: small(cpu),
                floor: small(floor),
                changed: flag(changed),
                error: get(error) as i32,
            }),
            Plan::Frequency { cpu, khz } => Event::Frequency { cpu: small(cpu), khz: small(khz) },
            Plan::Limits { cpu, min, max } => {
                Event::Limits { cpu: small(cpu), min_khz: small(min), max_khz: small(max) }
            }
            Plan::Idle { cpu, state } => Event::Idle { cpu: small(cpu), state: small(state) },
            Plan::IdleMiss { cpu, state, below } => {
                Event::IdleMiss { cpu: small(cpu), state: small(state), below: flag(below) }
            }
            Plan::Switch { prev, next, prev_pid, prev_prio, next_pid, next_prio } => {
                let comm = |field: &Field| Comm::new(field.text(record).unwrap_or_default());
                Event::Switch(Switch {
                    prev_comm: comm(prev),
                    prev_pid: get(prev_pid) as i32,
                    prev_prio: get(prev_prio) as i32,
                    next_comm: comm(next),
                    next_pid: get(next_pid) as i32,
                    next_prio: get(next_prio) as i32,
                })
            }
            Plan::Thermal { kind, id, value, name } => Event::Thermal(Thermal {
                kind: *kind,
                id: id.as_ref().map_or(-1, |slot| get(slot) as i32),
                value: get(value).cast_signed(),
                name: name
                    .as_ref()
                    .and_then(|field| field.text(record))
                    .map_or_else(Comm::default, Comm::new),
            }),
            Plan::Other => Event::Other(name),
        }
    }
}

/// One event of a trace: its format, and what becomes of its records.
#[derive(Debug, Clone)]
struct Known {
    format: EventFormat,
    plan: Plan,
    name: NameId,
    size: usize,
}

/// Decodes the records of one trace.
#[derive(Debug, Clone)]
pub struct Decoder {
    /// Index into `events` by event number, 0 for an unknown one.
    by_id: Vec<u16>,
    events: Vec<Known>,
    flags: Slot,
    preempt: Slot,
    pid: Slot,
    common: usize,
}

impl Decoder {
    /// A decoder for events of these formats. Names of events that are passed through go into `names`.
    pub fn new(formats: &[EventFormat], names: &Names) -> Decoder {
        let mut decoder = Decoder {
            by_id: Vec::new(),
            events: Vec::with_capacity(formats.len()),
            flags: Slot { load: 0, shift: 16, mask: 0xff, sign: 0 },
            preempt: Slot { load: 0, shift: 24, mask: 0xff, sign: 0 },
            pid: Slot { load: 0, shift: 32, mask: 0xffff_ffff, sign: 1 << 31 },
            common: 8,
        };
        // All events of a trace share the common fields; where no format is whole, they lie as ever since 2.6.31.
        if let Some((slots, size)) = formats.iter().find_map(common_slots) {
            [decoder.flags, decoder.preempt, decoder.pid] = slots;
            decoder.common = size;
        }
        for format in formats {
            let at = usize::from(format.id);
            if decoder.by_id.len() <= at {
                decoder.by_id.resize(at + 1, 0);
            }
            if decoder.events.len() >= usize::from(u16::MAX) {
                break;
            }
            decoder.events.push(Known {
                plan: Plan::new(format),
                name: names.intern(&format.name),
                size: format.size(),
                format: format.clone(),
            });
            decoder.by_id[at] = decoder.events.len() as u16;
        }
        decoder
    }

    fn known(&self, payload: &[u8]) -> Option<&Known> {
        let [low, high] = *payload.first_chunk()?;
        let index = *self.by_id.get(usize::from(u16::from_le_bytes([low, high])))?;
        self.events.get(usize::from(index).checked_sub(1)?)
    }

    /// The format of a record, by the event number that it starts with.
    pub fn format(&self, payload: &[u8]) -> Option<&EventFormat> {
        self.known(payload).map(|known| &known.format)
    }

    /// What a record has beyond its event: the fields of one that is passed through.
    pub fn detail<'a>(&'a self, record: &Record, payload: &'a [u8]) -> Detail<'a> {
        match (record.event, self.format(payload)) {
            (Event::Other(_), Some(format)) => Detail::Bytes { format, payload },
            _ => Detail::None,
        }
    }

    /// Name and fields of a record that is passed through, as a line shows them; nothing for all others.
    pub fn other(&self, record: &Record, payload: &[u8]) -> String {
        match self.detail(record, payload) {
            detail @ Detail::Bytes { format, .. } => format!("{}: {detail}", format.name),
            _ => String::new(),
        }
    }

    /// The formats of all events that can be decoded.
    pub fn formats(&self) -> impl Iterator<Item = &EventFormat> {
        self.events.iter().map(|known| &known.format)
    }

    /// Decodes one record of `cpu`'s buffer.
    ///
    /// # Errors
    /// Where the record is too short for its event, or no format has its number.
    #[inline]
    pub fn decode(&self, time: u64, cpu: u32, payload: &[u8]) -> Result<Record, Malformed> {
        let Some(known) = self.known(payload) else { return Err(unknown(payload)) };
        if payload.len() < known.size || payload.len() < self.common {
            return Err(too_short(payload, known));
        }
        Ok(Record {
            time,
            cpu,
            pid: self.pid.get(payload) as i32,
            comm: Comm::default(),
            flags: self.flags.get(payload) as u8,
            preempt: self.preempt.get(payload) as u8,
            event: known.plan.decode(payload, known.name),
        })
    }
}

/// Flags, preemption count and task of a format's common fields, and their size.
fn common_slots(format: &EventFormat) -> Option<([Slot; 3], usize)> {
    let common = format.fields.get(..format.common)?;
    let size = common.iter().map(|field| field.offset.saturating_add(field.size)).max()?;
    let slot = |name: &str| format.field(name).and_then(|field| Slot::new(field, size));
    let kind = slot("common_type")?;
    if (kind.load, kind.shift, kind.mask) != (0, 0, 0xffff) {
        return None;
    }
    Some(([slot("common_flags")?, slot("common_preempt_count")?, slot("common_pid")?], size))
}

#[cold]
fn unknown(payload: &[u8]) -> Malformed {
    match payload.first_chunk::<2>() {
        Some(id) => Malformed::new(
            0,
            format!("a record of event {}, which no format describes", u16::from_le_bytes(*id)),
        ),
        None => Malformed::new(0, "a record without an event number"),
    }
}

#[cold]
fn too_short(payload: &[u8], known: &Known) -> Malformed {
    let (have, name, need) = (payload.len(), &known.format.name, known.size);
    Malformed::new(0, format!("a record of {have} bytes, of {name}, which takes {need}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::format::tests::{amd_perf_new, format_text};

    /// A record of [`amd_perf_new`].
    pub(crate) fn amd_perf_payload(pid: i32, event: &AmdPerf) -> Vec<u8> {
        let mut payload = vec![0; 56];
        payload[..2].copy_from_slice(&2203u16.to_le_bytes());
        payload[4..8].copy_from_slice(&pid.to_le_bytes());
        payload[8] = event.min as u8;
        payload[9] = event.des as u8;
        payload[10] = event.max as u8;
        payload[16..24].copy_from_slice(&event.khz.to_le_bytes());
        payload[24..32].copy_from_slice(&event.mperf.to_le_bytes());
        payload[32..40].copy_from_slice(&event.aperf.to_le_bytes());
        payload[40..48].copy_from_slice(&event.tsc.to_le_bytes());
        payload[48..52].copy_from_slice(&event.cpu.to_le_bytes());
        payload[52] = u8::from(event.fast_switch);
        payload
    }

    fn sample() -> AmdPerf {
        AmdPerf {
            min: 15,
            des: 166,
            max: 255,
            cpu: 700,
            khz: 4_682_052,
            mperf: u64::MAX,
            aperf: 1 << 40,
            tsc: 3_300_000,
            changed: None,
            fast_switch: true,
        }
    }

    #[test]
    fn the_byte_wide_layout_is_read() {
        let decoder = Decoder::new(&[amd_perf_new()], &Names::default());
        let record = decoder.decode(5, 3, &amd_perf_payload(-1, &sample())).unwrap();
        assert_eq!((record.time, record.cpu, record.pid), (5, 3, -1));
        assert_eq!(record.event, Event::AmdPerf(sample()));
        assert_eq!(record.subject(), 700);
    }

    #[test]
    fn the_long_layout_with_changed_is_read() {
        let text = format_text(
            "amd_pstate_perf",
            1405,
            &[
                ("unsigned long min_perf", 8, 8),
                ("unsigned long target_perf", 16, 8),
                ("unsigned long capacity", 24, 8),
                ("unsigned long long freq", 32, 8),
                ("unsigned long long mperf", 40, 8),
                ("unsigned long long aperf", 48, 8),
                ("unsigned long long tsc", 56, 8),
                ("unsigned int cpu_id", 64, 4),
                ("bool changed", 68, 1),
                ("bool fast_switch", 69, 1),
            ],
            "\"\"",
        );
        let format = EventFormat::parse("amd_cpu", text.as_bytes()).unwrap();
        let decoder = Decoder::new(&[format], &Names::default());
        let mut payload = vec![0; 72];
        payload[..2].copy_from_slice(&1405u16.to_le_bytes());
        for (at, value) in [(8, 15u64), (16, 166), (24, 255), (32, 4_682_052), (40, u64::MAX), (48, 1 << 40)]
        {
            payload[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        payload[56..64].copy_from_slice(&3_300_000u64.to_le_bytes());
        payload[64..68].copy_from_slice(&700u32.to_le_bytes());
        payload[69] = 1;
        let record = decoder.decode(0, 0, &payload).unwrap();
        assert_eq!(record.event, Event::AmdPerf(AmdPerf { changed: Some(false), ..sample() }));
    }

    #[test]
    fn unknown_and_short_records_are_refused() {
        let decoder = Decoder::new(&[amd_perf_new()], &Names::default());
        let payload = amd_perf_payload(1, &sample());
        assert!(decoder.decode(0, 0, &payload[..52]).unwrap_err().what.contains("amd_pstate_perf"));
        assert!(decoder.decode(0, 0, &[1, 0, 0, 0]).unwrap_err().what.contains("event 1"));
        assert!(decoder.decode(0, 0, &[]).is_err());
        assert!(Decoder::new(&[], &Names::default()).decode(0, 0, &payload).is_err());
    }

    #[test]
    fn an_event_without_its_fields_is_passed_through() {
        let text = format_text("amd_pstate_perf", 9, &[("unsigned long amd_min_perf", 8, 8)], "\"\"");
        let format = EventFormat::parse("amd_cpu", text.as_bytes()).unwrap();
        let names = Names::default();
        let decoder = Decoder::new(&[format], &names);
        let mut payload = vec![0; 16];
        payload[0] = 9;
        let Event::Other(name) = decoder.decode(0, 0, &payload).unwrap().event else { panic!() };
        assert_eq!(names.name(name), "amd_pstate_perf");
    }

    #[test]
    fn switches_carry_both_names() {
        let text = format_text(
            "sched_switch",
            316,
            &[
                ("char prev_comm[16]", 8, 16),
                ("pid_t prev_pid", 24, 4),
                ("int prev_prio", 28, 4),
                ("long prev_state", 32, 8),
                ("char next_comm[16]", 40, 16),
                ("pid_t next_pid", 56, 4),
                ("int next_prio", 60, 4),
            ],
            "\"\"",
        );
        let format = EventFormat::parse("sched", text.as_bytes()).unwrap();
        let decoder = Decoder::new(&[format], &Names::default());
        let mut payload = vec![0; 64];
        payload[..2].copy_from_slice(&316u16.to_le_bytes());
        payload[8..15].copy_from_slice(b"job[12]");
        payload[24..28].copy_from_slice(&77i32.to_le_bytes());
        payload[40..49].copy_from_slice(b"swapper/0");
        let Event::Switch(switch) = decoder.decode(0, 0, &payload).unwrap().event else { panic!() };
        assert_eq!(switch.prev_comm.to_string(), "job[12]");
        assert_eq!((switch.prev_pid, switch.next_comm.to_string().as_str()), (77, "swapper/0"));
    }
}
