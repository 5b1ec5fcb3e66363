"""Questions asked of the store: who waits for whom, who is to blame, how sure. No formats, no plots.

`diagnose(store) -> Verdict` is the one entry; `report.render` makes text of a verdict and `scoring` compares verdicts
with known truths.
"""

from mycroft.analysis.diagnosis import diagnose

__all__ = ["diagnose"]
