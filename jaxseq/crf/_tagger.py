"""The estimator."""

from __future__ import annotations

import numbers
import os
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from jax.sharding import Mesh
from sklearn.utils.validation import check_is_fitted

from jaxseq._runtime import forget_programs
from jaxseq.crf._decoding import ScoredSentences, best_labels
from jaxseq.crf._model import CRF
from jaxseq.crf._parameters import WeightSet, carry_over, make_spread
from jaxseq.crf._problem import (
    Problem,
    Vocabulary,
    check_vocabulary,
    encode_problem,
    read_both,
)
from jaxseq.crf._score_gradient import EntropyGradient
from jaxseq.crf._search import Fitted, search
from jaxseq.crf._settings import EntropyTerm, ExpectationMethod, Plan, Schedule
from jaxseq.expectations import (
    Expectation,
    check_expectations,
    encode_expectations,
    label_shares,
)
from jaxseq.parallel import Devices
from jaxseq.taggers import (
    Label,
    SequenceTagger,
    check_number,
    check_sentences,
    check_stored_numbers,
    check_unlabelled,
    register_kind,
    warn_of_drift,
)
from jaxseq.text import (
    GENERAL,
    DictExtractor,
    FeatureExtractor,
    TemplateExtractor,
    Templates,
    WordRepresentation,
    extractor_from_state,
    find_representation,
    read_corpus,
    tokens_are_attributes,
)


@register_kind("crf")
class CRFTagger(SequenceTagger):
    r"""A linear-chain conditional random field for tagging, with scikit-learn's interface.

    Minimises the negative log-likelihood of the labels plus
    :math:`\mathtt{l1} \|w\|_1 + \mathtt{l2} \|w\|^2 / 2`. (CRFsuite's c2 is half of this l2.) With
    unlabelled sentences, γ times the entropy of the model on them is added; see `fit`.

    Args:
        templates: how sentences become attributes: a `jaxseq.text.Templates` or a list of template
            strings. None takes `jaxseq.text.GENERAL`, which reads the words alone (any other column
            may be what is to be learnt; `jaxseq.text.general_templates` is for more of them);
            tokens that come with their attributes (see `fit`) keep those.
        l1: strength of the penalty on absolute values.
        l2: strength of the penalty on squares; None takes 5e-6 for each labelled token, at least
            0.001 and at most 1. `jaxseq.choose_l2` finds one by cross-validation.
        max_iterations: of L-BFGS, at most.
        seed: of the order of mini-batches. L-BFGS draws no random numbers.
        weights: which pairs of attribute and label have a weight: ``"observed"``, those that occur
            together in the training data, and transitions that occur there (as in CRFsuite: fast,
            small; the other transitions weigh 0, and are not forbidden); ``"dense"``, all of them;
            ``"mixed"``, all for attributes on ten tokens and more, the observed for rarer ones
            (nearly as fast as observed, as accurate as dense); ``"tied"``, all, with labels of
            one type (``B-NP``, ``I-NP``) sharing theirs.
        cutoff: attributes that occur fewer times are ignored.
        scheme: ``"IOB2"``, ``"IOBES"``, …: forbid label sequences that it does not allow, in
            training and in prediction. None forbids nothing.
        algorithm: ``"lbfgs"``; or ``"adamw"`` and ``"sgd"`` by mini-batches, of which only one at
            a time is on the device.
        epochs: passes of the mini-batch algorithms over the data.
        batch_size: about so many sentences in a mini-batch.
        learning_rate: of the mini-batch algorithms; None takes one that suits the algorithm. Rates
            are for the loss of an average labelled sentence: with many times as many unlabelled
            ones, SGD may need less.
        tolerance: stop when ten iterations improve the objective by less than this part of it.
        memory_size: steps that L-BFGS remembers.
        cores: threads to train with; None takes all. The sum over sentences is in another order
            with another number, so that the last digits of the weights depend on it.
        progress: show a progress bar; None shows it on a terminal.
        checkpoint: a file to keep the unfinished search in, every `checkpoint_every` iterations (or
            every epoch), and when it ends early. If the file is there when `fit` starts, the search
            goes on from it, with the same result as if it had never stopped; a search that was
            over gives its model again. `save` removes it. It may go on with other cores, devices
            and processes. Clones of the tagger have none: the folds of a cross-validation would
            share it.
        dtype: ``"float32"``, or ``"float64"`` where JAX has 64-bit numbers switched on.
        representation: what was learnt of words from text without labels, of
            `jaxseq.representations.learn_representation`, or its file. Unless `templates` call it
            themselves, they get templates for the word and its neighbours more.
        classes: all labels, where the labelled sentences may not show every one of them: to be
            named in constraints, or learnt from unlabelled sentences. None for those of y.

    Attributes:
        classes_: the labels, sorted.
        model_: the `jaxseq.CRF`.
        extractor_: the features.
        l2_: the l2 that was trained with.
        loss_: the objective reached (by mini-batches: the loss summed over the last epoch, without
            penalties).
        n_iter_: iterations, those of the supervised start included.
        n_evaluations_: passes over the data, likewise.
        outcome_: why the search ended, a `jaxseq.Outcome`.
        seconds_: where the time of `fit` went.

    Example:
        >>> import jaxseq
        >>> tagger = jaxseq.CRFTagger(templates=["word[0]", "word[-1]"])
        >>> X = [["the", "dog", "barks"], ["a", "cat"]]
        >>> y = [["D", "N", "V"], ["D", "N"]]
        >>> tagger.fit(X, y).predict([["a", "dog", "barks"]])
        [['D', 'N', 'V']]

    References:
        Lafferty, McCallum & Pereira 2001; Tsuboi et al. 2008 for partial labels; Andrew & Gao 2007
        for l1; Jiao et al. 2006 and Mann & McCallum 2007 for unlabelled sentences.
    """

    model_: CRF
    _TRAINING: ClassVar = {
        "l2": "l2_",
        "loss": "loss_",
        "outcome": "outcome_",
        "iterations": "n_iter_",
        "evaluations": "n_evaluations_",
    }

    def __init__(
        self,
        templates: Templates | Sequence[str] | None = None,
        *,
        l1: float = 0.0,
        l2: float | None = None,
        max_iterations: int = 500,
        seed: int = 0,
        weights: WeightSet = "mixed",
        cutoff: int = 1,
        scheme: str | None = None,
        algorithm: Literal["lbfgs", "adamw", "sgd"] = "lbfgs",
        epochs: int = 20,
        batch_size: int = 64,
        learning_rate: float | None = None,
        tolerance: float = 1e-5,
        memory_size: int = 6,
        cores: int | None = None,
        progress: bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 25,
        dtype: Literal["float32", "float64"] = "float32",
        representation: WordRepresentation | str | os.PathLike[str] | None = None,
        classes: Collection[str] | None = None,
    ):
        self.templates = templates
        self.l1 = l1
        self.l2 = l2
        self.max_iterations = max_iterations
        self.seed = seed
        self.weights = weights
        self.cutoff = cutoff
        self.scheme = scheme
        self.algorithm = algorithm
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tolerance = tolerance
        self.memory_size = memory_size
        self.cores = cores
        self.progress = progress
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.dtype = dtype
        self.representation = representation
        self.classes = classes

    # ------------------------------------------------------------------------------ training

    def fit(
        self,
        X: Iterable[Any],
        y: Sequence[Sequence[Label]],
        *,
        unlabelled: Iterable[Any] | None = None,
        expectations: Sequence[Expectation] | None = None,
        expectation_method: ExpectationMethod = "gradient",
        entropy_weight: float | Schedule = 0.0,
        normalise_entropy: bool = True,
        entropy_gradient: EntropyGradient = "mann",
        vocabulary: Vocabulary = "all",
        sample_weight: Sequence[float] | None = None,
        warm_start_from: CRFTagger | None = None,
        mesh: Mesh | None = None,
        sentence_numbers: Sequence[int] | None = None,
    ) -> CRFTagger:
        r"""Train.

        With unlabelled sentences U, the objective to be maximised is that of Jiao et al.,

        .. math:: \sum_{(x, y)} \log p(y|x) - U(w)
                  + \gamma \sum_{x \in U} \sum_y p(y|x) \log p(y|x):

        of the models that explain the labels, those are preferred that are sure of the rest. By
        itself this makes them sure of the most frequent label in the end, so that `expectations`
        hold it: by default, that labels are about as frequent in U as in y. It is not concave; the
        search starts from the optimum without U.

        Args:
            X: sentences: `jaxseq.text.Sentence`, mappings from column to strings, or lists of
                words. Without templates also lists of tokens, each a dict or list of features, as
                for sklearn-crfsuite.
            y: for every sentence its labels; one may be a set of possible labels, or None.
            unlabelled: more sentences, of which no labels are known. One that `scheme` gives no
                labelling at all adds nothing.
            expectations: of the labels of the unlabelled sentences, of `jaxseq.expectations`; each
                takes its penalty from the objective. None is `label_shares` of y with a slack of
                1.5 and the weight of a tenth of the labelled tokens: it helps where the model
                misses labels. An empty list is none at all. By mini-batches there are none.
            expectation_method: ``"gradient"``, generalised expectation: the penalties are a part of
                the objective. ``"projection"``, posterior regularisation: the model learns from the
                nearest distribution that meets the expectations, and from that of the model which
                it becomes, ten times; all distances are squared ones, and it goes without entropy
                and checkpoints.
            entropy_weight: γ, 0 or more (0, without expectations, trains as if there were no
                unlabelled sentences, to the bit); or a schedule from the number of steps done to
                γ, as optax has them. L-BFGS looks at it every ten iterations, the mini-batch
                algorithms at every step.
            normalise_entropy: take the mean entropy of an unlabelled token, times the number of
                labelled tokens, in place of the sum in the formula: one γ then means the same for
                any number of unlabelled sentences.
            entropy_gradient: the derivation of the entropy's gradient: ``"mann"`` in O(ns²),
                ``"jiao"`` in O(n²s³), or ``"autodiff"``. All give the same model.
            vocabulary: where attributes are taken from (and counted, for `cutoff`): ``"all"``
                sentences, or the ``"labelled"`` ones alone. Those that no labelled sentence has
                get weights only if `weights` is ``"dense"`` or ``"tied"``: the others are for
                what occurs with labels.
            sample_weight: how much each sentence of X counts, 0 or more.
            warm_start_from: a trained tagger whose weights to begin with, for the attributes and
                labels that it shares with the new data; with unlabelled sentences, in place of the
                supervised optimum.
            mesh: devices to share the sentences out to, in place of `cores`; of
                `jaxseq.parallel.make_mesh`. For L-BFGS. Where it spans several processes, X, y and
                `unlabelled` are the part of this one, which may be empty; all call `fit` together,
                and all get the model, equal to that of one process up to rounding.
            sentence_numbers: with several processes, the place of each of X in the whole corpus, by
                which attributes are numbered; None where sentences were dealt out by turns.

        Returns:
            The tagger itself. After Ctrl-C it holds the model of the iteration that was then under
            way; a second Ctrl-C does not wait for that.

        Example:
            >>> import jaxseq
            >>> tagger = jaxseq.CRFTagger(templates=["word[0]", "word[-1]"])
            >>> X, y = [["the", "dog", "barks"]], [["D", "N", "V"]]
            >>> tagger.fit(X, y, unlabelled=[["the", "cat", "barks"]], entropy_weight=0.5)
            CRFTagger(templates=['word[0]', 'word[-1]'])
        """
        began = time.perf_counter()
        devices = Devices.from_mesh(mesh, sentence_numbers)
        with devices.agreeing():
            plan = Plan.from_tagger(self)
            if mesh is not None and plan.algorithm != "lbfgs":
                raise ValueError(f"algorithm: expected 'lbfgs' with a mesh, got {plan.algorithm!r}")
            term = EntropyTerm.from_arguments(entropy_weight, entropy_gradient)
            check_vocabulary(vocabulary)
            # Mini-batches do not know what share of all sentences a label has.
            usual = expectations is None and plan.algorithm == "lbfgs"
            if expectations is not None:
                expectations = check_expectations(expectations)
                if expectations and plan.algorithm != "lbfgs":
                    raise ValueError(
                        f"algorithm: expected 'lbfgs' with expectations, got {plan.algorithm!r}"
                    )
            projects = _check_method(expectation_method, expectations, term, plan)
            if not devices.is_alone:
                weight = term.weight  # a schedule is compared by its values: functions differ
                if callable(weight):
                    weight = term.pieces(plan.settings.max_iterations)
                devices.check_settings(
                    self.settings_to_json(),
                    {"entropy_weight": weight, "entropy_gradient": entropy_gradient},
                    {
                        "normalise_entropy": normalise_entropy,
                        "expectations": expectations,
                        "expectation_method": expectation_method,
                    },
                    {"vocabulary": vocabulary},
                    unlabelled=unlabelled,
                    warm_start_from=warm_start_from,
                    sentence_numbers=sentence_numbers,
                    checkpoint=self.checkpoint,
                )
            if unlabelled is not None:
                unlabelled = check_unlabelled(unlabelled)
            X = list(check_sentences(X))
            extractor = self._new_extractor([*X, *(unlabelled or ())], devices)
            _check_coverage(extractor, X)
            reading = time.perf_counter()
            features, other_features = read_both(
                extractor,
                X,
                # Without anything to add it is to train without them, to the bit.
                unlabelled if usual or expectations or not term.absent else None,
                vocabulary,
                devices,
            )
            read = time.perf_counter() - reading
            problem = encode_problem(
                extractor,
                features,
                other_features,
                y,
                scheme=self.scheme,
                transitions=self._learns_transitions(),
                classes=self.classes,
                sample_weight=sample_weight,
                devices=devices,
            )
            labelled_tokens = problem.labelled_tokens(devices)
            if unlabelled is not None and problem.unlabelled is not None:
                ratio = labelled_tokens / devices.total(int(problem.unlabelled.lengths.sum()))
                term = term.scaled(ratio) if normalise_entropy else term
                term = replace(term, projection=ratio) if projects else term
                if usual:
                    expectations = self._usual_expectations(problem, labelled_tokens, devices)
                if expectations:
                    encoded = encode_expectations(
                        expectations,
                        unlabelled,
                        problem.unlabelled.lengths,
                        problem.classes,
                        by_template=self.templates is not None,
                        devices=devices,
                    )
                    problem = replace(problem, expectations=encoded)
            plan = plan.scaled(labelled_tokens)
            spread = make_spread(problem, plan.weights, devices)
            start = None
            if warm_start_from is not None:
                if not isinstance(warm_start_from, CRFTagger):
                    raise ValueError(
                        "warm_start_from: expected a trained CRFTagger, got "
                        f"{warm_start_from!r:.60}"
                    )
                # Their attributes have the same names, and mean other words.
                older = getattr(warm_start_from, "extractor_", extractor)
                if _digest_of(older) != _digest_of(extractor):
                    raise ValueError(
                        "warm_start_from: expected a tagger with the same representation, got one "
                        "with another"
                    )
                model = carry_over(warm_start_from, extractor, problem.classes)
                start = spread.parameters(model)
        fitted = search(problem, plan, start, spread, term, devices)
        self._take(spread.model(fitted.parameters, problem.legal), problem.classes, extractor)
        self._report(fitted, plan)
        if problem.unlabelled is not None:
            predicted = best_labels(self.model_, problem.unlabelled)
            counts = np.bincount(predicted[predicted >= 0], minlength=len(problem.classes))
            warn_of_drift(problem.classes, problem.label_counts(devices), devices.sum(counts))
        self.seconds_ = {"features": read, **fitted.seconds, "all": time.perf_counter() - began}
        return self

    @staticmethod
    def _usual_expectations(
        problem: Problem, labelled_tokens: float, devices: Devices
    ) -> list[Expectation]:
        """That labels are about as frequent as where they are known; none where no label is."""
        counts = problem.label_counts(devices)
        if not counts.sum():
            return []
        # By way of the counts, which are of all processes.
        each = ([label] * int(count) for label, count in zip(problem.classes, counts))
        weight = USUAL_WEIGHT * labelled_tokens
        return [label_shares(each, slack=USUAL_SLACK, weight=weight)]

    def _take(self, model: CRF, classes: list[str], extractor: FeatureExtractor) -> None:
        self.model_, self.extractor_ = model, extractor
        self.classes_ = np.array(classes, dtype=object)

    def _report(self, fitted: Fitted, plan: Plan) -> None:
        """How the search went."""
        self.l2_ = plan.l2
        self.loss_, self.outcome_ = fitted.loss, fitted.outcome
        self.n_iter_, self.n_evaluations_ = fitted.iterations, fitted.evaluations
        self._remove_when_saved(fitted.unsaved)

    def _learns_transitions(self) -> bool:
        return not isinstance(self.templates, Templates) or self.templates.transitions

    def _new_extractor(self, X: list[Any], devices: Devices | None = None) -> FeatureExtractor:
        """What makes features of sentences such as these."""
        representation = find_representation(self.representation)
        templates = GENERAL if self.templates is None else self.templates
        # One process may have no sentences to tell by.
        if self.templates is None and (devices or Devices.alone()).any(tokens_are_attributes(X)):
            if representation is not None:
                raise ValueError(
                    "representation: expected none where sentences come with their attributes"
                )
            return DictExtractor(cutoff=self.cutoff)
        if isinstance(templates, str) or not isinstance(templates, Templates | Sequence):
            raise ValueError(
                f"templates: expected a list of templates, a Templates or None, got "
                f"{templates!r:.60}"
            )
        if representation is not None:
            templates = templates if isinstance(templates, Templates) else Templates(templates)
            if not templates.need_representation:
                templates = templates.extended(representation.templates())
        return TemplateExtractor(templates, self.cutoff, representation)

    # ---------------------------------------------------------------------------- prediction

    def _scored(self, X: Iterable[Any]) -> ScoredSentences:
        check_is_fitted(self, "model_")
        forget_programs()
        sentences = list(check_sentences(X))  # read twice: for features, and by constraints
        return ScoredSentences(self.model_, self.extractor_.transform(sentences), sentences)

    # ---------------------------------------------------------------------------- inspection

    def top_features(self, label: str, count: int = 20) -> list[tuple[str, float]]:
        """The attributes that speak most for a label, and their weights, largest first."""
        check_is_fitted(self, "model_")
        classes = self.classes_.tolist()
        if label not in classes:
            raise ValueError(f"label: expected one of {classes}, got {label!r}")
        check_number("count", count, 0, numbers.Integral)
        column = np.asarray(self.model_.weights[:, classes.index(label)])
        names = self.extractor_.attribute_names()
        return [(names[i], float(column[i])) for i in np.argsort(-column, kind="stable")[:count]]

    def top_transitions(self, count: int = 20) -> list[tuple[str, str, float]]:
        """The transitions with the largest weights: (from, to, weight)."""
        check_is_fitted(self, "model_")
        check_number("count", count, 0, numbers.Integral)
        scores = np.asarray(self.model_.transitions)
        order = np.argsort(-scores, axis=None, kind="stable")[:count]
        pairs = (divmod(int(index), len(scores)) for index in order)
        names = self.classes_
        return [(str(names[i]), str(names[j]), float(scores[i, j])) for i, j in pairs]

    # ------------------------------------------------------------------------------- storage

    def settings_to_json(self) -> dict[str, Any]:
        """The parameters, as JSON can hold them; templates as they are written in files."""
        settings = super().settings_to_json()
        templates = settings["templates"]
        if templates is not None:
            chosen = templates if isinstance(templates, Templates) else Templates(templates)
            settings["templates"] = chosen.to_json()
        # Which one it is; all of it is stored with the features.
        representation = find_representation(settings.pop("representation", None))
        if representation is not None:
            settings["representation"] = representation.digest
        if settings["classes"] is None:  # as in models written before there were any
            del settings["classes"]
        return settings

    @classmethod
    def settings_from_json(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Arguments of the constructor, from what `settings_to_json` gave."""
        settings = super().settings_from_json(settings)
        if settings["templates"] is not None:
            settings["templates"] = Templates.from_json(settings["templates"])
        settings.pop("representation", None)  # `_restore` takes it from the features
        return settings

    def _describe(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        model, (features, arrays) = self.model_, self.extractor_.state()
        arrays = {f"{FEATURES}{name}": np.ascontiguousarray(a) for name, a in arrays.items()}
        weights = np.asarray(model.weights)
        # Most weights are 0 where only observed pairs are learnt, or with l1.
        places = np.flatnonzero(weights)
        if len(places) < SPARSE * weights.size:
            arrays["weight_places"] = places.astype(np.int64)
            arrays["weight_values"] = weights.ravel()[places]
        else:
            arrays["weights"] = np.ascontiguousarray(weights)
        for name in (*SCORES, "edge_weights"):
            if getattr(model, name) is not None:
                arrays[name] = np.asarray(getattr(model, name))
        return {"attributes": model.num_attributes, "features": features}, arrays

    def _restore(
        self, about: dict[str, Any], labels: list[str], arrays: dict[str, np.ndarray]
    ) -> None:
        features = {
            name.removeprefix(FEATURES): array
            for name, array in arrays.items()
            if name.startswith(FEATURES)
        }
        extractor = extractor_from_state(about["features"], features)
        expected = about["settings"].get("representation")
        if _digest_of(extractor) != expected:
            raise ValueError(
                f"representation: expected the one with the digest {expected!r:.80}, got another"
            )
        if isinstance(extractor, TemplateExtractor):
            self.representation = extractor.representation
        if extractor.attribute_count != about["attributes"]:
            raise ValueError(
                f"attributes: expected {extractor.attribute_count}, as many as the features have, "
                f"got {about['attributes']!r:.80}"
            )
        tables = {"weights": _stored_weights(arrays, (extractor.attribute_count, len(labels)))}
        pairs = arrays.get("edge_weights")
        if (0 if pairs is None else len(pairs)) != extractor.edge_attribute_count:
            raise ValueError(f"edge_weights: expected {extractor.edge_attribute_count} tables")
        if pairs is not None:
            tables["edge_weights"] = pairs
        scores = {name: arrays[name] for name in SCORES}
        check_stored_numbers(tables)
        check_stored_numbers(scores, forbidden_may_be=True)
        self._take(CRF(**tables, **scores), labels, extractor)


def _check_method(
    method: Any, expectations: list[Expectation] | None, term: EntropyTerm, plan: Plan
) -> bool:
    """Whether expectations are met by projection; ValueError where that cannot be."""
    if method not in get_args(ExpectationMethod):
        raise ValueError(
            f"expectation_method: expected one of {list(get_args(ExpectationMethod))}, got "
            f"{method!r:.60}"
        )
    if method == "gradient":
        if any(each.weight == np.inf for each in expectations or ()):
            raise ValueError(
                "expectations: expected finite weights unless expectation_method is 'projection'"
            )
        return False
    if plan.algorithm != "lbfgs" or not term.absent or plan.checkpoint is not None:
        raise ValueError(
            "expectation_method: expected 'gradient' with an entropy_weight, a checkpoint or "
            "mini-batches, got 'projection'"
        )
    return True


def _digest_of(extractor: FeatureExtractor) -> str | None:
    """Which representation the features are made with; None for none."""
    representation = getattr(extractor, "representation", None)
    return None if representation is None else representation.digest


def _check_coverage(extractor: FeatureExtractor, X: list[Any]) -> None:
    """ValueError where the representation is of other words than the sentences: of no use."""
    representation = getattr(extractor, "representation", None)
    if representation is None:
        return
    column = read_corpus(X, [representation.column])[0][representation.column]
    if column.strings and not representation.coverage(column.strings):
        raise ValueError(
            f"representation: expected one that knows words of X, got one that knows none of "
            f"{len(column.strings)}"
        )


USUAL_WEIGHT = 0.1
"""Of label shares, per labelled token, unless others are asked for."""

USUAL_SLACK = 1.5
"""Of label shares, unless others are asked for. Exact ones gain more where unlabelled text is just
like the labelled one, and lose much where it is not."""

FEATURES = "features."
"""Prefix of the names of the extractor's arrays in files."""

SCORES = ("transitions", "start", "stop")
"""Arrays of the model that may be −inf, by the scheme."""

SPARSE = 0.25
"""Weights of which fewer than this part are not zero are stored as places and values."""


def _stored_weights(arrays: dict[str, np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    if "weights" in arrays:
        weights = arrays["weights"]
        if weights.shape != shape:
            raise ValueError(f"weights: expected shape {list(shape)}, got {list(weights.shape)}")
        return weights
    places, values = arrays["weight_places"], arrays["weight_values"]
    weights = np.zeros(shape[0] * shape[1], values.dtype)
    # A negative place would be counted from the end, and one that is too large crash.
    if places.shape != values.shape or ((places < 0) | (places >= len(weights))).any():
        raise ValueError(f"weight_places: expected places in a table of shape {list(shape)}")
    weights[places] = values
    return weights.reshape(shape)
