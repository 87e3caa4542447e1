"""The GENETAG corpus of gene and protein names (BioCreative I, task 1A)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from jaxseq.text._open import iter_lines
from jaxseq.text._sentence import Sentence, sentence_of

UNKNOWN_POS = "_"
_GENE_TAGS = ("NEWGENE", "NEWGENE1")
# The bar before the text is missing on one line of the corpus.
_MENTION = re.compile(r"@@([^|\s]+)\|(\d+) (\d+)\|?(.*)")

Mentions = dict[str, list[tuple[int, int]]]


def read_genetag(
    path: str | os.PathLike[str],
    *,
    gold: str | os.PathLike[str] | None = None,
    encoding: str = "utf-8",
) -> list[Sentence]:
    """Read sentences of the GENETAG corpus, a line each: ``@@id word/TAG word/TAG …``.

    A token is split at its last slash. The tag is a part of speech, or NEWGENE in its place for a
    token of a gene's name; names that touch alternate between NEWGENE and NEWGENE1. The part of
    speech of such tokens is not known, and is given as ``_``.

    The tags do not hold all names of the list ``Gold.format`` that comes with them (train: 8,881
    of 8,935, test: 2,986 of 2,987): where names are joined by a slash or a bracket, or stand last
    in the sentence, the tags hold one longer or shorter name, in 51 sentences and in 1. With
    `gold` the labels come from that list instead. Of names that overlap (the list has one such
    pair, ``SF2`` and ``SF2 splicing``) only the longer can be labelled, so that 8,934 are.

    Args:
        path: ``TAGGED_GENE_CORPUS``.
        gold: ``Gold.format`` of the same sentences, to label by; None labels by the tags.
        encoding: of the text.

    Returns:
        Sentences with the columns "word", "pos" and "label" (``B-GENE``, ``I-GENE``, ``O``),
        whose name is the id, without ``@@``.

    Raises:
        ValueError: with the file and the line, for a line that is not as above, an id that comes
            twice, and a mention that is not in the sentences.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "tagged")
        >>> with open(path, "w") as file:
        ...     _ = file.write("@@7 The/DT SNF1/NEWGENE PKA/NEWGENE1 gene/NEWGENE1 and/or/CC\\n")
        >>> sentence = read_genetag(path)[0]
        >>> sentence.name, sentence["word"][-1], sentence["pos"]
        ('7', 'and/or', ('DT', '_', '_', '_', 'CC'))
        >>> sentence["label"]
        ('O', 'B-GENE', 'B-GENE', 'I-GENE', 'O')
        >>> folder.cleanup()

    Reference:
        Tanabe, Xie, Thom, Matten & Wilbur (2005), "GENETAG: a tagged corpus for gene/protein
        named entity recognition".
    """
    place = os.fspath(path)
    sentences: dict[str, Sentence] = {}
    for number, line in enumerate(iter_lines(path, encoding), 1):
        if line.strip():
            sentence = _sentence(f"{place}:{number}", line.split())
            if str(sentence.name) in sentences:
                raise ValueError(f"{place}:{number}: expected ids once, found @@{sentence.name}")
            sentences[str(sentence.name)] = sentence
    if gold is not None:
        return _labelled_by_list(sentences, gold, encoding)
    return list(sentences.values())


def read_genetag_mentions(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> Mentions:
    """Read the list of names that comes with GENETAG: ``@@id|first last|text`` lines.

    The numbers count the tokens of the sentence from 0; the last belongs to the name. Such files
    are ``Gold.format`` and ``Correct.Data``, the alternatives that are also right. The text is
    not used: in a few lines it differs from that of the sentence.

    Args:
        path: the file.
        encoding: of the text.

    Returns:
        id, without ``@@`` → (start, stop) of its names in the order of the file; the last token is
        stop − 1. Names may overlap.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "Gold.format")
        >>> with open(path, "w") as file:
        ...     _ = file.write("@@7|1 1|SNF1\\n@@7|2 3|PKA gene\\n")
        >>> read_genetag_mentions(path)
        {'7': [(1, 2), (2, 4)]}
        >>> folder.cleanup()
    """
    mentions: Mentions = {}
    for _, name, start, stop in _numbered_mentions(path, encoding):
        mentions.setdefault(name, []).append((start, stop))
    return mentions


def _sentence(place: str, cells: Sequence[str]) -> Sentence:
    name, tokens = cells[0], cells[1:]
    if not name.startswith("@@") or len(name) == 2:
        raise ValueError(f"{place}: expected a line that begins with @@id, found {name!r}")
    words, tags = [], []
    for token in tokens:
        word, _, tag = token.rpartition("/")
        if not word or not tag:
            raise ValueError(f"{place}: expected word/TAG, found {token!r}")
        words.append(word)
        tags.append(tag)
    labels, before = [], ""
    for tag in tags:
        labels.append("O" if tag not in _GENE_TAGS else f"{'I' if tag == before else 'B'}-GENE")
        before = tag
    pos = [UNKNOWN_POS if tag in _GENE_TAGS else tag for tag in tags]
    columns = {"word": tuple(words), "pos": tuple(pos), "label": tuple(labels)}
    return sentence_of(columns, name.removeprefix("@@"))


def _numbered_mentions(
    path: str | os.PathLike[str], encoding: str
) -> list[tuple[int, str, int, int]]:
    """(line, id, start, stop) of each name of a list."""
    found = []
    for number, line in enumerate(iter_lines(path, encoding), 1):
        if not line.strip():
            continue
        match = _MENTION.fullmatch(line)
        if match is None or int(match[2]) > int(match[3]):
            place = f"{os.fspath(path)}:{number}"
            raise ValueError(f"{place}: expected '@@id|first last|text', found {line!r}")
        found.append((number, match[1], int(match[2]), int(match[3]) + 1))
    return found


def _labelled_by_list(
    sentences: Mapping[str, Sentence], gold: str | os.PathLike[str], encoding: str
) -> list[Sentence]:
    """The sentences with the labels of a list; of names that overlap, the longest."""
    labels = {name: ["O"] * len(sentence) for name, sentence in sentences.items()}
    mentions = _numbered_mentions(gold, encoding)
    for number, name, start, stop in sorted(mentions, key=lambda m: m[2] - m[3]):
        if name not in labels:
            raise ValueError(f"{os.fspath(gold)}:{number}: expected a known id, found @@{name}")
        tags = labels[name]
        if stop > len(tags):
            raise ValueError(
                f"{os.fspath(gold)}:{number}: expected tokens 0 to {len(tags) - 1} of @@{name}, "
                f"found {stop - 1}"
            )
        if set(tags[start:stop]) == {"O"}:
            tags[start:stop] = ["B-GENE"] + ["I-GENE"] * (stop - start - 1)
    return [
        sentence_of({"word": old["word"], "pos": old["pos"], "label": tuple(labels[name])}, name)
        for name, old in sentences.items()
    ]
