"""The columns that a model reads."""

from __future__ import annotations

from jaxseq.tagger import CRFTagger, HMMTagger
from jaxseq.text import TemplateExtractor


def columns_of_model(tagger: CRFTagger | HMMTagger, path: str) -> tuple[str, ...]:
    """Names of the columns that a trained tagger reads: those of its templates, or its own.

    Args:
        tagger: a trained tagger.
        path: the folder it is from, for messages.

    Raises:
        ValueError: for a CRF without templates, which the command line cannot feed.
    """
    if isinstance(tagger, HMMTagger):
        return (tagger.column,)
    if not isinstance(tagger.extractor_, TemplateExtractor):
        raise ValueError(
            f"{path}: expected a model with templates, found one whose features are made by its "
            "user's program"
        )
    return tagger.extractor_.templates.columns
