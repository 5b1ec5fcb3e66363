"""What the stacks say: where each rank's main thread is, in one word, and who stands where nobody else does.

A stack is read from its innermost frame outwards. Plumbing (locks, queues, wrappers) is skipped; the first frame that
means something decides, except that a frame further out may say what the work is for: `write_state` called by
`save_checkpoint` is a checkpoint.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mycroft.analysis.facts import Facts, Stack

FRAME: Final = re.compile(r"^(?P<function>.+?) \((?P<file>.*?)(?::(?P<line>\d+))?\)$")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; `line` is None where the tool gives none."""

    function: str
    file: str
    line: int | None

    @property
    def base(self) -> str:
        """Return the file name without its folders."""
        return self.file.replace("\\", "/").rsplit("/", 1)[-1]

    def __str__(self) -> str:
        return (
            f"{self.function} ({self.base}:{self.line})" if self.line is not None else f"{self.function} ({self.base})"
        )


def parse_frame(text: str) -> Frame:
    """Split `function (file:line)`; anything else is a function of an unknown file."""
    found = FRAME.match(text)
    if not found:
        return Frame(text, "", None)
    return Frame(found["function"], found["file"], int(found["line"]) if found["line"] else None)


# Frames that carry others and say nothing themselves.
PLUMBING: Final = re.compile(
    r"(^|/)(threading|queue|queues|selectors|socket|ssl|contextlib|functools|subprocess|connection|popen_\w+|process|"
    r"_contextlib|c10d_logger|module|_tensor|_jit_internal|eval_frame|external_utils|thread|_base|run|runpy|synchronize)"
    r"\.py$|^<frozen|^$"
)
# Which frame means what. `where` is matched against the file, `what` against the function; both must match.
# The order is the order of precedence for one frame.
_MEANINGS: Final[tuple[tuple[str, str, str], ...]] = (
    ("p2p", r"distributed_c10d\.py$", r"^(i?send|i?recv|batch_isend_irecv)"),
    ("p2p", r"p2p_communication\.py$", r""),
    (
        "p2p",
        r"",
        r"^(pp_|pipeline_|_?p2p_)?(i?recv|i?send)(_forward|_backward|_activation|_gradient|_tensor|_object)*$",
    ),
    ("collective", r"distributed_c10d\.py$", r""),
    ("collective", r"", r"^(gloo::|ncclAllReduce|ncclGroupEnd|c10d::)"),
    (
        "collective",
        r"(^|/)(distributed|functional|_functional_collectives)\.py$",
        r"^(wait|wait_tensor|_wait_all|barrier)",
    ),
    ("backward", r"torch/autograd/", r""),
    ("device", r"", r"(^|\b)(synchronize|cudaStreamSynchronize|cudaDeviceSynchronize|cudaEventSynchronize)\b"),
    ("exception", r"(^|/)(pdb|bdb|traceback|code)\.py$", r""),
    ("exception", r"", r"^(excepthook|_exitfunc|destroy_process_group|abort|post_mortem)$"),
    ("collector", r"", r"^(gc_collect|collect|gc\.collect)$"),
    ("compile", r"(inductor|triton|nvcc|_dynamo|cpp_extension)", r""),
    (
        "checkpoint",
        r"(torch/serialization|checkpoint|safetensors|orbax|torchsnapshot|/dcp/|pickle)\w*(/\w+)*\.py$",
        r"",
    ),
    ("checkpoint", r"", r"(^|_|\.)(save|checkpoint|ckpt|snapshot|consolidate|fsync|state_dict)(_|$|[a-z]*$)"),
    ("checkpoint", r"", r"(save|load)_?(model|state|weights|checkpoint|ckpt)|write_state|checkpoint"),
    (
        "dataloader",
        r"(dataloader|dataset|datasets?|data_?loader|_utils/(fetch|worker|pin_memory)|webdataset|sampler|tokeni[sz]\w+)\.py$",
        r"",
    ),
    (
        "dataloader",
        r"",
        r"(^|[._])(next_batch|get_batch|load_batch|fetch_batch|next_data|_try_get_data|_get_data|__getitem__|collate\w*|prefetch\w*|decode_\w+|read_\w*(shard|sample|record|batch|example)\w*|_read_shard|tokenize\w*)$",
    ),
    ("dataloader", r"", r"(?i)\b(\w*(data_?)?loader|dataset|datapipe|sampler|reader)\.\w+$"),
    (
        "evaluation",
        r"",
        r"(?i)(^|_|\.)(eval|evaluate|evaluation|validate|validation|generate|generate_samples|sample_\w+|inference|benchmark)(_\w+)?$",
    ),
    ("logging", r"(wandb|mlflow|tensorboard|neptune|comet_ml)", r""),
    ("logging", r"", r"(?i)(^|_|\.)(metrics?|log|logger|report|telemetry)(_\w+)?$"),
)
MEANINGS: Final = tuple((name, re.compile(where), re.compile(what)) for name, where, what in _MEANINGS)
# Classes that say "this rank waits for others": the rank is a victim unless something else accuses it.
WAITING: Final = ("p2p", "collective", "backward", "device")
# Plain words for the reports.
WORDS: Final[Mapping[str, str]] = {
    "p2p": "in a send or receive",
    "collective": "in a collective",
    "backward": "in the backward pass",
    "device": "waiting for the device",
    "exception": "on the way out after an exception",
    "collector": "in the garbage collector",
    "compile": "compiling",
    "checkpoint": "in its checkpoint code",
    "dataloader": "in its data loader",
    "evaluation": "in evaluation code",
    "logging": "in its metrics or logging code",
    "user": "in its own code",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where one rank's main thread is."""

    rank: int
    kind: str
    """A class of `WORDS`."""
    frame: str
    """The frame that says so."""
    site: str
    """The innermost frame of the user's own code: the call site."""
    path: tuple[str, ...]
    """The user's own frames, innermost first: how the rank came to that call site."""
    key: tuple[str, ...]
    """Equal keys: equal stacks."""
    state: str
    file: int | None
    line: int | None
    helper: str = ""
    """A frame of another thread that explains the wait, such as the reader behind a data loader."""

    @property
    def waits(self) -> bool:
        """Say whether the rank is inside an operation with others."""
        return self.kind in WAITING

    @property
    def idle(self) -> bool:
        """Say whether the tool found the thread not running."""
        return self.state.startswith("idle")


def _is_library(frame: Frame) -> bool:
    path = frame.file.replace("\\", "/")
    return bool(re.search(r"(^|/)(torch|site-packages|dist-packages|lib/python[\d.]+)/", path)) or bool(
        PLUMBING.search(path)
    )


def _meaning(frame: Frame) -> str | None:
    path = frame.file.replace("\\", "/")
    for name, where, what in MEANINGS:
        if where.search(path) and what.search(frame.function):
            return name
    return None


def classify(frames: Sequence[str]) -> tuple[str, str]:
    """Return the class of a stack (innermost frame first) and the frame that decided."""
    parsed = [parse_frame(text) for text in frames]
    solid = [f for f in parsed if not PLUMBING.search(f.file.replace("\\", "/"))]
    if not solid:
        return "user", str(parsed[0]) if parsed else ""
    first = _meaning(solid[0])
    if first in WAITING:
        return str(first), str(solid[0])
    for frame in solid:
        name = _meaning(frame)
        # Further out, waiting frames only tell who called: the work is what is inside.
        if name and name not in WAITING:
            return name, str(frame)
    if first is None and any(_meaning(f) == "backward" for f in solid):
        return "backward", str(solid[0])
    return "user", str(solid[0])


def call_site(frames: Sequence[str]) -> str:
    """Return the innermost frame that is the user's own code, or the innermost frame."""
    parsed = [parse_frame(text) for text in frames]
    for frame in parsed:
        if not _is_library(frame):
            return str(frame)
    return str(parsed[0]) if parsed else ""


def places(facts: Facts) -> dict[int, Place]:
    """Return where every rank with a stack is. Of several stacks of one rank, the first main thread counts."""
    threads: dict[int, list[Stack]] = defaultdict(list)
    for stack in facts.stacks:
        threads[stack.rank].append(stack)
    return {rank: _place(rank, found) for rank, found in sorted(threads.items())}


def _place(rank: int, found: Sequence[Stack]) -> Place:
    main = next((s for s in found if s.is_main), None) or next(
        (s for s in found if "main" in s.thread.lower()), found[0]
    )
    kind, frame = classify(main.frames)
    helper = ""
    if kind not in WAITING:
        # A thread that works for the main one may be the one that is stuck: name where it is, if it is not at rest.
        for other in found:
            if other is main:
                continue
            inner = next((parse_frame(t) for t in other.frames if not PLUMBING.search(parse_frame(t).file)), None)
            at_rest = bool(other.frames) and PLUMBING.search(parse_frame(other.frames[0]).file)
            if inner and not at_rest and classify(other.frames)[0] == kind:
                helper = str(inner)
                break
    key = tuple(str(parse_frame(text)) for text in main.frames)
    path = tuple(str(f) for text in main.frames if not _is_library(f := parse_frame(text)))
    return Place(rank, kind, frame, call_site(main.frames), path, key, main.state, main.file, main.line, helper)


def by_place(found: Mapping[int, Place]) -> list[tuple[Place, tuple[int, ...]]]:
    """Group ranks whose main threads have equal stacks; smallest groups first: the odd ones out lead."""
    grouped: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, place in found.items():
        grouped[place.key].append(rank)
    ordered = sorted(grouped.values(), key=lambda ranks: (len(ranks), ranks))
    return [(found[ranks[0]], tuple(ranks)) for ranks in ordered]


def odd_ones(found: Mapping[int, Place], ranks: Iterable[int], twins: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """Return those of `ranks` that stand where none of their twins stands, while the others stand with theirs.

    Twins are ranks of the same role (`sequence.twins`). Ranks without twins or stacks do not count.
    """
    odd: list[int] = []
    even = 0
    for rank in ranks:
        mine = found.get(rank)
        others = [found[t] for t in twins.get(rank, ()) if t in found and t != rank]
        if mine is None or not others:
            continue
        if any(o.path == mine.path and o.kind == mine.kind for o in others):
            even += 1
        else:
            odd.append(rank)
    return tuple(odd) if odd and even else ()
