"""``jaxseq verify``: the hand-derived quantities, checked."""

from __future__ import annotations

import argparse
import json
import re


def add_verify(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check every hand-derived quantity against autodiff, central differences and "
        "enumeration. Exit status 1 when anything fails."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, not a table")
    parser.add_argument(
        "--quick", action="store_true", help="one small shape and the central quantities only"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the random chains")
    parser.add_argument(
        "--shapes",
        type=_shapes,
        metavar="4x3,6x2",
        help="positions x labels, separated by commas",
    )
    parser.add_argument(
        "--dtypes", type=_names, metavar="float32,float64", help="separated by commas"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.seed < 0:
        raise ValueError(f"--seed: expected 0 or more, got {options.seed}")
    # Late, as it imports the whole library.
    from jaxseq.verify import check, quick_options

    arguments = quick_options() if options.quick else {}
    if options.shapes is not None:
        arguments["shapes"] = options.shapes
    if options.dtypes is not None:
        arguments["dtypes"] = options.dtypes
    report = check(seed=options.seed, **arguments)
    print(json.dumps(report.to_dict(), allow_nan=False) if options.json else report)
    return 0 if report.passed else 1


def _shapes(text: str) -> list[tuple[int, int]]:
    shapes = [re.fullmatch(r"(\d+)x(\d+)", part) for part in text.split(",")]
    if not all(shapes):
        raise argparse.ArgumentTypeError(f"expected shapes such as 4x3,6x2, got {text!r}")
    return [(int(shape[1]), int(shape[2])) for shape in shapes if shape]


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))
