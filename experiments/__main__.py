"""Command line of the experiments: argument parsing only."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.bench import BENCHES, run_benches


def build_parser() -> argparse.ArgumentParser:
    """The parser; each command sets `run`, a function of the parsed arguments."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    bench = commands.add_parser(
        "bench",
        help="measure against the bars; one JSON object a line",
        description="Run benchmarks. Exit status 1 when a bar does not hold.",
    )
    bench.add_argument("names", nargs="+", choices=BENCHES, metavar="NAME", help=", ".join(BENCHES))
    bench.add_argument(
        "--out", type=Path, default=Path("results/bench"), help="folder for figures (%(default)s)"
    )
    bench.set_defaults(run=lambda args: run_benches(args.names, args.out))
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    args = build_parser().parse_args(argv)
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
