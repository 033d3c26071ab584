//! Tests `flyball exporter` over real sockets: its answers, its limits, and what it rejects at the
//! start.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use flyball_testing::{Ran, Tree, flyball, skip};

const SIM: [&str; 2] = ["-M", "sim:sst-guide"];

/// A running exporter, killed when dropped.
struct Exporter {
    child: Child,
    address: SocketAddr,
}

impl Exporter {
    fn start(words: &[&str]) -> Exporter {
        let mut command: Command = flyball!();
        command.args(SIM).arg("exporter").args(["--web.listen-address", "127.0.0.1:0"]).args(words);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address =
            lines.find_map(|line| line.unwrap().strip_prefix("flyball: listening on ")?.parse().ok());
        // Keep reading: a message to a closed pipe would kill the process.
        std::thread::spawn(move || lines.for_each(drop));
        Exporter { child, address: address.expect("it says where it listens") }
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket
    }

    /// Sends bytes, and reads until the connection closes.
    fn send(&self, bytes: &[u8]) -> String {
        let mut socket = self.connect();
        // The server may reject it before everything is sent.
        let _ = socket.write_all(bytes);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, path: &str, headers: &str) -> String {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n").as_bytes())
    }

    /// Returns anonymous memory only: pages of the program file depend on what it runs.
    fn memory_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}")).1
}

#[test]
fn what_it_answers() {
    let exporter = Exporter::start(&["--no-doctor"]);
    let text = exporter.get("/metrics", "");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{text}");
    assert!(body(&text).contains("flyball_machine_info{vendor=\"Intel\""), "{text}");
    let open =
        exporter.get("/metrics", "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n");
    assert!(
        open.contains("application/openmetrics-text; version=1.0.0") && open.ends_with("# EOF\n"),
        "{open}"
    );
    let head = exporter.send(b"HEAD /metrics HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(head.contains("Content-Length: ") && body(&head).is_empty(), "{head}");
    assert_eq!(body(&exporter.get("/-/healthy", "")), "OK\n");
    assert!(exporter.get("/", "").contains("href=\"/metrics\""));
    for (bytes, status) in [
        (&b"GET /x HTTP/1.1\r\nConnection: close\r\n\r\n"[..], 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (&[b'A'; 9000], 431),
        (b"GET / HTTP/1.1\r\nContent-Length: 10\r\n\r\n0123456789", 400),
    ] {
        let answer = exporter.send(bytes);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    }
    // Three requests in one write.
    let healthy = "GET /-/healthy HTTP/1.1\r\n\r\n";
    let answers = exporter.send(format!("{healthy}{healthy}GET /-/healthy HTTP/1.0\r\n\r\n").as_bytes());
    assert_eq!(answers.matches("200 OK").count(), 3, "{answers}");
}

#[test]
fn a_client_that_has_ended_its_side_is_answered() {
    let exporter = Exporter::start(&["-M", "sim:ryzen-5750g"]);
    let half_closed = |request: &[u8]| {
        let mut socket = exporter.connect();
        socket.write_all(request).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(half_closed(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 200"));
    // If the client closes its side, the rest of a request can no longer arrive.
    assert_eq!(half_closed(b"GET /-/hea"), "");
    assert_eq!(half_closed(b""), "");
}

#[test]
fn packed_answers_hold_the_same() {
    let exporter = Exporter::start(&["--no-doctor"]);
    let mut socket = exporter.connect();
    socket.write_all(b"GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    let at = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert!(String::from_utf8_lossy(&answer[..at]).contains("Content-Encoding: gzip"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&answer[at..]).read_to_string(&mut text).unwrap();
    assert!(
        text.contains("flyball_build_info") && answer.len() * 3 < text.len(),
        "{} {}",
        answer.len(),
        text.len()
    );
}

/// With two hundred clients that send a byte now and then, and a thousand that send nothing,
/// scrapes still work and memory does not grow.
#[test]
fn slow_clients_keep_no_one_out() {
    let exporter = Exporter::start(&["--no-doctor"]);
    exporter.get("/metrics", "");
    let before = exporter.memory_kib();
    let mut slow: Vec<TcpStream> = Vec::new();
    for _ in 0..200 {
        let mut socket = exporter.connect();
        let _ = socket.write_all(b"GET /met");
        slow.push(socket);
    }
    for _ in 0..3 {
        for socket in &mut slow {
            let _ = socket.write_all(b"r");
        }
        let began = Instant::now();
        assert!(exporter.get("/-/healthy", "").contains("200 OK"));
        // Takes 100 ms on an idle machine. Other tests may run at the same time.
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert!(exporter.get("/metrics", "").contains("flyball_build_info"));
    }
    drop(slow);
    for _ in 0..10 {
        let idle: Vec<TcpStream> = (0..100).map(|_| exporter.connect()).collect();
        assert!(exporter.get("/-/healthy", "").contains("200 OK"));
        drop(idle);
    }
    let after = exporter.memory_kib();
    assert!(after < before + 2048, "{before} to {after} KiB");
}

#[test]
fn an_unfinished_head_ends_after_five_seconds() {
    let exporter = Exporter::start(&["--no-doctor"]);
    let began = Instant::now();
    let answer = exporter.send(b"GET / HTTP/1.1\r\n");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!((4.5..20.0).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
}

#[test]
fn passwords_are_asked_for() {
    let tree = Tree::new();
    // The hash of 'secret', cost 4.
    tree.put("web.yml", format!("basic_auth_users:\n  prom: {HASH}\n"));
    let config = tree.path().join("web.yml");
    let exporter = Exporter::start(&["--no-doctor", "--web.config.file", config.to_str().unwrap()]);
    let without = exporter.get("/metrics", "");
    assert!(without.starts_with("HTTP/1.1 401 ") && without.contains("WWW-Authenticate: Basic"), "{without}");
    for (given, status) in [("cHJvbTpzZWNyZXQ=", 200), ("cHJvbTpzZWNyZXQ=", 200), ("cHJvbTp3cm9uZw==", 401)] {
        let answer = exporter.get("/-/healthy", &format!("Authorization: Basic {given}\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{given}: {answer}");
    }
}

const HASH: &str = "$2y$04$BhSgB/o39nTk95oRjFUa5.NORg0GVHpN/ZGPJyqjNEbLeYOAjv/HG";

#[test]
fn a_unix_socket_is_served_and_removed() {
    let tree = Tree::new();
    let path = tree.path().join("metrics.sock");
    // Left over from a run that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let address = format!("unix:{}", path.display());
    let exporter = Exporter::start(&["--no-doctor", "--web.listen-address", &address]);
    let mut socket = UnixStream::connect(&path).unwrap();
    socket.write_all(b"GET /-/healthy HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("200 OK"), "{answer}");
    let pid = i32::try_from(exporter.child.id()).unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while path.exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!path.exists());
}

/// The service manager passes a listening socket as descriptor 3.
#[test]
fn a_socket_of_the_service_manager_is_served() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&listener);
    let script = format!("exec 3<&{number}; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"");
    let child = Command::new("sh")
        .args(["-c", &script, flyball!().get_program().to_str().unwrap()])
        .args(SIM)
        .args(["exporter", "--no-doctor", "--web.systemd-socket"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let exporter = Exporter { child, address };
    assert!(exporter.get("/-/healthy", "").contains("200 OK"));
}

#[test]
fn what_it_does_not_start_with() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let tree = Tree::new();
    tree.put("tls.yml", "tls_server_config:\n  cert_file: none.crt\n  key_file: none.key\n");
    tree.put("key.yml", "basic_auth_user:\n  a: b\n");
    tree.put("text.yml", "basic_auth_users:\n  a: secret\n");
    tree.put("junk.yml", [0xff, 0xfe, 0]);
    let file = |name: &str| tree.path().join(name).display().to_string();
    let cases: &[(i32, &[&str], &str)] = &[
        (1, &["--web.listen-address", &taken], "Address already in use"),
        (2, &["--web.listen-address", "9966"], "not an address"),
        (2, &["--web.listen-address", "unix:"], "not an address"),
        (
            2,
            &["--web.config.file", &file("tls.yml")],
            if cfg!(feature = "tls") { "none.crt" } else { "no TLS" },
        ),
        (2, &["--web.config.file", &file("key.yml")], "'basic_auth_user' is not a key"),
        (2, &["--web.config.file", &file("text.yml")], "bcrypt"),
        (2, &["--web.config.file", &file("junk.yml")], "UTF-8"),
        (2, &["--web.config.file", &file("none.yml")], "cannot read"),
        (2, &["--web.telemetry-path", "metrics"], "not a path"),
        (2, &["--web.systemd-socket"], "passed no socket"),
        (2, &["--textfile", "x", "--node"], "cannot be used"),
        (1, &["--textfile", "/nowhere/x"], "cannot write"),
    ];
    for (code, words, message) in cases {
        let mut command: Command = flyball!();
        let ran = Ran::of(command.args(SIM).arg("exporter").args(*words));
        assert_eq!(ran.code, *code, "{words:?}: {}", ran.text());
        assert!(ran.err.contains(message), "{words:?}: {}", ran.err);
        assert!(!ran.err.contains("secret"), "{}", ran.err);
    }
}

/// Exports the doctor's findings, which come from another process.
#[test]
fn the_doctor_is_asked() {
    let exporter = Exporter::start(&[]);
    let until = Instant::now() + Duration::from_secs(60);
    let text = loop {
        let text = exporter.get("/metrics", "");
        if text.contains("flyball_doctor_findings{verdict=\"ok\"}") || Instant::now() > until {
            break text;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    assert!(text.contains("flyball_doctor_timestamp_seconds "), "{text}");
}

/// Prometheus' checker of metrics reports nothing, and its OpenMetrics parser reads the answer.
#[test]
fn the_checkers_have_no_complaint() {
    let exported = |format: Option<&str>| {
        let mut command: Command = flyball!();
        command.args(SIM).args(["exporter", "--stdout", "--per-cpu", "--node"]).args(format);
        let ran = Ran::of(&mut command);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out
    };
    let feed = |command: &mut Command, text: &str| -> Option<(bool, String)> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()?;
        let mut stdin = child.stdin.take().unwrap();
        let text = text.to_owned();
        let writer = std::thread::spawn(move || drop(stdin.write_all(text.as_bytes())));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Some((
            output.status.success(),
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
        ))
    };
    match feed(Command::new("promtool").args(["check", "metrics"]), &exported(None)) {
        None => skip(1, "check of metrics", "promtool is not installed (apt: prometheus)"),
        Some((is_good, said)) => assert!(is_good && said.is_empty(), "{said}"),
    }
    let program = "import sys\nfrom prometheus_client.openmetrics.parser import text_string_to_metric_families as read\n\
                   print(sum(len(family.samples) for family in read(sys.stdin.read())))";
    let has = Command::new("python3").args(["-c", "import prometheus_client"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        return skip(1, "reading of OpenMetrics", "python3 has no prometheus_client");
    }
    let (is_good, said) =
        feed(Command::new("python3").args(["-c", program]), &exported(Some("--openmetrics"))).unwrap();
    assert!(is_good && said.trim().parse::<u32>().is_ok_and(|count| count > 500), "{said}");
}

/// The rules are valid, their tests pass, and the dashboard fits Grafana's schema.
#[test]
fn rules_and_dashboard_are_sound() {
    let dist = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist");
    for words in [["check", "rules", "flyball.rules.yml"], ["test", "rules", "flyball.rules.test.yml"]] {
        match Command::new("promtool").args(words).current_dir(format!("{dist}/prometheus")).output() {
            Err(_) => skip(1, "check of rules", "promtool is not installed (apt: prometheus)"),
            Ok(output) => assert!(output.status.success(), "{words:?}: {output:?}"),
        }
    }
    let read = |path: &str| fs::read_to_string(format!("{dist}/{path}")).unwrap();
    // promtool only runs existing tests, so check that each alert fires and clears in one.
    let tests = read("prometheus/flyball.rules.test.yml");
    for alert in
        read("prometheus/flyball.rules.yml").lines().filter_map(|line| line.split("- alert: ").nth(1))
    {
        let end = tests.rfind(&format!("alertname: {alert}, exp_alerts: []"));
        let fires = tests.find(&format!("alertname: {alert}\n        exp_alerts:\n          - "));
        assert!(fires.is_some() && fires < end, "{alert} has no test in which it fires and then clears");
    }
    for name in ["flyball", "flyball-fleet"] {
        let dashboard: serde_json::Value =
            serde_json::from_str(&read(&format!("grafana/{name}.json"))).unwrap();
        assert_eq!(dashboard["uid"], name);
        let mut ids = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
            let place = &panel["gridPos"];
            assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{panel}");
        }
    }
    // Grafana publishes its schema as CUE and as the models of its SDK, which are generated from
    // it. The models drop what they do not know.
    let program = "import json, sys\nfrom grafana_foundation_sdk.models.dashboard import Dashboard\n\
                   from grafana_foundation_sdk.cog.encoder import JSONEncoder\n\
                   given = json.load(open(sys.argv[1]))\nkept = json.loads(JSONEncoder().encode(Dashboard.from_json(given)))\n\
                   print(sorted(set(given) - set(kept)))\n\
                   print(sorted({key for g, k in zip(given['panels'], kept['panels']) for key in set(g) - set(k)}))";
    let ran = Command::new("python3").args(["-c", program, &format!("{dist}/grafana/flyball.json")]).output();
    let Some(ran) = ran.ok().filter(|ran| !String::from_utf8_lossy(&ran.stderr).contains("No module named"))
    else {
        return skip(1, "check of the dashboard", "python3 has no grafana_foundation_sdk");
    };
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success() && said == "[]\n[]\n", "{said}{}", String::from_utf8_lossy(&ran.stderr));
}

/// Exports holds and drifts from the file that commands and the service share.
#[test]
fn holds_are_shown() {
    let machine = crate::change::Machine::new(2);
    let before = machine.expect(0, &["exporter", "--stdout"]).out;
    assert!(!before.contains("flyball_hold") && !before.contains("flyball_drift"), "{before}");
    machine.expect(0, &["hold", "add", "steady", "governor=performance"]);
    let text = machine.expect(0, &["exporter", "--stdout"]).out;
    for line in [
        "flyball_hold_active{hold=\"steady\",owner=\"",
        "flyball_hold_service_up 0",
        "flyball_hold_failed 0",
        "flyball_hold_config_error 0",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    // Without the service nobody compares.
    assert!(!text.contains("flyball_drift_places{"), "{text}");
}
