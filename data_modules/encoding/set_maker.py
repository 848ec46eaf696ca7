"""Sets of questions, pairs and groups from their sources: out of the cache, or made in memory.

    maker = SetMaker(tokenizer=..., encoding=..., interventions=..., data_cache=cache)
    data = maker.qa_set("squad.json", 0, ["os", "ts_r"])

What is stored, each under its own key: the questions of a source; every variant of them; the windows of a
variant under one tokenizer and encoding; pairs; groups, and their rows. So another encoding perturbs nothing
anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from data_modules.encoding.arrow_rows import in_chunks, map_chunks, write_tables
from data_modules.encoding.data_cache import DataCache, Entry, NotPreparedError, source_digest
from data_modules.encoding.pairs import PairSet, pair_up
from data_modules.encoding.sets import GroupSet, GroupVocabulary, QASet, group_vocabulary, has_unknown
from data_modules.encoding.stored_groups import MakeGroupRows, StoredGroupFeatures, StoredGroups, group_table
from data_modules.encoding.stored_pairs import MakePairs, StoredPairFeatures, StoredPairs
from data_modules.encoding.stored_questions import (
    MakeVariant,
    MakeWindows,
    StoredExamples,
    StoredFeatures,
    example_table,
)
from data_modules.encoding.tokenizers import tokenizer_files
from data_modules.encoding.windows import Encoding
from data_modules.interventions.augmentation import TEMPLATES
from data_modules.interventions.variants import (
    AUGMENTED,
    Interventions,
    intervene,
    sentences_for,
    tell,
    with_rationales,
)
from data_modules.schema import Group, QAExample, Variant
from data_modules.sources import read_questions
from storage.errors import DataError

_TOLD = {"windows": "questions", "pairs": "pairs", "rows": "groups"}
"""What is tokenised, by the stem of its files."""


class SetMaker:
    """Makes sets. Where a cache that makes nothing lacks them, and where there is no cache, in memory.

    Args:
        tokenizer: a fast tokenizer of transformers.
        encoding: how text becomes rows.
        interventions: how variants are made.
        skip_bad: leave out and count bad records.
        data_cache: where prepared data are; None: nowhere.
        processes: how many do the same; with more than one, no language model is asked in memory.
    """

    def __init__(
        self,
        *,
        tokenizer: Any,
        encoding: Encoding,
        interventions: Interventions,
        skip_bad: bool = False,
        data_cache: DataCache | None = None,
        processes: int = 1,
    ) -> None:
        self.tokenizer, self.encoding, self.how, self.skip_bad = tokenizer, encoding, interventions, skip_bad
        self.data_cache, self.processes = data_cache, processes
        self.generated: list[str] = []
        """SHA-256 of every variant that a language model wrote for, which may write otherwise elsewhere."""
        # Several sets have the same questions: each is read, looked up and looked at once.
        self._questions = cache(self._read_questions)
        self._variant = cache(self._make_variant)
        self._stored = cache(self._stored_variant)
        self._digest = cache(source_digest)

    def examples(self, source: str, limit: int, variant: Variant) -> Sequence[QAExample]:
        """One variant of the first `limit` questions of a source (0: of all).

        Raises:
            DataError: no question is left, or they cannot be read.
        """
        try:
            return StoredExamples(self._stored(source, limit, variant).files("questions"))
        except NotPreparedError:
            self._only_in_memory()
            return self._variant(source, limit, variant)

    def qa_set(
        self, source: str, limit: int, variants: Sequence[Variant], *, may_abstain: bool | None = None
    ) -> QASet:
        """Questions in several variants, one variant after the other."""
        try:
            entries = [self._stored(source, limit, variant) for variant in variants]
            sets = [entry.files("questions") for entry in entries]
            windows = [self._windows(entry).files("windows") for entry in entries]
        except NotPreparedError:
            self._only_in_memory()
            listed = [example for v in variants for example in self._variant(source, limit, v)]
            return QASet(listed, self.tokenizer, self.encoding, may_abstain=may_abstain)
        parts = [(files, len(StoredExamples(of))) for files, of in zip(windows, sets, strict=True)]
        return QASet(
            StoredExamples([file for files in sets for file in files]),
            self.tokenizer,
            self.encoding,
            may_abstain=may_abstain,
            features=StoredFeatures(parts),
        )

    def qa_sets(self, source: str, limit: int, variants: Sequence[Variant]) -> list[QASet]:
        """A set for each variant; they agree on whether a question may be left unanswered."""
        abstain = any(has_unknown(self.examples(source, limit, variant)) for variant in variants)
        return [self.qa_set(source, limit, [variant], may_abstain=abstain) for variant in variants]

    def pair_set(self, source: str, limit: int, variant: Variant) -> PairSet:
        """The originals beside one variant of each."""
        try:
            entries = [self._stored(source, limit, v) for v in ("os", variant)]
            original, changed = (StoredExamples(entry.files("questions")) for entry in entries)
            pairs = StoredPairs(original, changed)
            make = MakePairs(pairs, self.tokenizer, self.encoding)
            entry = self._encoded("pairs", [entry.digest for entry in entries], make, len(pairs))
        except NotPreparedError:
            self._only_in_memory()
            listed = pair_up(*(self._variant(source, limit, v) for v in ("os", variant)))
            return PairSet(listed, self.tokenizer, self.encoding)
        features = StoredPairFeatures(entry.files("pairs"))
        return PairSet(pairs, self.tokenizer, self.encoding, features=features)

    def group_set(
        self, sources: Sequence[str], options: Mapping[str, Any], read: Callable[[], list[Group]]
    ) -> GroupSet:
        """The groups that `read` takes from `sources`; `options` (JSON) is all else that they depend on."""
        digests = {source: self._digest(source) for source in sources}
        depends = {"sources": digests, "skip_bad": self.skip_bad, "options": options}

        def make(folder: Path) -> dict[str, Any]:
            groups = read()
            subjects, attributes, ids = group_vocabulary(groups)
            chunks = in_chunks(zip(groups, ids, strict=True))
            tables = (group_table(*zip(*chunk, strict=True)) for chunk in chunks)
            write_tables(tables, folder / "groups.arrow")
            return {"subjects": subjects, "attributes": attributes}

        try:
            entry = self._open().get("groups", depends, make)
            stored = StoredGroups(entry.files("groups"))
            rows = MakeGroupRows(stored, self.tokenizer, self.encoding)
            encoded = self._encoded("rows", [entry.digest], rows, len(stored))
        except NotPreparedError:
            self._only_in_memory()
            return GroupSet(read(), self.tokenizer, self.encoding)
        attributes = [(category, name) for category, name in entry.about["attributes"]]
        vocabulary = GroupVocabulary(entry.about["subjects"], attributes, stored.ids())
        prepared = StoredGroupFeatures(encoded.files("rows")), vocabulary
        return GroupSet(stored, self.tokenizer, self.encoding, prepared=prepared)

    def _open(self) -> DataCache:
        if self.data_cache is None:
            raise NotPreparedError
        return self.data_cache

    def _only_in_memory(self) -> None:
        """Pass a missing entry on to who wanted to store it: what is made in memory would be of no use."""
        if self.data_cache is not None and self.data_cache.makes:
            raise NotPreparedError

    def _stored_questions(self, source: str, limit: int) -> Entry:
        depends = {
            "source": source,
            "digest": self._digest(source),
            "limit": limit,
            "skip_bad": self.skip_bad,
        }

        def make(folder: Path) -> dict[str, Any]:
            chunks = in_chunks(islice(read_questions(source, skip_bad=self.skip_bad), limit or None))
            if not write_tables(map(example_table, chunks), folder / "questions.arrow"):
                _nothing_in(source)
            return {}

        return self._open().get("questions", depends, make)

    def _stored_variant(self, source: str, limit: int, variant: Variant) -> Entry:
        questions, how = self._stored_questions(source, limit), self.how
        if variant == "os" and how.rationale == "given":
            return questions
        depends: dict[str, Any] = {"of": questions.digest, "variant": variant, "rationale": how.rationale}
        if variant != "os":
            depends |= {"rules": asdict(how.rules), "skip_bad": self.skip_bad}
        asks = self._asks(variant)
        if variant in AUGMENTED:
            depends |= {"generator": how.generator, "cache": how.cache, "seed": how.seed}

        def make(folder: Path) -> dict[str, Any]:
            originals = StoredExamples(questions.files("questions"))
            sentences, failures = self._asked(originals, variant) if asks else (None, {})
            function = MakeVariant(originals, variant, how, self.skip_bad, sentences)
            map_chunks(function, len(originals), folder / "questions.arrow", f"making {variant}")
            made = StoredExamples(sorted(folder.glob("questions*.arrow")))
            tell(len(made), made.rejected, variant, source)
            return {"unfinished": bool(failures)}

        entry = self._open().get("variant", depends, make)
        if asks:
            self.generated.append(StoredExamples(entry.files("questions")).digest())
        return entry

    def _asks(self, variant: Variant) -> bool:
        """Whether a variant needs a language model."""
        return variant in AUGMENTED and self.how.generator != TEMPLATES

    def _asked(
        self, originals: StoredExamples, variant: Variant
    ) -> tuple[Mapping[str, str], Mapping[str, int]]:
        """The sentences of a language model, and its failures by reason."""
        listed = originals[:]
        if self.how.rationale == "answer_sentence":
            listed = with_rationales(listed)
        return sentences_for(listed, variant, self.how, skip_bad=self.skip_bad)

    def _windows(self, questions: Entry) -> Entry:
        examples = StoredExamples(questions.files("questions"))
        make = MakeWindows(examples, self.tokenizer, self.encoding)
        return self._encoded("windows", [questions.digest], make, len(examples))

    def _encoded(self, stem: str, of: list[str], function: Any, count: int) -> Entry:
        """The entry of what a tokenizer and an encoding make of others."""
        depends = {"of": of, "tokenizer": self._tokenizer_digest, "encoding": asdict(self.encoding)}

        def make(folder: Path) -> dict[str, Any]:
            map_chunks(function, count, folder / f"{stem}.arrow", f"tokenising {_TOLD[stem]}")
            return {}

        return self._open().get(stem, depends, make)

    @cached_property
    def _tokenizer_digest(self) -> str:
        files = {"class": type(self.tokenizer).__name__, **tokenizer_files(self.tokenizer)}
        return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()

    def _read_questions(self, source: str, limit: int) -> list[QAExample]:
        examples = list(islice(read_questions(source, skip_bad=self.skip_bad), limit or None))
        if not examples:
            _nothing_in(source)
        return with_rationales(examples) if self.how.rationale == "answer_sentence" else examples

    def _make_variant(self, source: str, limit: int, variant: Variant) -> list[QAExample]:
        if self.processes > 1 and self._asks(variant):
            raise DataError(
                f"data.interventions.generator: {self.how.generator} would be asked by every process; name a "
                "folder for prepared data (data.cache), or write rows with `python -m data_modules perturb` "
                "first, and give them as sources"
            )
        originals = self._questions(source, limit)
        return intervene(originals, variant, self.how, source, skip_bad=self.skip_bad).examples


def _nothing_in(source: str) -> NoReturn:
    raise DataError(f"{source}: holds no questions")
