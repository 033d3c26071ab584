//! Words of amd-pstate whose numbers depend on model and kind of core (Linux 7.4).

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use flyball_control::{
    Intent, Snapshot,
    plan::{Plan, plan},
    write::{journal::Purpose, outcome::Outcome, state::StateDir, transaction::Transaction},
};
use flyball_host::Host;
use flyball_simhost::{SimHost, SimSetup};

fn epp(cpu: u32) -> String {
    format!("/sys/devices/system/cpu/cpufreq/policy{cpu}/energy_performance_preference")
}

/// Returns the preference of a core of each kind.
fn shown(host: &SimHost) -> [String; 3] {
    [0, 8, 16].map(|cpu| host.read(&epp(cpu)).unwrap())
}

fn planned(host: &SimHost, setting: &str) -> Result<Plan, String> {
    let intent = Intent::from_arguments(&[setting], None).unwrap();
    plan(&Snapshot::for_intent(host, &intent).unwrap(), &intent).map_err(|error| error.to_string())
}

#[test]
fn power_is_taken_where_the_driver_shows_balance_power() {
    let host = SimHost::open(&SimSetup::parse("zen6-client,kernel=7.4").unwrap()).unwrap();
    assert_eq!(shown(&host), ["balance_performance"; 3]);
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::new(folder.path());
    let mut transaction = Transaction::begin(&host, &state, Purpose::Set, "test", None).unwrap();
    let intent = Intent::from_arguments(&["epp=power"], None).unwrap();
    let applied = transaction.apply(&intent, &|| false).unwrap();
    assert!(applied.made.iter().all(|made| made.outcome == Outcome::Applied), "{applied:?}");
    assert_eq!(shown(&host), ["balance_power", "power", "power"]);
    assert_eq!(planned(&host, "epp=power").unwrap().changes, [], "it holds");
    let restored = transaction.end();
    assert!(restored.is_exact(), "{restored}");
    assert_eq!(shown(&host), ["balance_performance"; 3]);
}

#[test]
fn the_register_says_which_number_a_word_is() {
    let host = SimHost::open(&SimSetup::parse("zen6-client,kernel=7.4").unwrap()).unwrap();
    assert_eq!(planned(&host, "epp=51").unwrap().changes, []);
    assert_eq!(planned(&host, "epp=128").unwrap().changes.len(), 20);
    // Governor performance sets 0, which has no word here.
    host.write("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", b"performance").unwrap();
    assert_eq!(shown(&host)[0], "0");
    let refused = planned(&host, "epp=turbo").unwrap_err();
    assert!(refused.contains("balance_power"), "{refused}");
}

/// Without the register, the driver's table maps words to numbers.
#[test]
fn the_table_says_what_the_register_says() {
    for machine in ["zen6-client,kernel=7.2", "zen6-client,kernel=7.4", "ryzen-5750g,kernel=7.2", "gold-6138"]
    {
        let [host, blind] = ["", ",fault=read /dev/cpu/*/msr fails EIO"]
            .map(|fault| SimHost::open(&SimSetup::parse(&format!("{machine}{fault}")).unwrap()).unwrap());
        for word in ["performance", "balance_performance", "balance_power", "power"] {
            for cpu in [0, 8, 16].into_iter().filter(|cpu| host.exists(&epp(*cpu))) {
                let numbers = [&host, &blind].map(|host| {
                    host.write(&epp(cpu), word.as_bytes()).unwrap();
                    let holds = |number: &u8| {
                        planned(host, &format!("epp@{cpu}={number}")).unwrap().changes.is_empty()
                    };
                    [0, 25, 51, 64, 115, 128, 191, 192, 255].into_iter().filter(holds).collect::<Vec<u8>>()
                });
                assert_eq!(numbers[0].len(), 1, "{machine} {word} {cpu}");
                assert_eq!(numbers[0], numbers[1], "{machine} {word} {cpu}");
            }
        }
    }
}
