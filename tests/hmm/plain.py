"""A hidden Markov model of dictionaries, by counting and by going through all labellings."""

import itertools
import math
from collections import Counter

UNKNOWN = object()
SMOOTHING = {"initial": 0.2, "transition": 0.2, "emission": 0.05}


def vocabulary_of(sentences, unknown_below):
    counts = Counter(word for sentence in sentences for word in sentence)
    return {word for word, count in counts.items() if count >= unknown_below}


def events(words, labels):
    """Every event of a sentence with its labels: (family, given, what)."""
    yield "initial", None, labels[0]
    for one, other in itertools.pairwise(labels):
        yield "transition", one, other
    for word, label in zip(words, labels):
        yield "emission", label, word


class PlainHMM:
    """Counts of events, as dictionaries, and the probabilities that they give."""

    def __init__(self, labels, vocabulary, counts):
        self.labels, self.vocabulary, self.counts = labels, vocabulary, counts
        self.totals = Counter()
        for (family, given, _), count in counts.items():
            self.totals[family, given] += count

    def known(self, sentence):
        return [word if word in self.vocabulary else UNKNOWN for word in sentence]

    def probability(self, event):
        return self.counts[event] / self.totals[event[:2]] if self.counts[event] else 0.0

    def joint(self, sentence, labels):
        """P(x, y)."""
        return math.prod(self.probability(event) for event in events(self.known(sentence), labels))

    def paths(self, sentence, allowed=None):
        """Every labelling that is allowed, with P(x, y)."""
        choices = [self.labels] * len(sentence) if allowed is None else allowed
        return {path: self.joint(sentence, path) for path in itertools.product(*choices)}

    def expected(self, sentences, allowed=None, hard=False):
        """Expected counts, or those of the best labelling; and Σ log P(x) or Σ log max P(x, y)."""
        found, value = Counter(), 0.0
        for index, sentence in enumerate(sentences):
            paths = self.paths(sentence, None if allowed is None else allowed[index])
            if hard:
                best = max(paths, key=paths.get)
                paths = {best: paths[best]}
            total = sum(paths.values())
            value += math.log(total)
            for path, probability in paths.items():
                for event in events(self.known(sentence), path):
                    found[event] += probability / total
        return found, value

    def marginals(self, sentence):
        """Probability of each label, a list of dictionaries."""
        paths = self.paths(sentence)
        total = sum(paths.values())
        return [
            {
                label: sum(p for y, p in paths.items() if y[t] == label) / total
                for label in self.labels
            }
            for t in range(len(sentence))
        ]


def all_events(labels, vocabulary):
    yield from (("initial", None, label) for label in labels)
    yield from (("transition", one, other) for one in labels for other in labels)
    yield from (("emission", label, word) for label in labels for word in [*vocabulary, UNKNOWN])


def smoothed(counts, labels, vocabulary, smoothing=SMOOTHING):
    return Counter({e: counts[e] + smoothing[e[0]] for e in all_events(labels, vocabulary)})


def counted(sentences, labellings, unknown_below=1, smoothing=SMOOTHING, also=()):
    """Relative frequencies of labelled sentences; the vocabulary is also that of `also`."""
    vocabulary = vocabulary_of([*sentences, *also], unknown_below)
    labels = sorted({label for labelling in labellings for label in labelling})
    model = PlainHMM(labels, vocabulary, Counter())
    counts = Counter()
    for sentence, labelling in zip(sentences, labellings):
        if sentence:
            counts.update(events(model.known(sentence), labelling))
    return PlainHMM(labels, vocabulary, smoothed(counts, labels, vocabulary, smoothing))


def em_step(
    model, counts_of_labelled, size_of_labelled, unlabelled, balance, frozen=(), hard=False
):
    """The next model of EM between labelled and unlabelled sentences, and Σ log P(x) before it."""
    expected, value = model.expected(unlabelled, hard=hard)
    following = Counter()
    for event in all_events(model.labels, model.vocabulary):
        if event[0] in frozen:
            following[event] = model.probability(event)
        else:
            following[event] = (1 - balance) * counts_of_labelled[event] / size_of_labelled
            following[event] += balance * expected[event] / len(unlabelled)
    return PlainHMM(model.labels, model.vocabulary, following), value


def assert_same_model(tagger, plain, rtol=1e-9):
    """Every probability of a trained tagger is that of the plain model."""
    model, names = tagger.model_.probabilities, tagger.classes_.tolist()
    words = [UNKNOWN, *tagger.vocabulary_.words]
    assert names == plain.labels
    assert set(words[1:]) == plain.vocabulary
    for j, label in enumerate(names):
        pairs = [(model.initial[j], ("initial", None, label))]
        pairs += [(model.transition[j, k], ("transition", label, n)) for k, n in enumerate(names)]
        pairs += [(model.emission[a, j], ("emission", label, w)) for a, w in enumerate(words)]
        for found, event in pairs:
            wanted = plain.probability(event)
            assert math.isclose(float(found), wanted, rel_tol=rtol, abs_tol=1e-14), (event, wanted)
