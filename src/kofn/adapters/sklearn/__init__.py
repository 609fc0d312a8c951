"""For scikit-learn: choose K features, or K models of an ensemble, within a number of fits.

`features.py` selects features, `ensembles.py` selects models, and `searching.py` has what both share.
"""

from kofn.core import MissingExtra

try:
    from kofn.adapters.sklearn.ensembles import EnsembleSelector
    from kofn.adapters.sklearn.features import SubsetSelector
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "sklearn":
        raise
    raise MissingExtra("scikit-learn", "sklearn") from missing

__all__ = ["EnsembleSelector", "SubsetSelector"]
