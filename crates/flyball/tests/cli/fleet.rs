//! `report --fleet`: run directories of many machines put together, with a known truth, and what cannot be put together.

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

/// A machine's run: `effect` is the logarithm of the second arm over the first, and noise follows from the block's number.
fn put(at: &Path, template: &(Json, Json), (name, firmware): (&str, &str), effect: f64, blocks: usize) {
    let (mut manifest, round) = template.clone();
    manifest["machine"]["system"] = serde_json::json!({"hostname": name, "firmware": firmware});
    fs::create_dir_all(at).unwrap();
    fs::write(at.join("manifest.json"), manifest.to_string()).unwrap();
    let mut lines = String::new();
    for block in 0..blocks {
        for arm in 0..2_usize {
            let mut round = round.clone();
            // Differs from block to block and from machine to machine, with a mean near zero.
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
    // An older run of a machine, one that was cut off, one that is something else, and a host without results.
    let mut older = template.clone();
    older.0["boots"][0]["started"] = 1.into();
    put(&fleet.join("before"), &older, ("nodea", "1.2"), 0.5, 8);
    put(&fleet.join("cut"), &template, ("nodez", "1.2"), 0.0, 1);
    folder.put("fleet/other/manifest.json", "{}");
    folder.put("fleet/lost/rounds.jsonl", "");
    std::os::unix::fs::symlink(folder.path().join("one"), fleet.join("link")).unwrap();
    folder.put("hosts", "nodea.example.org\nnodeb # the second\n\nnodey\nnodey\n");

    let json = report(&folder, "--json report --fleet fleet --hosts hosts --design 1% -o page").json();
    assert_eq!(json["machines"].as_array().unwrap().len(), 24);
    assert_eq!(json["missing"], serde_json::json!(["nodey"]));
    let why: Vec<&str> =
        json["skipped"].as_array().unwrap().iter().map(|one| one["why"].as_str().unwrap()).collect();
    assert_eq!(why.len(), 5, "{why:?}");
    for words in [
        "no manifest.json",
        "links are not followed",
        "a newer run of nodea",
        "one block with both arms",
        "not a manifest",
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
    for words in ["24 machines with 8 blocks each", "by firmware", "nodeh: +6", "5 skipped"] {
        assert!(text.contains(words), "{words}: {text}");
    }
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
    ] {
        let ran = report(&folder, words);
        assert_eq!(ran.code, 2, "{words}: {}", ran.err);
        assert!(ran.err.contains(said), "{words}: {}", ran.err);
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.path().join("fifo"), rustix::fs::Mode::RUSR).unwrap();
    assert_eq!(report(&folder, "report --fleet a --hosts fifo").code, 0, "it does not wait for a writer");
    // Two machines are put together; a third would be needed for the next one.
    let json = report(&folder, "--json report --fleet a").json();
    assert_eq!(json["effects"][0]["next"], Json::Null);
}
