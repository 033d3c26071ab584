//! The kernel's spelling of contents: whether two texts are one value, and which text restores a
//! value.
//!
//! The kernel does not always print what was written: it matches a governor without case, prints a
//! preference written as a number as a word, and prints some contents that it does not accept. Each
//! row of the knob table and each auxiliary location states its [`Spelling`]; the journal stores it
//! with each entry.

use schemars::JsonSchema;

use flyball_host::{Epb, Errno, Host, cgroup::cpusets_in_use};
use serde::{Deserialize, Serialize};

use super::order::{Bound, Step};
use crate::Content;

/// How contents are spelled. The names are part of the journal's format: a new name needs a new
/// format number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spelling {
    /// Reads as it was written.
    Text,
    /// A word in any case.
    AnyCase,
    /// A decimal number.
    Number,
    /// Hexadecimal digits; leading zeros do not count.
    Hexadecimal,
    /// `1` or `0`, which many files also take as a word.
    Switch,
    /// `smt/control`: `forceoff` reads back as `off`, and `notsupported` cannot be written.
    SmtControl,
    /// An energy performance preference: a word or a number.
    Preference,
    /// An energy performance bias: a word or a number, which reads as a number.
    Bias,
    /// A percentage kept in 7 bits: it may read back one lower (uncore-frequency-tpmi.c).
    PercentOf127,
    /// A frequency limit: a request that a kernel worker combines with others later.
    FrequencyLimit,
    /// `scaling_setspeed`: reads `<unsupported>` unless the governor is `userspace`.
    Speed,
    /// `cgroup.subtree_control`: reads as a list of controllers, takes `+cpuset` and `-cpuset`.
    CpusetController,
    /// The CPUs of an interrupt, which its device may free at any time.
    Interrupt,
    /// Cannot be read: every write counts as accepted, and a separate command restores it.
    Unread,
}

/// How a location is written, read back and restored, as the journal stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Handling {
    /// The step in which it is written.
    pub step: Step,
    /// How its contents are spelled.
    pub spelling: Spelling,
    /// Which end of a range it is, if any.
    #[serde(default, skip_serializing_if = "Bound::is_none")]
    pub bound: Bound,
}

impl Spelling {
    /// Returns whether the kernel prints `wanted` as `found`.
    pub fn agrees(self, wanted: &str, found: &str) -> bool {
        let (wanted, found) = (wanted.trim(), found.trim());
        if wanted == found {
            return true;
        }
        match self {
            Spelling::Text => false,
            Spelling::AnyCase => wanted.eq_ignore_ascii_case(found),
            Spelling::Number | Spelling::FrequencyLimit | Spelling::Speed | Spelling::Interrupt => {
                matches!((wanted.parse::<u64>(), found.parse::<u64>()), (Ok(w), Ok(f)) if w == f)
            }
            Spelling::Hexadecimal => {
                matches!((hexadecimal(wanted), hexadecimal(found)), (Some(w), Some(f)) if w == f)
            }
            Spelling::Switch => switch(wanted).is_some_and(|on| Some(on) == switch(found)),
            Spelling::SmtControl => wanted == "forceoff" && found == "off",
            Spelling::Preference => preference_agrees(wanted, found),
            Spelling::Bias => Epb::named(wanted).is_some_and(|value| Some(value) == Epb::named(found)),
            Spelling::PercentOf127 => {
                // The driver keeps val * 127 / 100 and prints that * 100 / 127: both divisions
                // round down.
                matches!((wanted.parse::<u32>(), found.parse::<u32>()), (Ok(w), Ok(f)) if w == f || w == f + 1)
            }
            Spelling::CpusetController => match wanted {
                "+cpuset" => hands_down_cpusets(found),
                "-cpuset" => !hands_down_cpusets(found),
                _ => false,
            },
            Spelling::Unread => true,
        }
    }

    /// Returns the bytes that restore `content`; `None` if no write can.
    pub fn writable(self, content: &Content) -> Option<Vec<u8>> {
        let text = content.trimmed();
        match self {
            // The governor accepts no speed, so there is none to restore.
            Spelling::Speed if text.starts_with('<') => None,
            // amd-pstate prints `dynamic(profile:balance_performance)` and takes `dynamic`.
            Spelling::Preference if text.starts_with("dynamic") => Some(b"dynamic".to_vec()),
            // amd-pstate up to 6.18 fails with EINVAL if no word names the preference. Then it is
            // the firmware's, and `default` restores it.
            Spelling::Preference if *content == Content::Unreadable(Errno::INVAL.0) => {
                Some(b"default".to_vec())
            }
            // flyball only ever writes +cpuset, so only that is undone.
            Spelling::CpusetController => {
                let word: &[u8] = if hands_down_cpusets(text) { b"+cpuset" } else { b"-cpuset" };
                Some(word.to_vec())
            }
            // `notsupported` or `notimplemented`: there is no SMT to control.
            Spelling::SmtControl if text.starts_with("not") => None,
            // Skip an empty file: sysfs does not pass on a write of no bytes (sysfs_kf_write in
            // fs/sysfs/file.c).
            _ => content.to_bytes().filter(|bytes| !bytes.is_empty()),
        }
    }

    /// Returns whether a location that held `was` and holds `now` needs no write to be restored.
    pub fn is_back(self, host: &dyn Host, was: &Content, now: &Content) -> bool {
        // Compare bytes, not with `agrees`: a restored file must read as it did before.
        if was == now {
            return true;
        }
        match self {
            // flyball hands down only the cpuset controller to control groups. It stays if another
            // program uses it now: removing it would remove the CPUs of all those groups.
            Spelling::CpusetController => {
                let (had, has) = (hands_down_cpusets(was.trimmed()), hands_down_cpusets(now.trimmed()));
                had == has || (has && cpusets_in_use(host))
            }
            // A dynamic preference prints the word of the present value, which follows the charger
            // while the profile is balanced (amd_pstate_get_balanced_epp in amd-pstate.c).
            Spelling::Preference => [was, now].iter().all(|content| {
                let words = ["performance", "balance_performance"];
                words.iter().any(|word| content.trimmed() == format!("dynamic(profile:{word})"))
            }),
            _ => false,
        }
    }

    /// Returns whether a write may take some time to show, because a kernel worker applies it.
    pub fn is_request(self) -> bool {
        // An unreadable location may never show the write, so it is written again in the same way.
        matches!(self, Spelling::FrequencyLimit | Spelling::Unread)
    }

    /// Returns whether the location need not exist when it is restored: an interrupt that its
    /// device has freed. If the device requests one again, it gets a new interrupt.
    pub fn may_be_gone(self, found: &Content) -> bool {
        self == Spelling::Interrupt && *found == Content::Unreadable(Errno::NOENT.0)
    }

    /// Returns whether this errno means that the kernel moves the location by itself: per-CPU
    /// interrupts (timers) follow hotplug, managed interrupts follow their queues. Both reject
    /// writes with EIO, and in Linux 6.12 with EPERM (write_irq_affinity in kernel/irq/proc.c).
    /// Root gets EPERM there for no other reason: the file's mode is checked at open, with EACCES.
    pub fn is_kernels_own(self, errno: Errno) -> bool {
        self == Spelling::Interrupt && matches!(errno, Errno::IO | Errno::PERM)
    }
}

fn hands_down_cpusets(controllers: &str) -> bool {
    controllers.split_whitespace().any(|name| name == "cpuset")
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x").trim_start_matches("0X"), 16).ok()
}

/// Parses like kstrtobool() and friends: an idle state's `disable` takes any non-zero number.
fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "y" | "Y" | "on" | "yes" | "true" | "enabled" => Some(true),
        "0" | "n" | "N" | "off" | "no" | "false" | "disabled" => Some(false),
        number => number.parse::<u64>().ok().map(|number| number != 0),
    }
}

/// Returns whether a number and a word agree, which is so if any driver prints that number as that
/// word. The numbers differ by vendor and, on Intel, by model (intel_epp_default[] in
/// intel_pstate.c). The kernel prints a word only if the register holds exactly its own number for
/// it, so a word after an accepted number stands for that number.
fn preference_agrees(wanted: &str, found: &str) -> bool {
    const WORDS: [&str; 4] = ["performance", "balance_performance", "balance_power", "power"];
    match wanted {
        // Restores the firmware's choice, which can read as anything.
        "default" => !found.is_empty(),
        "dynamic" => found.starts_with("dynamic"),
        // Raw 0 reads `default` on models that use another number for the word. The governor
        // `performance` writes raw 0.
        "performance" => found == "0" || found == "default",
        _ => wanted.parse::<u8>().is_ok() && (WORDS.contains(&found) || found == "default"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_of_the_kernels_own_refuse_with_either_errno() {
        for errno in [Errno::IO, Errno::PERM] {
            assert!(Spelling::Interrupt.is_kernels_own(errno));
            assert!(!Spelling::Number.is_kernels_own(errno));
        }
        assert!(!Spelling::Interrupt.is_kernels_own(Errno::INVAL));
    }

    #[test]
    fn the_kernels_spelling_is_known() {
        assert!(Spelling::AnyCase.agrees("PERFORMANCE", "performance\n"));
        assert!(Spelling::Preference.agrees("128", "balance_performance"));
        assert!(Spelling::Preference.agrees("default", "performance"));
        assert!(Spelling::Switch.agrees("on", "1"));
        assert!(Spelling::Switch.agrees("2", "1"));
        assert!(Spelling::Bias.agrees("power", "15"));
        assert!(Spelling::FrequencyLimit.agrees("2000000", "2000000\n"));
        assert!(Spelling::Hexadecimal.agrees("0x1f", "0x000000000000001f"));
    }

    #[test]
    fn other_values_do_not_agree() {
        assert!(!Spelling::AnyCase.agrees("performance", "powersave"));
        assert!(!Spelling::Preference.agrees("power", "balance_power"));
        assert!(!Spelling::Preference.agrees("77", "78"));
        assert!(!Spelling::Switch.agrees("1", "0"));
        assert!(!Spelling::FrequencyLimit.agrees("2000000", "2400000"));
        assert!(!Spelling::Speed.agrees("2000000", "<unsupported>"));
        assert!(!Spelling::Preference.agrees("power", ""));
    }

    #[test]
    fn what_cannot_be_written_as_it_reads_has_its_form() {
        let text = |text: &str| Content::Text(text.to_owned());
        assert_eq!(
            Spelling::Preference.writable(&text("dynamic(profile:balance_performance)\n")).unwrap(),
            b"dynamic"
        );
        assert_eq!(Spelling::Preference.writable(&Content::Unreadable(Errno::INVAL.0)).unwrap(), b"default");
        assert_eq!(Spelling::Preference.writable(&Content::Unreadable(Errno::BUSY.0)), None);
        assert_eq!(Spelling::Speed.writable(&text("<unsupported>\n")), None);
        assert_eq!(Spelling::Switch.writable(&text("1\n")).unwrap(), b"1\n");
    }
}
