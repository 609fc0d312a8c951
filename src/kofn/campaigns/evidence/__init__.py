"""What rewards prove: the lift over a control, the sample ratio, and when to stop. Valid however often one looks.

docs/background/evidence.md has the method on one page, and how often it errs in simulations.
"""

from kofn.campaigns.evidence.lift import lift
from kofn.campaigns.evidence.ratio import sample_ratio
from kofn.campaigns.evidence.stop_rule import Look, Stop
from kofn.campaigns.evidence.sums import Sums
from kofn.core.responses import Lift, MeanEstimate, SampleRatio

__all__ = ["Lift", "Look", "MeanEstimate", "SampleRatio", "Stop", "Sums", "lift", "sample_ratio"]
