"""The records that cross module boundaries, and at the same time ``result.json``, version 1.

Every record is a frozen ``msgspec.Struct`` whose JSON is its field names. Bytes, counts and nanoseconds are integers;
raw samples are kept, so that every statistic can be computed again. Keys may be added, never renamed. A number that was
not measured is None, never 0. Nothing here imports torch.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

SCHEMA: Final = 1

Status = Literal["ok", "partial", "failed"]
StrategyStatus = Literal["ok", "failed", "skipped"]
CallKind = Literal["backward", "grad"]
Relation = Literal["bitwise", "close", "different", "partial", "not_comparable"]
Verdict = Literal["slower", "faster", "same", "cannot_tell"]
KernelStatus = Literal["only_first", "only_later", "changed", "same"]
Severity = Literal["info", "warning", "error"]
Interval = tuple[float, float]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records."""


# --- what a strategy will do -------------------------------------------------------------------------------------------


class CallSpec(Record, frozen=True, kw_only=True):
    """One entry into the autograd engine, as planned.

    ``losses`` are names; ``weights`` go with them (None: all 1). ``wrt`` names the parameters that a ``grad`` call asks
    for, in words ("all parameters") or one by one. ``zero_grad_before`` and ``sgd_before`` (a learning rate) happen just
    before the call, outside its times.
    """

    index: int
    losses: tuple[str, ...]
    kind: CallKind = "backward"
    retain_graph: bool = False
    create_graph: bool = False
    weights: tuple[float, ...] | None = None
    wrt: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    zero_grad_before: Literal["set_to_none", "zero"] | None = None
    sgd_before: float | None = None
    what: str = ""  # what the call is for, where the losses' names do not say it: "trunk"


# --- times -------------------------------------------------------------------------------------------------------------


class Samples(Record, frozen=True, kw_only=True):
    """Raw nanoseconds, their median and its 95% interval (exact bootstrap of the median)."""

    samples: tuple[int, ...] = ()
    median: float | None = None
    ci95: Interval | None = None


class Ratio(Record, frozen=True, kw_only=True):
    """Median of paired ratios and its 95% interval; ``pairs`` is how many rounds it rests on."""

    median: float
    ci95: Interval
    pairs: int = 0


# --- what the evidence shows of one call -------------------------------------------------------------------------------


class Accumulate(Record, frozen=True, kw_only=True):
    """What AccumulateGrad did, counted: evaluations by kind."""

    stolen: int = 0
    copied: int = 0
    added: int = 0
    sparse_added: int = 0


class KernelRow(Record, frozen=True, kw_only=True):
    """One kernel of one call: device kernel, or on CPU an aten operator, by name and input shapes (or grid and block).

    ``self_ns`` is time less that of nested operators, summed over ``count``; ``bytes`` is what it allocated itself.
    ``leaf`` says that it counts among ``kernels``: a device kernel, or a CPU operator that does its work itself
    (``retainprof.operators``). Others are listed for their own time.
    """

    name: str
    shapes: str = ""
    count: int = 0
    self_ns: int = 0
    bytes: int = 0
    leaf: bool = True
    device: bool = False


class DeviceTimes(Record, frozen=True, kw_only=True):
    """Device side of one call, in ns: sum and union of its device events, first start to last end, and the gaps inside."""

    sum_ns: int
    busy_ns: int
    span_ns: int
    idle_ns: int
    ends_after_range_ns: int
    launches: int


class RangePass(Record, frozen=True, kw_only=True):
    """What a trace shows inside one labelled range, on any thread. Times are profiled times: they say why, not how long."""

    label: str
    step: int
    start_ns: int
    duration_ns: int
    nodes: int = 0
    ops: int = 0
    kernels: int = 0
    copies_and_sets: int = 0
    accumulate: Accumulate = Accumulate()
    fan_in_adds: int = 0
    forward_ops_in_backward: int = 0
    allocated_bytes: int | None = None  # None: the trace has no memory events
    freed_bytes: int | None = None
    net_bytes: int | None = None
    peak_bytes: int | None = None  # highest level above that at the start
    last_node: str | None = None  # the node evaluated last: where an error came from
    kernel_rows: tuple[KernelRow, ...] = ()
    device: DeviceTimes | None = None


# --- strategies --------------------------------------------------------------------------------------------------------


class CallError(Record, frozen=True, kw_only=True):
    """A call that raised; ``operator`` is the autograd node evaluated last, None where none was."""

    call: int | None
    loss: str
    type: str
    message: str
    operator: str | None = None


class CallResult(Record, frozen=True, kw_only=True):
    """One call of one strategy. Definitions of the counted fields: README, "What the numbers mean"."""

    index: int
    losses: tuple[str, ...]
    kind: CallKind
    retain_graph: bool
    create_graph: bool
    label: str
    what: str = ""
    weights: tuple[float, ...] | None = None
    zero_grad_before: str | None = None
    sgd_before: float | None = None
    wall_ns: Samples = Samples()
    cpu_ns: Samples = Samples()
    device_ns: Samples | None = None
    cold_wall_ns: Samples = Samples()
    cold_minor_faults: tuple[int, ...] = ()
    profiled_wall_ns: int | None = None
    nodes: int | None = None
    ops: int | None = None
    kernels: int | None = None
    copies_and_sets: int | None = None
    flops: int | None = None
    head_flops: int | None = None  # of them, before the gradient reached the shared module's output; None: it did not
    accumulate: Accumulate | None = None
    fan_in_adds: int | None = None
    forward_ops_in_backward: int | None = None
    allocated_bytes: int | None = None
    freed_bytes: int | None = None
    net_bytes: int | None = None
    peak_bytes: int | None = None
    returned_grad_bytes: int | None = None
    retained_bytes_before: int | None = None
    retained_bytes_after: int | None = None
    residue_bytes: int | None = None
    pinned_by_grads_bytes: int | None = None
    pinned_residue_bytes: int | None = None
    unexplained_bytes: int | None = None
    grad_bytes_after: int | None = None
    params_with_grad_after: int | None = None
    inputs_with_grad_after: int | None = None
    grad_sum_after: float | None = None
    grad_abs_sum_after: float | None = None
    retain_needed: bool | None = None  # did a later call visit a node that this call kept? None: it did not retain
    needless_retain_bytes: int | None = None
    nodes_shared_with_earlier: int | None = None  # nodes that an earlier call of the step went through as well
    params_written: tuple[str, ...] = ()  # leaves whose .grad the call wrote or changed
    in_trace_ns: tuple[int, int] | None = None  # start and end in the trace's clock, where no label of ours marks it
    kernel_rows: tuple[KernelRow, ...] = ()


class ForwardResult(Record, frozen=True, kw_only=True):
    """The forward passes of one step, together."""

    wall_ns: Samples = Samples()
    cpu_ns: Samples = Samples()
    cold_wall_ns: Samples = Samples()
    runs: int = 1
    nodes: int | None = None  # nodes the engine evaluated inside the forward
    ops: int | None = None
    net_bytes: int | None = None
    flops: int | None = None


class TimelinePoint(Record, frozen=True, kw_only=True):
    """Allocated bytes above the start of the step, at a time of the profiled step (for drawing, not for timing)."""

    at_ns: int
    bytes: int


class Band(Record, frozen=True, kw_only=True):
    """A labelled range on the timeline."""

    label: str
    start_ns: int
    end_ns: int


class ResidentSet(Record, frozen=True, kw_only=True):
    """The process's resident set beside the tensors' bytes, of one unprofiled step; None where the system tells no RSS.

    ``drop_*`` is the change while the losses were dropped after the last call; ``note`` says why the two differ.
    """

    at_start_bytes: int
    after_forward_bytes: int | None
    after_last_call_bytes: int
    drop_change_bytes: int
    drop_allocated_change_bytes: int
    note: str = ""


class DeviceMemory(Record, frozen=True, kw_only=True):
    """What an accelerator's allocator reports after a step, in bytes, and the highest of each during it."""

    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int


class StepResult(Record, frozen=True, kw_only=True):
    """One whole step: forward passes and calls."""

    wall_ns: Samples = Samples()
    cpu_ns: Samples = Samples()
    cold_wall_ns: Samples = Samples()
    peak_bytes: int | None = None  # above the level before the forward
    flops: int | None = None
    forwards: int | None = None
    rss: ResidentSet | None = None
    device_memory: DeviceMemory | None = None
    timeline: tuple[TimelinePoint, ...] = ()
    bands: tuple[Band, ...] = ()


class HeldStorage(Record, frozen=True, kw_only=True):
    """One storage that the losses hold after the forward, counted once and whole."""

    bytes: int
    kept_by: tuple[str, ...]  # names of nodes; "loss": one of the losses themselves
    modules: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str = ""
    kind: str = "saved"  # saved | loss | output | ctx | closure | leaf_grad
    freed_in_call: int | None = None
    losses: tuple[str, ...] = ()  # losses whose graph reaches it; of kind "loss": the loss itself
    copy_of: str = ""  # the parameter that it is a cast or a transposed copy of


class HeldByNode(Record, frozen=True, kw_only=True):
    """Bytes by the node that keeps them; a storage kept by several is put to the first in ``kept_by``."""

    node: str
    module: str
    bytes: int
    storages: int
    freed_in_call: int | None = None


class HeldByModule(Record, frozen=True, kw_only=True):
    """Bytes by the module whose forward made them; "" is outside every module (the losses)."""

    module: str
    bytes: int


class RetainCost(Record, frozen=True, kw_only=True):
    """What retaining costs, against the same strategy whose calls retain only what a later call needs."""

    peak_with_bytes: int
    peak_without_bytes: int | None
    after_last_with_bytes: int
    after_last_without_bytes: int | None


class Retained(Record, frozen=True, kw_only=True):
    """What the losses hold after the forward."""

    after_forward_bytes: int | None = None
    by_node: tuple[HeldByNode, ...] = ()
    by_module: tuple[HeldByModule, ...] = ()
    storages: tuple[HeldStorage, ...] = ()  # largest first
    residue_bytes: int | None = None  # released by dropping the losses, but found in no node
    cost: RetainCost | None = None


class Gradients(Record, frozen=True, kw_only=True):
    """The strategy's gradients against those of ``reference`` from the same state."""

    reference: str
    relation: Relation
    reason: str = ""
    max_rel_difference: float | None = None
    worst_parameter: str | None = None
    sum: float | None = None
    abs_sum: float | None = None
    returned_relation: Relation | None = None  # the sum of what ``autograd.grad`` returned, against the reference
    returned_max_rel_difference: float | None = None
    not_finite: tuple[str, ...] = ()


class KernelDiff(Record, frozen=True, kw_only=True):
    """One kernel, first against a later call."""

    name: str
    shapes: str
    first_count: int
    later_count: int
    first_self_ns: int
    later_self_ns: int
    first_bytes: int
    later_bytes: int
    status: KernelStatus
    leaf: bool = True


class FirstVsLater(Record, frozen=True, kw_only=True):
    """Call 0 against a later call of one strategy; the ratios are later / first, paired within a step."""

    call: int
    ratio_cpu: Ratio | None
    ratio_wall: Ratio | None
    verdict: Verdict
    kernels: tuple[KernelDiff, ...] = ()


class StrategyResult(Record, frozen=True, kw_only=True):
    """Everything about one strategy."""

    name: str
    kind: str
    status: StrategyStatus = "ok"
    error: CallError | None = None
    options: dict[str, Any] = {}
    step: StepResult = StepResult()
    forward: ForwardResult = ForwardResult()
    calls: tuple[CallResult, ...] = ()
    retained: Retained = Retained()
    gradients: Gradients | None = None
    first_vs_later: tuple[FirstVsLater, ...] = ()
    traces: tuple[str, ...] = ()


class StrategyComparison(Record, frozen=True, kw_only=True):
    """Whole steps, contender / baseline, paired within rounds."""

    baseline: str
    contender: str
    wall: Ratio | None
    cpu: Ratio | None
    peak_bytes_ratio: float | None
    flops_ratio: float | None
    verdict: Verdict


class Finding(Record, frozen=True, kw_only=True):
    """One thing worth knowing, with its evidence in numbers and what to do."""

    rule: str
    severity: Severity
    strategy: str
    call: int | None
    evidence: dict[str, Any]
    text: str
    advice: str = ""
    url: str = ""
    saves_bytes: int | None = None
    saves_ns: int | None = None


class Environment(Record, frozen=True, kw_only=True):
    """What the numbers depend on."""

    python: str
    torch: str
    device: str
    device_name: str
    threads: int
    interop_threads: int
    platform: str
    cpu: str
    cpus: int
    tensorboard: str = ""
    torch_tb_profiler: str = ""
    cuda: str | None = None
    dtype: str = "float32"
    rank: int = 0
    world_size: int = 1
    started: str = ""  # ISO 8601, UTC
    env: dict[str, str] = {}


class Timing(Record, frozen=True, kw_only=True):
    """How the timing pass went."""

    rounds: int
    warmup_rounds: int
    seconds: float
    stopped_by: Literal["narrow", "budget", "rounds", "interrupted"]
    threads: int
    clock: Literal["cpu", "wall"]  # which ratios the verdicts rest on


class Result(Record, frozen=True, kw_only=True):
    """``result.json``."""

    schema: int = SCHEMA
    retainprof: str
    scenario: dict[str, Any]
    environment: Environment
    status: Status
    strategies: tuple[StrategyResult, ...]
    comparisons: tuple[StrategyComparison, ...] = ()
    findings: tuple[Finding, ...] = ()
    timing: Timing | None = None
    phases: tuple[str, ...] = ()  # the passes that finished
    phase_seconds: dict[str, float] = {}
    message: str = ""  # why the status is not ok
