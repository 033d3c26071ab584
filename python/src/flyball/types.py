"""What the program prints as JSON and writes to files. Made by generate_types.py from its JSON Schemas; do not edit.

For type checkers: no module of the package imports this one at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Literal, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import NotRequired


Access = Literal["ro", "rw"]


class Action3(TypedDict):
    """It could not be corrected."""

    failed: str


Action = Union[Literal["corrected", "reported", "yielded", "gave-way"], "Action3"]


class Applied(TypedDict):
    """The result of applying an intent."""

    made: List[AppliedChange]
    not_needed: NotRequired[List[Change]]
    notes: List[Note]


class AppliedChange(TypedDict):
    """A change that was made."""

    change: Change
    outcome: Outcome


class Arm(TypedDict):
    """Settings under a name."""

    control: NotRequired[bool]
    name: str
    program: NotRequired[Program]
    wishes: List[ArmSetting]


class ArmDrift(TypedDict):
    """A trend inside an arm that is too strong to be chance."""

    change: float
    p: float


class ArmPlan(TypedDict):
    booted_with: NotRequired[List[str]]
    name: str
    needs_boot: Union[str, None]
    plan: Union[Plan, None]
    program: NotRequired[Program]


class ArmReport(TypedDict):
    boots: List[int]
    control: NotRequired[bool]
    grades: NotRequired[Grades]
    left_out: List[LeftOut]
    memory_at_most: NotRequired[float]
    name: str
    notes: List[str]
    program: NotRequired[Program]
    rounds: int
    settings: List[str]
    speed: NotRequired[SpeedNote]
    summaries: List[Summary]
    throttled: Union[int, None]
    waits_for: Union[str, None]
    wakes: NotRequired[WakeNote]


class ArmSetting(TypedDict):
    """One setting of an arm."""

    knob: str
    value: str


class ArmSummary(TypedDict):
    """Rounds of an arm."""

    arm: str
    benchmark: str
    median: float
    metric: str
    rounds: int
    unit: str


class BackgroundNote(TypedDict):
    """A load that ran during every round."""

    argv: List[str]
    cpus: NotRequired[str]
    name: str


class BaseFreqOffer(TypedDict):
    """SST-BF of a level."""

    high_cpus: CpuList
    high_mhz: MegaHertz
    low_mhz: MegaHertz
    tdp_w: int
    tjunction_c: int


Better = Literal["higher", "lower"]


class BisectNote(TypedDict):
    """The search of commits."""

    build: Union[str, None]
    directory: str


class Boot(TypedDict):
    """One boot of the machine in which rounds were run."""

    arms: List[int]
    command_line: str
    driver: NotRequired[str]
    id: str
    kernel: str
    meters: MeterList
    started: int


BootParameter = str


Bound = Literal["lower", "upper", "none"]


class Bucket(TypedDict):
    """One bucket of turbo limits: the highest frequency while at most this many cores are active, or modules of four cores on a Xeon of E-cores."""

    cores: int
    mhz: MegaHertz


class BufferSummary(TypedDict):
    """Counts of a buffer."""

    cpus: List[CpuCount]
    damaged: int
    problems: List[str]
    undecoded: int


class Cache(TypedDict):
    """A level-3 cache."""

    cpus: CpuList
    kib: Union[int, None]


class Cap(TypedDict):
    """The highest frequency that a setting allows."""

    evidence: ReasonEvidence
    limiter: Limiter
    mhz: float


class CaptureSummary(TypedDict):
    """What a capture recorded."""

    bytes: int
    cpus: List[CpuCapture]
    file: str
    leftovers: List[str]
    lost: int
    received: int
    written: int


class CaseReport(TypedDict):
    """One case of a benchmark suite: an arm compared with the first arm."""

    comparison: Comparison
    marks: NotRequired[List[str]]
    medians: List[float]
    name: str
    withheld: NotRequired[bool]


class Cause1(TypedDict):
    """A process wrote it, according to the kernel."""

    written: Writer


class Cause2After(TypedDict):
    by: Writer
    path: str


class Cause2(TypedDict):
    """A process wrote another setting, which usually resets this one."""

    after: Cause2After


class Cause4(TypedDict):
    """A CPU or another device appeared or disappeared."""

    device: str


class Cause5NotSeen(TypedDict):
    perhaps: List[str]


Cause5 = TypedDict("Cause5", {"not-seen": "Cause5NotSeen"})


Cause = Union[Literal["resume"], "Cause1", "Cause2", "Cause4", "Cause5"]


Celsius = float


class Certainty1(TypedDict):
    """The evidence shows the reason itself."""

    kind: Literal["measured"]


class Certainty2(TypedDict):
    """All other visible reasons were ruled out."""

    fits: List[Limiter]
    kind: Literal["inferred"]


class Certainty3(TypedDict):
    """The evidence does not show the reason."""

    kind: Literal["not-known"]


Certainty = Union["Certainty1", "Certainty2", "Certainty3"]


class Change(TypedDict):
    because: str
    cpus: CpuList
    instance: str
    knob: Id
    location: Location
    new: str
    old: Union[str, None]
    place: str
    provisional: bool
    step: Step
    through: NotRequired[str]
    value: str
    was: Union[str, None]


class ChangedFact(TypedDict):
    """A fact that changed with a series."""

    after: Union[str, None]
    before: Union[str, None]
    name: str
    runs_away: int


class Check(TypedDict):
    """One cell, computed again."""

    agrees: bool
    column: str
    computed: str
    line: int
    printed: str
    row: str


class CheckLine(TypedDict):
    """A row of the JSON output."""

    aim: SimulationAim
    error_percent: Union[float, None]
    met: Union[bool, None]
    published: float
    quantity: str
    row: str
    simulated: Union[float, None]
    source: str
    spread: Union[float, None]
    table: str
    unit: str
    used: bool
    within_spread: bool


CheckVerdict = Literal["pays", "not-shown", "does-not-pay"]


class CheckedEntry(TypedDict):
    """The result for one entry."""

    line: int
    not_here: NotRequired[str]
    profile: str
    refused: NotRequired[str]


Clock = Literal["local", "global", "counter", "uptime", "perf", "mono", "mono-raw", "boot", "tai", "x86-tsc", "unknown", "ticks"]


class ColumnChange(TypedDict):
    """A column that changed where the series shifted."""

    after: str
    at: int
    before: str
    name: str
    p: float
    unit: str
    until: NotRequired[int]


Comm = str


class CommandKnob(TypedDict):
    """A setting with its commands, each a line for /bin/sh."""

    name: str
    read: NotRequired[str]
    restore: NotRequired[str]
    write: str


class Comparison(TypedDict):
    """Two arms compared in one quantity."""

    arm: int
    base: int
    change: float
    delta: float
    interval: Union[Interval, None]
    p: float
    p_corrected: float
    paired: bool
    pairs: int
    partial: NotRequired[bool]
    quantity: Quantity
    rounds_for_one_percent: Union[int, None]
    shows: Union[float, None]
    steadiness: NotRequired[Steadiness]
    step: Union[float, None]
    verdict: Verdict


Condition = TypedDict("Condition", {"cgroup": "NotRequired[str]", "for": "NotRequired[Duration]", "limit": "NotRequired[Limit]", "power": "NotRequired[Power]", "pressure": "NotRequired[Pressure]", "program": "NotRequired[str]", "temperature": "NotRequired[Heat]", "time": "NotRequired[Window]", "unit": "NotRequired[str]", "user": "NotRequired[str]"})


class Conditions(TypedDict):
    """What the machine did during one run."""

    busy: Union[float, None]
    floor_mhz: NotRequired[float]
    frequency_mhz: Union[float, None]
    frequency_range_mhz: Union[float, None]
    interrupts_per_s: Union[float, None]
    load: Union[float, None]
    load_before: NotRequired[float]
    memory_pressure: Union[float, None]
    steal: Union[float, None]
    switches_per_s: Union[float, None]
    temperature_c: Union[float, None]
    temperature_limit_c: NotRequired[float]
    throttles: Union[int, None]
    unix_s: NotRequired[float]
    uptime_s: NotRequired[float]


class Confirmed(TypedDict):
    """The result of the fresh rounds."""

    keeps_limit: Union[bool, None]
    limit: Union[Comparison, None]
    now_keeps_limit: Union[bool, None]
    objective: Union[Comparison, None]
    odd_rounds: List[str]
    rounds: int


class Content1(TypedDict):
    """The bytes, as the kernel printed them."""

    text: str


class Content2(TypedDict):
    """The bytes in hexadecimal, if they are not UTF-8."""

    hex: str


class Content3(TypedDict):
    """The errno of a failed read (EBUSY: the CPU is offline)."""

    unreadable: int


Content = Union["Content1", "Content2", "Content3"]


CoreType = Literal["P", "E", "LP"]


class Cost(TypedDict):
    """Cost of a reading."""

    asked: int
    cpu: int
    interrupts: int
    touched: int


class Counts(TypedDict):
    """What a program's processes did, by the processor's counters."""

    branch_misses: int
    cache_misses: int
    cycles: int
    instructions: int


class CpuCapture(TypedDict):
    """What one CPU recorded."""

    bytes: int
    cpu: int
    received: int
    stats: CpuStats


class CpuCount(TypedDict):
    """Counts of one CPU's pages."""

    cpu: int
    lost: int
    lost_unknown: int
    records: int


class CpuInterval(TypedDict):
    """A CPU between two samples."""

    above: Union[float, None]
    below: Union[float, None]
    busy: Union[float, None]
    celsius: Union[float, None]
    core_watts: Union[float, None]
    epp: Union[Preference, None]
    governor: Union[int, None]
    idle: List[Union[float, None]]
    is_reported: bool
    margin: Union[float, None]
    max: Union[float, None]
    mhz: Union[float, None]
    min: Union[float, None]
    package_throttles: Union[int, None]
    productive: Union[float, None]
    smi: Union[int, None]
    state: State
    steal: Union[float, None]
    throttles: Union[int, None]
    wakes: List[float]


CpuList = str


class CpuReport(TypedDict):
    """One CPU."""

    c0: NotRequired[float]
    cpu: int
    decisions: int
    decisions_per_second: NotRequired[float]
    des_perf: NotRequired[Range]
    epp: NotRequired[Range]
    fast_switch: NotRequired[float]
    frequency_events: int
    ghz: NotRequired[Range]
    idle: NotRequired[List[IdleReport]]
    lag: NotRequired[Lag]
    limits_events: int
    load: NotRequired[Range]
    longest_gap_seconds: NotRequired[float]
    max_perf: NotRequired[Range]
    min_perf: NotRequired[Range]
    running_ghz: NotRequired[float]
    samples: int


class CpuStats(TypedDict):
    """One CPU's counts."""

    commit_overrun: int
    cpu: int
    dropped: int
    entries: int
    overrun: int
    read: int


class Difference(TypedDict):
    """A location whose value differs from that before flyball's first change."""

    location: Location
    now: str
    was: str


Distance = Literal["package", "other-package", "sibling", "itself"]


class Disturbance(TypedDict):
    """One thing that disturbed a run."""

    grade: Grade
    source: Source
    what: str


DoctorVerdict = Literal["ok", "unknown", "note", "warning", "fault"]


Domain = Literal["dram", "package", "platform", "cores"]


class DomainModel(TypedDict):
    """The state of a power domain."""

    core_power: PmConfig
    cpus: CpuList
    die: int
    domain: int
    features: Features
    levels: Levels
    package: int
    qos: Qos


class Drift(TypedDict):
    """A setting that changed."""

    action: Action
    at: int
    cause: Cause
    cpus: CpuList
    found: Union[str, None]
    hold: HoldName
    instance: NotRequired[str]
    knob: Id
    took_us: NotRequired[int]
    wanted: str


class Duration(TypedDict):
    nanos: int
    secs: int


EarlierBoot = str


class Effect(TypedDict):
    """An arm's effect over the fleet."""

    arm: int
    better: int
    between: float
    change: float
    facts: List[FactEffect]
    i_squared: float
    interval: Union[Interval, None]
    lost_unevenly: NotRequired[bool]
    machines: int
    next: Union[Interval, None]
    noise: float
    odd: List[Odd]
    p: float
    p_corrected: float
    plain_change: NotRequired[float]
    plain_interval: NotRequired[Interval]
    quantity: Quantity
    step: Union[float, None]
    undecided: int
    verdict: Verdict
    without_one: Union[Lasting, None]
    worse: int


class Effective(TypedDict):
    """Differences of one CPU's registers over a round."""

    aperf: int
    mperf: int
    seconds: float
    tsc: int


class End(TypedDict):
    """When a hold ends by itself: when the first of these happens."""

    at: NotRequired[Duration]
    process: NotRequired[ProcessId]


class EnergySource(TypedDict):
    """One energy meter, and how its numbers become joules."""

    domain: Domain
    is_power: bool
    name: str
    place: str
    unit: float
    wraps_after: NotRequired[int]


class Entry(TypedDict):
    """One transaction of the journal."""

    at: int
    command: str
    holds: NotRequired[List[str]]
    id: int
    pid: int
    purpose: NotRequired[Purpose]
    standing: TransactionState
    writes: int


class Environment(TypedDict):
    """The boot and the machine that a journal belongs to."""

    boot: Union[str, None]
    machine: str


Epb = int


Epp = int


class EventCount(TypedDict):
    """How often an event occurred."""

    count: int
    name: str


class Evidence(TypedDict):
    """One observation: a location and the value read there."""

    place: str
    value: str


class Exits(TypedDict):
    """Exits from idle states of the metered CPUs between two readings."""

    by_state: List[int]
    cpus: int
    seconds: float


class Experiment(TypedDict):
    """What was run on every machine."""

    argv: List[str]
    arms: List[List[Union[str, List[str]]]]
    metric: Metric
    name: NotRequired[str]
    workload: str


class ExperimentNote(TypedDict):
    """The file with an experiment that many machines run."""

    digest: str
    name: str


Explained = TypedDict("Explained", {"after": "Range_of_uint", "at": "int", "before": "Range_of_uint", "form": "Form", "median_after": "float", "median_before": "float", "p": "float", "with": "List[ColumnChange]", "within": "NotRequired[Range_of_uint]"})


class Extra(TypedDict):
    """A write to a file that is not a knob."""

    location: Location
    new: str


Fact = Literal["processor", "product", "firmware", "microcode", "kernel", "driver"]


class FactChange(TypedDict):
    """A change of a fact, over all series of a benchmark."""

    after: Union[str, None]
    arm: str
    before: Union[str, None]
    benchmark: str
    change: Union[float, None]
    higher_is_better: Union[bool, None]
    metric: str
    name: str
    of: int
    shifted: int
    unit: str
    worse: Union[int, None]


class FactEffect(TypedDict):
    """The fleet divided by a fact."""

    facts: List[Fact]
    groups: List[GroupEffect]
    p: float
    p_corrected: float
    within: NotRequired[List[Union[Fact, float]]]


class Factor(TypedDict):
    """A knob and its values."""

    knob: str
    places: Union[List[float], None]
    values: List[str]


class Facts(TypedDict):
    caches: NotRequired[List[Cache]]
    core_type_evidence: NotRequired[KindEvidence]
    core_types: Dict[str, CpuList]
    cores: int
    dies: int
    emulated: NotRequired[str]
    kernel: Union[str, None]
    kind: Kind
    microcode: NotRequired[str]
    model_name: Union[str, None]
    name: str
    nodes: Dict[str, CpuList]
    nodes_per_package: NotRequired[int]
    offline: CpuList
    online: CpuList
    packages: Dict[str, CpuList]
    policies: int
    policy_size: int
    present: CpuList
    signature: Union[List[int], None]
    simulated: NotRequired[bool]
    vendor: Vendor
    virtual_machine: bool


Feature = Literal["none", "base-freq", "turbo-freq"]


class Features(TypedDict):
    """Whether a level has SST-BF and SST-TF, and which of the two are on."""

    base_freq: bool
    base_freq_on: bool
    turbo_freq: bool
    turbo_freq_on: bool


class Finding(TypedDict):
    """The answer of one check."""

    evidence: List[Evidence]
    fix: NotRequired[Fix]
    group: Group
    id: str
    kernel_test: NotRequired[KernelTest]
    verdict: DoctorVerdict
    what: str
    why: str


FindingKind = Literal["stuck-low", "stuck-high", "no-decisions", "stopped", "ignored", "clipped", "throttled", "hunting", "no-boost", "siblings-disagree", "lost", "unexplained"]


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


Form = Literal["step", "drift", "spread"]


class GateAnswer(TypedDict):
    """An arm checked against a limit."""

    arm: int
    at_least: NotRequired[float]
    interval: Union[Interval, None]
    is_typical: NotRequired[bool]
    is_withheld: NotRequired[bool]
    limit: str
    name: str
    reason: NotRequired[NoInterval]
    verdict: GateVerdict


GateVerdict = Literal["within", "cannot-tell", "over"]


Grade = Literal["not watched", "good", "fair", "bad"]


class Grades(TypedDict):
    """How many rounds had which conditions."""

    bad: int
    fair: int
    good: int
    not_watched: int


Group = Literal["driver", "amd-pstate", "firmware", "conflicts", "now", "trace", "recommended"]


class GroupEffect(TypedDict):
    """The machines that share a fact."""

    change: float
    interval: Union[Interval, None]
    machines: int
    values: List[str]


Heat = str


class HeldBy(TypedDict):
    """A hold that keeps a drifted setting at a value other than the wanted one."""

    cpus: CpuList
    hold: str
    instance: NotRequired[str]
    knob: Id
    value: str


class HeldKnob(TypedDict):
    """A knob that is held on some CPUs."""

    cause: NotRequired[Cause]
    cpus: CpuList
    found: Union[str, None]
    hold: HoldName
    holds: bool
    instance: NotRequired[str]
    knob: Id
    left: NotRequired[LeftBecause]
    offline: NotRequired[bool]
    over: NotRequired[List[OverruledHold]]
    set_by: NotRequired[str]
    wanted: str


class Hold(TypedDict):
    """Settings that are kept under a name."""

    condition: NotRequired[Condition]
    end: End
    name: HoldName
    on_drift: OnDrift
    on_exit: OnExit
    owner: HoldOwner
    priority: int
    profile: NotRequired[str]
    settings: List[Setting]
    since: int


HoldName = str


HoldOwner = str


class HoldStatus(TypedDict):
    """A hold, and whether it is in force."""

    because: NotRequired[str]
    condition: NotRequired[Condition]
    end: End
    in_force: bool
    name: HoldName
    not_reported: NotRequired[str]
    on_drift: OnDrift
    on_exit: OnExit
    owner: HoldOwner
    priority: int
    profile: NotRequired[str]
    settings: List[Setting]
    since: int


class Hooks(TypedDict):
    """Shell commands that run around rounds and are not measured."""

    cleanup: NotRequired[str]
    conclude: NotRequired[str]
    prepare: NotRequired[str]
    rebuild: NotRequired[str]
    setup: NotRequired[str]


Id = str


class IdleReport(TypedDict):
    """One idle state of one CPU, from cpu_idle events."""

    entries: int
    seconds: float
    share: NotRequired[float]
    state: int


class Interval(TypedDict):
    high: float
    low: float


class KernelPath(TypedDict):
    """The median wake-up from the lightest available state."""

    is_held: bool
    p50_us: float
    state: str


class KernelTest(TypedDict):
    """The result that the kernel's amd-pstate-ut module would report on this machine and kernel."""

    because: NotRequired[str]
    name: str
    passes: bool


KiloHertz = int


Kind = Literal["live", "recorded", "simulated"]


KindEvidence = Literal["pmu", "capacity", "cpuid", "levels"]


KnobName = str


KnobSetting = str


KnobValue = str


class Lag(TypedDict):
    """From request to frequency: see the module's source for what is counted."""

    count: int
    max_ms: float
    median_ms: float
    p95_ms: float


class Lasting(TypedDict):
    """The lowest and the highest mean with one machine left out, each with that machine's name."""

    highest: List[Union[str, float]]
    lowest: List[Union[str, float]]


class LeftBecause5(TypedDict):
    """The kernel refuses the write."""

    refused: str


LeftBecause = Union[Literal["reported", "yielded", "contended", "clamped"], "LeftBecause5"]


class LeftOut(TypedDict):
    """A round that does not count."""

    block: int
    boot: int
    by_others: NotRequired[bool]
    why: str


class Length1(TypedDict):
    """This many blocks."""

    rounds: int


class Length2Until(TypedDict):
    decided: NotRequired[bool]
    half_width: float
    least: int
    most: int


class Length2(TypedDict):
    """Until the confidence interval of every arm's difference from the first is at most this half-width, as a fraction (0.01 is 1 %), within bounds."""

    until: Length2Until


class Length3Search(TypedDict):
    cut: NotRequired[float]
    most: int


class Length3(TypedDict):
    """Until a search ends, which chooses the arms of each block."""

    search: Length3Search


Length = Union["Length1", "Length2", "Length3"]


Level = Literal["light", "steady", "fixed"]


class Levels(TypedDict):
    """The performance levels of a domain."""

    current: int
    enabled: bool
    highest: int
    locked: bool
    version: int


Limit = Literal["thermal", "power"]


class LimitStep(TypedDict):
    """How much one limit cost."""

    by: Union[str, None]
    certainty: Certainty
    evidence: Proof
    knob: Union[str, None]
    limiter: Limiter
    mhz: float
    share: float


Limiter = Literal["bios-limit", "active-cores", "latency-limit", "idle-state", "turbo-off", "speed-select", "class-of-service", "max-perf-pct", "max-freq", "governor", "preference", "wake-up", "power", "current", "heat", "prochot", "platform", "package", "firmware", "unseen"]


Location = str


class Loss(TypedDict):
    """Records lost on one CPU, as reported by the trace itself."""

    cpu: int
    places: int
    records: int


class LostRounds(TypedDict):
    """Rounds of an arm that do not count in a quantity on a machine: they failed, were disturbed, or have no value."""

    arm: int
    first_lost: int
    first_rounds: int
    lost: int
    machine: str
    quantity: Quantity
    rounds: int
    uneven: bool
    why: str


class Machine(TypedDict):
    """The machine of a trace."""

    command_line: NotRequired[str]
    cores: NotRequired[List[List[int]]]
    driver: NotRequired[str]
    online: NotRequired[str]
    possible: NotRequired[str]
    processor: NotRequired[str]
    tickless: NotRequired[str]


class MachineEffect(TypedDict):
    """An arm's effect on one machine."""

    arm: int
    change: float
    interval: Union[Interval, None]
    quantity: Quantity
    verdict: Verdict


class MachineNote(TypedDict):
    """The machine that was measured."""

    cpus: int
    emulated: NotRequired[str]
    name: str
    processor: str
    simulated: bool
    system: NotRequired[SystemNote]


class MachineReportFacts(TypedDict):
    """processor, product, firmware, microcode, kernel, driver."""

    driver: NotRequired[str]
    firmware: NotRequired[str]
    kernel: NotRequired[str]
    microcode: NotRequired[str]
    processor: NotRequired[str]
    product: NotRequired[str]


class MachineReport(TypedDict):
    """One machine."""

    directory: str
    effects: List[MachineEffect]
    facts: MachineReportFacts
    machine: str
    pairs: int
    simulated: bool


MegaHertz = int


class MeterList(TypedDict):
    """The meters of a boot, as the manifest lists them."""

    counters: bool
    energy: List[EnergySource]
    frequency: List[List[Union[int, str]]]
    idle_states: NotRequired[List[List[Union[str, int]]]]
    no_counters: NotRequired[str]
    no_energy: NotRequired[str]
    no_frequency: NotRequired[str]
    registers: List[int]
    temperature: List[List[str]]
    throttle: bool


class Metric(TypedDict):
    """A quantity that rounds yield."""

    better: Better
    name: str
    unit: str


MicroJoules = int


MicroWatts = int


Micros = int


class Moment(TypedDict):
    """A moment of the machine, by its own clocks."""

    load_before: NotRequired[float]
    unix_s: NotRequired[float]
    uptime_s: NotRequired[float]


NoInterval = Literal["too-few-rounds", "unknown-step", "not-measured", "other-work", "lost-case", "lost-rounds", "below-own", "no-ratio", "fixed-time"]


class NotReached(TypedDict):
    """A state without any attributed wake-up."""

    core_type: Union[CoreType, None]
    state: str
    why: str


class NotRestored(TypedDict):
    """A location that does not hold its first content, or is not known to."""

    because: NotRestoredReason
    error: Union[Refused, None]
    found: str
    location: Location
    wanted: str


NotRestoredReason = Literal["differs", "cannot-be-read", "was-not-read", "was-lost", "may-be-held"]


class NotVisible(TypedDict):
    """A machine that hides the processors' settings."""

    evidence: List[Evidence]
    remedy: str
    what: str


Note = str


class Odd(TypedDict):
    """A machine that is unlike its peers."""

    change: float
    differs_in: List[List[Union[Fact, str]]]
    machine: str
    p_corrected: float
    peers: float


OnDrift = Literal["correct", "report", "yield"]


OnExit = Literal["release", "keep"]


class One(TypedDict):
    """Why CPUs ran as fast as they did."""

    busy: Union[float, None]
    cpus: CpuList
    highest: Union[float, None]
    highest_from: str
    idle: List[List[Union[str, float]]]
    limits: List[Cap]
    mhz: Union[float, None]
    productive: Union[float, None]
    rest: float
    sentence: str
    state: State
    steps: List[LimitStep]


class Outcome2(TypedDict):
    """The kernel accepted the write but turned it into this value."""

    clamped: str


class Outcome3(TypedDict):
    """The kernel accepted the write, but the location still holds this earlier value."""

    lost: str


class Outcome4(TypedDict):
    """The value was read back, but something changed it to this before the work was done."""

    overridden: str


Outcome = Union[Literal["applied"], "Outcome2", "Outcome3", "Outcome4"]


class OverruledHold(TypedDict):
    """A hold that sets a place which a stronger hold decides."""

    hold: HoldName
    wanted: str


class Owner(TypedDict):
    """A program that writes knobs and is active on a machine."""

    name: str
    pid: Union[int, None]
    remedy: str
    writes: List[Id]


class PackageInterval(TypedDict):
    celsius: Union[float, None]
    dram_watts: Union[float, None]
    limit: Union[float, None]
    short_limit: Union[float, None]
    watts: Union[float, None]


class PairVerdict(TypedDict):
    """What the rounds of two groups show in one column."""

    apart: bool
    base: str
    change: float
    column: str
    compared: str
    p: float
    p_corrected: float
    rounds: List[int]
    shown: bool
    smallest_p: float
    welch_corrected: Union[float, None]


class Partition(TypedDict):
    """A control group that has CPUs to itself (cgroup v2, cpuset)."""

    content: str
    hand_down: bool
    path: str


Percent = int


Perf = int


class Pilot(TypedDict):
    """How many machines show an effect with this many rounds of each arm."""

    machines: Union[int, None]
    rounds: int


PlainValue = Union[str, float, bool, List[Any], Dict[str, Any]]


class Plan(TypedDict):
    """The ordered writes that bring a machine to the wanted state."""

    changes: List[Change]
    machine: str
    notes: List[Note]


class Platform(TypedDict):
    """Properties of a machine's drivers (isst_if_platform_info)."""

    api_version: int
    driver_version: int
    mailbox: bool
    max_commands: int
    mmio: bool


class PmConfig(TypedDict):
    """SST-CP as reported by the power unit."""

    enabled: bool
    supported: bool


class Point(TypedDict):
    """The value of one round."""

    block: int
    boot: int
    value: float


Power = Literal["ac", "battery"]


Preference = Union[int, "PreferenceWord"]


PreferenceWord = Literal["performance", "balance_performance", "balance_power", "power"]


Preset = Literal["spin", "perf-pipe", "perf-messaging", "tbench", "fio", "fio-latency", "sysbench", "stress-ng", "openssl", "openssl-sign", "pgbench", "sched-pipe", "io4k"]


Pressure = str


class ProbeRow(TypedDict):
    """Latencies of one kind of wake-up from one state."""

    by: WakeBy
    core_type: Union[CoreType, None]
    distance: Distance
    exit_latency_us: Union[int, None]
    p50_us: float
    p99_us: Union[float, None]
    samples: int
    sleeper: int
    state: str
    target_residency_us: Union[int, None]
    waker: Union[int, None]
    worst_us: float


class ProcessId(TypedDict):
    """A process, identified so that a later one with the same number is not mistaken for it."""

    pid: int
    started: int


class Program(TypedDict):
    """A program that one arm runs."""

    argv: List[str]
    directory: NotRequired[str]
    file: NotRequired[ProgramFile]
    hooks: NotRequired[Hooks]
    parameters: NotRequired[Dict[str, str]]
    server: NotRequired[Server]


class ProgramEffect(TypedDict):
    """A program against the first one under the same settings."""

    base: str
    effect: Comparison
    interaction: NotRequired[Comparison]
    program: str
    under: str


class ProgramFile(TypedDict):
    """A program's file as it was when the comparison began."""

    inode: int
    modified: List[int]
    path: str
    size: int


Proof = List["ReasonEvidence"]


Purpose = Literal["quiet-on", "set", "quiet", "run", "compare", "doctor", "hold", "other"]


class Qos(TypedDict):
    """State of the classes of service."""

    enabled: bool
    ordered: bool


Quantity = Literal["time", "performance", "latency", "energy", "work-energy", "per-watt", "dram", "platform", "power", "platform-power", "frequency", "busy", "temperature", "switches", "peak-memory", "faults", "instructions", "cycles", "branch-misses", "cache-misses", "cpu-time", "user", "system", "decisions", "trace-frequency", "lag", "desired-performance", "sampled-frequency", "sampled-load"]


class QuietNote(TypedDict):
    """How the machine was kept quiet around all rounds."""

    cpus: str
    level: str
    settings: List[str]
    unavailable: NotRequired[List[str]]


class QuietSetting(TypedDict):
    """A setting that makes the machine quieter."""

    because: str
    cpus: NotRequired[CpuList]
    setting: str


class QuietSettings(TypedDict):
    """The settings that make this machine quiet."""

    boot: List[BootParameter]
    cpus: CpuList
    partition: NotRequired[Partition]
    settings: List[QuietSetting]
    unavailable: List[str]


class Range(TypedDict):
    """Minimum, mean and maximum of a value over its samples."""

    max: float
    mean: float
    min: float


class Range_of_uint(TypedDict):
    end: int
    start: int


Reader1 = TypedDict("Reader1", {"from": "Literal['wall-time']"})


Reader2 = TypedDict("Reader2", {"from": "Literal['user-time']"})


Reader3 = TypedDict("Reader3", {"from": "Literal['cpu-time']"})


Reader4 = TypedDict("Reader4", {"from": "Literal['preset']", "preset": "Preset"})


Reader5 = TypedDict("Reader5", {"exact": "NotRequired[bool]", "from": "Literal['expression']", "metric": "Metric", "pattern": "str"})


Reader6 = TypedDict("Reader6", {"exact": "NotRequired[bool]", "from": "Literal['suite']", "metric": "Metric", "suite": "Suite"})


Reader7 = TypedDict("Reader7", {"from": "Literal['model']", "metric": "Metric"})


Reader = Union["Reader1", "Reader2", "Reader3", "Reader4", "Reader5", "Reader6", "Reader7"]


class Readings(TypedDict):
    """The raw readings of one round."""

    energy: List[List[List[Union[float, int]]]]
    exits: NotRequired[Exits]
    frequency: List[List[List[Union[float, int]]]]
    registers: List[Union[Effective, None]]
    switches: NotRequired[int]
    temperature: List[List[List[Union[float, int]]]]
    throttled: NotRequired[int]


class ReasonEvidence(TypedDict):
    """Where evidence was found, and what it shows."""

    place: str
    value: str


Refused = str


class RehearsalStep(TypedDict):
    """What happened at one time."""

    at_s: float
    did: List[str]
    event: Union[str, None]


class ReleasePlan(TypedDict):
    """The effect of a release."""

    plan: Union[Plan, None]
    restored: List[Difference]


class Report(TypedDict):
    """A trace in numbers."""

    clock: Clock
    cpus: List[CpuReport]
    driver: Union[str, None]
    duration: float
    events: List[EventCount]
    impossible_cpus: NotRequired[int]
    losses: List[Loss]
    records: int
    start: float
    tasks: List[TaskReport]
    unread: NotRequired[List[EventCount]]


class Restoration(TypedDict):
    """The result of restoring."""

    damaged: NotRequired[int]
    foreign: NotRequired[List[Location]]
    left: List[NotRestored]
    made: NotRequired[int]
    moved: NotRequired[List[Location]]
    remembered: int
    written: List[RestoredLocation]


RestoredLocation = TypedDict("RestoredLocation", {"from": "str", "location": "Location", "to": "str"})


class Run(TypedDict):
    """One run of the series."""

    busy: Union[float, None]
    disturbances: List[Disturbance]
    floor_mhz: NotRequired[float]
    frequency_mhz: Union[float, None]
    frequency_range_mhz: Union[float, None]
    grade: Grade
    interrupts_per_s: Union[float, None]
    load: Union[float, None]
    load_before: NotRequired[float]
    memory_pressure: Union[float, None]
    seconds: float
    speed: NotRequired[SpeedNote]
    steal: Union[float, None]
    switches_per_s: Union[float, None]
    temperature_c: Union[float, None]
    temperature_limit_c: NotRequired[float]
    throttles: Union[int, None]
    unix_s: NotRequired[float]
    uptime_s: NotRequired[float]


class RunOutcome(TypedDict):
    """What one run of a workload yielded."""

    cases: NotRequired[Dict[str, float]]
    counts: NotRequired[Counts]
    cut: NotRequired[bool]
    exit_code: NotRequired[int]
    failure: NotRequired[str]
    left_behind: NotRequired[List[str]]
    memory_at_most_kib: NotRequired[int]
    output: NotRequired[str]
    output_digest: NotRequired[str]
    printed_bytes: NotRequired[int]
    seconds: float
    usage: NotRequired[Usage]
    value: Union[float, None]
    work_seconds: NotRequired[float]


class Sampled(TypedDict):
    """Plain means over all records of a driver's decisions, of all CPUs."""

    des_perf: float
    ghz: Union[float, None]
    load: Union[float, None]


class SavedSetting(TypedDict):
    """A setting of a saved profile."""

    cpus: NotRequired[CpuList]
    knob: str
    value: str


class Schedule(TypedDict):
    """How a comparison is run."""

    confidence: float
    cool_down: float
    ended_by_time: NotRequired[bool]
    interval: float
    least_seconds: NotRequired[float]
    length: Length
    limits: NotRequired[List[str]]
    most_seconds: NotRequired[float]
    random_layout: NotRequired[bool]
    seed: int
    timeout: NotRequired[float]
    unobserved: NotRequired[bool]
    warm_up: int


class SearchAim(TypedDict):
    """A quantity and the direction in which it is good."""

    more: bool
    quantity: Quantity


class SearchGoal(TypedDict):
    """The goal of a search."""

    aim: SearchAim
    limit: Union[SearchLimit, None]
    prefer: Union[SearchAim, None]
    within: float


class SearchLimit(TypedDict):
    """A limit on a quantity."""

    aim: SearchAim
    relative: bool
    value: float


class SearchOutcome(TypedDict):
    """How a search ended."""

    blocks: int
    certainty: float
    chosen: int
    expected: List[List[float]]
    gain_left: NotRequired[List[float]]
    rounds: int
    runner_up: Union[int, None]
    settled: bool
    shares: List[float]
    tried: int
    undecided: List[List[Union[int, float]]]


class Searched(TypedDict):
    """The settings of a search."""

    arms: List[Arm]
    factors: List[Factor]
    left_out: List[SettingLeftOut]
    levels: List[Union[List[int], None]]


class SeriesShifts(TypedDict):
    """One series with its shifts."""

    name: str
    runs: int
    season: NotRequired[float]
    shifts: List[Explained]
    unit: str


class Server(TypedDict):
    """A server that runs during each round of an arm."""

    argv: List[str]
    ready: NotRequired[str]


class ServiceState(TypedDict):
    """The service, as commands see it."""

    blind: NotRequired[List[str]]
    process: ProcessId
    since: int


Setting = TypedDict("Setting", {"from": "str", "name": "KnobName", "on": "Union[str, None]", "optional": "NotRequired[bool]", "otherwise": "NotRequired[List[Wanted]]", "wanted": "Wanted"})


class SettingLeftOut(TypedDict):
    """A setting that is not searched."""

    settings: str
    why: str


Severity = Literal["note", "warning", "fault"]


class ShiftPlace(TypedDict):
    """Where a series shifted."""

    after: int
    before: int
    better: Union[bool, None]
    change: Union[float, None]
    facts: List[ChangedFact]
    form: Form
    median_after: float
    median_before: float


class ShiftedSeries(TypedDict):
    """A series that shifted."""

    arm: str
    benchmark: str
    changes: List[ShiftPlace]
    host: str
    metric: str
    p: float
    runs: int
    unit: str


class ShownRow(TypedDict):
    """One value at one location."""

    absent: NotRequired[str]
    cpus: str
    error: NotRequired[str]
    instance: NotRequired[str]
    knob: str
    places: int
    source: Union[str, None]
    unit: str
    value: Union[PlainValue, None]


class SimulationAim1(TypedDict):
    """Maximum error in percent of the published value."""

    kind: Literal["percent"]
    limit: float


class SimulationAim2(TypedDict):
    """Maximum error in the row's unit."""

    kind: Literal["absolute"]
    limit: float


class SimulationAim3(TypedDict):
    """The change must have the same sign, reach a quarter of the published change, and be within this many percentage points of it."""

    kind: Literal["sign"]
    limit: float


class SimulationAim4(TypedDict):
    """No aim: printed for completeness."""

    kind: Literal["none"]


SimulationAim = Union["SimulationAim1", "SimulationAim2", "SimulationAim3", "SimulationAim4"]


class Skipped(TypedDict):
    """A directory that could not be used, and why."""

    directory: str
    why: str


class SkippedFile(TypedDict):
    """A file that cannot be used, and why."""

    path: str
    why: str


class Snippet(TypedDict):
    """Text for a file that an administrator may want."""

    file: str
    lines: List[str]
    why: str


Source = Literal["steal", "frequency", "memory", "load", "heat"]


SourceKind = Literal["timer", "reschedule", "function-call", "device", "other", "thread", "end-of-polling", "not-seen"]


class SpeedLoss(TypedDict):
    """The frequency that one limit cost."""

    certainty: NotRequired[str]
    evidence: List[str]
    is_setting: bool
    knob: NotRequired[str]
    limiter: str
    mhz: float
    share: float
    words: str


class SpeedNote(TypedDict):
    """The speed of the CPUs that ran, on average over the time in which each ran."""

    cpus: str
    highest_mhz: float
    losses: List[SpeedLoss]
    mhz: float


Spelling = Literal["text", "any-case", "number", "hexadecimal", "switch", "smt-control", "preference", "bias", "percent-of127", "frequency-limit", "speed", "cpuset-controller", "interrupt", "unread"]


State = Literal["running", "offline", "unknown", "asleep"]


class Status(TypedDict):
    """The complete status."""

    config_error: NotRequired[str]
    drifts: List[Drift]
    failure: NotRequired[str]
    holds: List[HoldStatus]
    knobs: List[HeldKnob]
    service: Union[ServiceState, None]


class Steadiness(TypedDict):
    """How the scatter of two arms' rounds compares: a test of the absolute deviations from each arm's median (Brown and Forsythe), by ranks and pair by pair."""

    change: float
    p: float
    p_corrected: float
    spreads: List[float]
    verdict: Verdict


Step = Literal["driver-mode", "speed-select-off", "level", "online", "classes", "core-power", "speed-select-on", "low-limit", "turbo", "governor", "tunable", "preference", "limit", "idle", "power", "offline"]


Stored = Literal["trace-dat", "raw-pages", "text"]


Suite = Literal["pyperf", "google-benchmark", "criterion", "go", "hyperfine", "csv"]


class Summary(TypedDict):
    """One quantity of one arm."""

    deviation: Union[float, None]
    drift: Union[ArmDrift, None]
    interval: Union[Interval, None]
    is_judged: bool
    mean: float
    median: float
    metric: Metric
    outliers: List[int]
    points: List[Point]
    quantity: Quantity


class SuspectCommit(TypedDict):
    """A commit that may have made the change."""

    commit: str
    is_merge: bool
    probability: float
    subject: str


class SystemNote(TypedDict):
    """Which machine it is, and what may differ between machines of one kind."""

    firmware: NotRequired[str]
    hostname: NotRequired[str]
    microcode: NotRequired[str]
    product: NotRequired[str]


TableKind = Literal["rounds", "findings", "settings"]


class TaskReport(TypedDict):
    """One task."""

    des_perf: Union[Range, None]
    ghz: Union[Range, None]
    load: Union[Range, None]
    name: Comm
    pid: int
    samples: int


class TextSummary(TypedDict):
    """Summary of a text."""

    bytes: int
    cut_off: bool
    entries: Union[List[int], None]
    first_unparsed: Union[int, None]
    lines: int
    records: int
    unparsed: int


TraceFinding = TypedDict("TraceFinding", {"cpu": "NotRequired[int]", "evidence": "NotRequired[List[str]]", "from": "float", "kind": "FindingKind", "other_cpu": "NotRequired[int]", "remedy": "str", "severity": "Severity", "to": "float", "uncertain": "bool", "what": "str"})


class TraceNote(TypedDict):
    """The driver's decisions in one round, summed up; the trace itself is a file next to the rounds."""

    decisions: int
    file: str
    ghz: NotRequired[float]
    lag_ms: NotRequired[float]
    lost: int
    records: int
    sampled: NotRequired[Sampled]


class TraceSummary(TypedDict):
    """Everything about a trace except its records."""

    buffers: NotRequired[List[BufferSummary]]
    clock: Clock
    machine: NotRequired[Machine]
    problems: List[str]
    stats: NotRequired[List[CpuStats]]
    stored: Stored
    text: NotRequired[TextSummary]
    uname: NotRequired[str]
    writer: NotRequired[str]


TransactionState = Literal["open", "committed", "restored"]


class Turbo(TypedDict):
    """Turbo limits for a class of instructions."""

    buckets: List[Bucket]
    instructions: str


class TurboFreqOffer(TypedDict):
    """SST-TF of a level."""

    clip: List[List[Union[str, MegaHertz]]]
    high: List[Turbo]


class UnlikeItself(TypedDict):
    """A machine whose first arm differs from itself in a quantity."""

    machine: str
    quantity: Quantity


class Usage(TypedDict):
    """Resources used by a process and the descendants that it waited for, by the kernel's accounting (getrusage(2))."""

    involuntary_switches: int
    major_faults: int
    minor_faults: int
    peak_kib: Union[int, None]
    system_seconds: float
    user_seconds: float
    voluntary_switches: int


class Value1(TypedDict):
    """One of a set of words: a governor, a driver, a preference."""

    word: str


class Value2(TypedDict):
    """Several words: available governors."""

    words: List[str]


class Value3(TypedDict):
    """On or off."""

    switch: bool


class Value4(TypedDict):
    """A frequency in kHz."""

    frequency: KiloHertz


class Value5(TypedDict):
    """Several frequencies, as the driver orders them."""

    frequencies: List[KiloHertz]


class Value6(TypedDict):
    """A whole percentage."""

    percent: Percent


class Value7(TypedDict):
    """A time in microseconds."""

    time: Micros


class Value8(TypedDict):
    """A power in microwatts."""

    power: MicroWatts


class Value9(TypedDict):
    """An energy counter in microjoules."""

    energy: MicroJoules


class Value10(TypedDict):
    """A temperature in degrees Celsius."""

    temperature: Celsius


class Value11(TypedDict):
    """An energy performance bias, 0 to 15."""

    epb: Epb


class Value12(TypedDict):
    """An energy performance preference as the register's number, 0 to 255."""

    epp: Epp


class Value13(TypedDict):
    """An abstract performance level."""

    perf: Perf


class Value14(TypedDict):
    """A plain count."""

    count: int


class Value15(TypedDict):
    """Named fields of one register, from bit 0 upwards."""

    fields: List[List[Union[str, int]]]


class Value16(TypedDict):
    """A set of CPUs."""

    cpus: CpuList


Value = Union["Value1", "Value2", "Value3", "Value4", "Value5", "Value6", "Value7", "Value8", "Value9", "Value10", "Value11", "Value12", "Value13", "Value14", "Value15", "Value16"]


Vendor = Literal["intel", "amd", "other"]


Verdict = Literal["better", "worse", "equivalent", "no-difference-shown", "too-few-rounds"]


class WakeAdvice(TypedDict):
    """A latency limit that could pay off."""

    saved_ms_at_most: float
    setting: str


WakeBy = Literal["futex", "timer"]


class WakeCause(TypedDict):
    """What ended an idle state, and the thread that ran afterwards."""

    by_state: List[float]
    kind: SourceKind
    name: str
    of_workload: bool
    tid: Union[int, None]
    wakes: float
    wakes_error: Union[float, None]
    woken: Union[str, None]
    woken_tid: Union[int, None]


class WakeCheck(TypedDict):
    """The comparison of the advised limit with the current settings."""

    change: Union[float, None]
    directory: str
    interval: Union[List[float], None]
    sentence: str
    verdict: CheckVerdict
    watts: Union[float, None]
    watts_interval: Union[List[float], None]


class WakeCpu(TypedDict):
    """One CPU."""

    by_state: List[float]
    cpu: int
    interrupts: float
    lost_ms_at_most: float
    wakes: float


class WakeNote(TypedDict):
    """Wake-ups of an arm's metered CPUs: means of its rounds."""

    lost_at_most: float
    per_second: float
    state: Union[List[Union[str, float]], None]


class WakeSource(TypedDict):
    """A kind of interrupt."""

    kind: SourceKind
    name: str
    rate: float


class WakeSources(TypedDict):
    """Exits from idle states in the kernel's tracepoints."""

    all_causes: int
    attributed: int
    causes: List[WakeCause]
    counted: int
    exits: int
    lost: int
    of_workload: Union[float, None]
    reading_ms: float
    records: int
    sampled_seconds: Union[float, None]


class WakeState(TypedDict):
    """Exits from an idle state, summed over the CPUs."""

    above: Union[float, None]
    below: Union[float, None]
    exit_latency_us: int
    exits: int
    mean_residency_us: Union[float, None]
    measured_exit_us: Union[float, None]
    name: str
    of_workload: Union[float, None]
    rejected: Union[float, None]
    residency: float
    share: float
    target_residency_us: Union[int, None]
    wakes: float


class WakeThread(TypedDict):
    """A thread."""

    name: str
    preempted: float
    run_delay_ms: Union[float, None]
    running: Union[float, None]
    tid: int
    wakes: float


class WakeWorkload(TypedDict):
    """The threads that were watched."""

    busiest: List[WakeThread]
    ended: int
    preempted: float
    run_delay_ms: Union[float, None]
    threads: int
    wakes: float


class Wanted1(TypedDict):
    exactly: Value


class Wanted9(TypedDict):
    """A share of the highest frequency of the hardware."""

    share: Percent


Wanted10 = TypedDict("Wanted10", {"up-to": "str"})


Wanted11 = TypedDict("Wanted11", {"within-latency": "Micros"})


Wanted = Union[Literal["min", "max", "base", "nominal", "efficient", "normal", "default"], "Wanted1", "Wanted9", "Wanted10", "Wanted11"]


Window = TypedDict("Window", {"from": "int", "to": "int"})


class WithoutRatio(TypedDict):
    """A machine that is left out of a quantity, because one of its values is zero or negative."""

    arm: int
    machine: str
    quantity: Quantity
    why: str
    withholds: bool


class WorkloadNote(TypedDict):
    """The workload that was run."""

    accepted_exit_codes: NotRequired[List[int]]
    argv: List[str]
    background: NotRequired[List[BackgroundNote]]
    cleanup: NotRequired[str]
    conclude: NotRequired[str]
    cpus: NotRequired[str]
    directory: NotRequired[str]
    environment: NotRequired[Dict[str, str]]
    ignore_failure: bool
    input: NotRequired[str]
    metric: Metric
    name: str
    prepare: NotRequired[str]
    reader: NotRequired[Reader]
    rebuild: NotRequired[str]
    same_output: NotRequired[bool]
    server: NotRequired[List[str]]
    setup: NotRequired[str]


class Writer(TypedDict):
    """A process that wrote something, with its known properties."""

    name: NotRequired[str]
    pid: int
    unit: NotRequired[str]


class AtBootOutput(TypedDict):
    """What `flyball apply --at-boot` prints."""

    emulated: NotRequired[str]
    made: List[str]
    profile: str
    schema: Literal["at-boot/1"]
    simulated: NotRequired[bool]
    snippets: List[Snippet]
    unit: str


class BisectOutput(TypedDict):
    """What `flyball compare --bisect` prints: the commit that changed the metric."""

    answer: str
    built: int
    candidates: int
    change: Union[float, None]
    commits: List[SuspectCommit]
    confidence: float
    emulated: NotRequired[str]
    interval: Union[Interval, None]
    is_worse: Union[bool, None]
    reason: NotRequired[NoInterval]
    runs: int
    schema: Literal["bisect/1"]
    simulated: NotRequired[bool]
    skipped: Dict[str, str]


class ComparePlanOutput(TypedDict):
    """What `flyball compare --dry-run` prints: the arms, their writes and the order of the rounds."""

    arms: List[ArmPlan]
    emulated: NotRequired[str]
    order: List[List[str]]
    pause_seconds: float
    rounds_at_most: int
    schedule: Schedule
    schema: Literal["compare-plan/1"]
    simulated: NotRequired[bool]
    workload: WorkloadNote


class DoctorListOutputItem(TypedDict):
    emulated: NotRequired[str]
    group: Group
    id: str
    looks: str
    option: Union[str, None]
    schema: Literal["doctor-list/1"]
    simulated: NotRequired[bool]
    why: str


DoctorListOutput = List["DoctorListOutputItem"]


class DoctorOutput(TypedDict):
    """What `flyball doctor` prints: the findings."""

    emulated: NotRequired[str]
    findings: List[Finding]
    kernel: Union[str, None]
    kind: Kind
    machine: str
    not_visible: NotRequired[NotVisible]
    processor: str
    schema: Literal["doctor/1"]
    simulated: NotRequired[bool]


class ExplainOutputItem1(TypedDict):
    """A knob in JSON."""

    emulated: NotRequired[str]
    schema: Literal["explain/1"]
    simulated: NotRequired[bool]
    about: str
    accepts: str
    access: Access
    interacts: List[List[str]]
    knob: str
    lives: List[str]
    scope: str
    step: Union[str, None]
    title: str
    unit: str


class ExplainOutputItem2(TypedDict):
    emulated: NotRequired[str]
    schema: Literal["explain/1"]
    simulated: NotRequired[bool]
    file: Union[str, None]
    profile: str
    text: str


ExplainOutputItem = Union["ExplainOutputItem1", "ExplainOutputItem2"]


ExplainOutput = List["ExplainOutputItem"]


class JournalFile1Header(TypedDict):
    boot: Union[str, None]
    format: int
    machine: str


class JournalFile1(TypedDict):
    header: JournalFile1Header


class JournalFile2Begin(TypedDict):
    at: int
    command: str
    holds: NotRequired[List[str]]
    id: int
    of: NotRequired[Environment]
    pid: int
    purpose: NotRequired[Purpose]


class JournalFile2(TypedDict):
    begin: JournalFile2Begin


class JournalFile3Was(TypedDict):
    """How a location is written, read back and restored, as the journal stores it."""

    bound: NotRequired[Bound]
    content: Content
    late: NotRequired[bool]
    location: Location
    lost: NotRequired[bool]
    seen_late: NotRequired[bool]
    spelling: Spelling
    step: Step


class JournalFile3(TypedDict):
    was: JournalFile3Was


class JournalFile4Write(TypedDict):
    """How a location is written, read back and restored, as the journal stores it."""

    bound: NotRequired[Bound]
    kept: NotRequired[bool]
    location: Location
    new: Content
    old: Content
    spelling: Spelling
    step: Step


class JournalFile4(TypedDict):
    write: JournalFile4Write


class JournalFile5Refused(TypedDict):
    location: Location


class JournalFile5(TypedDict):
    """The kernel refused the last write of a driver's mode and kept the earlier mode, so the driver has removed nothing."""

    refused: JournalFile5Refused


class JournalFile6Commit(TypedDict):
    id: int


class JournalFile6(TypedDict):
    commit: JournalFile6Commit


class JournalFile7Restored(TypedDict):
    id: int


class JournalFile7(TypedDict):
    restored: JournalFile7Restored


class JournalFile8Released(TypedDict):
    locations: List[Location]


class JournalFile8(TypedDict):
    """No hold sets these locations any more: they have been restored separately, or belong to another writer."""

    released: JournalFile8Released


JournalFile = Union["JournalFile1", "JournalFile2", "JournalFile3", "JournalFile4", "JournalFile5", "JournalFile6", "JournalFile7", "JournalFile8"]


class ManifestFile(TypedDict):
    """What was compared, how and where."""

    arms: List[Arm]
    bisect: NotRequired[BisectNote]
    boot_needs: List[Union[str, None]]
    boots: List[Boot]
    command_line: NotRequired[List[str]]
    experiment: NotRequired[ExperimentNote]
    format: str
    knobs: NotRequired[List[CommandKnob]]
    machine: MachineNote
    quiet: NotRequired[QuietNote]
    schedule: Schedule
    tool: str
    trace: NotRequired[bool]
    version: int
    workload: WorkloadNote


class ProfileFileOptional(TypedDict):
    """Settings that are left out where the machine lacks them, with a note."""

    cache: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    ccd: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    core: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    cpus: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    die: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    node: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    package: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    policy: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    type: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]


class ProfileFile(TypedDict):
    """A profile, as TOML: settings for all CPUs, sections for some of them, and optional ones."""

    cache: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    ccd: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    core: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    cpus: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    description: NotRequired[str]
    die: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    node: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    optional: NotRequired[ProfileFileOptional]
    package: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    policy: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]
    type: NotRequired[Dict[str, Dict[str, Union[Union[str, bool, int], List[Union[str, bool, int]]]]]]


class RoundFile(TypedDict):
    """One round: one run of the workload under one arm."""

    arm: int
    block: int
    boot: int
    conditions: NotRequired[Conditions]
    moment: Moment
    notes: NotRequired[List[str]]
    outcome: RunOutcome
    place: int
    readings: Readings
    speed: NotRequired[SpeedNote]
    started: float
    trace: NotRequired[TraceNote]
    void: NotRequired[str]
    warm_up: bool


class SnapshotFile1(TypedDict):
    """Every setting that a profile can have."""

    settings: List[SavedSetting]


class SnapshotFile2(TypedDict):
    """The format of older versions of flyball: the text of a profile."""

    profile: str


class SnapshotFile3(TypedDict):
    """A simulated machine, which boots again for each round."""

    machine: str
    simulated: bool


class SnapshotFile4(TypedDict):
    """The machine could not be read."""

    error: str


SnapshotFile = Union["SnapshotFile1", "SnapshotFile2", "SnapshotFile3", "SnapshotFile4"]


class FleetOutput(TypedDict):
    """What `flyball report --fleet` prints, and its `fleet.json`."""

    confidence: float
    design: NotRequired[List[List[Pilot]]]
    effects: List[Effect]
    emulated: NotRequired[str]
    experiment: Experiment
    lost: NotRequired[List[LostRounds]]
    machines: List[MachineReport]
    missing: List[str]
    schema: Literal["fleet/1"]
    simulated: NotRequired[bool]
    skipped: List[Skipped]
    unlike_itself: NotRequired[List[UnlikeItself]]
    without_ratio: NotRequired[List[WithoutRatio]]


class GetOutputItem(TypedDict):
    absent: NotRequired[str]
    cpus: str
    emulated: NotRequired[str]
    error: NotRequired[str]
    instance: NotRequired[str]
    knob: str
    schema: Literal["get/1"]
    simulated: NotRequired[bool]
    source: Union[str, None]
    unit: str
    value: Union[PlainValue, None]


GetOutput = List["GetOutputItem"]


class HoldAddOutput(TypedDict):
    """What `flyball hold add` prints."""

    applied: Union[Applied, None]
    because: Union[str, None]
    emulated: NotRequired[str]
    hold: Hold
    in_force: bool
    restoration: Restoration
    schema: Literal["hold-add/1"]
    simulated: NotRequired[bool]


class HoldCheckOutput(TypedDict):
    """What `flyball hold check` prints: the entries of a configuration, and what becomes of each here."""

    emulated: NotRequired[str]
    entries: List[CheckedEntry]
    file: str
    schema: Literal["hold-check/1"]
    simulated: NotRequired[bool]


class HoldListOutputItem(TypedDict):
    because: NotRequired[str]
    condition: NotRequired[Condition]
    emulated: NotRequired[str]
    end: End
    in_force: bool
    name: HoldName
    not_reported: NotRequired[str]
    on_drift: OnDrift
    on_exit: OnExit
    owner: HoldOwner
    priority: int
    profile: NotRequired[str]
    schema: Literal["hold-list/1"]
    settings: List[Setting]
    simulated: NotRequired[bool]
    since: int


HoldListOutput = List["HoldListOutputItem"]


class HoldRehearseOutput(TypedDict):
    """What `flyball hold rehearse` prints: what the service did at each event, and the end."""

    emulated: NotRequired[str]
    schema: Literal["hold-rehearse/1"]
    simulated: NotRequired[bool]
    status: Status
    steps: List[RehearsalStep]


class HoldReleaseOutput(TypedDict):
    """What `flyball hold release` prints."""

    applied: Union[Applied, None]
    emulated: NotRequired[str]
    planned: NotRequired[ReleasePlan]
    released: List[str]
    restoration: Union[Restoration, None]
    schema: Literal["hold-release/1"]
    simulated: NotRequired[bool]
    stays: List[HeldKnob]


class HoldStatusOutput(TypedDict):
    """What `flyball hold status` prints: holds, what they hold, and the last drifts."""

    config_error: NotRequired[str]
    drifts: List[Drift]
    emulated: NotRequired[str]
    failure: NotRequired[str]
    holds: List[HoldStatus]
    knobs: List[HeldKnob]
    schema: Literal["hold-status/1"]
    service: Union[ServiceState, None]
    simulated: NotRequired[bool]


class PlanOutput(TypedDict):
    """What `flyball plan` prints, and every command with --dry-run: the writes in order."""

    changes: List[Change]
    emulated: NotRequired[str]
    machine: str
    notes: List[Note]
    schema: Literal["plan/1"]
    simulated: NotRequired[bool]


class ProfilesOutputItem(TypedDict):
    description: Union[str, None]
    emulated: NotRequired[str]
    file: Union[str, None]
    in_effect: bool
    name: str
    notes: List[str]
    possible: int
    schema: Literal["profiles/1"]
    settings: int
    simulated: NotRequired[bool]


ProfilesOutput = List["ProfilesOutputItem"]


class QuietBenchOutput(TypedDict):
    """What `flyball quiet bench` prints: the runs with their conditions, and the shifts among them."""

    as_is: bool
    command: List[str]
    emulated: NotRequired[str]
    level: Level
    median_ms: float
    runs: List[Run]
    schema: Literal["quiet-bench/1"]
    shifts: SeriesShifts
    simulated: NotRequired[bool]
    standard_deviation_ms: float


class QuietPlanOutput(TypedDict):
    """What `flyball quiet --dry-run` prints: what would be set."""

    emulated: NotRequired[str]
    extras: List[Extra]
    plan: Plan
    recipe: QuietSettings
    schema: Literal["quiet-plan/1"]
    simulated: NotRequired[bool]


class QuietShiftsOutputItem(TypedDict):
    emulated: NotRequired[str]
    name: str
    runs: int
    schema: Literal["quiet-shifts/1"]
    season: NotRequired[float]
    shifts: List[Explained]
    simulated: NotRequired[bool]
    unit: str


QuietShiftsOutput = List["QuietShiftsOutputItem"]


class QuietStatusOutput(TypedDict):
    """What `flyball quiet status` prints: whether the machine is quiet."""

    boot: List[BootParameter]
    differs: List[Change]
    emulated: NotRequired[str]
    interrupts_and_profiling: int
    level: Level
    quiet: bool
    schema: Literal["quiet-status/1"]
    settings: List[QuietSetting]
    simulated: NotRequired[bool]
    unavailable: List[str]


class RecordOutput(TypedDict):
    """What `flyball record` prints: what the recording holds."""

    denied: int
    emulated: NotRequired[str]
    errors: int
    files: int
    log_lines: int
    registers: int
    schema: Literal["record/1"]
    simulated: NotRequired[bool]


class ReportOutput(TypedDict):
    """What `flyball report` and `compare` print, and `report.json` of a run directory."""

    arms: List[ArmReport]
    cases: NotRequired[List[CaseReport]]
    comparisons: List[Comparison]
    correction: float
    effects: NotRequired[List[ProgramEffect]]
    emulated: NotRequired[str]
    gate: NotRequired[List[GateAnswer]]
    machine: MachineNote
    no_counters: NotRequired[str]
    no_energy: Union[str, None]
    no_frequency: Union[str, None]
    notes: List[str]
    questions: int
    quiet: NotRequired[QuietNote]
    resources: NotRequired[List[Comparison]]
    schedule: Schedule
    schema: Literal["report/1"]
    simulated: NotRequired[bool]
    withheld: NotRequired[List[Quantity]]
    workload: WorkloadNote


class RestorePlanOutput(TypedDict):
    """What `flyball restore --dry-run` prints: what would be restored."""

    differing: List[Difference]
    emulated: NotRequired[str]
    remembered: int
    schema: Literal["restore-plan/1"]
    simulated: NotRequired[bool]
    undo: List[Entry]


class RestoreOutput(TypedDict):
    """What `flyball restore` prints: what was undone, and what could not be."""

    emulated: NotRequired[str]
    notes: List[EarlierBoot]
    restoration: Restoration
    schema: Literal["restore/1"]
    simulated: NotRequired[bool]
    undone: List[Entry]


class ResultsAddOutput(TypedDict):
    """What `flyball results add` prints: what was added."""

    emulated: NotRequired[str]
    files: int
    inputs: int
    known: int
    rows: int
    schema: Literal["results-add/1"]
    simulated: NotRequired[bool]
    skipped: List[SkippedFile]
    undated: int


class ResultsListOutputItem(TypedDict):
    benchmarks: List[str]
    emulated: NotRequired[str]
    host: str
    id: str
    kind: TableKind
    rows: int
    schema: Literal["results-list/1"]
    simulated: NotRequired[bool]
    source: str
    time: int


ResultsListOutput = List["ResultsListOutputItem"]


ResultsShiftsOutput = TypedDict("ResultsShiftsOutput", {"ambiguous": "List[str]", "confidence": "float", "emulated": "NotRequired[str]", "failed": "int", "first": "int", "hosts": "int", "last": "int", "passed": "List[SkippedFile]", "rounds": "int", "schema": "Literal['results-shifts/1']", "series": "int", "shifted": "List[ShiftedSeries]", "short": "int", "simulated": "NotRequired[bool]", "undated": "List[str]", "with": "List[FactChange]"})


class ResultsShowOutput(TypedDict):
    """What `flyball results show` prints: an input of a dataset."""

    benchmarks: List[str]
    emulated: NotRequired[str]
    facts: Dict[str, str]
    host: str
    id: str
    kind: TableKind
    results: List[ArmSummary]
    rows: int
    schema: Literal["results-show/1"]
    settings: Dict[str, str]
    simulated: NotRequired[bool]
    source: str
    time: int
    verdicts: Dict[str, int]


class SelftestOutput(TypedDict):
    """What `flyball report` of a kernel selftest's CSV file prints."""

    checks: List[Check]
    emulated: NotRequired[str]
    notes: List[str]
    pairs: List[PairVerdict]
    schema: Literal["selftest/1"]
    seconds: Union[int, None]
    simulated: NotRequired[bool]
    test: str


class SetOutput(TypedDict):
    """What `flyball set`, `apply` and the commands of `sst` print: what was changed."""

    emulated: NotRequired[str]
    made: List[AppliedChange]
    not_needed: NotRequired[List[Change]]
    notes: List[Note]
    schema: Literal["set/1"]
    simulated: NotRequired[bool]


class ShowKnobsOutputItem(TypedDict):
    absent: NotRequired[str]
    cpus: str
    emulated: NotRequired[str]
    error: NotRequired[str]
    instance: NotRequired[str]
    knob: str
    places: int
    schema: Literal["show-knobs/1"]
    simulated: NotRequired[bool]
    source: Union[str, None]
    unit: str
    value: Union[PlainValue, None]


ShowKnobsOutput = List["ShowKnobsOutputItem"]


class ShowOutput(TypedDict):
    """What `flyball show` prints: the machine and its values."""

    emulated: NotRequired[str]
    machine: Facts
    rows: List[ShownRow]
    schema: Literal["show/1"]
    simulated: NotRequired[bool]


class SimCheckOutput(TypedDict):
    """What `flyball sim check` prints: published values and those of the simulator."""

    emulated: NotRequired[str]
    judged: int
    met: int
    rows: List[CheckLine]
    schema: Literal["sim-check/1"]
    simulated: bool
    within_spread: int


class SimListOutputItem(TypedDict):
    cpus: int
    emulated: NotRequired[str]
    name: str
    packages: int
    schema: Literal["sim-list/1"]
    simulated: bool
    title: str


SimListOutput = List["SimListOutputItem"]


class SimShowOutput(TypedDict):
    """What `flyball sim show` prints: a simulated machine."""

    about: str
    cpus: int
    driver: str
    emulated: NotRequired[str]
    frequency_mhz: List[int]
    name: str
    packages: int
    processor: str
    schema: Literal["sim-show/1"]
    simulated: bool
    tdp_w: float
    title: str


class SstBaseFreqOutputItem(TypedDict):
    base_freq: Union[BaseFreqOffer, None]
    cpus: CpuList
    die: int
    domain: int
    emulated: NotRequired[str]
    level: int
    package: int
    schema: Literal["sst-base-freq/1"]
    simulated: NotRequired[bool]


SstBaseFreqOutput = List["SstBaseFreqOutputItem"]


class SstClassOfCpuOutputItem(TypedDict):
    clos: int
    cpu: int
    emulated: NotRequired[str]
    schema: Literal["sst-class-of-cpu/1"]
    simulated: NotRequired[bool]


SstClassOfCpuOutput = List["SstClassOfCpuOutputItem"]


class SstClassesOutputItem(TypedDict):
    clos: int
    cpus: CpuList
    die: int
    domain: int
    emulated: NotRequired[str]
    epp: Union[int, None]
    max_mhz: Union[MegaHertz, None]
    min_mhz: MegaHertz
    package: int
    schema: Literal["sst-classes/1"]
    simulated: NotRequired[bool]
    weight: int


SstClassesOutput = List["SstClassesOutputItem"]


class SstCorePowerOutputItem(TypedDict):
    clos_enabled: bool
    cpus: CpuList
    die: int
    domain: int
    emulated: NotRequired[str]
    enabled: bool
    package: int
    priority: str
    schema: Literal["sst-core-power/1"]
    simulated: NotRequired[bool]
    supported: bool


SstCorePowerOutput = List["SstCorePowerOutputItem"]


class SstDomainOutputItem1(TypedDict):
    """Whether firmware has locked the level: `locked` or `unlocked`."""

    cpus: CpuList
    die: int
    domain: int
    emulated: NotRequired[str]
    package: int
    schema: Literal["sst-domain/1"]
    simulated: NotRequired[bool]
    lock_status: str


class SstDomainOutputItem2(TypedDict):
    """The highest level."""

    cpus: CpuList
    die: int
    domain: int
    emulated: NotRequired[str]
    package: int
    schema: Literal["sst-domain/1"]
    simulated: NotRequired[bool]
    highest_level: int


class SstDomainOutputItem3(TypedDict):
    """The version of the feature."""

    cpus: CpuList
    die: int
    domain: int
    emulated: NotRequired[str]
    package: int
    schema: Literal["sst-domain/1"]
    simulated: NotRequired[bool]
    version: int


class SstDomainOutputItem4(TypedDict):
    """Whether the processor can change its level."""

    cpus: CpuList
    die: int
    domain: int
    emulated: NotRequired[str]
    package: int
    schema: Literal["sst-domain/1"]
    simulated: NotRequired[bool]
    enabled: bool


class SstDomainOutputItem5(TypedDict):
    """The current level."""

    cpus: CpuList
    die: int
    domain: int
    emulated: NotRequired[str]
    package: int
    schema: Literal["sst-domain/1"]
    simulated: NotRequired[bool]
    current_level: int


SstDomainOutputItem = Union["SstDomainOutputItem1", "SstDomainOutputItem2", "SstDomainOutputItem3", "SstDomainOutputItem4", "SstDomainOutputItem5"]


SstDomainOutput = List["SstDomainOutputItem"]


class SstInfoOutput(TypedDict):
    """What `flyball sst info` prints: interface, features and power domains."""

    base_freq: bool
    core_power: bool
    cpu: str
    domains: List[DomainModel]
    emulated: NotRequired[str]
    interface: str
    perf_profile: bool
    platform: NotRequired[Platform]
    schema: Literal["sst-info/1"]
    simulated: NotRequired[bool]
    turbo_freq: bool


class SstLevelsOutputItem(TypedDict):
    base_freq: Union[BaseFreqOffer, None]
    base_mhz: List[MegaHertz]
    cooling_type: int
    cpus: CpuList
    current: bool
    die: int
    domain: int
    emulated: NotRequired[str]
    level: int
    memory_mhz: MegaHertz
    package: int
    schema: Literal["sst-levels/1"]
    second_uncore_mhz: List[MegaHertz]
    simulated: NotRequired[bool]
    tdp_w: int
    tjunction_c: int
    turbo: List[Turbo]
    turbo_freq: Union[TurboFreqOffer, None]
    uncore_mhz: List[MegaHertz]


SstLevelsOutput = List["SstLevelsOutputItem"]


class SstRecommendOutputItem(TypedDict):
    domain: int
    emulated: NotRequired[str]
    feature: Feature
    guaranteed_mhz: MegaHertz
    level: int
    offline: CpuList
    others_guaranteed_mhz: MegaHertz
    others_turbo_mhz: MegaHertz
    package: int
    schema: Literal["sst-recommend/1"]
    settings: List[KnobSetting]
    simulated: NotRequired[bool]
    turbo_mhz: MegaHertz


SstRecommendOutput = List["SstRecommendOutputItem"]


class SstTurboFreqOutputItem(TypedDict):
    cpus: CpuList
    die: int
    domain: int
    emulated: NotRequired[str]
    level: int
    package: int
    schema: Literal["sst-turbo-freq/1"]
    simulated: NotRequired[bool]
    turbo_freq: Union[TurboFreqOffer, None]


SstTurboFreqOutput = List["SstTurboFreqOutputItem"]


class SstTurboLimitsOutputItem(TypedDict):
    cpus: CpuList
    die: int
    domain: int
    emulated: NotRequired[str]
    mhz: List[int]
    package: int
    schema: Literal["sst-turbo-limits/1"]
    simulated: NotRequired[bool]
    trl: str


SstTurboLimitsOutput = List["SstTurboLimitsOutputItem"]


class TopOutput(TypedDict):
    """What `flyball top --json` prints, one per line: a moment."""

    cost: Cost
    cpus: List[CpuInterval]
    emulated: NotRequired[str]
    governors: List[str]
    is_broken: bool
    machine: str
    numbers: List[int]
    packages: List[PackageInterval]
    platform_watts: Union[float, None]
    schema: Literal["top/1"]
    seconds: float
    simulated: NotRequired[bool]
    time: int
    why: List[Union[str, None]]


class TraceDiagnoseOutput(TypedDict):
    """What `flyball trace diagnose` prints: the trace and the findings."""

    emulated: NotRequired[str]
    findings: List[TraceFinding]
    schema: Literal["trace-diagnose/1"]
    simulated: NotRequired[bool]
    trace: TraceSummary


class TraceRecordOutput(TypedDict):
    """What `flyball trace record` prints: how the recording went."""

    bytes: int
    cpus: List[CpuCapture]
    emulated: NotRequired[str]
    file: str
    leftovers: List[str]
    lost: int
    received: int
    schema: Literal["trace-record/1"]
    simulated: NotRequired[bool]
    written: int


class TraceReportOutput(TypedDict):
    """What `flyball trace report` prints: the trace and what happened in it."""

    emulated: NotRequired[str]
    report: Report
    schema: Literal["trace-report/1"]
    simulated: NotRequired[bool]
    trace: TraceSummary


class TraceRunOutput(TypedDict):
    """What `flyball trace run` prints: recording, report and findings."""

    emulated: NotRequired[str]
    findings: List[TraceFinding]
    recording: CaptureSummary
    report: Report
    schema: Literal["trace-run/1"]
    simulated: NotRequired[bool]
    trace: TraceSummary


class TunePlanOutput(TypedDict):
    """What `flyball tune -n` prints, and what `search.json` of a run directory holds: the space of a search."""

    contradicted_after: NotRequired[int]
    emulated: NotRequired[str]
    format: str
    goal: SearchGoal
    most_rounds: int
    most_seconds: NotRequired[float]
    schema: Literal["tune-plan/1"]
    searched: Searched
    simulated: NotRequired[bool]
    strict: bool
    version: int


class TuneOutput(TypedDict):
    """What `flyball tune` prints: the chosen settings, and what fresh rounds say of them."""

    candidate: str
    chosen: str
    confirmed: Union[Confirmed, None]
    emulated: NotRequired[str]
    failed: List[List[str]]
    goal: SearchGoal
    keeps_now: bool
    left_out: int
    mattered: List[List[Union[str, float]]]
    schema: Literal["tune/1"]
    search: SearchOutcome
    second: bool
    settings: List[str]
    simulated: NotRequired[bool]
    step: Union[float, None]


class VerifyOutput(TypedDict):
    """What `flyball verify` prints: which settings do not hold, and what may have changed them."""

    drifted: List[Change]
    emulated: NotRequired[str]
    held_by: List[HeldBy]
    notes: List[Note]
    owners: List[Owner]
    schema: Literal["verify/1"]
    simulated: NotRequired[bool]


class WakeProbeOutput(TypedDict):
    """What `flyball wake --probe` prints: how long wake-ups take, by idle state."""

    ambiguous: int
    attributed: int
    awake: int
    driver: Union[str, None]
    emulated: NotRequired[str]
    governor: Union[str, None]
    not_reached: List[NotReached]
    notes: List[str]
    path: Union[KernelPath, None]
    rows: List[ProbeRow]
    schema: Literal["wake-probe/1"]
    seconds: float
    sentence: str
    simulated: NotRequired[bool]
    virtual_machine: bool


class WakeOutput(TypedDict):
    """What `flyball wake` prints: wake-ups, idle states that they left, and what woke CPUs."""

    advice: Union[WakeAdvice, None]
    by_cpu: List[WakeCpu]
    check: Union[WakeCheck, None]
    cpus: CpuList
    driver: Union[str, None]
    emulated: NotRequired[str]
    governor: Union[str, None]
    interrupts: List[WakeSource]
    left_out: CpuList
    lost_ms_at_most: Union[float, None]
    reading_ms: float
    schema: Literal["wake/1"]
    seconds: float
    sentence: str
    simulated: NotRequired[bool]
    softirqs: List[WakeSource]
    sources: Union[WakeSources, None]
    states: List[WakeState]
    stolen: Union[float, None]
    unseen: List[str]
    wakes: Union[float, None]
    wakes_without_interrupt: Union[float, None]
    workload: Union[WakeWorkload, None]


class WhyOutput(TypedDict):
    """What `flyball why` prints: why each CPU runs no faster."""

    cpus: List[One]
    emulated: NotRequired[str]
    missing: List[str]
    reading_ms: float
    schema: Literal["why/1"]
    seconds: float
    simulated: NotRequired[bool]
    touched: int
