//! The records of perf-profile, base-freq and turbo-freq: their lines and order.

use flyball_host::CpuList;
use flyball_sst::access::{BaseFreq, LevelData, TurboFreq};

use crate::{
    display::{Id, Lines, list, mask},
    levels::{LevelInfo, has_bucket},
    options::Options,
    session::{Control, Session},
};

/// Shows levels in one record. Without levels, the JSON closes a container that it did not open;
/// scripts have come to expect that.
pub(super) fn show_levels(session: &mut Session<'_>, id: &Id, levels: &[LevelInfo]) {
    if levels.is_empty() {
        session.display.end_record();
        return;
    }
    let cpus = session.domain_cpus(id).len();
    let shown = LevelFacts { cpus, ..shown(session, id) };
    let mut bad_bucket = false;
    session.display.record(id, |lines| {
        for level in levels {
            lines.section(&format!("perf-profile-level-{}", level.number), |lines| {
                bad_bucket |= shown.level(lines, level);
            });
        }
    });
    if bad_bucket {
        session.warn("Invalid bucket\n");
    }
}

/// Returns whether the first turbo kind is shown without its name, since it once was the only kind.
fn plain_first(session: &Session<'_>) -> bool {
    // 0xcf: Emerald Rapids, whose five kinds are all numbered (is_emr_platform(),
    // isst-core-mbox.c).
    !session.platform.is_tpmi() && session.model.model != 0xcf
}

/// Facts about the machine that affect the lines of a level.
struct LevelFacts {
    id: Id,
    cpus: usize,
    room: u32,
    kinds: &'static [&'static str],
    tpmi: bool,
    bios_set: bool,
    plain_first: bool,
}

fn state(supported: bool, on: bool) -> &'static str {
    match (supported, on) {
        (false, _) => "unsupported",
        (true, false) => "disabled",
        (true, true) => "enabled",
    }
}

impl LevelFacts {
    /// Prints the lines of one level. Returns true if SST-TF has no bucket to show.
    fn level(&self, lines: &mut Lines<'_>, level: &LevelInfo) -> bool {
        if self.id.cpu >= 0 {
            lines.value("cpu-count", self.cpus);
            if let Some(cores) = &level.cores {
                if !cores.is_empty() {
                    lines.value("enable-cpu-count", cores.len());
                }
                lines.value("enable-cpu-mask", mask(cores, self.room));
                lines.value("enable-cpu-list", list(cores));
            }
        }
        let LevelData { tdp_ratio, base, uncore, second_uncore, memory, .. } = level.data;
        lines.value("thermal-design-power-ratio", tdp_ratio);
        // TPMI has the ratio in MHz, the mailbox in units of 100 MHz.
        let unit = if self.tpmi { 1 } else { 100 };
        let sse = if base[0].0 == 0 { tdp_ratio * unit } else { base[0].0 };
        lines.value("base-frequency(MHz)", sse);
        lines.value_unless_zero("base-frequency-avx2(MHz)", base[1].0);
        lines.value_unless_zero("base-frequency-avx512(MHz)", base[2].0);
        lines.value_unless_zero("uncore-frequency-min(MHz)", uncore[2].0);
        lines.value_unless_zero("uncore-frequency-max(MHz)", uncore[0].0);
        lines.value_unless_zero("base-frequency-amx(MHz)", base[3].0);
        lines.value_unless_zero("uncore-frequency-base(MHz)", uncore[1].0);
        lines.value_unless_zero("uncore-1-frequency-base(MHz)", second_uncore[1].0);
        lines.value_unless_zero("uncore-1-frequency-min(MHz)", second_uncore[2].0);
        lines.value_unless_zero("uncore-1-frequency-max(MHz)", second_uncore[0].0);
        lines.value_unless_zero("max-mem-frequency(MHz)", memory.0);
        if self.tpmi {
            lines.value("cooling_type", level.data.cooling);
        }
        let Control { features, core_power, core_power_on } = level.control;
        lines.value("speed-select-turbo-freq", state(features.turbo_freq, features.turbo_freq_on));
        lines.value("speed-select-base-freq", state(features.base_freq, features.base_freq_on));
        lines.value("speed-select-core-power", state(core_power, core_power_on));
        if self.bios_set {
            if features.base_freq {
                self.base_freq(lines, &level.base_freq);
            }
            return false;
        }
        lines.value_unless_zero("thermal-design-power(W)", level.data.tdp_w);
        lines.value_unless_zero("tjunction-max(C)", level.data.tjunction_c);
        for (kind, limits) in self.kinds.iter().zip(&level.limits) {
            // Firmware without this kind of limit leaves the first bucket at 0.
            if limits[0].0 == 0 {
                continue;
            }
            lines.section(&format!("turbo-ratio-limits-{kind}"), |lines| {
                for (index, limit) in limits.iter().enumerate() {
                    lines.section(&format!("bucket-{index}"), |lines| {
                        lines.value("core-count", level.buckets[index] & 0xff);
                        lines.value("max-turbo-frequency(MHz)", limit.0);
                    });
                }
            });
        }
        if features.base_freq {
            self.base_freq(lines, &level.base_freq);
        }
        features.turbo_freq && !self.turbo_freq(lines, &level.turbo_freq, None, None)
    }

    fn base_freq(&self, lines: &mut Lines<'_>, (base, high): &(BaseFreq, CpuList)) {
        lines.section("speed-select-base-freq-properties", |lines| {
            lines.value("high-priority-base-frequency(MHz)", base.high.0);
            lines.value("high-priority-cpu-mask", mask(high, self.room));
            lines.value("high-priority-cpu-list", list(high));
            lines.value("low-priority-base-frequency(MHz)", base.low.0);
            if !self.bios_set {
                lines.value("tjunction-temperature(C)", base.tjunction_c);
                lines.value("thermal-design-power(W)", base.tdp_w);
            }
        });
    }

    /// Prints the lines of SST-TF. Prints nothing and returns false if there is no bucket to show.
    fn turbo_freq(
        &self,
        lines: &mut Lines<'_>,
        turbo: &TurboFreq,
        bucket: Option<u32>,
        kinds: Option<u32>,
    ) -> bool {
        if !has_bucket(turbo, bucket, self.id.cpu >= 0) {
            return false;
        }
        let name = |kind: usize, which: &str| {
            if kind == 0 && self.plain_first {
                format!("{which}-priority-max-frequency(MHz)")
            } else {
                format!("{which}-priority-max-{}-frequency(MHz)", self.kinds[kind])
            }
        };
        lines.section("speed-select-turbo-freq-properties", |lines| {
            for (index, &cores) in turbo.bucket_cores.iter().enumerate() {
                if bucket.is_some_and(|bucket| bucket != index as u32) {
                    continue;
                }
                // Buckets are filled in order, so an empty one ends the list.
                if cores == 0 {
                    break;
                }
                lines.section(&format!("bucket-{index}"), |lines| {
                    lines.value("high-priority-cores-count", cores);
                    for kind in 0..self.kinds.len() {
                        let selected = kinds.is_none_or(|kinds| kinds >> kind & 1 != 0);
                        let limit = turbo.limits[kind][index].0;
                        if limit != 0 && selected {
                            lines.value(&name(kind, "high"), limit);
                        }
                    }
                });
            }
            lines.section("speed-select-turbo-freq-clip-frequencies", |lines| {
                for kind in 0..self.kinds.len() {
                    lines.value_unless_zero(&name(kind, "low"), turbo.clip[kind].0);
                }
            });
        });
        true
    }
}

fn shown(session: &Session<'_>, id: &Id) -> LevelFacts {
    LevelFacts {
        id: *id,
        cpus: 0,
        room: session.map.room,
        kinds: session.access().turbo_kinds(),
        tpmi: session.platform.is_tpmi(),
        bios_set: session.is_bios_set(),
        plain_first: plain_first(session),
    }
}

/// The record of `base-freq info`.
pub(super) fn show_base_freq(session: &mut Session<'_>, id: &Id, base: &(BaseFreq, CpuList)) {
    let shown = shown(session, id);
    session.display.record(id, |lines| shown.base_freq(lines, base));
}

/// The record of `turbo-freq info`.
pub(super) fn show_turbo_freq(session: &mut Session<'_>, id: &Id, turbo: &TurboFreq, options: &Options) {
    let shown = shown(session, id);
    let mut good = true;
    session.display.record(id, |lines| good = shown.turbo_freq(lines, turbo, options.bucket, options.kinds));
    if !good {
        // The tool warns before it ends the record. In text the end prints nothing, so the order
        // does not matter.
        session.warn("Invalid bucket\n");
        session.failed = true;
    }
}
