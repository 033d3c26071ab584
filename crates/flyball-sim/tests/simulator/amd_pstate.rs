//! amd-pstate beyond the replayed recordings: the request register and files of a guest with Linux
//! 6.12.107 on cores of different rank (ryzen-preferred, four CPUs), and the driver that servers
//! get.

use std::time::Duration;

use flyball_sim::{Boot, Kernel, SimMachine, silicon::MachineSpec};

const CPU: &str = "/sys/devices/system/cpu";
const CPPC_REQ: u32 = 0xc001_02b3;

struct Answers(SimMachine);

impl Answers {
    fn boot(name: &str, kernel: Kernel, options: &[&str]) -> Answers {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let boot = Boot { options, ..Boot::default() };
        Answers(SimMachine::boot(MachineSpec::builtin(name).unwrap(), kernel, boot, 0).unwrap())
    }

    fn read(&mut self, path: &str) -> String {
        String::from_utf8(self.0.read(&format!("{CPU}/{path}")).unwrap()).unwrap().trim().to_owned()
    }

    fn write(&mut self, path: &str, text: &str) {
        self.0.write(&format!("{CPU}/{path}"), text.as_bytes()).unwrap();
        self.0.advance(Duration::from_millis(1));
    }

    fn requests<const N: usize>(&mut self, cpus: [u32; N]) -> [u64; N] {
        cpus.map(|cpu| self.0.read_msr(cpu, CPPC_REQ).unwrap())
    }
}

#[test]
fn a_guest_of_6_12_has_these_requests_in_active_mode() {
    let mut guest = Answers::boot("ryzen-preferred", Kernel::V6_12, &["amd_pstate=active"]);
    let highest = [0, 1, 2, 3].map(|cpu| guest.read(&format!("cpufreq/policy{cpu}/amd_pstate_highest_perf")));
    assert_eq!(highest, ["161", "166", "156", "151"]);
    assert_eq!(guest.read("cpufreq/policy3/cpuinfo_max_freq"), "4680000");
    for word in ["performance", "powersave"] {
        for cpu in 0..4 {
            guest.write(&format!("cpufreq/policy{cpu}/scaling_governor"), word);
        }
        let expected = if word == "performance" {
            [0x75a1, 0x75a6, 0x759c, 0x7597]
        } else {
            [0x0fa1, 0x0fa6, 0x0f9c, 0x0f97]
        };
        assert_eq!(guest.requests([0, 1, 2, 3]), expected, "{word}");
    }
    guest.write("cpufreq/policy2/scaling_max_freq", "2000000");
    assert_eq!(guest.requests([2]), [0x0f42]);
    guest.write("cpufreq/boost", "0");
    assert_eq!(guest.requests([0, 1, 2, 3]), [0x0f75, 0x0f75, 0x0f46, 0x0f75]);
    guest.write("cpufreq/boost", "1");
    guest.write("cpufreq/policy2/energy_performance_preference", "power");
    assert_eq!(guest.requests([2]), [0xff00_0f42]);
    // After a CPU was offline, its preference is 191.
    guest.write("cpu2/online", "0");
    guest.write("cpu2/online", "1");
    assert_eq!(guest.read("cpufreq/policy2/energy_performance_preference"), "balance_power");
    assert_eq!(guest.requests([2]), [0xbf00_0f42]);
}

#[test]
fn a_guest_of_6_12_has_these_requests_in_passive_mode() {
    let mut guest = Answers::boot("ryzen-preferred", Kernel::V6_12, &["amd_pstate=passive"]);
    guest.write("cpufreq/policy1/scaling_governor", "performance");
    assert_eq!(guest.requests([1]), [0xa6_0fa6]);
    guest.write("cpufreq/policy1/scaling_governor", "powersave");
    assert_eq!(guest.requests([1]), [0x0f_0fa6]);
    for cpu in [1, 2] {
        guest.write(&format!("cpufreq/policy{cpu}/scaling_governor"), "userspace");
        guest.write(&format!("cpufreq/policy{cpu}/scaling_setspeed"), "2000000");
    }
    assert_eq!(guest.requests([1, 2]), [0x47_0fa6, 0x43_0f9c]);
    guest.write("cpufreq/boost", "0");
    for cpu in [1, 2] {
        guest.write(&format!("cpufreq/policy{cpu}/scaling_governor"), "performance");
    }
    assert_eq!(guest.requests([1, 2]), [0x75_0f75, 0x6e_0f75]);
    // A CPU that comes online restores its own boost and the global switch.
    guest.write("cpu1/online", "0");
    guest.write("cpu1/online", "1");
    let shown = [
        "cpufreq/boost",
        "cpufreq/policy1/boost",
        "cpufreq/policy1/scaling_max_freq",
        "cpufreq/policy2/boost",
        "cpufreq/policy2/scaling_max_freq",
    ];
    assert_eq!(shown.map(|path| guest.read(path)), ["1", "1", "4680000", "0", "3301000"]);
}

#[test]
fn servers_of_every_family_have_acpi_cpufreq_on_6_12_and_new_ones_amd_pstate_later() {
    for (kernel, driver) in [
        (Kernel::V6_1, "acpi-cpufreq"),
        (Kernel::V6_12, "acpi-cpufreq"),
        (Kernel::V6_18, "amd-pstate-epp"),
        (Kernel::V7_2, "amd-pstate-epp"),
    ] {
        let mut server = Answers::boot("epyc-512", kernel, &[]);
        assert_eq!(server.read("cpufreq/policy0/scaling_driver"), driver, "{kernel}");
    }
    let mut asked = Answers::boot("epyc-512", Kernel::V6_12, &["amd_pstate=active"]);
    assert_eq!(asked.read("cpufreq/policy0/scaling_driver"), "amd-pstate-epp");
}

#[test]
fn a_cpu_that_was_offline_keeps_its_preference_since_6_13() {
    let mut machine = Answers::boot("ryzen-5750g", Kernel::V6_18, &[]);
    machine.write("cpufreq/policy2/energy_performance_preference", "power");
    machine.write("cpu2/online", "0");
    machine.write("cpu2/online", "1");
    assert_eq!(machine.read("cpufreq/policy2/energy_performance_preference"), "power");
}
