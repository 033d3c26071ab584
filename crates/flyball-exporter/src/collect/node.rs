//! node_exporter's own names (collectors cpu, cpufreq and rapl), for machines without
//! node_exporter. The values are the same, except that energy counters continue here when the
//! hardware counter wraps. thermal_zone is not included: reading x86_pkg_temp wakes a CPU
//! (x86_pkg_temp_thermal.c).

use flyball_host::{
    CpuList, Host,
    topology::{CPUS, POLICIES},
};
use flyball_monitor::{KeptAttribute, Layout, Quantity, RaplZone, Sample, Sampler, rapl_zones};

use crate::{
    Exposition,
    catalogue::{self as names, Family},
};

/// Files of a policy that node_exporter reads and the sampler does not.
struct Policy {
    /// Indices of its CPUs in the layout.
    cpus: Vec<usize>,
    max: KeptAttribute,
    min: KeptAttribute,
    current: Option<KeptAttribute>,
    available: Vec<String>,
    values: [Option<u64>; 3],
}

pub(super) struct Node {
    stat: KeptAttribute,
    policies: Vec<Policy>,
    isolated: CpuList,
    /// Throttle counts of core and package by CPU, from the exporter's start. Used for CPUs that
    /// have slept since then: a sleeping CPU is not throttled.
    throttles: Vec<[Option<u64>; 2]>,
    zones: Vec<RaplZone>,
    buffer: Vec<u8>,
}

/// The columns of /proc/stat with node_exporter's names; two more are guests' (fs/proc/stat.c).
const MODES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];

impl Node {
    pub(super) fn open(host: &dyn Host, layout: &Layout) -> Node {
        let mut policies: Vec<(u32, Vec<usize>)> = Vec::new();
        for (index, cpu) in layout.cpus.iter().enumerate() {
            let Some(policy) = cpu.policy else { continue };
            match policies.iter_mut().find(|(number, _)| *number == policy) {
                Some((_, cpus)) => cpus.push(index),
                None => policies.push((policy, vec![index])),
            }
        }
        let has_frequency = layout.field(Quantity::ReportedFrequency).is_some();
        let answers_at_once = flyball_monitor::answers_at_once(&host.uname());
        let policies = policies.into_iter().map(|(number, cpus)| {
            let folder = format!("{POLICIES}/policy{number}");
            let file = |name: &str| KeptAttribute::new(format!("{folder}/{name}"));
            let available = host.read(&format!("{folder}/scaling_available_governors")).unwrap_or_default();
            Policy {
                cpus,
                max: file("cpuinfo_max_freq"),
                min: file("cpuinfo_min_freq"),
                // Older kernels wake the CPU to answer. If the sampler has no better source, it
                // reads this file itself.
                current: (answers_at_once && !has_frequency).then(|| file("scaling_cur_freq")),
                available: available.split_whitespace().map(str::to_owned).collect(),
                values: [None; 3],
            }
        });
        let count = |cpu: u32, name: &str| {
            host.read(&format!("{CPUS}/cpu{cpu}/thermal_throttle/{name}")).ok()?.parse().ok()
        };
        Node {
            stat: KeptAttribute::new("/proc/stat".to_owned()),
            policies: policies.collect(),
            isolated: host
                .read(&format!("{CPUS}/isolated"))
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
            throttles: layout
                .cpus
                .iter()
                .map(|cpu| {
                    [count(cpu.number, "core_throttle_count"), count(cpu.number, "package_throttle_count")]
                })
                .collect(),
            zones: rapl_zones(host, layout),
            buffer: Vec::with_capacity(4096 + 128 * layout.cpus.len()),
        }
    }

    pub(super) fn write(
        &mut self,
        out: &mut Exposition,
        host: &dyn Host,
        sampler: &Sampler<'_>,
        last: &Sample,
        per_cpu: bool,
    ) {
        let (layout, places) = (sampler.layout(), sampler.places());
        if per_cpu {
            self.write_frequencies(out, host, sampler, last);
            self.write_times(out, host);
            for cpu in self.isolated.iter() {
                out.add_of(names::NODE_ISOLATED, "cpu", cpu, 1.0);
            }
            for (index, cpu) in layout.cpus.iter().enumerate() {
                if let Some(online) = places.get(last, Quantity::Online, index) {
                    out.add_of(names::NODE_ONLINE, "cpu", cpu.number, online as f64);
                }
            }
            self.write_core_throttles(out, sampler, last);
        }
        for package in &layout.packages {
            let indices = package.cpus.iter().filter_map(|cpu| layout.index_of(cpu));
            let counts = indices.filter_map(|index| self.throttle(sampler, last, index, 1));
            if let Some(most) = counts.max() {
                out.add_of(names::NODE_PACKAGE_THROTTLES, "package", package.number, most as f64);
            }
        }
        for (family, quantity) in [
            (names::NODE_RAPL_DRAM, Quantity::DramEnergy),
            (names::NODE_RAPL_PACKAGE, Quantity::PackageEnergy),
        ] {
            for RaplZone { folder, index, .. } in self.zones.iter().filter(|zone| zone.quantity == quantity) {
                if let Some(energy) = places.get(last, quantity, *index) {
                    // The number of the package is in the path: intel-rapl:0, and intel-rapl:0:2
                    // for its memory.
                    let number = folder.split(':').nth(1).unwrap_or_default();
                    out.add(family, &[("index", number), ("path", folder)], energy as f64 / 1e6);
                }
            }
        }
    }

    fn write_frequencies(
        &mut self,
        out: &mut Exposition,
        host: &dyn Host,
        sampler: &Sampler<'_>,
        last: &Sample,
    ) {
        let (layout, places) = (sampler.layout(), sampler.places());
        for policy in &mut self.policies {
            let Policy { max, min, current, values, .. } = policy;
            for (value, file) in values.iter_mut().zip([Some(max), Some(min), current.as_mut()]) {
                let Some(file) = file else { continue };
                *value = file.number(host, &mut self.buffer);
                if value.is_none() {
                    file.reopen();
                }
            }
        }
        // The formats require all series of a family together, although the files were read by
        // policy.
        let of_policy = |out: &mut Exposition, family: &'static Family, value: usize| {
            for policy in &self.policies {
                let Some(khz) = policy.values[value] else { continue };
                for &index in &policy.cpus {
                    out.add_of(family, "cpu", layout.cpus[index].number, khz as f64 * 1e3);
                }
            }
        };
        of_policy(out, names::NODE_HERTZ_MAX, 0);
        of_policy(out, names::NODE_HERTZ_MIN, 1);
        of_policy(out, names::NODE_SCALING, 2);
        for (family, quantity) in [
            (names::NODE_SCALING, Quantity::ReportedFrequency),
            (names::NODE_SCALING_MAX, Quantity::RequestMax),
            (names::NODE_SCALING_MIN, Quantity::RequestMin),
        ] {
            for (index, cpu) in layout.cpus.iter().enumerate() {
                if let Some(khz) = places.get(last, quantity, index) {
                    out.add_of(family, "cpu", cpu.number, khz as f64 * 1e3);
                }
            }
        }
        let mut digits = itoa::Buffer::new();
        for policy in &self.policies {
            for &index in &policy.cpus {
                let Some(now) = places.get(last, Quantity::Governor, index) else { continue };
                let now = layout.machine.governors.get(now as usize);
                let cpu = digits.format(layout.cpus[index].number);
                // Like node_exporter, write a series for each available governor: rules rely on the
                // zeros.
                for governor in &policy.available {
                    let is_now = f64::from(u8::from(now == Some(governor)));
                    out.add(names::NODE_GOVERNOR, &[("cpu", cpu), ("governor", governor)], is_now);
                }
            }
        }
    }

    fn write_times(&mut self, out: &mut Exposition, host: &dyn Host) {
        if !self.stat.read_into(host, &mut self.buffer) {
            return;
        }
        let lines = || {
            let lines = self.buffer.split(|byte| *byte == b'\n').skip(1);
            // The CPUs' lines come first and without gaps (show_stat). The lines after them are
            // long and not needed.
            lines.map_while(|line| std::str::from_utf8(line.strip_prefix(b"cpu")?).ok())
        };
        for (family, modes, skipped) in
            [(names::NODE_SECONDS, &MODES[..], 0), (names::NODE_GUEST, &["user", "nice"][..], MODES.len())]
        {
            for line in lines() {
                let mut words = line.split(' ');
                let Some(cpu) = words.next() else { continue };
                for (mode, ticks) in modes.iter().zip(words.skip(skipped)) {
                    // Hundredths of a second: USER_HZ is 100 on x86, whatever the kernel's HZ is.
                    if let Ok(ticks) = ticks.parse::<u64>() {
                        out.add(family, &[("cpu", cpu), ("mode", mode)], ticks as f64 / 100.0);
                    }
                }
            }
        }
    }

    /// Returns a throttle count: from the sample if the CPU has run, otherwise from the start.
    /// `which` is 0 for the core's count.
    fn throttle(&self, sampler: &Sampler<'_>, last: &Sample, index: usize, which: usize) -> Option<u64> {
        let quantity = [Quantity::CoreThrottles, Quantity::PackageThrottles][which];
        sampler.places().get(last, quantity, index).or(self.throttles[index][which])
    }

    fn write_core_throttles(&self, out: &mut Exposition, sampler: &Sampler<'_>, last: &Sample) {
        let mut cores: std::collections::BTreeMap<(u32, u32), u64> = std::collections::BTreeMap::new();
        for (index, cpu) in sampler.layout().cpus.iter().enumerate() {
            // Without the die, like node_exporter: cores with the same number in two dies share a
            // series.
            if let (Some(package), Some(core), Some(count)) =
                (cpu.package, cpu.core, self.throttle(sampler, last, index, 0))
            {
                let most = cores.entry((package, core)).or_default();
                *most = count.max(*most);
            }
        }
        let (mut package_digits, mut core_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
        for ((package, core), count) in cores {
            let labels = [("package", package_digits.format(package)), ("core", core_digits.format(core))];
            out.add(names::NODE_CORE_THROTTLES, &labels, count as f64);
        }
    }
}
