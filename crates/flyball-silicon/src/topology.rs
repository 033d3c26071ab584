//! Maps CPUs to threads, cores, dies and packages.

use crate::spec::{MachineSpec, Numbering, SstClass};

/// A CPU's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    /// Core index in the machine (0 to [`Topology::cores`]).
    pub core: usize,
    /// Thread of the core: 0 or 1.
    pub thread: u32,
}

/// A core's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorePlace {
    pub package: usize,
    /// Die within the package.
    pub die: u32,
    /// Core number within the package.
    pub in_package: u32,
    /// Core number within the die.
    pub in_die: u32,
    /// The power unit's number of the core, within its power domain if there are several, otherwise
    /// within the package.
    pub unit: u32,
    /// Index into [`MachineSpec::core`].
    pub kind: usize,
    /// Number within the cores of its type in its die.
    pub in_kind: u32,
    /// topology/core_id.
    pub id: u32,
    /// The core's CPUs: first and second thread, equal if the core has one thread.
    pub cpus: [usize; 2],
    pub threads: u32,
}

/// All positions, by index. Cores are numbered package by package, die by die, type by type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    cpu: Vec<CpuPlace>,
    core: Vec<CorePlace>,
    packages: usize,
    dies: u32,
}

impl Topology {
    /// Builds the topology of the machine's file.
    pub fn new(spec: &MachineSpec) -> Topology {
        let t = &spec.topology;
        let mut core = Vec::new();
        let by_domain = spec.sst.as_ref().is_some_and(|sst| sst.class == SstClass::Tpmi);
        // Power domain of a package's core, and the core's number in it, if domains differ from
        // dies.
        let domain = |core: u32| {
            let mut first = 0;
            t.power_domains.iter().zip(0..).find_map(|(&n, domain)| {
                first += n;
                (core < first).then_some((domain, core + n - first))
            })
        };
        for package in 0..t.packages {
            let mut in_package = 0;
            for die in 0..t.dies {
                let mut in_die = 0;
                for (kind, c) in spec.core.iter().enumerate() {
                    for in_kind in 0..c.count {
                        let id = t.core_ids.get(in_package as usize).copied().unwrap_or(in_package);
                        // Power domains may cross the file's dies, so each core takes its number in
                        // the domain.
                        let own = domain(in_package).unwrap_or((die, in_die));
                        let plain = if by_domain { own.1 } else { in_package };
                        let unit = t.unit_cores.get(in_package as usize).copied().unwrap_or(plain);
                        core.push(CorePlace {
                            package: package as usize,
                            die: own.0,
                            in_package,
                            in_die: own.1,
                            unit,
                            kind,
                            in_kind,
                            id,
                            cpus: [0; 2],
                            threads: c.threads,
                        });
                        in_package += 1;
                        in_die += 1;
                    }
                }
            }
        }
        let mut cpu = Vec::new();
        let add = |cpu: &mut Vec<CpuPlace>, p: &mut CorePlace, core: usize, thread: u32| {
            if thread == 0 {
                // Both entries, so that the second is valid for a core with one thread.
                p.cpus = [cpu.len(); 2];
            } else {
                p.cpus[1] = cpu.len();
            }
            cpu.push(CpuPlace { core, thread });
        };
        match t.numbering {
            Numbering::SiblingsLast => {
                for thread in 0..2 {
                    for (i, p) in core.iter_mut().enumerate().filter(|(_, p)| thread < p.threads) {
                        add(&mut cpu, p, i, thread);
                    }
                }
            }
            Numbering::SiblingsAdjacent => {
                for (i, p) in core.iter_mut().enumerate() {
                    for thread in 0..p.threads {
                        add(&mut cpu, p, i, thread);
                    }
                }
            }
        }
        Topology { cpu, core, packages: t.packages as usize, dies: t.dies.max(t.power_domains.len() as u32) }
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> usize {
        self.cpu.len()
    }

    /// Number of cores.
    pub fn cores(&self) -> usize {
        self.core.len()
    }

    /// Number of packages.
    pub fn packages(&self) -> usize {
        self.packages
    }

    /// Returns the number of dies per package, or of power domains if they differ from dies.
    pub fn dies(&self) -> u32 {
        self.dies
    }

    /// Returns a CPU's position, or CPU 0's if the CPU does not exist.
    pub fn cpu(&self, cpu: usize) -> CpuPlace {
        self.cpu.get(cpu).copied().unwrap_or(CpuPlace { core: 0, thread: 0 })
    }

    /// Returns the position of a CPU's core.
    pub fn core_of(&self, cpu: usize) -> CorePlace {
        self.core[self.cpu(cpu).core]
    }

    /// Returns a core's position.
    pub fn core(&self, core: usize) -> CorePlace {
        self.core[core]
    }

    pub fn package_of(&self, cpu: usize) -> usize {
        self.core_of(cpu).package
    }

    /// The cores of a package, as indices into the machine's cores.
    pub fn package_cores(&self, package: usize) -> std::ops::Range<usize> {
        // A machine file describes one package, so all packages have equal cores.
        let n = self.core.len() / self.packages;
        package * n..(package + 1) * n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guides_machine_is_numbered_as_in_the_guide() {
        let t = Topology::new(&MachineSpec::builtin("sst-guide").unwrap());
        assert_eq!((t.cpus(), t.cores(), t.packages()), (56, 28, 2));
        // Package 0 is 0-13 and 28-41, package 1 is 14-27 and 42-55.
        for cpu in 0..56 {
            assert_eq!(t.package_of(cpu), usize::from(cpu % 28 >= 14), "{cpu}");
        }
        assert_eq!(t.core_of(41).cpus, [13, 41]);
        assert_eq!(t.package_cores(1), 14..28);
    }
}
