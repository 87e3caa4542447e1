"""Whether an installed wheel has its kernels; to be run by the Python that has the wheel."""

import sys

import numpy as np

import jaxseq
from jaxseq.hmm import find_kernels, word_corpus
from jaxseq.native import load_library, why_not
from jaxseq.native._loader import BUNDLE


def main() -> int:
    for dtype in ("float32", "float64"):
        if reason := why_not(dtype):
            print(f"{dtype}: {reason}")
            return 1
    batch = jaxseq.PaddedBatch(np.zeros((2, 3, 2), np.float32), np.zeros((2, 2), np.float32))
    marginals = jaxseq.batch_marginals(batch, method="native")
    if marginals.edges.tolist() != [[1.0, 1.0], [1.0, 1.0]]:
        print(f"edges: expected ones, got {marginals.edges.tolist()}")
        return 1
    if find_kernels(word_corpus([[0, 1], [1]], 2), 2) is None:
        print("the HMM has no kernels")
        return 1
    places = {load_library(name).functions._name for name in ("lattice-float", "hmm")}
    if not all(place.startswith(str(BUNDLE)) for place in places):
        print(f"expected the wheel's own kernels, got {places}")
        return 1
    print(*sorted(places))
    return 0


if __name__ == "__main__":
    sys.exit(main())
