//! Tests `flyball why` on simulated machines with known limits, on a recorded one, and with wrong
//! arguments.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use flyball_compare::SpeedWatch;
use flyball_control::{
    Intent,
    doctor::{self, Fix, Verdict, examine},
    write::{journal::Purpose, state::StateDir, transaction::Transaction},
};
use flyball_exporter::{Collector, Format};
use flyball_host::{CpuList, Host, Launch};
use flyball_measure::{
    RoundSpeed,
    watch::{Conditions, Limits, grade},
};
use flyball_monitor::{Facts, Options, Sampler, explain};
use flyball_simhost::{SimHost, SimSetup};
use flyball_testing::{Ran, flyball};
use flyball_top::Moment;
use serde_json::Value;

fn why(words: &[&str]) -> Ran {
    Ran::of(flyball!().args(words).env("NO_COLOR", "1"))
}

#[test]
fn who_set_a_limit_and_what_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("machine");
    let machine = ["-M", "sim:gold-6138", "--sim-state", state.to_str().unwrap()];
    let run = |words: &[&str]| why(&[&machine[..], words].concat());
    assert_eq!(run(&["set", "governor=performance", "max-freq=2.5GHz"]).code, 0);
    let ran = run(&["why", "2", "-t", "1s", "--workload", "spin", "--pin", "2", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.text());
    let found = &ran.json()["cpus"][0];
    let number = |value: &Value| value.as_f64().unwrap();
    let step = &found["steps"][0];
    assert_eq!((&step["limiter"], &step["knob"]), (&"max-freq".into(), &"max-freq".into()), "{found}");
    assert!(step["by"].as_str().unwrap().contains("max-freq=2.5GHz"), "{found}");
    let steps = found["steps"].as_array().unwrap();
    let sum: f64 = steps.iter().map(|step| number(&step["mhz"])).sum::<f64>() + number(&found["rest"]);
    assert!((sum - (number(&found["highest"]) - number(&found["mhz"]))).abs() < 1e-6, "{found}");
    assert!(found["sentence"].as_str().unwrap().starts_with("2.50 of 3.70 GHz: 1.20 lost to"), "{found}");
    // A sleeping CPU has no speed.
    let ran = run(&["why", "7", "-t", "1s"]);
    assert!(ran.out.contains("CPUs 7\n  asleep"), "{}", ran.text());
    // With another journal, it counts as another program.
    let other = folder.path().join("other");
    assert_eq!(run(&["--state-dir", other.to_str().unwrap(), "set", "max-freq=2GHz"]).code, 0);
    let ran = run(&["why", "2", "-t", "1s", "--workload", "spin", "--pin", "2", "--json"]);
    let by = ran.json()["cpus"][0]["steps"][0]["by"].as_str().unwrap().to_owned();
    assert!(
        by.starts_with("another program or the kernel, since '") && by.contains("max-freq=2.5GHz"),
        "{by}"
    );
    assert!(by.ends_with("(it wrote 2500000, the file has 2000000)"), "{by}");
}

#[test]
fn a_recording_shows_the_limits_that_somebody_set() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (state, recorded) = (path("machine"), path("recorded"));
    let machine = ["-M", "sim:gold-6138", "--sim-state", state.as_str()];
    for words in [&["set", "max-freq=2GHz"][..], &["record", recorded.as_str()]] {
        let ran = why(&[&machine[..], words].concat());
        assert_eq!(ran.code, 0, "{}", ran.text());
    }
    let ran = why(&["-M", &recorded, "why", "3"]);
    assert_eq!(ran.code, 0, "{}", ran.text());
    assert!(ran.out.contains("2000 MHz at most  max-freq: scaling_max_freq"), "{}", ran.text());
    // Nobody set a limit on these. With acpi-cpufreq, boost is above the highest P-state.
    for machine in ["milan0", "icx2s0", "turin0", "spr1"] {
        let recorded = format!("{}/../../machines/{machine}.tar.zst", env!("CARGO_MANIFEST_DIR"));
        let ran = why(&["-M", &recorded, "why"]);
        assert!(ran.code == 0 && !ran.out.contains("max-freq"), "{machine}: {}", ran.text());
    }
}

#[test]
fn a_moment_of_a_recording_is_explained_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("top.fbt");
    let file = file.to_str().unwrap();
    let machine = ["-M", "sim:sst-guide,boot=intel_pstate=passive"];
    let record = ["top", "--record", file, "--samples", "12", "-i", "500ms", "--speed", "1000"];
    let ran = why(&[&machine[..], &record, &["--", "spin", "--pin", "0-13", "--endless"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.text());
    let ran = why(&["--json", "why", "package:0", "--replay", file, "--at", "-1s", "-t", "2s"]);
    assert_eq!(ran.code, 0, "{}", ran.text());
    let answer = ran.json();
    assert_eq!(answer["simulated"], true);
    let found = answer["cpus"].as_array().unwrap().iter().find(|one| one["cpus"] == "0-13").unwrap();
    assert_eq!(found["steps"].as_array().unwrap().last().unwrap()["limiter"], "power", "{found}");
    for (words, said) in [
        (&["why", "900", "--replay", file][..], "no CPU 900"),
        (&["why", "--replay", "/dev/null"], "not a regular file"),
        (&["why", "--at", "14:05"], "--replay"),
        (&["why", "--replay", file, "--at", "noon"], "give 14:05"),
    ] {
        let ran = why(words);
        assert!(ran.code == 2 && ran.err.contains(said), "{words:?}: {}", ran.text());
    }
}

#[test]
fn a_comparison_says_why_an_arm_did_not_reach_what_it_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let arms = [
        "--arm",
        "held:governor=performance power-limit=100W",
        "--arm",
        "slow:governor=performance max-freq=2GHz",
    ];
    let rest = [
        "--rounds",
        "1",
        "--warm-up",
        "0",
        "--seed",
        "1",
        "--workload",
        "tbench",
        "-o",
        run.to_str().unwrap(),
    ];
    let ran = why(&[&["-M", "sim:sst-guide", "compare"][..], &arms, &rest].concat());
    assert_eq!(ran.code, 0, "{}", ran.text());
    let text = std::fs::read_to_string(run.join("report.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let losses = |arm: usize| {
        let losses = report["arms"][arm]["speed"]["losses"].as_array().unwrap();
        losses.iter().map(|loss| loss["limiter"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert!(losses(0).contains(&"power"), "{text}");
    assert!(losses(1).contains(&"max-freq") && !losses(1).contains(&"power"), "{text}");
    // The user requested what a setting costs, but not what the power limit costs. This applies to
    // the text and the page.
    let page = std::fs::read_to_string(run.join("report.html")).unwrap();
    for shown in [&ran.out, &page] {
        assert!(shown.contains("held: ran at") && !shown.contains("slow: ran at"), "{}", ran.text());
    }
}

/// Machines, kernels, settings, busy CPUs, true reasons, and the doctor's check for the cause. A
/// preference of all CPUs is a choice, so it has no check.
const SITUATIONS: &str = include_str!("../../../flyball-monitor/tests/situations.txt");

/// Returns the doctor's complaints and their remedies.
fn complaints(host: &dyn Host) -> BTreeMap<&'static str, String> {
    let report = examine(host, doctor::Options::default()).unwrap();
    let remedy = |fix: &Option<Fix>| match fix {
        Some(Fix::Settings(settings)) => settings.iter().map(ToString::to_string).collect(),
        _ => String::new(),
    };
    report.from(Verdict::Note).iter().map(|found| (found.id, remedy(&found.fix))).collect()
}

/// Returns the reason that cost a package's CPUs most.
fn exported(metrics: &str, package: u32) -> Option<String> {
    let start = format!("flyball_cpu_lost_hertz{{package=\"{package}\",reason=\"");
    let lost = metrics.lines().filter_map(|line| {
        let (reason, hertz) = line.strip_prefix(&start)?.rsplit_once("\"} ")?;
        Some((reason.to_owned(), hertz.parse::<f64>().ok()?))
    });
    lost.max_by(|one, other| one.1.total_cmp(&other.1)).map(|lost| lost.0)
}

/// `why`, `top`, `compare`, `quiet bench` and `exporter` name the same reason with the same
/// certainty. The doctor finds only that cause, and its remedy is the setting that `why` names.
#[test]
fn one_situation_has_one_answer() {
    let mut wrong = String::new();
    let mut judged = 0;
    for line in SITUATIONS.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let kernels = if cells[1] == "*" { &["6.1", "6.12", "7.2"][..] } else { &cells[1..2] };
        let is_large = ["epyc-512", "tpmi-large"].iter().any(|name| cells[0].starts_with(name));
        for kernel in kernels {
            for more in &["", "max-freq=1.2GHz", "turbo=off"][..if is_large { 1 } else { 3 }] {
                judged += usize::from(judge_answers(line, kernel, more, &mut wrong));
            }
        }
    }
    println!("{judged} judged");
    assert!(wrong.is_empty(), "{wrong}");
    assert!(judged >= 300, "{judged}");
}

/// Judges a situation with one more setting. Returns false if the machine does not support it, or
/// if two reasons cost the same.
fn judge_answers(line: &str, kernel: &str, more: &str, wrong: &mut String) -> bool {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [machine, _, settings, pin, ..] = cells[..] else { panic!("{line}") };
    let check = cells.get(6).map(|check| check.trim_start_matches('-')).filter(|_| more.is_empty());
    let setup = format!("{machine},kernel={kernel}");
    let Ok(host) = SimHost::open(&SimSetup::parse(&setup).unwrap()) else { return false };
    let usual = check.map(|_| complaints(&host)).unwrap_or_default();
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::new(directory.path().join("state"));
    let mut transaction = Transaction::begin(&host, &state, Purpose::Set, "test", None).unwrap();
    let settings: Vec<String> =
        settings.split_whitespace().chain(more.split_whitespace()).map(str::to_owned).collect();
    if transaction.apply(&Intent::from_arguments(&settings, None).unwrap(), &|| false).is_err() {
        return false;
    }
    transaction.keep().unwrap();
    let words = ["--endless", "--pin", pin].map(str::to_owned);
    let _load = host.spawn(Launch::new("spin", &words)).unwrap();
    host.sleep(Duration::from_secs(3));
    let first = pin.split(['-', ',']).next().unwrap();
    let cpus: CpuList = first.parse().unwrap();
    let every = Options { slow: Duration::ZERO, ..Options::default() };
    let mut sampler = Sampler::open(&host, every).unwrap();
    let options = flyball_exporter::Options { why: true, ..flyball_exporter::Options::default() };
    let mut collector = Collector::open(&host, options, None).unwrap();
    collector.scrape("test", Format::Text);
    let mut speed = SpeedWatch::new(&host, Some(cpus.clone()));
    speed.begin("test");
    let samples = [(); 2].map(|()| {
        host.sleep(Duration::from_secs(1));
        speed.attend();
        sampler.sample()
    });
    let note = RoundSpeed::end(&mut speed).unwrap();
    let metrics = collector.scrape("test", Format::Text);

    let facts = Facts::take(&host, sampler.layout(), |_| None).unwrap();
    let found = explain(sampler.layout(), &facts, &samples, Some(&cpus)).remove(0);
    let answer = found.first().map(flyball_monitor::Step::name);
    // If two reasons cost the same, either may come first.
    let most = found.first().map_or(0.0, |step| step.mhz);
    if found.steps.iter().filter(|step| step.mhz > most - 2.0).count() > 1 {
        return false;
    }
    let mut check_that = |is_right: bool, place: &str, shown: &dyn std::fmt::Debug| {
        if !is_right {
            let _ = writeln!(wrong, "{place}: {shown:?}; {line} {more}, kernel {kernel}: {found}");
        }
    };

    let first = note.losses.iter().max_by(|one, other| one.mhz.total_cmp(&other.mhz));
    let mark = |certainty: &Option<String>| if certainty.is_some() { "?" } else { "" };
    let compared = first.map(|loss| format!("{}{}", loss.limiter, mark(&loss.certainty)));
    check_that(compared == answer, "compare", &compared);

    let floor = Some(note.mhz * 1.5);
    let slow = Conditions { frequency_mhz: Some(note.mhz), floor_mhz: floor, ..Conditions::default() };
    let graded = grade(&slow, None, &Limits::default(), Some(&note)).1.remove(0).what;
    if let Some(step) = found.first() {
        let words = graded.split_once(": lost ").and_then(|(_, lost)| Some(lost.split_once(" to ")?.1));
        let is_right = words.is_some_and(|words| words.starts_with(step.limiter.words()));
        check_that(is_right, "quiet bench", &graded);
    }

    let [from, to] = &samples;
    let moment = Moment::between(sampler.layout(), Some(&facts), 1, from, to);
    let index = sampler.layout().index_of(cpus.iter().next().unwrap()).unwrap();
    let shown = moment.reasons[index].as_ref().map(|reason| reason.word.clone());
    let decides = found.deciding().map(flyball_monitor::Step::name);
    check_that(shown == decides, "top", &shown);

    // The exporter adds up all CPUs of a package.
    let busy: CpuList = pin.parse().unwrap();
    let is_one = explain(sampler.layout(), &facts, &samples, Some(&busy)).len() == 1;
    let package = sampler.layout().cpus[index].package.unwrap_or_default();
    let exported = exported(&metrics, package);
    check_that(!is_one || exported == answer, "exporter", &exported);

    let Some(check) = check else { return true };
    let complaints = complaints(&host);
    let found_by: Vec<_> = complaints.keys().filter(|id| !usual.contains_key(*id)).copied().collect();
    check_that(found_by.join(" ") == check, "doctor", &complaints);
    let knob = found.first().and_then(|step| step.knob);
    if let (Some(remedy), Some(knob)) = (complaints.get(check), knob) {
        check_that(remedy.starts_with(knob), "doctor", remedy);
    }
    true
}

/// If 40 active cores cost 1.0 GHz and the power limit 0.95 more, only more power helps.
#[test]
fn top_names_the_limit_that_decides() {
    let ran = why(&["-M", "sim:gold-6138", "top", "--samples", "6", "--", "spin"]);
    assert!(ran.out.contains("power") && !ran.out.contains("active-cores"), "{}", ran.text());
}

#[test]
fn run_says_why_a_command_was_not_faster() {
    let ran = why(&["-M", "sim:gold-6138", "run", "--why", "turbo=off", "--", "true"]);
    assert!(ran.code == 2 && ran.err.contains("--workload"), "{}", ran.text());
}

#[test]
fn wrong_words_are_refused() {
    for words in [
        &["why", "-t", "1ms"][..],
        &["why", "-t", "2h"],
        &["why", "-t", "five"],
        &["-M", "sim:gold-6138", "why", "900"],
        &["-M", "sim:gold-6138", "why", "--workload", "nonsense"],
        &["-M", "sim:gold-6138", "why", "--pin", "3"],
        &["why", "--workload", "spin"],
    ] {
        let ran = why(words);
        assert_eq!(ran.code, 2, "{words:?}: {}", ran.text());
    }
}
