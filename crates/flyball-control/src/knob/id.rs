//! The identities of the table's rows, in the table's order. The row itself is in a file of
//! `table/`.

/// Passes the list of rows to a macro: one macro makes the identities here, another the table. With
/// a single list, every identity has a row, and its number is the row's position.
macro_rules! rows {
    ($callback:ident) => {
        $callback! {
            DriverMode = whole::DRIVER_MODE;
            SstLevel = sst::LEVEL;
            SstBf = sst::BF;
            SstTf = sst::TF;
            SstCp = sst::CP;
            SstCpPriority = sst::PRIORITY;
            ClosMin = sst::CLOS_MIN;
            ClosMax = sst::CLOS_MAX;
            ClosWeight = sst::CLOS_WEIGHT;
            ClosEpp = sst::CLOS_EPP;
            Clos = sst::CLOS;
            Trl = sst::TRL;
            SstApart = sst::PARTITION;
            Online = whole::ONLINE;
            Smt = whole::SMT;
            Turbo = whole::TURBO;
            Boost = whole::BOOST;
            PlatformProfile = platform::PLATFORM_PROFILE;
            DeviceProfile = platform::DEVICE_PROFILE;
            X3dMode = platform::X3D_MODE;
            Governor = frequency::GOVERNOR;
            Epp = preference::EPP;
            Epb = preference::EPB;
            EnergyEfficiency = preference::ENERGY_EFFICIENCY;
            HwpDynamicBoost = preference::HWP_DYNAMIC_BOOST;
            MinPerfPct = frequency::MIN_PERF_PCT;
            MaxPerfPct = frequency::MAX_PERF_PCT;
            MinFreq = frequency::MIN_FREQ;
            MaxFreq = frequency::MAX_FREQ;
            Setspeed = frequency::SETSPEED;
            FloorFreq = frequency::FLOOR_FREQ;
            AutoSelect = cppc_cpufreq::AUTO_SELECT;
            ActivityWindow = cppc_cpufreq::ACTIVITY_WINDOW;
            EppValue = cppc_cpufreq::EPP_VALUE;
            IdleState = idle::IDLE_STATE;
            IdleGovernor = idle::IDLE_GOVERNOR;
            C1Demotion = idle::C1_DEMOTION;
            LatencyLimit = idle::LATENCY_LIMIT;
            UncoreMinFreq = power::UNCORE_MIN_FREQ;
            UncoreMaxFreq = power::UNCORE_MAX_FREQ;
            ElcFloorFreq = power::ELC_FLOOR_FREQ;
            ElcLowThreshold = power::ELC_LOW_THRESHOLD;
            ElcHighThreshold = power::ELC_HIGH_THRESHOLD;
            ElcHighEnable = power::ELC_HIGH_ENABLE;
            PowerLimit = power::POWER_LIMIT;
            SocketPowerLimit = power::SOCKET_POWER_LIMIT;
            PowerWindow = power::POWER_WINDOW;
            SstHighestLevel = sst::HIGHEST;
            SstLocked = sst::LOCKED;
            Driver = facts::DRIVER;
            AvailableGovernors = facts::AVAILABLE_GOVERNORS;
            AvailableEpp = facts::AVAILABLE_EPP;
            HwMinFreq = facts::HW_MIN_FREQ;
            HwMaxFreq = facts::HW_MAX_FREQ;
            BaseFreq = facts::BASE_FREQ;
            NominalFreq = facts::NOMINAL_FREQ;
            LowestNonlinearFreq = facts::LOWEST_NONLINEAR_FREQ;
            CurFreq = facts::CUR_FREQ;
            BiosLimit = facts::BIOS_LIMIT;
            AvailableFreqs = facts::AVAILABLE_FREQS;
            BoostFreqs = facts::BOOST_FREQS;
            TransitionLatency = facts::TRANSITION_LATENCY;
            NumPstates = facts::NUM_PSTATES;
            TurboPct = facts::TURBO_PCT;
            CppcHighest = facts::CPPC_HIGHEST;
            CppcNominal = facts::CPPC_NOMINAL;
            CppcGuaranteed = facts::CPPC_GUARANTEED;
            CppcLowestNonlinear = facts::CPPC_LOWEST_NONLINEAR;
            CppcLowest = facts::CPPC_LOWEST;
            CppcLowestFreq = cppc::LOWEST_FREQ;
            CppcReference = cppc::REFERENCE;
            CppcWraparound = cppc::WRAPAROUND;
            CppcFeedback = cppc::FEEDBACK;
            PerfLimited = cppc_cpufreq::PERF_LIMITED;
            AmdMaxFreq = cppc::AMD_MAX_FREQ;
            AmdHighestPerf = cppc::AMD_HIGHEST_PERF;
            HwPrefcore = cppc::HW_PREFCORE;
            DynamicEpp = cppc::DYNAMIC_EPP;
            Prefcore = facts::PREFCORE;
            PrefcoreRanking = facts::PREFCORE_RANKING;
            HwpRequest = registers::HWP_REQUEST;
            HwpCapabilities = registers::HWP_CAPABILITIES;
            CppcRequest = registers::CPPC_REQUEST;
            TurboRatios = registers::TURBO_RATIOS;
            TurboRatioCores = registers::TURBO_RATIO_CORES;
            PlatformInfo = registers::PLATFORM_INFO;
            FirmwareTurbo = registers::FIRMWARE_TURBO;
            AvailablePlatformProfiles = platform::AVAILABLE_PLATFORM_PROFILES;
            AvailableDeviceProfiles = platform::AVAILABLE_DEVICE_PROFILES;
            Scheduler = platform::SCHEDULER;
            SchedulerState = platform::SCHEDULER_STATE;
            SchedulerChanges = platform::SCHEDULER_CHANGES;
            IdleDriver = idle::IDLE_DRIVER;
            AvailableIdleGovernors = idle::AVAILABLE_IDLE_GOVERNORS;
            IdleDefault = idle::IDLE_DEFAULT;
            IdleLatency = idle::IDLE_LATENCY;
            IdleResidency = idle::IDLE_RESIDENCY;
            UncoreDomain = power::UNCORE_DOMAIN;
            UncoreAgents = power::UNCORE_AGENTS;
            UncoreFreq = power::UNCORE_FREQ;
            UncoreHwMin = power::UNCORE_HW_MIN;
            UncoreHwMax = power::UNCORE_HW_MAX;
            PowerMax = power::POWER_MAX;
            SocketPowerMax = power::SOCKET_POWER_MAX;
            SocketFreqLimit = power::SOCKET_FREQ_LIMIT;
            SocketLimitSource = power::SOCKET_LIMIT_SOURCE;
            Energy = power::ENERGY;
            EnergyRange = power::ENERGY_RANGE;
            CoreThrottles = power::CORE_THROTTLES;
            PackageThrottles = power::PACKAGE_THROTTLES;
            Temperature = power::TEMPERATURE;
        }
    };
}
pub(crate) use rows;

macro_rules! identities {
    ($($id:ident = $row:path;)*) => {
        /// The identity of a row of the table. The row's title describes it. The command line and
        /// stored data use its name, which is the variant's in lower case.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, schemars::JsonSchema, strum::IntoStaticStr,
        )]
        #[strum(serialize_all = "kebab-case", const_into_str)]
        #[schemars(with = "String")]
        pub enum Id { $($id,)* }

        impl Id {
            /// Every identity, in the table's order.
            pub const ALL: &[Id] = &[$(Id::$id),*];
        }
    };
}

rows!(identities);
