//! What the service of holds reads: its configuration, its store, and the kernel's reports.

use flyball_hold::{Active, Config, Effective, Facts, Store, events};
use flyball_host::watch::{device_event, reported};

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

/// The holds of all boots, and the events of a rehearsal: lines of words.
pub fn lines(bytes: &[u8]) -> String {
    let active = outcome(Active::parse(bytes, "fuzz"), |all| format!("{}", all.len().min(9)));
    active + &outcome(events(bytes, "fuzz"), |all| format!(" {}", all.len().min(9)))
}

/// The store, and the overlay of its holds.
pub fn store(bytes: &[u8]) -> String {
    outcome(Store::parse(bytes), |mut store| {
        let effective = Effective::of(&store.holds, &Facts::default());
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
