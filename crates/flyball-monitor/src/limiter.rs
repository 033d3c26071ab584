//! Limits that keep a CPU below its highest frequency, in the order of the waterfall.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! limiters {
    ($($(#[$attribute:meta])+ $name:ident: $id:literal, $words:literal, $knob:expr, $about:literal;)*) => {
        /// A limit that keeps a CPU below its highest frequency.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, schemars::JsonSchema, Serialize, Deserialize)]
        pub enum Limiter { $($(#[$attribute])+ #[serde(rename = $id)] $name,)* }

        impl Limiter {
            /// In the order in which they take effect.
            pub const ALL: &[Limiter] = &[$(Limiter::$name),*];

            /// Returns the name for JSON and scripts.
            pub fn id(self) -> &'static str {
                match self { $(Limiter::$name => $id),* }
            }

            /// Returns the words for a sentence, after 'lost to'.
            pub fn words(self) -> &'static str {
                match self { $(Limiter::$name => $words),* }
            }

            /// The knob that changes it, as `flyball set` takes it.
            pub fn knob(self) -> Option<&'static str> {
                match self { $(Limiter::$name => $knob),* }
            }

            /// Returns whether a setting imposes the limit. If not, the CPU did not reach a
            /// frequency that was requested.
            pub fn is_setting(self) -> bool {
                (Limiter::LatencyLimit..=Limiter::Preference).contains(&self)
            }

            /// Returns whether a register or a sensor shows the limit at the moment of reading.
            pub(crate) fn is_shown(self) -> bool {
                (Limiter::Power..=Limiter::Platform).contains(&self)
            }

            /// Returns whether it is a configured frequency, not a table that the hardware applies
            /// by the number of cores.
            pub(crate) fn is_configured(self) -> bool {
                (Limiter::TurboOff..=Limiter::Governor).contains(&self)
            }

            /// Returns how the limit is recognised, for docs/why.md.
            pub fn about(self) -> &'static str {
                match self { $(Limiter::$name => $about),* }
            }
        }
    };
}

limiters! {
    /// A limit that the firmware gave the kernel (_PPC).
    BiosLimit: "bios-limit", "a limit that the firmware gave the kernel", None,
        "`bios_limit` below the highest of `scaling_available_frequencies`";
    /// The limit for the number of cores that are awake.
    ActiveCores: "active-cores", "the turbo limit for this many active cores", None,
        "the package's turbo ratios (MSR 0x1ad, on some models with 0x1ae) and the number of cores that were awake";
    /// Idle cores may not sleep deeply for a latency limit, and count as awake.
    LatencyLimit: "latency-limit", "a latency limit, for which idle cores count as awake", Some("latency-limit"),
        "`pm_qos_resume_latency_us` of idle CPUs allows no state behind C1, so their cores count for the turbo limit";
    /// Idle cores may not sleep deeply because their deep states are off, and count as awake.
    IdleState: "idle-state", "disabled idle states, for which idle cores count as awake", Some("idle-state"),
        "idle CPUs have every state behind C1 disabled, so their cores count for the turbo limit";
    /// Turbo or boost is switched off.
    TurboOff: "turbo-off", "turbo that is off", Some("turbo"),
        "`no_turbo` or `boost`, or the firmware (MSR 0x1a0 bit 38 of the package); the limit is the base frequency";
    /// The Speed Select level; or turbo-freq or base-freq, which cost cores of low priority.
    SpeedSelect: "speed-select", "Speed Select: its level, turbo-freq or base-freq", Some("sst-level"),
        "another level has higher turbo limits; or turbo-freq is on and the core's class of service is 2 or 3; or \
         base-freq is on, the core is not one of its high-priority cores, and it is slower than they are";
    /// The highest frequency or the priority of the core's class of service.
    ClassOfService: "class-of-service", "its class of service", Some("clos-max"),
        "core-power is on; the core's class has a highest frequency, or other classes come first and their cores are faster";
    /// max_perf_pct.
    #[serde(alias = "percentage")]
    Percentage: "max-perf-pct", "max_perf_pct", Some("max-perf-pct"),
        "`intel_pstate/max_perf_pct` below 100";
    /// scaling_max_freq, or a lower limit in the processor's request register.
    MaxFreq: "max-freq", "the frequency limit", Some("max-freq"),
        "`scaling_max_freq`, and the maximum in the request register if that is lower (another limit in the kernel)";
    /// The governor asks for less.
    Governor: "governor", "the governor, which asks for less", Some("governor"),
        "`powersave` and `userspace` without autonomous selection; another governor if the CPU rests in between, or if \
         `perf_limited` is 0";
    /// The processor chooses by load and preference.
    Preference: "preference", "the energy preference", Some("epp"),
        "the processor chooses itself, the preference is not performance, and nothing else limits it or CPUs with a \
         more eager one are faster";
    /// It ran so little that leaving idle states decides its speed.
    WakeUp: "wake-up", "waking up: it ran shortly and often", Some("latency-limit"),
        "it ran less than a fifth of the time, and nothing else limits it. Counted: exits from idle states, time in them, \
         and wrong guesses of the governor (too deep, too light). Inferred from latencies: what an exit costs. Exits \
         below 0.8 % of its running time rule it out";
    /// A power limit of the package.
    Power: "power", "the package's power limit", Some("power-limit"),
        "package power at its limit, or power in the limit reasons (MSR 0x64f, Haswell 0x690), 0x19c or 0x1b1 bit 10, or \
         HSMP's source PPT";
    /// The current that the regulators may deliver.
    Current: "current", "the current limit", None,
        "current in the limit reasons, or HSMP's source TDC";
    /// The processor is as hot as it may be.
    Heat: "heat", "heat", None,
        "heat in the limit reasons, MSR 0x19c bit 0, sensors at their limit, throttle counts that rise, or HSMP's source \
         cHTC";
    /// A device outside the processor asked it to slow down.
    Prochot: "prochot", "PROCHOT: a device outside the processor slows it down", None,
        "PROCHOT in the limit reasons, or MSR 0x19c or 0x1b1 bit 2, while the processor is not hot";
    /// The processor reports that it delivered less than was asked for.
    Platform: "platform", "the platform, which does not say why", None,
        "a bit of `perf_limited` (cppc_cpufreq) that was clear when the watch began; with a question mark, one that was \
         set already";
    /// A limit that the busy cores of a package share and that no register names.
    Package: "package", "a limit of the package: power, current or firmware", None,
        "HSMP names an agent or several sources; or an inference: no register of AMD names such a limit, and most busy cores \
         of the package are below what they may have";
    /// Nothing that can be seen limits it.
    Firmware: "firmware", "firmware: nothing that can be seen limits it", None,
        "all of the above can be seen and do not hold; the evidence is what was ruled out";
    /// A limit that cannot be seen here.
    Unseen: "unseen", "a reason that cannot be seen here", None,
        "registers or power cannot be read, or only the log of the limit reasons names current";
}

impl fmt::Display for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// How strong the evidence of a reason is.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Certainty {
    /// The evidence shows the reason itself.
    Measured,
    /// All other visible reasons were ruled out. These limiters fit what remains.
    Inferred { fits: Vec<Limiter> },
    /// The evidence does not show the reason.
    NotKnown,
}

impl Certainty {
    /// Returns the words that mark a reason as not measured.
    pub fn words(&self) -> Option<String> {
        match self {
            Certainty::Measured => None,
            Certainty::Inferred { fits } => {
                let names: Vec<&str> = fits.iter().map(|limiter| limiter.id()).collect();
                Some(format!("inferred: {} fits", names.join(" or ")))
            }
            Certainty::NotKnown => Some("not known".to_owned()),
        }
    }
}

/// The evidence of a reason. Has at least one piece.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
#[serde(transparent)]
pub struct Proof(#[schemars(length(min = 1))] Vec<Evidence>);

impl Proof {
    pub(crate) fn new(first: Evidence) -> Proof {
        Proof(vec![first])
    }

    /// `None` without any evidence.
    pub(crate) fn from_evidence(evidence: Vec<Evidence>) -> Option<Proof> {
        (!evidence.is_empty()).then_some(Proof(evidence))
    }

    #[must_use]
    pub(crate) fn and(mut self, other: Evidence) -> Proof {
        self.0.push(other);
        self
    }

    pub(crate) fn extend(&mut self, other: &Proof) {
        self.0.extend(other.0.iter().filter(|one| !self.0.contains(one)).cloned().collect::<Vec<_>>());
    }

    /// The piece that a sentence prints.
    pub fn first(&self) -> &Evidence {
        &self.0[0]
    }

    pub fn pieces(&self) -> &[Evidence] {
        &self.0
    }
}

/// A reason for a lower frequency. It always has evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct Reason {
    pub limiter: Limiter,
    pub evidence: Proof,
    pub certainty: Certainty,
}

impl Reason {
    pub(crate) fn measured(limiter: Limiter, evidence: Proof) -> Reason {
        Reason { limiter, evidence, certainty: Certainty::Measured }
    }

    /// Returns a reason for a limit that cannot be seen.
    pub(crate) fn unseen(why: Evidence) -> Reason {
        Reason { limiter: Limiter::Unseen, evidence: Proof::new(why), certainty: Certainty::NotKnown }
    }

    pub(crate) fn inferred(limiter: Limiter, evidence: Proof, fits: &[Limiter]) -> Reason {
        Reason { limiter, evidence, certainty: Certainty::Inferred { fits: fits.to_vec() } }
    }
}

/// Where evidence was found, and what it shows.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize, Deserialize, derive_more::Display)]
#[schemars(rename = "ReasonEvidence")]
#[display("{}: {}", place, value)]
pub struct Evidence {
    /// A file or register.
    pub place: String,
    pub value: String,
}

impl Evidence {
    pub(crate) fn new(place: impl Into<String>, value: impl Into<String>) -> Evidence {
        Evidence { place: place.into(), value: value.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/why.md has the table of reasons. `FLYBALL_BLESS=1` rewrites it.
    #[test]
    fn the_page_has_the_reasons() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/why.md");
        let page = std::fs::read_to_string(path).unwrap();
        let head = "| reason | setting | recognised by |\n|---|---|---|\n";
        let (before, rest) = page.split_once(head).unwrap();
        let (_, after) = rest.split_once("<!-- end -->").unwrap();
        let row = |limiter: &Limiter| {
            let knob = limiter.knob().map_or_else(String::new, |knob| format!("`{knob}`"));
            format!("| {} | {knob} | {} |\n", limiter.id(), limiter.about())
        };
        let table: String = Limiter::ALL.iter().map(row).collect();
        let right = format!("{before}{head}{table}<!-- end -->{after}");
        if std::env::var_os("FLYBALL_BLESS").is_some() {
            std::fs::write(path, &right).unwrap();
        }
        assert_eq!(page, right, "run FLYBALL_BLESS=1 cargo test -p flyball-monitor --lib reasons");
    }

    #[test]
    fn every_setting_is_a_knob() {
        for limiter in Limiter::ALL {
            if let Some(knob) = limiter.knob() {
                assert!(flyball_control::Knob::named(knob).is_ok(), "{knob}");
            }
        }
    }
}
