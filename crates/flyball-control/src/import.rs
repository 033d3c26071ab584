//! Reads the configuration of TLP, TuneD or auto-cpufreq. Settings with an equivalent knob become a
//! profile; the others are listed with the reason.

use std::{collections::BTreeMap, fmt::Write};

use crate::{Id, Wanted, save::quoted};

/// Limit on the lines of a file. The longest file that these programs ship has 700.
const MAX_LINES: usize = 10_000;

/// A program that configures CPUs from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Tlp,
    Tuned,
    AutoCpufreq,
}

/// The power supply that the settings are for. A TuneD profile does not distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supply {
    Ac,
    Battery,
}

/// A line that violates the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ImportError {
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub what: &'static str,
}

/// A setting without an equivalent, or without one on this supply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    pub line: usize,
    /// The setting's name, with its section.
    pub name: String,
    /// The reason.
    pub why: &'static str,
}

/// A value in a profile. The first one that a machine accepts counts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Equivalent {
    line: usize,
    name: String,
    values: Vec<String>,
}

/// A parsed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    program: Program,
    supply: Supply,
    settings: BTreeMap<Id, Equivalent>,
    /// Settings without an equivalent, in the file's order.
    pub unsupported: Vec<Unsupported>,
}

/// A line of a section: its number, name and value.
type Line<'a> = (usize, &'a str, &'a str);

/// How a value is converted.
#[derive(Debug, Clone, Copy)]
enum Conversion {
    /// The word stays as it is.
    Word,
    Number,
    Kilohertz,
    /// 1 means on.
    Switch,
    /// 1 means off.
    Inverted,
    /// `always` or `never`. `auto` has no equivalent.
    Turbo,
    /// TLP's words for EPP, which come from EPB.
    Preference,
    /// TuneD's words for EPB.
    Bias,
    /// A latency in microseconds, or an idle state by name.
    Latency,
    /// The latency of each CPU: 0 for no limit, n/a for no latency at all.
    ResumeLatency,
}

/// The settings of TLP, without `_ON_AC` and `_ON_BAT`.
const TLP: &[(&str, Id, Conversion)] = &[
    ("CPU_DRIVER_OPMODE", Id::DriverMode, Conversion::Word),
    ("CPU_SCALING_GOVERNOR", Id::Governor, Conversion::Word),
    ("CPU_SCALING_MIN_FREQ", Id::MinFreq, Conversion::Kilohertz),
    ("CPU_SCALING_MAX_FREQ", Id::MaxFreq, Conversion::Kilohertz),
    ("CPU_ENERGY_PERF_POLICY", Id::Epp, Conversion::Preference),
    ("CPU_MIN_PERF", Id::MinPerfPct, Conversion::Number),
    ("CPU_MAX_PERF", Id::MaxPerfPct, Conversion::Number),
    ("CPU_BOOST", Id::Turbo, Conversion::Switch),
    ("CPU_HWP_DYN_BOOST", Id::HwpDynamicBoost, Conversion::Switch),
    ("PLATFORM_PROFILE", Id::PlatformProfile, Conversion::Word),
];

/// The settings of TuneD, as `plugin.option`.
const TUNED: &[(&str, Id, Conversion)] = &[
    ("cpu.governor", Id::Governor, Conversion::Word),
    ("cpu.energy_performance_preference", Id::Epp, Conversion::Word),
    ("cpu.energy_perf_bias", Id::Epb, Conversion::Bias),
    ("cpu.min_perf_pct", Id::MinPerfPct, Conversion::Number),
    ("cpu.max_perf_pct", Id::MaxPerfPct, Conversion::Number),
    ("cpu.no_turbo", Id::Turbo, Conversion::Inverted),
    ("cpu.boost", Id::Turbo, Conversion::Switch),
    ("cpu.hwp_dynamic_boost", Id::HwpDynamicBoost, Conversion::Switch),
    ("cpu.force_latency", Id::LatencyLimit, Conversion::Latency),
    ("cpu.pm_qos_resume_latency_us", Id::LatencyLimit, Conversion::ResumeLatency),
    ("acpi.platform_profile", Id::PlatformProfile, Conversion::Word),
];

/// The settings of auto-cpufreq, in `[charger]` and `[battery]`.
const AUTO_CPUFREQ: &[(&str, Id, Conversion)] = &[
    ("governor", Id::Governor, Conversion::Word),
    ("energy_performance_preference", Id::Epp, Conversion::Word),
    ("energy_perf_bias", Id::Epb, Conversion::Bias),
    ("platform_profile", Id::PlatformProfile, Conversion::Word),
    ("scaling_min_freq", Id::MinFreq, Conversion::Kilohertz),
    ("scaling_max_freq", Id::MaxFreq, Conversion::Kilohertz),
    ("turbo", Id::Turbo, Conversion::Turbo),
];

const NO_EQUIVALENT: &str = "no equivalent";
const OTHER_SUPPLY: &str = "applies to the other power supply (see --on)";

impl Conversion {
    /// Returns the profile's value, or the reason why there is none.
    fn value(self, text: &str) -> Result<String, &'static str> {
        let number = || text.parse::<u32>().map(|number| number.to_string()).map_err(|_| "not a number");
        match self {
            Conversion::Word if is_word(text) => Ok(text.to_owned()),
            Conversion::Word => Err("not a word of the kernel"),
            Conversion::Preference => match text {
                "normal" => Ok("default".to_owned()),
                "powersave" => Ok("power".to_owned()),
                _ => Conversion::Word.value(&text.replace('-', "_")),
            },
            Conversion::Number => number(),
            Conversion::Kilohertz => Ok(format!("{} kHz", number()?)),
            Conversion::Switch | Conversion::Inverted => match (text, matches!(self, Conversion::Inverted)) {
                ("1", false) | ("0", true) => Ok("on".to_owned()),
                ("0", false) | ("1", true) => Ok("off".to_owned()),
                _ => Err("neither 0 nor 1"),
            },
            Conversion::Turbo => match text {
                "always" => Ok("on".to_owned()),
                "never" => Ok("off".to_owned()),
                "auto" => Err("auto-cpufreq switches turbo by load"),
                _ => Err("not always, auto or never"),
            },
            // TuneD calls x86_energy_perf_policy, which says powersave for power.
            Conversion::Bias => match text {
                "powersave" => Ok("power".to_owned()),
                "balance_performance" => Ok("balance-performance".to_owned()),
                "balance_power" | "balance_powersave" => Ok("balance-power".to_owned()),
                "performance" | "normal" | "power" | "balance-performance" | "balance-power" => {
                    Ok(text.to_owned())
                }
                _ => number(),
            },
            // TuneD writes this value to the kernel's file unchanged, where 0 is no limit.
            Conversion::ResumeLatency => match text {
                "0" => Ok("no-limit".to_owned()),
                "n/a" => Ok(text.to_owned()),
                _ => Conversion::Latency.value(text),
            },
            Conversion::Latency => match text.split_once(':') {
                Some(("cstate.name" | "cstate.name_no_zero", name)) if is_word(name) => Ok(name.to_owned()),
                Some(_) => Err("an idle state by number; name it instead"),
                None => Ok(format!("{}us", number()?)),
            },
        }
    }
}

/// Returns whether `text` could be a word of a sysfs file.
fn is_word(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=32).contains(&text.len()) && text.chars().all(is_part)
}

impl Import {
    /// Reads a file of `program`.
    ///
    /// # Errors
    /// The first line that violates the program's format.
    pub fn parse(program: Program, supply: Supply, text: &str) -> Result<Import, ImportError> {
        let mut import = Import { program, supply, settings: BTreeMap::new(), unsupported: Vec::new() };
        if text.lines().nth(MAX_LINES).is_some() {
            return Err(ImportError { line: MAX_LINES, what: "more than 10000 lines" });
        }
        match program {
            Program::Tlp => import.tlp(text)?,
            Program::Tuned | Program::AutoCpufreq => import.ini(text)?,
        }
        import.unsupported.sort_by_key(|one| one.line);
        Ok(import)
    }

    /// Parses a file of shell assignments: NAME=VALUE or NAME="VALUE".
    fn tlp(&mut self, text: &str) -> Result<(), ImportError> {
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let bad = ImportError { line, what: "not NAME=VALUE" };
            let (name, value) = text.split_once('=').ok_or(bad.clone())?;
            let plain = name.strip_suffix('+').unwrap_or(name);
            if plain.is_empty()
                || !plain.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
            {
                return Err(bad);
            }
            let value = shell_word(value).ok_or(bad)?;
            let (base, on) = match plain.rsplit_once("_ON_") {
                Some((base, "AC")) => (base, Some(Supply::Ac)),
                Some((base, "BAT")) => (base, Some(Supply::Battery)),
                Some((_, "SAV")) => {
                    self.skip(line, plain, "for TLP's profile power-saver");
                    continue;
                }
                _ => (plain, None),
            };
            match TLP.iter().find(|(known, ..)| *known == base && plain == name) {
                // TLP ignores a setting without a value, and a setting that an earlier line of its
                // configuration made.
                Some(&(_, id, map))
                    if value.is_empty() || (value == "0" && matches!(map, Conversion::Kilohertz)) =>
                {
                    if on.is_none_or(|on| on == self.supply) {
                        self.settings.remove(&id);
                    }
                }
                None if value.is_empty() => {}
                Some(_) if on.is_some_and(|on| on != self.supply) => self.skip(line, plain, OTHER_SUPPLY),
                // The profile takes the first value that the machine accepts, TLP the last one in
                // the line.
                Some(&(_, id, map)) => {
                    let values = value.split_whitespace().rev().collect();
                    self.set(line, plain, (id, map), values);
                }
                None => self.skip(line, plain, NO_EQUIVALENT),
            }
        }
        Ok(())
    }

    /// Parses a file with sections.
    fn ini(&mut self, text: &str) -> Result<(), ImportError> {
        let mut sections: Vec<(&str, Vec<Line<'_>>)> = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = text.strip_prefix('[') {
                let name = name.strip_suffix(']').ok_or(ImportError { line, what: "a section without ]" })?;
                sections.push((name.trim(), Vec::new()));
                continue;
            }
            let (name, value) = text.split_once('=').ok_or(ImportError { line, what: "not NAME = VALUE" })?;
            let Some((_, options)) = sections.last_mut() else {
                return Err(ImportError { line, what: "a setting before the first section" });
            };
            // In TuneD's files, # after a blank starts a comment.
            let comment = if self.program == Program::Tuned { value.find(" #") } else { None };
            options.push((line, name.trim(), value[..comment.unwrap_or(value.len())].trim()));
        }
        for (section, options) in &sections {
            match self.program {
                Program::AutoCpufreq => self.charger_or_battery(section, options),
                _ => self.plugin(section, options),
            }
        }
        Ok(())
    }

    fn charger_or_battery(&mut self, section: &str, options: &[Line<'_>]) {
        let of = match section {
            "charger" => Some(Supply::Ac),
            "battery" => Some(Supply::Battery),
            _ => None,
        };
        for &(line, name, value) in options {
            let whole = format!("[{section}] {name}");
            match (of, AUTO_CPUFREQ.iter().find(|(known, ..)| *known == name)) {
                (Some(of), Some(_)) if of != self.supply => self.skip(line, &whole, OTHER_SUPPLY),
                (Some(_), Some(&(_, id, map))) => self.set(line, &whole, (id, map), vec![value]),
                _ => self.skip(line, &whole, NO_EQUIVALENT),
            }
        }
    }

    /// Converts a section of TuneD: an instance of the plugin `type`, or of the plugin that it is
    /// named after.
    fn plugin(&mut self, section: &str, options: &[Line<'_>]) {
        let value_of = |wanted: &str| options.iter().find(|(_, name, _)| *name == wanted);
        let plugin = value_of("type").map_or(section, |(.., value)| value);
        let is_on = |value: &str| ["1", "true", "yes", "on"].iter().any(|on| value.eq_ignore_ascii_case(on));
        let has = |names: [&str; 2]| names.into_iter().any(|name| value_of(name).is_some());
        let skipped = match () {
            () if value_of("enabled").is_some_and(|(.., value)| !is_on(value)) => {
                Some("its section is switched off (enabled)")
            }
            () if has(["cpuinfo_regex", "uname_regex"]) => Some("for some machines only"),
            () if has(["devices", "devices_udev_regex"]) => Some("for some devices only"),
            () => None,
        };
        for &(line, name, value) in options {
            let whole = format!("[{section}] {name}");
            let found = TUNED.iter().find(|(known, ..)| known.split_once('.') == Some((plugin, name)));
            match found {
                None if (section, name) == ("main", "include") => {
                    self.skip(line, &whole, "import the included profile too");
                }
                None if matches!((section, name), ("main", "summary") | (_, "type" | "enabled")) => {}
                None => self.skip(line, &whole, NO_EQUIVALENT),
                Some(_) if skipped.is_some() => self.skip(line, &whole, skipped.unwrap_or_default()),
                Some(_) if value.contains("${") => self.skip(line, &whole, "the value has a variable"),
                Some(&(_, id, map)) => {
                    self.set(line, &whole, (id, map), value.split('|').map(str::trim).collect());
                }
            }
        }
    }

    fn skip(&mut self, line: usize, name: &str, why: &'static str) {
        self.unsupported.push(Unsupported { line, name: name.to_owned(), why });
    }

    /// Adds a setting. It replaces an earlier setting of the same knob.
    fn set(&mut self, line: usize, name: &str, (id, map): (Id, Conversion), values: Vec<&str>) {
        let mut known = Vec::new();
        let mut why = "no value";
        for value in values {
            // Reading the profile later would refuse the same values, for example 200 %.
            let accepted = map.value(value).and_then(|value| match Wanted::parse(id.knob(), &value) {
                Ok(_) => Ok(value),
                Err(_) => Err("not a value that the setting takes"),
            });
            match accepted {
                Ok(value) if !known.contains(&value) => known.push(value),
                Ok(_) => {}
                Err(reason) => why = reason,
            }
        }
        if known.is_empty() {
            self.skip(line, name, why);
            return;
        }
        let setting = Equivalent { line, name: name.to_owned(), values: known };
        if let Some(old) = self.settings.insert(id, setting) {
            self.unsupported.push(Unsupported {
                line: old.line,
                name: old.name,
                why: "a later line sets the same knob",
            });
        }
    }

    /// Returns whether no setting has an equivalent.
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty()
    }

    /// Returns the profile. All settings are optional, because these programs skip settings that a
    /// machine lacks.
    pub fn profile(&self) -> String {
        let of = match (self.program, self.supply) {
            (Program::Tlp, Supply::Ac) => "TLP on AC power",
            (Program::Tlp, Supply::Battery) => "TLP on battery",
            (Program::AutoCpufreq, Supply::Ac) => "auto-cpufreq on AC power",
            (Program::AutoCpufreq, Supply::Battery) => "auto-cpufreq on battery",
            (Program::Tuned, _) => "a TuneD profile",
        };
        let mut text = format!("description = \"settings of {of}\"\n\n[optional]\n");
        for (id, setting) in &self.settings {
            let values: Vec<String> = setting.values.iter().map(|value| quoted(value)).collect();
            let value = match values.as_slice() {
                [one] => one.clone(),
                several => format!("[{}]", several.join(", ")),
            };
            let _ = writeln!(text, "{} = {value} # line {}", id.knob().name, setting.line);
        }
        text
    }
}

/// Returns the value of one shell word, plain or in quotes. A comment may follow.
fn shell_word(text: &str) -> Option<&str> {
    let rest = |rest: &str| {
        let rest = rest.trim_start();
        rest.is_empty() || rest.starts_with('#')
    };
    for quote in ['"', '\''] {
        if let Some(inside) = text.strip_prefix(quote) {
            let (value, behind) = inside.split_once(quote)?;
            return (rest(behind) && !value.contains(['$', '`', '\\'])).then_some(value.trim());
        }
    }
    let (value, behind) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    let is_plain = !value.contains(['"', '\'', '$', '`', '\\', ';', '&', '|', '(', ')', '<', '>']);
    (is_plain && rest(behind)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn import(program: Program, supply: Supply, text: &str) -> (String, Vec<String>) {
        let import = Import::parse(program, supply, text).unwrap();
        let profile = import.profile();
        Profile::parse(profile.as_bytes(), "import").unwrap();
        let left = import.unsupported.iter().map(|left| format!("{} {}: {}", left.line, left.name, left.why));
        (profile.lines().skip(3).map(str::to_owned).collect::<Vec<_>>().join("\n"), left.collect())
    }

    #[test]
    fn tlp_has_settings_for_each_supply() {
        let text = "# TLP\nTLP_ENABLE=1\nCPU_SCALING_GOVERNOR_ON_AC=performance\nCPU_SCALING_GOVERNOR_ON_BAT=\"powersave\" # b\n\
                    CPU_BOOST_ON_AC=1\nCPU_SCALING_MAX_FREQ_ON_AC=2600000\nCPU_MIN_PERF_ON_AC=\nCPU_MAX_PERF_ON_AC=many\n\
                    PLATFORM_PROFILE_ON_AC=\"balanced performance\"\nCPU_BOOST_ON_SAV=0\n";
        let (ac, left) = import(Program::Tlp, Supply::Ac, text);
        assert_eq!(
            ac,
            "turbo = \"on\" # line 5\nplatform-profile = [\"performance\", \"balanced\"] # line 9\n\
             governor = \"performance\" # line 3\nmax-freq = \"2600000 kHz\" # line 6"
        );
        assert_eq!(
            left,
            [
                "2 TLP_ENABLE: no equivalent",
                "4 CPU_SCALING_GOVERNOR_ON_BAT: applies to the other power supply (see --on)",
                "8 CPU_MAX_PERF_ON_AC: not a number",
                "10 CPU_BOOST_ON_SAV: for TLP's profile power-saver",
            ]
        );
        assert_eq!(import(Program::Tlp, Supply::Battery, text).0, "governor = \"powersave\" # line 4");
    }

    #[test]
    fn tlp_leaves_alone_what_has_no_value() {
        let text = "CPU_BOOST_ON_AC=1\nCPU_ENERGY_PERF_POLICY_ON_AC=balance-power\nCPU_SCALING_MAX_FREQ_ON_AC=0\n\
                    CPU_BOOST_ON_AC=\"\"\n";
        let profile = import(Program::Tlp, Supply::Ac, text).0;
        assert_eq!(profile, "epp = \"balance_power\" # line 2");
    }

    #[test]
    fn tuned_has_alternatives_and_plugins() {
        let text = "[main]\nsummary=x\ninclude=balanced\n[cpu]\ngovernor=schedutil|ondemand\nenergy_perf_bias=powersave|power\n\
                    force_latency=cstate.id_no_zero:1|3\nmin_perf_pct=100\nno_turbo=0 # on\n[fast]\ntype=cpu\ndevices=cpu0\ngovernor=performance\n\
                    [sysctl]\nvm.swappiness=10\n[acpi]\nplatform_profile=low-power|quiet\n\
                    [off]\ntype=cpu\nenabled=false\ngovernor=powersave\n";
        let (profile, left) = import(Program::Tuned, Supply::Ac, text);
        for line in [
            "governor = [\"schedutil\", \"ondemand\"] # line 5",
            "epb = \"power\" # line 6",
            "latency-limit = \"3us\" # line 7",
            "min-perf-pct = \"100\" # line 8",
            "turbo = \"on\" # line 9",
            "platform-profile = [\"low-power\", \"quiet\"] # line 17",
        ] {
            assert!(profile.lines().any(|found| found == line), "{line}: {profile}");
        }
        assert_eq!(
            left,
            [
                "3 [main] include: import the included profile too",
                "12 [fast] devices: no equivalent",
                "13 [fast] governor: for some devices only",
                "15 [sysctl] vm.swappiness: no equivalent",
                "21 [off] governor: its section is switched off (enabled)",
            ]
        );
    }

    #[test]
    fn values_that_no_setting_takes_are_left() {
        let refused = "not a value that the setting takes";
        for (program, text) in [
            (Program::Tlp, "CPU_MAX_PERF_ON_AC=200"),
            (Program::Tuned, "[cpu]\nforce_latency=cstate.name:C4294967296"),
            (Program::Tuned, "[cpu]\nforce_latency=cstate.name:turbo"),
            (Program::Tuned, "[cpu]\nforce_latency=4294967295"),
            (Program::Tuned, "[cpu]\nenergy_perf_bias=16"),
        ] {
            let (profile, left) = import(program, Supply::Ac, text);
            assert_eq!(profile, "", "{text}");
            assert!(left.len() == 1 && left[0].ends_with(refused), "{text}: {left:?}");
        }
    }

    #[test]
    fn the_latency_of_each_cpu_is_unlimited_at_zero() {
        for (value, expected) in
            [("0", "no-limit"), ("n/a", "n/a"), ("70", "70us"), ("cstate.name:C1E", "C1E")]
        {
            let profile =
                import(Program::Tuned, Supply::Ac, &format!("[cpu]\npm_qos_resume_latency_us={value}")).0;
            assert_eq!(profile, format!("latency-limit = \"{expected}\" # line 2"));
        }
    }

    #[test]
    fn auto_cpufreq_has_two_sections() {
        let text = "[charger]\ngovernor = performance\nturbo = auto\nscaling_max_freq = 3000000\n[battery]\nturbo = never\n\
                    enable_thresholds = true\n";
        let (charger, left) = import(Program::AutoCpufreq, Supply::Ac, text);
        assert!(charger.contains("governor = \"performance\"") && charger.contains("\"3000000 kHz\""));
        assert_eq!(
            left,
            [
                "3 [charger] turbo: auto-cpufreq switches turbo by load",
                "6 [battery] turbo: applies to the other power supply (see --on)",
                "7 [battery] enable_thresholds: no equivalent",
            ]
        );
    }

    #[test]
    fn lines_of_another_format_are_refused_with_their_number() {
        for (program, text, line) in [
            (Program::Tlp, "A=1\nif true; then\n", 2),
            (Program::Tlp, "A=$(reboot)\n", 1),
            (Program::Tlp, "A=\"1\n", 1),
            (Program::Tuned, "governor=x\n", 1),
            (Program::Tuned, "[cpu\n", 1),
            (Program::AutoCpufreq, "[charger]\n\ngovernor\n", 3),
        ] {
            assert_eq!(Import::parse(program, Supply::Ac, text).unwrap_err().line, line, "{text}");
        }
    }
}
