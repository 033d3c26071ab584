//! Facts about the recorded machine: which CPUs share a core, and which CPUs the kernel isolates.
//! They allow judging a trace on another machine.
//!
//! trace.dat has them in a separate option, as JSON; trace-cmd and kernelshark skip unknown
//! options. Every field may be missing, and fields of later versions of flyball are skipped.

use serde::{Deserialize, Serialize};

use flyball_host::isolation::{Isolation, LastCpu, command_line_words};

/// The machine of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, schemars::JsonSchema, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The processor's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// The driver of the first policy (`scaling_driver`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Words about performance and isolation on the kernel's command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_line: Option<String>,
    /// /sys/devices/system/cpu/nohz_full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tickless: Option<String>,
    /// /sys/devices/system/cpu/possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub possible: Option<String>,
    /// /sys/devices/system/cpu/online when the recording began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub online: Option<String>,
    /// The CPUs of each core that has several, as the kernel lists them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<Vec<u32>>,
}

/// Maximum length of a description: 8192 CPUs take 100 KB, so anything longer is damage.
const LONGEST: usize = 4 << 20;

impl Machine {
    /// Parses the bytes of [`Machine::bytes`]. `None` for invalid bytes.
    pub fn parse(bytes: &[u8]) -> Option<Machine> {
        if bytes.len() > LONGEST {
            return None;
        }
        serde_json::from_slice(bytes.trim_ascii_end().strip_suffix(b"\0").unwrap_or(bytes)).ok()
    }

    /// Returns the bytes for trace.dat.
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Pairs of CPUs that share a core.
    pub fn siblings(&self) -> Vec<(u32, u32)> {
        let mut pairs = Vec::new();
        // Limited, because a file from elsewhere may list any number.
        for core in self.cores.iter().take(1 << 16) {
            // No processor has more than eight threads per core.
            let core = &core[..core.len().min(16)];
            for (at, first) in core.iter().enumerate() {
                pairs.extend(core[at + 1..].iter().map(|second| (*first, *second)));
            }
        }
        pairs
    }

    /// Returns the kernel's isolation of CPUs, if known.
    pub fn isolation(&self) -> Option<Isolation> {
        // Unknown differs from "no isolation", which would be used as evidence.
        if self.command_line.is_none() && self.tickless.is_none() {
            return None;
        }
        let last = LastCpu::parse(self.possible.as_deref(), self.online.as_deref())
            .unwrap_or(LastCpu { cpu: crate::record::MAX_CPUS - 1, is_exact: false });
        let isolation = Isolation::parse(self.command_line.as_deref().unwrap_or_default(), last);
        Some(match &self.tickless {
            Some(list) => isolation.with_tickless(list),
            None => isolation,
        })
    }

    /// The words of a kernel's command line that a trace may contain: nothing about disks, consoles
    /// and keys.
    pub fn telling_words(command_line: &str) -> String {
        const TELLING: [&str; 16] = [
            "nohz",
            "nohz_full",
            "isolcpus",
            "rcu_nocbs",
            "rcu_nocb_poll",
            "intel_pstate",
            "amd_pstate",
            "amd_pstate.",
            "cpufreq.",
            "intel_idle.",
            "processor.",
            "idle",
            "maxcpus",
            "nr_cpus",
            "nosmt",
            "mitigations",
        ];
        let telling = |word: &&str| {
            let name = word.split('=').next().unwrap_or_default();
            TELLING
                .iter()
                .any(|known| if known.ends_with('.') { name.starts_with(known) } else { name == *known })
        };
        command_line_words(command_line).filter(telling).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let machine = Machine {
            driver: Some("intel_pstate".into()),
            command_line: Some("nohz_full=3,7".into()),
            possible: Some("0-7".into()),
            cores: vec![vec![0, 4], vec![1, 5, 9]],
            ..Machine::default()
        };
        assert_eq!(Machine::parse(&machine.bytes()), Some(machine.clone()));
        assert_eq!(machine.siblings(), [(0, 4), (1, 5), (1, 9), (5, 9)]);
        assert_eq!(machine.isolation().unwrap().tickless.to_string(), "3,7");
        let effective = Machine { tickless: Some("3\n".into()), ..machine };
        assert_eq!(effective.isolation().unwrap().tickless.to_string(), "3");
        assert_eq!(Machine::default().isolation(), None);
        let machine = Machine { tickless: Some("2-4\n".into()), ..Machine::default() };
        assert_eq!(machine.isolation().unwrap().tickless.to_string(), "2-4");
    }

    #[test]
    fn other_bytes_are_nothing() {
        assert_eq!(Machine::parse(b"{}\0"), Some(Machine::default()));
        assert_eq!(Machine::parse(br#"{"later":[1],"driver":"x"}"#).unwrap().driver.as_deref(), Some("x"));
        for wrong in [&b""[..], b"\0", b"{", b"[1]x", b"{\"cores\":[[-1]]}"] {
            assert_eq!(Machine::parse(wrong), None);
        }
    }

    #[test]
    fn command_lines_lose_what_is_private() {
        let line = "BOOT_IMAGE=/vmlinuz root=UUID=1-2 ro quiet isolcpus=3 nohz_full=3 amd_pstate=passive \
                    processor.max_cstate=1 password=x nohz_other=1 dyndbg=\"file x nohz_full=9\"\n";
        let words = Machine::telling_words(line);
        assert_eq!(words, "isolcpus=3 nohz_full=3 amd_pstate=passive processor.max_cstate=1");
    }
}
