"""The sample-ratio check: whether control gets its share of the plays, valid at any time.

The number of control plays is binomial if every play goes to control with the intended probability. The evidence
against it is a likelihood ratio: a share drawn from a beta distribution around the intended one, against the intended
one (Lindon and Malek, *Anytime-valid inference for multinomial count data*, NeurIPS 2022).
"""

from __future__ import annotations

import math

from scipy.special import betaln

from kofn.core import BadInput, whole
from kofn.core.responses import SampleRatio

ALPHA = 0.001
"""Probability of ever rejecting a share that is right. Lower: a wrong share is found later."""

CONCENTRATION = 1000.0
"""Plays that the beta distribution of wrong shares counts for. Higher: finds small deviations earlier, and large ones
later. 1,000 means deviations of 1 in 100 plays for a share of 10 %, and of 1.6 for one of 50 %."""

LARGEST = 300.0
"""Largest decimal logarithm of the evidence, so that it is a finite number."""


def sample_ratio(learned: int, control: int, share: float) -> SampleRatio:
    """Return whether `control` of all plays agree with the intended share, however often one looks.

    >>> sample_ratio(90_210, 9_790, share=0.1).rejected
    False
    >>> sample_ratio(91_000, 9_000, share=0.1).rejected
    True
    """
    learned, control = whole("learned", learned, least=0), whole("control", control, least=0)
    if not 0 < share < 1:
        raise BadInput(f"share must be between 0 and 1, such as 0.1; got {share!r}")
    a, b, plays = CONCENTRATION * share, CONCENTRATION * (1 - share), learned + control
    log = (
        float(betaln(a + control, b + learned) - betaln(a, b))
        - control * math.log(share)
        - learned * math.log1p(-share)
    )
    evidence = 10 ** min(max(log / math.log(10), -LARGEST), LARGEST)
    p_value = min(1.0, 1 / evidence)
    return SampleRatio(share, control / plays if plays else None, evidence, p_value, rejected=p_value < ALPHA)
