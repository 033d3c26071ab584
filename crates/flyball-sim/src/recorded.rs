//! Derives a machine's description from its recorded files. Identity, topology, frequencies,
//! performance levels, idle states and power limits come from the recording; voltages, power and
//! heat come from the most similar built-in machine.

use std::collections::{BTreeMap, BTreeSet};

use flyball_silicon::{
    MachineSpec, SpecError, msr,
    spec::{CoreKind, CoreSpec, InterfaceSpec, Numbering, PerfScale, SstSpec, TurboSpec, UncoreSpec, Vendor},
};

use crate::text::read_cpu_list;

/// The recording of a machine. Paths have no leading slash.
pub trait Recording {
    fn name(&self) -> String;

    /// The content of a file, if it was recorded.
    fn file(&self, path: &str) -> Option<Vec<u8>>;

    /// The names in a folder; empty if it was not recorded.
    fn folder(&self, path: &str) -> Vec<String>;

    /// A register of a CPU, if it was recorded.
    fn register(&self, cpu: u32, register: u32) -> Option<u64>;
}

impl dyn Recording + '_ {
    fn text(&self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.file(path)?).trim().to_owned())
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.split_whitespace().next()?.parse().ok()
    }
}

/// One CPU of /proc/cpuinfo.
#[derive(Debug, Clone, Default)]
struct Processor(BTreeMap<String, String>);

impl Processor {
    fn number(&self, key: &str) -> Option<u32> {
        self.0.get(key)?.parse().ok()
    }

    fn text(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }
}

fn processors(text: &str) -> Vec<Processor> {
    let mut all: Vec<Processor> = Vec::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        if key == "processor" {
            all.push(Processor::default());
        }
        if let Some(last) = all.last_mut() {
            last.0.insert(key.to_owned(), value.to_owned());
        }
    }
    all
}

/// Stretches a template's voltage points to another range of frequencies.
fn stretch(volts: &[(u32, u32)], min: u32, max: u32) -> Vec<(u32, u32)> {
    let (Some(first), Some(last)) = (volts.first(), volts.last()) else { return Vec::new() };
    let span = u64::from(last.0 - first.0).max(1);
    let mut points: Vec<(u32, u32)> = volts
        .iter()
        .map(|&(mhz, mv)| (min + (u64::from(mhz - first.0) * u64::from(max - min) / span) as u32, mv))
        .collect();
    points.dedup_by_key(|point| point.0);
    points
}

/// Why a recorded machine cannot be described.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    #[error("{0}: no proc/cpuinfo: this is not a recorded machine")]
    NoCpuinfo(String),
    #[error("{0}: proc/cpuinfo lists no processor")]
    NoProcessor(String),
    #[error("{name}: processors of '{vendor}' are not modelled")]
    Vendor { name: String, vendor: String },
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// The input of the functions that fill in a description.
struct Source<'a> {
    files: &'a dyn Recording,
    cpus: Vec<Processor>,
    first: Processor,
    vendor: Vendor,
    /// CPUs on efficiency cores.
    efficient: BTreeSet<u32>,
}

/// Describes a recorded machine.
///
/// # Errors
/// Fails if a file is missing that the description needs: at least /proc/cpuinfo.
pub fn describe(files: &dyn Recording) -> Result<MachineSpec, DescribeError> {
    let text = files.text("proc/cpuinfo").ok_or_else(|| DescribeError::NoCpuinfo(files.name()))?;
    let cpus = processors(&text);
    let first = cpus.first().ok_or_else(|| DescribeError::NoProcessor(files.name()))?.clone();
    let vendor = match first.text("vendor_id") {
        "GenuineIntel" => Vendor::Intel,
        "AuthenticAMD" | "HygonGenuine" => Vendor::Amd,
        other => {
            return Err(DescribeError::Vendor { name: files.name(), vendor: other.to_owned() });
        }
    };
    let efficient: BTreeSet<u32> = files
        .text("sys/devices/cpu_atom/cpus")
        .and_then(|text| read_cpu_list(&text))
        .unwrap_or_default()
        .into_iter()
        .collect();
    let source = Source { files, cpus, first, vendor, efficient };

    let brand = source.first.text("model name").to_owned();
    // The firmware tables that tell the kind of machine (FADT, preferred profile) are not recorded.
    let server =
        ["Xeon", "EPYC", "Opteron", "Atom(R) C", "Atom(R) P"].iter().any(|word| brand.contains(word));
    let template = match (vendor, server, source.efficient.is_empty()) {
        (Vendor::Intel, _, false) => "hybrid-laptop",
        (Vendor::Intel, true, _) => "gold-6138",
        (Vendor::Intel, false, _) => "i7-3520m",
        (Vendor::Amd, true, _) => "epyc-512",
        // Arm machines are not described from recordings.
        (Vendor::Amd, false, _) | (Vendor::Arm, ..) => "ryzen-5750g",
    };
    let mut spec = MachineSpec::builtin(template)?;
    let template_cores = spec.cores_per_package().max(1) as f64;
    let name = files.name();
    spec.title = format!("{brand}, as recorded in {name}");
    spec.about = format!(
        "Made from the recorded machine {name}: identity, topology, frequencies, levels, idle states and limits as recorded; \
         voltages, power and heat estimated after {template}."
    );
    spec.name = name;
    spec.sst = None;
    spec.register.clear();
    spec.leaf.clear();
    source.identity(&mut spec, server);
    source.topology_and_cores(&mut spec);
    source.firmware(&mut spec);
    source.power(&mut spec, template_cores);
    speed_select(files, &mut spec);
    spec.check()?;
    Ok(spec)
}

impl Source<'_> {
    fn identity(&self, spec: &mut MachineSpec, server: bool) {
        let first = &self.first;
        let identity = &mut spec.identity;
        identity.vendor = self.vendor;
        identity.family = first.number("cpu family").unwrap_or(6);
        identity.model = first.number("model").unwrap_or(0);
        identity.stepping = first.number("stepping").unwrap_or(0);
        identity.microcode = u32::from_str_radix(first.text("microcode").trim_start_matches("0x"), 16)
            .unwrap_or(identity.microcode);
        // CPUID leaves 80000002h to 80000004h hold 48 bytes including the final zero.
        identity.brand = first.text("model name").chars().take(47).collect();
        identity.server = server;
        first.text("flags").clone_into(&mut identity.flags);
        identity.cache_kb = first
            .text("cache size")
            .split(' ')
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(identity.cache_kb);
    }

    /// Takes the first package's cores for all packages: performance cores, then efficiency cores.
    fn topology_and_cores(&self, spec: &mut MachineSpec) {
        let package_of = |cpu: &Processor| cpu.number("physical id").unwrap_or(0);
        let packages: BTreeSet<u32> = self.cpus.iter().map(package_of).collect();
        let home = package_of(&self.first);
        let mut cores: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for cpu in self.cpus.iter().filter(|cpu| package_of(cpu) == home) {
            let number = cpu.number("processor").unwrap_or(0);
            cores.entry(cpu.number("core id").unwrap_or(number)).or_default().push(number);
        }
        // Two numberings exist: a core's threads are adjacent, or all second threads follow all
        // first threads.
        let adjacent = cores.values().any(|cpus| cpus.windows(2).any(|pair| pair[1] == pair[0] + 1));
        let smt = cores.values().any(|cpus| cpus.len() > 1);
        let topology = &mut spec.topology;
        topology.packages = packages.len() as u32;
        topology.dies = 1;
        topology.dies_are_power_domains = false;
        topology.numbering =
            if smt && !adjacent { Numbering::SiblingsLast } else { Numbering::SiblingsAdjacent };
        topology.cores_per_cache = topology.cores_per_cache.min(cores.len() as u32);
        let is_efficient = |cpus: &[u32]| cpus.iter().any(|cpu| self.efficient.contains(cpu));
        let mut order: Vec<(bool, u32)> = cores.iter().map(|(id, cpus)| (is_efficient(cpus), *id)).collect();
        order.sort_unstable();
        topology.core_ids = order.iter().map(|(_, id)| *id).collect();

        let cpuidle = idle_states(self.files, &spec.core[0]);
        let mut kinds: Vec<CoreSpec> = Vec::new();
        // Performance cores first, in the order of firmware's numbers and of the description.
        for small in [false, true] {
            let of: Vec<&Vec<u32>> =
                order.iter().filter(|(kind, _)| *kind == small).filter_map(|(_, id)| cores.get(id)).collect();
            let Some(cpu) = of.first().and_then(|cpus| cpus.first()).copied() else { continue };
            let wanted = if small { CoreKind::Efficiency } else { CoreKind::Performance };
            let mut core = spec.core.iter().find(|core| core.kind == wanted).unwrap_or(&spec.core[0]).clone();
            core.kind = wanted;
            core.count = of.len() as u32;
            core.threads = of.iter().map(|cpus| cpus.len() as u32).max().unwrap_or(1).min(2);
            // The template's preferred cores are not this machine's.
            core.better.clear();
            core.ranking.clear();
            levels(self.files, cpu, self.vendor == Vendor::Intel, &mut core);
            if let Some(states) = &cpuidle {
                core.idle.clone_from(states);
            }
            kinds.push(core);
        }
        spec.core = kinds;
        let base = spec.core[0].base_mhz;
        // The kernel computes bogomips as twice the TSC's frequency in MHz (init/calibrate.c, lpj
        // from tsc_khz).
        let bogomips: f64 = self.first.text("bogomips").parse().unwrap_or(0.0);
        spec.clock.tsc_khz = if bogomips > 500.0 { (bogomips * 500.0) as u32 } else { base * 1000 };
        spec.turbo = turbo(self.files);
    }

    /// Sets how performance is requested, and the frequencies and levels that firmware offers.
    fn firmware(&self, spec: &mut MachineSpec) {
        let files = self.files;
        let intel = self.vendor == Vendor::Intel;
        let cppc = |file: &str| files.number(&format!("sys/devices/system/cpu/cpu0/acpi_cppc/{file}"));
        let firmware = &mut spec.firmware;
        let flags: BTreeSet<&str> = self.first.text("flags").split(' ').collect();
        firmware.interface = match (intel, flags.contains("hwp"), cppc("nominal_perf").is_some()) {
            (true, true, _) => InterfaceSpec::Hwp,
            (true, false, _) => InterfaceSpec::PerfCtl,
            (false, _, true) if flags.contains("cppc") => InterfaceSpec::CppcMsr,
            (false, _, true) => InterfaceSpec::CppcShared,
            (false, _, false) => InterfaceSpec::AmdPstate,
        };
        firmware.has_epp = flags.contains("hwp_epp");
        firmware.turbo = if intel { flags.contains("ida") || firmware.turbo } else { flags.contains("cpb") };
        firmware.cpc_nominal_mhz = cppc("nominal_freq").unwrap_or(0) as u32;
        firmware.cpc_lowest_mhz = cppc("lowest_freq").unwrap_or(0) as u32;
        if let Some(request) = files.register(0, msr::HWP_REQUEST) {
            firmware.epp = (request >> 24) as u8;
        }
        // Only drivers with a frequency table list frequencies; for others, take three from their
        // range.
        let listed = files
            .text("sys/devices/system/cpu/cpu0/cpufreq/scaling_available_frequencies")
            .unwrap_or_default();
        let khz = listed.split_whitespace().filter_map(|khz| khz.parse::<u32>().ok());
        let mut pstates: Vec<u32> = khz.map(|khz| khz / 1000).collect();
        pstates.sort_unstable_by(|a, b| b.cmp(a));
        pstates.dedup();
        pstates.truncate(16);
        if pstates.is_empty() {
            let core = &spec.core[0];
            pstates = vec![core.base_mhz, u32::midpoint(core.base_mhz, core.min_mhz), core.min_mhz];
            pstates.dedup();
        }
        firmware.pstates_mhz = pstates;
        let uncore = files.register(0, msr::UNCORE_RATIO_LIMIT);
        spec.uncore = uncore.filter(|value| intel && value & 0x7f > 0).map(|value| UncoreSpec {
            min_mhz: ((value >> 8 & 0x7f) * 100) as u32,
            max_mhz: ((value & 0x7f) * 100) as u32,
            clusters: 0,
            io_max_mhz: None,
        });
    }

    /// Scales the template's power and heat by the number of cores; limits are as recorded.
    fn power(&self, spec: &mut MachineSpec, template_cores: f64) {
        let share = spec.cores_per_package() as f64 / template_cores;
        let power = &mut spec.power;
        for watts in [
            &mut power.tdp_w,
            &mut power.pl1_w,
            &mut power.pl2_w,
            &mut power.uncore_busy_w,
            &mut power.uncore_idle_w,
            &mut power.package_sleep_w,
        ] {
            *watts *= share;
        }
        spec.thermal.sink_k_per_w /= share.max(0.05);
        spec.thermal.die_k_per_w /= share.max(0.05);
        spec.thermal.die_j_per_k *= share.max(0.05);
        let units = self.files.register(0, msr::RAPL_POWER_UNIT);
        let limit = self.files.register(0, msr::PKG_POWER_LIMIT);
        if let (Some(units), Some(limit)) = (units, limit) {
            let unit = f64::from(1u32 << (units & 0xf));
            let (long, short) = ((limit & 0x7fff) as f64 / unit, (limit >> 32 & 0x7fff) as f64 / unit);
            if long > 1.0 {
                (power.tdp_w, power.pl1_w) = (long, long);
            }
            if short > 1.0 {
                power.pl2_w = short;
            }
        }
    }
}

/// Parses the instances of a feature's registers from debugfs: lines of 32-bit words, with a
/// heading before each instance.
fn instances(text: &str) -> Vec<Vec<u64>> {
    let mut found: Vec<Vec<u32>> = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("TPMI Instance") {
            found.push(Vec::new());
        } else if let (Some(last), Some((_, words))) = (found.last_mut(), line.split_once(':')) {
            last.extend(words.split_whitespace().filter_map(|word| u32::from_str_radix(word, 16).ok()));
        }
    }
    let pairs = |words: Vec<u32>| {
        words.chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect()
    };
    found.into_iter().map(pairs).collect()
}

/// Adds Speed Select and uncore clusters if the machine's TPMI registers were recorded. There is
/// one device per package.
fn speed_select(files: &dyn Recording, spec: &mut MachineSpec) {
    let mut devices = files.folder("sys/kernel/debug");
    devices.retain(|name| name.starts_with("tpmi-"));
    devices.sort();
    let dump = |device: &str, id: &str| {
        files.text(&format!("sys/kernel/debug/{device}/tpmi-id-{id}/mem_dump")).map(|text| instances(&text))
    };
    let dumps: Option<Vec<Vec<Vec<u64>>>> = devices.iter().map(|device| dump(device, "05")).collect();
    let Some(dumps) = dumps.filter(|dumps| dumps.len() == spec.topology.packages as usize) else { return };
    let each = dumps.first().map_or(0, Vec::len);
    if each == 0 || each > 16 || dumps.iter().any(|dump| dump.len() != each) {
        return;
    }
    // Cores of each power domain, by the power unit's CPU numbers; a module of small cores counts
    // as one.
    let total = spec.cores_per_package() as u32;
    // Sierra Forest, Grand Ridge and Clearwater Forest (asm/intel-family.h): the power unit counts
    // modules of four.
    let atoms = matches!(spec.identity.model, 0xaf | 0xb6 | 0xdd);
    let module = if atoms { 4 } else { 1 };
    let mut domains: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for cpu in 0..spec.cpus() as u32 {
        // MSR_PM_LOGICAL_ID: power domain in 15:11, module in 10:3 (tpmi_power_domains.c).
        if let Some(raw) = files.register(cpu, 0x54) {
            domains.entry(raw >> 11 & 0x1f).or_default().insert(raw >> 3 & 0xff);
        }
    }
    let mut sizes: Vec<u32> = domains.values().map(|cores| cores.len() as u32 * module).collect();
    if domains.keys().copied().ne(0..sizes.len() as u64) || sizes.iter().sum::<u32>() != total {
        sizes = vec![total];
    }
    // Masks of cores have 64 bits.
    if sizes.len() > each || sizes.iter().any(|&cores| cores / module > 64) {
        return;
    }
    // Instances beyond the domains with cores belong to I/O dies; `of_tpmi` needs them too.
    let blocks: Vec<Vec<u64>> = dumps.into_iter().flatten().collect();
    let Some(mut sst) = SstSpec::from_tpmi(&blocks, each, sizes.len()) else { return };
    sst.cores_per_module = module;
    spec.topology.dies_are_power_domains = true;
    spec.topology.power_domains = sizes;
    let limit = |file: &str| {
        let path = format!("sys/devices/system/cpu/intel_uncore_frequency/{file}");
        files.number(&path).map(|khz| (khz / 1000) as u32)
    };
    if let (Some(min_mhz), Some(max_mhz)) =
        (limit("uncore00/initial_min_freq_khz"), limit("uncore00/initial_max_freq_khz"))
    {
        // The package's entry has the maximum over all clusters.
        let io_max_mhz = limit("package_00_die_00/initial_max_freq_khz");
        spec.uncore = Some(UncoreSpec { min_mhz, max_mhz, clusters: 1, io_max_mhz });
    }
    spec.sst = Some(sst);
    // A recorded level may name cores that the machine lacks (fused off); then drop Speed Select.
    if spec.check().is_err() {
        spec.sst = None;
    }
}

/// Frequencies and performance levels of a core.
fn levels(files: &dyn Recording, cpu: u32, intel: bool, core: &mut CoreSpec) {
    let folder = format!("sys/devices/system/cpu/cpu{cpu}");
    let cpufreq =
        |file: &str| files.number(&format!("{folder}/cpufreq/{file}")).map(|khz| (khz / 1000) as u32);
    let cppc = |file: &str| files.number(&format!("{folder}/acpi_cppc/{file}")).map(|value| value as u32);
    let nominal = cpufreq("base_frequency").or(cppc("nominal_freq")).filter(|mhz| *mhz >= 100);
    let base = nominal.unwrap_or(core.base_mhz);
    let min = cpufreq("cpuinfo_min_freq")
        .or(cppc("lowest_freq"))
        .filter(|mhz| *mhz >= 100)
        .unwrap_or(core.min_mhz)
        .min(base);
    // Without cpufreq (no driver was loaded) the highest frequency follows from CPPC's levels, as
    // in amd-pstate.
    let boosted = match (cppc("highest_perf"), cppc("nominal_perf")) {
        (Some(highest), Some(nominal)) if !intel && nominal > 0 => base * highest / nominal,
        _ => 0,
    };
    let max = cpufreq("cpuinfo_max_freq").unwrap_or(boosted).max(base).min(10_000);
    let level = |value: u32| value.clamp(1, 255) as u16;
    core.perf = match files.register(cpu, 0x771).filter(|caps| intel && caps & 0xff > 0) {
        Some(caps) => PerfScale {
            lowest: level((caps >> 24 & 0xff) as u32),
            efficient: level((caps >> 16 & 0xff) as u32),
            nominal: level((caps >> 8 & 0xff) as u32),
            highest: level((caps & 0xff) as u32),
        },
        None => match (cppc("lowest_perf"), cppc("nominal_perf"), cppc("highest_perf")) {
            (Some(lowest), Some(nominal), Some(highest)) if !intel => PerfScale {
                lowest: level(lowest),
                efficient: level(cppc("lowest_nonlinear_perf").unwrap_or(lowest)),
                nominal: level(nominal),
                highest: level(highest),
            },
            _ => PerfScale {
                lowest: level(min / 100),
                efficient: level(min / 100),
                nominal: level(base / 100),
                highest: level(max / 100),
            },
        },
    };
    let scale = &mut core.perf;
    // The silicon's levels must be ascending; firmware's may not be.
    scale.nominal = scale.nominal.min(scale.highest);
    scale.efficient = scale.efficient.min(scale.nominal);
    scale.lowest = scale.lowest.min(scale.efficient);
    let efficient = base * u32::from(scale.efficient) / u32::from(scale.nominal);
    core.volts = stretch(&core.volts, min, max.max(min + 1));
    (core.min_mhz, core.base_mhz, core.max_mhz) = (min, base, max);
    core.efficient_mhz = efficient.clamp(min, base);
}

/// Idle states as recorded. Their power comes from the template's states of similar rank.
fn idle_states(files: &dyn Recording, template: &CoreSpec) -> Option<Vec<flyball_silicon::spec::IdleSpec>> {
    let folder = "sys/devices/system/cpu/cpu0/cpuidle";
    let mut states = Vec::new();
    for number in 1..=14 {
        let Some(name) = files.text(&format!("{folder}/state{number}/name")) else { break };
        states.push((number, name));
    }
    let count = states.len();
    let states: Vec<_> = states
        .into_iter()
        .enumerate()
        .filter_map(|(rank, (number, name))| {
            // The deepest state is like the template's deepest, the shallowest like its shallowest.
            let like = if rank + 1 == count {
                template.idle.len() - 1
            } else {
                rank.min(template.idle.len().saturating_sub(2))
            };
            let mut state = template.idle.get(like)?.clone();
            state.name = name;
            state.desc = files.text(&format!("{folder}/state{number}/desc")).unwrap_or_default();
            state.latency_us = files.number(&format!("{folder}/state{number}/latency"))? as u32;
            state.residency_us = files.number(&format!("{folder}/state{number}/residency"))? as u32;
            (state.wake_us, state.wake_spread_us) = (0.0, 0.0);
            Some(state)
        })
        .collect();
    (!states.is_empty()).then_some(states)
}

/// Turbo limits by active cores, if the recording has both registers.
fn turbo(files: &dyn Recording) -> TurboSpec {
    let (Some(ratios), Some(counts)) = (files.register(0, 0x1ad), files.register(0, 0x1ae)) else {
        return TurboSpec::default();
    };
    let mut turbo = TurboSpec { counts_register: true, ..TurboSpec::default() };
    for at in 0..8 {
        let (ratio, cores) = ((ratios >> (at * 8) & 0xff) as u32, (counts >> (at * 8) & 0xff) as u32);
        if ratio == 0 || turbo.cores.last().is_some_and(|last| cores <= *last) || cores == 0 {
            break;
        }
        turbo.cores.push(cores);
        turbo.sse_mhz.push(ratio * 100);
    }
    turbo
}
