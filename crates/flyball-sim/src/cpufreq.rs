//! The cpufreq core (drivers/cpufreq/cpufreq.c): policies, requests on their limits, governors, and
//! the driver in use.

pub(crate) mod acpi;
pub(crate) mod amd;
pub(crate) mod cppc;
mod driver;
pub(crate) mod intel;
pub(crate) mod invariance;
pub(crate) mod policy;
pub(crate) mod tunables;

use crate::{
    board::Board,
    chip::Chip,
    cpu_state::Cpu,
    errno::{Answer, Errno},
    governor::{Conservative, Ondemand, Relation, Request, Schedutil, SchedutilMode},
    kernel::Kernel,
    load::STEP_NS,
    trace::{Context, Event, Tracer},
};
pub(crate) use driver::{Driver, Style};
use policy::{Governor, Policy};
use tunables::Tunables;

/// Delay between a write to a limit and the work item that applies it. On real machines a read
/// right after the write may still see the old value. Here it always does until this delay has
/// passed.
// freq_qos_update_request() only calls the notifier, which queues policy->update
// (cpufreq_notifier_max()).
pub(crate) const SETTLE_NS: u64 = 40_000;

/// Number of steps between two wakeups of a sleeping CPU for the kernel's own work: ten per second,
/// as in the workload models.
const HOUSEKEEPING: u64 = 100;

/// The governors' names in the order of scaling_available_governors (last registered first).
pub(crate) const GOVERNORS: [&str; 6] =
    ["conservative", "ondemand", "userspace", "powersave", "performance", "schedutil"];

/// State shared with drivers: kernel version, board, registers, and the drivers' global state.
#[derive(Debug)]
pub(crate) struct Platform {
    pub(crate) kernel: Kernel,
    pub(crate) board: Board,
    pub(crate) chip: Chip,
    pub(crate) amd: amd::Amd,
    pub(crate) intel: intel::Intel,
    /// cppc_cpufreq's registers outside the request, by CPU.
    pub(crate) cppc: Vec<cppc::Registers>,
    /// The global boost switch, if the driver has one.
    pub(crate) boost: bool,
    /// The machine's time in nanoseconds.
    pub(crate) now: u64,
    pub(crate) trace: Tracer,
}

impl Platform {
    pub(crate) fn before(&self, kernel: Kernel) -> bool {
        self.kernel < kernel
    }

    pub(crate) fn since(&self, kernel: Kernel) -> bool {
        self.kernel >= kernel
    }

    /// Records a tracepoint hit on a CPU.
    pub(crate) fn trace_event(&mut self, cpu: u32, event: Event) {
        self.trace.emit(self.now, cpu, event);
    }

    /// Traces a change of a policy's frequency (cpufreq_notify_transition,
    /// cpufreq_driver_fast_switch).
    fn trace_frequency(&mut self, policy: &Policy, khz: u32) {
        let runner = policy.leader();
        for &cpu in &policy.online {
            self.trace_event(runner, Event::CpuFrequency { khz, cpu });
        }
    }
}

/// State of the cpufreq core.
pub(crate) struct Cpufreq {
    pub(crate) driver: Option<&'static dyn Driver>,
    pub(crate) policies: Vec<Policy>,
    /// Index of each CPU's policy.
    of_cpu: Vec<Option<usize>>,
    pub(crate) tunables: Tunables,
    /// Loaded governors, most recent first.
    pub(crate) governors: Vec<&'static str>,
    /// Time before which no work item is due.
    next_work: u64,
    /// Highest frequency of each CPU's policy, kHz; 0 without a policy.
    pub(crate) highest: Vec<u32>,
}

impl std::fmt::Debug for Cpufreq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cpufreq")
            .field("driver", &self.driver.map(Driver::name))
            .field("policies", &self.policies.len())
            .finish_non_exhaustive()
    }
}

impl Cpufreq {
    pub(crate) fn new(cpus: u32) -> Cpufreq {
        Cpufreq {
            driver: None,
            policies: Vec::new(),
            of_cpu: vec![None; cpus as usize],
            tunables: Tunables::default(),
            governors: GOVERNORS.to_vec(),
            next_work: u64::MAX,
            highest: vec![0; cpus as usize],
        }
    }

    /// Index of the policy of a CPU that is or was online.
    pub(crate) fn index_of(&self, cpu: u32) -> Option<usize> {
        self.of_cpu.get(cpu as usize).copied().flatten()
    }

    /// The index of policyN.
    pub(crate) fn index_of_policy(&self, number: u32) -> Option<usize> {
        self.index_of(number).filter(|&index| self.policies[index].number == number)
    }

    pub(crate) fn policy_of(&self, cpu: u32) -> Option<&Policy> {
        self.index_of(cpu).map(|index| &self.policies[index])
    }

    /// cpufreq_register_driver(): a policy for every CPU that is online.
    pub(crate) fn register(
        &mut self,
        platform: &mut Platform,
        cpus: &[Cpu],
        driver: &'static dyn Driver,
    ) -> Answer {
        if self.driver.is_some() {
            return Err(Errno::EXIST);
        }
        // cpufreq_register_driver() sets the driver first, because adding policies needs it, and
        // clears it again if no policy was created.
        self.driver = Some(driver);
        platform.boost = driver.has_boost(platform).unwrap_or(false);
        for (cpu, state) in cpus.iter().enumerate() {
            if state.online {
                self.add_policy(platform, cpus, cpu as u32);
            }
        }
        // No policy was created, so registration fails (cpufreq_register_driver).
        if self.policies.is_empty() {
            self.driver = None;
            return Err(Errno::NODEV);
        }
        Ok(())
    }

    /// cpufreq_unregister_driver(): removes every policy.
    pub(crate) fn unregister(&mut self, platform: &mut Platform) {
        if let Some(driver) = self.driver.take() {
            // Before the policies are removed: a driver's exit writes the CPU's last request.
            for policy in &self.policies {
                for &cpu in &policy.online {
                    driver.exit(platform, cpu);
                }
            }
        }
        self.policies.clear();
        self.of_cpu.fill(None);
        self.highest.fill(0);
        // Every governor has lost its last policy.
        self.tunables = Tunables::default();
    }

    fn add_policy(&mut self, platform: &mut Platform, cpus: &[Cpu], cpu: u32) {
        let Some(driver) = self.driver else { return };
        // One policy per CPU: only acpi-cpufreq shares policies, by ACPI's _PSD, which no simulated
        // machine has.
        let mut policy = Policy::new(cpu, vec![cpu], vec![cpu]);
        policy.boost = platform.boost;
        // A CPU whose driver refuses it has no policy. The other CPUs get theirs (cpufreq_add_dev).
        if driver.init(platform, &mut policy).is_err() {
            return;
        }
        if !policy.table.is_empty() {
            // cpufreq_stats_create_table(): only drivers with a table have stats.
            let entries = policy.table.len();
            policy.stats = Some(policy::Stats {
                time: vec![0; entries],
                table: vec![vec![0; entries]; entries],
                last: platform.now,
                index: policy.table.iter().position(|&khz| khz == policy.current).unwrap_or(0),
            });
        }
        let index = self.policies.len();
        self.policies.push(policy);
        self.of_cpu[cpu as usize] = Some(index);
        let word = match driver.style() {
            // CONFIG_CPU_FREQ_DEFAULT_GOV_SCHEDUTIL, as in Debian's kernels; Kconfig's default with
            // intel_pstate since 5.8. We assume that earlier kernels start with ondemand: none of
            // their configurations was read.
            Style::Target if platform.since(Kernel::V5_10) => "schedutil",
            Style::Target => "ondemand",
            // The driver's init set the initial governor.
            Style::SetPolicy => self.policies[index].governor.name(),
        };
        self.refresh(platform, index);
        let _ = self.set_governor(platform, cpus, index, word);
    }

    /// Brings a CPU online: it joins its old policy, reviving it if it was empty, or gets a new
    /// policy.
    pub(crate) fn online(&mut self, platform: &mut Platform, cpus: &[Cpu], cpu: u32) {
        let Some(driver) = self.driver else { return };
        let Some(index) = self.index_of(cpu) else {
            // The CPU was offline when the driver registered, so it has no policy yet.
            self.add_policy(platform, cpus, cpu);
            return;
        };
        let policy = &mut self.policies[index];
        if !policy.online.contains(&cpu) {
            policy.online.push(cpu);
            // The lowest CPU acts for the policy, even if it comes back last.
            policy.online.sort_unstable();
        }
        driver.enter(platform, policy, cpu);
        let word = policy.remembered.take();
        // cpufreq_online(): a policy that comes back keeps its boost unless the global switch is
        // off by now.
        if platform.since(Kernel::V7_2) && policy.boost && !platform.boost {
            let _ = self.set_policy_boost(platform, index, false);
        }
        self.refresh(platform, index);
        if let Some(word) = word {
            // The governor exited with the policy's last CPU, so start a new one.
            let _ = self.start_governor(platform, cpus, index, word, true);
        }
    }

    /// Takes a CPU offline. Its policy stays, without CPUs if this was the last.
    pub(crate) fn offline(&mut self, platform: &mut Platform, cpu: u32) {
        let (Some(driver), Some(index)) = (self.driver, self.index_of(cpu)) else { return };
        let policy = &mut self.policies[index];
        policy.online.retain(|&other| other != cpu);
        if policy.online.is_empty() {
            // __cpufreq_offline() keeps the name (last_governor, last_policy) for the CPU's return.
            policy.remembered = Some(policy.governor.name());
            policy.settles = None;
        }
        driver.leave(platform, cpu);
        // The governor of a policy without CPUs has exited (__cpufreq_offline). The last instance
        // of a governor removes its tunables.
        self.drop_unused_tunables();
    }

    /// cpufreq_set_policy(): computes the limits from all requests and passes them to driver and
    /// governor.
    pub(crate) fn refresh(&mut self, platform: &mut Platform, index: usize) {
        let (Some(driver), Some(policy)) = (self.driver, self.policies.get_mut(index)) else { return };
        policy.settles = None;
        // Update offline CPUs too: World::step() reads this without looking at policies.
        for &cpu in &policy.cpus {
            self.highest[cpu as usize] = policy.highest;
        }
        let mut limits = policy.requested();
        // The driver comes first: it may raise an unset minimum before the limits are rounded to
        // the table.
        driver.verify(platform, policy, &mut limits);
        if policy.table.is_empty() {
            (policy.min, policy.max) = (limits.min, limits.max);
        } else {
            // Resolve without the old limits, which a new policy does not have yet.
            policy.max = policy.resolve_within(limits.max, 0, u32::MAX, Relation::High);
            policy.min = policy.resolve_within(limits.min, 0, u32::MAX, Relation::Low).min(policy.max);
        }
        // The tracepoint comes before the driver is called, as in cpufreq_set_policy().
        let event = Event::CpuFrequencyLimits { min: policy.min, max: policy.max, cpu: policy.number };
        platform.trace_event(policy.leader(), event);
        driver.set_policy(platform, policy);
        if driver.style() == Style::Target {
            self.governor_limits(platform, index);
        }
    }

    /// The governor's `limits` callback.
    fn governor_limits(&mut self, platform: &mut Platform, index: usize) {
        let fast = self.driver.is_some_and(|driver| driver.switches_fast(platform));
        let policy = &mut self.policies[index];
        let (min, max, current) = (policy.min, policy.max, policy.current);
        let target = match &mut policy.governor {
            // cpufreq_performance.c and cpufreq_powersave.c have only limits callbacks.
            Governor::Performance => Some((max, Relation::High)),
            Governor::Powersave => Some((min, Relation::Low)),
            Governor::Userspace(speed) => {
                let speed = *speed;
                // cpufreq_userspace_policy_limits(): keeps the request and clamps the frequency.
                if max < speed { Some((max, Relation::High)) } else { Some((speed.max(min), Relation::Low)) }
            }
            Governor::Schedutil(schedutil) => {
                schedutil.limits_changed();
                // sugov_limits(): with fast switching, the scheduler's next update applies the
                // limits.
                (max < current && !fast)
                    .then_some((max, Relation::High))
                    .or((min > current && !fast).then_some((min, Relation::Low)))
            }
            Governor::Conservative(governor) => {
                governor.limits_changed(current.clamp(min, max.max(min)));
                governor.common.sample_soon();
                (max < current)
                    .then_some((max, Relation::High))
                    .or((min > current).then_some((min, Relation::Low)))
            }
            // cpufreq_policy_apply_limits(), which cpufreq_dbs_governor_limits() calls first.
            Governor::Ondemand(governor) => {
                governor.common.sample_soon();
                (max < current)
                    .then_some((max, Relation::High))
                    .or((min > current).then_some((min, Relation::Low)))
            }
        };
        if let Some((khz, relation)) = target {
            self.target(platform, index, khz, relation);
        }
    }

    /// __cpufreq_driver_target(): resolves, and calls the driver if anything changes.
    pub(crate) fn target(&mut self, platform: &mut Platform, index: usize, khz: u32, relation: Relation) {
        let (Some(driver), Some(policy)) = (self.driver, self.policies.get_mut(index)) else { return };
        let khz = policy.resolve(khz, relation);
        if !policy.is_active() {
            return;
        }
        // Before the change: the time until now belongs to the old frequency.
        policy.account(platform.now, khz);
        // Some drivers are called even if the frequency does not change, because they need the
        // limits. The tracepoint fires for them too.
        let traced = khz != policy.current || driver.needs_update_limits();
        policy.current = driver.target(platform, policy, khz, relation);
        if traced {
            platform.trace_frequency(policy, policy.current);
        }
    }

    /// Starts the governor `name` on a policy.
    ///
    /// # Errors
    /// `EINVAL` if the driver has no governor of that name.
    pub(crate) fn set_governor(
        &mut self,
        platform: &mut Platform,
        cpus: &[Cpu],
        index: usize,
        name: &str,
    ) -> Answer {
        self.start_governor(platform, cpus, index, name, false)
    }

    /// Starts the governor `name` on a policy. A governor that already runs is restarted only with
    /// `restart`.
    fn start_governor(
        &mut self,
        platform: &mut Platform,
        cpus: &[Cpu],
        index: usize,
        name: &str,
        restart: bool,
    ) -> Answer {
        let driver = self.driver.ok_or(Errno::NODEV)?;
        if platform.before(Kernel::V6_12) && GOVERNORS.contains(&name) {
            // cpufreq_set_policy() aggregates all requests, which replaces a maximum that
            // amd-pstate had set directly.
            self.refresh(platform, index);
        }
        let policy = self.policies.get_mut(index).ok_or(Errno::NODEV)?;
        if driver.style() == Style::SetPolicy {
            // cpufreq_parse_policy(): setpolicy drivers accept two words.
            policy.governor = match name {
                "performance" => Governor::Performance,
                "powersave" => Governor::Powersave,
                _ => return Err(Errno::INVAL),
            };
            self.refresh(platform, index);
            return Ok(());
        }
        // If the governor does not change, it only gets its limits again (cpufreq_set_policy).
        // These two have no state, so restarting them makes no difference.
        if !restart && policy.governor.name() == name && !matches!(name, "performance" | "powersave") {
            return Ok(());
        }
        let delay = policy.transition_delay_us(platform.before(Kernel::V6_12));
        let tick = platform.board.tick_us;
        let now = platform.now;
        let times = || policy.online.iter().map(|&cpu| cpus[cpu as usize].times.dbs());
        let governor = match name {
            "performance" => Governor::Performance,
            "powersave" => Governor::Powersave,
            // cpufreq_userspace_policy_start(): it starts with the current frequency.
            "userspace" => Governor::Userspace(policy.current),
            "ondemand" => {
                // should_io_be_busy() in cpufreq_ondemand.c: Intel from Core 2 on, because its idle
                // states cost little.
                let io_is_busy = platform.board.vendor == crate::board::Vendor::Intel;
                self.tunables
                    .ondemand
                    .get_or_insert_with(|| crate::governor::OndemandTunables::new(delay, tick, io_is_busy));
                Governor::Ondemand(Ondemand::start(now, times()))
            }
            "conservative" => {
                self.tunables
                    .conservative
                    .get_or_insert_with(|| crate::governor::ConservativeTunables::new(delay, tick));
                let old = platform.before(Kernel::V6_12);
                Governor::Conservative(Conservative::start(now, policy.current, old, times()))
            }
            // schedutil came with 4.7.
            "schedutil" if platform.before(Kernel::V4_19) => return Err(Errno::INVAL),
            "schedutil" => {
                // get_or_insert, as below: all policies of a governor share its tunables, and the
                // first policy sets the defaults.
                self.tunables.rate_limit_us.get_or_insert(delay);
                // sugov_start(): adjust_perf works per CPU, so it needs a policy of one CPU.
                let mode = if driver.adjusts_performance(platform) && policy.cpus.len() == 1 {
                    SchedutilMode::AdjustPerf
                } else {
                    SchedutilMode::Frequency
                };
                Governor::Schedutil(Schedutil::new(mode, policy.cpus.len()))
            }
            _ => return Err(Errno::INVAL),
        };
        policy.governor = governor;
        if let Some(name) = GOVERNORS.into_iter().find(|known| *known == name)
            && !self.governors.contains(&name)
        {
            // Its module was loaded: cpufreq_register_governor() adds it at the head of the list.
            self.governors.insert(0, name);
        }
        // After the governor was replaced: the old governor's tunables go if this was its last
        // policy.
        self.drop_unused_tunables();
        // After the governor is set, because drivers read it (strict targets, guided mode).
        driver.set_policy(platform, &mut self.policies[index]);
        self.governor_limits(platform, index);
        Ok(())
    }

    /// Drops tunables of governors that no policy uses.
    fn drop_unused_tunables(&mut self) {
        let (mut schedutil, mut ondemand, mut conservative) = (false, false, false);
        for policy in self.policies.iter().filter(|policy| policy.is_active()) {
            match policy.governor {
                Governor::Schedutil(_) => schedutil = true,
                Governor::Ondemand(_) => ondemand = true,
                Governor::Conservative(_) => conservative = true,
                Governor::Performance | Governor::Powersave | Governor::Userspace(_) => {}
            }
        }
        self.tunables.rate_limit_us = self.tunables.rate_limit_us.filter(|_| schedutil);
        self.tunables.ondemand = self.tunables.ondemand.filter(|_| ondemand);
        self.tunables.conservative = self.tunables.conservative.filter(|_| conservative);
    }

    /// A limit request changed: the work item will apply it.
    pub(crate) fn request_changed(&mut self, platform: &Platform, index: usize) {
        if let Some(policy) = self.policies.get_mut(index) {
            // The work item is queued already, so a second write before it runs does not postpone
            // it.
            let due = *policy.settles.get_or_insert(platform.now + SETTLE_NS);
            self.next_work = self.next_work.min(due);
        }
    }

    /// When the next work item may run, in nanoseconds.
    pub(crate) fn next_work(&self) -> u64 {
        self.next_work
    }

    /// Runs work items that are due.
    pub(crate) fn work(&mut self, platform: &mut Platform) {
        for index in 0..self.policies.len() {
            if self.policies[index].settles.is_some_and(|due| due <= platform.now) {
                let before = std::mem::replace(&mut platform.trace.context, Context::Worker);
                self.refresh(platform, index);
                platform.trace.context = before;
            }
        }
        self.next_work = self.policies.iter().filter_map(|policy| policy.settles).min().unwrap_or(u64::MAX);
    }

    /// Switches boost everywhere (cpufreq_boost_trigger_state).
    pub(crate) fn set_boost(&mut self, platform: &mut Platform, on: bool) -> Answer {
        self.driver.ok_or(Errno::NODEV)?;
        // Up to 6.12, writing the global switch's current value does not affect policies that were
        // switched individually.
        if platform.boost == on && !platform.since(Kernel::V6_18) {
            return Ok(());
        }
        // The switch first, then the policies, as in cpufreq_boost_trigger_state(). Where none can
        // boost, that is an error since 7.2.
        platform.boost = on;
        let mut answer = if platform.since(Kernel::V7_2) { Err(Errno::OPNOTSUPP) } else { Ok(()) };
        for index in 0..self.policies.len() {
            let policy = &self.policies[index];
            let skips = platform.since(Kernel::V6_18);
            if !policy.is_active() || skips && self.driver.is_some_and(|d| !d.can_boost(platform, policy)) {
                continue;
            }
            answer =
                if skips && policy.boost == on { Ok(()) } else { self.set_policy_boost(platform, index, on) };
            if answer.is_err() {
                break;
            }
        }
        if answer.is_err() {
            // Not what it was: the opposite of what was asked for.
            platform.boost = !on;
        }
        answer
    }

    /// Switches boost of one policy.
    pub(crate) fn set_policy_boost(&mut self, platform: &mut Platform, index: usize, on: bool) -> Answer {
        let driver = self.driver.ok_or(Errno::NODEV)?;
        let policy = self.policies.get_mut(index).ok_or(Errno::NODEV)?;
        // Set before the driver is called, whose limits depend on it (store_local_boost()).
        let was = std::mem::replace(&mut policy.boost, on);
        // For the comparison below: 6.1 applies requests again only if the aggregate changed
        // (freq_qos_apply()).
        let asked = policy.requested().max;
        if let Err(errno) = driver.set_boost(platform, policy, on) {
            policy.boost = was;
            return Err(errno);
        }
        if platform.before(Kernel::V6_12) && policy.table.is_empty() && policy.requested().max == asked {
            // Up to 6.1 amd-pstate sets the maximum directly, and the kernel ignores the requests
            // until one of them changes.
            policy.max = policy.highest;
            return Ok(());
        }
        self.refresh(platform, index);
        Ok(())
    }

    /// The scheduler's updates at the end of a step: governors decide, drivers are called.
    pub(crate) fn tick(&mut self, platform: &mut Platform, cpus: &mut [Cpu]) {
        let Some(driver) = self.driver else { return };
        let now = platform.now;
        let tick = platform.board.tick_us * 1000;
        let setpolicy = driver.style() == Style::SetPolicy;
        // With HWP the processor follows the load, and the driver registers no update hook.
        if setpolicy && !driver.samples(platform) {
            return;
        }
        // The other governors have no update hook: they act only in their limits callbacks.
        let Tunables { rate_limit_us, ondemand, conservative } = &self.tunables;
        if !setpolicy && rate_limit_us.is_none() && ondemand.is_none() && conservative.is_none() {
            return;
        }
        for policy in &mut self.policies {
            if !policy.is_active() {
                continue;
            }
            if !setpolicy && !policy.governor.is_dynamic() {
                continue;
            }
            // The scheduler calls governors (cpufreq_update_util), but not on a sleeping CPU: its
            // last request stays until something wakes it. At the latest, the kernel's own work
            // does.
            let turn = now / STEP_NS + 7 * u64::from(policy.number);
            let update = policy
                .online
                .iter()
                .filter_map(|&cpu| cpus[cpu as usize].update)
                .map(|update| update.at)
                .max();
            let limited =
                matches!(&policy.governor, Governor::Schedutil(governor) if governor.has_new_limits());
            if update.is_none() && !limited && !turn.is_multiple_of(HOUSEKEEPING) {
                continue;
            }
            let at = update.unwrap_or(now);
            // Hooks run in cpufreq_update_util(), which the scheduler calls with interrupts off.
            platform.trace.context = Context::Tick;
            if setpolicy {
                driver.sample(platform, policy, cpus);
                continue;
            }
            let bounds = policy.bounds();
            let online = &policy.online;
            let request = match &mut policy.governor {
                Governor::Performance | Governor::Powersave | Governor::Userspace(_) => None,
                Governor::Ondemand(governor) => self.tunables.ondemand.as_ref().and_then(|tunables| {
                    let times = online.iter().map(|&cpu| cpus[cpu as usize].dbs_times());
                    governor.update(at, tunables, bounds, &policy.table, times)
                }),
                Governor::Conservative(governor) => {
                    self.tunables.conservative.as_ref().and_then(|tunables| {
                        let times = online.iter().map(|&cpu| cpus[cpu as usize].dbs_times());
                        governor.update(at, tunables, bounds, times)
                    })
                }
                Governor::Schedutil(governor) => {
                    // Never missing: drop_unused_tunables() keeps them while a policy uses
                    // schedutil.
                    let rate = self.tunables.rate_limit_us.unwrap_or(1000);
                    let demands = online.iter().map(|&cpu| cpus[cpu as usize].take_demand());
                    governor.update(at, tick, rate, bounds, demands)
                }
            };
            match request {
                None => {}
                Some(Request::Frequency(khz, relation)) => {
                    let resolved = policy.resolve(khz, relation);
                    if resolved != policy.current || driver.needs_update_limits() {
                        // fast_switch runs in the scheduler; otherwise schedutil has a thread, and
                        // the sampling governors a work item.
                        platform.trace.context = match policy.governor {
                            Governor::Schedutil(_) if driver.switches_fast(platform) => Context::Tick,
                            Governor::Schedutil(_) => Context::Sugov,
                            _ => Context::Worker,
                        };
                        policy.account(now, resolved);
                        policy.current = driver.target(platform, policy, resolved, relation);
                        platform.trace_frequency(policy, policy.current);
                    }
                }
                Some(Request::Performance { min, target, capacity }) => {
                    driver.adjust(platform, policy, min, target, capacity);
                }
            }
        }
        platform.trace.context = Context::Writer;
    }
}
