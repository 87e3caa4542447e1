"""The benchmark of the defaults: which sentences it draws, and the features it compares with."""

import json
import re

import pytest

from experiments.bench import defaults
from experiments.bench._report import Report
from experiments.data import Data, Source
from jaxseq.text import TemplateExtractor


@pytest.mark.parametrize("name", defaults.COLUMNS)
def test_models_are_scored_on_sentences_that_are_never_drawn(name, monkeypatch):
    monkeypatch.setattr(defaults, "HELD_OUT", 30)
    pool, held_out = defaults.read_parts(Data({name: Source(name)}), name)
    assert len(held_out.sentences) == len(held_out.labels) == 30
    assert pool.sentences[0].columns == defaults.COLUMNS[name]
    drawn = list(defaults.draws(pool, 50))
    assert [len(one.sentences) for one in drawn] == [50] * defaults.DRAWS
    assert len({tuple(map(id, one.sentences)) for one in drawn}) == defaults.DRAWS
    assert not {id(s) for one in drawn for s in one.sentences} & set(map(id, held_out.sentences))


def test_the_tutorial_has_its_features():
    """Those of the token and of its neighbours, as the tutorial computes them."""
    words, pos = ["The", "IBM", "PC", "of", "Mr.", "1984"], ["DT", "NNP", "NNP", "IN", "NNP", "CD"]
    extractor = TemplateExtractor(defaults.tutorial_templates(("word", "pos")))
    ids = extractor.fit_transform([{"word": words, "pos": pos}]).ids
    names = extractor.attribute_names()
    rows = [{names[number] for number in row if number >= 0} for row in ids.tolist()]
    for here, (word, row) in enumerate(zip(words, rows)):
        flags = {name for name in row if name.startswith(("is_", "match")) and "[0]" in name}
        assert len(flags) == word.isupper() + word.istitle() + word.isdigit()
        assert f"lower(word[0])={word.lower()}" in row
        assert f"prefix(pos[0], 2)={pos[here][:2]}" in row
        if len(word) >= 3:
            assert f"suffix(word[0], 3)={word[-3:]}" in row
        if here:
            assert f"lower(word[-1])={words[here - 1].lower()}" in row


@pytest.mark.parametrize(
    "word", ["The", "IBM", "Mr.", "McDonald", "of", "1984", "U.S.", "B-52", "O'Neil", "a-B", "A"]
)
def test_titles_are_those_of_python(word):
    assert (re.fullmatch(defaults.TITLE.strip('"'), word) is not None) == word.istitle()


@pytest.mark.parametrize("folder", [None, "nowhere"])
def test_without_corpora_it_fails_its_bar(folder, monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("JAXSEQ_DATA", raising=False)
    if folder is not None:
        monkeypatch.setenv("JAXSEQ_DATA", str(tmp_path / folder))
    report = Report("defaults")
    defaults.run(report, tmp_path)
    assert not report.held
    assert json.loads(capsys.readouterr().out)["value"] is None
