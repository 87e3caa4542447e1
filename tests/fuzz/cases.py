"""What is tried: for each kind of input a command that reads it, and damage to the input."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from jaxseq._io import read_checkpoint, write_checkpoint
from jaxseq.cli import main
from tests.cli.active_runs import start_in_round_1
from tests.cli.conftest import LEXICON, TEMPLATES, TEXTS, columns_of
from tests.fuzz import mutations

RULES = """\
scheme = "iob2"
[[constraint]]
kind = "starts_with"
labels = ["B-NP"]
penalty = 1.5
[[constraint]]
kind = "words_have"
words = ["dog", "cat"]
labels = ["I-NP"]
probability = 0.9
"""

QUICK = ["--l2", "0.1", "--cores", "1", "--quiet"]


def prepare(place: Path) -> None:
    """Make one sound input of each kind."""

    def well(*argv: object) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            if main([str(part) for part in argv]) != 0:
                raise RuntimeError(f"expected a sound start, got a failure of {argv}")

    place.mkdir(parents=True)
    (place / "train").write_text(columns_of(TEXTS))
    (place / "templates").write_text(TEMPLATES)
    (place / "rules.toml").write_text(RULES)
    scored = (f"{word} {LEXICON[word][1]} {LEXICON[word][1]}\n" for word in TEXTS[0].split())
    (place / "scored").write_text("".join(scored))
    (place / "more").write_text(columns_of(TEXTS[:3], width=2))
    train = ["--train", place / "train", "--cores", 1, "--quiet"]
    crf = ["train", "crf", *train, "--templates", place / "templates"]
    well(*crf, "--l2", 0.1, "--out", place / "model")
    well("train", "hmm", *train, "--out", place / "hmm")
    shards = ["--train", place / "train", "--templates", place / "templates", "--shard-tokens", 8]
    well("shard", *shards, "--out", place / "shards", "--json")
    well(
        *crf, "--max-iterations", 2, "--out", place / "unfinished", "--checkpoint", place / "search"
    )
    shutil.rmtree(place / "unfinished")
    with contextlib.redirect_stdout(io.StringIO()):
        run = start_in_round_1(place / "active")
    tasks = json.loads((run / "round-001" / "tasks.json").read_text())
    for task in tasks:
        words = task["data"]["text"]
        value = {"start": 0, "end": len(words.split()[0]), "labels": ["O"]}
        region = {"from_name": "label", "to_name": "text", "type": "labels", "value": value}
        task["annotations"] = [{"id": 1, "was_cancelled": False, "result": [region]}]
    (place / "export").write_text(json.dumps(tasks))
    queries = (run / "round-001" / "queries.jsonl").read_text().splitlines()
    solved = [{**json.loads(q), "labels": ["O"] * len(json.loads(q)["words"])} for q in queries]
    (place / "answers").write_text("".join(f"{json.dumps(row)}\n" for row in solved))


Make = Callable[[Path, random.Random], list[str]]
"""Damages an input in a copy of the folder, and gives the arguments of a command that reads it."""


def _damage(path: Path, rng: random.Random) -> None:
    path.write_bytes(mutations.damage(path.read_bytes(), rng))


def _damage_some(folder: Path, rng: random.Random) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    chosen = rng.choice(files)
    if rng.random() < 0.1:
        chosen.unlink()
    else:
        _damage(chosen, rng)


def corpora(place: Path, rng: random.Random) -> list[str]:
    _damage(place / "train", rng)
    train = ["--train", str(place / "train")]
    return rng.choice(
        [
            ["train", "hmm", *train, "--cores", "1", "--out", str(place / "new")],
            ["evaluate", "--model", str(place / "hmm"), "--test", str(place / "train")],
            ["constraints", str(place / "rules.toml"), str(place / "train")],
            ["shard", *train, "--templates", "token", "--out", str(place / "new")],
            ["tag", "--model", str(place / "hmm"), str(place / "train")],
        ]
    )


def scores(place: Path, rng: random.Random) -> list[str]:
    _damage(place / "scored", rng)
    return ["evaluate", str(place / "scored"), *rng.choice([[], ["--json"], ["--tokens"]])]


def templates(place: Path, rng: random.Random) -> list[str]:
    _damage(place / "templates", rng)
    files = ["--train", str(place / "train"), "--templates", str(place / "templates")]
    return ["shard", *files, "--out", str(place / "new")]


def rules(place: Path, rng: random.Random) -> list[str]:
    _damage(place / "rules.toml", rng)
    tag = ["tag", "--model", str(place / "model"), "--constraints", str(place / "rules.toml")]
    check = ["constraints", str(place / "rules.toml"), str(place / "train")]
    return rng.choice([check, check, check, [*tag, str(place / "more")]])


def models(place: Path, rng: random.Random) -> list[str]:
    name = rng.choice(("model", "hmm"))
    if rng.random() < 0.4:
        _damage_some(place / name, rng)
    else:
        mutations.forge_model(place / name, rng)
    folder = str(place / name)
    return rng.choice(
        [
            ["inspect", folder],
            ["inspect", folder, "--json"],
            ["tag", "--model", folder, str(place / "more")],
            ["evaluate", "--model", folder, "--test", str(place / "train")],
        ]
    )


def runs(place: Path, rng: random.Random) -> list[str]:
    run = place / "active" / "run"
    if rng.random() < 0.4:
        _damage_some(run, rng)
    else:
        mutations.forge_run(run, rng)
    answer = ["answer", str(run), str(place / "answers"), "--no-train"]
    return [
        "active",
        *rng.choice(
            [
                ["status", str(run)],
                ["labels", str(run)],
                ["labels", str(run), "--add", "NEW"],
                answer,
            ]
        ),
    ]


def exports(place: Path, rng: random.Random) -> list[str]:
    path = place / "export"
    if rng.random() < 0.3:
        _damage(path, rng)
    else:
        mutations.write_json(path, mutations.disturb(json.loads(path.read_text()), rng))
    return ["active", "answer", str(place / "active" / "run"), str(path), "--no-train"]


def answers(place: Path, rng: random.Random) -> list[str]:
    path = place / "answers"
    if rng.random() < 0.3:
        _damage(path, rng)
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = mutations.disturb(rows, rng)
        rows = rows if isinstance(rows, list) else [rows]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return ["active", "answer", str(place / "active" / "run"), str(path), "--no-train"]


def checkpoints(place: Path, rng: random.Random) -> list[str]:
    path = place / "search"
    if rng.random() < 0.8:
        _damage(path, rng)
    else:  # with a checksum that is right
        about = path.read_bytes().split(b'"about":"')[1].split(b'"')[0].decode()
        notes, arrays = read_checkpoint(path, about)
        write_checkpoint(
            path, rng.choice((about, "another")), mutations.disturb(notes, rng), arrays
        )
    files = ["--train", str(place / "train"), "--templates", str(place / "templates")]
    more = ["--max-iterations", "3", "--out", str(place / "new"), "--checkpoint", str(path)]
    return ["train", "crf", *files, *QUICK, *more]


def shards(place: Path, rng: random.Random) -> list[str]:
    if rng.random() < 0.5:
        _damage_some(place / "shards", rng)
    else:
        mutations.forge_shards(place / "shards", rng)
    how = ["--algorithm", "adamw", "--epochs", "1", "--batch-size", "2"]
    return [
        "train",
        "crf",
        "--shards",
        str(place / "shards"),
        *how,
        *QUICK,
        "--out",
        str(place / "new"),
    ]


ODD_ARGUMENTS = (
    "", "-", "--", "-1", "0", "1", "nan", "inf", "1e999", "99999999999999999999999", "2147483648",
    "x" * 300, "é", "\udcff", "\n", "/dev/zero", "/dev/full", "nowhere", "nowhere/deep", ".", "/",
    "{place}", "{place}/loop", "{place}/train", "{place}/model", "{place}/active/run", "a,b", "a,a",
    ",", "word,pos,label", "-,word,label", "IOB2", "BOI", "label[0]", "a/" * 3000,
    "{place}/rules.toml", "{place}/shards/index.json",
)  # fmt: skip

COMMANDS = (
    "train hmm --train {place}/train --out {place}/new --cores 1 --unknown-below 1 "
    "--checkpoint {place}/kept --max-iterations 2",
    "train crf --train {place}/train --out {place}/new --cores 1 --templates token "
    "--checkpoint {place}/kept --max-iterations 1",
    "tag --model {place}/model {place}/more --k-best 2",
    "tag --model {place}/model {place}/more --beam 5 --constraints {place}/rules.toml",
    "evaluate {place}/scored --against {place}/scored",
    "evaluate --model {place}/hmm --test {place}/train --columns word,pos,label",
    "inspect {place}/model --label O --top 2",
    "constraints {place}/rules.toml {place}/train",
    "shard --train {place}/train --templates token --out {place}/new",
    "active start --pool {place}/active/pool --labels O,B-NP --columns word,pos,label "
    "--out {place}/new --templates token --count 2",
    "active query {place}/active/run --count 2",
    "active answer {place}/active/run {place}/answers --no-train",
    "active labels {place}/active/run --add NEW",
)


def arguments(place: Path, rng: random.Random) -> list[str]:
    """Odd values of options, and options in the wrong place."""
    (place / "loop").symlink_to("loop")
    argv = rng.choice(COMMANDS).split()
    for _ in range(rng.choice((1, 1, 2))):
        number = rng.randrange(1, len(argv))
        odd = rng.choice(ODD_ARGUMENTS)
        kind = rng.randrange(4)
        if kind == 0:
            del argv[number]
        elif kind == 1:
            argv.insert(number, odd)
        elif not argv[number].startswith("--"):
            argv[number] = odd
    return [part.replace("{place}", str(place)) for part in argv]


KINDS: dict[str, tuple[Make, int]] = {
    "corpora": (corpora, 10),
    "scores": (scores, 10),
    "templates": (templates, 10),
    "rules": (rules, 10),
    "models": (models, 12),
    "runs": (runs, 12),
    "exports": (exports, 8),
    "answers": (answers, 8),
    "checkpoints": (checkpoints, 8),
    "shards": (shards, 6),
    "arguments": (arguments, 14),
}
"""Each kind, and how often it is tried beside the others."""
