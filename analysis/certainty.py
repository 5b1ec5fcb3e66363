"""How sure a finding over flows is: a product of terms, each in (0, 1], all of them said.

A term that is below 1 is a reason for doubt. A tie is never more than medium, whatever the number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mycroft.analysis.verdict import Confidence

HIGH: Final = 0.8
MEDIUM: Final = 0.5
# What a missing half of the evidence leaves (section 10 of the design).
SEND_ONLY: Final = 0.7
OP_LEVEL_ABSENT: Final = 0.95
OP_LEVEL_DEVICE: Final = 0.6
ACCUSED_SILENT: Final = 0.8
NEVER_HEARD: Final = 0.6
# Rows of a collector: rules take a rank that is silent for one that is gone, and so is one whose agent was stopped.
UNHEARD: Final = 0.4
# ... but that an agent alone falls silent at the very moment at which the job stops is a rare coincidence.
UNHEARD_SINCE: Final = 0.75
UNHEARD_SINCE_NS: Final = 3_000_000_000
AGREES: Final = 1.2
CONTRADICTS: Final = 0.5
# A link that loses the receiver's word of what it posted leaves a sender that has data and does not send.
LOST_CREDIT: Final = 0.7
LOST_CREDIT_WORDS: Final = "a link that loses what the receiver says of its buffers looks the same"


@dataclass(slots=True)
class Certainty:
    """Terms in the order in which they were found."""

    terms: list[tuple[str, float, str]] = field(default_factory=lambda: list[tuple[str, float, str]]())

    def add(self, name: str, value: float, words: str) -> None:
        """Add a term; `words` say what it is about, for or against."""
        self.terms.append((name, max(value, 0.0), words))

    @property
    def value(self) -> float:
        """The product, at most 1."""
        product = 1.0
        for _, value, _ in self.terms:
            product *= value
        return round(min(1.0, product), 3)

    def word(self, *, one_of: bool = False) -> Confidence:
        """Return the word for the number."""
        if self.value >= HIGH and not one_of:
            return "high"
        return "medium" if self.value >= MEDIUM else "low"

    def told(self) -> tuple[str, ...]:
        """Return the doubts with their numbers, then what leaves none, and the product of all."""
        doubts = [f"{words} ({name} {value:.2f})" for name, value, words in self.terms if value != 1.0]
        clear = [f"{words} ({name})" for name, value, words in self.terms if value == 1.0]
        return (*doubts, *(["; ".join(clear)] if clear else []), f"in numbers {self.value:.2f} of 1")
