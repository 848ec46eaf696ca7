"""Sets of groups and of questions: ids, batches, and what is left without advice."""

from __future__ import annotations

from itertools import islice

from data_modules.batching.data_module import TrainSet
from data_modules.batching.group_set import GroupSet
from data_modules.batching.samplers import BatchIndex
from data_modules.batching.sets import QASet
from data_modules.encoding.windows import Encoding
from data_modules.schema import ADVICE_CLASSES
from data_modules.stories.groups import groups
from data_modules.stories.questions import qa_examples
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


def test_an_index_builds_its_batch_and_leaves_out_absent_parts() -> None:
    group_set = GroupSet(GROUPS, BERT, Encoding())
    qa_set = QASet(list(islice(qa_examples("dev"), 3)), BERT, Encoding())
    both = TrainSet(group_set, qa_set)[BatchIndex((1, 2), (0,))]
    assert both.groups is not None
    assert both.qa is not None
    assert (both.groups.group_B.tolist(), both.qa.feature_B.tolist()) == ([1, 2], [0])
    assert TrainSet(group_set, qa_set)[BatchIndex((1,), ())].qa is None
    assert TrainSet(None, qa_set)[BatchIndex((), (0,))].groups is None
