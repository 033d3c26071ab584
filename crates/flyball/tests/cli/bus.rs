//! Tests the service on a private bus: with the unmodified `powerprofilesctl`, and with clients
//! that make the calls of desktops. If a program is missing (dbus-daemon, python3-gi,
//! power-profiles-daemon for its tool), its tests are skipped and counted.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use flyball_testing::{Ran, flyball, skip};

use crate::change::Machine;

const DESKTOP: [(&str, &str); 2] = [
    ("org.freedesktop.UPower.PowerProfiles", "/org/freedesktop/UPower/PowerProfiles"),
    ("net.hadess.PowerProfiles", "/net/hadess/PowerProfiles"),
];

const CONTROL: (&str, &str) = ("org.flyball.Control1", "/org/flyball/Control1");

/// Debian's Python, because another Python in the path lacks its modules.
const PYTHON: &str = "/usr/bin/python3";

/// A process that is killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A machine, its service and a bus.
struct Bus {
    // First, so that it is dropped before its bus.
    service: Option<Process>,
    daemon: Option<Process>,
    machine: Machine,
    folder: tempfile::TempDir,
}

fn has(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn eventually(mut is: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if is() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

impl Bus {
    /// Returns `None` if a program is missing.
    fn start(programs: &[&str]) -> Option<Bus> {
        let needed = [&["dbus-daemon", "gdbus"], programs].concat();
        if let Some(missing) = needed.iter().find(|program| !has(program)) {
            skip(1, "bus", &format!("there is no {missing}"));
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &Path| {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        // Other users must be able to connect too.
        open(folder.path());
        let mut bus = Bus { service: None, daemon: None, machine: Machine::new(2), folder };
        bus.start_daemon();
        bus.start_service();
        Some(bus)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("bus")
    }

    fn address(&self) -> String {
        format!("unix:path={}", self.socket().display())
    }

    fn start_daemon(&mut self) {
        let config = self.folder.path().join("bus.conf");
        // Fewer match rules per connection than the usual 512, for `subscriptions_end_with_holds`.
        let text = format!(
            "<busconfig><type>system</type><limit name=\"max_match_rules_per_connection\">40</limit><listen>{}</listen><auth>EXTERNAL</auth><policy context=\"default\">\
             <allow user=\"*\"/><allow own=\"*\"/>{}{}</policy></busconfig>",
            self.address(),
            ["method_call", "signal"].map(|kind| format!("<allow send_type=\"{kind}\"/>")).concat(),
            ["method_return", "error"]
                .map(|kind| format!("<allow send_requested_reply=\"true\" send_type=\"{kind}\"/>"))
                .concat()
                + &["method_call", "method_return", "error", "signal"]
                    .map(|kind| format!("<allow receive_type=\"{kind}\"/>"))
                    .concat(),
        );
        std::fs::write(&config, text).unwrap();
        let _ = std::fs::remove_file(self.socket());
        let mut daemon = Command::new("dbus-daemon");
        daemon.arg(format!("--config-file={}", config.display())).args(["--nofork", "--nopidfile"]);
        self.daemon = Some(Process(daemon.stderr(Stdio::null()).spawn().unwrap()));
        assert!(eventually(|| self.socket().exists()), "the bus does not listen");
    }

    fn start_service(&mut self) {
        let socket = self.socket();
        let words = ["hold", "run", "--bus", socket.to_str().unwrap(), "--desktop"];
        let mut command = self.machine.command(&words);
        let config = self.folder.path().join("hold.toml");
        if config.exists() {
            command.arg("--config").arg(config);
        }
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        command.env("STATE_DIRECTORY", self.folder.path());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        // A descriptor that whoever starts the service may have left open.
        let inherited = std::fs::File::open(self.folder.path().join("bus.conf")).unwrap();
        rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
        self.service = Some(Process(command.spawn().unwrap()));
        assert!(eventually(|| self.is_served()), "the names are not served: {}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns the number of the service's child process that speaks D-Bus.
    fn process_on_the_bus(&self) -> String {
        let service = self.service.as_ref().unwrap().0.id();
        let tasks = std::fs::read_dir(format!("/proc/{service}/task")).unwrap();
        let children =
            tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap());
        children.collect::<String>().trim().to_owned()
    }

    fn is_served(&self) -> bool {
        let mut ask = self.client("gdbus");
        let method = "org.freedesktop.DBus.NameHasOwner";
        let bus = ["--dest", "org.freedesktop.DBus", "--object-path", "/org/freedesktop/DBus"];
        ask.args(["call", "--address", &self.address()]).args(bus).args(["--method", method, DESKTOP[1].0]);
        Ran::of(&mut ask).out.contains("true")
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("DBUS_SYSTEM_BUS_ADDRESS", self.address()).stdin(Stdio::null());
        command
    }

    /// Runs a program on this bus, and returns its standard output.
    #[track_caller]
    fn expect(&self, command: &mut Command) -> String {
        let ran = Ran::of(command);
        assert_eq!(ran.code, 0, "{command:?}: {}\n{}", ran.text(), self.log());
        ran.out
    }

    #[track_caller]
    fn tool(&self, words: &[&str]) -> String {
        self.expect(self.client("powerprofilesctl").args(words))
    }

    #[track_caller]
    fn scenario(&self, name: &str) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bus/clients.py");
        print!("{}", self.expect(self.client(PYTHON).arg(script).arg(name)));
    }

    fn epp(&self) -> String {
        self.machine.read("cpufreq/policy0/energy_performance_preference")
    }

    fn names(&self) -> Vec<String> {
        let holds = self.machine.json(0, &["hold", "list"]);
        holds
            .as_array()
            .unwrap()
            .iter()
            .map(|hold| {
                hold["hold"]["name"]
                    .as_str()
                    .map_or_else(|| hold["name"].as_str().unwrap().to_owned(), str::to_owned)
            })
            .collect()
    }
}

/// Returns whether Python has the bindings that desktops' clients use.
fn has_gi() -> bool {
    let ran =
        Command::new(PYTHON).args(["-c", "from gi.repository import Gio"]).stderr(Stdio::null()).status();
    let has = ran.is_ok_and(|status| status.success());
    if !has {
        skip(1, "bus", "there is no python3-gi");
    }
    has
}

#[test]
fn powerprofilesctl_works_unmodified() {
    let Some(bus) = Bus::start(&["powerprofilesctl"]) else { return };
    let list = bus.tool(&["list"]);
    assert!(
        list.contains("* balanced:") && list.contains("  performance:") && list.contains("  power-saver:"),
        "{list}"
    );
    assert_eq!(bus.tool(&["get"]), "balanced\n");
    assert_eq!(bus.names(), [""; 0], "nothing is set before a user chooses");
    let before = bus.machine.dump();
    bus.tool(&["set", "performance"]);
    assert_eq!((bus.tool(&["get"]).as_str(), bus.epp().as_str()), ("performance\n", "performance"));
    let inside = bus.tool(&["launch", "-p", "power-saver", "--", "powerprofilesctl", "get"]);
    assert_eq!(inside, "power-saver\n");
    let holds = bus.tool(&[
        "launch",
        "-p",
        "power-saver",
        "-r",
        "low battery",
        "--",
        "powerprofilesctl",
        "list-holds",
    ]);
    assert!(holds.contains("low battery"), "{holds}");
    assert!(eventually(|| bus.epp() == "performance"), "{}", bus.epp());
    let wrong = Ran::of(bus.client("powerprofilesctl").args(["set", "custom"]));
    assert_ne!(wrong.code, 0, "{}", wrong.text());
    bus.machine.expect(0, &["hold", "release", "--all"]);
    assert_eq!(bus.machine.dump(), before);
}

#[test]
fn desktops_find_what_they_call() {
    let Some(bus) = Bus::start(&[PYTHON]).filter(|_| has_gi()) else { return };
    for scenario in ["properties", "gnome", "kde", "holds", "bad"] {
        bus.scenario(scenario);
    }
    assert_eq!(bus.names(), ["desktop"]);
}

#[test]
fn a_client_that_dies_holds_nothing() {
    let Some(bus) = Bus::start(&[PYTHON]).filter(|_| has_gi()) else { return };
    bus.scenario("vanishing");
}

#[test]
fn subscriptions_end_with_holds() {
    let Some(bus) = Bus::start(&[PYTHON]).filter(|_| has_gi()) else { return };
    bus.scenario("staying");
}

#[test]
fn own_interface() {
    let Some(bus) = Bus::start(&[PYTHON]).filter(|_| has_gi()) else { return };
    bus.scenario("control");
}

impl Bus {
    /// Starts a bus for other users. Needs root to act as them, and polkit.
    fn for_users() -> Option<Bus> {
        let bus = Bus::start(&[PYTHON, "setpriv"]).filter(|_| has_gi())?;
        let has_mock = Ran::of(Command::new(PYTHON).args(["-c", "import dbusmock"])).code == 0;
        if !flyball_process::is_root() || !has_mock {
            skip(1, "bus", "it needs root and python3-dbusmock");
            return None;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bus/clients.py");
        // Other users may not be able to read the checkout.
        std::fs::write(bus.folder.path().join("clients.py"), std::fs::read(script).unwrap()).unwrap();
        Some(bus)
    }

    fn start_polkit(&self) -> Process {
        let mut polkit = self.client(PYTHON);
        polkit.args(["-m", "dbusmock", "--system", "--template", "polkitd"]).stdout(Stdio::null());
        Process(polkit.spawn().unwrap())
    }

    /// Makes polkit allow these actions and no others.
    fn allow(&self, actions: &[&str]) {
        let call = || {
            let mut call = self.client("gdbus");
            call.args(["call", "--address", &self.address(), "--dest", "org.freedesktop.PolicyKit1"]);
            call.args(["--object-path", "/org/freedesktop/PolicyKit1/Authority", "--method"]);
            call.arg("org.freedesktop.DBus.Mock.SetAllowed");
            let words: Vec<String> = actions.iter().map(|action| format!("'{action}'")).collect();
            Ran::of(call.arg(format!("@as [{}]", words.join(", ")))).code == 0
        };
        assert!(eventually(call), "the mock of polkit does not answer");
    }

    /// Runs a scenario of clients.py as a user.
    #[track_caller]
    fn as_user(&self, user: &str, words: &[&str]) -> String {
        let mut command = self.client("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups", PYTHON]).arg("clients.py");
        self.expect(command.args(words).current_dir(self.folder.path()))
    }
}

/// Returns the rows of the table in docs/desktop.md: action, calls, a local user, other users.
fn polkits_table() -> Vec<[String; 4]> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/desktop.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `org."));
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()));
    cells.map(|cells| cells.collect::<Vec<_>>().try_into().unwrap()).collect()
}

#[test]
fn other_users_are_polkits_to_judge() {
    let table = polkits_table();
    let policies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/polkit");
    let policies: String = std::fs::read_dir(policies)
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    for [action, _, active, others] in &table {
        let part = policies.split("<action id=\"").find(|part| part.starts_with(action.trim_matches('`')));
        let part = part.unwrap_or_else(|| panic!("dist/polkit has no {action}"));
        for (element, words) in [("allow_active", active), ("allow_any", others)] {
            let (_, value) = part.split_once(&format!("<{element}>")).unwrap();
            let value = value.split('<').next().unwrap();
            let expected = if value == "auth_admin_keep" { "an administrator's password" } else { value };
            assert_eq!(words, expected, "{action}, {element}");
        }
    }
    assert_eq!(policies.matches("<action id=").count(), table.len());
    let Some(bus) = Bus::for_users() else { return };
    let outcomes = |user: &str| -> std::collections::BTreeMap<String, String> {
        serde_json::from_str(&bus.as_user(user, &["calls"])).unwrap()
    };
    let all_are = |user: &str, expected: &str| {
        let outcomes = outcomes(user);
        assert!(outcomes.values().all(|outcome| outcome == expected), "user {user}: {outcomes:?}");
    };
    all_are("0", "ok");
    all_are("65534", "AccessDenied");
    let _polkit = bus.start_polkit();
    for user in ["1", "65534"] {
        bus.allow(&[]);
        all_are(user, "AccessDenied");
        // Rejected before anything is parsed, so forbidden calls cost nothing.
        assert_eq!(bus.as_user(user, &["denied"]), "AccessDenied AccessDenied AccessDenied\n");
        for [action, calls, ..] in &table {
            bus.allow(&[action.trim_matches('`')]);
            for (call, outcome) in outcomes(user) {
                let expected = if calls.contains(&format!("`{call}`")) { "ok" } else { "AccessDenied" };
                assert_eq!(outcome, expected, "{call} of user {user}, who may {action}");
            }
        }
    }
}

#[test]
fn a_hold_is_its_owners_and_roots() {
    let Some(mut bus) = Bus::for_users() else { return };
    bus.service = None;
    std::fs::write(bus.folder.path().join("hold.toml"), "[[when]]\nprofile = \"powersave\"\n").unwrap();
    bus.start_service();
    let _polkit = bus.start_polkit();
    bus.allow(&["org.flyball.hold"]);
    let all = ["of-0", "of-1", "of-2", "config-1:powersave"];
    for actor in ["0", "1", "2"] {
        for owner in ["0", "1", "2"] {
            bus.as_user(owner, &["make", &format!("of-{owner}")]);
        }
        let out = bus.as_user(actor, &["replace", all[0], all[1], all[2], all[3]]);
        for line in out.lines() {
            let (name, outcomes) = line.split_once(' ').unwrap();
            let is_allowed = actor == "0" || name == format!("of-{actor}");
            let expected = match name {
                "config-1:powersave" => "InvalidArgs InvalidArgs",
                _ if is_allowed => "ok ok",
                _ => "AccessDenied AccessDenied",
            };
            assert_eq!(outcomes, expected, "user {actor} and {name}");
        }
        assert_eq!(out.lines().count(), all.len());
    }
}

#[test]
fn holds_of_users_keep_root_and_one_another_in() {
    let Some(bus) = Bus::for_users() else { return };
    let _polkit = bus.start_polkit();
    bus.allow(&["org.freedesktop.UPower.PowerProfiles.hold-profile"]);
    let mut fillers = Vec::new();
    for (user, number) in [("1", "16"), ("2", "16"), ("65534", "0"), ("0", "")] {
        let out = bus.folder.path().join(user);
        let mut command = bus.client("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups", PYTHON, "clients.py", "fill"]);
        command.current_dir(bus.folder.path()).stdin(Stdio::piped());
        command.stdout(std::fs::File::create(&out).unwrap());
        fillers.push(Process(command.spawn().unwrap()));
        let printed = || std::fs::read_to_string(&out).unwrap().trim().to_owned();
        assert!(eventually(|| !printed().is_empty()), "user {user}: {}", bus.log());
        if number.is_empty() {
            assert!(printed().parse::<u32>().unwrap() > 0, "root is kept out");
        } else {
            assert_eq!(printed(), number, "user {user}");
        }
    }
}

#[test]
fn plans_are_bounded_and_keep_nobody_waiting() {
    let Some(bus) = Bus::start(&[]) else { return };
    let call = |words: &[&str]| {
        let mut call = bus.client("gdbus");
        call.args(["call", "--address", &bus.address(), "--dest", CONTROL.0, "--object-path", CONTROL.1]);
        call.args(["--method", &format!("{}.{}", CONTROL.0, words[0])]).args(&words[1..]);
        call
    };
    let profile = |values: usize| {
        let values = vec!["\"90GHz\""; values].join(", ");
        format!("'[optional]\\nmax-freq = [{values}]'")
    };
    let too_long = Ran::of(&mut call(&["Plan", &profile(300)]));
    assert!(too_long.code != 0 && too_long.text().contains("at most 256 settings"), "{}", too_long.text());
    let largest = profile(255);
    let spawn =
        || Process(call(&["Plan", &largest]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let mut plans: Vec<Process> = (0..12).map(|_| spawn()).collect();
    let start = Instant::now();
    bus.expect(&mut call(&["Status"]));
    for plan in &mut plans {
        // Rejected: no value in the list is possible, or too many plans are waiting.
        assert!(!plan.0.wait().unwrap().success());
    }
    // Generous, because this is a debug build on a busy machine.
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[test]
fn no_text_of_a_caller_ends_the_connection() {
    let Some(bus) = Bus::start(&[]) else { return };
    for profile in ["governor = \"\\u0000\"", "\"\\u0000\" = \"x\"", "max-freq = \"\\u0000\"", "\u{1b} = 1"] {
        for (method, words) in [("Plan", vec![profile]), ("Apply", vec![profile, "x"])] {
            let mut call = bus.client("gdbus");
            call.args(["call", "--address", &bus.address(), "--dest", CONTROL.0, "--object-path", CONTROL.1]);
            // In GVariant's notation, which has its own escapes.
            let words = words.iter().map(|word| format!("'{}'", word.replace('\\', "\\\\")));
            call.args(["--method", &format!("{}.{method}", CONTROL.0)]).args(words);
            let ran = Ran::of(&mut call);
            assert!(ran.code != 0 && ran.text().contains("InvalidArgs"), "{profile}: {}", ran.text());
        }
    }
    assert!(bus.is_served() && !bus.log().contains("has ended"), "{}", bus.log());
}

/// Tests short profiles that become long requests and long answers, and long texts.
#[test]
fn no_length_of_a_text_ends_the_connection() {
    let Some(bus) = Bus::start(&[PYTHON]).filter(|_| has_gi()) else { return };
    let before = bus.process_on_the_bus();
    bus.scenario("long");
    assert_eq!(bus.process_on_the_bus(), before, "{}", bus.log());
}

/// Even if the maximum number of users wait for a password dialog, others that need none are
/// served.
#[test]
fn who_needs_no_password_waits_for_nobodys() {
    let Some(bus) = Bus::for_users() else { return };
    let mut polkit = bus.client(PYTHON);
    polkit.args(["clients.py", "polkit", "1"]).current_dir(bus.folder.path());
    let _polkit = Process(polkit.spawn().unwrap());
    let mut waiting = bus.client(PYTHON);
    waiting.args(["clients.py", "dialogues", "34"]).current_dir(bus.folder.path()).stdin(Stdio::piped());
    // Late users find no bus any more.
    let mut waiting = waiting.stderr(Stdio::null()).spawn().unwrap();
    let is_full = || bus.as_user("2", &["interactive"]) == "LimitsExceeded\n";
    assert!(eventually(is_full), "{}", bus.log());
    let outcomes = bus.as_user("1", &["calls"]);
    drop(waiting.stdin.take());
    waiting.wait().unwrap();
    assert_eq!(outcomes.matches("\"ok\"").count(), 8, "{outcomes}");
}

/// FLYBALL_BUS_MESSAGES sets the number of messages, and FLYBALL_BUS_SEED chooses them.
#[test]
fn no_message_ends_the_service_or_its_connection() {
    let Some(bus) = Bus::for_users() else { return };
    let number = |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let (seed, count) = (number("FLYBALL_BUS_SEED", "1"), number("FLYBALL_BUS_MESSAGES", "400"));
    let before = bus.process_on_the_bus();
    for user in ["65534", "0"] {
        bus.as_user(user, &["random_calls", &seed, &count]);
        assert!(bus.is_served() && !bus.log().contains("has ended"), "user {user}: {}", bus.log());
    }
    assert_eq!(bus.process_on_the_bus(), before);
    bus.machine.expect(0, &["hold", "release", "--all"]);
}

/// Returns the calls in a trace of `strace -f`, and those that failed with EPERM.
fn calls_of(trace: &str) -> (BTreeSet<String>, Vec<String>) {
    let (mut calls, mut refused) = (BTreeSet::new(), Vec::new());
    for line in trace.lines() {
        let rest = line.split_once(' ').map(|(_, rest)| rest.trim_start()).unwrap_or_default();
        // If another thread makes a call in between, a call is printed in two parts.
        let name = rest.strip_prefix("<... ").unwrap_or(rest);
        let name = name.split(['(', ' ']).next().unwrap_or_default();
        // strace prints signals as ---, and exits as +++.
        if name.starts_with(|first: char| first.is_ascii_lowercase()) {
            calls.insert(name.to_owned());
            if rest.contains("= -1 EPERM") {
                refused.push(rest.to_owned());
            }
        }
    }
    (calls, refused)
}

#[test]
fn the_list_of_allowed_calls_is_what_every_method_makes() {
    let Some(mut bus) = Bus::start(&[PYTHON, "strace"]).filter(|_| has_gi()) else { return };
    let trace = bus.folder.path().join("trace");
    let read = || std::fs::read_to_string(&trace).unwrap_or_default();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-s", "16", "-o"]).arg(&trace).args(["-p", &bus.process_on_the_bus()]);
    let strace = Process(strace.stderr(Stdio::null()).spawn().unwrap());
    let is_traced = || {
        let mut call = bus.client("gdbus");
        call.args(["introspect", "--address", &bus.address(), "--dest", CONTROL.0]);
        drop(Ran::of(call.args(["--object-path", CONTROL.1])));
        !read().is_empty()
    };
    if !eventually(is_traced) {
        return skip(1, "bus", "strace may not trace here");
    }
    for scenario in ["control", "properties", "gnome", "kde", "holds", "vanishing", "bad"] {
        bus.scenario(scenario);
    }
    // Also trace how it ends.
    bus.daemon = None;
    assert!(eventually(|| bus.log().contains("everything else goes on")), "{}", bus.log());
    drop(strace);
    let (calls, refused) = calls_of(&read());
    assert!(refused.is_empty(), "refused: {refused:#?}");
    assert!(calls.contains("recvmsg") || calls.contains("recvfrom"), "another process: {calls:?}");
    let allowed: BTreeSet<String> = flyball_process::confine::allowed().map(str::to_owned).collect();
    let missing: Vec<&String> = calls.difference(&allowed).collect();
    assert!(missing.is_empty(), "not in ALLOWED of confine/calls.rs: {missing:?}");
    println!("not called here: {:?}", allowed.difference(&calls).collect::<Vec<_>>());
}

#[test]
fn the_process_on_the_bus_is_nobody_and_can_do_nothing() {
    let Some(bus) = Bus::start(&[]) else { return };
    let status = std::fs::read_to_string(format!("/proc/{}/status", bus.process_on_the_bus())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.unwrap_or_default().trim().to_owned()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!((field("NoNewPrivs").as_str(), field("Seccomp").as_str()), ("1", "2"));
    if flyball_process::is_root() {
        let ids = format!("{0}\t{0}\t{0}\t{0}", 65_534);
        let own = flyball_process::User::by_name("flyball-bus").unwrap();
        if own.is_none() {
            assert_eq!((field("Uid"), field("Gid"), field("Groups")), (ids.clone(), ids, String::new()));
        }
        assert_ne!(field("Uid").split('\t').next(), Some("0"));
        // The bus must see this user too: as root, it could call any service.
        let mut ask = bus.client("gdbus");
        let method = "org.freedesktop.DBus.GetConnectionUnixUser";
        ask.args(["call", "--address", &bus.address(), "--dest", "org.freedesktop.DBus"]);
        ask.args(["--object-path", "/org/freedesktop/DBus", "--method", method, CONTROL.0]);
        let uid = field("Uid").split('\t').next().map(str::to_owned).unwrap_or_default();
        assert_eq!(bus.expect(&mut ask).trim(), format!("(uint32 {uid},)"));
        let open = std::fs::read_dir(format!("/proc/{}/fd", bus.process_on_the_bus())).unwrap();
        let open: Vec<_> = open.map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap()).collect();
        assert!(!open.iter().any(|path| path.ends_with("bus.conf")), "{open:?}");
    }
}

/// Returns whether a process ends within two seconds.
fn ends(process: &str) -> bool {
    let is_there = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    };
    let start = Instant::now();
    while is_there() && start.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(10));
    }
    !is_there()
}

/// The D-Bus process ends with its service, whatever it is waiting for.
#[test]
fn the_process_on_the_bus_ends_with_its_service() {
    let Some(mut bus) = Bus::start(&[]) else { return };
    let process = bus.process_on_the_bus();
    bus.service = None;
    assert!(ends(&process), "the service was killed");

    // From here on, the test acts as the service, with a bus that does not answer.
    let silent = bus.folder.path().join("silent");
    let listener = UnixListener::bind(&silent).unwrap();
    listener.set_nonblocking(true).unwrap();
    std::fs::set_permissions(&silent, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let accept = || {
        let mut accepted = None;
        assert!(eventually(|| listener
            .accept()
            .is_ok_and(|(connection, _)| accepted.insert(connection).set_nonblocking(false).is_ok())));
        accepted.unwrap()
    };
    let start = |socket: &Path| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut command = flyball!();
        command.arg("hold-bus").arg(socket).stdin(std::os::fd::OwnedFd::from(theirs));
        (Process(command.stderr(Stdio::null()).spawn().unwrap()), ours)
    };
    let end = |what: &str, (process, service): (Process, UnixStream)| {
        drop(service);
        assert!(ends(&process.0.id().to_string()), "{what}");
    };
    let state = "{\"state\":{\"active\":null,\"profiles\":[],\"cookies\":[],\"degraded\":\"no\",\
                 \"holds\":[],\"drifted\":[]}}\n";
    let started = start(&silent);
    let _connection = accept();
    end("without a state", started);

    let mut started = start(&silent);
    let mut connection = accept();
    started.1.write_all(state.as_bytes()).unwrap();
    connection.read_exact(&mut [0]).unwrap();
    end("while the bus does not answer", started);

    let mut started = start(&bus.socket());
    started.1.write_all(state.as_bytes()).unwrap();
    let mut asked = String::new();
    BufReader::new(&started.1).read_line(&mut asked).unwrap();
    assert!(asked.contains("serving"), "{asked}");
    bus.daemon = None;
    end("while the service does not answer, without a bus", started);

    rustix::net::listen(&listener, 0).unwrap();
    let _first = UnixStream::connect(&silent).unwrap();
    let started = start(&silent);
    // Usually this connection is one of those that fill the queue.
    std::thread::sleep(Duration::from_millis(300));
    end("while the bus takes no connection", started);
}

#[test]
fn without_its_bus_the_service_goes_on() {
    let Some(mut bus) = Bus::start(&["powerprofilesctl"]) else { return };
    bus.tool(&["set", "performance"]);
    bus.daemon = None;
    assert!(eventually(|| bus.log().contains("everything else goes on")), "{}", bus.log());
    bus.machine.expect(0, &["hold", "add", "mine", "max-freq=2GHz"]);
    assert_eq!((bus.epp().as_str(), bus.names().len()), ("performance", 2));
    bus.start_daemon();
    assert!(eventually(|| bus.is_served()), "{}", bus.log());
    assert_eq!(bus.tool(&["get"]), "performance\n");
    // The next boot restores the choice of the last one.
    bus.machine.expect(0, &["restore"]);
    bus.service = None;
    bus.start_service();
    assert_eq!((bus.tool(&["get"]).as_str(), bus.names()), ("performance\n", vec!["desktop".to_owned()]));
    // A killed service leaves a hold of a program that has ended. The next service releases it.
    let mut launch = bus.client("powerprofilesctl");
    launch.args(["launch", "-p", "power-saver", "--", "sleep", "60"]);
    let launched = Process(launch.stdout(Stdio::null()).spawn().unwrap());
    assert!(eventually(|| bus.names().len() == 2));
    bus.service = None;
    drop(launched);
    bus.start_service();
    assert!(eventually(|| bus.names() == ["desktop"]), "{:?}", bus.names());
}

#[test]
fn holds_of_programs_outlive_the_bus() {
    let Some(mut bus) = Bus::start(&["powerprofilesctl"]) else { return };
    let mut launch = bus.client("powerprofilesctl");
    launch.args(["launch", "-p", "power-saver", "--", "sleep", "60"]);
    let _launched = Process(launch.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    assert!(eventually(|| bus.names().len() == 1));
    bus.daemon = None;
    assert!(eventually(|| bus.log().contains("has ended")), "{}", bus.log());
    // Requests that the D-Bus process made before it ended are done by now.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(bus.names().len(), 1, "{}", bus.log());
}

/// Reloads while another command has the lock, and with a file that cannot be read.
#[test]
fn a_reload_keeps_the_bus_and_its_profiles() {
    let Some(mut bus) = Bus::start(&["powerprofilesctl"]) else { return };
    let (config, saving) = (bus.folder.path().join("hold.toml"), bus.folder.path().join("saving.toml"));
    std::fs::write(&saving, "epp = \"balance_power\"\n").unwrap();
    std::fs::write(&config, format!("[desktop]\npower-saver = \"{}\"\n", saving.display())).unwrap();
    bus.service = None;
    bus.start_service();
    let pid = bus.service.as_ref().unwrap().0.id().to_string();
    let reload = || assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    let mut locked = super::hold::hold_lock(&bus.machine, 8);
    reload();
    let start = Instant::now();
    assert_eq!(bus.tool(&["get"]), "balanced\n");
    assert!(locked.try_wait().unwrap().is_none(), "the answer took {:?}", start.elapsed());
    assert!(locked.wait().unwrap().success());
    std::fs::remove_file(&config).unwrap();
    reload();
    let error = || bus.machine.json_of_any_code(&["hold", "status"])["config_error"].clone();
    assert!(eventually(|| error().is_string()), "{}", bus.log());
    bus.tool(&["set", "power-saver"]);
    assert_eq!(bus.epp(), "balance_power", "the profile of the last configuration counts");
}

/// Returns the members of an interface: element, name, and details.
fn members(xml: &str, interface: &str) -> BTreeSet<String> {
    let start =
        xml.find(&format!("<interface name=\"{interface}\"")).unwrap_or_else(|| panic!("{interface}: {xml}"));
    let body = &xml[start..];
    let body = &body[..body.find("</interface>").unwrap()];
    let attribute = |tag: &str, name: &str| {
        let at = tag.find(&format!("{name}=\""))? + name.len() + 2;
        tag[at..].split('"').next().map(str::to_owned)
    };
    let (mut found, mut member, mut number) = (BTreeSet::new(), String::new(), 0);
    for tag in body.split('<').skip(2) {
        let element = tag.split([' ', '>', '/']).next().unwrap_or_default();
        let name = attribute(tag, "name").unwrap_or_default();
        let kind = attribute(tag, "type").unwrap_or_default();
        match element {
            "method" | "signal" => {
                (member, number) = (format!("{element} {name}"), 0);
                found.insert(member.clone());
            }
            "property" => {
                let access = attribute(tag, "access").unwrap_or_default();
                found.insert(format!("property {name} {kind} {access}"));
            }
            "arg" => {
                number += 1;
                let default = if member.starts_with("signal") { "out" } else { "in" };
                let direction = attribute(tag, "direction").unwrap_or_else(|| default.to_owned());
                found.insert(format!("{member}: {number} {direction} {kind} {name}"));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn introspection_is_what_is_published() {
    let Some(bus) = Bus::start(&[]) else { return };
    for (name, path) in DESKTOP.into_iter().chain([CONTROL]) {
        let mut ask = bus.client("gdbus");
        ask.args(["introspect", "--xml", "--address", &bus.address(), "--dest", name, "--object-path", path]);
        let served = members(&bus.expect(&mut ask), name);
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../dist/dbus/{name}.xml"));
        assert_eq!(served, members(&std::fs::read_to_string(file).unwrap(), name), "{name}");
    }
}
