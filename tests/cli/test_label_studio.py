"""Label Studio: what is exported after labelling comes back as the labels that were put."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.active import Answer
from jaxseq.cli._questions import (
    AnswerRules,
    Corpora,
    Question,
    as_task,
    labelling_config,
    read_export,
)
from jaxseq.text import Sentence

CLASSES = ["B-NP", "I-NP", "NAME", "O"]
WORDS = ("the", "old", "dog", "barks")
ROUND = 3


def rules_for(*sentences, classes=CLASSES):
    pool = [Sentence({"word": words}) for words in sentences]
    return AnswerRules(ROUND, Corpora(pool, [], [], {}), classes)


def question(start=1, stop=3, words=WORDS, sentence=0):
    none = (None,) * (stop - start)
    return Question(ROUND, sentence, start, stop, 0.5, tuple(words), none, none)


def region(start, end, label, text=None):
    value = {"start": start, "end": end, "labels": [label]}
    if text is not None:
        value["text"] = text
    return {"id": "x", "from_name": "label", "to_name": "text", "type": "labels", "value": value}


def full(task, *annotations, number=7):
    """The task as Label Studio exports it, with what its annotators did."""
    rows = [{"id": i, "was_cancelled": False, **a} for i, a in enumerate(annotations)]
    return {**task, "id": number, "annotations": rows, "created_at": "2024-01-01T00:00:00Z"}


def short(task, regions, number=7):
    """The same as JSON-MIN."""
    values = [result["value"] for result in regions]
    return {**task["data"], "id": number, "label": values, "annotator": 1, "lead_time": 3.2}


def read(*tasks, rules=None):
    return read_export(list(tasks), "e.json", rules or rules_for(WORDS))


# ---------------------------------------------------------------------------------- there and back

TOKENS = st.lists(
    st.text(st.characters(blacklist_categories=("Cs", "Zs", "Cc", "Zl", "Zp")), min_size=1),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("units", ["code points", "UTF-16"])
@pytest.mark.parametrize("form", ["full", "min"])
@given(data=st.data())
def test_labels_come_back(form, units, data):
    words = data.draw(TOKENS)
    labels = data.draw(st.lists(st.sampled_from(CLASSES), min_size=len(words), max_size=len(words)))
    task = as_task(question(0, len(words), words))
    regions = []
    for t, label in enumerate(labels):
        before, word = " ".join([*words[:t], ""]), words[t]
        size = len if units == "code points" else lambda s: len(s.encode("utf-16-le")) // 2
        regions.append(region(size(before), size(before) + size(word), label, word))
        assert task["data"]["text"][len(before) :].startswith(word)
    entry = full(task, {"result": regions}) if form == "full" else short(task, regions)
    answers, skipped = read(entry, rules=rules_for(words))
    assert sorted(answers) == [Answer(0, t, label) for t, label in enumerate(labels)]
    assert skipped == 0


def test_a_place_in_utf16_beyond_the_end_of_the_text_is_read():
    word = "\U00010000"
    task = full(as_task(question(0, 1, [word])), {"result": [region(0, 2, "O", word)]})
    assert read(task, rules=rules_for([word])) == ([Answer(0, 0, "O")], 0)


def test_guesses_are_regions_of_single_tokens_and_come_back_if_accepted():
    asked = Question(ROUND, 0, 1, 3, 0.5, WORDS, ("I-NP", "NAME"), (0.5, 0.25))
    task = as_task(asked)
    (prediction,) = task["predictions"]
    assert prediction["model_version"] == "round-003"
    assert prediction["score"] == 0.25
    for result, word in zip(prediction["result"], asked.words):
        value = result["value"]
        assert task["data"]["text"][value["start"] : value["end"]] == word == value["text"]
    assert [result["score"] for result in prediction["result"]] == [0.5, 0.25]
    answers, _ = read(full(task, {"result": prediction["result"]}))
    assert answers == [Answer(0, 1, "I-NP"), Answer(0, 2, "NAME")]
    assert task["meta"] == {"round": ROUND, "sentence": 0, "start": 1, "stop": 3}
    assert task["meta"].items() <= task["data"].items()  # JSON-MIN has no meta


def test_without_a_model_there_is_no_prediction():
    assert as_task(question())["predictions"] == []


def test_the_interface_has_every_label_once():
    labels = ["B-NP", 'a"<b>&', "O", *(f"L{i}" for i in range(40))]
    root = ElementTree.fromstring(labelling_config(labels))
    found = root.findall("./Labels/Label")
    assert [label.get("value") for label in found] == labels
    assert len({label.get("background") for label in found}) == len(labels)
    keys = [label.get("hotkey") for label in found if label.get("hotkey")]
    assert len(set(keys)) == len(keys) == 35
    results = as_task(Question(ROUND, 0, 0, 1, 0.5, WORDS, ("O",), (0.5,)))["predictions"]
    assert root.find("Labels").get("name") == results[0]["result"][0]["from_name"]
    assert root.find("Labels").get("toName") == root.find("Text").get("name")
    assert {root.find("Text").get("value"), root.find("Header").get("value")} == {
        "$text",
        "$question",
    }


# ------------------------------------------------------------------------------------- leniency


def test_a_region_of_several_tokens_gives_each_its_label():
    entry = full(as_task(question()), {"result": [region(4, 17, "NAME")]})
    answers = [Answer(0, 1, "NAME"), Answer(0, 2, "NAME"), Answer(0, 3, "NAME")]
    assert read(entry)[0] == answers
    assert read(full(as_task(question()), {"result": [region(3, 17, "I-NP")]}))[0] == [
        answer._replace(label="I-NP") for answer in answers
    ]  # the space before it belongs to no token


def test_what_nobody_labelled_is_skipped():
    task, done = as_task(question()), {"result": [region(4, 7, "O")]}
    entries = [
        full(task),
        full(task, {"result": []}),
        full(task, {**done, "was_cancelled": True}),
        {**task, "id": 3},
        short(task, []),
        {**task["data"], "id": 4},
    ]
    assert read(*entries) == ([], 6)
    assert read(*entries, full(task, done)) == ([Answer(0, 1, "O")], 6)


def test_the_declared_truth_goes_before_other_annotations():
    task = as_task(question())
    ours, theirs = ({"result": [region(4, 7, label)]} for label in ("O", "NAME"))
    assert read(full(task, ours, {**theirs, "ground_truth": True}))[0] == [Answer(0, 1, "NAME")]
    assert read(full(task, ours, ours))[0] == [Answer(0, 1, "O")]


KNOWN = {(0, 1): "O", (0, 2): ("B-NP", "NAME")}


@pytest.mark.parametrize("form", ["full", "short"])
def test_tasks_of_past_rounds_may_come_again(form):
    def exported(task, *regions):
        return full(task, {"result": list(regions)}) if form == "full" else short(task, regions)

    rules = replace(rules_for(WORDS), known=lambda *token: KNOWN.get(token))
    both = region(8, 11, "NAME")
    both["value"]["labels"].append("B-NP")
    old = exported(changed(round=2), region(4, 7, "O"), both)
    new = exported(as_task(question()), region(12, 17, "O"))
    assert read(old, new, rules=rules) == ([Answer(0, 3, "O")], 1)
    for wrong in (region(4, 7, "NAME"), region(8, 11, "NAME"), region(12, 17, "O")):
        message = "an answer of round 3, .* got round 2 with .* for token [234], .*, which has "
        with pytest.raises(ValueError, match=message):
            read(exported(changed(round=2), wrong), new, rules=rules)
    with pytest.raises(ValueError, match="an answer of round 3, the one under way, got round 4"):
        read(exported(changed(round=4), region(4, 7, "O")), rules=rules)


def test_other_controls_are_nothing_to_us():
    choice = {"from_name": "ok", "type": "choices", "value": {"choices": ["yes"]}}
    assert read(full(as_task(question()), {"result": [choice, region(4, 7, "O")]}))[0] == [
        Answer(0, 1, "O")
    ]


def test_several_labels_of_a_region_are_possible_ones():
    both = region(4, 7, "O")
    both["value"]["labels"] = ["O", "NAME"]
    assert read(full(as_task(question()), {"result": [both]}))[0] == [Answer(0, 1, ("NAME", "O"))]


# ------------------------------------------------------------------------------------- refusals


def changed(**data):
    task = as_task(question())
    return {**task, "data": {**task["data"], **data}}


PLAIN = as_task(question())
REFUSED = {
    "half a token": (PLAIN, [region(5, 7, "O", "ld")], "begin and end where tokens do, got 'ld'"),
    "over the end": (PLAIN, [region(12, 18, "O")], "begin and end where tokens do"),
    "a space": (PLAIN, [region(3, 4, "O", " ")], "begin and end where tokens do"),
    "another text": (PLAIN, [region(4, 7, "O", "dog")], "begin and end where tokens do"),
    "nothing": (PLAIN, [region(5, 5, "O")], "begin and end where tokens do"),
    "chunk": (PLAIN, [region(4, 11, "B-NP")], "a region of its own for each token labelled 'B-NP'"),
    "two": (PLAIN, [region(4, 7, "O"), region(4, 7, "NAME")], "one label for token 2, 'old'"),
    "unknown label": (PLAIN, [region(4, 7, "VP")], "expected a label, one of B-NP, .*got 'VP'"),
    "no place": (PLAIN, [{"type": "labels", "value": {"labels": ["O"]}}], "'start', 'end' and"),
    "before": (PLAIN, [region(-1, 3, "O")], "begin and end where tokens do"),
    "endless": (PLAIN, [region(0, float("inf"), "O")], "'start', 'end' and"),
    "stale": (changed(round=2), [region(4, 7, "O")], "an answer of round 3, .* got round 2"),
    "no round": (changed(round=None), [region(4, 7, "O")], "expected 'round'"),
    "sentence": (changed(sentence=1), [region(4, 7, "O")], "'sentence', a whole number, 0 … 0"),
    "text": (changed(text="another"), [region(4, 7, "O")], "expected the text of sentence 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_task(name):
    task, regions, message = REFUSED[name]
    with pytest.raises(ValueError, match=rf"^e\.json, task 7: .*{message}"):
        read(full(task, {"result": regions}))


NO_TASKS = [
    3,
    {"data": 3, "annotations": []},
    {"data": {}, "annotations": 3},
    {"data": {}, "annotations": [{"result": 3}]},
]


@pytest.mark.parametrize("entry", NO_TASKS)
def test_what_is_no_task_is_refused(entry):
    with pytest.raises(ValueError, match=r"^e\.json, .*expected"):
        read(entry)


def test_annotators_who_disagree_are_refused():
    task = as_task(question())
    ours, theirs = ({"result": [region(4, 7, label)]} for label in ("O", "NAME"))
    with pytest.raises(ValueError, match="expected one label for token 2"):
        read(full(task, ours, theirs))
    with pytest.raises(ValueError, match="expected one label for token 2"):
        read(*(short(task, a["result"], number) for number, a in enumerate((ours, theirs))))


def test_letters_are_chunk_labels_only_among_chunk_labels():
    entry = full(as_task(question()), {"result": [region(4, 11, "B")]})
    assert len(read(entry, rules=rules_for(WORDS, classes=["A", "B"]))[0]) == 2
    with pytest.raises(ValueError, match="a region of its own"):
        read(entry, rules=rules_for(WORDS, classes=["B", "I", "O"]))


def test_colours_differ_from_their_neighbours():
    root = ElementTree.fromstring(labelling_config([str(n) for n in range(12)]))
    colours = [bytes.fromhex(label.get("background")[1:]) for label in root.iter("Label")]
    for one, other in pairwise(colours):
        assert sum(abs(a - b) for a, b in zip(one, other)) > 100
