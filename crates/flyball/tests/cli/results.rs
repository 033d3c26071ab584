//! Tests `results`: adding inputs of every kind and getting them back, many writers of which some
//! are killed, and inputs that are rejected.

use flyball_testing::{Ran, Tree, flyball};

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_says_so() {
    let folder = Tree::new();
    let ran = Ran::of(flyball!().current_dir(folder.path()).args(["results", "add", "set", "."]));
    assert!(ran.code == 4 && ran.err.contains("--features parquet"), "{}", ran.text());
    assert!(!folder.path().join("set").exists());
}

#[cfg(feature = "parquet")]
mod with_parquet {
    use std::{
        collections::BTreeSet,
        fs,
        path::Path,
        process::{Command, Stdio},
        time::Duration,
    };

    use flyball_testing::skip;
    use serde_json::{Value as Json, json};

    use super::*;

    fn ran(folder: &Tree, words: &str) -> Ran {
        Ran::of(flyball!().current_dir(folder.path()).args(words.split(' ')).stdin(Stdio::null()))
    }

    fn ok(folder: &Tree, words: &str) -> Ran {
        let ran = ran(folder, words);
        assert_eq!(ran.code, 0, "{words}: {}", ran.text());
        ran
    }

    /// A comparison of two arms on a simulated machine in the folder `one`.
    fn compare(folder: &Tree) {
        let model = "name = 'short'\ntitle = 'short'\nabout = 'short'\nunit = 'steps'\n[variation]\ncycles = 0.004\n[[task]]\n\
                     count = 2\nplace = 'fixed'\ncycles = 1e6\nturns = 1_000\n";
        folder.put("short.toml", model);
        ok(
            folder,
            "-M sim:ryzen-5750g compare --arm now --arm slow:max-freq=3GHz --rounds 3 --model short.toml -o one",
        );
    }

    fn read(path: &Path) -> Json {
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    /// Writes weekly runs of a host as copies of `one`. `level` returns what each run measures, and
    /// `kernel` its kernel.
    fn series(
        folder: &Tree,
        host: &str,
        runs: usize,
        level: impl Fn(usize) -> f64,
        kernel: impl Fn(usize) -> &'static str,
    ) {
        let one = folder.path().join("one");
        let manifest = read(&one.join("manifest.json"));
        let text = fs::read_to_string(one.join("rounds.jsonl")).unwrap();
        let rounds: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for run in 0..runs {
            let mut manifest = manifest.clone();
            manifest["machine"]["system"] = json!({"hostname": host, "firmware": "1.0"});
            manifest["boots"][0]["started"] = (1_767_225_600 + run as u64 * 604_800).into();
            manifest["boots"][0]["kernel"] = kernel(run).into();
            let mut lines = String::new();
            for round in &rounds {
                let mut round = round.clone();
                let noise =
                    ((run * 7 + host.len() * 3 + host.as_bytes()[4] as usize) % 11) as f64 / 11.0 - 0.45;
                round["outcome"]["value"] = (level(run) * (1.0 + 0.01 * noise)).into();
                lines += &format!("{round}\n");
            }
            let at = folder.path().join(format!("runs/{host}/run{run}"));
            fs::create_dir_all(&at).unwrap();
            fs::write(at.join("manifest.json"), manifest.to_string()).unwrap();
            fs::write(at.join("rounds.jsonl"), lines).unwrap();
        }
    }

    /// Writes outputs of other tools in their own formats.
    fn outputs(folder: &Tree) {
        folder.put(
            "tools/node1/hyperfine.json",
            r#"{"results":[{"command":"true","times":[0.1,0.2,0.3],"exit_codes":[0,0,0]}]}"#,
        );
        folder.put(
            "tools/node1/google.json",
            r#"{"context":{"date":"2026-01-31T12:00:00+01:00","host_name":"node9","num_cpus":8},"benchmarks":[
               {"name":"BM_a/8","run_name":"BM_a/8","run_type":"iteration","real_time":5,"cpu_time":4,"time_unit":"us"},
               {"name":"BM_a/8_mean","run_name":"BM_a/8","run_type":"aggregate","real_time":5,"cpu_time":4,"time_unit":"us"}]}"#,
        );
        folder.put(
            "tools/node1/pyperf.json",
            r#"{"version":"1.0","metadata":{"name":"call","unit":"second","hostname":"node8","cpu_model_name":"X 1",
                "platform":"Linux-6.1.0-40-amd64-x86_64-with-glibc2.36"},
                "benchmarks":[{"runs":[{"values":[0.02,0.03],"metadata":{"date":"2026-02-01 10:00:00.5"}},{"values":[0.04]}]}]}"#,
        );
        folder.put(
            "tools/node1/fio.json",
            "note: both iodepth >= 1 and synchronous I/O engine are selected\n{\"fio version\":\"fio-3.33\",\"timestamp\":1769817600,\
             \"global options\":{\"ioengine\":\"libaio\"},\"jobs\":[{\"jobname\":\"randread\",\"error\":0,\"read\":{\"bw_bytes\":1048576,\
             \"iops\":256.0,\"clat_ns\":{\"mean\":9000.5,\"percentile\":{\"99.000000\":20000}}},\"write\":{\"bw_bytes\":0,\"iops\":0}}]}",
        );
    }

    #[test]
    fn inputs_of_every_kind_go_in_once_and_come_out() {
        let folder = Tree::new();
        compare(&folder);
        outputs(&folder);
        for (name, words) in [("doctor", "doctor"), ("show", "show")] {
            let report = ok(&folder, &format!("-M sim:ryzen-5750g --json {words}")).out;
            folder.put(format!("tools/node1/{name}.json"), &report);
        }
        ok(&folder, "-M sim:ryzen-5750g save tools/node1/saved.toml");

        let added = ok(&folder, "--json results add set one --host node1").json();
        assert_eq!(
            (&added["inputs"], &added["known"], &added["skipped"]),
            (&json!(1), &json!(0), &json!([]))
        );
        assert_eq!(
            added["rows"],
            fs::read_to_string(folder.path().join("one/rounds.jsonl")).unwrap().lines().count()
        );
        let added = ok(&folder, "--json results add set one tools --host node1").json();
        assert_eq!(
            (&added["inputs"], &added["known"], &added["skipped"]),
            (&json!(7), &json!(1), &json!([])),
            "{added}"
        );
        // Later, from another path: these are the same inputs.
        fs::rename(folder.path().join("tools"), folder.path().join("moved")).unwrap();
        let added = ok(&folder, "--json results add set moved --host node1").json();
        assert_eq!(
            (&added["inputs"], &added["known"], &added["files"]),
            (&json!(0), &json!(7), &json!(0)),
            "{added}"
        );
        // hyperfine's files have no time.
        let json = r#"{"results":[{"command":"constant","times":[0.5]}]}"#;
        folder.put("weeks/node1/1.json", json);
        folder.put("weeks/node1/2.json", json);
        let weeks = ok(&folder, "results add weekly weeks").out;
        assert!(weeks.contains("1 was there already (1 of these names no time"), "{weeks}");
        let second =
            ok(&folder, "--json results add weekly weeks/node1/2.json --host node1 --time 2026-02-08");
        assert_eq!((&second.json()["inputs"], &second.json()["undated"]), (&json!(1), &json!(0)));

        let list = ok(&folder, "--json results list set").json();
        what_came_out(&folder, list.as_array().unwrap());
    }

    fn what_came_out(folder: &Tree, list: &[Json]) {
        assert_eq!(list.len(), 8);
        let of = |kind: &str| list.iter().filter(|one| one["kind"] == kind).count();
        assert_eq!((of("rounds"), of("findings"), of("settings")), (5, 1, 2));
        let hosts: BTreeSet<&str> = list.iter().map(|one| one["host"].as_str().unwrap()).collect();
        // An input that names its host keeps it.
        assert!(hosts.contains("node9") && hosts.contains("node8") && hosts.contains("node1"), "{hosts:?}");
        assert!(ok(folder, "results list set --host node9").out.contains("BM_a/8"));

        let fio = list.iter().find(|one| one["benchmarks"] == json!(["randread read"])).unwrap();
        assert_eq!(fio["time"], 1_769_817_600_000_u64);
        let shown =
            ok(folder, &format!("--json results show set {}", &fio["id"].as_str().unwrap()[..10])).json();
        let results: Vec<(&str, f64)> = shown["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["metric"].as_str().unwrap(), one["median"].as_f64().unwrap()))
            .collect();
        assert_eq!(
            results,
            [
                ("latency 99 %", 20000.0),
                ("mean latency", 9000.5),
                ("operations", 256.0),
                ("throughput", 1_048_576.0)
            ]
        );
        assert_eq!(shown["settings"]["ioengine"], "libaio");
        let pyperf = list.iter().find(|one| one["host"] == "node8").unwrap();
        let shown = ok(folder, &format!("--json results show set {}", pyperf["id"].as_str().unwrap())).json();
        assert_eq!(
            (&shown["facts"]["processor"], &shown["facts"]["kernel"]),
            (&json!("X 1"), &json!("6.1.0-40-amd64"))
        );
        assert_eq!(shown["results"][0]["rounds"], 2);
        assert_eq!(shown["time"], 1_769_940_000_500_u64);

        let rows = ok(folder, "results export set rounds").out;
        let lines: Vec<&str> = rows.lines().collect();
        assert!(lines[0].starts_with("id,host,time,simulated,source,tool,processor"));
        assert!(
            lines.iter().any(|line| line.contains(",node1,") && line.contains(",slow,max-freq=3GHz,1,")),
            "{rows}"
        );
        assert!(ok(folder, "results export set findings").out.contains(",warning,") || !rows.is_empty());
        let settings = ok(folder, "results export set settings").out;
        assert!(settings.lines().any(|line| line.contains(",governor,")), "{settings}");
    }

    #[test]
    fn a_comparison_that_goes_on_is_added_without_what_is_there() {
        let folder = Tree::new();
        compare(&folder);
        let log = folder.path().join("one/rounds.jsonl");
        let whole = fs::read_to_string(&log).unwrap();
        let lines: Vec<&str> = whole.lines().collect();
        // Simulate a crash: the last line is torn.
        fs::write(&log, format!("{}\n{}", lines[..3].join("\n"), &lines[3][..20])).unwrap();
        let first = ok(&folder, "--json results add set one --host node1");
        assert_eq!(first.json()["rows"], 3);
        assert!(first.err.contains("rounds; when it has the others"), "{}", first.err);
        fs::write(&log, &whole).unwrap();
        assert_eq!(ok(&folder, "--json results add set one --host node1").json()["rows"], lines.len() - 3);
        assert_eq!(ok(&folder, "--json results add set one --host node1").json()["known"], 1);
        let list = ok(&folder, "--json results list set").json();
        assert_eq!((list.as_array().unwrap().len(), &list[0]["rows"]), (1, &json!(lines.len())));
    }

    #[test]
    fn shifts_are_found_with_what_changed_and_nothing_else_is() {
        let folder = Tree::new();
        compare(&folder);
        let old_then_new = |at: usize| move |run: usize| if run < at { "6.1.1" } else { "6.12.2" };
        for host in ["nodea", "nodeb", "nodec"] {
            series(&folder, host, 30, |run| if run < 18 { 2.0 } else { 2.3 }, old_then_new(18));
        }
        // A host with other kernels but no change, one with a change but no known reason, one with
        // neither, and one with too few runs.
        series(&folder, "noded", 30, |_| 2.0, old_then_new(18));
        series(&folder, "nodee", 30, |run| if run < 12 { 2.0 } else { 1.5 }, |_| "6.1.1");
        series(&folder, "nodef", 30, |_| 2.0, |_| "6.1.1");
        series(&folder, "nodeg", 6, |run| if run < 3 { 2.0 } else { 3.0 }, |_| "6.1.1");
        ok(&folder, "results add set runs");
        let found = ok(&folder, "--json results shifts set").json();
        let shifted = found["shifted"].as_array().unwrap();
        let hosts: BTreeSet<&str> = shifted.iter().map(|one| one["host"].as_str().unwrap()).collect();
        assert_eq!(hosts, BTreeSet::from(["nodea", "nodeb", "nodec", "nodee"]), "{found}");
        // Two arms per host.
        assert_eq!((shifted.len(), &found["series"], &found["short"]), (8, &json!(12), &json!(2)));
        for one in shifted {
            let changes = one["changes"].as_array().unwrap();
            assert_eq!(changes.len(), 1, "{one}");
            let (facts, after) = (&changes[0]["facts"], changes[0]["after"].as_u64().unwrap());
            if one["host"] == "nodee" {
                assert_eq!(
                    (facts, after / 604_800_000),
                    (&json!([]), (1_767_225_600 + 12 * 604_800) / 604_800)
                );
                continue;
            }
            assert_eq!(
                facts,
                &json!([{"name": "kernel", "before": "6.1.1", "after": "6.12.2", "runs_away": 0}])
            );
            assert!((changes[0]["change"].as_f64().unwrap() - 0.15).abs() < 0.01);
        }
        let with = &found["with"][0];
        assert_eq!(
            (&with["name"], &with["shifted"], &with["of"]),
            (&json!("kernel"), &json!(3), &json!(4)),
            "{with}"
        );
        let text = ok(&folder, "results shifts set").out;
        assert!(text.contains("3 of 4") && text.contains("kernel 6.1.1 -> 6.12.2"), "{text}");
        assert!(text.contains("by chance, on average (not counting seasons)\n"), "{text}");
        let only = ok(&folder, "--json results shifts set --host nodee").json();
        assert_eq!((only["shifted"].as_array().unwrap().len(), &only["hosts"]), (2, &json!(1)));
        let later = ok(&folder, "--json results shifts set --since 2026-05-20").json();
        assert_eq!(later["shifted"], json!([]), "{later}");
        assert_eq!(ran(&folder, "results shifts set --confidence 101").code, 2);
        assert_eq!(ok(&folder, "--json results shifts set --benchmark none").json()["series"], 0);
    }

    /// A program that crashes at once is not 100 times as fast.
    #[test]
    fn runs_that_failed_are_no_shift() {
        let folder = Tree::new();
        for run in 0..24 {
            let (time, code) = if run < 12 { (10.0, "0") } else { (0.1, ["1", "139"][run % 2]) };
            let time = time * (1.0 + 0.001 * ((run * 7) % 25) as f64);
            let name = format!("files/node1/{run}.json");
            folder.put(
                &name,
                format!(r#"{{"results":[{{"command":"bench","times":[{time}],"exit_codes":[{code}]}}]}}"#),
            );
            let at = std::time::UNIX_EPOCH + Duration::from_secs(1_767_225_600 + run as u64 * 86_400);
            fs::File::options()
                .write(true)
                .open(folder.path().join(&name))
                .unwrap()
                .set_modified(at)
                .unwrap();
        }
        ok(&folder, "results add set files");
        let text = ok(&folder, "results shifts set").out;
        assert!(text.contains("12 rounds\n12 failed rounds are left out\nno shift found"), "{text}");
        let rows = ok(&folder, "results export set rounds").out;
        let count = |why: &str| rows.lines().filter(|line| line.contains(why)).count();
        assert_eq!((count(",exit code 1,"), count(",exit code 139,")), (6, 6), "{rows}");
    }

    #[test]
    fn what_a_run_does_not_say_a_snapshot_before_it_says() {
        let folder = Tree::new();
        for week in 0..24_u64 {
            let value = if week < 12 { 1.0 } else { 1.2 } + 0.001 * ((week * 7) % 11) as f64;
            let time = |offset: u64| {
                let seconds = 1_767_225_600 + week * 604_800 + offset;
                let (day, rest) = (seconds / 86_400 - 20_454, seconds % 86_400);
                // Compute the dates of weeks from 2026-01-01 on.
                let months = [31, 28, 31, 30, 31, 30, 31];
                let mut left = day;
                let mut month = 0;
                while left >= months[month] {
                    left -= months[month];
                    month += 1;
                }
                format!("2026-{:02}-{:02}T{:02}:00:00Z", month + 1, left + 1, rest / 3600)
            };
            let governor = if week < 12 { "performance" } else { "powersave" };
            folder.put("saved.toml", format!("governor = \"{governor}\"\n# {week}\n"));
            ok(&folder, &format!("results add set saved.toml --host node1 --time {}", time(0)));
            folder.put("h.json", format!(r#"{{"results":[{{"command":"true","times":[{value}]}}]}}"#));
            ok(&folder, &format!("results add set h.json --host node1 --time {}", time(7200)));
        }
        let found = ok(&folder, "--json results shifts set").json();
        let change = &found["shifted"][0]["changes"][0];
        assert_eq!(
            change["facts"],
            json!([{"name": "governor", "before": "performance", "after": "powersave", "runs_away": 0}]),
            "{found}"
        );
        assert_eq!(change["better"], false);
    }

    #[test]
    fn what_cannot_be_added_is_named_and_the_rest_is_added() {
        let folder = Tree::new();
        compare(&folder);
        outputs(&folder);
        fs::rename(folder.path().join("tools"), folder.path().join("bad")).unwrap();
        let whole = fs::read_to_string(folder.path().join("bad/node1/google.json")).unwrap();
        folder.put("bad/cut.json", &whole[..whole.len() - 9]);
        folder.put("bad/empty.json", "");
        folder.put("bad/other.json", "{\"a\": 1}");
        folder.put("bad/newer.json", "{\"schema\": \"doctor/9\", \"findings\": []}");
        folder.put("bad/why.json", "{\"schema\": \"why/1\"}");
        folder.put("bad/binary.json", "\u{0}\u{1}");
        folder.put("bad/half/rounds.jsonl", "");
        folder.put("bad/early/manifest.json", "{\"format\": \"flyball-comparison\", \"version\": 1");
        let manifest = fs::read_to_string(folder.path().join("one/manifest.json")).unwrap();
        folder.put("bad/later/manifest.json", manifest.replacen("\"version\": 1", "\"version\": 2", 1));
        folder.put("bad/none/manifest.json", &manifest);
        std::os::unix::fs::symlink("../one", folder.path().join("bad/link")).unwrap();
        let added = ok(&folder, "--json results add set bad").json();
        assert_eq!(added["inputs"], 4, "{added}");
        let skipped = added["skipped"].as_array().unwrap();
        for (path, words) in [
            ("bad/cut.json", "bad JSON: EOF"),
            ("bad/empty.json", "no results"),
            ("bad/other.json", "JSON of none of"),
            ("bad/newer.json", "schema 9; this flyball reads 1"),
            ("bad/why.json", "'why' JSON is not stored"),
            ("bad/binary.json", "neither a run directory"),
            ("bad/half", "rounds and no manifest.json"),
            ("bad/early", "not a manifest"),
            ("bad/later", "written by a newer flyball"),
            ("bad/none", "it has no results"),
            ("bad/link", "links are not followed"),
        ] {
            let why = skipped.iter().find(|one| one["path"] == path).map(|one| one["why"].as_str().unwrap());
            assert!(why.is_some_and(|why| why.contains(words)), "{path}: {why:?}");
        }
        assert_eq!(skipped.len(), 11, "{skipped:?}");
        // As the only input, it is an error.
        let alone = ran(&folder, "results add other bad/cut.json");
        assert!(alone.code == 2 && alone.err.contains("nothing can be added"), "{}", alone.text());
        assert!(!folder.path().join("other").exists());
        let absent = ran(&folder, "results add other absent.json");
        assert!(
            absent.code == 2 && absent.err.contains("No such file or directory (ENOENT)"),
            "{}",
            absent.text()
        );
        // A simulated machine is its own host, unless the user names one.
        ok(&folder, "results add simulated one");
        ok(&folder, "results add simulated one --host node1");
        let list = ok(&folder, "--json results list simulated").json();
        let hosts: BTreeSet<&str> =
            list.as_array().unwrap().iter().filter_map(|one| one["host"].as_str()).collect();
        assert_eq!(hosts, BTreeSet::from(["node1", "sim:ryzen-5750g"]), "{list}");
        let nameless = ran(&folder, "results add set bad/node1/hyperfine.json");
        assert!(nameless.code == 2 && nameless.err.contains("give --host"), "{}", nameless.text());
        for (words, expected) in [
            ("results list nowhere", "there is no dataset"),
            ("results list bad", "is not a dataset"),
            ("results add bad one", "is not a dataset"),
            ("results show set ffffffff", "there is no input"),
            ("results add set one --time yesterday", "is not a time"),
            ("--json results export set rounds", "export prints CSV"),
        ] {
            let ran = ran(&folder, words);
            assert!(ran.code == 2 && ran.err.contains(expected), "{words}: {}", ran.text());
        }
    }

    #[test]
    fn files_of_others_are_named_and_passed_over() {
        let folder = Tree::new();
        compare(&folder);
        ok(&folder, "results add set one --host node1");
        let list = || ok(&folder, "--json results list set");
        let before = list();
        assert!(before.err.is_empty(), "{}", before.err);
        let month = fs::read_dir(folder.path().join("set/version=1/kind=rounds"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        let own = fs::read_dir(&month).unwrap().next().unwrap().unwrap().path();
        let bytes = fs::read(&own).unwrap();
        fs::write(month.join("cut.parquet"), &bytes[..bytes.len() / 2]).unwrap();
        fs::write(month.join("text.parquet"), "no").unwrap();
        fs::write(month.join(".flyball-torn"), "PAR1").unwrap();
        // A table of another program: of `top`.
        ok(&folder, "-M sim:i7-2600 top -n 3 -i 50ms --record top.fbt");
        ok(&folder, "top --replay top.fbt --parquet top.parquet");
        fs::rename(folder.path().join("top.parquet"), month.join("foreign.parquet")).unwrap();
        fs::create_dir_all(folder.path().join("set/version=2/kind=rounds/month=2027-01")).unwrap();
        folder.put("set/notes.txt", "mine");
        let after = list();
        assert_eq!(before.out, after.out);
        for words in [
            "cut.parquet",
            "text.parquet",
            "foreign.parquet",
            "version=2 is passed over: written by a newer",
            "notes.txt",
        ] {
            assert!(after.err.contains(words), "{words}: {}", after.err);
        }
        assert!(!after.err.contains("torn"), "{}", after.err);
        // The next writer removes leftovers of a killed writer, and nothing else.
        let names = || -> BTreeSet<String> {
            fs::read_dir(&month)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect()
        };
        let mut manifest = read(&folder.path().join("one/manifest.json"));
        manifest["schedule"]["seed"] = 77.into();
        folder.put("two/manifest.json", manifest.to_string());
        fs::copy(folder.path().join("one/rounds.jsonl"), folder.path().join("two/rounds.jsonl")).unwrap();
        let there = names();
        ok(&folder, "results add set two --host node1");
        let now = names();
        let gone: Vec<&String> = there.difference(&now).collect();
        assert_eq!(gone, [".flyball-torn"]);
        assert_eq!(now.len(), there.len(), "one new file, and none that was removed but the torn one");
    }

    #[test]
    fn two_experiments_under_one_name_are_kept_apart() {
        let folder = Tree::new();
        compare(&folder);
        series(&folder, "nodea", 24, |_| 2.0, |_| "6.1.1");
        // Half of the runs are of another command with the same name.
        for run in (1..24).step_by(2) {
            let path = folder.path().join(format!("runs/nodea/run{run}/manifest.json"));
            let mut manifest = read(&path);
            manifest["workload"]["argv"] = json!(["./bench", "--twice"]);
            fs::write(path, manifest.to_string()).unwrap();
        }
        ok(&folder, "results add set runs");
        let found = ok(&folder, "--json results shifts set").json();
        assert_eq!(found["ambiguous"], json!(["short (model)"]), "{found}");
        assert_eq!((&found["series"], &found["shifted"]), (&json!(4), &json!([])));
        assert!(ok(&folder, "results shifts set").out.contains("several experiments"));
    }

    /// Starts writers, kills some at random moments, and adds everything again. Each input must be
    /// there exactly once.
    #[test]
    fn many_writers_at_once_of_which_some_are_killed() {
        const WRITERS: usize = 12;
        let folder = Tree::new();
        compare(&folder);
        for writer in 0..WRITERS {
            series(&folder, &format!("node{}", char::from(b'a' + writer as u8)), 8, |_| 2.0, |_| "6.1.1");
        }
        let start = |words: String| {
            let mut command: Command = flyball!();
            command.current_dir(folder.path()).args(words.split(' ')).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut killed = 0;
        for turn in 0..4_u64 {
            let mut writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let host = char::from(b'a' + writer as u8);
                    // Several writers at once for each host, one run after the other.
                    start(format!(
                        "results add set runs/node{host}/run{} runs/node{host}/run{} runs/nodea",
                        turn,
                        turn + 1
                    ))
                })
                .collect();
            for (number, writer) in writers.iter_mut().enumerate() {
                if number % 2 == 0 {
                    std::thread::sleep(Duration::from_millis((turn * 13 + number as u64 * 7) % 40));
                    writer.kill().unwrap();
                    killed += 1;
                }
            }
            for mut writer in writers {
                writer.wait().unwrap();
            }
            // The dataset is readable at any time, and none of its files is skipped.
            if folder.path().join("set/version=1").is_dir() {
                let list = ok(&folder, "results list set");
                assert!(list.err.is_empty(), "{}", list.err);
            }
        }
        ok(&folder, "results add set runs");
        assert_eq!(ok(&folder, "--json results add set runs").json()["known"], WRITERS * 8);
        let list = ok(&folder, "--json results list set").json();
        let rounds = fs::read_to_string(folder.path().join("one/rounds.jsonl")).unwrap().lines().count();
        assert_eq!(list.as_array().unwrap().len(), WRITERS * 8);
        assert!(list.as_array().unwrap().iter().all(|one| one["rows"] == rounds), "{list}");
        println!("{killed} writers killed");
    }

    #[test]
    fn a_full_disk_is_an_error_and_leaves_a_readable_dataset() {
        let folder = Tree::new();
        compare(&folder);
        let disk = folder.path().join("disk");
        fs::create_dir(&disk).unwrap();
        let script = format!(
            "mount -t tmpfs -o size=96k none {disk} || exit 77
             {flyball} results add {disk}/set {folder}/one --host node1 || exit 78
             head -c 90k /dev/zero > {disk}/fill 2>&1
             sed -i 's/\"seed\": [0-9]*/\"seed\": 99/' {folder}/one/manifest.json
             {flyball} results add {disk}/set {folder}/one --host node1; echo \"code $?\"
             find {disk}/set -name '.flyball-*' | wc -l
             {flyball} --json results list {disk}/set | grep -c '\"id\"'",
            disk = disk.display(),
            folder = folder.path().display(),
            flyball = env!("CARGO_BIN_EXE_flyball"),
        );
        let ran = Ran::of(Command::new("unshare").args(["-rm", "sh", "-c", &script]).stdin(Stdio::null()));
        if ran.code == 77 || ran.err.contains("unshare") {
            skip(1, "a full disk", "no mount namespace can be made");
            return;
        }
        assert!(ran.err.contains("No space left on device"), "{}", ran.text());
        assert!(ran.out.ends_with("code 1\n0\n1\n"), "{}", ran.text());
    }
}
