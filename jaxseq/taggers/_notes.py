"""Long jobs made of many trainings: what is done so far, and estimators to train anew."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from jaxseq._io import Fingerprint, SearchStore


class Notes:
    """A `SearchStore` of JSON values alone.

    Args:
        path: the file, or None to keep nothing.
        job: everything that the results depend on; `load` refuses the notes of another job.
    """

    def __init__(self, path: str | os.PathLike[str] | None, job: Iterable[Any]):
        self._store = SearchStore(path, lambda: Fingerprint(*job))

    def load(self) -> Any:
        """The value of the last `save`; None where there is none."""
        saved = self._store.load()
        return None if saved is None else saved.notes

    def save(self, value: Any) -> None:
        """Replace the notes."""
        self._store.save(value)

    def remove(self) -> None:
        """The job is done."""
        self._store.remove()


QUIET = {"progress": False, "checkpoint": None}
"""Parameters that do not bear on the result, and the values that show and keep nothing."""


def fresh(estimator: Any) -> Any:
    """An untrained copy that shows and keeps nothing of its own."""
    from sklearn.base import clone  # slow to import, and not needed to define models

    copy: Any = clone(estimator)
    names = copy.get_params(deep=False)
    return copy.set_params(**{name: value for name, value in QUIET.items() if name in names})


def settings_of(estimator: Any) -> dict[str, Any]:
    """The class and its parameters, without those that do not bear on the result."""
    settings = estimator.get_params(deep=False)
    settings = {name: value for name, value in settings.items() if name not in QUIET}
    return {"class": type(estimator).__name__, **settings}
