//! Intel Speed Select levels, features and classes. Read once a minute, because each value is a
//! call to the driver.

use std::time::Duration;

use flyball_host::Host;
use flyball_sst::{layout::Layout, model};

use crate::{Exposition, catalogue as names};

/// How often to call the driver.
const EVERY: Duration = Duration::from_secs(60);

struct Domain {
    package: String,
    number: String,
    level: u8,
    features: [(&'static str, bool); 3],
    /// CPUs by class of service.
    classes: [u32; 4],
}

pub(super) struct Select {
    layout: Option<Layout>,
    domains: Vec<Domain>,
    looked: Option<u64>,
}

impl Select {
    /// Has nothing on a machine without Speed Select, or if this user may not access it.
    pub(super) fn open(host: &dyn Host) -> Select {
        Select { layout: Layout::read(host).ok(), domains: Vec::new(), looked: None }
    }

    fn look(&mut self, host: &dyn Host, at: u64) {
        let Some(layout) = &self.layout else { return };
        if self.looked.is_some_and(|looked| at.saturating_sub(looked) < EVERY.as_nanos() as u64) {
            return;
        }
        self.looked = Some(at);
        // A domain that does not answer must not show its old level.
        self.domains.clear();
        let access = layout.access(host);
        for domain in layout.domains.iter().filter(|domain| !domain.cpus.is_empty()) {
            // Skip domains that do not answer now.
            let Ok(state) = model::domain(access.as_ref(), domain) else { continue };
            let mut classes = [0; 4];
            for (_, class) in model::classes_of(layout, host, &domain.cpus).unwrap_or_default() {
                if let Some(count) = classes.get_mut(usize::from(class)) {
                    *count += 1;
                }
            }
            self.domains.push(Domain {
                package: state.package.to_string(),
                number: state.domain.to_string(),
                level: state.levels.current,
                features: [
                    ("bf", state.features.base_freq_on),
                    ("tf", state.features.turbo_freq_on),
                    ("cp", state.qos.enabled),
                ],
                classes,
            });
        }
    }

    pub(super) fn write(&mut self, out: &mut Exposition, host: &dyn Host, at: u64) {
        self.look(host, at);
        for domain in &self.domains {
            let labels = [("package", domain.package.as_str()), ("power_domain", &domain.number)];
            out.add(names::SST_LEVEL, &labels, f64::from(domain.level));
        }
        for domain in &self.domains {
            for (feature, is_on) in domain.features {
                let labels = [
                    ("package", domain.package.as_str()),
                    ("power_domain", &domain.number),
                    ("feature", feature),
                ];
                out.add(names::SST_ENABLED, &labels, f64::from(u8::from(is_on)));
            }
        }
        let mut packages: Vec<&str> = self.domains.iter().map(|domain| domain.package.as_str()).collect();
        // Domains are sorted by package.
        packages.dedup();
        for package in packages {
            for clos in 0..4 {
                let of_package = self.domains.iter().filter(|domain| domain.package == package);
                let cpus: u32 = of_package.map(|domain| domain.classes[clos]).sum();
                out.add(
                    names::SST_CLOS,
                    &[("package", package), ("clos", &clos.to_string())],
                    f64::from(cpus),
                );
            }
        }
    }
}
