"""The columns that a model reads."""

from __future__ import annotations

from jaxseq.tagger import CRFTagger
from jaxseq.text import TemplateExtractor


def columns_of_model(tagger: CRFTagger, path: str) -> tuple[str, ...]:
    """Names of the columns that the templates of a trained tagger read.

    Args:
        tagger: a trained tagger.
        path: the folder it is from, for messages.

    Raises:
        ValueError: for a tagger without templates, which the command line cannot feed.
    """
    if not isinstance(tagger.extractor_, TemplateExtractor):
        raise ValueError(
            f"{path}: expected a model with templates, found one whose features are made by its "
            "user's program"
        )
    return tagger.extractor_.templates.columns
