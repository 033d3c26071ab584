//! Programs that write knobs: how to recognise them, and how to make them ignore the knobs. The
//! rows of the table list the knobs that each program writes.

/// Known facts about a program.
pub(crate) struct KnownProgram {
    pub program: Program,
    pub name: &'static str,
    /// Names of its process as the kernel stores them (15 characters), or of the script that an
    /// interpreter runs.
    pub processes: &'static [&'static str],
    /// A file that exists if the program was active in this boot.
    pub trace: Option<&'static str>,
    /// A file and a line in it that disables the program, even if `trace` exists.
    pub off: Option<(&'static str, &'static str)>,
    /// The command that stops it permanently.
    pub stop: Option<&'static str>,
    pub remedy: &'static str,
}

macro_rules! programs {
    ($($program:ident { $($field:ident: $value:expr),* $(,)? })*) => {
        /// A program that writes knobs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "their names are below")]
        pub enum Program { $($program,)* }

        pub(crate) const KNOWN: &[KnownProgram] = &[$(KnownProgram { program: Program::$program, $($field: $value),* }),*];
    };
}

programs! {
    Tuned {
        name: "tuned",
        processes: &["tuned"],
        trace: None,
        off: None,
        stop: Some("systemctl disable --now tuned.service tuned-ppd.service"),
        remedy: "tuned-adm off, or a tuned profile without the [cpu] section",
    }
    PowerProfilesDaemon {
        name: "power-profiles-daemon",
        processes: &["power-profiles-daemon"],
        trace: None,
        off: None,
        stop: Some("systemctl mask --now power-profiles-daemon.service"),
        remedy: "systemctl stop power-profiles-daemon (mask it to keep it away)",
    }
    Tlp {
        name: "TLP",
        processes: &["tlp", "tlp-pd"],
        trace: Some("/run/tlp/last_pwr"),
        off: Some(("/etc/tlp.conf", "TLP_ENABLE=0")),
        // Even with the unit disabled, udev and systemd-sleep keep calling it (85-tlp.rules,
        // system-sleep/tlp). This file is read last.
        stop: Some("sh -c 'systemctl disable --now tlp.service tlp-pd.service; echo TLP_ENABLE=0 >> /etc/tlp.conf'"),
        remedy: "comment out the CPU_* lines of /etc/tlp.conf; it writes again at every change between AC and battery",
    }
    AutoCpufreq {
        name: "auto-cpufreq",
        processes: &["auto-cpufreq"],
        trace: None,
        off: None,
        stop: Some("auto-cpufreq --remove"),
        remedy: "auto-cpufreq --remove, or systemctl stop auto-cpufreq",
    }
    Thermald {
        name: "thermald",
        processes: &["thermald"],
        trace: None,
        off: None,
        stop: Some("systemctl disable --now thermald.service"),
        remedy: "it lowers limits when the machine is hot: look at temperatures first; systemctl stop thermald",
    }
    System76 {
        name: "system76-power",
        processes: &["system76-power"],
        trace: None,
        off: None,
        stop: Some("systemctl disable --now com.system76.PowerDaemon.service"),
        remedy: "systemctl stop com.system76.PowerDaemon",
    }
    IntelLpmd {
        name: "intel-lpmd",
        processes: &["intel_lpmd"],
        trace: None,
        off: None,
        stop: Some("systemctl disable --now intel_lpmd.service"),
        remedy: "systemctl stop intel_lpmd",
    }
    Throttled {
        name: "throttled",
        processes: &["throttled", "throttled.py", "lenovo_fix.py"],
        trace: None,
        off: None,
        stop: Some("systemctl disable --now throttled.service"),
        remedy: "systemctl stop throttled",
    }
    GameMode {
        name: "gamemode",
        processes: &["gamemoded"],
        trace: None,
        off: None,
        stop: Some("systemctl --user mask --now gamemoded.service"),
        remedy: "it changes the governor while a game runs: end the game",
    }
    Asusd {
        name: "asusd",
        processes: &["asusd"],
        trace: None,
        off: None,
        stop: Some("systemctl mask --now asusd.service"),
        remedy: "it sets the platform profile at charger changes and by its hotkey: systemctl stop asusd",
    }
    SteamosManager {
        name: "steamos-manager",
        processes: &["steamos-manager"],
        trace: None,
        off: None,
        stop: Some("systemctl mask --now steamos-manager.service"),
        remedy: "systemctl stop steamos-manager",
    }
    Hhd {
        name: "Handheld Daemon",
        processes: &["hhd"],
        trace: None,
        off: None,
        stop: None,
        remedy: "switch off TDP control in its settings, or systemctl stop hhd@USER",
    }
    ScxP2dq {
        name: "scx_p2dq",
        processes: &["scx_p2dq"],
        trace: None,
        off: None,
        stop: Some("systemctl disable --now scx_loader.service scx.service"),
        remedy: "end the scheduler, which restores most of what it wrote",
    }
    ScxIdle {
        name: "scx scheduler with idle limits",
        processes: &["scx_bpfland", "scx_flash", "scx_layered"],
        trace: None,
        off: None,
        stop: Some("systemctl disable --now scx_loader.service scx.service"),
        remedy: "end the scheduler, or start it without its option for idle latency",
    }
    Cpufreqd {
        name: "cpufreqd",
        processes: &["cpufreqd"],
        trace: None,
        off: None,
        stop: Some("systemctl disable --now cpufreqd.service"),
        remedy: "systemctl stop cpufreqd",
    }
    Cpupower {
        name: "cpupower.service",
        processes: &[],
        // It acts once at boot and leaves no trace, so check whether it is enabled.
        trace: Some("/etc/systemd/system/multi-user.target.wants/cpupower.service"),
        off: None,
        stop: Some("systemctl disable cpupower.service"),
        remedy: "it sets the governor and limits at boot: systemctl disable cpupower.service",
    }
    CpufreqApplet {
        name: "xfce/GNOME cpufreq helper",
        processes: &["cpupower-gui-helper", "cpufreqctl"],
        trace: None,
        off: None,
        stop: None,
        remedy: "close the applet that uses it",
    }
}
