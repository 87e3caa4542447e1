"""Numbers of attributes: the same in every run, and as many as known on a real corpus."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxseq.text import CONLL2000, TemplateExtractor, Templates

SCRIPT = """
import hashlib, json
from jaxseq.text import DictExtractor, TemplateExtractor
words = [f"w{i * i % 31}" for i in range(100)]
digest = hashlib.sha256()
templates, dicts = TemplateExtractor(["word[0]", "word[-1]|word[0]"]), DictExtractor()
sets = [[{"s": set(words[i : i + 9])} for i in range(40)], [set(words)]]
for extractor, corpus in ((templates, [words]), (dicts, sets)):
    digest.update(extractor.fit_transform(corpus).ids.tobytes())
    meta, arrays = extractor.state()
    digest.update(json.dumps(meta).encode())
    for name, array in arrays.items():
        digest.update(name.encode() + array.tobytes())
print(digest.hexdigest(), list({"a", "b", "c", "d", "e"}))
"""


def test_numbers_do_not_depend_on_the_seed_of_hashes():
    """Two seeds that order the same set differently, so that they are known to have worked."""
    root = Path(__file__).parents[2]
    outputs = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        env["PYTHONPATH"] = os.pathsep.join([str(root), env.get("PYTHONPATH", "")])
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
        outputs.append(done.stdout.split(" ", 1))
    (digest, order), (other_digest, other_order) = outputs
    assert order != other_order
    assert digest == other_digest


# --------------------------------------------------------------------------------- real data


@pytest.fixture(scope="module")
def conll2000():
    folder = os.environ.get("JAXSEQ_DATA")
    if not folder:
        pytest.skip("JAXSEQ_DATA (the folder of the corpora) is not set")

    def read(name):
        blocks = (Path(folder) / "conll2000" / name).read_text().strip().split("\n\n")
        rows = [[line.split(" ") for line in block.split("\n")] for block in blocks]
        return [{"word": [r[0] for r in s], "pos": [r[1] for r in s]} for s in rows]

    return read("train.txt"), read("test.txt")


def test_conll2000_has_its_known_number_of_attributes(conll2000):
    train, test = conll2000
    extractor = TemplateExtractor(Templates([*CONLL2000.unigram, "bias"]))
    features = extractor.fit_transform(train)
    assert features.ids.shape == (211_727, 20)
    assert extractor.attribute_count == 338_552
    assert len(set(extractor.attribute_names())) == 338_552
    words = {word for sentence in train for word in sentence["word"]}
    assert len(np.unique(features.ids[:, 2])) == len(words) == 19_122
    moved = extractor.transform(test).ids
    flat = [word for sentence in test for word in sentence["word"]]
    assert moved.shape == (len(flat), 20) == (47_377, 20)
    assert [number == -1 for number in moved[:, 2]] == [word not in words for word in flat]
