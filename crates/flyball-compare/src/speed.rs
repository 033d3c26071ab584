//! How fast CPUs ran while something else ran, and why they were not faster: for the rounds of
//! comparisons and for `run --why`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use flyball_host::{
    CpuList, Host, Kind,
    topology::{CPUS, scaling_driver},
};
use flyball_measure::{Arm, RoundSpeed, SpeedLoss, SpeedNote};
use flyball_monitor::{Account, Explanation, Facts, IdleReads, Options, Reads, Sample, Sampler};

/// Minimum time between two readings of the CPUs' counters, each of which interrupts the CPU.
const BETWEEN: Duration = Duration::from_secs(1);
/// /proc/stat counts in hundredths of a second: in a shorter round too few of them show which CPUs
/// ran, and power is not averaged yet.
const SHORTEST: Duration = Duration::from_millis(200);

/// Reads all requests in each sample: the highest frequency must not be that of the previous arm.
/// Reads wake-ups only of suspects, because reading delays the round.
fn options() -> Options {
    let reads = Reads { idle: IdleReads::Times, ..Reads::default() };
    Options { slow: Duration::ZERO, reads, ..Options::default() }
}

/// Watches CPUs.
pub struct SpeedWatch<'h> {
    host: &'h dyn Host,
    /// The CPUs that the work may use; all if none.
    cpus: Option<CpuList>,
    /// `None` if the CPUs cannot be listed.
    sampler: Option<Sampler<'h>>,
    /// The driver and the online CPUs that the sampler found.
    found: (Option<String>, Option<String>),
    /// Limits by settings, read once for each arm: that takes hundreds of files.
    facts: BTreeMap<String, Facts>,
    arm: String,
    account: Option<Account>,
    /// The start, in the machine's time.
    begun: Duration,
    /// Arms whose last round was too short to explain. The next round is not watched.
    short: BTreeSet<String>,
    last: Option<Sample>,
}

impl<'h> SpeedWatch<'h> {
    pub fn new(host: &'h dyn Host, cpus: Option<CpuList>) -> SpeedWatch<'h> {
        SpeedWatch {
            host,
            cpus,
            sampler: None,
            found: (None, None),
            facts: BTreeMap::new(),
            arm: String::new(),
            account: None,
            begun: Duration::ZERO,
            short: BTreeSet::new(),
            last: None,
        }
    }

    pub fn host(&self) -> &'h dyn Host {
        self.host
    }

    /// Begins a watch under settings with this name.
    pub fn begin(&mut self, arm: &str) {
        // Another driver or driver mode has other files, registers and reasons. A CPU that was
        // offline had no package.
        let found = (scaling_driver(self.host), self.host.read(&format!("{CPUS}/online")).ok());
        if self.sampler.is_none() || self.found != found {
            self.found = found;
            self.sampler = Sampler::open(self.host, options()).ok();
            if let Some(sampler) = &mut self.sampler {
                sampler.begin();
            }
        }
        let Some(sampler) = &mut self.sampler else { return };
        if !self.facts.contains_key(arm)
            && let Ok(facts) = Facts::take(self.host, sampler.layout(), |_| None)
        {
            self.facts.insert(arm.to_owned(), facts);
        }
        arm.clone_into(&mut self.arm);
        self.account = Some(Account::new(sampler.layout()));
        self.last = Some(sampler.sample());
        self.begun = self.host.now();
    }

    /// Takes a sample, if one is due.
    pub fn attend(&mut self) {
        let now = self.host.now().as_nanos() as u64;
        let due = |last: &Sample| now.saturating_sub(last.at) >= BETWEEN.as_nanos() as u64;
        if self.last.as_ref().is_some_and(due) {
            self.look();
        }
    }

    fn look(&mut self) {
        let (Some(sampler), Some(account), Some(facts)) =
            (&mut self.sampler, &mut self.account, self.facts.get(&self.arm))
        else {
            return;
        };
        let sample = sampler.sample();
        if let Some(last) = &self.last {
            account.add(sampler.layout(), facts, last, &sample);
        }
        self.last = Some(sample);
    }

    /// Ends the watch, and explains how fast the CPUs ran.
    pub fn end(&mut self) -> Option<Explanation> {
        self.look();
        let account = self.account.take()?;
        account.whole(self.sampler.as_ref()?.layout(), self.facts.get(&self.arm)?, self.cpus.as_ref())
    }
}

impl RoundSpeed for SpeedWatch<'_> {
    fn begin(&mut self, arm: &Arm) {
        if self.short.contains(&arm.name) {
            arm.name.clone_into(&mut self.arm);
            (self.account, self.last, self.begun) = (None, None, self.host.now());
        } else {
            SpeedWatch::begin(self, &arm.name);
        }
    }

    fn attend(&mut self) {
        SpeedWatch::attend(self);
    }

    fn end(&mut self) -> Option<SpeedNote> {
        let is_short = self.host.now().saturating_sub(self.begun) < SHORTEST;
        // Watching a model costs its rounds nothing.
        if is_short && self.host.kind() == Kind::Live {
            self.short.insert(self.arm.clone());
        } else {
            self.short.remove(&self.arm);
        }
        let found = SpeedWatch::end(self).filter(|_| !is_short)?;
        Some(SpeedNote {
            cpus: found.cpus.to_string(),
            highest_mhz: found.highest?,
            mhz: found.mhz?,
            losses: found
                .steps
                .iter()
                .map(|step| SpeedLoss {
                    limiter: step.limiter.id().to_owned(),
                    words: step.limiter.words().to_owned(),
                    mhz: step.mhz,
                    share: step.share,
                    evidence: step.evidence.pieces().iter().map(ToString::to_string).collect(),
                    certainty: step.certainty.words(),
                    knob: step.knob.map(str::to_owned),
                    is_setting: step.limiter.is_setting(),
                })
                .collect(),
        })
    }
}
