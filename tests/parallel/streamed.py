"""Training from shards on disk by two processes, one of them, or one after the other.

Of `tests.parallel.in_processes`, and of the test's own process.
"""

import shutil

import jax
import numpy as np

from jaxseq.crf import CRFTagger
from jaxseq.shards import train_from_shards, write_shards

SETTINGS = {
    "algorithm": "sgd",
    "learning_rate": 0.05,
    "epochs": 2,
    "batch_size": 9,
    "l1": 0.05,
    "l2": 1.0,
    "progress": False,
}
STOPPED = 3
"""Steps."""


def draw_corpus(count=40):
    """Sentences so long that a batch has several rows, with labels that the words do not decide."""
    rng, found = np.random.default_rng(9), []
    for _ in range(count):
        words = rng.integers(9, size=rng.integers(20, 70))
        noise = rng.integers(3, size=len(words)) * (rng.random(len(words)) < 0.2)
        found.append(
            ([f"w{word}" for word in words], ["XYZ"[k % 3] for k in (words + noise).tolist()])
        )
    return found


def write(folder):
    """Shards of one corpus: all of them, those of each process, and some with a mistake."""
    whole = write_shards(
        draw_corpus, folder / "all", templates=["word[0]", "word[-1]"], shard_tokens=350
    )
    other = write_shards(
        lambda: draw_corpus(30), folder / "another", templates=["word[0]"], shard_tokens=350
    )
    files = sorted(file.name for file in whole.glob("shard-*"))
    for process in range(2):
        mine = shutil.copytree(whole, folder / f"of {process}")
        for file in files[1 - process :: 2]:
            (mine / file).unlink()
    lacking, mixed = (
        shutil.copytree(whole, folder / name) for name in ("lacking", "of another vocabulary")
    )
    (lacking / files[3]).unlink()
    shutil.copy(other / files[3], mixed)
    for name, file in {"changed": files[3], "noticed late": files[2]}.items():
        changed = shutil.copytree(whole, folder / name) / file
        changed.write_bytes(changed.read_bytes()[:-4] + b"\0\0\0\1")


def arrays_of(tagger):
    """The model as lists of numbers, which in JSON keep their bits."""
    return [np.asarray(leaf, float).ravel().tolist() for leaf in jax.tree.leaves(tagger.model_)]


def train(folder, streams=1, mesh=None, stop_after=None, **more):
    """A tagger."""
    tagger = CRFTagger(**{**SETTINGS, **more})
    return train_from_shards(folder, tagger, streams=streams, mesh=mesh, stop_after=stop_after)


def together(index, folder, mesh, said):
    """What two processes find, and what they say of mistakes by `said`."""
    whole, mine = folder / "all", folder / f"of {index}"
    found = {
        "shared": arrays_of(train(whole, 1, mesh)),
        "own files": arrays_of(train(mine, 2, mesh)),
    }
    with jax.enable_x64(True):
        given = {"algorithm": "adamw", "dtype": "float64"}
        found["adamw"] = arrays_of(train(whole, 2, mesh, **given))
    place = folder if index == 0 else folder / "what process 1 need not see"
    for name in ("left by two", "gone on with by two", "left by one"):
        if name != "left by one":
            train(mine, 2, mesh, STOPPED, checkpoint=place / name)
        if name != "left by two":
            found[name] = arrays_of(train(mine, 2, mesh, checkpoint=place / name))
    for name in ("lacking", "of another vocabulary", "changed", "another"):
        wrong = folder / name if index else whole
        found[name] = said(lambda wrong=wrong: train(wrong, 2, mesh))
    # Process 0 has looked at that shard, so that the other one first opens it at a later step.
    wrong = folder / "noticed late" if index else whole
    found["noticed late"] = said(lambda: train(wrong, 1, mesh))
    found["streams"] = said(lambda: train(whole, 1 + index, mesh))
    return found
