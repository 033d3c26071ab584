//! The service's handling of requests, on a simulated machine without a bus.

use flyball_control::{Intent, write::state::StateDir};
use flyball_hold::{Config, Store};
use flyball_simhost::{SimHost, SimSetup};
use tempfile::TempDir;

use super::*;

fn settings(words: &[&str]) -> Vec<Setting> {
    Intent::from_arguments(words, None).unwrap().settings
}

/// The profiles of the tests: each sets the governor.
fn profile(name: &str) -> Result<Vec<Setting>, String> {
    match name {
        "powersave" => Ok(settings(&["governor=powersave"])),
        "throughput" => Ok(settings(&["governor=performance"])),
        _ => Err(format!("no profile {name}")),
    }
}

fn machine() -> (SimHost, TempDir) {
    simulated("i7-2600")
}

fn simulated(machine: &str) -> (SimHost, TempDir) {
    (SimHost::open(&SimSetup::parse(machine).unwrap()).unwrap(), tempfile::tempdir().unwrap())
}

/// Starts the service of a machine, and its bus.
fn start<'h>(host: &'h SimHost, folder: &TempDir) -> (Service<'h>, Bus<'h>) {
    let state = StateDir::new(folder.path().join("state"));
    let lock = state.lock("test").unwrap();
    let moment = Moment::here();
    let config = Ok(Config::default());
    let mut service = Service::start(host, state, lock, Vec::new(), config, &profile, moment).unwrap();
    let options = BusOptions {
        socket: folder.path().join("bus"),
        desktop: true,
        program: "flyball".into(),
        kept: Some(folder.path().to_owned()),
    };
    let mut bus = Bus::new(host, Box::new(host.clone()), options, &mut Watch::new()).unwrap();
    bus.begin(&mut service, &Desktop::default(), &profile, moment);
    (service, bus)
}

const GOVERNOR: &str = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor";

fn governor(host: &SimHost) -> String {
    host.read(GOVERNOR).unwrap()
}

fn why(answer: Answer) -> Why {
    answer.unwrap_err().why
}

#[test]
fn the_chosen_profile_outlives_the_service_and_the_holds_of_programs_do_not() {
    let (host, folder) = machine();
    let (mut service, mut bus) = start(&host, &folder);
    let notices = bus.notices();
    assert!(
        matches!(&notices[..], [BusNotice::NotOffered { profile: Profile::Balanced, .. }]),
        "{notices:?}"
    );
    let before = governor(&host);
    let mut ask = |ask| bus.decide(ask, &mut service, Moment::here());
    assert_eq!(why(ask(Ask::Choose { profile: Profile::Balanced, user: 0 })), Why::Invalid);
    let held = |cookie, profile| Ask::Hold { cookie, profile, application: "game\n".into(), user: 0 };
    ask(held(1, Profile::PowerSaver)).unwrap();
    ask(held(2, Profile::Performance)).unwrap();
    assert_eq!(governor(&host), "powersave", "power-saver wins");
    ask(Ask::Release { cookie: 1 }).unwrap();
    assert_eq!(governor(&host), "performance");
    ask(Ask::Release { cookie: 2 }).unwrap();
    assert_eq!(governor(&host), before);
    ask(held(3, Profile::PowerSaver)).unwrap();
    ask(Ask::Choose { profile: Profile::Performance, user: 0 }).unwrap();
    assert_eq!(governor(&host), "performance");
    let names: Vec<&str> = service.store().holds.iter().map(|hold| hold.name.as_str()).collect();
    assert_eq!(names, [CHOSEN.0], "a choice ends the holds of programs");
    assert_eq!(std::fs::read_to_string(folder.path().join(CHOICE)).unwrap(), "performance");
    assert_eq!(bus.look(&service).active, Some(Profile::Performance));

    // The next boot: no holds, and a file with the choice.
    std::fs::remove_dir_all(folder.path().join("state")).unwrap();
    let (host, _) = machine();
    let (service, mut bus) = start(&host, &folder);
    assert_eq!(governor(&host), "performance");
    assert_eq!(service.store().holds[0].owner, Owner::Desktop(None));
    assert_eq!(bus.look(&service).active, Some(Profile::Performance));
}

#[test]
fn named_holds_are_planned_alone_and_belong_to_their_user() {
    let (host, folder) = machine();
    let (mut service, mut bus) = start(&host, &folder);
    let mut ask = |ask| bus.decide(ask, &mut service, Moment::here());
    let apply = |name: &str, words: &[&str], user| Ask::Apply {
        name: name.to_owned(),
        settings: settings(words),
        user,
    };
    let user = flyball_process::user() + 1000;
    for name in [CHOSEN.0, "desktop:7", "two words"] {
        assert_eq!(why(ask(apply(name, &["governor=performance"], user))), Why::Invalid, "{name}");
    }
    assert_eq!(why(ask(apply("mine", &["epp=performance"], user))), Why::Invalid, "no such knob here");
    let answer = ask(apply("mine", &["governor=performance"], user)).unwrap();
    assert_eq!(answer["hold"]["name"], "mine");
    assert_eq!(governor(&host), "performance");
    let release = |user| Ask::ReleaseNamed { name: "mine".to_owned(), user };
    assert_eq!(why(ask(release(user + 1))), Why::Denied);
    let is_named = |answer: Answer| answer.unwrap().to_string().contains("governor");
    assert!(!is_named(ask(Ask::Verify)), "everything holds");
    host.write(GOVERNOR, b"powersave").unwrap();
    assert!(is_named(ask(Ask::Verify)), "it drifted");
    host.write(GOVERNOR, b"performance").unwrap();
    assert!(ask(Ask::Status).unwrap().to_string().contains("mine"));
    assert_eq!(ask(release(user)).unwrap()["released"][0], "mine");
    assert_eq!(why(ask(release(user))), Why::Invalid, "it is released");
}

/// Whatever names root gives its holds, no call of the desktop changes or ends them, or fails
/// because of them.
#[test]
fn roots_holds_are_never_taken_for_those_of_the_desktop() {
    let (host, folder) = machine();
    let (mut service, mut bus) = start(&host, &folder);
    let longest = format!("desktop:{}", "7".repeat(56));
    let names =
        ["desktop", "desktop.2", "desktop:1", "desktop:1.2", "desktop:7", "desktop:4294967295", "boot"];
    for name in names.into_iter().chain([longest.as_str()]) {
        let settings = settings(&["max-freq=2GHz"]);
        let hold = Hold::new(name.parse().unwrap(), Owner::User(0), settings, 0);
        service.change(Moment::here(), |store| store.add(hold)).unwrap();
    }
    let of_root = |service: &Service<'_>| -> Vec<Hold> {
        let holds = service.store().holds.iter();
        holds.filter(|hold| hold.owner == Owner::User(0)).cloned().collect()
    };
    let before = of_root(&service);
    let user = flyball_process::user() + 1000;
    let held = |cookie, user| {
        // Names as stored for the configuration's holds and for root's.
        let application = if cookie == 1 { "config" } else { "client 7 of user 0: x" }.to_owned();
        Ask::Hold { cookie, profile: Profile::PowerSaver, application, user }
    };
    for ask in [
        held(1, user),
        held(7, 0),
        held(u32::MAX, user),
        Ask::Release { cookie: 1 },
        Ask::Choose { profile: Profile::Performance, user },
        Ask::Release { cookie: 7 },
        Ask::Choose { profile: Profile::PowerSaver, user: 0 },
        held(2, user),
    ] {
        let told = format!("{ask:?}");
        bus.decide(ask, &mut service, Moment::here()).unwrap();
        assert_eq!(of_root(&service), before, "{told}");
    }
    let release = |name: &str| Ask::ReleaseNamed { name: name.to_owned(), user };
    for name in names {
        assert_eq!(why(bus.decide(release(name), &mut service, Moment::here())), Why::Denied, "{name}");
    }
    let of_desktop = |service: &Service<'_>| {
        let holds = service.store().holds.iter().filter(|hold| hold.owner != Owner::User(0));
        holds.map(|hold| hold.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(of_desktop(&service), ["desktop.3", "desktop:2"]);
    // The next service ends only the program's hold, and knows the user's choice.
    bus.clients.clear();
    bus.begin(&mut service, &Desktop::default(), &profile, Moment::here());
    bus.end_clients(&mut service, Moment::here());
    assert_eq!(of_desktop(&service), ["desktop.3"]);
    assert_eq!(of_root(&service), before);
    assert_eq!(bus.look(&service).active, Some(Profile::PowerSaver));
}

/// A program's hold keeps its user in the next service, whatever the program calls itself.
#[test]
fn a_programs_name_is_only_shown() {
    let (host, folder) = machine();
    let (mut service, mut bus) = start(&host, &folder);
    for (cookie, name) in (1..).zip(["config", "boot", "root", "user 0", "client 7 of user 0: x", ""]) {
        let ask =
            Ask::Hold { cookie, profile: Profile::Performance, application: name.to_owned(), user: 4242 };
        bus.decide(ask, &mut service, Moment::here()).unwrap();
        let expected = Owner::Client { cookie, user: 4242, name: name.to_owned() };
        let stored = Store::load(&StateDir::new(folder.path().join("state")), &host).unwrap();
        for store in [service.store(), &stored] {
            assert!(store.holds.iter().any(|hold| hold.owner == expected), "{name}: {:?}", store.holds);
        }
    }
}

/// Connects the test in place of the process that speaks D-Bus.
fn connect(bus: &mut Bus<'_>) -> BufReader<UnixStream> {
    let (to, theirs) = UnixStream::pair().unwrap();
    let (_, from) = sync_channel(MAX_READ);
    let child = Command::new("true").spawn().unwrap();
    bus.running = Some(Running { child, to, from, serves: true });
    BufReader::new(theirs)
}

/// A hold that is possible only beside another hold is refused, because it would cause trouble when
/// that ends. The plan is made in the planner's thread, so the service continues.
#[test]
fn a_hold_must_be_possible_alone_and_is_planned_elsewhere() {
    let (host, folder) = simulated("ryzen-5750g");
    let (mut service, mut bus) = start(&host, &folder);
    let mut other_side = connect(&mut bus);
    let turbo = Hold::new("r".parse().unwrap(), Owner::User(0), settings(&["turbo=off"]), 0);
    service.change(Moment::here(), |store| store.add(turbo)).unwrap();
    let words = settings(&["max-freq=5095MHz"]);
    let beside = Hold::new("beside".parse().unwrap(), Owner::User(0), words.clone(), 0);
    service.change(Moment::here(), |store| store.add(beside)).unwrap();
    service.change(Moment::here(), |store| store.release(&"beside".parse().unwrap()).map(drop)).unwrap();
    for (id, ask) in [
        (1, Ask::Plan { settings: words.clone(), user: 4242 }),
        (2, Ask::Apply { name: "x".to_owned(), settings: words, user: 4242 }),
    ] {
        assert_eq!(bus.plan(id, ask), Ok(None), "the service plans it itself");
        other_side.get_ref().set_nonblocking(true).unwrap();
        let answer = loop {
            bus.answer_plans(&mut service, Moment::here());
            match read_line::<Tell>(&mut other_side, crate::MAX_REPORTED) {
                Ok(Some(Tell::Answer { id: of, answer })) if of == id => break answer,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        assert_eq!(why(answer), Why::Invalid);
    }
    assert_eq!(service.store().holds.len(), 1);
}

/// If a hold cannot end because another flyball has the lock, the release is retried after a pause.
#[test]
fn a_release_that_fails_waits_before_it_is_tried_again() {
    let (host, folder) = machine();
    let (mut service, mut bus) = start(&host, &folder);
    let _other_side = connect(&mut bus);
    let application = "game".to_owned();
    let ask = Ask::Hold { cookie: 1, profile: Profile::Performance, application, user: 4242 };
    bus.decide(ask, &mut service, Moment::here()).unwrap();
    let lock = StateDir::new(folder.path().join("state")).lock("flyball compare").unwrap();
    bus.notices();
    let moment = Moment::here();
    bus.decide(Ask::Release { cookie: 1 }, &mut service, moment).unwrap();
    for _ in 0..10 {
        bus.end_clients(&mut service, moment);
    }
    assert_eq!((bus.sleep_for(moment.now), bus.end_failures), (Duration::from_secs(1), 1));
    assert!(matches!(bus.notices()[..], [BusNotice::NotReleased(_)]));
    drop(lock);
    let now = moment.now + Duration::from_secs(1);
    bus.end_clients(&mut service, Moment { now, ..moment });
    assert!(service.store().holds.is_empty());
}
