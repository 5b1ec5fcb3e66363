"""What training programs print of themselves: steps, phases, identity, the end, dumps written.

Recognised by the habits of common trainers (plain key=value logs, tqdm, Megatron, DeepSpeed, NeMo, Lightning, Hugging
Face, torchtitan, Composer, MMEngine, detectron2), not by their names. Steps come by the million, so they are taken
with polars and thinned in long files: first, last and evenly between, per rank.
"""

from __future__ import annotations

import re
from typing import Any, Final

import polars as pl

from mycroft.loaders.text.matcher import BulkMatcher, Line, Matcher
from mycroft.loaders.text.scope import TEXT_LIMIT, FileScope, Row
from mycroft.loaders.text.torch_log import noise, number, rank_number

FORMAT: Final = "training_log"

# Step rows kept of one batch of lines (4 MiB of text): in the first batches of a file, and later.
_STEPS_LATER: Final = 400
_FIRST_BATCHES: Final = 4

_RANK_WORD: Final = re.compile(
    r"(?:(?<![\w.])(?:global[_ ])?rank[ =:#]{1,2}|(?<=[\[(])rank)(\d{1,7})(?![\d.])", re.IGNORECASE
)


def rank_of(text: str) -> int | None:
    """Return the rank that a program's own line names (`rank=3`, `[rank 3]`, `[rank3]`); None: none, or several."""
    found = set(_RANK_WORD.findall(text))
    return rank_number(found.pop()) if len(found) == 1 else None


def level_of(text: str) -> str | None:
    """Return the severity that stands near the beginning of a line."""
    match = re.search(r"\b(DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b", text[:120])
    if match is None:
        match = re.search(r"\w+(Warning|Error)\b", text[:60])
    if match is None:
        return None
    word = match[1].lower()
    return {"warn": "warning", "critical": "fatal"}.get(word, word)


# -- steps ----------------------------------------------------------------------------------------------------------

_STEP: Final = (
    r"(?i)(?:^|[^\w.])(?:global[_ ]?steps?|train(?:ing)?[_ ]steps?|steps?|iterations?|iters?|batch)"
    r"(?:[ \t]*(?:=|:|#|\[)[ \t]*|[ \t]+)(?P<step>\d{1,12})(?:[ \t]*/[ \t]*(?P<of>\d{1,12}))?(?:[^\w.]|$)"
)
_MMENGINE: Final = r"Epoch\(train\)[ \t]*(?:\[\d+\])?\[[ \t]*(?P<step>\d{1,12})/(?P<of>\d{1,12})\]"
_TQDM: Final = r"(?:^|[| \t])(?P<step>\d{1,12})/(?P<of>\d{1,12}|\?) \[(?:\d+:)?\d+:\d\d<"

_TQDM_OPEN: Final = r"(?:^|[| \t])(?P<step>\d{1,12})it \[(?:\d+:)?\d+:\d\d,"

_NUMBER: Final = r"(\d{1,9}(?:\.\d{1,9})?)"
_MS: Final = (
    r"(?i)(?:^|[\s|,;(])(?:ms|step_ms|iter_ms|time_ms|step_time_ms|step time \(ms\)|elapsed time per iteration \(ms\)"
    r"|time per iteration \(ms\)|iteration-time)[ \t]*[=:][ \t]*" + _NUMBER
)
_MS_PER: Final = _NUMBER + r"[ \t]*ms/(?:it|iter|step|batch)"
_SECONDS: Final = (
    r"(?i)(?:^|[\s|,;(])(?:dt|step_time|iter_time|iteration_time|time_per_step|time_per_iter|train_step_timing in s"
    r"|iter time \(s\)|step time|iteration time|time|took|duration)[ \t]*[=: ][ \t]*"
    + _NUMBER
    + r"[ \t]*(?:s|sec|secs|seconds)?(?:[\s|,;)\]]|$)"
)
_S_PER: Final = _NUMBER + r"[ \t]*s(?:ec)?/(?:it|iter|step|batch)"
_PER_S: Final = _NUMBER + r"[ \t]*(?:it|iters|steps|batches)/s(?:ec)?"


def _dur_ms() -> pl.Expr:
    """Return the duration of one step in ms, where the line has one."""

    def found(pattern: str, scale: float) -> pl.Expr:
        return pl.col("text").str.extract(pattern, 1).cast(pl.Float64, strict=False) * scale

    rate = pl.col("text").str.extract(_PER_S, 1).cast(pl.Float64, strict=False)
    return pl.coalesce(
        found(_MS, 1.0),
        found(_MS_PER, 1.0),
        found(_S_PER, 1_000.0),
        pl.when(rate > 0).then(1_000.0 / rate),
        found(_SECONDS, 1_000.0),
    )


def _thinned(scope: FileScope, frame: pl.DataFrame) -> pl.DataFrame:
    seen: int = scope.memory.get("step_batches", 0)
    scope.memory["step_batches"] = seen + 1
    limit = scope.step_rows if seen < 2 * _FIRST_BATCHES else min(scope.step_rows, _STEPS_LATER)
    if frame.height <= limit:
        return frame
    writer = frame["text"].str.extract(r"(?i)(?:\[rank|\brank[ =:]|\[[a-z_]{1,20})(\d{1,7})", 1).fill_null("")
    keyed = frame.with_columns(writer.alias("_w")).with_columns(
        pl.int_range(pl.len()).over("_w").alias("_i"), pl.len().over("_w").alias("_n")
    )
    stride = (pl.col("_n") * (frame.height / limit) / pl.col("_n")).ceil().cast(pl.Int64)
    kept = keyed.filter((pl.col("_i") % stride == 0) | (pl.col("_i") == pl.col("_n") - 1))
    scope.memory["steps_thinned"] = scope.memory.get("steps_thinned", 0) + frame.height - kept.height
    return kept.drop("_w", "_i", "_n")


def _steps(name: str):
    def handler(scope: FileScope, frame: pl.DataFrame) -> None:
        # `checkpoint step=2 done` names a step that has an own line.
        steps = frame.filter(~pl.col("text").str.contains("(?i)checkpoint|ckpt|evaluat|validat"))
        kept = _thinned(scope, steps).with_columns(_dur_ms().alias("dur_ms"))
        for line_number, text, meta, step, dur_ms in kept.select("line", "text", "meta", "step", "dur_ms").iter_rows():
            facts, rest = scope.peeler.peel(text, meta)
            line = Line(line_number, rest, facts, claimed=True)
            rank = line.facts.rank if line.facts.rank is not None else rank_of(rest)
            columns: Row = {"rank": rank} if rank is not None else {}
            value = number(step)
            scope.event(
                line,
                0,
                "step",
                level="info",
                name=name,
                value=float(value) if value is not None else None,
                dur_ms=dur_ms,
                text=rest[:300],
                **columns,
            )

    return handler


# -- lines that say what a program is at ------------------------------------------------------------------------------

_BEGAN: Final = re.compile(
    r"\b(?:start|begin|saving|writing|loading|running|evaluating|validating|waiting|about to)", re.IGNORECASE
)
_ENDED: Final = re.compile(r"\b(?:done|finished|completed?|saved|written|loaded|ended|success\w*)\b", re.IGNORECASE)
_STEP_WORD: Final = re.compile(r"\b(?:step|iteration|iter|epoch)s?[ =:_#]{0,2}0*(\d{1,12})", re.IGNORECASE)


def _own(scope: FileScope, line: Line, match: re.Match[str], kind: str, **columns: Any) -> Row:
    rank = line.rank_at(match.start())
    if rank is None:
        rank = rank_of(line.text)
    return scope.event(line, match.start(), kind, rank=rank, level=level_of(line.text) or "info", **columns)


def _phase(name: str):
    def handler(scope: FileScope, line: Line, match: re.Match[str]) -> None:
        if not scope.once(("phase", name, line.number, line.facts.key())):
            return
        step = _STEP_WORD.search(line.text)
        ended = _ENDED.search(line.text) is not None
        began = not ended and _BEGAN.search(line.text) is not None
        _own(
            scope,
            line,
            match,
            "phase",
            name=name,
            value=float(step[1]) if step else None,
            code=2 if ended else 1 if began else None,
        )

    return handler


def _waiting(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    rank = line.rank_at(match.start())
    scope.event(
        line,
        match.start(),
        "phase",
        rank=rank,
        level="info",
        name="waiting",
        code=1,
        peer_rank=rank_number(match["peer"]),
    )


def _finished(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    if scope.once(("finished", line.number, line.facts.key())):
        _own(scope, line, match, "finished")


def _dump_written(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    row = _own(scope, line, match, "dump_written")
    named = re.search(r"rank[_-]?(\d{1,7})\b", match.groupdict().get("path") or "")
    if row["rank"] is None and named is not None:
        row["rank"] = rank_number(named[1])


_PAIR: Final = re.compile(
    r"(?<![\w-])(?P<key>global[_ ]rank|world[_ ]rank|local[_ ]rank|world[_ ]size|rank|local|hostname|host"
    r"|node|pid|device|gpu|dp|pp|tp|ep)"
    r"(?:_rank)?(?: ?[=:] ?| )(?P<value>[A-Za-z0-9][\w.:/-]{0,120})",
    re.IGNORECASE,
)
_LEADING_HOST: Final = re.compile(r"(?P<host>[A-Za-z0-9][\w.-]*[\w]): ")
_NO_HOST: Final = frozenset(("info", "warning", "error", "debug", "rank", "is", "for", "to", "of", "at", "on", "the"))


def _digits(text: str) -> str | None:
    """Return the number that a value begins with: `3/8` is 3."""
    match = re.match(r"\d{1,9}", text)
    return match[0] if match is not None else None


def _identity(scope: FileScope, line: Line, match: re.Match[str]) -> bool:
    if "NCCL INFO" in line.text or not scope.once(("identity", line.number, line.facts.key())):
        return False
    pairs: dict[str, str] = {}
    for pair in _PAIR.finditer(line.text[:400]):
        pairs.setdefault(pair["key"].lower().replace(" ", "_"), pair["value"])
    number_of = {key: rank_number(_digits(value)) for key, value in pairs.items()}
    known = (number_of[key] for key in ("global_rank", "world_rank", "rank") if number_of.get(key) is not None)
    rank = next(known, line.facts.rank)
    if rank is None:
        return False
    host = next((pairs[key] for key in ("hostname", "host", "node") if key in pairs), None)
    if host is not None and (host.isdigit() or host.lower() in _NO_HOST):
        host = None
    if host is None:
        leading = _LEADING_HOST.match(line.text)
        if leading is not None and re.search(r"[\d.-]", leading["host"]) and not leading["host"].isdigit():
            host = leading["host"]
    facts: dict[str, int | str | None] = {
        "host": (host or line.facts.host or "").rstrip(":.,") or None,
        "pid": number_of.get("pid"),
        "local_rank": number_of.get("local_rank", number_of.get("local", line.facts.local_rank)),
        **{key: number_of.get(key) for key in ("dp", "pp", "tp", "ep")},
    }
    gpu = pairs.get("device") or pairs.get("gpu")
    told = sum(key in pairs for key in ("pid", "local_rank", "local", "dp", "pp", "tp", "ep"))
    told += (host is not None) + (gpu is not None)
    # The three numbers that every launcher hands to a process, in one line, are an introduction too.
    told += "world_size" in pairs and "local_rank" in pairs
    told += "local_rank" in pairs and ("global_rank" in pairs or "world_rank" in pairs)
    # `rank 3: no answer from host b` names a host as well: one fact is not an introduction.
    if told < 2:
        return False
    scope.know(rank, line, **facts)
    scope.event(
        line,
        match.start(),
        "identity",
        rank=rank,
        level="info",
        host=facts["host"],
        pid=facts["pid"],
        local_rank=facts["local_rank"],
        device=gpu,
    )
    return True


# `mesh_tp = [0, 1, 2, 3]`, `all tp groups: [[0, 1], [2, 3]]`: a name of parallelism and lists of ranks.
_GROUP_LIST: Final = re.compile(
    r"(?P<name>[A-Za-z_][\w-]{0,60})(?: groups?| ranks?| members?)?\s?[=:]\s?"
    r"(?P<lists>\[\s?(?:\[[\d, ]{1,4000}\][, ]{0,3}){1,512}\]|\[[\d, ]{1,4000}\])"
)
_GROUP_NAME: Final = re.compile(
    r"(?:^|[_-])(?:tp|dp|pp|ep|cp|sp|fsdp|ddp|hsdp)\d*(?:$|[_-])|tensor|data_par|pipeline|expert|context_par|world",
    re.IGNORECASE,
)
_MAX_GROUPS: Final = 512


def _groups(scope: FileScope, line: Line, match: re.Match[str]) -> bool:
    """Take the members of groups from a line that lists them."""
    if not scope.once(("groups", line.number, line.facts.key())):
        return True
    told = False
    for listed in list(_GROUP_LIST.finditer(line.text))[:_MAX_GROUPS]:
        name = listed["name"]
        if not _GROUP_NAME.search(name):
            continue
        for digits in re.findall(r"\[([\d, ]{1,4000})\]", listed["lists"])[:_MAX_GROUPS]:
            ranks = [rank_number(number) for number in re.findall(r"\d{1,7}", digits)]
            members = [rank for rank in ranks if rank is not None]
            # Members are listed in ascending order; sizes and shapes of a mesh rarely are, and one rank is no group.
            if len(members) >= 2 and members == sorted(set(members)):
                scope.list_group(name, members)
                told = True
    return told


def finish(scope: FileScope) -> None:
    """Forget what only the steps of one file needed."""
    scope.memory.pop("step_batches", None)


def refine(line: Line) -> Row:
    """Return what can be said of a line that nothing understood: its rank and severity."""
    columns: Row = {"text": line.text[:TEXT_LIMIT], "level": level_of(line.text)}
    if line.facts.rank is None:
        rank = rank_of(line.text)
        if rank is not None:
            columns["rank"] = rank
    return columns


MATCHERS: Final[tuple[Matcher | BulkMatcher, ...]] = (
    BulkMatcher("step", FORMAT, ("step", "Step", "STEP", "iter", "Iter", "[batch="), _STEP, _steps("step")),
    BulkMatcher("mmengine", FORMAT, ("Epoch(train)",), _MMENGINE, _steps("step")),
    BulkMatcher("progress_open", FORMAT, ("it [",), _TQDM_OPEN, _steps("progress")),
    BulkMatcher("progress", FORMAT, ("it/s", "s/it", "/it]"), _TQDM, _steps("progress")),
    Matcher(
        "identity",
        FORMAT,
        (
            "pid=",
            "pid ",
            "pid:",
            "host=",
            "host ",
            "host:",
            "hostname",
            "node=",
            "local_rank",
            "local rank",
            "LOCAL_RANK",
            "Local rank",
        ),
        re.compile(r"(?i)(?<![\w-])(?:(?:global|world)[_ ])?rank(?![\w-]*s)"),
        _identity,
    ),
    Matcher("groups", FORMAT, ("groups", "Groups", "group "), re.compile(r"\b[Gg]roups?\b.{0,200}\["), _groups),
    Matcher(
        "dump_written",
        FORMAT,
        ("ecorder dump", "debug info to ", "ecorder debug info", "nccl_trace_rank_"),
        re.compile(
            r"(?i)flight[ -]?recorder dump (?:was )?written|(?:finished )?(?:writing|dumping|wrote|dumped) .{0,60}?"
            r"(?:debug info|flight[ -]?recorder).{0,30}? to (?P<path>\S+)"
        ),
        _dump_written,
    ),
    Matcher(
        "waiting",
        FORMAT,
        ("aiting for rank",),
        re.compile(r"(?i)waiting for rank[ =#]?(?P<peer>\d{1,7})"),
        _waiting,
    ),
    Matcher(
        "checkpoint",
        FORMAT,
        ("heckpoint", "CHECKPOINT", "ckpt", "tate_dict", "aving model", "aving state"),
        re.compile(
            r"(?i)\b(?:sav(?:e|ing|ed)|writ(?:e|ing|ten)|load(?:ing|ed)?|restor(?:e|ing|ed)"
            r"|consolidat\w+|upload\w*|gather\w*)\b"
            r".{0,80}?(?:checkpoint|ckpt|state[_ ]?dict|model\b|state\b)"
            r"|\b(?:checkpoint|ckpt)\w*\b.{0,80}?\b(?:sav|writ|load|done|finish|start|complet|upload|begin)\w*"
        ),
        _phase("checkpoint"),
    ),
    Matcher(
        "evaluation",
        FORMAT,
        ("valuati", "valuating", "alidati", "sampling", "Sampling", "sample", "running eval", "Running eval"),
        re.compile(
            r"(?i)\b(?:evaluat(?:ion|ing)|validat(?:ion|ing)|running eval|sampling"
            r"|(?:writing|generating|rendering) samples?\b"
            r"|(?:writing|generating|rendering) sample \w+)"
        ),
        _phase("evaluation"),
    ),
    Matcher(
        "dataloader",
        FORMAT,
        (
            "etrying read",
            "ata loader",
            "ataLoader",
            "ataloader",
            "shard",
            "aiting for data",
            "aiting for batch",
            "collate",
            "dataset",
        ),
        re.compile(
            r"(?i)retrying (?:read|download|fetch)|\bdata ?loader\b(?!_)"
            r"|shard.{0,80}?(?:retry|slow|fail|timeout|stall|missing)"
            r"|waiting for (?:the )?(?:next )?(?:data|batch|sample)|\bcollate\b|\[dataset\]|slow (?:read|data|batch)"
        ),
        _phase("dataloader"),
    ),
    Matcher(
        "compile",
        FORMAT,
        ("torch.compile", "ompiling "),
        re.compile(r"(?i)torch\.compile\b|\bcompiling (?:model|graph|kernel|triton)"),
        _phase("compile"),
    ),
    Matcher(
        "finished",
        FORMAT,
        ("raining", "all done", "All done", "Trainer.fit"),
        re.compile(
            r"(?i)\btraining (?:run |job |loop )?(?:is |was |has )?(?:now )?(?:done|finished|complete[d]?|ended)\b"
            r"(?! (?:step|epoch|iter))"
            r"|\b(?:finished|completed|done) training\b(?! (?:step|epoch|batch|iter))"
            r"|`?Trainer\.fit`? stopped|^\W*all done\b"
        ),
        _finished,
    ),
    Matcher(
        "torch_info",
        FORMAT,
        ("[c10d]", "[c10d - ", "reducer.cpp:", "logger.cpp:"),
        re.compile(r"\[[IVW](?:\d{3,4} [\d:.]+)? ?(?:TCPStore\w*|socket|reducer|logger|Utils|debug)\.\w+:\d+\]"),
        noise,
    ),
)
