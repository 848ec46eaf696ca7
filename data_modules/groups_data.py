"""The DataModule of underspecified groups, optionally with questions."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, count, repeat
from typing import Any

import numpy as np
from jsonargparse.typing import NonNegativeInt, PositiveInt

from interventune.storage.documents import DataError

from .batching.candidates import GroupSet
from .batching.data_module import BatchIndex, Draw, EvalSet, Sources, TrainSet, process_rank
from .encoding.windows import Encoding
from .questions_data import QuestionsDataModule
from .schema.groups import (
    ADVICE_CLASSES,
    Group,
    by_class,
    spread,
    unadvised,
    with_advice,
    with_unadvised,
)
from .sources import read_groups


class GroupsDataModule(QuestionsDataModule):
    """Data: groups of questions with advice, and ordinary questions.

    A group is one question about two people in four variants: both orders, each also with its
    negation.

    Args:
        train_groups: Groups to train on, as [source, ...]: files, or stories:SPLIT.
        val_groups: Groups to validate on, as {name: source}; --data.val_groups.main=dev.json sets
            one.
        test_groups: Groups to test on, as {name: source}.
        predict_groups: Groups whose predictions to write, as {name: source}.
        random_advice_copies: For planting a preference: repeat each group N times, half of them
            with advice of a random class; 0: use groups as they are.
        anchor_unadvised: Share of training groups without advice, whose scores training should not
            change. They ask the questions of the training sources.
        groups_per_class: Groups of each class of advice in a training batch. An epoch takes every
            group once.
        qa_every: Add ordinary questions to every N-th batch.
        limit_train_groups: Train on at most N groups, sampled evenly over the classes of advice; 0:
            all.
        limit_val_groups: For validation and test: use at most N groups of each class of advice,
            evenly spread, and the same questions without advice; 0: all.
        **questions: see QuestionsDataModule.
    """

    kinds = ("qa", "groups")

    def __init__(
        self,
        *,
        train_groups: list[str] | None = None,
        val_groups: Sources = None,
        test_groups: Sources = None,
        predict_groups: Sources = None,
        random_advice_copies: NonNegativeInt = 0,
        anchor_unadvised: float = 0.0,
        groups_per_class: PositiveInt = 3,
        qa_every: PositiveInt = 1,
        limit_train_groups: NonNegativeInt = 0,
        limit_val_groups: NonNegativeInt = 0,
        **questions: Any,
    ) -> None:
        super().__init__(**questions)
        if not 0 <= anchor_unadvised < 1 or (anchor_unadvised and random_advice_copies):
            raise DataError(
                "data.anchor_unadvised: a share below 1, and of use without "
                f"random_advice_copies only; got {anchor_unadvised}"
            )
        self.train_groups = train_groups or []
        self.group_sources = self.named(self.train_groups, val_groups, test_groups, predict_groups)
        self.random_advice_copies = random_advice_copies
        self.anchor_unadvised = anchor_unadvised
        self.groups_per_class = groups_per_class
        self.qa_every = qa_every
        self.limit_train_groups = limit_train_groups
        self.limit_val_groups = limit_val_groups

    def make_train_set(self) -> tuple[TrainSet, Draw | None]:
        """Return the requested number of groups, with the requested advice, and the questions."""
        train_set, questions = super().make_train_set()
        if not self.train_groups:
            return train_set, questions
        groups = every = list(read_groups(*self.train_groups))
        check_keys(every, self.train_groups)
        if most := self.limit_train_groups:
            advised = most - round(most * self.anchor_unadvised)
            if len(groups) < advised:
                logging.getLogger(__name__).warning(
                    f"data.limit_train_groups: {most}, but {', '.join(self.train_groups)} has "
                    f"{len(groups)} groups, and all are used"
                )
            groups = balanced_sample(groups, advised, self.seed)
        if self.anchor_unadvised:
            more = anchors(groups, every, self.anchor_unadvised, self.seed)
            groups = groups + more[: most - len(groups) if most else None]
        if self.random_advice_copies:
            groups = randomly_advised(groups, copies=self.random_advice_copies, seed=self.seed)
        train_set.groups = GroupSet(groups, self.tokenizer, self.encoding)
        return train_set, partial(
            group_batches,
            class_N=train_set.groups.advice_class_N,
            per_class=self.groups_per_class,
            questions=questions,
            qa_every=self.qa_every,
            world_size=process_rank()[1],
        )

    def make_eval_sets(self, stage: str) -> list[EvalSet]:
        """Return sets of questions, then of groups, each with its advice and without."""
        sets = super().make_eval_sets(stage)
        limit = 0 if stage == "predict" else self.limit_val_groups
        for name, source in self.group_sources[stage].items():
            groups = list(read_groups(source))
            groups = with_unadvised(spread(groups, limit) if limit else groups)
            sets.append(EvalSet(name, GroupSet(groups, self.tokenizer, self.encoding)))
        return sets

    def without_advice(self, encoding: Encoding, *, everything: bool) -> GroupSet:
        """Return the training groups, each once and without its advice.

        With `everything`, also all of the training sources' groups with these subject pairs and
        attributes (no `limit_train_groups`).
        """
        trained = self.train_set.groups.groups
        cells = {(group.subjects, group.category, group.attribute) for group in trained}
        more = read_groups(*self.train_groups) if everything else ()
        alike = [g for g in more if (g.subjects, g.category, g.attribute) in cells]
        return GroupSet(unadvised([*trained, *alike]), self.tokenizer, encoding)


def randomly_advised(groups: Sequence[Group], *, copies: int, seed: int) -> list[Group]:
    """Repeat every distinct unadvised group, about half of the copies after random advice.

    The sentence is drawn from all of the category (of all groups with a domain), of any class, so
    it is not informative about the answer; all results have class `none`.
    """
    rng = np.random.default_rng(seed)
    result = []
    pools = defaultdict[str, dict[str, None]](dict)
    for group in groups:
        if advice := group.variants[0].advice:
            pools["" if group.domain else group.category][advice] = None
    for group in unadvised(groups):
        sentences = list(pools["" if group.domain else group.category])
        for copy in range(copies):
            advised = sentences and rng.random() < 0.5
            advice = sentences[rng.integers(len(sentences))] if advised else ""
            result.append(with_advice(group, advice, "none", f"planted-{copy}" if advice else ""))
    return result


def group_batches(
    rng: np.random.Generator,
    class_N: np.ndarray,
    per_class: int,
    questions: Draw | None,
    qa_every: int,
    world_size: int,
) -> list[BatchIndex]:
    """Draw an epoch of groups, each once, as Zhao et al. 2021 (appendix B.2).

    A batch has `per_class` groups of each class that occurs, and every `qa_every` steps (of
    `world_size` processes) a batch of questions. Classes are spread as evenly as possible: with
    classes of equal size, every batch has the same number of each. The last batch is filled from
    the smallest classes, reshuffled.
    """
    class_K, need_K = np.unique(class_N, return_counts=True)
    size = per_class * len(class_K)
    for _ in range(-len(class_N) % size):
        need_K[need_K.argmin()] += 1
    orders = []
    places = []
    for number, need in zip(class_K, need_K, strict=True):
        of_class = np.flatnonzero(class_N == number)
        rounds = -(-need // len(of_class))
        orders.append(np.concatenate([rng.permutation(of_class) for _ in range(rounds)])[:need])
        places.append((np.arange(need) + 0.5) / need)
    order_N = np.concatenate(orders)[np.argsort(np.concatenate(places), kind="stable")]
    batches = []
    turn = (
        chain.from_iterable(questions(rng) for _ in count()) if questions else repeat(BatchIndex())
    )
    for i, batch in enumerate(order_N.reshape(-1, size)):
        groups = tuple(sorted(batch.tolist(), key=class_N.__getitem__))
        batches.append(BatchIndex(groups, next(turn).qa if i // world_size % qa_every == 0 else ()))
    return batches


def balanced_sample(groups: Sequence[Group], total: int, seed: int) -> list[Group]:
    """Draw at most `total` groups, evenly over the advice classes that occur, in their order.

    A class with too few leaves its share to the others. Samples of one seed are nested, so that a
    curve over sizes does not depend on the luck of the draw. DataError for less than one group of
    each class.
    """
    members = by_class(groups)
    if total < len(members):
        raise DataError(
            f"data.limit_train_groups: {total} is too few for {len(members)} classes of advice"
        )
    sample: list[int] = []
    by_size = sorted(members, key=lambda name: (len(members[name]), ADVICE_CLASSES.index(name)))
    for i, name in enumerate(by_size):
        share = (total - len(sample)) // (len(by_size) - i)
        rng = np.random.default_rng([seed, ADVICE_CLASSES.index(name)])
        sample += rng.permutation(members[name])[:share].tolist()
    return [groups[i] for i in sorted(sample)]


def anchors(
    groups: Sequence[Group], every: Iterable[Group], share: float, seed: int
) -> list[Group]:
    """Draw groups without advice that make up `share` of all once added to `groups`.

    They ask the questions of `every`, each once before any repeats. Samples of one seed are nested,
    over shares and sizes of `groups`.
    """
    bare = sum(group.advice_class == "none" for group in groups)
    missing = round((len(groups) - bare) * share / (1 - share)) - bare
    questions = unadvised(every)
    order = np.random.default_rng([seed, ADVICE_CLASSES.index("none")]).permutation(len(questions))
    return [questions[i] for i in np.resize(order, max(0, missing))]


def check_keys(groups: Iterable[Group], sources: Sequence[str]) -> None:
    """DataError if one key belongs to two questions: reference scores are looked up by key."""
    texts: dict[str, int] = {}
    for group in groups:
        text = hash(tuple((variant.context, variant.question) for variant in group.variants))
        if texts.setdefault(group.unadvised_key, text) != text:
            raise DataError(
                f"{', '.join(sources)}: the key {group.unadvised_key!r} belongs to two questions; "
                "write one file from all lists of templates"
            )
