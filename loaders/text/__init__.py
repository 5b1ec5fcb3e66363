"""Text evidence: consoles and logs, whatever they were wrapped in.

How it works
    `reader.TextLoader` reads every text file once. `_core.LineScanner` splits it into lines, undoes containers (JSON
    records, CRI) and escape sequences, and hands out the lines that hold one of the literals of any format.
    `wrappers.Peeler` takes the prefixes off (see there). Then every matcher whose literal is in the line is searched
    in what is left, anywhere in it, since writers share pipes.

How to add a line format
    A module with a visible tuple `MATCHERS` of `matcher.Matcher` (a handler per line) or `matcher.BulkMatcher` (a
    handler per frame, for lines that come by the million), added to `formats.MATCHERS`; an optional `finish(scope)`
    called at the end of each file goes into `formats.finish`. Handlers write through `scope.FileScope`: `event`
    (a row of `events`), `status` (`group_status`), `stack` (`stacks`), `know` (facts of a rank), `open` (a block of
    several lines of the same writer), `once` (repeated messages), `claim` (understood, nothing to keep).

Name of a file's format (`files.loader`, `evidence.formats`)
    The format with the most lines in it: `torch_log`, `launcher_log`, `nccl_log`, …; `training_log` where only the
    program's own lines were recognised; `console` where nothing was.

What the columns of `events` mean for rows from text is in `docs/events.md`.
"""

from mycroft.loaders.text.matcher import BulkMatcher, Line, Matcher
from mycroft.loaders.text.reader import TextLoader
from mycroft.loaders.text.scope import FileScope

__all__ = ["BulkMatcher", "FileScope", "Line", "Matcher", "TextLoader"]
