"""The loader of every textual format: each file is read once, and all line formats look at it.

A console of a job holds what torch, NCCL, the launcher and the user's own program print, line by line, behind the
prefixes of whatever carried it. So there is one loader for text, `TextLoader`, and the formats are lists of
matchers: `MATCHERS` below is all of them, in the order in which they are tried.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from typing import Final

import polars as pl

from mycroft.loaders import _core
from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport
from mycroft.loaders.text import formats, training
from mycroft.loaders.text.blocks import BlockWriter
from mycroft.loaders.text.bulk import bulk_frame
from mycroft.loaders.text.clock import DAY_NS, Moment, Years, full_dates
from mycroft.loaders.text.lines import REDRAWN, Batch, Bulk, LineReader, chunks, encoding_of, is_text
from mycroft.loaders.text.matcher import BulkMatcher, Line, Matcher
from mycroft.loaders.text.pasted import Piece, looks_broken, rejoined
from mycroft.loaders.text.paths import PathFacts, path_facts
from mycroft.loaders.text.ranks import Part, resolve_ranks
from mycroft.loaders.text.scope import TEXT_LIMIT, FileScope, RowSink
from mycroft.loaders.text.wrappers import BAR, Peeler, first_time, profile_of

# Files up to this size are looked at line by line in Python, as long as the budget lasts: that is what gives rows
# of kind `unparsed` and the last line of every writer of a shared console.
SMALL_BYTES: Final = 256 << 10
SMALL_BUDGET_BYTES: Final = 8 << 20
# Rows of kind `step` of one load, shared out among its files; of one file and batch (4 MiB) so many at least and most.
STEP_ROWS: Final = 80_000
MIN_STEP_ROWS: Final = 60
MAX_STEP_ROWS: Final = 4_000
UNPARSED_ROWS: Final = 2_000
# … and so many of a whole load.
UNPARSED_ROWS_ALL: Final = 20_000
TAIL_BYTES: Final = 64 << 10
# Places in the dimensions of parallelism that are noted of one file.
_MAX_PARTS: Final = 100_000
# Bytes of the first lines of files that are kept while all are looked at, and dates that are kept to the second.
_KEPT_HEADS: Final = 16 << 20
_MOST_DATES: Final = 10_000
# A paste of a terminal is not longer than this.
PASTE_BYTES: Final = 8 << 20

MATCHERS: Final[tuple[Matcher | BulkMatcher, ...]] = formats.MATCHERS


@cache
def _plan() -> _core.LinePlan:
    return _core.LinePlan(
        [
            (list(matcher.literals), 0, True)
            if isinstance(matcher, BulkMatcher)
            else (list(matcher.literals), matcher.follow, False)
            for matcher in MATCHERS
        ]
    )


@cache
def _no_plan() -> _core.LinePlan:
    return _core.LinePlan([])


class TextLoader:
    """Logs and consoles of any kind; see `mycroft.loaders.text` for what its rows mean."""

    name = "text"
    title = "Logs and consoles"
    recognised_by = "text that no other format claims; the formats are told apart line by line"
    yields = "events, group_status, stacks, identity of ranks, the text itself"

    def sniff(self, file: EvidenceFile) -> bool:
        """Say whether the first bytes are text."""
        return is_text(file.head)

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read all files; each gets a report under the name of the format that prevails in it."""
        heads: dict[int, list[str]] = {}
        known: set[int] = set()
        kept = 0
        for file in files:
            lines = _head_lines(file)
            dates = full_dates("\n".join(lines[:100]) + "\n" + file.name)
            # Containers keep the full date of their lines beside the text.
            dates += full_dates(file.head[:8192].decode("utf-8", "replace"))
            # Of very many dates the days tell the year as well.
            known.update(dates if len(known) < _MOST_DATES else (ns - ns % DAY_NS for ns in dates))
            # Those of a million files are made again when it is their turn.
            if (kept := kept + len(file.head)) <= _KEPT_HEADS:
                heads[file.file_id] = lines
        years = Years(known or context.dates())
        paths = {file.file_id: path_facts(file.name) for file in files}
        offsets = _rank_offsets(files, paths, heads)
        blocks = BlockWriter(context)
        sink = RowSink(context)
        step_rows = min(max(STEP_ROWS // max(len(files), 1), MIN_STEP_ROWS), MAX_STEP_ROWS)
        budget = SMALL_BUDGET_BYTES
        left = UNPARSED_ROWS_ALL
        reports: list[LoadReport] = []
        for file in files:
            small = file.size_bytes <= min(SMALL_BYTES, budget)
            budget -= file.size_bytes if small else 0
            lines = heads.pop(file.file_id, None) or _head_lines(file)
            peeler = Peeler(profile_of(lines, years), years)
            scope = FileScope(file, context, peeler, years, sink, step_rows)
            facts = paths[file.file_id]
            scope.rank, scope.local_rank, scope.host = facts.rank, facts.local_rank, facts.host
            if not small:
                # Of a long file only the lines that matter are looked at.
                scope.parts |= _parts_of(lines, peeler)
            if facts.rank is None and facts.local_rank is not None and facts.node is not None:
                offset = offsets.get(facts.node)
                scope.rank = None if offset is None else facts.local_rank + offset
            report = LoadReport(file.file_id, self.name)
            try:
                reading = _FileReading(file, scope, blocks, report, small=small, unparsed_rows=min(UNPARSED_ROWS, left))
                reading.run()
                left -= reading.unparsed_written
            except OSError as error:
                report.problems.append(f"{file.name}: cannot be read: {error.strerror or error}; give it again")
            reports.append(report)
        sink.flush()
        blocks.flush()
        if blocks.skipped and reports:
            reports[-1].problems.append(
                f"the text of {blocks.skipped:,} lines without findings is not kept in the trace; the files have it"
            )
        return reports


def _parts_of(lines: Sequence[str], peeler: Peeler) -> set[Part]:
    """Return what the prefixes of lines say of the dimensions of parallelism."""
    found = (peeler.peel(line)[0] for line in lines if "TP" in line[:160])
    return {(facts.dp, facts.pp, facts.tp) for facts in found if facts.tp is not None}


def _head_lines(file: EvidenceFile) -> list[str]:
    encoding, mark = encoding_of(file.head)
    head = file.head[mark:]
    if encoding != "utf-8":
        head = head.decode(encoding, "replace").encode()
    return _all_lines(head)[:2_000]


# A page of the web turns names of files into links.
_LINK: Final = re.compile(r"\[([^\[\]]{1,200})\]\(https?://[^()\s]{1,300}\)")
_CARRIER_LENGTH: Final = 160


def _is_carrier(text: str) -> bool:
    """Say whether the first piece of a redrawn line may be only a prefix: short, ending in a blank, no progress bar."""
    return text[-1:] in " \t" and len(text) <= _CARRIER_LENGTH and "%" not in text and bool(text.strip())


class _Carrier:
    """Puts what a launcher printed in front of a redrawn line before each piece that was drawn over the others."""

    def __init__(self) -> None:
        self._number = 0
        self._text = ""
        self._seen = 0

    def whole(self, number: int, text: str) -> str | None:
        """Return a piece of a redrawn line with its prefix; None for the piece that is nothing but the prefix."""
        if self._number == number:
            return self._text + text
        # What is drawn later may end in a blank too, where a paste was broken.
        first, self._seen = self._seen != number, number
        if first and _is_carrier(text):
            self._number, self._text = number, text
            return None
        return text


def _all_lines(data: bytes) -> list[str]:
    reader = LineReader(_no_plan(), keep_all=True, keep_blocks=False)
    found: list[str] = []
    carrier = _Carrier()
    for batch in reader.batches(iter((data,))):
        for number, _, flags, text, _, _ in batch.candidates:
            whole = carrier.whole(number, text) if flags & REDRAWN else text
            if whole is not None:
                found.append(_LINK.sub(r"\1", whole) if "](http" in whole else whole)
    return found


_HEAD_RANK: Final = re.compile(r"\[rank(\d{1,7})\]:|\bRANK=(\d{1,7})\b")


def _rank_offsets(
    files: Sequence[EvidenceFile], paths: dict[int, PathFacts], heads: dict[int, list[str]]
) -> dict[str, int]:
    """Return by node what to add to a local rank to get the global one.

    torchrun numbers the ranks of a node without gaps, so one file that names its rank tells for the whole node. When
    no file of any node does and there is one node only, it is taken to be the whole job.
    """
    nodes: dict[str, set[int]] = {}
    for file in files:
        facts = paths[file.file_id]
        if facts.node is None or facts.local_rank is None or facts.rank is not None:
            continue
        found = nodes.setdefault(facts.node, set())
        for line in heads.get(file.file_id) or _head_lines(file):
            match = _HEAD_RANK.search(line)
            if match is not None:
                found.add(int(match[1] or match[2]) - facts.local_rank)
    told = {node: next(iter(found)) for node, found in nodes.items() if len(found) == 1}
    if len(nodes) == 1 and not any(nodes.values()):
        return dict.fromkeys(nodes, 0)
    return told


class _FileReading:
    """One pass over one file."""

    def __init__(
        self,
        file: EvidenceFile,
        scope: FileScope,
        blocks: BlockWriter,
        report: LoadReport,
        *,
        small: bool,
        unparsed_rows: int,
    ) -> None:
        self._file = file
        self._scope = scope
        self._blocks = blocks
        self._report = report
        self._small = small
        self._unparsed_rows = unparsed_rows
        self.unparsed_written = 0
        self._unparsed: list[Line] = []
        self._ends: dict[int, Line] = {}
        self._bulk_lines: set[int] = set()
        self._tail = b""
        self._last_line = 0
        self._carrier = _Carrier()

    def run(self) -> None:
        report = self._report
        encoding, mark = encoding_of(self._file.head)
        if encoding != "utf-8":
            report.problems.append(f"read as {encoding}")
        reader = LineReader(_plan(), keep_all=self._small)
        for batch in reader.batches(chunks(self._file.path, encoding, mark)):
            self._batch(batch)
            self._scope.flush()
        counts = reader.counts
        if self._file.size_bytes <= PASTE_BYTES:
            self._pasted(reader, b"".join(chunks(self._file.path, encoding, mark)))
        self._scope.close_blocks()
        self._finish(counts)

    def _batch(self, batch: Batch) -> None:
        scope = self._scope
        for number, _, flags, text, wanted, meta in batch.candidates:
            self._candidate(number, text, wanted, meta, redrawn=bool(flags & REDRAWN))
        for bulk in batch.bulk:
            self._bulk(bulk)
        scope.event_lines.sort()  # blocks of several lines are written when they end
        for first, lines, content in batch.blocks:
            at = bisect_left(scope.event_lines, first)
            claimed = at < len(scope.event_lines) and scope.event_lines[at] < first + lines
            self._blocks.add(self._file.file_id, first, lines, content, claimed=claimed)
            self._tail = content if len(content) > 512 else self._tail + b"\n" + content
            self._last_line = first + lines - 1
        # Lines arrive in order; those before the last finished block are of no more use.
        del scope.event_lines[: bisect_left(scope.event_lines, self._last_line + 1)]

    def _candidate(self, number: int, text: str, wanted: tuple[int, ...], meta: str, *, redrawn: bool = False) -> None:
        if "](http" in text:
            text = _LINK.sub(r"\1", text)
        whole = self._carrier.whole(number, text) if redrawn else text
        if whole is None:
            return
        text = whole
        facts, rest = self._scope.peeler.peel(text, meta)
        if facts.tp is not None and len(self._scope.parts) < _MAX_PARTS:
            self._scope.parts.add((facts.dp, facts.pp, facts.tp))
        line = Line(number, rest, facts, wanted)
        # A progress bar that was redrawn in between does not end a traceback.
        self._line(line, in_blocks=not (redrawn and BAR.search(rest)))
        if self._small and rest.strip():
            if not line.claimed and len(self._unparsed) <= self._unparsed_rows:
                self._unparsed.append(line)
            if facts.rank is not None:
                self._ends[facts.rank] = line

    def _line(self, line: Line, *, in_blocks: bool = True) -> None:
        scope = self._scope
        in_block = in_blocks and scope.continue_block(line)
        for position in line.wanted:
            matcher = MATCHERS[position]
            # A frame of a stack that is called `collate` is not the program saying what it does.
            if isinstance(matcher, BulkMatcher) or (in_block and matcher.format == training.FORMAT):
                continue
            for match in matcher.pattern.finditer(line.text):
                if matcher.handler(scope, line, match) is not False:
                    scope.claim(line)
                    scope.formats[matcher.format] += 1
        scope.passed(line)

    def _bulk(self, bulk: Bulk, joined: Sequence[Piece] = ()) -> None:
        matcher = MATCHERS[bulk[0]]
        if not isinstance(matcher, BulkMatcher):
            return
        frame = bulk_frame(bulk)
        if joined:
            numbers: list[int] = frame["line"].to_list()
            at = [min(line, len(joined)) - 1 for line in numbers]
            frame = frame.with_columns(
                pl.Series("line", [joined[i].number for i in at], pl.UInt32),
                pl.Series("meta", [joined[i].meta for i in at], pl.String),
            )
        found = frame.with_columns(pl.col("text").str.extract_groups(matcher.pattern).alias("_g")).unnest("_g")
        groups = [name for name in found.columns if name not in ("line", "text", "meta")]
        if not groups:
            return
        found = found.filter(pl.any_horizontal(pl.col(name).is_not_null() for name in groups))
        if found.height:
            self._scope.claimed += found.height
            self._scope.formats[matcher.format] += found.height
            matcher.handler(self._scope, found)
            if self._small:
                self._bulk_lines.update(found["line"].to_list())

    def _pasted(self, reader: LineReader, content: bytes) -> None:
        """Read a hard-wrapped paste again with its lines joined, and keep the reading that found more.

        The numbers stay those of the file.
        """
        if not looks_broken(reader.lengths, content):
            return
        whole = LineReader(_no_plan(), keep_all=True, keep_blocks=False)
        found = [candidate for batch in whole.batches(iter((content,))) for candidate in batch.candidates]
        carrier = _Carrier()
        pieces: list[Piece] = []
        for at, (number, _, flags, text, _, meta) in enumerate(found):
            whole_text = carrier.whole(number, text) if flags & REDRAWN else text
            # Of a line that was redrawn the last piece is what stood there in the end.
            drawn_over = flags & REDRAWN and BAR.search(text) and at + 1 < len(found) and found[at + 1][0] == number
            if whole_text is not None and not drawn_over:
                pieces.append(Piece(number, whole_text, meta))
        self._scope.close_blocks()
        broken = len(pieces)
        for joined in rejoined(pieces, self._scope.peeler):
            self._joined(joined, broken)

    def _joined(self, joined: Sequence[Piece], broken: int) -> None:
        kept = self._scope, self._unparsed, self._ends
        self._scope, self._unparsed, self._ends = self._scope.again(), [], {}
        reader = LineReader(_plan(), keep_all=True, keep_blocks=False)
        text = "\n".join(piece.text for piece in joined).encode("utf-8", "replace")
        for batch in reader.batches(iter((text,))):
            for number, _, _, line, wanted, _ in batch.candidates:
                piece = joined[min(number, len(joined)) - 1]
                self._candidate(piece.number, line, wanted, piece.meta)
            for bulk in batch.bulk:
                self._bulk(bulk, joined)
        self._scope.close_blocks()
        if _telling(self._scope) <= _telling(kept[0]):
            self._scope, self._unparsed, self._ends = kept
            return
        # Every piece of a line that is understood now is understood.
        self._scope.claimed += broken - len(joined)
        problem = "lines were broken at a fixed width and have been joined"
        if problem not in self._report.problems:
            self._report.problems.append(problem)

    def _finish(self, counts: dict[str, int]) -> None:
        scope, report = self._scope, self._report
        if scope.rank is None and scope.local_rank is not None and len(scope.ranks_seen) == 1:
            # A file of one process, and everything in it that names a rank names the same one.
            scope.rank = next(iter(scope.ranks_seen))
        self._log_ends()
        formats.finish(scope)
        resolve_ranks(scope.pending_events(), scope.parts)
        unparsed = max(counts["pieces"] - counts["blank"] - scope.claimed, 0)
        if self._small and len(self._unparsed) <= self._unparsed_rows:
            left = [line for line in self._unparsed if line.number not in self._bulk_lines]
            self.unparsed_written = len(left)
            for line in left:
                scope.event(line, 0, "unparsed", **training.refine(line))
        scope.flush(final=True)
        report.loader = _prevailing(scope)
        report.rank = scope.rank
        report.rows = scope.rows
        if unparsed:
            report.drop("line not understood", unparsed)
        if counts["cut"]:
            report.drop("line longer than 256 KiB, the rest was not read", counts["cut"])
        if counts["nul_bytes"]:
            report.drop("NUL byte", counts["nul_bytes"])

    def _log_ends(self) -> None:
        scope = self._scope
        tail = _all_lines(self._tail[-TAIL_BYTES:])
        if scope.rank is not None or scope.local_rank is not None:
            self._log_end(tail)
            return
        for rank, line in sorted(self._ends.items()):
            scope.event(
                line, 0, "log_end", rank=rank, name="stream", moment=first_time(line.facts, line.text, scope.years)
            )

    def _log_end(self, tail: Sequence[str]) -> None:
        scope = self._scope
        last: str | None = None
        moment: Moment | None = None
        for text in reversed(tail):
            facts, rest = scope.peeler.peel(text)
            if not rest.strip():
                continue
            last = rest if last is None else last
            moment = scope.moment_at(Line(0, rest, facts))
            if moment is not None:
                break
        if last is None:
            return
        line = Line(self._last_line, last[:TEXT_LIMIT], scope.peeler.peel("")[0])
        scope.event(line, 0, "log_end", name="file", moment=moment)
        scope.claimed -= 1


def _telling(scope: FileScope) -> int:
    """Return how many facts other than a program's own words a reading has found."""
    own = ("step", "phase", "identity", "finished", "dump_written", "other")
    return sum(1 for row in scope.pending_events() if row["kind"] not in own)


def _prevailing(scope: FileScope) -> str:
    """Return the format with most lines; a program's own lines count only where nothing else was found."""
    best = [(count, name) for name, count in scope.formats.items() if name != "training_log"]
    if best:
        return max(best)[1]
    return "training_log" if scope.formats else "console"
