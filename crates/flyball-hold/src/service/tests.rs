//! The service's own writes to the store.

use flyball_simhost::{SimHost, SimSetup};

use super::*;

/// A program's change is known at once, without a report from the kernel. The report of the
/// service's own write must not make it read the file again.
#[test]
fn a_change_of_the_holds_is_read_once() {
    let host = SimHost::open(&SimSetup::parse("i7-2600").unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::new(folder.path().join("state"));
    let (lock, moment) = (state.lock("test").unwrap(), Moment::here());
    let profiles = |_: &str| Ok(Vec::new());
    let config = Ok(Config::default());
    let mut service = Service::start(&host, state, lock, Vec::new(), config, &profiles, moment).unwrap();
    let _ = service.notices();
    let settings = flyball_control::Intent::from_arguments(&["governor=performance"], None).unwrap().settings;
    let hold = Hold::new("one".parse().unwrap(), Owner::User(0), settings, moment.unix);
    service.change(moment, |store| store.add(hold.clone())).unwrap();
    assert_eq!(service.store().holds, [hold]);
    assert_eq!(service.sleep_for(moment.now), Duration::ZERO, "it acts without a report");
    let report = || vec![Event::File { name: Store::NAME.to_owned() }];
    assert!(!service.sort(report(), moment).store, "its own write");
    service.handle(report(), moment);
    assert_eq!(service.in_force().len(), 1);
    let of_it = |notice: &&Notice| matches!(notice, Notice::Added { .. });
    assert_eq!(service.notices().iter().filter(of_it).count(), 1);
    assert!(service.sleep_for(moment.now) > Duration::ZERO);
}
