"""What the program prints as JSON and writes to files. Made by generate_types.py from its JSON Schemas; do not edit.

For type checkers: no module of the package imports this one at run time.
"""

from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict, Union


class AtBootOutputSnippetsItem(TypedDict):
    file: str
    why: str
    lines: List[str]


class AtBootOutputRequired(TypedDict):
    schema: Literal["at-boot/1"]
    profile: str
    unit: str
    made: List[str]
    snippets: List[AtBootOutputSnippetsItem]


class AtBootOutput(AtBootOutputRequired, total=False):
    """What `flyball apply --at-boot` prints."""

    simulated: bool
    emulated: str


class WorkloadNoteRequired(TypedDict):
    name: str
    metric: Metric
    argv: List[str]
    ignore_failure: bool


class WorkloadNote(WorkloadNoteRequired, total=False):
    """The workload that was run."""

    reader: Reader
    cpus: str
    directory: str
    server: List[str]
    background: List[BackgroundNote]
    prepare: str


class Metric(TypedDict):
    """A quantity that rounds yield."""

    name: str
    unit: str
    better: Better


Better = Literal["higher", "lower"]


Reader1 = TypedDict("Reader1", {"from": Literal["wall-time"]})


Reader2 = TypedDict("Reader2", {"from": Literal["user-time"]})


Reader3 = TypedDict("Reader3", {"from": Literal["preset"], "preset": "Preset"})


Reader4 = TypedDict("Reader4", {"from": Literal["expression"], "pattern": str, "metric": "Metric"})


Reader5 = TypedDict("Reader5", {"from": Literal["model"], "metric": "Metric"})


Reader = Union["Reader1", "Reader2", "Reader3", "Reader4", "Reader5"]


Preset = Literal["perf-pipe", "perf-messaging", "tbench", "fio", "fio-latency", "sysbench", "stress-ng", "openssl", "openssl-sign", "sched-pipe", "spin", "io4k"]


class BackgroundNoteRequired(TypedDict):
    name: str
    argv: List[str]


class BackgroundNote(BackgroundNoteRequired, total=False):
    """A load that ran during every round."""

    cpus: str


class ComparePlanScheduleRequired(TypedDict):
    seed: int
    length: ComparePlanLength
    warm_up: int
    cool_down: float
    interval: float
    confidence: float


class ComparePlanSchedule(ComparePlanScheduleRequired, total=False):
    """How a comparison is run."""

    unobserved: bool


class ComparePlanLength1(TypedDict):
    """This many blocks."""

    rounds: int


class ComparePlanLength2Until(TypedDict):
    half_width: float
    least: int
    most: int


class ComparePlanLength2(TypedDict):
    """Until the confidence interval of every arm's difference from the first is at most this half-width, as a fraction (0.01 is 1 %), within bounds."""

    until: ComparePlanLength2Until


class ComparePlanLength3Search(TypedDict):
    most: int


class ComparePlanLength3(TypedDict):
    """Until a search ends, which chooses the arms of each block."""

    search: ComparePlanLength3Search


ComparePlanLength = Union["ComparePlanLength1", "ComparePlanLength2", "ComparePlanLength3"]


class ComparePlanArmPlanRequired(TypedDict):
    name: str
    needs_boot: Union[str, None]
    plan: Union[ComparePlanPlan, None]


class ComparePlanArmPlan(ComparePlanArmPlanRequired, total=False):
    booted_with: List[str]


class ComparePlanPlan(TypedDict):
    """Every write that brings a machine to what is wanted, in order."""

    machine: str
    changes: List[ComparePlanChange]
    notes: List[Note]


class ComparePlanChangeRequired(TypedDict):
    knob: str
    instance: str
    place: str
    cpus: str
    step: ComparePlanStep
    location: Location
    old: Union[str, None]
    new: str
    was: Union[str, None]
    value: str
    because: str
    provisional: bool


class ComparePlanChange(ComparePlanChangeRequired, total=False):
    through: str


ComparePlanStep = Literal["driver-mode", "speed-select-off", "level", "online", "classes", "core-power", "speed-select-on", "turbo", "governor", "tunable", "preference", "limit", "idle", "power", "offline"]


Location = str


Note = str


class ComparePlanOutputRequired(TypedDict):
    schema: Literal["compare-plan/1"]
    workload: WorkloadNote
    schedule: ComparePlanSchedule
    arms: List[ComparePlanArmPlan]
    rounds_at_most: int
    pause_seconds: float
    order: List[List[str]]


class ComparePlanOutput(ComparePlanOutputRequired, total=False):
    """What `flyball compare --dry-run` prints: the arms, their writes and the order of the rounds."""

    simulated: bool
    emulated: str


DoctorListGroup = Literal["driver", "amd-pstate", "firmware", "conflicts", "now", "trace", "recommended"]


class DoctorListOutputItemRequired(TypedDict):
    schema: Literal["doctor-list/1"]
    id: str
    group: DoctorListGroup
    why: str
    looks: str
    option: Union[str, None]


class DoctorListOutputItem(DoctorListOutputItemRequired, total=False):
    simulated: bool
    emulated: str


DoctorListOutput = List["DoctorListOutputItem"]


Kind = Literal["live", "recorded", "simulated"]


class DoctorNotVisible(TypedDict):
    """A machine that hides the processors' settings."""

    what: str
    remedy: str
    evidence: List[DoctorEvidence]


class DoctorEvidence(TypedDict):
    """One thing that was read: where, and what was there."""

    place: str
    value: str


class DoctorFindingRequired(TypedDict):
    id: str
    group: DoctorGroup
    verdict: DoctorVerdict
    what: str
    why: str
    evidence: List[DoctorEvidence]


class DoctorFinding(DoctorFindingRequired, total=False):
    """The answer of one check."""

    fix: Fix
    kernel_test: KernelTest


DoctorGroup = Literal["driver", "amd-pstate", "firmware", "conflicts", "now", "trace", "recommended"]


DoctorVerdict = Literal["ok", "unknown", "note", "warning", "fault"]


class Fix1(TypedDict):
    """Settings that flyball can make."""

    by: Literal["settings"]
    do: List[KnobValue]


class Fix2(TypedDict):
    """A kernel parameter to add, change or remove, with the action in words."""

    by: Literal["kernel-parameter"]
    do: str


class Fix3(TypedDict):
    """A firmware setup entry to look for."""

    by: Literal["firmware"]
    do: str


class Fix4(TypedDict):
    """Something to do outside flyball."""

    by: Literal["person"]
    do: str


Fix = Union["Fix1", "Fix2", "Fix3", "Fix4"]


KnobValue = str


class KernelTestRequired(TypedDict):
    name: str
    passes: bool


class KernelTest(KernelTestRequired, total=False):
    """What a test of the kernel's amd-pstate-ut module would report on this machine and kernel."""

    because: str


class DoctorOutputRequired(TypedDict):
    schema: Literal["doctor/1"]
    machine: str
    kind: Kind
    processor: str
    kernel: Union[str, None]
    findings: List[DoctorFinding]


class DoctorOutput(DoctorOutputRequired, total=False):
    """What `flyball doctor` prints: the findings."""

    simulated: bool
    emulated: str
    not_visible: DoctorNotVisible


Access = Literal["ro", "rw"]


class ExplainOutputItem1Required(TypedDict):
    schema: Literal["explain/1"]
    knob: str
    title: str
    access: Access
    scope: str
    step: Union[str, None]
    unit: str
    accepts: str
    about: str
    interacts: List[List[str]]
    lives: List[str]


class ExplainOutputItem1(ExplainOutputItem1Required, total=False):
    """A knob as JSON has it."""

    simulated: bool
    emulated: str


class ExplainOutputItem2Required(TypedDict):
    schema: Literal["explain/1"]
    profile: str
    file: Union[str, None]
    text: str


class ExplainOutputItem2(ExplainOutputItem2Required, total=False):
    simulated: bool
    emulated: str


ExplainOutput = List[Union["ExplainOutputItem1", "ExplainOutputItem2"]]


Purpose = Literal["set", "quiet-on", "quiet", "run", "compare", "doctor", "hold", "other"]


class Environment(TypedDict):
    """What a journal belongs to."""

    boot: Union[str, None]
    machine: str


class Content1(TypedDict):
    """The bytes, as the kernel printed them."""

    text: str


class Content2(TypedDict):
    """The bytes in hexadecimal, where they are not UTF-8."""

    hex: str


class Content3(TypedDict):
    """It could not be read; the errno says what that means (EBUSY: the CPU is offline)."""

    unreadable: int


Content = Union["Content1", "Content2", "Content3"]


FileJournalStep = Literal["driver-mode", "speed-select-off", "level", "online", "classes", "core-power", "speed-select-on", "turbo", "governor", "tunable", "preference", "limit", "idle", "power", "offline"]


Spelling = Literal["text", "any-case", "number", "hexadecimal", "switch", "smt-control", "preference", "bias", "percent-of127", "frequency-limit", "speed", "cpuset-controller", "interrupt"]


Bound = Literal["none", "lower", "upper"]


class JournalFile1Header(TypedDict):
    format: int
    boot: Union[str, None]
    machine: str


class JournalFile1(TypedDict):
    header: JournalFile1Header


class JournalFile2BeginRequired(TypedDict):
    id: int
    pid: int
    command: str
    at: int


class JournalFile2Begin(JournalFile2BeginRequired, total=False):
    purpose: Purpose
    of: Environment
    holds: List[str]


class JournalFile2(TypedDict):
    begin: JournalFile2Begin


class JournalFile3WasRequired(TypedDict):
    location: Location
    content: Content
    step: FileJournalStep
    spelling: Spelling


class JournalFile3Was(JournalFile3WasRequired, total=False):
    bound: Bound
    late: bool
    lost: bool
    seen_late: bool


class JournalFile3(TypedDict):
    was: JournalFile3Was


class JournalFile4WriteRequired(TypedDict):
    location: Location
    old: Content
    new: Content
    step: FileJournalStep
    spelling: Spelling


class JournalFile4Write(JournalFile4WriteRequired, total=False):
    bound: Bound


class JournalFile4(TypedDict):
    write: JournalFile4Write


class JournalFile5Commit(TypedDict):
    id: int


class JournalFile5(TypedDict):
    commit: JournalFile5Commit


class JournalFile6Restored(TypedDict):
    id: int


class JournalFile6(TypedDict):
    restored: JournalFile6Restored


class JournalFile7Released(TypedDict):
    locations: List[Location]


class JournalFile7(TypedDict):
    """No hold sets these any more: they have been restored by themselves, or belong to another writer."""

    released: JournalFile7Released


JournalFile = Union["JournalFile1", "JournalFile2", "JournalFile3", "JournalFile4", "JournalFile5", "JournalFile6", "JournalFile7"]


class CommandKnobRequired(TypedDict):
    name: str
    write: str


class CommandKnob(CommandKnobRequired, total=False):
    """A setting with its commands, each a line for /bin/sh."""

    read: str
    restore: str


class MachineNoteRequired(TypedDict):
    name: str
    simulated: bool
    processor: str
    cpus: int


class MachineNote(MachineNoteRequired, total=False):
    """The machine that was measured."""

    emulated: str
    system: SystemNote


class SystemNote(TypedDict, total=False):
    """Which machine it is, and what may differ between machines of one kind."""

    hostname: str
    product: str
    firmware: str
    microcode: str


class Arm(TypedDict):
    """Settings under a name."""

    name: str
    wishes: List[ArmSetting]


class ArmSetting(TypedDict):
    """One setting as typed: knob, value, and perhaps the CPUs it is for (K@0-3=V)."""

    knob: str
    value: str


class FileManifestScheduleRequired(TypedDict):
    seed: int
    length: FileManifestLength
    warm_up: int
    cool_down: float
    interval: float
    confidence: float


class FileManifestSchedule(FileManifestScheduleRequired, total=False):
    """How a comparison is run."""

    unobserved: bool


class FileManifestLength1(TypedDict):
    """This many blocks."""

    rounds: int


class FileManifestLength2Until(TypedDict):
    half_width: float
    least: int
    most: int


class FileManifestLength2(TypedDict):
    """Until the confidence interval of every arm's difference from the first is at most this half-width, as a fraction (0.01 is 1 %), within bounds."""

    until: FileManifestLength2Until


class FileManifestLength3SearchRequired(TypedDict):
    most: int


class FileManifestLength3Search(FileManifestLength3SearchRequired, total=False):
    cut: float


class FileManifestLength3(TypedDict):
    """Until a search ends, which chooses the arms of each block."""

    search: FileManifestLength3Search


FileManifestLength = Union["FileManifestLength1", "FileManifestLength2", "FileManifestLength3"]


class QuietNoteRequired(TypedDict):
    level: str
    cpus: str
    settings: List[str]


class QuietNote(QuietNoteRequired, total=False):
    """That the machine was kept quiet around all rounds, and how."""

    unavailable: List[str]


class BootRequired(TypedDict):
    id: str
    kernel: str
    command_line: str
    started: int
    arms: List[int]
    meters: MeterList


class Boot(BootRequired, total=False):
    """One boot of the machine in which rounds were run."""

    driver: str


class MeterListRequired(TypedDict):
    energy: List[EnergySource]
    frequency: List[List[Union[int, str]]]
    registers: List[int]
    temperature: List[List[str]]
    throttle: bool


class MeterList(MeterListRequired, total=False):
    """Where a meter's numbers come from, in the manifest."""

    no_energy: str
    no_frequency: str


class EnergySourceRequired(TypedDict):
    domain: Domain
    name: str
    place: str
    unit: float
    is_power: bool


class EnergySource(EnergySourceRequired, total=False):
    """One energy meter, and how its numbers become joules."""

    wraps_after: int


Domain = Literal["package", "dram", "platform", "cores"]


class ManifestFileExperiment(TypedDict):
    """The file that described the comparison, if one did."""

    name: str
    digest: str


class ManifestFileRequired(TypedDict):
    format: str
    version: int
    tool: str
    machine: MachineNote
    workload: WorkloadNote
    arms: List[Arm]
    boot_needs: List[Union[str, None]]
    schedule: FileManifestSchedule
    boots: List[Boot]


class ManifestFile(ManifestFileRequired, total=False):
    """The file `manifest.json` of a run directory: what was compared, how, and on what."""

    command_line: List[str]
    quiet: QuietNote
    trace: bool
    knobs: List[CommandKnob]
    experiment: ManifestFileExperiment


section = Dict[str, Dict[str, "values"]]


values = Union["value", List["value"]]


value = Union[str, bool, int]


class ProfileFileOptional(TypedDict, total=False):
    """Settings that are left out where the machine lacks them, with a note."""

    cpus: section
    package: section
    die: section
    node: section
    core: section
    policy: section
    type: section


class ProfileFile(TypedDict, total=False):
    """A profile, as TOML: settings for all CPUs, sections for some of them, and optional ones."""

    description: str
    cpus: section
    package: section
    die: section
    node: section
    core: section
    policy: section
    type: section
    optional: ProfileFileOptional


Measured = Literal["latency", "wall-power"]


class PublishedFileItem(TypedDict):
    arm: str
    source: str
    machine: str
    workload: str
    row: str
    settings: List[List[str]]
    of: Measured
    value: float
    here: Union[float, None]


PublishedFile = List["PublishedFileItem"]


class SpeedNote(TypedDict):
    """The speed of the CPUs that ran, on average over the time in which each ran."""

    cpus: str
    highest_mhz: float
    mhz: float
    losses: List[SpeedLoss]


class SpeedLossRequired(TypedDict):
    limiter: str
    words: str
    mhz: float
    share: float
    evidence: List[str]
    is_setting: bool


class SpeedLoss(SpeedLossRequired, total=False):
    """What one limit took."""

    knob: str


class Moment(TypedDict, total=False):
    """A moment of the machine, by its own clocks."""

    uptime_s: float
    unix_s: float
    load_before: float


class FileRoundOutcomeRequired(TypedDict):
    value: Union[float, None]
    seconds: float


class FileRoundOutcome(FileRoundOutcomeRequired, total=False):
    """What one run of a workload yielded."""

    work_seconds: float
    usage: Usage
    cut: bool
    failure: str
    output: str


class Usage(TypedDict):
    """What a process and the descendants that it waited for used, by the kernel's accounting (getrusage(2))."""

    user_seconds: float
    system_seconds: float
    voluntary_switches: int
    involuntary_switches: int
    peak_kib: int
    major_faults: int


class ReadingsRequired(TypedDict):
    energy: List[List[List[Union[float, int]]]]
    frequency: List[List[List[Union[float, int]]]]
    registers: List[Union[Effective, None]]
    temperature: List[List[List[Union[float, int]]]]


class Readings(ReadingsRequired, total=False):
    """The raw readings of one round."""

    throttled: int
    switches: int


class Effective(TypedDict):
    """What the registers counted over a round on one CPU."""

    aperf: int
    mperf: int
    tsc: int
    seconds: float


class TraceNoteRequired(TypedDict):
    file: str
    records: int
    lost: int
    decisions: int


class TraceNote(TraceNoteRequired, total=False):
    """The driver's decisions in one round, summed up; the trace itself is a file next to the rounds."""

    ghz: float
    sampled: Sampled
    lag_ms: float


class Sampled(TypedDict):
    """Plain means over all records of a driver's decisions, of all CPUs."""

    des_perf: float
    ghz: Union[float, None]
    load: Union[float, None]


class ConditionsRequired(TypedDict):
    frequency_mhz: Union[float, None]
    frequency_range_mhz: Union[float, None]
    temperature_c: Union[float, None]
    throttles: Union[int, None]
    busy: Union[float, None]
    steal: Union[float, None]
    interrupts_per_s: Union[float, None]
    switches_per_s: Union[float, None]
    memory_pressure: Union[float, None]
    load: Union[float, None]


class Conditions(ConditionsRequired, total=False):
    """What the machine did during one run."""

    temperature_limit_c: float
    floor_mhz: float
    uptime_s: float
    unix_s: float
    load_before: float


class RoundFileRequired(TypedDict):
    boot: int
    block: int
    arm: int
    place: int
    warm_up: bool
    started: float
    moment: Moment
    outcome: FileRoundOutcome
    readings: Readings


class RoundFile(RoundFileRequired, total=False):
    """A line of the file `rounds.jsonl` of a run directory: one run of the workload under one arm."""

    notes: List[str]
    trace: TraceNote
    void: str
    speed: SpeedNote
    conditions: Conditions


class SnapshotFileSettingsItemRequired(TypedDict):
    knob: str
    value: str


class SnapshotFileSettingsItem(SnapshotFileSettingsItemRequired, total=False):
    """A setting that a profile can have."""

    cpus: str


class SnapshotFile(TypedDict, total=False):
    """A file `snapshot-*.json` of a run directory: the settings before or after the rounds of a boot."""

    settings: List[SnapshotFileSettingsItem]
    profile: str
    error: str
    simulated: bool
    machine: str


class FleetFleetMachineEffectsItem(TypedDict):
    arm: int
    quantity: Quantity
    change: float
    interval: Union[Interval, None]
    verdict: FleetVerdict


class FleetFleetMachine(TypedDict):
    """One machine."""

    machine: str
    directory: str
    simulated: bool
    pairs: int
    facts: Dict[str, str]
    effects: List[FleetFleetMachineEffectsItem]


class FleetFleetEffectWithoutOne1(TypedDict):
    lowest: List[Union[str, float]]
    highest: List[Union[str, float]]


class FleetFleetEffect(TypedDict):
    """An arm's effect over the fleet."""

    arm: int
    quantity: Quantity
    machines: int
    change: float
    interval: Union[Interval, None]
    p: float
    p_corrected: float
    verdict: FleetVerdict
    between: float
    i_squared: float
    next: Union[Interval, None]
    better: int
    worse: int
    undecided: int
    without_one: Union[FleetFleetEffectWithoutOne1, None]
    facts: List[FleetFact]
    odd: List[OddMachine]
    noise: float


class FleetFactGroupsItem(TypedDict):
    values: List[str]
    machines: int
    change: float
    interval: Union[Interval, None]


class FleetFact(TypedDict):
    """The fleet divided by a fact."""

    facts: List[Literal["processor", "product", "firmware", "microcode", "kernel", "driver"]]
    p: float
    p_corrected: float
    groups: List[FleetFactGroupsItem]


class OddMachine(TypedDict):
    """A machine that is unlike its peers."""

    machine: str
    change: float
    peers: float
    p_corrected: float
    differs_in: List[List[str]]


class FleetDesign(TypedDict):
    """How many machines show an effect with this many rounds of each arm."""

    rounds: int
    machines: Union[int, None]


Quantity = Literal["performance", "latency", "energy", "per-watt", "dram", "platform", "power", "platform-power", "frequency", "busy", "temperature", "switches", "user", "system", "time", "decisions", "trace-frequency", "lag", "desired-performance", "sampled-frequency", "sampled-load"]


FleetVerdict = Literal["better", "worse", "no-difference-shown", "too-few-rounds"]


class Interval(TypedDict):
    low: float
    high: float


class FleetOutputExperimentRequired(TypedDict):
    workload: str
    argv: List[str]
    metric: Metric
    arms: List[List[Union[str, List[str]]]]


class FleetOutputExperiment(FleetOutputExperimentRequired, total=False):
    """What was run on every machine."""

    name: str


class FleetOutputSkippedItem(TypedDict):
    directory: str
    why: str


class FleetOutputRequired(TypedDict):
    schema: Literal["fleet/1"]
    experiment: FleetOutputExperiment
    confidence: float
    machines: List[FleetFleetMachine]
    effects: List[FleetFleetEffect]
    skipped: List[FleetOutputSkippedItem]
    missing: List[str]


class FleetOutput(FleetOutputRequired, total=False):
    """What `flyball report --fleet` prints, and its `fleet.json`."""

    design: List[List[FleetDesign]]


class GetOutputItemRequired(TypedDict):
    schema: Literal["get/1"]
    knob: str
    cpus: str
    value: Any
    unit: str
    source: Union[str, None]


class GetOutputItem(GetOutputItemRequired, total=False):
    simulated: bool
    emulated: str
    instance: str
    absent: str
    error: str


GetOutput = List["GetOutputItem"]


class Progress(TypedDict):
    round: int
    seconds: float
    sequences: int
    steps: int
    features: int
    corpus: int
    findings: int
    lost: int


class GuestFuzzFindingRequired(TypedDict):
    id: str
    details: List[str]
    steps: List[str]
    round: int
    repeats: bool
    known: bool


class GuestFuzzFinding(GuestFuzzFindingRequired, total=False):
    about: Union[str, None]


class GuestFuzzOutputRequired(TypedDict):
    schema: Literal["guest-fuzz/1"]
    kernel: str
    release: str
    seed: int
    directory: str
    machine: str
    mode: str
    progress: List[Progress]
    findings: List[GuestFuzzFinding]


class GuestFuzzOutput(GuestFuzzOutputRequired, total=False):
    """What `flyball guest fuzz` prints: faults of a kernel's drivers that generated sequences found on emulated processors."""

    simulated: bool
    emulated: str
    baseline: Union[str, None]


class MachineRow(TypedDict):
    name: str
    cpus: int
    title: str


class GuestListOutputRequired(TypedDict):
    schema: Literal["guest-list/1"]
    machines: List[MachineRow]
    kernels: List[str]
    cache: str


class GuestListOutput(GuestListOutputRequired, total=False):
    """What `flyball guest list` prints: machines and kernels."""

    simulated: bool
    emulated: str


class GuestTestGroup(TypedDict):
    """A topic in a driver mode of a machine."""

    machine: str
    mode: str
    topic: str
    seconds: float
    tests: List[Test]


class TestRequired(TypedDict):
    name: str
    outcome: Literal["pass", "fail", "known", "skip", "cannot-tell"]


class Test(TestRequired, total=False):
    reason: str
    details: List[str]
    steps: List[str]


class GuestTestOutputRequired(TypedDict):
    schema: Literal["guest-test/1"]
    kernel: str
    release: str
    seed: int
    seconds: float
    groups: List[GuestTestGroup]


class GuestTestOutput(GuestTestOutputRequired, total=False):
    """What `flyball guest test` prints: tests of a kernel's cpufreq drivers on emulated processors."""

    simulated: bool
    emulated: str
    baseline: str


class HoldAddOutputHoldRequired(TypedDict):
    name: str
    owner: str
    priority: int
    settings: List[Dict[str, Any]]
    end: Dict[str, Any]
    on_drift: Literal["correct", "report", "yield"]
    on_exit: Literal["keep", "release"]
    since: int


class HoldAddOutputHold(HoldAddOutputHoldRequired, total=False):
    """The hold."""

    profile: str
    condition: Dict[str, Any]


class HoldAddOutputRequired(TypedDict):
    schema: Literal["hold-add/1"]
    hold: HoldAddOutputHold
    in_force: bool
    because: Union[str, None]
    applied: Union[Dict[str, Any], None]
    restoration: Union[Dict[str, Any], None]


class HoldAddOutput(HoldAddOutputRequired, total=False):
    """What `flyball hold add` prints."""

    simulated: bool
    emulated: str


class HoldListOutputItemRequired(TypedDict):
    schema: Literal["hold-list/1"]
    name: str
    owner: str
    priority: int
    settings: List[Dict[str, Any]]
    end: Dict[str, Any]
    on_drift: Literal["correct", "report", "yield"]
    on_exit: Literal["keep", "release"]
    since: int
    in_force: bool


class HoldListOutputItem(HoldListOutputItemRequired, total=False):
    simulated: bool
    emulated: str
    profile: str
    condition: Dict[str, Any]
    because: str
    not_reported: str


HoldListOutput = List["HoldListOutputItem"]


class HoldRequired(TypedDict):
    name: str
    owner: str
    priority: int
    settings: List[Dict[str, Any]]
    end: Dict[str, Any]
    on_drift: Literal["correct", "report", "yield"]
    on_exit: Literal["keep", "release"]
    since: int
    in_force: bool


class Hold(HoldRequired, total=False):
    profile: str
    condition: Dict[str, Any]
    because: str
    not_reported: str


class KnobOverItem(TypedDict):
    hold: str
    wanted: str


class KnobRequired(TypedDict):
    knob: str
    cpus: str
    wanted: str
    found: Union[str, None]
    holds: bool
    hold: str


class Knob(KnobRequired, total=False):
    instance: str
    over: List[KnobOverItem]
    left: Any
    cause: Any


class HoldRehearseDriftRequired(TypedDict):
    at: int
    hold: str
    knob: str
    cpus: str
    wanted: str
    found: Union[str, None]
    cause: Any
    action: Any


class HoldRehearseDrift(HoldRehearseDriftRequired, total=False):
    instance: str
    took_us: int


class HoldRehearseOutputStepsItem(TypedDict):
    at_s: float
    event: Union[str, None]
    did: List[str]


class HoldRehearseOutputStatusRequired(TypedDict):
    service: Union[Dict[str, Any], None]
    holds: List[Hold]
    knobs: List[Knob]
    drifts: List[HoldRehearseDrift]


class HoldRehearseOutputStatus(HoldRehearseOutputStatusRequired, total=False):
    """What is held at the end, as hold-status has it."""

    failure: str
    config_error: str


class HoldRehearseOutputRequired(TypedDict):
    schema: Literal["hold-rehearse/1"]
    steps: List[HoldRehearseOutputStepsItem]
    status: HoldRehearseOutputStatus


class HoldRehearseOutput(HoldRehearseOutputRequired, total=False):
    """What `flyball hold rehearse` prints: what the service did at each event, and the end."""

    simulated: bool
    emulated: str


class HoldReleaseOutputPlannedRestoredItem(TypedDict):
    location: str
    was: str
    now: str


class HoldReleaseOutputPlanned(TypedDict):
    """With --dry-run: what would be done."""

    restored: List[HoldReleaseOutputPlannedRestoredItem]
    plan: Union[Dict[str, Any], None]


class HoldReleaseOutputRequired(TypedDict):
    schema: Literal["hold-release/1"]
    released: List[str]
    applied: Union[Dict[str, Any], None]
    restoration: Union[Dict[str, Any], None]
    stays: List[Dict[str, Any]]


class HoldReleaseOutput(HoldReleaseOutputRequired, total=False):
    """What `flyball hold release` prints."""

    simulated: bool
    emulated: str
    planned: HoldReleaseOutputPlanned


class HoldStatusDriftRequired(TypedDict):
    at: int
    hold: str
    knob: str
    cpus: str
    wanted: str
    found: Union[str, None]
    cause: Any
    action: Any


class HoldStatusDrift(HoldStatusDriftRequired, total=False):
    instance: str
    took_us: int


class HoldStatusOutputRequired(TypedDict):
    schema: Literal["hold-status/1"]
    service: Union[Dict[str, Any], None]
    holds: List[Hold]
    knobs: List[Knob]
    drifts: List[HoldStatusDrift]


class HoldStatusOutput(HoldStatusOutputRequired, total=False):
    """What `flyball hold status` prints: holds, what they hold, and the last drifts."""

    simulated: bool
    emulated: str
    failure: str
    config_error: str


class PlanChangeRequired(TypedDict):
    knob: str
    instance: str
    place: str
    cpus: str
    step: PlanStep
    location: Location
    old: Union[str, None]
    new: str
    was: Union[str, None]
    value: str
    because: str
    provisional: bool


class PlanChange(PlanChangeRequired, total=False):
    through: str


PlanStep = Literal["driver-mode", "speed-select-off", "level", "online", "classes", "core-power", "speed-select-on", "turbo", "governor", "tunable", "preference", "limit", "idle", "power", "offline"]


class PlanOutputRequired(TypedDict):
    schema: Literal["plan/1"]
    machine: str
    changes: List[PlanChange]
    notes: List[Note]


class PlanOutput(PlanOutputRequired, total=False):
    """What `flyball plan` prints, and every command with --dry-run: the writes in order."""

    simulated: bool
    emulated: str


class ProfilesOutputItemRequired(TypedDict):
    schema: Literal["profiles/1"]
    name: str
    description: Union[str, None]
    file: Union[str, None]
    settings: int
    possible: int
    in_effect: bool
    notes: List[str]


class ProfilesOutputItem(ProfilesOutputItemRequired, total=False):
    simulated: bool
    emulated: str


ProfilesOutput = List["ProfilesOutputItem"]


Level = Literal["light", "steady", "fixed"]


class RunRequired(TypedDict):
    seconds: float
    grade: Grade
    disturbances: List[Disturbance]
    frequency_mhz: Union[float, None]
    frequency_range_mhz: Union[float, None]
    temperature_c: Union[float, None]
    throttles: Union[int, None]
    busy: Union[float, None]
    steal: Union[float, None]
    interrupts_per_s: Union[float, None]
    switches_per_s: Union[float, None]
    memory_pressure: Union[float, None]
    load: Union[float, None]


class Run(RunRequired, total=False):
    """One run of the series."""

    temperature_limit_c: float
    floor_mhz: float
    uptime_s: float
    unix_s: float
    load_before: float


Grade = Literal["not watched", "good", "fair", "bad"]


class Disturbance(TypedDict):
    """One thing that disturbed a run."""

    source: Source
    grade: Grade
    what: str


Source = Literal["steal", "frequency", "memory", "load", "heat"]


class Found(TypedDict):
    """One series with its shifts."""

    name: str
    unit: str
    runs: int
    shifts: List[Explained]


class ExplainedBefore(TypedDict):
    """The segment before, as indexes; empty where a drift goes on from the start."""

    start: int
    end: int


class ExplainedAfter(TypedDict):
    """The segment after, as indexes; empty where a drift goes on to the end."""

    start: int
    end: int


Explained = TypedDict("Explained", {"form": "Form", "at": int, "before": "ExplainedBefore", "after": "ExplainedAfter", "median_before": float, "median_after": float, "p": float, "with": List["ColumnChange"]})


Form = Literal["step", "drift", "spread"]


class ColumnChangeRequired(TypedDict):
    name: str
    unit: str
    before: str
    after: str
    at: int
    p: float


class ColumnChange(ColumnChangeRequired, total=False):
    """A column that changed where the series shifted."""

    until: int


class QuietBenchOutputRequired(TypedDict):
    schema: Literal["quiet-bench/1"]
    command: List[str]
    level: Level
    as_is: bool
    runs: List[Run]
    median_ms: float
    standard_deviation_ms: float
    shifts: Found


class QuietBenchOutput(QuietBenchOutputRequired, total=False):
    """What `flyball quiet bench` prints: the runs with their conditions, and the shifts among them."""

    simulated: bool
    emulated: str


class QuietSettingsRequired(TypedDict):
    cpus: str
    settings: List[QuietSetting]
    unavailable: List[str]
    boot: List[BootParameter]


class QuietSettings(QuietSettingsRequired, total=False):
    """What makes this machine quiet."""

    partition: Partition


QuietSetting = Union["QuietSettingRecord"]


class QuietSettingRecordRequired(TypedDict):
    setting: str
    because: str


class QuietSettingRecord(QuietSettingRecordRequired, total=False):
    """How a setting is written to JSON."""

    cpus: str


BootParameter = str


class Partition(TypedDict):
    """A control group whose CPUs are its own (cgroup v2, cpuset)."""

    path: str
    content: str
    hand_down: bool


class QuietPlanPlan(TypedDict):
    """Every write that brings a machine to what is wanted, in order."""

    machine: str
    changes: List[QuietPlanChange]
    notes: List[Note]


class QuietPlanChangeRequired(TypedDict):
    knob: str
    instance: str
    place: str
    cpus: str
    step: QuietPlanStep
    location: Location
    old: Union[str, None]
    new: str
    was: Union[str, None]
    value: str
    because: str
    provisional: bool


class QuietPlanChange(QuietPlanChangeRequired, total=False):
    through: str


QuietPlanStep = Literal["driver-mode", "speed-select-off", "level", "online", "classes", "core-power", "speed-select-on", "turbo", "governor", "tunable", "preference", "limit", "idle", "power", "offline"]


class QuietPlanOutputExtrasItem(TypedDict):
    location: str
    new: str


class QuietPlanOutputRequired(TypedDict):
    schema: Literal["quiet-plan/1"]
    recipe: QuietSettings
    plan: QuietPlanPlan
    extras: List[QuietPlanOutputExtrasItem]


class QuietPlanOutput(QuietPlanOutputRequired, total=False):
    """What `flyball quiet --dry-run` prints: what would be set."""

    simulated: bool
    emulated: str


class QuietShiftsOutputItemRequired(TypedDict):
    schema: Literal["quiet-shifts/1"]
    name: str
    unit: str
    runs: int
    shifts: List[Explained]


class QuietShiftsOutputItem(QuietShiftsOutputItemRequired, total=False):
    simulated: bool
    emulated: str


QuietShiftsOutput = List["QuietShiftsOutputItem"]


class QuietStatusChangeRequired(TypedDict):
    knob: str
    instance: str
    place: str
    cpus: str
    step: QuietStatusStep
    location: Location
    old: Union[str, None]
    new: str
    was: Union[str, None]
    value: str
    because: str
    provisional: bool


class QuietStatusChange(QuietStatusChangeRequired, total=False):
    through: str


QuietStatusStep = Literal["driver-mode", "speed-select-off", "level", "online", "classes", "core-power", "speed-select-on", "turbo", "governor", "tunable", "preference", "limit", "idle", "power", "offline"]


class QuietStatusOutputRequired(TypedDict):
    schema: Literal["quiet-status/1"]
    level: Level
    quiet: bool
    settings: List[QuietSetting]
    differs: List[QuietStatusChange]
    interrupts_and_profiling: int
    unavailable: List[str]
    boot: List[BootParameter]


class QuietStatusOutput(QuietStatusOutputRequired, total=False):
    """What `flyball quiet status` prints: whether the machine is quiet."""

    simulated: bool
    emulated: str


class RecordOutputRequired(TypedDict):
    schema: Literal["record/1"]
    files: int
    errors: int
    registers: int
    log_lines: int
    denied: int


class RecordOutput(RecordOutputRequired, total=False):
    """What `flyball record` prints: what the recording holds."""

    simulated: bool
    emulated: str


class ReportScheduleRequired(TypedDict):
    seed: int
    length: ReportLength
    warm_up: int
    cool_down: float
    interval: float
    confidence: float


class ReportSchedule(ReportScheduleRequired, total=False):
    """How a comparison is run."""

    unobserved: bool


class ReportLength1(TypedDict):
    """This many blocks."""

    rounds: int


class ReportLength2Until(TypedDict):
    half_width: float
    least: int
    most: int


class ReportLength2(TypedDict):
    """Until the confidence interval of every arm's difference from the first is at most this half-width, as a fraction (0.01 is 1 %), within bounds."""

    until: ReportLength2Until


class ReportLength3Search(TypedDict):
    most: int


class ReportLength3(TypedDict):
    """Until a search ends, which chooses the arms of each block."""

    search: ReportLength3Search


ReportLength = Union["ReportLength1", "ReportLength2", "ReportLength3"]


class ReportArmReportRequired(TypedDict):
    name: str
    settings: List[str]
    boots: List[int]
    waits_for: Union[str, None]
    rounds: int
    left_out: List[LeftOut]
    throttled: Union[int, None]
    notes: List[str]
    summaries: List[ReportSummary]


class ReportArmReport(ReportArmReportRequired, total=False):
    grades: Grades
    speed: SpeedNote


class LeftOut(TypedDict):
    """A round that does not count."""

    boot: int
    block: int
    why: str


class Grades(TypedDict):
    """How many rounds had which conditions."""

    not_watched: int
    good: int
    fair: int
    bad: int


class ReportSummary(TypedDict):
    """One quantity of one arm."""

    quantity: Quantity
    metric: Metric
    median: float
    interval: Union[Interval, None]
    mean: float
    deviation: Union[float, None]
    points: List[Point]
    drift: Union[ReportDrift, None]
    outliers: List[int]


class Point(TypedDict):
    """The value of one round."""

    boot: int
    block: int
    value: float


class ReportDrift(TypedDict):
    """A trend inside an arm that is too strong to be chance."""

    change: float
    p: float


class ReportComparisonRequired(TypedDict):
    quantity: Quantity
    base: int
    arm: int
    paired: bool
    pairs: int
    change: float
    interval: Union[Interval, None]
    p: float
    p_corrected: float
    delta: float
    verdict: ReportVerdict
    shows: Union[float, None]
    rounds_for_one_percent: Union[int, None]


class ReportComparison(ReportComparisonRequired, total=False):
    """Two arms compared in one quantity."""

    steadiness: ReportSteadiness


ReportVerdict = Literal["better", "worse", "no-difference-shown", "too-few-rounds"]


class ReportSteadiness(TypedDict):
    """How the scatter of two arms' rounds compares: a test of the absolute deviations from each arm's median (Brown and Forsythe), by ranks and pair by pair."""

    spreads: List[float]
    change: float
    p: float
    p_corrected: float
    verdict: ReportVerdict


class ReportOutputRequired(TypedDict):
    schema: Literal["report/1"]
    machine: MachineNote
    workload: WorkloadNote
    schedule: ReportSchedule
    arms: List[ReportArmReport]
    comparisons: List[ReportComparison]
    no_energy: Union[str, None]
    no_frequency: Union[str, None]
    notes: List[str]


class ReportOutput(ReportOutputRequired, total=False):
    """What `flyball report` and `compare` print, and `report.json` of a run directory."""

    simulated: bool
    emulated: str
    quiet: QuietNote


class EntryRequired(TypedDict):
    id: int
    pid: int
    command: str
    at: int
    standing: TransactionState
    writes: int


class Entry(EntryRequired, total=False):
    """One transaction, as the journal has it."""

    purpose: Purpose
    holds: List[str]


TransactionState = Literal["open", "committed", "restored"]


class RestorePlanOutputDifferingItem(TypedDict):
    location: str
    was: str
    now: str


class RestorePlanOutputRequired(TypedDict):
    schema: Literal["restore-plan/1"]
    undo: List[Entry]
    remembered: int
    differing: List[RestorePlanOutputDifferingItem]


class RestorePlanOutput(RestorePlanOutputRequired, total=False):
    """What `flyball restore --dry-run` prints: what would be restored."""

    simulated: bool
    emulated: str


class RestorationRequired(TypedDict):
    remembered: int
    written: List[Written]
    left: List[NotRestored]


class Restoration(RestorationRequired, total=False):
    """What restoring did."""

    made: int
    damaged: int
    foreign: List[Location]


Written = TypedDict("Written", {"location": "Location", "from": str, "to": str})


class NotRestored(TypedDict):
    """A location that does not hold what it held, or is not known to."""

    location: Location
    wanted: str
    found: str
    because: NotRestoredReason
    error: Union[Refused, None]


NotRestoredReason = Literal["differs", "cannot-be-read", "was-not-read", "was-lost"]


Refused = str


class RestoreOutputRequired(TypedDict):
    schema: Literal["restore/1"]
    undone: List[Entry]


class RestoreOutput(RestoreOutputRequired, total=False):
    """What `flyball restore` prints: what was undone, and what could not be."""

    simulated: bool
    emulated: str
    restoration: Restoration
    notes: List[str]


class Passed(TypedDict):
    path: str
    why: str


class ResultsAddOutputRequired(TypedDict):
    schema: Literal["results-add/1"]
    inputs: int
    rows: int
    known: int
    files: int
    skipped: List[Passed]


class ResultsAddOutput(ResultsAddOutputRequired, total=False):
    """What `flyball results add` prints: what was added."""

    simulated: bool
    emulated: str


class ResultsListOutputItemRequired(TypedDict):
    schema: Literal["results-list/1"]
    id: str
    kind: Literal["rounds", "findings", "settings"]
    host: str
    time: int
    source: str
    benchmarks: List[str]
    rows: int


class ResultsListOutputItem(ResultsListOutputItemRequired, total=False):
    simulated: bool
    emulated: str


ResultsListOutput = List["ResultsListOutputItem"]


class Shifted(TypedDict):
    """A series that shifted."""

    host: str
    benchmark: str
    arm: str
    metric: str
    unit: str
    runs: int
    p: float
    changes: List[Place]


class Place(TypedDict):
    """Where a series shifted."""

    form: Literal["step", "drift"]
    before: int
    after: int
    median_before: float
    median_after: float
    change: Union[float, None]
    better: Union[bool, None]
    facts: List[Fact]


class Fact(TypedDict):
    name: str
    before: Union[str, None]
    after: Union[str, None]
    runs_away: int


class With(TypedDict):
    """A change of a fact, over all series of a benchmark."""

    benchmark: str
    arm: str
    metric: str
    name: str
    before: Union[str, None]
    after: Union[str, None]
    shifted: int
    of: int
    change: Union[float, None]


ResultsShiftsOutput = TypedDict("ResultsShiftsOutput", {"schema": Literal["results-shifts/1"], "simulated": bool, "emulated": str, "confidence": float, "rounds": int, "hosts": int, "series": int, "short": int, "ambiguous": List[str], "first": int, "last": int, "shifted": List["Shifted"], "with": List["With"], "passed": List["Passed"]}, total=False)


class Of(TypedDict):
    benchmark: str
    arm: str
    metric: str
    unit: str
    rounds: int
    median: float


class ResultsShowOutputRequired(TypedDict):
    schema: Literal["results-show/1"]
    id: str
    kind: Literal["rounds", "findings", "settings"]
    host: str
    time: int
    source: str
    benchmarks: List[str]
    rows: int
    facts: Dict[str, str]
    settings: Dict[str, str]
    results: List[Of]
    verdicts: Dict[str, int]


class ResultsShowOutput(ResultsShowOutputRequired, total=False):
    """What `flyball results show` prints: an input of a dataset."""

    simulated: bool
    emulated: str


class Check(TypedDict):
    """One cell, computed again."""

    line: int
    row: str
    column: str
    printed: str
    computed: str
    agrees: bool


class PairVerdict(TypedDict):
    """What the rounds of two groups show in one column."""

    base: str
    compared: str
    column: str
    rounds: List[int]
    change: float
    p: float
    p_corrected: float
    smallest_p: float
    welch_corrected: Union[float, None]
    apart: bool
    shown: bool


class SelftestOutputRequired(TypedDict):
    schema: Literal["selftest/1"]
    test: str
    seconds: Union[int, None]
    checks: List[Check]
    pairs: List[PairVerdict]
    notes: List[str]


class SelftestOutput(SelftestOutputRequired, total=False):
    """What `flyball report` of a kernel selftest's CSV file prints."""

    simulated: bool
    emulated: str


class SetAppliedChange(TypedDict):
    """A change that was made."""

    change: SetChange
    outcome: SetOutcome


class SetChangeRequired(TypedDict):
    knob: str
    instance: str
    place: str
    cpus: str
    step: SetStep
    location: Location
    old: Union[str, None]
    new: str
    was: Union[str, None]
    value: str
    because: str
    provisional: bool


class SetChange(SetChangeRequired, total=False):
    through: str


SetStep = Literal["driver-mode", "speed-select-off", "level", "online", "classes", "core-power", "speed-select-on", "turbo", "governor", "tunable", "preference", "limit", "idle", "power", "offline"]


class SetOutcome2(TypedDict):
    """The kernel accepted the write and made this of it."""

    clamped: str


class SetOutcome3(TypedDict):
    """The kernel accepted the write, and the location still holds this, which it held before."""

    lost: str


class SetOutcome4(TypedDict):
    """The value was read back, and something changed it to this before the work was done."""

    overridden: str


SetOutcome = Union[Literal["applied"], "SetOutcome2", "SetOutcome3", "SetOutcome4"]


class SetOutputRequired(TypedDict):
    schema: Literal["set/1"]
    made: List[SetAppliedChange]
    notes: List[Note]


class SetOutput(SetOutputRequired, total=False):
    """What `flyball set`, `apply` and the commands of `sst` print: what was changed."""

    simulated: bool
    emulated: str
    not_needed: List[SetChange]


class ShowKnobsOutputItemRequired(TypedDict):
    schema: Literal["show-knobs/1"]
    knob: str
    cpus: str
    places: int
    value: Any
    unit: str
    source: Union[str, None]


class ShowKnobsOutputItem(ShowKnobsOutputItemRequired, total=False):
    simulated: bool
    emulated: str
    instance: str
    absent: str
    error: str


ShowKnobsOutput = List["ShowKnobsOutputItem"]


class FactsRequired(TypedDict):
    name: str
    kind: Kind
    vendor: Vendor
    model_name: Union[str, None]
    signature: Union[List[int], None]
    kernel: Union[str, None]
    virtual_machine: bool
    present: str
    online: str
    offline: str
    packages: Dict[str, str]
    dies: int
    cores: int
    core_types: Dict[str, str]
    nodes: Dict[str, str]
    policies: int
    policy_size: int


class Facts(FactsRequired, total=False):
    emulated: str
    simulated: bool
    microcode: str
    driver_before_policies: str


Vendor = Literal["intel", "amd", "other"]


class ObjectRequired(TypedDict):
    knob: str
    cpus: str
    places: int
    value: Any
    unit: str
    source: Union[str, None]


class Object(ObjectRequired, total=False):
    instance: str
    absent: str
    error: str


class ShowOutputRequired(TypedDict):
    schema: Literal["show/1"]
    machine: Facts
    rows: List[Object]


class ShowOutput(ShowOutputRequired, total=False):
    """What `flyball show` prints: the machine and its values."""

    simulated: bool
    emulated: str


class Line(TypedDict):
    """A row of the JSON output."""

    source: str
    table: str
    row: str
    quantity: str
    unit: str
    published: float
    simulated: Union[float, None]
    aim: Aim
    used: bool
    spread: Union[float, None]
    error_percent: Union[float, None]
    met: Union[bool, None]
    within_spread: bool


class Aim1(TypedDict):
    """At most so many percent."""

    kind: Literal["percent"]
    limit: float


class Aim2(TypedDict):
    """At most so many of the row's unit, whatever the published value."""

    kind: Literal["absolute"]
    limit: float


class Aim3(TypedDict):
    """The same sign, and at most so many percentage points away: for changes in percent."""

    kind: Literal["sign"]
    limit: float


class Aim4(TypedDict):
    """No aim: printed for completeness."""

    kind: Literal["none"]


Aim = Union["Aim1", "Aim2", "Aim3", "Aim4"]


class SimCheckOutputRequired(TypedDict):
    schema: Literal["sim-check/1"]
    simulated: bool
    met: int
    judged: int
    within_spread: int
    rows: List[Line]


class SimCheckOutput(SimCheckOutputRequired, total=False):
    """What `flyball sim check` prints: published values and those of the simulator."""

    emulated: str


class SimListOutputItemRequired(TypedDict):
    schema: Literal["sim-list/1"]
    simulated: bool
    name: str
    title: str
    cpus: int
    packages: int


class SimListOutputItem(SimListOutputItemRequired, total=False):
    emulated: str


SimListOutput = List["SimListOutputItem"]


class SimShowOutputRequired(TypedDict):
    schema: Literal["sim-show/1"]
    simulated: bool
    name: str
    title: str
    cpus: int
    packages: int
    about: str
    processor: str
    driver: str
    frequency_mhz: List[int]
    tdp_w: float


class SimShowOutput(SimShowOutputRequired, total=False):
    """What `flyball sim show` prints: a simulated machine."""

    emulated: str


class BaseFreqOffer(TypedDict):
    """SST-BF of a level."""

    high_cpus: str
    high_mhz: int
    low_mhz: int
    tjunction_c: int
    tdp_w: int


class SstBaseFreqOutputItemRequired(TypedDict):
    schema: Literal["sst-base-freq/1"]
    package: int
    die: int
    domain: int
    cpus: str
    level: int
    base_freq: Union[BaseFreqOffer, None]


class SstBaseFreqOutputItem(SstBaseFreqOutputItemRequired, total=False):
    simulated: bool
    emulated: str


SstBaseFreqOutput = List["SstBaseFreqOutputItem"]


class SstClassOfCpuOutputItemRequired(TypedDict):
    schema: Literal["sst-class-of-cpu/1"]
    cpu: int
    clos: int


class SstClassOfCpuOutputItem(SstClassOfCpuOutputItemRequired, total=False):
    simulated: bool
    emulated: str


SstClassOfCpuOutput = List["SstClassOfCpuOutputItem"]


class SstClassesOutputItemRequired(TypedDict):
    schema: Literal["sst-classes/1"]
    package: int
    die: int
    domain: int
    cpus: str
    clos: int
    min_mhz: int
    max_mhz: Union[int, None]
    weight: int
    epp: Union[int, None]


class SstClassesOutputItem(SstClassesOutputItemRequired, total=False):
    simulated: bool
    emulated: str


SstClassesOutput = List["SstClassesOutputItem"]


class SstCorePowerOutputItemRequired(TypedDict):
    schema: Literal["sst-core-power/1"]
    package: int
    die: int
    domain: int
    cpus: str
    supported: bool
    enabled: bool
    clos_enabled: bool
    priority: Literal["ordered", "proportional"]


class SstCorePowerOutputItem(SstCorePowerOutputItemRequired, total=False):
    simulated: bool
    emulated: str


SstCorePowerOutput = List["SstCorePowerOutputItem"]


class SstDomainOutputItemRequired(TypedDict):
    schema: Literal["sst-domain/1"]
    package: int
    die: int
    domain: int
    cpus: str


class SstDomainOutputItem(SstDomainOutputItemRequired, total=False):
    simulated: bool
    emulated: str
    lock_status: Any
    highest_level: int
    version: int
    enabled: bool
    current_level: int


SstDomainOutput = List["SstDomainOutputItem"]


class Platform(TypedDict):
    """What the drivers of a machine are (isst_if_platform_info)."""

    api_version: int
    driver_version: int
    max_commands: int
    mailbox: bool
    mmio: bool


class DomainModel(TypedDict):
    """The state of a power domain."""

    package: int
    die: int
    domain: int
    cpus: str
    levels: Levels
    core_power: PmConfig
    qos: Qos
    features: Features


class Levels(TypedDict):
    """The performance levels of a domain."""

    version: int
    highest: int
    current: int
    locked: bool
    enabled: bool


class PmConfig(TypedDict):
    """SST-CP as the power unit reports it."""

    supported: bool
    enabled: bool


class Qos(TypedDict):
    """How classes of service take effect."""

    enabled: bool
    ordered: bool


class Features(TypedDict):
    """Whether a level has SST-BF and SST-TF, and which of them are on."""

    base_freq: bool
    turbo_freq: bool
    base_freq_on: bool
    turbo_freq_on: bool


class SstInfoOutputRequired(TypedDict):
    schema: Literal["sst-info/1"]
    interface: str
    cpu: str
    perf_profile: bool
    base_freq: bool
    turbo_freq: bool
    core_power: bool
    domains: List[DomainModel]


class SstInfoOutput(SstInfoOutputRequired, total=False):
    """What `flyball sst info` prints: interface, features and power domains."""

    simulated: bool
    emulated: str
    platform: Platform


class Turbo(TypedDict):
    """Turbo limits for a class of instructions."""

    instructions: str
    buckets: List[Bucket]


class Bucket(TypedDict):
    """One bucket of turbo limits: the highest frequency while at most this many cores are active."""

    cores: int
    mhz: int


class TurboFreqOffer(TypedDict):
    """SST-TF of a level."""

    high: List[Turbo]
    clip: List[List[Union[str, int]]]


class SstLevelsOutputItemRequired(TypedDict):
    schema: Literal["sst-levels/1"]
    package: int
    die: int
    domain: int
    cpus: str
    level: int
    current: bool
    base_mhz: List[int]
    tdp_w: int
    tjunction_c: int
    uncore_mhz: List[int]
    second_uncore_mhz: List[int]
    memory_mhz: int
    cooling_type: int
    turbo: List[Turbo]
    base_freq: Union[BaseFreqOffer, None]
    turbo_freq: Union[TurboFreqOffer, None]


class SstLevelsOutputItem(SstLevelsOutputItemRequired, total=False):
    simulated: bool
    emulated: str


SstLevelsOutput = List["SstLevelsOutputItem"]


Feature = Literal["none", "base-freq", "turbo-freq"]


KnobSetting = str


class SstRecommendOutputItemRequired(TypedDict):
    schema: Literal["sst-recommend/1"]
    package: int
    domain: int
    level: int
    feature: Feature
    guaranteed_mhz: int
    turbo_mhz: int
    others_guaranteed_mhz: int
    others_turbo_mhz: int
    offline: str
    settings: List[KnobSetting]


class SstRecommendOutputItem(SstRecommendOutputItemRequired, total=False):
    simulated: bool
    emulated: str


SstRecommendOutput = List["SstRecommendOutputItem"]


class SstTurboFreqOutputItemRequired(TypedDict):
    schema: Literal["sst-turbo-freq/1"]
    package: int
    die: int
    domain: int
    cpus: str
    level: int
    turbo_freq: Union[TurboFreqOffer, None]


class SstTurboFreqOutputItem(SstTurboFreqOutputItemRequired, total=False):
    simulated: bool
    emulated: str


SstTurboFreqOutput = List["SstTurboFreqOutputItem"]


class SstTurboLimitsOutputItemRequired(TypedDict):
    schema: Literal["sst-turbo-limits/1"]
    package: int
    die: int
    domain: int
    cpus: str
    trl: str
    mhz: List[int]


class SstTurboLimitsOutputItem(SstTurboLimitsOutputItemRequired, total=False):
    simulated: bool
    emulated: str


SstTurboLimitsOutput = List["SstTurboLimitsOutputItem"]


class Event(TypedDict):
    """An alert that begins or is over."""

    alert: str
    subject: Subject
    begins: bool
    wall: int
    value: float
    unit: str
    place: str


Subject = Literal["throttled", "package", "temperature", "busy", "speed", "got"]


class TopAlertOutputRequired(TypedDict):
    schema: Literal["top-alert/1"]
    alert: Event


class TopAlertOutput(TopAlertOutputRequired, total=False):
    """What `flyball top --json` prints between the moments: an alert that begins or is over."""

    simulated: bool
    emulated: str


class CpuInterval(TypedDict):
    """A CPU between two samples."""

    state: State
    busy: Union[float, None]
    steal: Union[float, None]
    mhz: Union[float, None]
    is_reported: bool
    min: Union[float, None]
    max: Union[float, None]
    epp: Union[int, None]
    governor: Union[int, None]
    idle: List[Union[float, None]]
    productive: Union[float, None]
    margin: Union[float, None]
    celsius: Union[float, None]
    throttles: Union[int, None]
    package_throttles: Union[int, None]
    smi: Union[int, None]


State = Literal["asleep", "running", "offline", "unknown"]


class PackageInterval(TypedDict):
    watts: Union[float, None]
    dram_watts: Union[float, None]
    limit: Union[float, None]
    short_limit: Union[float, None]
    celsius: Union[float, None]


class Cost(TypedDict):
    """What a reading cost."""

    cpu: int
    touched: int
    asked: int
    interrupts: int


class TopOutputRequired(TypedDict):
    schema: Literal["top/1"]
    time: int
    machine: str
    seconds: float
    is_broken: bool
    cpus: List[CpuInterval]
    packages: List[PackageInterval]
    platform_watts: Union[float, None]
    numbers: List[int]
    why: List[Union[str, None]]
    cost: Cost


class TopOutput(TopOutputRequired, total=False):
    """What `flyball top --json` prints, one per line: a moment."""

    simulated: bool
    emulated: str


class TraceSummaryRequired(TypedDict):
    stored: Stored
    clock: Clock
    problems: List[str]


class TraceSummary(TraceSummaryRequired, total=False):
    """What a trace was, besides its records."""

    uname: str
    writer: str
    machine: Machine
    text: TextSummary
    buffers: List[BufferSummary]
    stats: List[CpuStats]


Stored = Literal["trace-dat", "raw-pages", "text"]


Clock = Literal["local", "global", "counter", "uptime", "perf", "mono", "mono-raw", "boot", "tai", "x-86-tsc", "unknown", "ticks"]


class Machine(TypedDict, total=False):
    """The machine of a trace."""

    processor: str
    driver: str
    command_line: str
    tickless: str
    possible: str
    online: str
    cores: List[List[int]]


class TextSummary(TypedDict):
    """What a text was, on the whole."""

    bytes: int
    lines: int
    records: int
    unparsed: int
    first_unparsed: Union[int, None]
    entries: Union[List[int], None]
    cut_off: bool


class BufferSummary(TypedDict):
    """What a buffer held."""

    cpus: List[CpuCount]
    undecoded: int
    problems: List[str]
    damaged: int


class CpuCount(TypedDict):
    """What one CPU's pages held."""

    cpu: int
    records: int
    lost: int
    lost_unknown: int


class CpuStats(TypedDict):
    """One CPU's counts."""

    cpu: int
    entries: int
    overrun: int
    commit_overrun: int
    dropped: int
    read: int


TraceDiagnoseFinding = TypedDict("TraceDiagnoseFinding", {"kind": "FindingKind", "severity": "Severity", "cpu": int, "other_cpu": int, "from": float, "to": float, "what": str, "evidence": List[str], "remedy": str, "uncertain": bool}, total=False)


FindingKind = Literal["stuck-low", "stuck-high", "no-decisions", "stopped", "ignored", "clipped", "throttled", "hunting", "no-boost", "siblings-disagree", "lost", "unexplained"]


Severity = Literal["note", "warning", "fault"]


class TraceDiagnoseOutputRequired(TypedDict):
    schema: Literal["trace-diagnose/1"]
    trace: TraceSummary
    findings: List[TraceDiagnoseFinding]


class TraceDiagnoseOutput(TraceDiagnoseOutputRequired, total=False):
    """What `flyball trace diagnose` prints: the trace and the findings."""

    simulated: bool
    emulated: str


class CpuCapture(TypedDict):
    """What one CPU recorded."""

    cpu: int
    received: int
    bytes: int
    stats: CpuStats


class TraceRecordOutputRequired(TypedDict):
    schema: Literal["trace-record/1"]
    file: str
    received: int
    lost: int
    written: int
    bytes: int
    leftovers: List[str]
    cpus: List[CpuCapture]


class TraceRecordOutput(TraceRecordOutputRequired, total=False):
    """What `flyball trace record` prints: how the recording went."""

    simulated: bool
    emulated: str


class ReportRequired(TypedDict):
    driver: Union[str, None]
    clock: Clock
    start: float
    duration: float
    records: int
    events: List[EventCount]
    losses: List[Loss]
    cpus: List[CpuReport]
    tasks: List[TaskReport]


class Report(ReportRequired, total=False):
    """A trace in numbers."""

    unread: List[EventCount]
    impossible_cpus: int


class EventCount(TypedDict):
    """How often an event occurred."""

    name: str
    count: int


class Loss(TypedDict):
    """Records that were lost on one CPU, if the trace itself says so."""

    cpu: int
    records: int
    places: int


class CpuReportRequired(TypedDict):
    cpu: int
    samples: int
    decisions: int
    frequency_events: int
    limits_events: int


class CpuReport(CpuReportRequired, total=False):
    """One CPU."""

    min_perf: Range
    des_perf: Range
    max_perf: Range
    epp: Range
    ghz: Range
    running_ghz: float
    load: Range
    c0: float
    decisions_per_second: float
    fast_switch: float
    lag: Lag
    levels: List[LevelTime]
    idle: List[IdleReport]
    longest_gap_seconds: float


class Range(TypedDict):
    """Least, mean and most of a value over its samples."""

    min: float
    mean: float
    max: float


class Lag(TypedDict):
    """From request to frequency: see the module's source for what is counted."""

    count: int
    median_ms: float
    p95_ms: float
    max_ms: float


class LevelTime(TypedDict):
    """How long a performance level was asked for."""

    level: int
    samples: int
    seconds: float


class IdleReportRequired(TypedDict):
    state: int
    entries: int
    seconds: float


class IdleReport(IdleReportRequired, total=False):
    """One idle state of one CPU, from cpu_idle events."""

    share: float


class TaskReport(TypedDict):
    """One task."""

    pid: int
    name: Comm
    samples: int
    des_perf: Union[Range, None]
    ghz: Union[Range, None]
    load: Union[Range, None]


Comm = str


class TraceReportOutputRequired(TypedDict):
    schema: Literal["trace-report/1"]
    trace: TraceSummary
    report: Report


class TraceReportOutput(TraceReportOutputRequired, total=False):
    """What `flyball trace report` prints: the trace and what happened in it."""

    simulated: bool
    emulated: str


class CaptureSummary(TypedDict):
    """What a capture recorded."""

    file: str
    received: int
    lost: int
    written: int
    bytes: int
    leftovers: List[str]
    cpus: List[CpuCapture]


TraceRunFinding = TypedDict("TraceRunFinding", {"kind": "FindingKind", "severity": "Severity", "cpu": int, "other_cpu": int, "from": float, "to": float, "what": str, "evidence": List[str], "remedy": str, "uncertain": bool}, total=False)


class TraceRunOutputRequired(TypedDict):
    schema: Literal["trace-run/1"]
    recording: CaptureSummary
    trace: TraceSummary
    report: Report
    findings: List[TraceRunFinding]


class TraceRunOutput(TraceRunOutputRequired, total=False):
    """What `flyball trace run` prints: recording, report and findings."""

    simulated: bool
    emulated: str


class SearchGoalRequired(TypedDict):
    aim: SearchAim
    limit: Union[SearchLimit, None]
    within: float


class SearchGoal(SearchGoalRequired, total=False):
    """What is searched for."""

    second: SearchAim
    prefer: Union[Dict[str, Any], None]


class SearchAim(TypedDict):
    """A quantity, and which way is better."""

    quantity: str
    more: bool


class SearchLimit(TypedDict, total=False):
    """The limit; a change from now as a fraction, or a value."""

    aim: SearchAim
    value: float
    relative: bool


class TuneFrontOutputSettingsItemRequired(TypedDict):
    name: str
    claim: Literal["on-front", "dominated", "undecided"]
    chance: float
    p: float
    changes: List[List[float]]


class TuneFrontOutputSettingsItem(TuneFrontOutputSettingsItemRequired, total=False):
    by: str


class TuneFrontOutputRequired(TypedDict):
    schema: Literal["tune-front/1"]
    goal: SearchGoal
    confidence: float
    rounds: int
    fresh: int
    blocks: int
    settings: List[TuneFrontOutputSettingsItem]


class TuneFrontOutput(TuneFrontOutputRequired, total=False):
    """What `flyball tune --front` and `flyball report` of its directory print: which settings no other one beats."""

    simulated: bool
    emulated: str


class TunePlanOutputSearchedFactorsItem(TypedDict, total=False):
    knob: str
    values: List[str]
    places: Union[List[float], None]


class TunePlanOutputSearchedLeftOutItem(TypedDict, total=False):
    settings: str
    why: str


class TunePlanOutputSearched(TypedDict):
    """The settings."""

    factors: List[TunePlanOutputSearchedFactorsItem]
    arms: List[Dict[str, Any]]
    levels: List[Union[List[Any], None]]
    left_out: List[TunePlanOutputSearchedLeftOutItem]


class TunePlanOutputRequired(TypedDict):
    schema: Literal["tune-plan/1"]
    format: str
    version: int
    goal: SearchGoal
    most_rounds: int
    searched: TunePlanOutputSearched


class TunePlanOutput(TunePlanOutputRequired, total=False):
    """What `flyball tune -n` prints, and what `search.json` of a run directory holds: the space of a search."""

    simulated: bool
    emulated: str
    most_seconds: float
    strict: bool
    earlier: List[List[Dict[str, Any]]]
    contradicted_after: int


class TuneComparisonRequired(TypedDict):
    quantity: Quantity
    base: int
    arm: int
    paired: bool
    pairs: int
    change: float
    interval: Union[Interval, None]
    p: float
    p_corrected: float
    delta: float
    verdict: TuneVerdict
    shows: Union[float, None]
    rounds_for_one_percent: Union[int, None]


class TuneComparison(TuneComparisonRequired, total=False):
    """Two arms compared in one quantity."""

    steadiness: TuneSteadiness


TuneVerdict = Literal["better", "worse", "no-difference-shown", "too-few-rounds"]


class TuneSteadiness(TypedDict):
    """How the scatter of two arms' rounds compares: a test of the absolute deviations from each arm's median (Brown and Forsythe), by ranks and pair by pair."""

    spreads: List[float]
    change: float
    p: float
    p_corrected: float
    verdict: TuneVerdict


class TuneOutputSearchRequired(TypedDict):
    chosen: int
    certainty: float
    runner_up: Union[int, None]
    undecided: List[List[Any]]
    settled: bool
    rounds: int
    blocks: int
    tried: int
    shares: List[float]


class TuneOutputSearch(TuneOutputSearchRequired, total=False):
    """The search."""

    expected: List[List[float]]


class TuneOutputConfirmed(TypedDict, total=False):
    """The proposed setting against the machine as it is, in fresh rounds; null if that was proposed."""

    rounds: int
    objective: Union[TuneComparison, None]
    limit: Union[TuneComparison, None]
    keeps_limit: Union[bool, None]
    now_keeps_limit: Union[bool, None]


class TuneOutputRequired(TypedDict):
    schema: Literal["tune/1"]
    goal: SearchGoal
    chosen: str
    settings: List[str]
    keeps_now: bool
    search: TuneOutputSearch
    mattered: List[List[Any]]
    confirmed: Union[TuneOutputConfirmed, None]
    left_out: int
    failed: List[List[str]]


class TuneOutput(TuneOutputRequired, total=False):
    """What `flyball tune` prints: the chosen settings, and what fresh rounds say of them."""

    simulated: bool
    emulated: str
    candidate: str
    second: bool


class VerifyChangeRequired(TypedDict):
    knob: str
    instance: str
    place: str
    cpus: str
    step: VerifyStep
    location: Location
    old: Union[str, None]
    new: str
    was: Union[str, None]
    value: str
    because: str
    provisional: bool


class VerifyChange(VerifyChangeRequired, total=False):
    through: str


VerifyStep = Literal["driver-mode", "speed-select-off", "level", "online", "classes", "core-power", "speed-select-on", "turbo", "governor", "tunable", "preference", "limit", "idle", "power", "offline"]


class Owner(TypedDict):
    """A program that writes knobs, at work on a machine."""

    name: str
    pid: Union[int, None]
    writes: List[str]
    remedy: str


class VerifyOutputRequired(TypedDict):
    schema: Literal["verify/1"]
    drifted: List[VerifyChange]
    owners: List[Owner]
    notes: List[Note]


class VerifyOutput(VerifyOutputRequired, total=False):
    """What `flyball verify` prints: which settings do not hold, and what may have changed them."""

    simulated: bool
    emulated: str


class WhyOne(TypedDict):
    cpus: str
    state: State
    busy: Union[float, None]
    highest: Union[float, None]
    highest_from: str
    mhz: Union[float, None]
    steps: List[WhyStep]
    rest: float
    limits: List[WhyCap]
    productive: Union[float, None]
    idle: List[List[Union[str, float]]]
    sentence: str


class WhyStep(TypedDict):
    """What one limit took."""

    limiter: str
    mhz: float
    share: float
    evidence: List[WhyEvidence]
    certainty: Certainty
    knob: Union[str, None]
    by: Union[str, None]


class CertaintyRequired(TypedDict):
    kind: str


class Certainty(CertaintyRequired, total=False):
    """How far the evidence of a reason goes."""

    fits: List[str]


class WhyEvidence(TypedDict):
    """Where a reason was seen, and what it shows."""

    place: str
    value: str


class WhyCap(TypedDict):
    """A frequency that a setting allows at most."""

    limiter: str
    mhz: float
    evidence: WhyEvidence


class WhyOutputRequired(TypedDict):
    schema: Literal["why/1"]
    seconds: float
    cpus: List[WhyOne]
    reading_ms: float
    touched: int
    missing: List[str]


class WhyOutput(WhyOutputRequired, total=False):
    """What `flyball why` prints: why each CPU runs no faster."""

    simulated: bool
    emulated: str
