//! Compares the registers that hold the driver's requests with the files that show them.

use std::collections::BTreeMap;

use flyball_host::{
    CpuList,
    msr::{MSR_AMD_CPPC_REQ, MSR_HWP_CAPABILITIES, MSR_HWP_REQUEST, MSR_HWP_REQUEST_PKG, MSR_PM_ENABLE},
};

use super::{
    Answer, Check, Facts, Policy, Unseen, Vendor,
    facts::{MAX_PERF_PCT, NO_TURBO, cpu_words},
    firmware::first_cpu,
    models, ok, unknown, warning,
};

pub(super) const CHECKS: &[Check] = &[Check::new(
    "conflict.registers",
    "A register that another program wrote is in force, and the kernel's files still show the old setting.",
    "MSR 0x774 (Intel, with HWP; 0x772 and 0x771 where they count) or 0xc00102b3 (AMD) of every CPU against \
            energy_performance_preference, the limits, no_turbo and the percentages",
    registers,
)
.covers(&["energy_performance_preference", "scaling_max_freq"])];

/// Returns whether a preference word from a file and a number from a register cannot match. The
/// words' numbers differ by model (intel_epp_default, amd-pstate's epp_values), so only words far
/// from the number contradict it.
fn contradicts(word: &str, number: u64) -> bool {
    match word {
        "performance" => number > 0x40,
        "balance_performance" => number == 0 || number > 0xa0,
        "balance_power" => number < 0x41 || number == 0xff,
        "power" => number < 0xa0,
        _ => word.parse::<u64>().is_ok_and(|written| written != number),
    }
}

/// The number of CPUs with each preference number, by the word in the file.
type NumbersOfWord = BTreeMap<String, BTreeMap<u64, usize>>;

/// Like [`contradicts`], for drivers whose numbers for a word differ by core type: a CPU stands out
/// if few CPUs with its word have its number.
fn stands_out(numbers: &NumbersOfWord, word: &str, number: u64) -> bool {
    if word.parse::<u64>().is_ok() {
        return contradicts(word, number);
    }
    let Some(counts) = numbers.get(word) else { return true };
    counts.get(&number).unwrap_or(&0) * 8 <= counts.values().sum()
}

/// Returns the register that holds the driver's request, if the processor uses it.
fn request_register(facts: &Facts) -> Option<u32> {
    match facts.vendor {
        Vendor::Intel if facts.is_intel_pstate() && facts.flag("hwp_epp") => {
            // Without HWP the processor ignores the request.
            let is_off = facts.msr(first_cpu(facts), MSR_PM_ENABLE).is_ok_and(|value| value & 1 == 0);
            (!is_off).then_some(MSR_HWP_REQUEST)
        }
        Vendor::Amd if facts.driver() == Some("amd-pstate-epp") && facts.flag("cppc") => {
            Some(MSR_AMD_CPPC_REQ)
        }
        _ => None,
    }
}

/// The request of a CPU, in levels of its processor.
#[derive(Clone, Copy)]
struct Request {
    lowest: u64,
    highest: u64,
    /// A fixed level; 0 leaves the choice to the processor.
    level: u64,
    preference: u64,
    /// The register that some of the fields come from.
    register: u32,
    raw: u64,
}

impl Request {
    fn amd(raw: u64) -> Request {
        let byte = |shift: u32| raw >> shift & 0xff;
        let (highest, lowest, level, preference) = (byte(0), byte(8), byte(16), byte(24));
        Request { lowest, highest, level, preference, register: MSR_AMD_CPPC_REQ, raw }
    }

    /// If bit 42 (package control) is set, the fields come from the package's register, except
    /// those whose bit of 63 to 60 is set (Intel SDM 3, IA32_HWP_REQUEST).
    fn intel(facts: &Facts, cpu: u32, raw: u64) -> Result<Request, Unseen> {
        let by_package = raw >> 42 & 1 == 1;
        let package = if by_package { facts.msr(cpu, MSR_HWP_REQUEST_PKG)? } else { 0 };
        let byte = |shift: u32, own: u32| {
            let from = if by_package && raw >> own & 1 == 0 { package } else { raw };
            from >> shift & 0xff
        };
        let register = if by_package { MSR_HWP_REQUEST_PKG } else { MSR_HWP_REQUEST };
        let raw = if by_package { package } else { raw };
        let (lowest, highest) = (byte(0, 63), byte(8, 62));
        Ok(Request { lowest, highest, level: byte(16, 61), preference: byte(24, 60), register, raw })
    }
}

/// Returns the reason why a file of a policy cannot be used.
fn unreadable(policy: &Policy, name: &str) -> Unseen {
    format!("{} cannot be read", policy.path(name)).into()
}

/// Returns the number in a file of a policy.
fn number(policy: &Policy, name: &str) -> Result<u64, Unseen> {
    policy.number(name).ok_or_else(|| unreadable(policy, name))
}

/// Returns whether a governor chooses the levels (intel_pstate in passive mode).
fn is_passive(policy: &Policy) -> bool {
    policy.get("scaling_driver") == Some("intel_cpufreq")
}

/// Returns the kHz of one level. Levels of hybrid processors are not ratios of 100 MHz. Files show
/// the frequencies of the highest and the guaranteed level, rounded down.
fn khz_of_level(facts: &Facts, policy: &Policy, cpu: u32) -> Result<u64, Unseen> {
    if policy.core_type.is_none() {
        return Ok(100_000);
    }
    let levels = facts.msr(cpu, MSR_HWP_CAPABILITIES)?;
    let known = [("cpuinfo_max_freq", levels & 0xff), ("base_frequency", levels >> 8 & 0xff)];
    // With turbo off, cpuinfo_max_freq may be below the frequency of the highest level.
    known
        .iter()
        .filter_map(|(name, level)| policy.number(name)?.checked_div(*level))
        .max()
        .ok_or_else(|| unreadable(policy, "cpuinfo_max_freq"))
}

/// A range that a driver may request, in kHz.
struct Range {
    /// The highest minimum; `None` if the driver itself moves the minimum.
    lowest: Option<u64>,
    /// The lowest maximum.
    highest: u64,
}

impl Range {
    /// Returns the range that intel_pstate derives from its files (intel_pstate_update_perf_limits
    /// and intel_pstate_hwp_set).
    fn from_intel_pstate(facts: &Facts, policy: &Policy) -> Result<Range, Unseen> {
        let file = |name: &str| number(policy, name);
        let governor = policy.get("scaling_governor");
        let governor = governor.ok_or_else(|| unreadable(policy, "scaling_governor"))?;
        let percent = |path: &str| {
            let text = facts.read(path)?;
            let number = text.parse::<u32>().map_err(|_| Unseen::from(format!("{path}: '{text}'")))?;
            Ok::<_, Unseen>(file("cpuinfo_max_freq")? * u64::from(number) / 100)
        };
        let mut highest = file("scaling_max_freq")?;
        let mut lowest = file("scaling_min_freq")?;
        // intel_pstate's boot option per_cpu_perf_limits removes both files.
        let has_percentages =
            !facts.parameter("intel_pstate").is_some_and(|words| words.contains("per_cpu_perf_limits"));
        if has_percentages {
            highest = highest.min(percent(MAX_PERF_PCT)?);
            lowest = lowest.max(percent("/sys/devices/system/cpu/intel_pstate/min_perf_pct")?);
        }
        if facts.read(NO_TURBO)? != "0" {
            highest = highest.min(file("base_frequency")?);
        }
        // Governors with a strict target also request it as the maximum
        // (intel_cpufreq_update_pstate).
        match (is_passive(policy), governor) {
            (true, "powersave") => highest = highest.min(lowest),
            (true, "userspace") => highest = highest.min(file("scaling_setspeed")?),
            _ => {}
        }
        // While a task waits for a device, the driver raises the minimum for some milliseconds.
        let boosts = || {
            let path = "/sys/devices/system/cpu/intel_pstate/hwp_dynamic_boost";
            facts.read(path).is_ok_and(|word| word == "1")
        };
        let moves = is_passive(policy) || governor == "performance" || boosts();
        Ok(Range { lowest: (!moves).then_some(lowest), highest })
    }
}

/// The files that a request can contradict, each with its knob and the message. The worst is first.
const CONTRADICTIONS: [(&str, &str, &str); 3] = [
    ("energy_performance_preference", "epp", "the preference in force is not the one that the file shows"),
    ("scaling_max_freq", "max-freq", "the maximum in force is below the one that the file shows"),
    ("scaling_min_freq", "min-freq", "the register asks for a level or a minimum that no file shows"),
];

/// Contradictions of one CPU's request, in the order of [`CONTRADICTIONS`].
#[derive(Default)]
struct Compared {
    contradicts: [bool; 3],
    /// True if the driver itself moves the minimum, so that the files do not show it.
    moves: bool,
}

fn compare_intel(facts: &Facts, policy: &Policy, cpu: u32, request: Request) -> Result<Compared, Unseen> {
    let range = Range::from_intel_pstate(facts, policy)?;
    let step = khz_of_level(facts, policy, cpu)?;
    let highest = request.highest * step;
    let is_capped = highest > 0 && highest + step < range.highest;
    let is_raised = range.lowest.is_some_and(|limit| request.lowest * step > limit + 2 * step);
    // In passive mode a governor chooses the level, never below the minimum.
    let is_foreign = request.level != 0 && (!is_passive(policy) || request.lowest > request.level);
    Ok(Compared { contradicts: [false, is_capped, is_raised || is_foreign], moves: range.lowest.is_none() })
}

/// Compares the highest level in amd-pstate's request with a tenth of tolerance. The driver
/// converts with the nominal level and frequency (freq_to_perf in amd-pstate.c).
fn compare_amd(facts: &Facts, policy: &Policy, cpu: u32, request: Request) -> Result<Compared, Unseen> {
    let cppc = |name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/{name}");
        let number = facts.read(&path)?.trim().parse::<u64>().ok().filter(|number| *number > 0);
        number.ok_or_else(|| Unseen::from(format!("{path} is not a number above 0")))
    };
    let limit = number(policy, "scaling_max_freq")?;
    let asked = (limit * cppc("nominal_perf")? / (cppc("nominal_freq")? * 1000)).min(cppc("highest_perf")?);
    let is_capped = request.highest > 0 && request.highest * 10 < asked * 9;
    Ok(Compared { contradicts: [false, is_capped, false], moves: false })
}

/// The requests of CPUs, with their policies.
type Requests<'f> = Vec<(u32, &'f Policy, Request)>;

/// Returns the requests in force, and why a request is unknown, if any is.
fn requests<'f>(facts: &'f Facts, register: u32) -> Result<(Requests<'f>, Option<Unseen>), Unseen> {
    let values = facts.msr_everywhere(register)?;
    let mut gap = None;
    let mut requests = Vec::new();
    for (cpu, raw) in values {
        let policy = facts.policies.iter().find(|policy| policy.cpus.contains(cpu));
        let request = match register {
            MSR_HWP_REQUEST => Request::intel(facts, cpu, raw),
            _ => Ok(Request::amd(raw)),
        };
        match (policy, request) {
            (Some(policy), Ok(request)) => requests.push((cpu, policy, request)),
            (None, _) => gap = Some(Unseen::from(format!("CPU {cpu}: the policy is not known"))),
            (_, Err(why)) => gap = Some(why),
        }
    }
    Ok((requests, gap))
}

fn registers(facts: &Facts) -> Option<Answer> {
    let register = request_register(facts)?;
    // `ok` requires that every CPU was compared. If one was not, `gap` holds the reason.
    let (requests, mut gap) = seen!(requests(facts, register));
    let word_of =
        |policy: &Policy| policy.get("energy_performance_preference").unwrap_or_default().to_owned();
    let words_differ = models::amd_words_differ(facts);
    // Before 7.4 every word has one number, so the comparison is stricter.
    if words_differ && facts.kernel_version().is_none() {
        gap.get_or_insert(
            "/proc/version cannot be read, and the numbers of the words depend on the kernel".into(),
        );
    }
    let mut numbers = NumbersOfWord::new();
    for (_, policy, request) in &requests {
        *numbers.entry(word_of(policy)).or_default().entry(request.preference).or_default() += 1;
    }
    let (first, count) = (requests.first().map(|(cpu, _, request)| (*cpu, request.raw)), requests.len());
    let mut found: [Vec<(u32, &Policy, Request)>; 3] = Default::default();
    let mut moves = false;
    for (cpu, policy, request) in requests {
        let compared = match register {
            MSR_HWP_REQUEST => compare_intel(facts, policy, cpu, request),
            _ => compare_amd(facts, policy, cpu, request),
        };
        let mut compared = compared.unwrap_or_else(|why| {
            gap.get_or_insert(why);
            Compared::default()
        });
        let word = word_of(policy);
        compared.contradicts[0] = if words_differ {
            stands_out(&numbers, &word, request.preference)
        } else {
            contradicts(&word, request.preference)
        };
        moves |= compared.moves;
        for (list, _) in found.iter_mut().zip(compared.contradicts).filter(|(_, contradicts)| *contradicts) {
            list.push((cpu, policy, request));
        }
    }
    let worst = found.iter().zip(CONTRADICTIONS).find(|(list, _)| !list.is_empty());
    let Some((list, (file, knob, words))) = worst else {
        if let Some(why) = gap {
            return Some(unknown(why));
        }
        let all = "the registers have what the files show";
        let what = if moves { format!("{all}; the driver itself moves the minimum") } else { all.to_owned() };
        let (cpu, raw) = first?;
        return Some(
            ok(what)
                .seen(format!("MSR {register:#x} of CPU {cpu}"), format!("{raw:#x}"))
                .seen(format!("MSR {register:#x} of {count} CPUs"), "compared with the files"),
        );
    };
    let cpus: CpuList = list.iter().map(|(cpu, ..)| *cpu).collect();
    let by_package = list.iter().any(|(.., request)| request.register == MSR_HWP_REQUEST_PKG);
    let answer = list.iter().take(3).fold(
        warning(format!("{}: {words}", cpu_words(&cpus))),
        |answer, (cpu, policy, request)| {
            let place = format!("MSR {:#x} of CPU {cpu}", request.register);
            let text = policy.get(file).unwrap_or_default();
            answer.seen(policy.path(file), text).seen(place, format!("{:#x}", request.raw))
        },
    );
    // The kernel keeps bit 42 when it writes a request.
    Some(answer.person(if by_package {
        "another program or the firmware set bit 42 of MSR 0x774, which puts the package's request in force: stop \
         it, then clear the bit on every CPU"
            .to_owned()
    } else {
        format!(
            "another program wrote the register: stop it, then set {knob} to another value and back, so that the kernel \
             writes it again"
        )
    }))
}
