"""What a line format is made of: matchers, the lines they see, and the rows they make.

A format is a module with a visible tuple of matchers. Each names the literals without which it cannot match; the
scanner looks for all literals of all formats in one pass, and only the lines that hold one reach Python. A matcher is
one of two kinds:

* `Matcher`: a compiled `re` pattern that is searched *anywhere* in the line (writers share pipes, so a message may
  start in the middle of another) and a handler that is called for every match.
* `BulkMatcher`: a Rust regular expression with named groups that polars applies to all lines of a batch at once, and
  a handler that gets the frame. For lines that come by the million.

Handlers write rows through the `FileScope` they are given. Times and ranks are taken at the place of the match
(`scope.event(line, at, ...)`), so that the nearest `[rankN]:` before it counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import polars as pl

from mycroft.loaders.text.wrappers import Facts

if TYPE_CHECKING:
    from mycroft.loaders.text.scope import FileScope

RANK_TAG = re.compile(r"\[rank(\d{1,7})\]:")


@dataclass(slots=True)
class Line:
    """One piece of text that may matter.

    `text` is without prefixes, `number` counts the lines of the original file from 1, `facts` is what the prefixes
    said. `wanted` holds the positions of the matchers whose literals it has.
    """

    number: int
    text: str
    facts: Facts
    wanted: tuple[int, ...] = ()
    claimed: bool = False

    def rank_at(self, at: int) -> int | None:
        """Return the global rank of what stands at `at`: of the nearest `[rankN]:` before it, else of the prefix."""
        if at > 0:
            tags = RANK_TAG.findall(self.text, 0, at)
            if tags:
                return int(tags[-1])
        return self.facts.rank


class Block(Protocol):
    """Several lines of one writer that make one fact, such as a traceback."""

    def feed(self, scope: FileScope, line: Line) -> bool:
        """Take the next line of the writer; False: it does not belong to the block, which is over."""
        ...

    def close(self, scope: FileScope) -> None:
        """Write what has been gathered; called once, also when the file ends in the middle."""
        ...


# Returns False when the match is not what it looked like: the line stays unparsed for this matcher.
LineHandler = Callable[["FileScope", Line, "re.Match[str]"], "bool | None"]
BulkHandler = Callable[["FileScope", pl.DataFrame], None]


@dataclass(frozen=True, slots=True)
class Matcher:
    """One shape of line.

    `literals`: at least one of them is in every line of this shape; case counts, four characters or more, and
    without quotes, `<`, `>` and `&`, which containers escape. `follow`: so many further lines are delivered whatever
    they hold, for blocks. `format` is the name under which the file is listed when this shape prevails.
    """

    name: str
    format: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    handler: LineHandler
    follow: int = 0


@dataclass(frozen=True, slots=True)
class BulkMatcher:
    """One shape of line that comes by the million.

    `pattern` is a Rust regular expression (no look-around, no back-references) searched anywhere in the line. The
    handler gets a frame of the lines that match: `line` (UInt32), `text` (the line, prefixes included), `meta` (what
    containers said), and one String column per named group. `literals`: as for `Matcher`.
    """

    name: str
    format: str
    literals: tuple[str, ...]
    pattern: str
    handler: BulkHandler
