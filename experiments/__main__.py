"""Command line of the experiments: argument parsing, and what becomes of errors.

Exit status: 0 all well, 1 a benchmark's bar does not hold or a paper's code failed, 2 the
arguments or the input made no sense, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from experiments._config import ALL_PRESETS, as_seeds
from experiments._device import DEVICES
from experiments._paper import HERE, KNOWN, choose
from experiments.bench import BENCHES, run_benches

OUT = Path("results")
INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())}\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser; each command sets `run`, a function of the arguments and the papers' folder."""
    parser = _Parser(prog="python -m experiments", description="The papers, run and reported.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_list(commands)
    _add_run(commands)
    _add_report(commands)
    _add_bench(commands)
    return parser


def main(argv: Sequence[str] | None = None, *, papers: Path = HERE) -> int:
    """Run one command.

    Args:
        argv: the arguments; those of the process by default.
        papers: the folder of the papers.

    Returns:
        The exit status.
    """
    args = build_parser().parse_args(argv)
    try:
        return args.run(args, papers)
    except KeyboardInterrupt:
        print("python -m experiments: interrupted; run --resume goes on", file=sys.stderr)
        return INTERRUPTED
    except ValueError as error:
        message = str(error)
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename}: "
        message = f"{place}cannot be read or written: {error.strerror or error}"
    print(f"python -m experiments: error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _add_list(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser("list", help="show papers, corpora and benchmarks")
    _add_data(parser)
    parser.set_defaults(run=_list)


def _add_run(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "run",
        help="run papers",
        description="Run papers; results go to OUT/NAME/PRESET, a JSON line for each cell.",
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"all, {', '.join(KNOWN)}")
    parser.add_argument(
        "--preset", choices=ALL_PRESETS, default="default", help="size (%(default)s)"
    )
    _add_data(parser)
    _add_out(parser)
    parser.add_argument("--seeds", metavar="N|A,B,…", help="a count, or seeds with commas")
    parser.add_argument("--resume", action="store_true", help="go on with results that are there")
    parser.add_argument("--device", choices=DEVICES, help="what to compute on (JAX's choice)")
    parser.add_argument("--jobs", type=_positive, default=1, help="processes (%(default)s)")
    parser.add_argument("--report", action="store_true", help="write the report at the end")
    parser.set_defaults(run=_run)


def _add_report(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "report",
        help="write the report of the results",
        description="Write OUT/report.html and OUT/report.md of the results that are there.",
    )
    parser.add_argument("--preset", choices=ALL_PRESETS, help="only this (all)")
    _add_out(parser)
    parser.set_defaults(run=_report)


def _add_bench(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure against the bars; one JSON object a line",
        description="Run benchmarks. Exit status 1 when a bar does not hold.",
    )
    names = ["all", *BENCHES]
    parser.add_argument("names", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument(
        "--out", type=Path, default=OUT / "bench", help="folder for figures (%(default)s)"
    )
    parser.set_defaults(run=_bench)


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder of the corpora (JAXSEQ_DATA)"
    )


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=OUT, metavar="DIR", help="folder of results (%(default)s)"
    )


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text!r}")
    return int(text)


def _list(args: argparse.Namespace, papers: Path) -> int:
    from experiments._list import describe
    from experiments.data import data_folder

    print(describe(papers, data_folder(args.data)))
    return 0


def _run(args: argparse.Namespace, papers: Path) -> int:
    from experiments._plan import make_plan
    from experiments._run import run_plans
    from experiments.data import data_folder

    # All plans are made, and so checked, before the first one runs.
    seeds = None if args.seeds is None else as_seeds(args.seeds, "--seeds")
    data = data_folder(args.data)
    plans = [
        make_plan(paper, args.preset, args.out, seeds=seeds, data=data, resume=args.resume)
        for paper in choose(args.names, papers)
    ]
    run_plans(plans, jobs=args.jobs, device=args.device)
    for plan in plans:
        print(f"results: {plan.results.path}")
    return _report(args, papers) if args.report else 0


def _report(args: argparse.Namespace, papers: Path) -> int:
    from experiments._report import write_report

    print(f"report: {write_report(args.out, papers, args.preset)}")
    return 0


def _bench(args: argparse.Namespace, papers: Path) -> int:
    names: list[str] = [*dict.fromkeys(BENCHES if "all" in args.names else args.names)]
    return run_benches(names, args.out)


if __name__ == "__main__":
    sys.exit(main())
