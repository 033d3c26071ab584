//! What the service of holds reads: its configuration, its store, and the kernel's reports.

use flyball_control::{
    Intent,
    write::{
        state::StateDir,
        transaction::{Scope, restore},
    },
};
use flyball_hold::{Active, Config, Effective, Facts, Moment, Service, Store, events};
use flyball_host::{
    Host,
    watch::{device_event, reported},
};
use flyball_simhost::{SimHost, SimSetup};

use crate::outcome;

/// hold.toml, with the holds that it makes.
pub fn config(bytes: &[u8]) -> String {
    outcome(Config::parse(bytes, "fuzz"), |config| {
        for (index, when) in config.when.iter().enumerate() {
            let hold = config.hold(index, when, 0).expect("a name is made of what a name may have");
            if let Some(condition) = &hold.condition {
                let _ = condition.is_met(&Facts::default());
            }
        }
        format!("{}", config.when.len().min(9))
    })
}

/// A service that starts or is reloaded with hold.toml, on a simulated machine. A profile's name
/// here is its settings. What is restored afterwards and called exact is as it was.
pub fn reload(bytes: &[u8]) -> String {
    const POLICY: &str = "/sys/devices/system/cpu/cpufreq/policy0";
    outcome(Config::parse(bytes, "fuzz"), |config| {
        let host = SimHost::open(&SimSetup::parse("i7-2600").expect("a machine")).expect("a machine");
        let folder = tempfile::tempdir().expect("a directory");
        let state = StateDir::new(folder.path().join("state"));
        let look =
            || ["scaling_governor", "scaling_max_freq"].map(|file| host.read(&format!("{POLICY}/{file}")));
        let first = look();
        let lock = state.lock("fuzz").expect("nothing else has it");
        let profiles = |name: &str| {
            let words: Vec<&str> = name.split(' ').collect();
            let intent = Intent::from_arguments(&words, None).map_err(|error| error.to_string())?;
            Ok(intent.settings)
        };
        let service =
            Service::start(&host, state.clone(), lock, Vec::new(), Ok(config), &profiles, Moment::here())
                .expect("the directory can be used");
        let shape = format!("{} {}", service.store().holds.len().min(9), service.in_force().len().min(9));
        drop(service);
        let restored = restore(&host, &state, "fuzz", Scope::All).expect("a journal");
        assert!(!restored.restoration.is_exact() || look() == first, "{first:?} became {:?}", look());
        shape
    })
}

/// The holds of all boots, and the events of a rehearsal: lines of words.
pub fn lines(bytes: &[u8]) -> String {
    let active = outcome(Active::parse(bytes, "fuzz"), |all| format!("{}", all.len().min(9)));
    active + &outcome(events(bytes, "fuzz"), |all| format!(" {}", all.len().min(9)))
}

/// The store, and the overlay of its holds.
pub fn store(bytes: &[u8]) -> String {
    outcome(Store::parse(bytes), |mut store| {
        let effective = Effective::new(&store.holds, &Facts::default());
        let ended = store.expire(std::time::Duration::from_secs(1));
        format!("{} {} {}", store.holds.len().min(9), effective.holds.len().min(9), ended.len().min(9))
    })
}

/// Messages about devices, and buffers of fanotify: the first byte says which.
pub fn reports(bytes: &[u8]) -> String {
    match bytes.split_first() {
        Some((b'd', message)) => format!("{:?}", device_event(message)).chars().take(60).collect(),
        Some((_, buffer)) => format!("{}", reported(buffer).len().min(9)),
        None => String::new(),
    }
}
