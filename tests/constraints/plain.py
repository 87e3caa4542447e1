"""What each rule counts, on lists of strings: written from its description, with nothing shared.

A labelling is cut into runs, a run being a field with its first and last position; every rule
about fields is a statement about runs. Nothing of jaxseq is used here.
"""

import itertools

import numpy as np

OUTSIDE = "O"


def field(label, scheme):
    """The field that a label is of."""
    if scheme != "plain" and label[:2] in ("B-", "I-", "E-", "S-"):
        return label[2:]
    return label


def runs(labels, scheme):
    """[field, first, last] of every stretch of one field, in their order."""
    found = []
    for t, label in enumerate(labels):
        opens = scheme != "plain" and label[:2] in ("B-", "S-")
        if found and found[-1][0] == field(label, scheme) and not opens:
            found[-1][2] = t
        else:
            found.append([field(label, scheme), t, t])
    return found


def is_named(label, names, scheme):
    return label in names or field(label, scheme) in names


def fields_named(names, scheme, labels):
    """Fields of the names, in their order; all but the outside for None."""
    if names is None:
        return {field(label, scheme) for label in labels} - {OUTSIDE}
    return list(dict.fromkeys(field(name, scheme) for name in names))


# ------------------------------------------------------- rules: (marks, labels, scheme, …) → count


def words_imply(marks, labels, scheme, names):
    return sum(m and not is_named(y, names, scheme) for m, y in zip(marks, labels))


def only_on(marks, labels, scheme, names):
    return sum(is_named(y, names, scheme) and not m for m, y in zip(marks, labels))


def transitions_only_on(marks, labels, scheme, side):
    count = 0
    for _, first, _ in runs(labels, scheme)[1:]:
        before, after = marks[first - 1], marks[first]
        fine = {"before": before, "after": after, "either": before or after}[side]
        count += not fine
    return count


def starts_with(marks, labels, scheme, names):
    return sum(not is_named(label, names, scheme) for label in labels[:1])


def ends_with(marks, labels, scheme, names):
    return sum(not is_named(label, names, scheme) for label in labels[-1:])


def at_most_once(marks, labels, scheme, names=None):
    chosen = fields_named(names, scheme, labels)
    kinds = [kind for kind, _, _ in runs(labels, scheme) if kind in chosen]
    return len(kinds) - len(set(kinds))


def must_appear(marks, labels, scheme, names):
    there = {kind for kind, _, _ in runs(labels, scheme)}
    return sum(kind not in there for kind in fields_named(names, scheme, labels))


def order(marks, labels, scheme, names):
    chosen = fields_named(names, scheme, labels)
    places = [chosen.index(kind) for kind, _, _ in runs(labels, scheme) if kind in chosen]
    return sum(any(later > place for later in places[:i]) for i, place in enumerate(places))


def field_length(marks, labels, scheme, at_least, at_most, names=None):
    chosen, count = fields_named(names, scheme, labels), 0
    for kind, first, last in runs(labels, scheme):
        length = last - first + 1
        if kind in chosen:
            count += length < at_least
            count += 0 if at_most is None else max(0, length - at_most)
    return count


def count(marks, labels, scheme, names, at_least, at_most, unit):
    counted = labels if unit == "words" else [labels[first] for _, first, _ in runs(labels, scheme)]
    number = sum(is_named(label, names, scheme) for label in counted)
    return (number < at_least) + (0 if at_most is None else max(0, number - at_most))


# ----------------------------------------------------------------------------------------- search


def score(nodes, edges, path):
    """Of a path of numbers; edges are [s, s], or [n − 1, s, s]."""
    total = sum(float(nodes[t][y]) for t, y in enumerate(path))
    for t in range(len(path) - 1):
        table = edges if np.ndim(edges) == 2 else edges[t]
        total += float(table[path[t]][path[t + 1]])
    return total


def judge(nodes, edges, path, counters):
    """(violations of hard rules, score less soft penalties); counters: path → count, with ρ."""
    hard, total = 0, score(nodes, edges, path)
    for counter, penalty in counters:
        found = counter(path)
        if penalty == float("inf"):
            hard += found
        elif found:
            total -= penalty * found
    return hard, total


def best(nodes, edges, length, counters, k):
    """The k best of all labellings: [(hard, score, path)], those that are possible."""
    s = len(nodes[0])
    judged = []
    for path in itertools.product(range(s), repeat=length):
        hard, total = judge(nodes, edges, path, counters)
        if total > float("-inf"):
            judged.append((hard, total, path))
    return sorted(judged, key=lambda item: (item[0], -item[1], item[2]))[:k]
