"""The loop of the terminal annotator: show a token, take a key, keep the answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxseq.cli._active_questions import questions_of
from jaxseq.cli._active_run import ActiveRun, lines_of
from jaxseq.cli._active_status import line_on_training
from jaxseq.cli._annotate_screen import Keys, Lines, Screen
from jaxseq.cli._annotate_state import Event, Retraction, Session, event_of, step


@dataclass(eq=False)
class Annotator:
    """A person at a terminal.

    Args:
        run: of which queries are answered. screen: that shows them. read_key: gives the keys.
        keys: of `assign_keys`.

    `kept` holds the sentence and the position of every token that was labelled, and is.
    """

    run: ActiveRun
    screen: Screen
    read_key: Keys | Lines
    keys: dict[str, str]
    kept: set[tuple[int, int]] = field(default_factory=set)

    def annotate(self) -> None:
        """Rounds, until the annotator quits or nothing is left to ask."""
        while True:
            self.run.learner.propose()
            # A round that is answered is not trained unasked: its last answer may be a slip.
            if not self.run.asked() and not self.run.next_queries(self.screen.say):
                self.screen.say(f"nothing to ask: {self.run.learner.status().why}")
                return
            if not self._label(self._open_session()):
                break
            self.screen.say("training")
            self.run.train()
            self.read_key.forget()
            self.screen.say("\n".join([line_on_training(self.run), *lines_of(self.run.report())]))
        folder = self.run.folder
        self.screen.say(
            f"{len(self.kept)} answers kept; go on with jaxseq active annotate {folder}"
        )

    def _open_session(self) -> Session:
        """Of the round: tokens that were answered, so that undo reaches them, and the others."""
        run, session = self.run, Session.of(questions_of(self.run, self.run.asked()))
        items = {(item.question.sentence, item.position): item for item in session.items}
        done = [token for token in run.answered_now() if token in items]
        still = [token for token in items if not run.is_answered(*token)]
        labels = (run.label_of(*token) for token in done)
        return Session(
            tuple(items[token] for token in [*done, *still]),
            place=len(done),
            given={
                place: label if isinstance(label, str) else " or ".join(label or ())
                for place, label in enumerate(labels)
            },
            trail=tuple(range(len(done))),
        )

    def _label(self, session: Session) -> bool:
        """A round: whether to train at its end."""
        while True:
            if session.is_done:
                self.screen.say(f"\nthe round is done: {self._choices()}")
            else:
                self.screen.show(session, self.run.classes)
            text = self.read_key()
            event = None if text is None else event_of(text, self.keys, self.run.classes)
            if text is None or (event is not None and event.kind == "quit"):
                return False
            if event is None:
                self.screen.say(f"{text!r}: expected one of the keys or labels shown")
            elif session.is_done and event.kind == "accept":
                return self._has_new_labels()
            else:
                session = self._take(session, event)

    def _take(self, session: Session, event: Event) -> Session:
        following, answer, message = step(session, event)
        if isinstance(answer, Retraction):
            self.run.learner.retract([answer])
            self.kept.discard((answer.sentence, answer.position))
        elif answer is not None:
            try:
                self.run.learner.answer([answer])
            except ValueError as error:  # a label that the scheme does not allow there
                self.screen.say(str(error))
                return session
            self.kept.add((answer.sentence, answer.position))
        if message:
            self.screen.say(message)
        return following

    def _choices(self) -> str:
        if self._has_new_labels():
            return "Enter trains and goes on, u undoes, q quits"
        return "every token was skipped, there is nothing to learn; u undoes, Enter or q quits"

    def _has_new_labels(self) -> bool:
        return any(
            self.run.is_answered(query.sentence, position)
            for query in self.run.asked()
            for position in range(query.start, query.stop)
        )
