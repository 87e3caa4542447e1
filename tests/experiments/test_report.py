"""The report: one page that needs nothing else, its Markdown, and pictures."""

from __future__ import annotations

import base64
import re
import statistics
import struct
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest

from experiments import Figure, Section, markdown_table
from experiments.__main__ import main
from experiments._figures import draw
from experiments._page import as_page
from experiments._paper import Paper, PaperError
from tests.experiments.toy import write_toy


class _Tags(HTMLParser):
    """Collects the tags of a page, and checks that they close as they open."""

    EMPTY = frozenset({"meta", "img", "source", "br", "hr"})

    def __init__(self, page: str):
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:  # these may close themselves
            assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """Folder of the toy paper's results with the report."""
    folder = tmp_path_factory.mktemp("reported")
    write_toy(folder / "papers")
    arguments = ["run", "toy", "--preset", "smoke", "--out", str(folder / "out"), "--report"]
    assert main(arguments, papers=folder / "papers") == 0
    return folder


def test_the_page_needs_nothing_else(reported):
    page = (reported / "out" / "report.html").read_text("utf-8")
    tags = _Tags(page)
    names = {tag for tag, _ in tags.seen}
    assert names.isdisjoint({"script", "link", "iframe", "object", "embed"})
    for _, attributes in tags.seen:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "srcset"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert "url(" not in page
    assert "@import" not in page
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in (
        tags.seen
    )
    assert page.count("prefers-color-scheme: dark") == 2  # the style, and the one figure
    assert "<b>after</b>" in tags.text, "HTML of a section is shown, not obeyed"


def test_the_page_has_table_and_figure(reported):
    page = (reported / "out" / "report.html").read_text("utf-8")
    tags = _Tags(page)
    values = _values(reported)
    cell = f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"
    assert cell in tags.text
    assert "Values of size 2" in tags.text, "the preset's own configuration"
    (picture,) = (attributes for tag, attributes in tags.seen if tag == "img")
    assert picture["alt"] == "Values [of] cells & <more>."
    (source,) = (attributes for tag, attributes in tags.seen if tag == "source")
    svgs = [_decoded(picture["src"]), _decoded(source["srcset"])]
    assert svgs[0] != svgs[1]
    for svg in svgs:
        assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"


def _values(reported) -> list[float]:
    text = (reported / "out" / "toy" / "smoke" / "results.jsonl").read_text("utf-8")
    return [float(value) for value in re.findall(r'"value": ([\d.e-]+)', text)]


def _decoded(address) -> str:
    head, _, content = address.partition(",")
    assert head == "data:image/svg+xml;base64"
    return base64.b64decode(content, validate=True).decode()


def test_markdown_and_its_files(reported):
    markdown = (reported / "out" / "report.md").read_text("utf-8")
    (address,) = re.findall(r"^!\[.*\]\((.*)\)$", markdown, flags=re.MULTILINE)
    picture = (reported / "out" / address).read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture[16:24]) == (1120, 672)  # 7 × 4.2 inches of 160 dots
    assert "seeds 0, 1; corpora: none" in markdown


def test_the_same_results_give_the_same_report(reported):
    files = sorted(path for path in (reported / "out").rglob("*") if path.is_file())
    before = [path.read_bytes() for path in files]
    assert main(["report", "--out", str(reported / "out")], papers=reported / "papers") == 0
    assert [path.read_bytes() for path in files] == before
    assert sorted(path for path in (reported / "out").rglob("*") if path.is_file()) == files


def test_report_never_runs_a_cell(tmp_path, monkeypatch):
    monkeypatch.delenv("JAXSEQ_DATA", raising=False)
    folder = write_toy(tmp_path / "papers", corpora=("conll2000",))
    out = ["--out", str(tmp_path / "out")]
    assert main(["run", "toy", "--preset", "smoke", *out], papers=tmp_path / "papers") == 0
    path = tmp_path / "out" / "toy" / "smoke" / "results.jsonl"
    path.write_text("\n".join([*path.read_text("utf-8").split("\n")[:3], ""]), "utf-8")
    lines = path.read_bytes()
    monkeypatch.setattr(Paper("toy", folder).load_run(), "run_cell", _never)
    assert main(["report", *out], papers=tmp_path / "papers") == 0
    assert path.read_bytes() == lines
    markdown = (tmp_path / "out" / "report.md").read_text("utf-8")
    assert "**Not finished**: 3 of 4 cells" in markdown
    assert "**Generated text** stands in for conll2000" in markdown


def _never(*_):
    raise AssertionError("a cell was run")


def test_a_report_that_fails_writes_nothing(tmp_path):
    folder = write_toy(tmp_path / "papers")
    out = ["--out", str(tmp_path / "out")]
    assert main(["run", "toy", *out], papers=tmp_path / "papers") == 0
    (folder / "expected.toml").write_text("[table2]\n")
    with pytest.raises(PaperError, match="toy: report failed: KeyError: 'table1'"):
        main(["report", *out], papers=tmp_path / "papers")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["toy"]


def test_figures_follow_the_theme():
    def plot(canvas):
        canvas.subplots().plot([0, 1])

    figure = Figure("line", "A line.", plot)
    light, dark = (draw(figure, theme, "svg").decode() for theme in ("light", "dark"))
    assert "#0d1117" in dark
    assert "#0d1117" not in light
    assert "#1f2328" in light
    assert draw(figure, "dark", "svg").decode() == dark


def test_unknown_images_stay_images():
    page = as_page("t", "![x](far.png) and text\n\n![y](known)", {"known": (b"l", b"d")}.get)
    assert '<img src="far.png"' in page
    assert page.count("<figure>") == 1
    _Tags(page)


def test_names_of_figures():
    def plot(canvas):
        pass

    with pytest.raises(ValueError, match="expected letters, digits"):
        Figure("../evil", "", plot)
    with pytest.raises(ValueError, match="expected different names, got a, a"):
        Section("", (Figure("a", "", plot), Figure("a", "", plot)))


def test_table_cells():
    assert markdown_table(["a", "b"], [["x|y", "1\n2"]]).split("\n")[2] == r"| x\|y | 1 2 |"
    with pytest.raises(ValueError, match="row 1: expected 2 cells, got 3"):
        markdown_table(["a", "b"], [[1, 2, 3]])
