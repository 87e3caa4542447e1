"""What is asked, against definitions in plain Python on small pools."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxseq.active import (
    GroupQueries,
    Look,
    Query,
    SequenceQueries,
    SpanQueries,
    TokenQueries,
    first_sentences,
    informative,
    propose,
    token_price,
)

SEEDS = st.integers(0, 2**32 - 1)
THRESHOLDS = st.sampled_from([0.3, 0.5, 0.9, 1.0])
COUNTS = st.sampled_from([1, 2, 3, 7, None])


def draw_pool(seed: int):
    """A look and known tokens; few different numbers, so that there are ties."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 5, 6)
    n = int(lengths.sum())
    some = np.array([0.2, 0.5, 0.75, 0.9, 1.0])
    sequence = {
        "viterbi": -rng.integers(0, 3, 6) / 2,
        "entropy": rng.integers(0, 3, 6) / 2,
        "n_best": rng.integers(0, 3, 6) / 4,
    }
    look = Look(
        rng.integers(0, 3, n),
        rng.choice(some, n),
        lengths,
        sequence,
        rng.choice(some, n) * 1.5,
        rng.choice(some, n),
    )
    return look, rng.random(n) < 0.3, rng.random(6) < 0.3


def tokens_of(look: Look) -> list[list[int]]:
    """Numbers of the tokens of each sentence."""
    ends = np.cumsum(look.lengths).tolist()
    return [list(range(end - int(n), end)) for end, n in zip(ends, look.lengths)]


# ------------------------------------------------------------------------------------ tokens


@given(SEEDS, THRESHOLDS, COUNTS)
def test_tokens_are_the_least_sure_without_a_label(seed, threshold, count):
    look, known, _ = draw_pool(seed)
    unsure = []
    for sentence, tokens in enumerate(tokens_of(look)):
        for position, token in enumerate(tokens):
            if not known[token] and look.confidence[token] < threshold:
                unsure.append((look.confidence[token], sentence, position))
    wanted = [Query(s, t, t + 1, 1 - c) for c, s, t in sorted(unsure)]
    strategy = TokenQueries(count, threshold)
    found = propose(look, known, strategy)
    assert found.queries == wanted[:count]
    assert informative(look, known, strategy) == len(wanted)
    assert not len(found.guesses)
    assert not len(found.sampled)


def test_equal_tokens_are_asked_in_the_order_of_the_pool():
    look = Look(np.zeros(5, int), np.full(5, 0.5), np.array([2, 0, 3]))
    found = propose(look, np.zeros(5, bool), TokenQueries(4, 0.9)).queries
    assert [(q.sentence, q.start) for q in found] == [(0, 0), (0, 1), (2, 0), (2, 1)]


# ----------------------------------------------------------------------------------- windows


@given(st.integers(0, 999), st.integers(1, 3), st.integers(1, 6))
def test_few_tokens_of_a_sentence_are_asked(seed, most, count):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, 4)
    confidence = rng.integers(1, 5, lengths.sum()) / 5  # with ties
    look = Look(np.zeros(lengths.sum(), int), confidence, lengths, {})
    known = rng.random(lengths.sum()) < 0.2
    expected, taken = [], dict.fromkeys(range(4), 0)
    places = [(s, t) for s, length in enumerate(lengths) for t in range(length)]
    for index in sorted(range(len(places)), key=lambda i: (confidence[i], i)):
        s, t = places[index]
        if not known[index] and confidence[index] < 0.7 and taken[s] < most:
            taken[s] += 1
            expected.append((s, t))
    found = propose(look, known, TokenQueries(count, 0.7, per_sentence=most)).queries
    assert [(query.sentence, query.start) for query in found] == expected[:count]


@given(st.integers(0, 999), st.sampled_from([1, 2, None]), st.integers(1, 2), st.integers(1, 6))
def test_few_tokens_of_a_word_form_are_asked(seed, of_sentence, most, count):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, 4)
    size = int(lengths.sum())
    confidence, forms = rng.integers(1, 5, size) / 5, rng.integers(0, 4, size)
    look = Look(np.zeros(size, int), confidence, lengths, forms=forms)
    known = rng.random(size) < 0.2
    unsure = [i for i in range(size) if not known[i] and confidence[i] < 0.7]
    unsure.sort(key=lambda i: confidence[i])
    # A token that the limit of its sentence leaves out does not use up that of its word.
    for keys, limit in ((look.sentence, of_sentence), (forms, most)):
        before = [[keys[j] for j in unsure[:rank]].count(keys[i]) for rank, i in enumerate(unsure)]
        unsure = [i for i, n in zip(unsure, before) if limit is None or n < limit]
    expected = [(look.sentence[i], look.position[i]) for i in unsure[:count]]
    strategy = TokenQueries(count, 0.7, per_sentence=of_sentence, per_form=most)
    found = propose(look, known, strategy).queries
    assert [(query.sentence, query.start) for query in found] == expected


@given(st.integers(0, 999), st.sampled_from([1, 2, None]), st.sampled_from([1, 2, 6, None]))
def test_groups_are_asked_by_the_errors_expected_in_them(seed, of_sentence, count):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 6, 5)
    size = int(lengths.sum())
    confidence, groups = rng.integers(2, 9, size) / 8, rng.integers(0, 4, size)  # sums are exact
    look = Look(np.zeros(size, int), confidence, lengths, groups=groups)
    known = rng.random(size) < 0.3
    asked, values = [], {}
    for group in set(groups.tolist()):
        members = [i for i in range(size) if groups[i] == group]
        still_open = [i for i in members if not known[i]]
        labels = len(members) - len(still_open)
        values[group] = sum(1 - confidence[i] for i in still_open) / (1 + labels)
        unsure = [i for i in still_open if confidence[i] < 0.7]
        asked += sorted(unsure, key=lambda i: confidence[i])[:1]
    asked.sort(key=lambda i: (-values[groups[i]], confidence[i], i))
    before = [[look.sentence[j] for j in asked[:r]].count(look.sentence[i])
              for r, i in enumerate(asked)]  # fmt: skip
    asked = [i for i, n in zip(asked, before) if of_sentence is None or n < of_sentence]
    strategy = GroupQueries("word[0]", count, 0.7, of_sentence)
    wanted = [
        Query(int(look.sentence[i]), int(look.position[i]), int(look.position[i]) + 1,
              values[groups[i]])
        for i in asked[:count]
    ]  # fmt: skip
    assert propose(look, known, strategy).queries == wanted
    assert informative(look, known, strategy) == int((~known & (confidence < 0.7)).sum())


def test_a_pattern_goes_before_an_odd_token_until_it_has_labels():
    groups = np.array([0, 1, 1, 1, 1, 1])
    look = Look(np.zeros(6, int), np.array([0.5, *[0.875] * 5]), np.array([6]), groups=groups)
    known = np.zeros(6, bool)
    strategy = GroupQueries("word[0]", 1)
    assert propose(look, known, strategy).queries == [Query(0, 1, 2, 0.625)]
    known[1] = True
    assert propose(look, known, strategy).queries == [Query(0, 0, 1, 0.5)]


def plain_windows(look, known, strategy):
    """Every window and its score, by the definition."""
    price, found = token_price(strategy.threshold), []
    for sentence, tokens in enumerate(tokens_of(look)):
        for start in range(len(tokens)):
            for stop in range(start + 1, min(len(tokens), start + strategy.width) + 1):
                inside = tokens[start:stop]
                if any(known[token] for token in inside):
                    continue
                total = look.label_entropy[inside[0]]
                total += sum(look.step_entropy[token] for token in inside[1:])
                score = total - len(inside) * price
                if score > 0:
                    found.append((score, sentence, start, stop))
    return found


@given(SEEDS, st.sampled_from([0.5, 0.8, 0.9, 0.99]), COUNTS, st.integers(1, 4))
def test_windows_are_the_best_that_do_not_overlap(seed, threshold, count, width):
    look, known, _ = draw_pool(seed)
    # Sums in another order must not make ties of what is none: scores with distinct digits.
    rng = np.random.default_rng([seed, 1])
    look.label_entropy[:] += rng.random(len(known)) * 1e-3
    look.step_entropy[:] += rng.random(len(known)) * 1e-3
    strategy = SpanQueries(width, count, threshold)
    left = sum(look.lengths) if count is None else count
    taken, wanted = set(), []
    windows = sorted(plain_windows(look, known, strategy), key=lambda w: (-w[0], *w[1:]))
    for score, sentence, start, stop in windows:
        inside = {(sentence, t) for t in range(start, stop)}
        if not inside & taken and len(inside) <= left:
            taken |= inside
            left -= len(inside)
            wanted.append((sentence, start, stop, score))
    found = propose(look, known, strategy).queries
    assert [q[:3] for q in found] == [w[:3] for w in wanted]
    np.testing.assert_allclose([q.score for q in found], [w[3] for w in wanted], rtol=1e-9)
    everywhere = {(s, t) for _, s, a, b in windows for t in range(a, b)}
    assert informative(look, known, strategy) == len(everywhere)


@given(st.floats(0.05, 1), SEEDS)
def test_a_token_less_sure_than_the_threshold_is_worth_more_than_its_price(threshold, seed):
    p = np.random.default_rng(seed).dirichlet(np.full(20, 0.3))
    entropy = -(p[p > 0] * np.log(p[p > 0])).sum()
    if p.max() < threshold:
        assert entropy > token_price(threshold) - 1e-12
    assert token_price(p.max()) <= entropy + 1e-12


def test_the_price_is_that_of_a_coin_and_falls_with_the_threshold():
    for p in (0.5, 0.6, 0.9, 0.99):
        coin = -p * math.log(p) - (1 - p) * math.log(1 - p)
        assert token_price(p) == pytest.approx(coin, rel=1e-12)
    assert token_price(0.25) == pytest.approx(math.log(4))
    prices = [token_price(p) for p in np.linspace(0.05, 1, 50)]
    assert prices == sorted(prices, reverse=True)


def test_a_window_is_as_wide_as_its_labels_are_worth():
    look = Look(
        np.zeros(4, int), np.full(4, 0.5), np.array([4]), {},
        np.array([1.0, 1.0, 0.1, 0.9]), np.array([0.0, 0.6, 0.05, 0.85]),
    )  # fmt: skip
    found = propose(look, np.zeros(4, bool), SpanQueries(3, None, 0.9)).queries
    assert [(q.start, q.stop) for q in found] == [(0, 2), (3, 4)]


# --------------------------------------------------------------------------------- sentences


def plain_sentences(look, known, strategy, sampled):
    """Queries as lists of tokens, guesses and sentences, one by one."""
    sign = 1 if strategy.by == "viterbi" else -1
    able = []
    for sentence, tokens in enumerate(tokens_of(look)):
        unsure = [look.confidence[t] < strategy.threshold for t in tokens]
        useful = [
            not known[t]
            and (
                not strategy.again
                or strategy.ask == "all"
                or (strategy.ask == "unsure" and low)
                or (strategy.keep_sure == "model" and not low)
            )
            for t, low in zip(tokens, unsure)
        ]
        if any(useful) and (strategy.again or not sampled[sentence]):
            able.append((sign * look.sequence[strategy.by][sentence], sentence))
    chosen = [sentence for _, sentence in sorted(able)][: strategy.count]
    asked, guesses = [], []
    for sentence in chosen:
        for position, token in enumerate(tokens_of(look)[sentence]):
            low = look.confidence[token] < strategy.threshold
            if known[token]:
                continue
            if strategy.ask == "all" or (strategy.ask == "unsure" and low):
                asked.append((sentence, position))
            elif not low and strategy.keep_sure == "model":
                guesses.append(token)
    return asked, sorted(guesses), chosen, len(able)


@given(
    SEEDS,
    COUNTS,
    st.sampled_from(["viterbi", "entropy", "n_best"]),
    st.sampled_from(
        [("all", "open"), ("all", "model"), ("unsure", "open"), ("unsure", "model"),
         ("none", "model")]
    ),
    st.booleans(),
)  # fmt: skip
def test_sentences_are_the_least_sure(seed, count, by, what, again):
    look, known, sampled = draw_pool(seed)
    strategy = SequenceQueries(count, by, what[0], 0.75, what[1], again=again)
    found = propose(look, known, strategy, sampled=sampled)
    asked, guesses, chosen, able = plain_sentences(look, known, strategy, sampled)
    assert [(q.sentence, t) for q in found.queries for t in range(q.start, q.stop)] == asked
    assert found.guesses.tolist() == guesses
    assert found.labels.tolist() == look.labels[guesses].tolist()
    assert found.sampled.tolist() == chosen
    assert informative(look, known, strategy, sampled=sampled) == able
    assert found.tokens == len(asked)
    ends = {(q.sentence, q.stop) for q in found.queries}
    assert not ends & {(q.sentence, q.start) for q in found.queries}  # neighbours are one query


def test_a_sentence_without_a_legal_labelling_is_never_asked():
    look = Look(
        np.array([-1, -1, 0]), np.array([1.0, 1.0, 0.2]), np.array([2, 1]),
        {"viterbi": np.array([-9.0, -1.0])}, np.zeros(3), np.zeros(3),
    )  # fmt: skip
    nothing = np.zeros(3, bool)
    strategies = (
        TokenQueries(9, 1.0),
        SpanQueries(2, 9, 1.0),
        SequenceQueries(9),
        SequenceQueries(9, keep_sure="model"),
    )
    for strategy in strategies:
        found = propose(look, nothing, strategy)
        assert {q.sentence for q in found.queries} <= {1}
        assert 0 not in found.guesses


# ------------------------------------------------------------------------------------- start


@given(st.lists(st.integers(0, 4), max_size=9), st.integers(0, 10))
def test_first_sentences_by_length(lengths, count):
    there = [i for i, n in enumerate(lengths) if n]
    array = np.array(lengths, np.int64)
    longest = sorted(there, key=lambda i: (-lengths[i], i))[:count]
    shortest = sorted(there, key=lambda i: (lengths[i], i))[:count]
    assert first_sentences(array, count).tolist() == longest
    assert first_sentences(array, count, "shortest").tolist() == shortest
    drawn = first_sentences(array, count, "random", 3).tolist()
    assert len(set(drawn)) == len(drawn) == min(count, len(there))
    assert set(drawn) <= set(there)
    assert drawn == first_sentences(array, count, "random", 3).tolist()


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TokenQueries(0), "count: expected a whole number, 1 or more"),
        (lambda: TokenQueries(5, 0.0), "threshold: expected a number above 0"),
        (lambda: TokenQueries(per_sentence=0), "per_sentence: expected a whole number, 1 or more"),
        (lambda: TokenQueries(per_form=0), "per_form: expected a whole number, 1 or more"),
        (lambda: GroupQueries(""), "alike: expected a template"),
        (lambda: GroupQueries(count=0), "count: expected a whole number, 1 or more"),
        (lambda: GroupQueries(threshold=0.0), "threshold: expected a number above 0"),
        (lambda: GroupQueries(per_sentence=0), "per_sentence: expected a whole number, 1 or more"),
        (lambda: TokenQueries(5, 1.5), "threshold: expected a number above 0"),
        (lambda: SpanQueries(0), "width: expected a whole number"),
        (lambda: SequenceQueries(ask="none"), "would never add one"),
    ],
)
def test_strategies_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_looks_that_lack_what_is_needed_are_refused():
    look, nothing = Look(np.zeros(2, int), np.ones(2), np.array([2])), np.zeros(2, bool)
    with pytest.raises(ValueError, match=r"look\.sequence: expected 'entropy'"):
        propose(look, nothing, SequenceQueries(by="entropy"))
    with pytest.raises(ValueError, match="look: expected one with entropies"):
        propose(look, nothing, SpanQueries())
    with pytest.raises(ValueError, match=r"look\.forms: expected the word forms"):
        propose(look, nothing, TokenQueries(per_form=1))
    with pytest.raises(ValueError, match=r"look\.groups: expected the groups"):
        propose(look, nothing, GroupQueries())
    with pytest.raises(ValueError, match="known: expected bool"):
        propose(look, np.zeros(3, bool), TokenQueries())
    with pytest.raises(ValueError, match=r"confidence: expected shape \[2\]"):
        Look(np.zeros(2, int), np.ones(3), np.array([2]))
