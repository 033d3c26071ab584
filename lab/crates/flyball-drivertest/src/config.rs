//! Finds options that a kernel's configuration lacks for a test. The configuration comes from its
//! package, its build tree, or the image itself (CONFIG_IKCONFIG).

use std::{collections::BTreeMap, fs, io::Read as _};

use flyball_guest::kernel::Kernel;

use crate::mode::Mode;

/// Options without which no guest reaches the test.
const GUEST: &[&str] = &[
    "SERIAL_8250_CONSOLE",
    "BLK_DEV_INITRD",
    "DEVTMPFS",
    "TMPFS",
    "PROC_FS",
    "SYSFS",
    "BINFMT_SCRIPT",
    "ACPI",
    "SMP",
    "CPU_FREQ",
];

/// Options without which a test observes less.
const USEFUL: &[&str] = &["DEVPORT", "HOTPLUG_CPU", "PRINTK"];

/// Maximum size of a configuration in bytes.
const MAX: u64 = 8 << 20;

/// A kernel's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config(BTreeMap<String, String>);

impl Config {
    pub fn parse(text: &str) -> Config {
        let line = |line: &str| {
            let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Config(text.lines().filter_map(line).collect())
    }

    /// The configuration of a kernel, if it can be found.
    pub fn of(kernel: &Kernel) -> Option<Config> {
        if let Some(path) = &kernel.config {
            let mut text = String::new();
            let file = fs::File::open(path).ok()?;
            file.take(MAX).read_to_string(&mut text).ok()?;
            return Some(Config::parse(&text));
        }
        Config::in_image(&fs::read(&kernel.boot).ok()?)
    }

    /// kernel/configs.c: between these marks is a gzip file.
    fn in_image(image: &[u8]) -> Option<Config> {
        const MARK: &[u8] = b"IKCFG_ST";
        let at = image.windows(MARK.len()).position(|bytes| bytes == MARK)? + MARK.len();
        let mut text = String::new();
        flate2::read::GzDecoder::new(&image[at..]).take(MAX).read_to_string(&mut text).ok()?;
        Some(Config::parse(&text))
    }

    /// Returns whether an option is built in or a module.
    pub fn has(&self, option: &str) -> bool {
        self.0.get(option).is_some_and(|value| value == "y" || value == "m")
    }

    /// The options that a guest needs and that are missing.
    pub fn missing_for_guest(&self) -> Vec<&'static str> {
        // A module is of no use before init starts.
        GUEST.iter().copied().filter(|option| self.0.get(*option).is_none_or(|value| value != "y")).collect()
    }

    /// The options of a mode that are modules.
    pub fn modules_for(&self, mode: &Mode) -> Vec<&'static str> {
        let is_module = |option: &&str| self.0.get(*option).is_some_and(|value| value == "m");
        mode.options().iter().copied().filter(is_module).collect()
    }

    /// The options that a mode needs and that are missing.
    pub fn missing_for(&self, mode: &Mode) -> Vec<&'static str> {
        mode.options().iter().copied().filter(|option| !self.has(option)).collect()
    }

    /// Missing options without which a test observes less.
    pub fn missing_useful(&self) -> Vec<&'static str> {
        USEFUL.iter().copied().filter(|option| !self.has(option)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn options_are_found() {
        let config = Config::parse(
            "CONFIG_ACPI=y\n# CONFIG_SMP is not set\nCONFIG_X86_AMD_PSTATE=y\nCONFIG_DEVPORT=m\n",
        );
        assert!(config.missing_for_guest().contains(&"SMP") && !config.missing_for_guest().contains(&"ACPI"));
        let modes = Mode::all("ryzen-5750g").unwrap();
        assert!(config.missing_for(&modes[0]).is_empty());
        assert_eq!(config.missing_for(&modes[6]), ["X86_ACPI_CPUFREQ"]);
        assert_eq!(config.missing_useful(), ["HOTPLUG_CPU", "PRINTK"]);
    }

    #[test]
    fn an_image_has_its_configuration() {
        let mut image = b"kernel IKCFG_ST".to_vec();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"CONFIG_SMP=y\n").unwrap();
        image.extend(gzip.finish().unwrap());
        image.extend(b"IKCFG_ED");
        assert!(Config::in_image(&image).unwrap().has("SMP"));
        assert_eq!(Config::in_image(b"nothing"), None);
    }
}
