//! Removes private data from recorded text: names of hosts and users, addresses, and the values of
//! kernel parameters that are not known to matter.

use crate::Host;

/// Kernel parameters that are recorded with their value. For all others only the name is recorded:
/// values contain network addresses, passwords and names of disks (ip=, systemd.set_credential=,
/// cryptdevice=, root=). A name that ends in `.` stands for all parameters of that module.
pub(crate) const PARAMETERS: &[&str] = &[
    "acpi_cpufreq.",
    "amd_prefcore",
    "amd_pstate",
    "amd_pstate.",
    "clocksource",
    "cpufreq.",
    "cpuidle.",
    "default_hugepagesz",
    "dell_smm_hwmon.",
    "flyball.",
    "hpet",
    "hugepages",
    "hugepagesz",
    "idle",
    "init_on_alloc",
    "init_on_free",
    "intel_idle.",
    "intel_pstate",
    "intel_pstate.",
    "irqaffinity",
    "isolcpus",
    "lockdown",
    "maxcpus",
    "mce",
    "mitigations",
    "msr.",
    "nmi_watchdog",
    "nohz",
    "nohz_full",
    "nosmt",
    "nr_cpus",
    "numa_balancing",
    "pcie_aspm",
    "pcie_aspm.",
    "possible_cpus",
    "preempt",
    "processor.",
    "rcu_nocbs",
    "rcupdate.",
    "rcutree.",
    "skew_tick",
    "thermal.",
    "transparent_hugepage",
    "tsc",
    "tsx",
    "workqueue.",
];

/// Replacement for the parts removed from a command line.
const REMOVED: &str = "REMOVED";

/// Returns the relevant part of the kernel's command line. Words after `--` are for the init
/// program and are dropped.
pub fn parameters(line: &str) -> String {
    let mut kept = Vec::new();
    for word in words(line) {
        if word == "--" {
            break;
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        // The kernel treats dashes and underscores in names as equal (kernel/params.c, parameqn).
        let plain = name.replace('-', "_");
        let is_known = PARAMETERS.iter().any(|known| match known.strip_suffix('.') {
            Some(module) => plain.strip_prefix(module).is_some_and(|rest| rest.starts_with('.')),
            None => plain == *known,
        });
        kept.push(match value {
            Some(value) if is_known => format!("{name}={value}"),
            Some(_) => format!("{name}={REMOVED}"),
            None => name.to_owned(),
        });
    }
    let end = if line.ends_with('\n') { "\n" } else { "" };
    kept.join(" ") + end
}

/// Splits a command line into words; blanks between double quotes do not separate (lib/cmdline.c,
/// next_arg).
fn words(line: &str) -> Vec<&str> {
    let mut quoted = false;
    line.split(|c: char| {
        quoted ^= c == '"';
        !quoted && c.is_whitespace()
    })
    .filter(|word| !word.is_empty())
    .collect()
}

/// Returns /proc/modules without the addresses of modules, which root can see. They would defeat
/// the kernel's address randomisation (kernel/module/procfs.c, m_show).
pub(super) fn without_addresses(modules: &str) -> String {
    let hide = |word: &str| if word.starts_with("0x") { "0x0".to_owned() } else { word.to_owned() };
    let line = |line: &str| line.split(' ').map(hide).collect::<Vec<_>>().join(" ") + "\n";
    modules.lines().map(line).collect()
}

/// Replaces the host of each URL with a word.
fn without_hosts_of_urls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        let end = after.find(|c: char| c.is_whitespace() || "/'\"),;".contains(c)).unwrap_or(after.len());
        out.push_str(before);
        out.push_str(if end > 0 { "HOST" } else { "" });
        rest = &after[end..];
    }
    out + rest
}

/// Private words, and their replacements.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    names: Vec<String>,
}

impl Redactor {
    pub(super) fn new(host: &dyn Host) -> Redactor {
        let mut names = Vec::new();
        for path in ["/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname", "/etc/hostname"] {
            let name = host.read(path).unwrap_or_default();
            names.push(name.split('.').next().unwrap_or_default().to_owned());
            names.push(name);
        }
        // Shorter names occur in too many other words.
        names.retain(|name| name.len() > 2 && name != "(none)" && name != "localhost");
        // Replace the longest first: if a shorter name is part of a longer one, the rest of the
        // longer one would remain.
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        names.dedup();
        Redactor { names }
    }

    /// Returns `text` without host names, UUIDs, hardware and network addresses, and `user@host`.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut out = without_hosts_of_urls(text);
        for name in &self.names {
            out = replace_word(&out, name, "HOST");
        }
        let mut clean = String::with_capacity(out.len());
        // Split into words with their separators, so that only replaced words change.
        for piece in out.split_inclusive(|c: char| c.is_whitespace() || "=/(),;'\"".contains(c)) {
            let end = piece.trim_end_matches(|c: char| c.is_whitespace() || "=/(),;'\"".contains(c)).len();
            let (word, tail) = piece.split_at(end);
            clean.push_str(stand_in(word).unwrap_or(word));
            clean.push_str(tail);
        }
        clean
    }
}

/// Returns the replacement for a word that identifies a machine.
fn stand_in(word: &str) -> Option<&'static str> {
    let hex =
        |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let groups: Vec<&str> = word.split('-').collect();
    if groups.len() == 5 && groups.iter().zip([8, 4, 4, 4, 12]).all(|(group, length)| hex(group, length)) {
        return Some("UUID");
    }
    let pairs: Vec<&str> = word.split(':').collect();
    if pairs.len() == 6 && pairs.iter().all(|pair| hex(pair, 2)) {
        return Some("ADDRESS");
    }
    let short_hex = |group: &&str| group.len() <= 4 && group.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Fewer than eight groups without `::` are something else, such as times or PCI addresses.
    let is_v6 = pairs.len() == 8 || (pairs.len() > 2 && word.contains("::"));
    let is_v4 = word.split('.').count() == 4 && word.split('.').all(|part| part.parse::<u8>().is_ok());
    if is_v4 || (is_v6 && pairs.iter().all(short_hex)) {
        return Some("ADDRESS");
    }
    // The kernel's version line names the user and the machine that built it.
    let (user, host) = word.split_once('@')?;
    (!user.is_empty() && !host.is_empty()).then_some("USER@HOST")
}

/// Replaces `name` unless it is part of a longer word.
fn replace_word(text: &str, name: &str, stand_in: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        // The text before may be in the output already: two names may follow each other without a
        // blank.
        let before = rest[..at].chars().next_back().or(out.chars().next_back());
        let after = rest[at + name.len()..].chars().next();
        let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        out.push_str(&rest[..at]);
        out.push_str(if part(before) || part(after) { name } else { stand_in });
        rest = &rest[at + name.len()..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_identifies_a_machine_is_taken_out() {
        let redactor = Redactor { names: vec!["build7".to_owned()] };
        assert_eq!(
            redactor.clean(
                "BOOT_IMAGE=/vmlinuz root=UUID=1234abcd-12ab-34cd-56ef-1234567890ab ro ifname=eth0:aa:bb"
            ),
            "BOOT_IMAGE=/vmlinuz root=UUID=UUID ro ifname=eth0:aa:bb"
        );
        assert_eq!(redactor.clean("Linux version 6.1 (me@build7) #1"), "Linux version 6.1 (USER@HOST) #1");
        assert_eq!(redactor.clean("build7 build77 on build7.\n"), "HOST build77 on HOST.\n");
        assert_eq!(redactor.clean("mac=52:54:00:12:34:56\n"), "mac=ADDRESS\n");
        assert_eq!(
            redactor.clean("model name\t: AMD EPYC 7543 32-Core @ 2.8GHz\n"),
            "model name\t: AMD EPYC 7543 32-Core @ 2.8GHz\n"
        );
    }

    #[test]
    fn addresses_of_networks_are_taken_out() {
        let redactor = Redactor::default();
        assert_eq!(
            redactor.clean("at 192.168.1.17, fe80::1 and 2001:db8:0:0:0:0:0:1"),
            "at ADDRESS, ADDRESS and ADDRESS"
        );
        assert_eq!(redactor.clean("from http://lab.example.org/x"), "from http://HOST/x");
        let kept = "pci 0000:00:14.0 at 12:34:56, version 6.12.1";
        assert_eq!(redactor.clean(kept), kept);
    }

    #[test]
    fn parameters_that_do_not_matter_lose_their_value() {
        assert_eq!(
            parameters(
                "BOOT_IMAGE=http://lab/x root=UUID=1 ro quiet nohz_full=2-3 intel-idle.max_cstate=1 amd_pstate=passive \
                 systemd.set_credential=a:b dyndbg=\"file x.c +p\" nosmt -- --token secret\n"
            ),
            "BOOT_IMAGE=REMOVED root=REMOVED ro quiet nohz_full=2-3 intel-idle.max_cstate=1 amd_pstate=passive \
             systemd.set_credential=REMOVED dyndbg=REMOVED nosmt\n"
        );
    }

    #[test]
    fn modules_lose_their_addresses() {
        assert_eq!(
            without_addresses(
                "msr 12288 0 - Live 0xffffffffc0a00000\nkvm 1138688 1 kvm_amd, Live 0xffffffffc0b00000 (E)\n"
            ),
            "msr 12288 0 - Live 0x0\nkvm 1138688 1 kvm_amd, Live 0x0 (E)\n"
        );
    }
}
