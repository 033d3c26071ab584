//! Compares the published JSON Schemas with flyball's output: every command with `--json` on
//! recorded and simulated machines, and the files that it writes. `schemas.py` validates with the
//! Python package jsonschema.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use flyball_testing::{Ran, Tree, flyball, machines, skip};
use serde_json::Value as Json;

/// A command without a result prints nothing on stdout, even with `--json`. The message is on
/// stderr, and the exit code tells the kind of failure.
#[test]
fn a_failure_is_words_on_stderr_and_an_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (folder.path().join("state"), folder.path().join("none"));
    let state = ["--state-dir", here.to_str().unwrap()];
    let nowhere = there.to_str().unwrap();
    for (code, words) in [
        (2, &["-M", "sim:ryzen-5750g", "set", "governor=fast"][..]),
        (2, &["-M", "sim:ryzen-5750g", "plan", "governor=fast"]),
        (2, &["-M", "sim:ryzen-5750g", "apply", "no-such-profile"]),
        (2, &["-M", "sim:ryzen-5750g", "verify", "no-such-profile"]),
        (2, &["-M", "sim:ryzen-5750g", "show", "no-such-knob"]),
        (2, &["-M", "sim:ryzen-5750g", "get", "no-such-knob"]),
        (2, &["-M", "sim:ryzen-5750g", "explain", "no-such-knob"]),
        (2, &["-M", "sim:ryzen-5750g", "hold", "add", "a", "governor=fast"]),
        (2, &["-M", "sim:ryzen-5750g", "hold", "release", "none"]),
        (2, &["-M", "sim:ryzen-5750g", "hold", "release", "none", "-n"]),
        (4, &["-M", "sim:ryzen-5750g", "sst", "info"]),
        (4, &["-M", "sim:i7-2600", "set", "epp=power"]),
        (2, &["-M", nowhere, "show"]),
        (2, &["-M", nowhere, "doctor"]),
        (2, &["-M", nowhere, "save"]),
        (2, &["report", nowhere]),
        (2, &["trace", "report", nowhere]),
        (2, &["top", "--replay", nowhere]),
        (2, &["why", "--replay", nowhere]),
        (2, &["wake", "--cgroup", "no-such-group"]),
        (2, &["schema", "no-such-schema"]),
    ] {
        let ran = Ran::of(flyball!().arg("--json").args(state).args(words).current_dir(folder.path()));
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{words:?}: {}", ran.text());
        assert!(!ran.err.is_empty(), "{words:?} says nothing");
    }
}

/// Documents by schema name, without duplicates.
#[derive(Default)]
struct Samples(BTreeMap<String, Vec<Json>>);

impl Samples {
    fn add(&mut self, schema: &str, document: Json) {
        self.0.entry(schema.to_owned()).or_default().push(document);
    }

    /// Runs a command, and adds its output to the schema that it names. Returns `false` if it
    /// prints nothing.
    fn take(&mut self, folder: &Path, words: &str) -> bool {
        let words: Vec<&str> = words.split(' ').collect();
        let ran = Ran::of(flyball!().arg("--json").args(&words).current_dir(folder));
        if ran.out.is_empty() {
            // The machine lacks the feature, and stderr says so.
            assert!(!ran.err.is_empty() && ran.code != 0, "{words:?} says nothing");
            return false;
        }
        let document = ran.json();
        if document.as_array().is_some_and(Vec::is_empty) {
            return true;
        }
        let first = document.get(0).unwrap_or(&document);
        let schema = first["schema"].as_str().unwrap_or_else(|| panic!("{words:?} names no schema: {first}"));
        let name = schema.split('/').next().unwrap_or_default().to_owned();
        self.add(&name, document);
        true
    }

    /// Runs commands on a machine. Those of Speed Select only run if it has that.
    fn take_all<'a>(&mut self, folder: &Path, machine: &str, commands: impl Iterator<Item = &'a str>) {
        let mut has_speed_select = true;
        for words in commands.filter(|words| !words.is_empty()) {
            if words.starts_with("sst ") && !has_speed_select {
                continue;
            }
            let printed = self.take(folder, &format!("-M {machine} {words}"));
            has_speed_select &= printed || words != "sst info";
        }
    }

    /// Writes a file per document, for `schemas.py`.
    fn write(&self, folder: &Path) {
        for (name, documents) in &self.0 {
            for (number, document) in documents.iter().enumerate() {
                fs::write(folder.join(format!("{name}.{number}.json")), document.to_string()).unwrap();
            }
        }
    }
}

/// Commands that read, on every machine.
const READ: &str = "show
show --all
get governor epp epb turbo min-freq max-freq idle-state power-limit trl energy hwp-request clos sst-level temperature
show governor epp idle-state trl uncore-min-freq
doctor --storpool
profiles
plan latency
plan storage
plan driver-mode=passive governor=schedutil
verify realtime
quiet status
quiet -n --level fixed --cpus 1
sst info
sst perf-profile info
sst perf-profile get-lock-status
sst perf-profile get-config-levels
sst perf-profile get-config-version
sst perf-profile get-config-enabled
sst perf-profile get-config-current-level
sst base-freq info
sst turbo-freq info
sst core-power info
sst core-power get-config
sst core-power get-assoc
sst turbo-mode get-trl
sst recommend --cpus 1,2
sst base-freq enable --auto --dry-run";

/// Commands that change something, or measure, on simulated machines.
const CHANGE: &str = "--sim-state state set governor=performance turbo=off max-freq=2GHz
--sim-state state set governor=performance
--sim-state state restore -n
--sim-state state restore --last
--sim-state state restore
--sim-state state restore
--sim-state state set governor=powersave
compare -n --arm now --arm epp:governor=performance --workload spin
tune -n --over governor=all --minimize time --workload sched-pipe
--sim-state held hold add calm governor=powersave
--sim-state held hold list
--sim-state held hold status
--sim-state held hold release calm -n
--sim-state held hold release calm
hold check hold.toml
hold rehearse --events events --config hold.toml
apply powersave --at-boot -n
record r.tar.zst";

/// Measurements on simulated machines. They take seconds each, so they run on one or two machines.
const MEASURE: &str =
    "-M sim:ryzen-5750g,boot=amd_pstate=passive compare --arm now --arm b:governor=performance --rounds 6 \
--confidence 90 --workload sched-pipe --trace -o traced
-M sim:gold-6138 why --time 1s
-M sim:gold-6138 wake --time 1s
-M sim:gold-6138 wake --probe
-M sim:gold-6138 compare --arm now --arm b:turbo=off --until 20% --workload sched-pipe -o until
-M sim:gold-6138 compare --matrix governor=powersave --matrix epb=performance,power --workload io-4k --rounds 2 -o storpool
report traced
report storpool/report.csv
-M sim:gold-6138 compare --arm now --arm b:turbo=off --rounds 3 --model short.toml -o fleet/a/run
-M sim:ryzen-5750g compare --arm now --arm b:turbo=off --rounds 3 --model short.toml -o fleet/b/run
report --fleet fleet --design 1%
sim check stinner
-M sim:ryzen-5750g tune --over max-freq=2GHz,4GHz --minimize energy --subject-to time<=+90% --model short.toml --directory tuned
-M sim:ryzen-5750g,boot=amd_pstate=passive trace record -o t.dat -- gitsource --amount 3
-M sim:i7-2600 trace run -o u.dat -- gitsource --amount 2
trace report t.dat
trace diagnose t.dat";

/// Commands without a machine.
const ALONE: &str = "explain
explain turbo epp latency
doctor --list
sim list
sim show hybrid-laptop
quiet bench --as-is --runs 8 -- sleep 0.02
quiet shifts shifted.csv
show
doctor";

fn all() -> Samples {
    let folder = Tree::new();
    let mut samples = Samples::default();
    // A model for a search of one second.
    let model = "name = 'short'\ntitle = 'short'\nabout = 'short'\nunit = 'steps'\n[variation]\ncycles = 0.004\n[[task]]\n\
                 count = 8\nplace = 'fixed'\ncycles = 1e6\nturns = 10_000\n";
    folder.put("short.toml", model);
    let rows = (0..40).map(|run| format!("{run},{}\n", if run < 20 { 1000 } else { 1050 } + run % 3));
    folder.put("shifted.csv", format!("run,time (ms)\n{}", rows.collect::<String>()));
    for words in ALONE.lines().chain(MEASURE.lines()) {
        assert!(samples.take(folder.path(), words), "{words}");
    }
    bisection(&mut samples, &folder);
    #[cfg(feature = "parquet")]
    results(&mut samples, &folder);
    for machine in machines() {
        samples.take_all(folder.path(), &machine.display().to_string(), READ.lines());
    }
    let changed = ["sst-guide", "ryzen-5750g,boot=amd_pstate=passive", "hybrid-laptop"];
    for (at, name) in changed.iter().enumerate() {
        let folder = folder.path().join(at.to_string());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("events"), "10s power battery\n20s power ac\n").unwrap();
        fs::write(folder.join("hold.toml"), "[[when]]\nprofile = 'powersave'\npower = 'battery'\n").unwrap();
        samples.take_all(&folder, &format!("sim:{name}"), READ.lines().chain(CHANGE.lines()));
    }
    files(&mut samples, folder.path());
    samples
}

/// Adds a search for one of two commits.
fn bisection(samples: &mut Samples, folder: &Tree) {
    let commit = "git -c user.name=t -c user.email=t@example.org -c commit.gpgsign=false commit -qm";
    let script = format!(
        "git init -q r && cd r && for n in 100 110; do echo $n > speed && git add speed && {commit} $n; done"
    );
    let made = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).status();
    assert!(made.unwrap().success());
    let words = "compare --bisect HEAD^.. -o run --metric ([0-9]+) --better lower -- cat speed";
    assert!(samples.take(&folder.path().join("r"), words));
}

/// Adds a dataset with a shift, from a run directory, settings and another tool's results.
#[cfg(feature = "parquet")]
fn results(samples: &mut Samples, folder: &Tree) {
    for day in 1..29 {
        let value = if day < 14 { 1.0 } else { 1.2 } + f64::from(day * 7 % 11) / 1000.0;
        folder.put("h.json", format!(r#"{{"results":[{{"command":"true","times":[{value}]}}]}}"#));
        folder.put(
            "p.toml",
            format!("governor = \"{}\"\n", if day < 14 { "performance" } else { "powersave" }),
        );
        let words =
            format!("results add set p.toml h.json shifted.csv fleet/a/run --host a --time 2026-01-{day:02}");
        assert!(samples.take(folder.path(), &words));
    }
    for words in ["results list set", "results shifts set"] {
        assert!(samples.take(folder.path(), words));
    }
    let list = samples.0["results-list"][0].as_array().unwrap().clone();
    assert!(samples.0["results-shifts"][0]["shifted"][0]["changes"][0]["facts"][0].is_object());
    for input in list.iter().take(3) {
        assert!(samples.take(folder.path(), &format!("results show set {}", input["id"].as_str().unwrap())));
    }
}

/// Adds files below `folder`, and the shipped profiles.
fn files(samples: &mut Samples, folder: &Path) {
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let json = |text: &str| serde_json::from_str::<Json>(text).unwrap();
    for path in found(folder) {
        match path.file_name().unwrap().to_str().unwrap() {
            "manifest.json" => samples.add("file-manifest", json(&read(&path))),
            name if name.starts_with("snapshot-") => samples.add("file-snapshot", json(&read(&path))),
            "report.json" => samples.add("report", json(&read(&path))),
            "rounds.jsonl" => {
                let text = read(&path);
                text.lines().for_each(|line| samples.add("file-round", json(line)));
            }
            // Skip the checksum of the line.
            "journal" => read(&path)
                .lines()
                .for_each(|line| samples.add("file-journal", json(line.split_once(' ').unwrap().1))),
            _ => {}
        }
    }
    for path in found(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/profiles")) {
        let profile: toml::Table = read(&path).parse().unwrap();
        samples.add("file-profile", serde_json::to_value(profile).unwrap());
    }
}

/// The files below a folder.
fn found(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { found(&path) } else { vec![path] }).collect()
}

#[test]
fn outputs_and_files_fit_their_schemas() {
    let python = |words: &[&str]| Command::new("python3").args(words).output();
    if !python(&["-c", "import jsonschema"]).is_ok_and(|ran| ran.status.success()) {
        skip(1, "validation of outputs against the schemas", "python3 has no jsonschema");
        return;
    }
    let folder = Tree::new();
    all().write(folder.path());
    let schemas = Tree::new();
    schemas.put("all.json", &Ran::of(flyball!().args(["schema", "--all"])).out);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/schemas.py");
    let mut validate = Command::new("python3");
    let validate = validate.arg(script).arg(schemas.path().join("all.json")).arg(folder.path());
    let validate = validate.output().unwrap();
    let errors =
        format!("{}{}", String::from_utf8_lossy(&validate.stdout), String::from_utf8_lossy(&validate.stderr));
    let left: Vec<&str> = errors
        .lines()
        // `top` needs a terminal or a time.
        .filter(|line| *line != "no sample: top")
        .collect();
    assert!(left.is_empty(), "{}", left.join("\n"));
}

#[test]
fn schema_prints_the_list_and_each_schema() {
    let list = Ran::of(flyball!().arg("schema"));
    assert_eq!(list.code, 0);
    for line in list.out.lines() {
        let id = line.split(' ').next().unwrap();
        let printed = Ran::of(flyball!().args(["schema", id])).json();
        assert_eq!(printed["$id"], format!("flyball:{id}"));
    }
    assert_eq!(Ran::of(flyball!().args(["schema", "get"])).json()["$id"], "flyball:get/1");
    assert_eq!(Ran::of(flyball!().args(["schema", "nothing"])).code, 2);
}
