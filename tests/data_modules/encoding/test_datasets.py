"""Groups of a set by their ids."""

from __future__ import annotations

from itertools import islice

from data_modules.batching.group_set import GroupSet
from data_modules.encoding.windows import Encoding
from data_modules.schema import ADVICE_CLASSES
from data_modules.stories.groups import groups
from tests.data_modules.fixtures.small_tokenizers import tokenizer

GROUPS = list(islice(groups("heldout"), 11))
BERT = tokenizer("words_bert")


def test_group_ids_name_subjects_attributes_and_classes() -> None:
    data = GroupSet(GROUPS, BERT, Encoding())
    assert data.groups == GROUPS
    assert data.ids.subjects == sorted(data.ids.subjects)
    batch = data[[3, 0]]
    assert batch.inputs["input_ids"].shape[0] == 8
    for b, i in enumerate((3, 0)):
        group = GROUPS[i]
        assert tuple(data.ids.subjects[x] for x in batch.subject_BS[b]) == group.subjects
        assert data.ids.attributes[batch.attribute_B[b]] == (group.category, group.attribute)
        assert ADVICE_CLASSES[batch.advice_class_B[b]] == group.advice_class
        assert batch.group_B[b] == i
