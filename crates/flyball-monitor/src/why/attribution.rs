//! Splits the frequency that one CPU lost in one interval among its limits.

use flyball_host::Vendor;

use super::package::{HELD, PackageState};
use crate::{
    Cap, Certainty, CpuInterval, Evidence, Layout, Limiter, Preference, Proof, Reason, Waking,
    interval::WAKING, layout::Cpu,
};

/// Losses below this share of the highest frequency are rounding.
pub(super) const LEAST: f64 = 0.008;
/// A CPU that ran for a smaller share of the time sleeps in between.
pub(super) const RESTS: f64 = 0.9;

/// Frequency that one limit cost a CPU in an interval.
pub(super) struct Loss {
    pub(super) reason: Reason,
    pub(super) mhz: f64,
}

/// A CPU in an interval, with everything that may have limited it.
pub(super) struct Attribution<'a> {
    pub(super) layout: &'a Layout,
    pub(super) facts: &'a crate::facts::CpuFacts,
    pub(super) cpu: &'a CpuInterval,
    pub(super) place: &'a Cpu,
    pub(super) package: Option<&'a PackageState<'a>>,
    /// The processor's request register, if it was read in this interval.
    pub(super) request: Option<u64>,
    /// perf_limited: the bits that were set from the beginning, and those that are set now.
    pub(super) limited: Option<(u64, u64)>,
    /// The SMT sibling with the highest scaling_max_freq, and that frequency, if it is above this
    /// CPU's.
    pub(super) sibling: Option<(u32, f64)>,
}

/// Returns an SMT sibling's scaling_max_freq as evidence. `does` says how it affects this CPU.
pub(super) fn sibling_evidence((sibling, max): (u32, f64), does: &str) -> Evidence {
    let file = format!("scaling_max_freq of CPU {sibling}, its SMT sibling");
    Evidence::new(file, format!("{max:.0} MHz{does}"))
}

impl Attribution<'_> {
    /// Attributes the loss to limits: first to those that are known frequencies, in the order in
    /// which they take effect. The remainder goes to the one reason that has evidence.
    pub(super) fn losses(&self) -> Vec<Loss> {
        let (Some(mhz), true) = (self.cpu.mhz, self.facts.highest > 0.0) else { return Vec::new() };
        let mut top = self.facts.highest;
        let mut losses = Vec::new();
        for Cap { limiter, mhz: cap, evidence } in self.caps() {
            // The CPU ran well above a setting, so the setting was not in effect. For example,
            // amd-pstate in active mode applies `boost` only at the next change of a limit.
            let held = if self.is_outbid(limiter) { cap } else { cap * HELD };
            if limiter.is_configured() && mhz > held + self.facts.level + self.step() {
                continue;
            }
            // If the CPU ran above a limit, the limit cost only the difference down to the measured
            // frequency: turbo tables do not cover everything that opportunistic boost does.
            let left = cap.max(mhz);
            if left < top {
                losses
                    .push(Loss { reason: Reason::measured(limiter, Proof::new(evidence)), mhz: top - left });
                top = left;
            }
        }
        self.remainder(top - mhz, mhz, &mut losses);
        self.mark_undecided(&mut losses);
        // Merge losses with the same limiter, with the evidence of both.
        losses.sort_by(|one, other| {
            (one.reason.limiter.cmp(&other.reason.limiter)).then(other.mhz.total_cmp(&one.mhz))
        });
        losses.dedup_by(|lesser, loss| {
            let is_part = lesser.reason.limiter == loss.reason.limiter;
            if is_part {
                loss.mhz += lesser.mhz;
                loss.reason.evidence.extend(&lesser.reason.evidence);
            }
            is_part
        });
        losses
    }

    /// Returns whether the core may run above this limit of the CPU, because a core runs at the
    /// highest request of its threads. Switching off boost for one policy lowers only that policy's
    /// file.
    pub(super) fn is_outbid(&self, limiter: Limiter) -> bool {
        matches!(limiter, Limiter::MaxFreq | Limiter::TurboOff) && self.sibling.is_some()
    }

    /// Returns the limit that the CPU exceeded because its sibling has a higher one.
    pub(super) fn exceeded_for_sibling(&self, caps: &[Cap]) -> Option<usize> {
        let mhz = self.cpu.mhz?;
        let is_above = |cap: &Cap| mhz > cap.mhz + self.facts.level + self.step();
        caps.iter()
            .position(|cap| cap.limiter == Limiter::MaxFreq && self.is_outbid(cap.limiter) && is_above(cap))
    }

    /// Returns the CPU's own limit as the reason, if the frequency is nearer to it than to `top`
    /// and every busy CPU without such a limit is faster.
    fn own_limit(&self, mhz: f64, top: f64) -> Option<Reason> {
        let (sibling, own) = (self.sibling?, self.cpu.max?);
        let fastest = self.package.and_then(|package| package.unlimited(self.place.core_type));
        if mhz - own > top - mhz || fastest.is_some_and(|fastest| fastest <= mhz + 1.5 * self.step()) {
            return None;
        }
        let evidence = Proof::new(Evidence::new("scaling_max_freq", format!("{own:.0} MHz")))
            .and(sibling_evidence(sibling, ", which raises it"));
        Some(Reason::inferred(Limiter::MaxFreq, evidence, &[Limiter::MaxFreq, Limiter::Firmware]))
    }

    /// Marks reasons that the shares of time cannot tell apart. Cores that sleep part of the time
    /// may run together or apart, so the turbo limit lies within a range, and the next setting gets
    /// the difference.
    fn mark_undecided(&self, losses: &mut [Loss]) {
        let Some((more, evidence)) =
            self.package.and_then(|package| package.together_without_settings(self.place))
        else {
            return;
        };
        let follows = |loss: &&Loss| loss.reason.limiter > Limiter::ActiveCores;
        let Some(next) = losses.iter().find(follows).map(|loss| (loss.reason.limiter, loss.mhz)) else {
            return;
        };
        let more = next.1.min(more);
        let is_shown = next.0.is_shown();
        if !(is_shown || next.0.is_setting()) || more <= LEAST * self.facts.highest {
            return;
        }
        // A limit that hardware shows certainly applied. Split the undecided part evenly between it
        // and the turbo limit: only their shares are open.
        let own = losses.iter().position(|loss| loss.reason.limiter == Limiter::ActiveCores);
        if is_shown && let Some(own) = own {
            losses[own].mhz += 0.5 * more;
            for loss in losses.iter_mut().filter(|loss| loss.reason.limiter == next.0) {
                loss.mhz -= 0.5 * more;
            }
            if next.1 - more >= losses[own].mhz + 0.5 * more {
                return;
            }
        }
        for Loss { reason, .. } in losses {
            if reason.limiter == Limiter::ActiveCores || reason.limiter == next.0 {
                reason.evidence = reason.evidence.clone().and(evidence.clone());
                let mut fits = vec![Limiter::ActiveCores, next.0];
                if let Certainty::Inferred { fits: others } = &reason.certainty {
                    fits.extend(others.iter().filter(|other| !fits.contains(other)).collect::<Vec<_>>());
                }
                reason.certainty = Certainty::Inferred { fits };
            }
        }
    }

    /// Returns the reason for a loss in the first interval in which a CPU ran, if the loss is no
    /// more than a load-following governor needs to raise the frequency.
    pub(super) fn rise(&self, loss: &Loss, seconds: f64) -> Option<Reason> {
        // intel_pstate without HWP and schedutil request the highest frequency within tens of
        // milliseconds. The margin is for a load that starts slowly.
        const SECONDS: f64 = 0.15;
        let governor = self.governor();
        let follows = match governor {
            "" | "performance" | "userspace" => false,
            "powersave" => self.is_autonomous() && self.cpu.epp.is_none(),
            _ => true,
        };
        let most = (self.facts.highest - self.cpu.min?) * SECONDS;
        let is_short = loss.reason.limiter == Limiter::Firmware && loss.mhz * seconds <= most;
        let evidence = Proof::new(Evidence::new("scaling_governor", governor))
            .and(Evidence::new("its first interval", format!("{seconds:.1} s, in which the load began")));
        (follows && is_short)
            .then(|| Reason::inferred(Limiter::Governor, evidence, &[Limiter::Governor, Limiter::Firmware]))
    }

    /// Limits that are known as frequencies, in the order in which they take effect.
    pub(super) fn caps(&self) -> Vec<Cap> {
        let mut caps = self.facts.caps.clone();
        caps.extend(self.package.and_then(|package| package.active_cores(self.place)));
        caps.extend(self.package.and_then(|package| package.kept_awake(self.place)));
        // The level and turbo-freq count as one reason. The lower of their limits applies.
        match (
            self.package.and_then(|package| package.level(self.place)),
            caps.iter_mut().find(|cap| cap.limiter == Limiter::SpeedSelect),
        ) {
            (Some(level), Some(clip)) if level.mhz < clip.mhz => *clip = level,
            (Some(level), None) => caps.push(level),
            _ => {}
        }
        let percentage = caps.iter_mut().find(|cap| cap.limiter == Limiter::Percentage);
        match (percentage, self.max_freq()) {
            // intel_pstate without HWP derives policy->max from the percentage and rounds it down
            // (intel_pstate_update_perf_limits): one limit, not two.
            (Some(percentage), Some(file))
                if self.cpu.epp.is_none() && (percentage.mhz - file.mhz).abs() <= 100.0 =>
            {
                percentage.mhz = percentage.mhz.min(file.mhz);
            }
            (_, file) => caps.extend(file),
        }
        caps.extend(self.fixed_governor());
        caps.extend(self.package.and_then(PackageState::port));
        // A limit as high as the highest frequency limits nothing.
        let least = self.facts.highest * (1.0 - LEAST);
        caps.retain(|cap| self.facts.highest == 0.0 || cap.mhz < least);
        caps.sort_by_key(|cap| cap.limiter);
        caps
    }

    /// Attributes what the known limits leave unexplained.
    fn remainder(&self, remains: f64, mhz: f64, losses: &mut Vec<Loss>) {
        let least = LEAST * self.facts.highest;
        if remains <= least {
            return;
        }
        let step = self.step();
        let named = self.package.and_then(|package| package.limit(mhz + remains));
        let named =
            named.or_else(|| self.platform().filter(|reason| reason.certainty == Certainty::Measured));
        // A configured limit cannot cost what is missing below it. Cores that are awake together
        // can.
        let mut remains = remains;
        if named.is_none() && losses.iter().any(|loss| loss.reason.limiter.is_configured()) {
            remains -= self.take_together(mhz + remains, remains, losses);
            if remains <= least {
                return;
            }
        }
        // A configured limit is rounded to a level of HWP or CPPC, and to a clock step, which Intel
        // rounds to the nearest one.
        let is_amd = self.layout.machine.vendor == Vendor::Amd;
        // If levels are clock steps, nothing is rounded.
        let is_exact = (self.facts.level - step).abs() < 1.0 && self.cpu.busy > Some(RESTS);
        let rounding = match (is_exact, is_amd) {
            (true, _) => 0.5 * step,
            (false, true) => self.facts.level + step,
            (false, false) => self.facts.level + 0.5 * step,
        };
        if named.is_none()
            && remains <= rounding
            && let Some(last) = losses.last_mut().filter(|last| last.reason.limiter.is_configured())
        {
            last.mhz += remains;
            return;
        }
        // A shared limit cost this CPU no more than the fastest one. The remainder is this CPU's
        // own.
        let highest = self.facts.highest_under(self.cpu.max);
        let (fastest, others) = self
            .package
            .and_then(|package| package.fastest(self.place.core_type, highest))
            .unwrap_or((mhz, mhz));
        // A faster core may have a higher limit of its own (preferred cores), so compare up to the
        // unexplained remainder only.
        let behind = fastest.min(mhz + remains) - mhz;
        // A CPU that sleeps in between is slower because of that, not because of a limit.
        let is_own = behind > 0.03 * self.facts.highest + step && self.cpu.busy > Some(RESTS);
        let own = if is_own { behind } else { 0.0 };
        let mut shared = remains - own;
        if shared > least {
            let reason = match named.clone() {
                Some(named) => self.or_preference(named),
                None => {
                    self.own_limit(mhz, mhz + remains).unwrap_or_else(|| self.unnamed(shared, mhz + remains))
                }
            };
            if matches!(reason.limiter, Limiter::Firmware | Limiter::Unseen | Limiter::WakeUp) {
                shared -= self.take_together(mhz + remains, shared, losses);
            }
            if shared > least {
                losses.push(Loss { reason, mhz: shared });
            }
        }
        if own > least
            && let Some(package) = self.package
        {
            let others = Evidence::new("other CPUs", format!("up to {others:.0} MHz at the same time"));
            let lesser = self.facts.lesser.clone().or_else(|| self.preferred_less(fastest));
            let reason = match lesser {
                Some((limiter, evidence)) => {
                    let evidence = Proof::new(evidence).and(others);
                    let else_fits = named.map_or(Limiter::Firmware, |named| named.limiter);
                    Reason::inferred(limiter, evidence, &[limiter, else_fits])
                }
                None => {
                    let excluded = package.excluded();
                    Reason { evidence: excluded.evidence.and(others), ..excluded }
                }
            };
            losses.push(Loss { reason, mhz: own });
        }
    }

    /// Attributes an otherwise unexplained loss to the turbo limits, up to what they cost below
    /// `top` if cores wake and sleep together. Returns how much.
    fn take_together(&self, top: f64, remains: f64, losses: &mut Vec<Loss>) -> f64 {
        let Some((more, evidence)) = self.package.and_then(|package| package.together(self.place, top))
        else {
            return 0.0;
        };
        let mhz = remains.min(more).max(0.0);
        if mhz == 0.0 {
            return 0.0;
        }
        match losses.iter_mut().find(|loss| loss.reason.limiter == Limiter::ActiveCores) {
            Some(loss) => {
                loss.mhz += mhz;
                loss.reason.evidence = loss.reason.evidence.clone().and(evidence);
            }
            None => {
                let fits = [Limiter::ActiveCores, Limiter::Firmware];
                let reason = Reason::inferred(Limiter::ActiveCores, Proof::new(evidence), &fits);
                losses.push(Loss { reason, mhz });
            }
        }
        mhz
    }

    /// Returns scaling_max_freq, or the maximum in the processor's request register if that is
    /// lower.
    fn max_freq(&self) -> Option<Cap> {
        // With acpi-cpufreq the highest P-state includes boost, so a request for it is no limit
        // (acpi_cpufreq_cpu_init).
        let file = self.cpu.max.filter(|file| !self.place.is_boosted_above(*file))?;
        let own = self.facts.scale.map_or(file, |scale| scale.mhz(file));
        let value = match self.facts.scale {
            Some(_) => format!("{file:.0} MHz, for which the driver asks for {own:.0}"),
            None => format!("{file:.0} MHz"),
        };
        // The highest value that the file can hold is no limit, whatever the core could do.
        let is_limit = self.facts.file_highest.is_none_or(|highest| file < highest);
        let evidence = Evidence::new("scaling_max_freq", value);
        let from_file =
            is_limit.then(|| Cap { limiter: Limiter::MaxFreq, mhz: self.clocked(file), evidence });
        // Without autonomous selection, Intel's maximum is the governor's request. AMD has a
        // separate field for that.
        let is_known = self.facts.level > 0.0 && (self.is_autonomous() || self.is_amd_pstate());
        let (Some(request), true) = (self.request, is_known) else { return from_file };
        // CPPC_REQ has the maximum in bits 7:0 (AMD PPR), IA32_HWP_REQUEST in bits 15:8 (Intel SDM
        // 15.4.4).
        let level = match self.layout.machine.vendor {
            Vendor::Amd => request & 0xff,
            _ => request >> 8 & 0xff,
        };
        let asked = level as f64 * self.facts.level;
        let floor = |mhz: f64| (mhz / self.step()).floor() * self.step();
        let known = self.facts.caps.iter().map(|cap| cap.mhz).fold(own.min(self.facts.highest), f64::min);
        // The register is more than one level below all files: another limit within the kernel
        // (QoS, cooling).
        if level > 0 && asked < known - 1.5 * self.facts.level.max(25.0) {
            let value =
                format!("at most level {level} ({asked:.0} MHz), while scaling_max_freq shows {file:.0} MHz");
            let evidence = Evidence::new("request register", value);
            let mhz = if self.is_amd_pstate() { floor(asked) } else { asked };
            return Some(Cap { limiter: Limiter::MaxFreq, mhz, evidence });
        }
        // amd-pstate rounds a frequency up to a level since Linux 6.13 (freq_to_perf), and down
        // before.
        if self.is_amd_pstate() && (asked - own).abs() < self.facts.level {
            return from_file.map(|from_file| Cap { mhz: floor(asked), ..from_file });
        }
        from_file
    }

    /// Returns the step of frequencies, MHz: 100 (the bus clock) on Intel, 25 on AMD since Zen, a
    /// level of CPPC elsewhere.
    fn step(&self) -> f64 {
        match self.layout.machine.vendor {
            Vendor::Amd => 25.0,
            Vendor::Other if self.facts.level > 0.0 => self.facts.level,
            _ => 100.0,
        }
    }

    /// Returns the clock that a limit in a file allows: rounded to a performance level first if the
    /// driver requests levels (amd-pstate), then to a clock step.
    fn clocked(&self, file: f64) -> f64 {
        // The driver truncates the frequencies of levels to MHz. Without this, they would convert
        // back to the level below.
        const CUT_OFF: f64 = 0.15;
        let (level, file) = (self.facts.level, self.facts.scale.map_or(file, |scale| scale.mhz(file)));
        let requested =
            if self.is_amd_pstate() && level > 0.0 { (file / level + CUT_OFF).floor() * level } else { file };
        (requested / self.step()).floor() * self.step()
    }

    fn is_amd_pstate(&self) -> bool {
        matches!(self.layout.machine.driver.as_deref(), Some("amd-pstate" | "amd-pstate-epp"))
    }

    fn governor(&self) -> &str {
        let names = &self.layout.machine.governors;
        self.cpu.governor.and_then(|number| names.get(number)).map_or("", String::as_str)
    }

    /// Returns whether the processor itself chooses frequencies within limits.
    fn is_autonomous(&self) -> bool {
        self.facts.is_autonomous
            || matches!(self.layout.machine.driver.as_deref(), Some("intel_pstate" | "amd-pstate-epp"))
    }

    /// Returns the frequency of a governor that requests only one, whatever the load is.
    fn fixed_governor(&self) -> Option<Cap> {
        if self.is_autonomous() {
            return None;
        }
        let mhz = match self.governor() {
            "powersave" => self.cpu.min?,
            "userspace" => self.facts.set_speed?,
            _ => return None,
        };
        let evidence = Evidence::new("scaling_governor", format!("{} ({mhz:.0} MHz)", self.governor()));
        // CPPC_REQ has the desired level in bits 23:16 (AMD PPR). Levels are on the core's own
        // scale, which ends below that of the files on a core of lower rank.
        let desired = self.request.filter(|_| self.is_amd_pstate()).map_or(0, |request| request >> 16 & 0xff);
        let mhz = match self.layout.machine.vendor {
            // A governor asks for the lowest frequency at or above its target (CPUFREQ_RELATION_L).
            Vendor::Intel => (mhz / 100.0).ceil() * 100.0,
            _ if desired > 0 && self.facts.level > 0.0 => {
                (desired as f64 * self.facts.level / self.step()).floor() * self.step()
            }
            _ => self.clocked(mhz),
        };
        Some(Cap { limiter: Limiter::Governor, mhz, evidence })
    }

    /// Returns the energy preference of a CPU that is slower than CPUs with a more
    /// performance-oriented one, if no CPU with its preference is as fast as they are.
    fn preferred_less(&self, fastest: f64) -> Option<(Limiter, Evidence)> {
        let epp = self.cpu.epp.filter(|epp| !epp.is_eager() && self.follows_preference())?;
        let alike = self.package?.fastest_of(
            self.place.core_type,
            self.facts.highest_under(self.cpu.max),
            |other| other == epp || other.is_behind(epp),
        )?;
        (alike < fastest - self.step()).then(|| (Limiter::Preference, preference(epp)))
    }

    /// Adds this CPU's preference to a limit of the package, if other CPUs prefer performance more:
    /// they may be using up the limit.
    fn or_preference(&self, named: Reason) -> Reason {
        let epp = self.cpu.epp.filter(|epp| !epp.is_eager() && self.follows_preference());
        match epp.filter(|epp| self.package.is_some_and(|package| package.has_more_eager(*epp))) {
            Some(epp) => {
                let fits = [named.limiter, Limiter::Preference];
                Reason::inferred(named.limiter, named.evidence.and(preference(epp)), &fits)
            }
            None => named,
        }
    }

    /// Returns whether the processor chooses frequencies by the energy preference.
    fn follows_preference(&self) -> bool {
        self.is_autonomous() && self.governor() != "performance"
    }

    /// Returns what the processor reports about its delivered performance
    /// (drivers/cpufreq/cppc_cpufreq.c). The report stays until somebody clears it.
    fn platform(&self) -> Option<Reason> {
        let (old, now) = self.limited?;
        let words = |bits| match bits {
            1 => "less than was asked for was delivered",
            _ => "less than the minimum was delivered",
        };
        let of = |value| Proof::new(Evidence::new("perf_limited", value));
        match (now & !old, now) {
            (_, 0) => None,
            (0, _) => {
                let value = format!("{now} since before the watch: {}", words(now));
                let fits = [Limiter::Platform, Limiter::Firmware];
                Some(Reason::inferred(Limiter::Platform, of(value), &fits))
            }
            (new, _) => {
                let value = format!("{new} since the watch began: {}", words(new));
                Some(Reason::measured(Limiter::Platform, of(value)))
            }
        }
    }

    /// Returns wakeups as the reason for a loss of `lost` MHz from `top`. They are a measured
    /// reason if the counted exits can have cost that much and other reasons are ruled out: by the
    /// processor's register, or by a busy CPU that does not have this loss.
    fn waking(&self, waking: Option<&Waking>, load: Evidence, lost: f64, top: f64) -> Reason {
        let (counted, bound) = waking.map_or_else(|| ("not known".to_owned(), None), Waking::evidence);
        let mut evidence = Proof::new(Evidence::new("cpuidle usage, time, above, below", counted));
        if let Some(bound) = bound {
            evidence = evidence.and(Evidence::new("cpuidle latency", bound));
        }
        evidence = evidence.and(load);
        let exits = waking.and_then(|waking| waking.lost_at_most).unwrap_or(0.0);
        let is_enough = exits * top >= lost * self.cpu.busy.unwrap_or(0.0);
        let highest = self.facts.highest_under(self.cpu.max);
        let fastest = self.package.and_then(|package| package.fastest(self.place.core_type, highest));
        let is_alone = fastest.is_some_and(|(mhz, _)| mhz >= top - LEAST * self.facts.highest);
        let is_excluded = self.package.is_some_and(|package| {
            matches!(package.excluded().certainty, Certainty::Inferred { fits } if fits == [Limiter::Firmware])
        });
        match (is_enough, fastest) {
            (true, Some((mhz, _))) if is_alone => {
                let other =
                    Evidence::new("a busy CPU of the package", format!("{mhz:.0} MHz at the same time"));
                Reason::measured(Limiter::WakeUp, evidence.and(other))
            }
            (true, _) if is_excluded => Reason::measured(Limiter::WakeUp, evidence),
            _ => Reason::inferred(Limiter::WakeUp, evidence, &[Limiter::WakeUp, Limiter::Firmware]),
        }
    }

    /// Returns the reason for a remainder of `lost` MHz that no hardware register explains. `top`
    /// is the frequency that the CPU may have, MHz.
    fn unnamed(&self, lost: f64, top: f64) -> Reason {
        // From here on, by exclusion: no limit of the package is visible, so the request remains as
        // the reason, if it can be one.
        let busy = self.cpu.busy.unwrap_or(0.0);
        // Arm has no such register: its busy share comes from /proc/stat alone.
        let place =
            if self.layout.machine.vendor == Vendor::Other { "/proc/stat" } else { "/proc/stat, MPERF" };
        let load = Evidence::new(place, format!("busy {:.0} % of the time", busy * 100.0));
        let governor = self.governor();
        if self.is_autonomous() {
            let epp = self.cpu.epp.unwrap_or(Preference::Number(0));
            // If neighbours without such a preference are no faster, they share this CPU's limit.
            // On a CPU that sleeps in between, any preference may cost something.
            let eager = self.package.and_then(|package| {
                package.fastest_of(
                    self.place.core_type,
                    self.facts.highest_under(self.cpu.max),
                    Preference::is_eager,
                )
            });
            let is_shared = !epp.is_eager()
                && busy >= RESTS
                && eager.zip(self.cpu.mhz).is_some_and(|(eager, mhz)| eager <= mhz + self.step());
            let shared = self.package.filter(|_| is_shared).and_then(|package| package.shared_limit(false));
            if let Some(shared) = shared {
                return shared;
            }
            if self.follows_preference() && (!epp.is_eager() || !epp.is_performance() && busy < RESTS) {
                return Reason::inferred(
                    Limiter::Preference,
                    Proof::new(preference(epp)).and(load),
                    &[Limiter::Preference, Limiter::Firmware],
                );
            }
        } else if !matches!(governor, "" | "performance") && busy < 0.95 {
            let evidence = Proof::new(Evidence::new("scaling_governor", governor)).and(load);
            return Reason::inferred(Limiter::Governor, evidence, &[Limiter::Governor, Limiter::Firmware]);
        }
        let waking = self.cpu.waking(&self.layout.machine);
        // Exits that cost less than rounding does are no reason.
        let may_be_waking = waking.as_ref().and_then(|waking| waking.lost_at_most);
        let may_be_waking = may_be_waking.is_none_or(|lost| lost >= LEAST * busy);
        if busy < WAKING && may_be_waking {
            return self.waking(waking.as_ref(), load, lost, top);
        }
        let Some(package) = self.package else {
            return Reason::unseen(Evidence::new("package", "not known"));
        };
        package
            .kept_awake_without_table(self.place)
            .or_else(|| package.shared_limit(busy < RESTS && may_be_waking))
            .or_else(|| package.logged().filter(|_| busy < RESTS))
            .or_else(|| self.platform())
            .unwrap_or_else(|| match self.limited {
                // The platform delivered what the governor requested, which was less.
                Some(_) if !self.is_autonomous() && !matches!(governor, "" | "performance") => {
                    let report = Evidence::new("perf_limited", "0: what was asked for was delivered");
                    let evidence = Proof::new(Evidence::new("scaling_governor", governor)).and(report);
                    Reason::inferred(Limiter::Governor, evidence, &[Limiter::Governor])
                }
                Some(_) => Reason::unseen(Evidence::new("perf_limited", "0: the processor reports no limit")),
                None => package.excluded(),
            })
    }
}

fn preference(epp: Preference) -> Evidence {
    Evidence::new("energy_performance_preference", epp.to_string())
}
