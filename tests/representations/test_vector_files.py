"""Files of word vectors."""

import struct

import numpy as np
import pytest

from jaxseq.representations import read_vectors, representation_from_vectors

WORDS = ["the", "dog", "New York", "été"]
VECTORS = np.array([[0.5, -1, 2], [1e-3, 0, 0.25], [3, 2, 1], [0, 0, 4]], np.float32)


def text(words, vectors) -> str:
    return "".join(
        f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, vectors.tolist())
    )


def binary(words, vectors, newline=b"\n") -> bytes:
    rows = (
        word.encode() + b" " + struct.pack(f"<{len(row)}f", *row) + newline
        for word, row in zip(words, vectors.tolist())
    )
    return f"{len(words)} {vectors.shape[1]}\n".encode() + b"".join(rows)


def test_all_formats_are_read(tmp_path):
    (tmp_path / "glove.txt").write_text(text(WORDS, VECTORS))
    (tmp_path / "w2v.txt").write_text("4 3\n" + text(WORDS, VECTORS))
    files = [tmp_path / "glove.txt", tmp_path / "w2v.txt"]
    names = [word.replace(" ", "_") for word in WORDS]
    for name, newline in (("lines.bin", b"\n"), ("rows.bin", b"")):
        (tmp_path / name).write_bytes(binary(names, VECTORS, newline))
        words, vectors = read_vectors(tmp_path / name)
        assert words == names
        assert (vectors == VECTORS).all()
    for path in files:
        words, vectors = read_vectors(path)
        assert words == WORDS
        assert (vectors == VECTORS).all()
    np.save(tmp_path / "array.npy", VECTORS.astype(float))
    (tmp_path / "words").write_text("\n".join(WORDS) + "\n")
    words, vectors = read_vectors(tmp_path / "array.npy", tmp_path / "words")
    assert words == WORDS
    assert (vectors == VECTORS).all()


def test_the_first_words_alone_and_words_that_come_twice(tmp_path):
    path = tmp_path / "twice.txt"
    path.write_text("a 1\nb 2\na 3\nc 4\n")
    words, vectors = read_vectors(path)
    assert (words, vectors.ravel().tolist()) == (["a", "b", "c"], [1, 2, 4])
    assert read_vectors(path, max_words=2)[0] == ["a", "b"]
    path.write_bytes(binary(WORDS[:2], VECTORS[:2]))
    assert read_vectors(path, max_words=1)[0] == ["the"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected at least one word with a vector, found none"),
        (b"the 1 2\ndog 1\n", ":2: expected a word and 2 numbers, got 2 fields"),
        (b"the 1 2\ndog x 2\n", ":2 or before: expected numbers"),
        (b"the 1 2\ndog nan 2\n", "expected finite numbers, got others for 'dog'"),
        (b"3 2\nthe 1 2\ndog 1 2\n", "expected 3 words, as its first line says, found 2"),
        (b"3 2\nthe " + b"\xff" * 8, "expected 3 words of 2 dimensions"),
        (b"the\n", ":1: expected a word and some numbers"),
        (b"\xff\xfe 1 2\n", "expected UTF-8"),
    ],
)
def test_a_file_that_is_none(tmp_path, content, message):
    path = tmp_path / "vectors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        read_vectors(path)
    assert str(path) in str(error.value)


def test_arrays_that_do_not_go_with_their_words(tmp_path):
    np.save(tmp_path / "a.npy", VECTORS)
    (tmp_path / "words").write_text("one\n")
    with pytest.raises(ValueError, match="one row for each of the 1 words"):
        read_vectors(tmp_path / "a.npy", tmp_path / "words")
    with pytest.raises(ValueError, match="words: expected a file of words along with"):
        read_vectors(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.array([["x"]]))
    with pytest.raises(ValueError, match="expected floats"):
        read_vectors(tmp_path / "a.npy", tmp_path / "words")
    np.save(tmp_path / "a.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="expected an array of NumPy"):
        read_vectors(tmp_path / "a.npy", tmp_path / "words")
    with pytest.raises(ValueError, match=r"vectors: expected numbers of shape \[2, dimensions\]"):
        representation_from_vectors(["a", "b"], np.zeros((3, 2)))
    with pytest.raises(ValueError, match="words: expected different ones"):
        representation_from_vectors(["a", "a"], np.zeros((2, 2)))
    with pytest.raises(ValueError, match="vectors: expected finite numbers"):
        representation_from_vectors(["a"], np.array([[np.inf]]))


def test_clusters_of_vectors_and_of_unknown_words():
    random = np.random.default_rng(0)
    words = [f"Noun{n}" for n in range(10)] + [f"verb{n}ing" for n in range(10)]
    vectors = np.repeat(np.eye(2), 10, 0) + random.normal(scale=0.05, size=(20, 2))
    learnt = representation_from_vectors(words, vectors, sizes=(2,))
    assert len({learnt.cluster(word, 2) for word in words[:10]}) == 1
    assert learnt.cluster("verb77ing", 2) == learnt.cluster("verb3ing", 2)
    assert learnt.cluster("verb3ing", 2) != learnt.cluster("Noun3", 2)
    # The file tells capitals apart, and so does the representation.
    assert not learnt.lexicon.normalisation.lower
