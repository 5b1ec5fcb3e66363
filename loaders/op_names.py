"""The many spellings of an operation, and the one word that we use for it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from mycroft.tracer.names import DTYPES

# The first fragment that a spelling contains decides, so longer names stand before the names they contain.
_FRAGMENTS: Final = (
    ("allreduce", "all_reduce"),
    ("reducescatter", "reduce_scatter"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("bcast", "broadcast"),
    ("barrier", "barrier"),
    ("sendrecv", "coalesced"),
    ("recv", "recv"),
    ("send", "send"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("coalesced", "coalesced"),
)
_NOISE: Final = re.compile(r"[^a-z]")
_PREFIX: Final = re.compile(r"^(?:nccl:|c10d::|gloo:|nccl(?:dev)?kernel_?(?:gen_)?)")


@lru_cache(maxsize=4096)
def op_kind(name: str) -> str:
    """Return the word of `schema.OP_KINDS` for a spelling of torch, NCCL, a profiler or a benchmark.

    `ALLREDUCE_COALESCED`, `nccl:all_reduce`, `AllReduce` and `ncclDevKernel_AllReduce_Sum_f32_RING_LL` are all
    `all_reduce`; what is not known is `other`, an operation that only groups others is `coalesced`.
    """
    word = _NOISE.sub("", _PREFIX.sub("", name[:200].lower()))
    for fragment, kind in _FRAGMENTS:
        if fragment in word:
            return kind
    return "other"


# NCCL's ncclDataType_t in order of its numbers, as COLL lines and profilers write it.
NCCL_DTYPES: Final = DTYPES
NCCL_REDUCTIONS: Final = ("sum", "prod", "max", "min", "avg")
_DTYPE_BYTES: Final = {
    "int8": 1,
    "uint8": 1,
    "char": 1,
    "signed char": 1,
    "unsigned char": 1,
    "byte": 1,
    "bool": 1,
    "int32": 4,
    "uint32": 4,
    "int": 4,
    "int64": 8,
    "uint64": 8,
    "long": 8,
    "float16": 2,
    "half": 2,
    "fp16": 2,
    "bfloat16": 2,
    "bf16": 2,
    "float32": 4,
    "float": 4,
    "fp32": 4,
    "float64": 8,
    "double": 8,
    "fp64": 8,
    "float8_e4m3": 1,
    "float8_e5m2": 1,
}


def dtype_bytes(dtype: str | None) -> int | None:
    """Return the size of one element in bytes; None for a dtype that we do not know."""
    if not dtype:
        return None
    word = dtype.lower().removeprefix("c10::").removeprefix("torch.").removeprefix("nccl")
    return _DTYPE_BYTES.get(word)
