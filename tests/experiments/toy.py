"""A paper of a few lines, for tests of the frame."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

CONFIG = """
[default]
size = 4  # section 1
scale = 2  # section 2
pause = 0.0  # not in the paper
seeds = 2  # section 3

[preset.smoke]
size = 2

[preset.paper]
size = 6
seeds = [5, 3]
"""

RUN = """
import dataclasses, hashlib, time

CORPORA = {corpora!r}

@dataclasses.dataclass(frozen=True)
class Config:
    size: int
    scale: float
    pause: float

def cells(config, seeds):
    return [{{"part": part, "seed": seed}} for part in range(config.size) for seed in seeds]

def run_cell(config, cell, data):
    began = time.perf_counter()
    {body}
    time.sleep(config.pause)
    digest = hashlib.sha256(f"{{cell['part']}} {{cell['seed']}}".encode()).digest()
    value = int.from_bytes(digest[:6]) / 2**48 * config.scale
    return {{"value": value, "text": "α\\u2028β", "seconds": time.perf_counter() - began}}
"""

REPORT = """
from experiments import Figure, Section, markdown_table, mean_and_spread

def report(results, expected, config):
    values = [line["result"]["value"] for line in results]
    def draw(canvas):
        axes = canvas.subplots()
        axes.plot(values, marker="o", label="ours")
        axes.axhline(expected["table1"]["mean"], color="C1", label="paper")
        axes.set(xlabel="cell", ylabel="value")
        axes.legend()
    table = markdown_table(["what", "paper", "ours"],
        [["mean", expected["table1"]["mean"], mean_and_spread(values, 2)]])
    text = f"### Values of size {config.size}\\n\\n{table}\\n![](values)\\n\\n<b>after</b>\\n"
    return Section(text, (Figure("values", "Values [of] cells & <more>.", draw),))
"""

EXPECTED = """
[table1]  # table 1
mean = 1.0
"""


def write_toy(
    papers: Path,
    name: str = "toy",
    *,
    config: str = CONFIG,
    body: str = "pass",
    corpora: tuple[str, ...] = (),
) -> Path:
    """Write the files of the paper; returns its folder. `body` is a line of its `run_cell`."""
    folder = papers / name
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(config)
    (folder / "run.py").write_text(RUN.format(body=body, corpora=corpora))
    (folder / "report.py").write_text(REPORT)
    (folder / "expected.toml").write_text(EXPECTED)
    return folder


def start(papers: Path, *arguments: str) -> subprocess.Popen[str]:
    """``python -m experiments`` with the papers of a folder, as a process of its own."""
    script = (
        "import sys; from pathlib import Path; from experiments.__main__ import main; "
        "sys.exit(main(sys.argv[2:], papers=Path(sys.argv[1])))"
    )
    env = {name: os.environ[name] for name in os.environ if name != "JAXSEQ_DATA"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", script, str(papers), *arguments],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
