//! Tests `report --fleet`: merging the run directories of many machines with a known truth, and
//! directories that cannot be merged.

use std::{fs, path::Path};

use flyball_testing::{Ran, Tree, flyball};
use serde_json::Value as Json;

/// A finished comparison of two arms on a simulated machine.
fn template(folder: &Tree) -> (Json, Json) {
    let model = "name = 'short'\ntitle = 'short'\nabout = 'short'\nunit = 'steps'\n[variation]\ncycles = 0.004\n[[task]]\n\
                 count = 2\nplace = 'fixed'\ncycles = 1e6\nturns = 1_000\n";
    folder.put("short.toml", model);
    let words =
        "-M sim:ryzen-5750g compare --arm now --arm slow:max-freq=3GHz --rounds 2 --model short.toml -o one";
    assert_eq!(Ran::of(flyball!().current_dir(folder.path()).args(words.split(' '))).code, 0);
    let one = folder.path().join("one");
    let manifest = serde_json::from_str(&fs::read_to_string(one.join("manifest.json")).unwrap()).unwrap();
    let rounds = fs::read_to_string(one.join("rounds.jsonl")).unwrap();
    let rounds = rounds.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    (manifest, rounds.into_iter().find(|round| round["warm_up"] == false).unwrap())
}

/// Writes a machine's run. `effect` is the logarithm of the second arm over the first, and the
/// noise depends on the block's number.
fn put(at: &Path, template: &(Json, Json), (name, firmware): (&str, &str), effect: f64, blocks: usize) {
    let (mut manifest, round) = template.clone();
    manifest["machine"]["system"] = serde_json::json!({"hostname": name, "firmware": firmware});
    fs::create_dir_all(at).unwrap();
    fs::write(at.join("manifest.json"), manifest.to_string()).unwrap();
    let mut lines = String::new();
    for block in 0..blocks {
        for arm in 0..2_usize {
            let mut round = round.clone();
            // Differs between blocks and machines, with a mean near zero.
            let noise = ((block * 7 + name.len() * 3 + arm * 5 + name.as_bytes()[4] as usize) % 11) as f64
                / 11.0
                - 0.45;
            round["block"] = block.into();
            round["arm"] = arm.into();
            round["outcome"]["value"] = (10.0 * (arm as f64 * effect + 0.01 * noise).exp()).into();
            lines += &format!("{round}\n");
        }
    }
    fs::write(at.join("rounds.jsonl"), lines).unwrap();
}

fn report(folder: &Tree, words: &str) -> Ran {
    Ran::of(flyball!().current_dir(folder.path()).args(words.split(' ')))
}

#[test]
fn a_fleet_is_put_together() {
    let folder = Tree::new();
    let template = template(&folder);
    let fleet = folder.path().join("fleet");
    for number in 0..24 {
        let name = format!("node{}", char::from(b'a' + number));
        let old = number % 3 == 0;
        let effect = if old { 0.03 } else { -0.05 } + 0.002 * f64::from(number % 5);
        let effect = if number == 7 { 0.06 } else { effect };
        put(&fleet.join(&name).join("run"), &template, (&name, if old { "1.2" } else { "1.3" }), effect, 8);
    }
    // An older run of a machine, an incomplete run, something else, and a host without results.
    let mut older = template.clone();
    older.0["boots"][0]["started"] = 1.into();
    put(&fleet.join("before"), &older, ("nodea", "1.2"), 0.5, 8);
    put(&fleet.join("cut"), &template, ("nodez", "1.2"), 0.0, 1);
    folder.put("fleet/other/manifest.json", "{}");
    // A directory of a later flyball, and half of one.
    let mut later = template.clone();
    later.0["version"] = 99.into();
    put(&fleet.join("later"), &later, ("nodex", "1.3"), 0.0, 8);
    put(&fleet.join("half"), &template, ("nodew", "1.3"), 0.0, 8);
    let manifest = fs::read_to_string(fleet.join("half/manifest.json")).unwrap();
    fs::write(fleet.join("half/manifest.json"), &manifest[..manifest.len() / 2]).unwrap();
    folder.put("fleet/lost/rounds.jsonl", "");
    std::os::unix::fs::symlink(folder.path().join("one"), fleet.join("link")).unwrap();
    folder.put("hosts", "nodea.example.org\nnodeb # the second\n\nnodey\nnodey\n");

    let json = report(&folder, "--json report --fleet fleet --hosts hosts --design 1% -o page").json();
    assert_eq!(json["machines"].as_array().unwrap().len(), 24);
    assert_eq!(json["missing"], serde_json::json!(["nodey"]));
    let why: Vec<&str> =
        json["skipped"].as_array().unwrap().iter().map(|one| one["why"].as_str().unwrap()).collect();
    assert_eq!(why.len(), 7, "{why:?}");
    for words in [
        "no manifest.json",
        "links are not followed",
        "a newer run of nodea",
        "one block with both arms",
        "not a manifest",
        "version 99",
        "half/manifest.json",
    ] {
        assert!(why.iter().any(|why| why.contains(words)), "{words}: {why:?}");
    }
    let time = &json["effects"][0];
    assert_eq!((&time["quantity"], &time["machines"]), (&"performance".into(), &24.into()));
    assert_eq!(time["facts"][0]["facts"], serde_json::json!(["firmware"]));
    assert!(time["facts"][0]["p_corrected"].as_f64().unwrap() < 1e-4, "{}", time["facts"][0]);
    let odd: Vec<&Json> = time["odd"].as_array().unwrap().iter().map(|odd| &odd["machine"]).collect();
    assert_eq!(odd, ["nodeh"]);
    assert!(time["worse"].as_u64().unwrap() >= 8 && time["better"].as_u64().unwrap() >= 15, "{time}");
    assert_eq!(json["design"][0].as_array().unwrap().len(), 5);
    assert!(fs::read_to_string(folder.path().join("page/fleet.html")).unwrap().contains("nodeh"));

    let text = report(&folder, "report --fleet fleet").out;
    for words in ["24 machines with 8 blocks each", "by firmware", "nodeh: +6", "7 skipped"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// Changes the rounds of a run that `put` has made: `change` gets the arm and the block.
fn change(at: &Path, change: impl Fn(&mut Json, u64, u64)) {
    let text = fs::read_to_string(at.join("rounds.jsonl")).unwrap();
    let changed = text.lines().map(|line| {
        let mut round: Json = serde_json::from_str(line).unwrap();
        let (arm, block) = (round["arm"].as_u64().unwrap(), round["block"].as_u64().unwrap());
        change(&mut round, arm, block);
        format!("{round}\n")
    });
    let changed: String = changed.collect();
    fs::write(at.join("rounds.jsonl"), changed).unwrap();
}

/// b fails in 6 of 15 rounds on some machines, in all on another, and in one on the last.
#[test]
fn rounds_that_failed_are_named() {
    let folder = Tree::new();
    let template = template(&folder);
    for (number, lost) in [0, 0, 1, 6, 6, 15].into_iter().enumerate() {
        let at = folder.path().join(format!("fleet/node{number}/run"));
        put(&at, &template, (&format!("node{number}"), "1"), -0.05, 15);
        change(&at, |round, arm, block| {
            if arm == 1 && block < lost {
                round["outcome"]["failure"] = "exit code 1".into();
                round["outcome"]["value"] = Json::Null;
            }
        });
    }
    let text = report(&folder, "report --fleet fleet").out;
    for words in [
        "6 machines with 0 to 15 blocks each",
        "better on average; the next machine is not predicted, because rounds are left out unevenly (see the notes)",
        "note: slow: rounds are left out on node2 (1 of 15; now: 0 of 15); the first: the workload failed (exit code 1)\n",
        "note: slow: rounds are left out on node3 (6 of 15; now: 0 of 15), node4 (6 of 15; now: 0 of 15), node5 (all 15; \
         now: 0 of 15); the first: the workload failed (exit code 1). These machines do not count for slow: their other \
         rounds may be a selection\n",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("expected to be"), "{text}");
    let json = report(&folder, "--json report --fleet fleet").json();
    assert_eq!((&json["effects"][0]["machines"], &json["effects"][0]["next"]), (&3.into(), &Json::Null));

    // Nothing is left of any arm.
    for number in 3..6 {
        change(&folder.path().join(format!("fleet/node{number}/run")), |round, _, _| {
            round["outcome"]["failure"] = "exit code 1".into();
        });
    }
    let text = report(&folder, "report --fleet fleet").out;
    assert!(text.contains("3 skipped"), "{text}");
    assert!(text.contains("skipped: all rounds of all arms failed or were disturbed"), "{text}");
}

/// On two of five machines, the first arm's second turn is 3 % slower than the first.
#[test]
fn machines_whose_first_arm_differs_from_itself_are_left_out() {
    let folder = Tree::new();
    let mut template = template(&folder);
    let mut again = template.0["arms"][0].clone();
    again["name"] = "now again".into();
    again["control"] = true.into();
    template.0["arms"].as_array_mut().unwrap().push(again);
    for number in 0..5 {
        let at = folder.path().join(format!("fleet/node{number}/run"));
        put(&at, &template, (&format!("node{number}"), "1"), -0.05, 16);
        let text = fs::read_to_string(at.join("rounds.jsonl")).unwrap();
        let again = text.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
        let again = again.filter(|round| round["arm"] == 0).map(|mut round| {
            let wave = 1.0 + 0.001 * (round["block"].as_f64().unwrap() - 7.5);
            let value = round["outcome"]["value"].as_f64().unwrap() * wave;
            round["outcome"]["value"] = (value * if number < 2 { 1.03 } else { 1.0 }).into();
            round["arm"] = 2.into();
            format!("{round}\n")
        });
        let again: String = again.collect();
        fs::write(at.join("rounds.jsonl"), text + &again).unwrap();
    }
    let text = report(&folder, "report --fleet fleet").out;
    assert!(!text.contains("now again") && !text.contains("hold together"), "{text}");
    let note =
        "note: now differs from itself (--aa) in wall time on node0, node1; left out of this quantity\n";
    assert!(text.contains(note), "{text}");
    let json = report(&folder, "--json report --fleet fleet").json();
    assert_eq!(json["effects"][0]["machines"], 3);
    assert!(json["effects"].as_array().unwrap().iter().all(|effect| effect["arm"] == 1));
}

/// One file for all machines: each has its own order, and the report knows which file it was.
#[test]
fn an_experiment_is_one_file() {
    let folder = Tree::new();
    let file = "name = 'turbo'\nrounds = 4\nworkload = 'sched-pipe'\namount = 500\n[[arm]]\nname = 'now'\n[[arm]]\nname = 'off'\nturbo = off\n";
    folder.put("turbo.toml", file.replace("= off", "= false"));
    let fleet = folder.path().join("fleet");
    let mut seeds = std::collections::BTreeSet::new();
    for machine in ["ryzen-5750g", "hybrid-laptop", "i7-2600"] {
        let words = format!("-M sim:{machine} compare --experiment turbo.toml -o fleet/{machine}/run");
        let ran = report(&folder, &words);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let manifest = fs::read_to_string(fleet.join(machine).join("run/manifest.json")).unwrap();
        let manifest: Json = serde_json::from_str(&manifest).unwrap();
        assert_eq!(manifest["experiment"]["name"], "turbo");
        assert_eq!(manifest["arms"][1]["wishes"][0]["value"], "off");
        assert!(seeds.insert(manifest["schedule"]["seed"].as_u64().unwrap()), "{machine}");
    }
    let json = report(&folder, "--json report --fleet fleet").json();
    assert_eq!(
        (&json["experiment"]["name"], json["machines"].as_array().unwrap().len()),
        (&"turbo".into(), 3)
    );
    assert!(report(&folder, "report --fleet fleet").out.contains("(experiment turbo)"));

    // The same name for another experiment.
    folder.put("turbo.toml", file.replace("= off", "= false").replace("rounds = 4", "rounds = 5"));
    report(&folder, "-M sim:gold-6138 compare --experiment turbo.toml -o fleet/other/run");
    let ran = report(&folder, "report --fleet fleet");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("two files name theirs 'turbo'"), "{}", ran.err);

    for (text, said) in [
        (file, "turbo.toml"),
        ("rounds = 4", "it has no name"),
        ("name = 'x'\nrounds = 'many'", "--rounds"),
        ("name = 'x'\noutput = 'y'", "'output' is not a key"),
        ("name = 'x'\nworkload = 'sched-pipe'\n[[arm]]\nname = 'now'", "two arms"),
    ] {
        folder.put("turbo.toml", text);
        let ran = report(&folder, "-M sim:i7-2600 compare --experiment turbo.toml -o refused");
        assert_eq!(ran.code, 2, "{text}: {}", ran.err);
        assert!(ran.err.contains(said), "{text}: {}", ran.err);
    }
    assert_eq!(report(&folder, "-M sim:i7-2600 compare --experiment turbo.toml --rounds 4").code, 2);
}

#[test]
fn what_cannot_be_put_together_is_refused() {
    let folder = Tree::new();
    let template = template(&folder);
    put(&folder.path().join("a/one"), &template, ("nodea", "1"), 0.1, 4);
    put(&folder.path().join("a/two"), &template, ("nodeb", "1"), 0.1, 4);
    let mut other = template;
    other.0["arms"][1]["name"] = "other".into();
    put(&folder.path().join("b"), &other, ("nodec", "1"), 0.1, 4);
    folder.put("empty/readme", "");
    for (words, said) in [
        ("report --fleet a b", "2 different experiments"),
        ("report --fleet empty", "no run directory"),
        ("report --fleet nowhere", "not a directory"),
        ("report a b", "one directory"),
        ("report --fleet a/one", "only nodea has results"),
        ("report --fleet a --hosts nowhere", "nowhere"),
        ("report --fleet a --design 1", "percent sign"),
        ("report a --design 1%", "--fleet"),
        ("report --fleet a --fail-if time>+2%", "'flyball report DIR' judges them for each machine"),
        ("report --fleet a --export-json a.json", "--export-json"),
    ] {
        let ran = report(&folder, words);
        assert_eq!(ran.code, 2, "{words}: {}", ran.err);
        assert!(ran.err.contains(said), "{words}: {}", ran.err);
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.path().join("fifo"), rustix::fs::Mode::RUSR).unwrap();
    assert_eq!(report(&folder, "report --fleet a --hosts fifo").code, 0, "it does not wait for a writer");
    // Two machines are merged. Predicting the next one needs at least three.
    let json = report(&folder, "--json report --fleet a").json();
    assert_eq!(json["effects"][0]["next"], Json::Null);
}
