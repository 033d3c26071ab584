//! The identities of the rows of the table, in its order, each with the row in a file of `table/`
//! that states all there is to know of it.

/// Hands the list of rows to a macro: one makes the identities here, another the table. With a
/// single list, no identity can lack its row, and no row's position can differ from its identity's
/// number.
macro_rules! rows {
    ($callback:ident) => {
        $callback! {
            /// The driver's mode of operation.
            DriverMode = whole::DRIVER_MODE;
            /// Performance level of Speed Select.
            SstLevel = sst::LEVEL;
            /// SST-BF.
            SstBf = sst::BF;
            /// SST-TF.
            SstTf = sst::TF;
            /// SST-CP.
            SstCp = sst::CP;
            /// How SST-CP shares power.
            SstCpPriority = sst::PRIORITY;
            /// Lowest frequency of a class of service.
            ClosMin = sst::CLOS_MIN;
            /// Highest frequency of a class of service.
            ClosMax = sst::CLOS_MAX;
            /// Proportional priority of a class of service.
            ClosWeight = sst::CLOS_WEIGHT;
            /// Energy preference of a class of service.
            ClosEpp = sst::CLOS_EPP;
            /// Class of service of a core.
            Clos = sst::CLOS;
            /// Turbo ratio limits.
            Trl = sst::TRL;
            /// CPUs set apart by a control group.
            SstPartition = sst::PARTITION;
            /// Switch that brings a CPU online or offline.
            Online = whole::ONLINE;
            /// Hyper-threading.
            Smt = whole::SMT;
            /// Turbo of the whole machine.
            Turbo = whole::TURBO;
            /// Turbo of one policy.
            Boost = whole::BOOST;
            /// Profile of the firmware.
            PlatformProfile = platform::PLATFORM_PROFILE;
            /// Profile of one profile device.
            DeviceProfile = platform::DEVICE_PROFILE;
            /// Die that is preferred on a processor with 3D V-Cache.
            X3dMode = platform::X3D_MODE;
            /// Frequency governor.
            Governor = frequency::GOVERNOR;
            /// Energy performance preference.
            Epp = preference::EPP;
            /// Energy performance bias.
            Epb = preference::EPB;
            /// The hardware's own energy efficiency optimisation.
            EnergyEfficiency = preference::ENERGY_EFFICIENCY;
            /// Boost after waits for I/O.
            HwpDynamicBoost = preference::HWP_DYNAMIC_BOOST;
            /// Lowest performance in percent of the highest.
            MinPerfPct = frequency::MIN_PERF_PCT;
            /// Highest performance in percent.
            MaxPerfPct = frequency::MAX_PERF_PCT;
            /// Lowest frequency to use.
            MinFreq = frequency::MIN_FREQ;
            /// Highest frequency to use.
            MaxFreq = frequency::MAX_FREQ;
            /// Frequency of the userspace governor.
            Setspeed = frequency::SETSPEED;
            /// Frequency that the firmware keeps under power limits.
            FloorFreq = frequency::FLOOR_FREQ;
            /// Switch that permits an idle state.
            IdleState = idle::IDLE_STATE;
            /// The cpuidle governor.
            IdleGovernor = idle::IDLE_GOVERNOR;
            /// Switch that lets the processor demote C6 requests to C1.
            C1Demotion = idle::C1_DEMOTION;
            /// Longest wake-up latency of a CPU.
            LatencyLimit = idle::LATENCY_LIMIT;
            /// Lowest uncore frequency.
            UncoreMinFreq = power::UNCORE_MIN_FREQ;
            /// Highest uncore frequency.
            UncoreMaxFreq = power::UNCORE_MAX_FREQ;
            /// Uncore floor at low load.
            ElcFloorFreq = power::ELC_FLOOR_FREQ;
            /// Load below which the uncore floor applies.
            ElcLowThreshold = power::ELC_LOW_THRESHOLD;
            /// Load above which the uncore speeds up.
            ElcHighThreshold = power::ELC_HIGH_THRESHOLD;
            /// Switch that makes the high threshold count.
            ElcHighEnable = power::ELC_HIGH_ENABLE;
            /// Power limit of a powercap constraint.
            PowerLimit = power::POWER_LIMIT;
            /// Time window of a powercap constraint.
            PowerWindow = power::POWER_WINDOW;
            /// Highest performance level of Speed Select.
            SstHighestLevel = sst::HIGHEST;
            /// Lock of the performance level.
            SstLocked = sst::LOCKED;
            /// The cpufreq driver.
            Driver = facts::DRIVER;
            /// Governors that the driver accepts.
            AvailableGovernors = facts::AVAILABLE_GOVERNORS;
            /// Preferences that the driver accepts.
            AvailableEpp = facts::AVAILABLE_EPP;
            /// Lowest frequency of the hardware.
            HwMinFreq = facts::HW_MIN_FREQ;
            /// Highest frequency of the hardware.
            HwMaxFreq = facts::HW_MAX_FREQ;
            /// Guaranteed frequency.
            BaseFreq = facts::BASE_FREQ;
            /// Nominal frequency of CPPC.
            NominalFreq = facts::NOMINAL_FREQ;
            /// Frequency below which voltage falls no more.
            LowestNonlinearFreq = facts::LOWEST_NONLINEAR_FREQ;
            /// Current frequency.
            CurFreq = facts::CUR_FREQ;
            /// Frequency limit of the firmware.
            BiosLimit = facts::BIOS_LIMIT;
            /// Frequencies of the driver's table.
            AvailableFreqs = facts::AVAILABLE_FREQS;
            /// Frequencies of the driver's table that need boost.
            BoostFreqs = facts::BOOST_FREQS;
            /// Time that a frequency change takes.
            TransitionLatency = facts::TRANSITION_LATENCY;
            /// Number of P-states of intel_pstate.
            NumPstates = facts::NUM_PSTATES;
            /// Share of P-states in the turbo range.
            TurboPct = facts::TURBO_PCT;
            /// Highest performance of CPPC.
            CppcHighest = facts::CPPC_HIGHEST;
            /// Nominal performance of CPPC.
            CppcNominal = facts::CPPC_NOMINAL;
            /// Guaranteed performance of CPPC.
            CppcGuaranteed = facts::CPPC_GUARANTEED;
            /// Lowest non-linear performance of CPPC.
            CppcLowestNonlinear = facts::CPPC_LOWEST_NONLINEAR;
            /// Lowest performance of CPPC.
            CppcLowest = facts::CPPC_LOWEST;
            /// Frequency of the lowest performance of CPPC.
            CppcLowestFreq = cppc::LOWEST_FREQ;
            /// Performance at which the counters of CPPC count at the same rate.
            CppcReference = cppc::REFERENCE;
            /// Time after which the counters of CPPC wrap.
            CppcWraparound = cppc::WRAPAROUND;
            /// The counters of CPPC.
            CppcFeedback = cppc::FEEDBACK;
            /// Highest frequency that amd-pstate knows for a policy.
            AmdMaxFreq = cppc::AMD_MAX_FREQ;
            /// Highest performance that amd-pstate knows for a policy.
            AmdHighestPerf = cppc::AMD_HIGHEST_PERF;
            /// Flag of a policy whose core the hardware ranks.
            HwPrefcore = cppc::HW_PREFCORE;
            /// Switch that makes preferences follow the platform profile.
            DynamicEpp = cppc::DYNAMIC_EPP;
            /// Flag that amd-pstate uses preferred cores.
            Prefcore = facts::PREFCORE;
            /// Rank of a core among preferred cores.
            PrefcoreRanking = facts::PREFCORE_RANKING;
            /// HWP_REQUEST.
            HwpRequest = registers::HWP_REQUEST;
            /// HWP_CAPABILITIES.
            HwpCapabilities = registers::HWP_CAPABILITIES;
            /// CPPC_REQ of AMD.
            CppcRequest = registers::CPPC_REQUEST;
            /// Turbo ratios by number of active cores.
            TurboRatios = registers::TURBO_RATIOS;
            /// Numbers of active cores that go with the turbo ratios.
            TurboRatioCores = registers::TURBO_RATIO_CORES;
            /// PLATFORM_INFO.
            PlatformInfo = registers::PLATFORM_INFO;
            /// Profiles that every profile device has.
            AvailablePlatformProfiles = platform::AVAILABLE_PLATFORM_PROFILES;
            /// Profiles of one profile device.
            AvailableDeviceProfiles = platform::AVAILABLE_DEVICE_PROFILES;
            /// Scheduler loaded through sched_ext.
            Scheduler = platform::SCHEDULER;
            /// State of sched_ext.
            SchedulerState = platform::SCHEDULER_STATE;
            /// Schedulers loaded since boot.
            SchedulerChanges = platform::SCHEDULER_CHANGES;
            /// The cpuidle driver.
            IdleDriver = idle::IDLE_DRIVER;
            /// cpuidle governors that the kernel has.
            AvailableIdleGovernors = idle::AVAILABLE_IDLE_GOVERNORS;
            /// Exit latency of an idle state.
            IdleLatency = idle::IDLE_LATENCY;
            /// Target residency of an idle state.
            IdleResidency = idle::IDLE_RESIDENCY;
            /// Power domain of an uncore domain.
            UncoreDomain = power::UNCORE_DOMAIN;
            /// Agents of an uncore domain.
            UncoreAgents = power::UNCORE_AGENTS;
            /// Current uncore frequency.
            UncoreFreq = power::UNCORE_FREQ;
            /// Lowest uncore frequency of the hardware.
            UncoreHwMin = power::UNCORE_HW_MIN;
            /// Highest uncore frequency of the hardware.
            UncoreHwMax = power::UNCORE_HW_MAX;
            /// Highest power limit that a constraint accepts.
            PowerMax = power::POWER_MAX;
            /// Energy counter of a zone.
            Energy = power::ENERGY;
            /// Value at which an energy counter wraps.
            EnergyRange = power::ENERGY_RANGE;
            /// Times that a core was throttled for heat.
            CoreThrottles = power::CORE_THROTTLES;
            /// Times that the package was throttled for heat.
            PackageThrottles = power::PACKAGE_THROTTLES;
            /// Temperature.
            Temperature = power::TEMPERATURE;
        }
    };
}
pub(crate) use rows;

macro_rules! identities {
    ($($(#[doc = $doc:literal])+ $id:ident = $row:path;)*) => {
        /// The identity of a row of the table. Written as the row's name wherever data is stored.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, schemars::JsonSchema)]
        #[schemars(with = "String")]
        pub enum Id { $($(#[doc = $doc])+ $id,)* }

        impl Id {
            /// Every identity, in the table's order.
            pub const ALL: &[Id] = &[$(Id::$id),*];
        }
    };
}

rows!(identities);
