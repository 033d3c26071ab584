//! Decodes a ring-buffer record into an [`Event`], using the layouts in the trace's own format
//! files.
//!
//! Each format is compiled once into a [`Plan`]. For the events in the table, it reads each field
//! with one load, one shift and one mask, so that a record takes a few nanoseconds whatever its
//! layout.

use crate::{
    comm::Comm,
    detail::Detail,
    error::Malformed,
    event_names::{NameId, Names},
    events::{Event, Plan, field::Slot},
    format::EventFormat,
    record::Record,
};

/// An event of a trace: its format, and how to decode its records.
#[derive(Debug, Clone)]
struct KnownEvent {
    format: EventFormat,
    plan: Plan,
    name: NameId,
    size: usize,
}

/// Decodes the records of one trace.
#[derive(Debug, Clone)]
pub struct Decoder {
    /// Index into `events` by event number; 0 for an unknown number.
    by_id: Vec<u16>,
    events: Vec<KnownEvent>,
    flags: Slot,
    preempt: Slot,
    pid: Slot,
    common: usize,
}

impl Decoder {
    /// Creates a decoder for events of these formats. Names of passed-through events are added to
    /// `names`.
    pub fn new(formats: &[EventFormat], names: &Names) -> Decoder {
        let mut decoder = Decoder {
            by_id: Vec::new(),
            events: Vec::with_capacity(formats.len()),
            // struct trace_entry (include/linux/trace_events.h): u16 type, u8 flags, u8
            // preempt_count, int pid.
            flags: Slot { load: 0, shift: 16, mask: 0xff, sign: 0 },
            preempt: Slot { load: 0, shift: 24, mask: 0xff, sign: 0 },
            pid: Slot { load: 0, shift: 32, mask: 0xffff_ffff, sign: 1 << 31 },
            common: 8,
        };
        // All events of a trace share the common fields. If no format is complete, use their layout
        // since 2.6.31.
        if let Some((slots, size)) = formats.iter().find_map(common_slots) {
            [decoder.flags, decoder.preempt, decoder.pid] = slots;
            decoder.common = size;
        }
        for format in formats {
            let at = usize::from(format.id);
            if decoder.by_id.len() <= at {
                // At most 65,536 entries of two bytes, because `id` has 16 bits.
                decoder.by_id.resize(at + 1, 0);
            }
            // Entries of `by_id` have 16 bits, like the numbers in common_type.
            if decoder.events.len() >= usize::from(u16::MAX) {
                break;
            }
            decoder.events.push(KnownEvent {
                plan: Plan::new(format),
                name: names.intern(&format.name),
                size: format.size(),
                format: format.clone(),
            });
            // Indexes start at 1, because 0 marks a number without a format.
            decoder.by_id[at] = decoder.events.len() as u16;
        }
        decoder
    }

    fn known(&self, payload: &[u8]) -> Option<&KnownEvent> {
        let [low, high] = *payload.first_chunk()?;
        // A table instead of a map, because every record needs a lookup, and numbers stay below
        // some thousands.
        let index = *self.by_id.get(usize::from(u16::from_le_bytes([low, high])))?;
        self.events.get(usize::from(index).checked_sub(1)?)
    }

    /// The format of a record, by the event number at its start.
    pub fn format(&self, payload: &[u8]) -> Option<&EventFormat> {
        self.known(payload).map(|known| &known.format)
    }

    /// Returns a record's details that its event lacks: the fields of a passed-through event.
    pub fn detail<'a>(&'a self, record: &Record, payload: &'a [u8]) -> Detail<'a> {
        match (record.event, self.format(payload)) {
            // `Event` has all fields of an event in the table.
            (Event::Other(_), Some(format)) => Detail::Bytes { format, payload },
            _ => Detail::None,
        }
    }

    /// Name and fields of a passed-through record, as a line shows them; empty for all other
    /// records.
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
    /// The record is too short for its event, or no format has its number.
    #[inline]
    pub fn decode(&self, time: u64, cpu: u32, payload: &[u8]) -> Result<Record, Malformed> {
        let Some(known) = self.known(payload) else { return Err(unknown(payload)) };
        // Checked once per record, so that the field loads cannot fail.
        if payload.len() < known.size || payload.len() < self.common {
            return Err(too_short(payload, known));
        }
        Ok(Record {
            time,
            cpu,
            pid: self.pid.get(payload) as i32,
            // A record has only the task's number; callers with saved_cmdlines fill in the name.
            comm: Comm::default(),
            flags: self.flags.get(payload) as u8,
            preempt: self.preempt.get(payload) as u8,
            event: known.plan.decode(payload, known.name),
        })
    }
}

/// Flags, preemption count and task in a format's common fields, and the size of these fields.
fn common_slots(format: &EventFormat) -> Option<([Slot; 3], usize)> {
    let common = format.fields.get(..format.common)?;
    let size = common.iter().map(|field| field.offset.saturating_add(field.size)).max()?;
    let slot = |name: &str| format.field(name).and_then(|field| Slot::new(field, size));
    let kind = slot("common_type")?;
    // `known` reads the event number from the first two bytes, so a layout with it elsewhere is
    // damaged.
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
fn too_short(payload: &[u8], known: &KnownEvent) -> Malformed {
    let (have, name, needed) = (payload.len(), &known.format.name, known.size);
    Malformed::new(0, format!("{name} needs records of {needed} bytes, this one has {have}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        events::AmdPerf,
        format::tests::{amd_perf_new, format_text},
    };

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
