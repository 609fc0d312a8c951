"""Segments: for whom a decision is, what is best for each segment, and which attributes matter.

Only a policy that takes a context has segments. A segment's key is its context as JSON (`kofn.core.contexts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kofn.campaigns.records.rows import PolicySnapshot
from kofn.campaigns.records.transaction import Transaction
from kofn.core import BadInput, Subset
from kofn.core.contexts import context_of, key_of, words_of
from kofn.core.responses import AttributeReport, SegmentReport, Segments


def segment_of(tx: Transaction, context: Mapping[str, Any] | None) -> str | None:
    """Return the key of the segment that a context belongs to, or raise BadInput; None if there are no segments."""
    if context is None and not tx.row.takes_context:
        return None
    return tx.snapshot.policy.segment(context)


def best_of_segments(snapshot: PolicySnapshot) -> dict[str, Subset]:
    """Return the best subset of each segment that the policy has learned about, as arm numbers; most plays first."""
    if not snapshot.policy.takes_context:
        return {}
    policy: Any = snapshot.policy
    return {key: best_of_segment(snapshot, key) for key in policy.segments}


def best_of_segment(snapshot: PolicySnapshot, segment: str) -> Subset:
    """Return what the policy expects to be the best subset of a segment, as arm numbers; it may be a new segment."""
    policy: Any = snapshot.policy
    return snapshot.roster.to_numbers(policy.best(context_of(segment)))


def segments(tx: Transaction) -> Segments:
    """Return what the policy knew about each segment and each attribute at its last update."""
    policy = tx.snapshot.policy
    if not policy.takes_context:
        raise BadInput(f"{policy.name} does not take a context, so it has no segments; use contextual-thompson")
    roster, options = tx.roster, tx.options
    of_segments, of_attributes = tx.snapshot.known_of_segments
    found = []
    for each in of_segments:
        key, known = key_of(each.context), each.insight
        found.append(
            SegmentReport(
                context=dict(each.context),
                words=words_of(key),
                plays=each.plays,
                share=each.share,
                best=roster.names_of(roster.to_numbers(each.best)),
                value=known.value if known else None,
                low=known.low if known else None,
                high=known.high if known else None,
                probability_best=known.probability_best if known else None,
                expected_loss=known.expected_loss if known else None,
                loss_high=known.loss_high if known else None,
                shipped=roster.names_of(options.shipped_for(key)) if tx.row.state == "shipped" else None,
            )
        )
    attributes = [
        AttributeReport(each.attribute, list(each.values), each.probability, each.gain) for each in of_attributes
    ]
    return Segments(found, attributes)
