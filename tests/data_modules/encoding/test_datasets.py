"""Sets of groups and of questions: ids, batches, and what is left without advice."""

from __future__ import annotations

from itertools import islice

from data_modules.batching.data_module import TrainSet
from data_modules.batching.group_set import GroupSet
from data_modules.batching.samplers import BatchIndex
from data_modules.batching.sets import QASet
from data_modules.encoding.windows import Encoding
from data_modules.schema import ADVICE_CLASSES, QAExample
from data_modules.stories.groups import groups
from data_modules.stories.questions import qa_examples
from tests.data_modules.fixtures.small_tokenizers import tokenizer

GROUPS = list(islice(groups("heldout"), 11))
BERT, XLNET = tokenizer("words_bert"), tokenizer("words_xlnet")


def long_questions() -> list[QAExample]:
    """Nine questions with one to five windows each."""
    base = next(qa_examples("dev"))
    return [
        QAExample(str(i), " ".join([base.context] * (i % 3 + 1)), base.question, base.answers)
        for i in range(9)
    ]


def test_group_ids_name_subjects_attributes_and_classes() -> None:
    data = GroupSet(GROUPS, BERT, Encoding())
    assert len(data) == len(GROUPS)
    assert data.groups == GROUPS
    assert data.ids.subjects == sorted(data.ids.subjects)
    batch = data[[3, 0]]
    for b, i in enumerate((3, 0)):
        group = GROUPS[i]
        assert tuple(data.ids.subjects[x] for x in batch.subject_BS[b]) == group.subjects
        assert data.ids.attributes[batch.attribute_B[b]] == (group.category, group.attribute)
        assert ADVICE_CLASSES[batch.advice_class_B[b]] == group.advice_class
    assert batch.inputs["input_ids"].shape[0] == 8
    assert batch.group_B.tolist() == [3, 0]


def test_an_index_builds_its_batch_and_leaves_out_absent_parts() -> None:
    group_set = GroupSet(GROUPS, BERT, Encoding())
    qa_set = QASet(long_questions(), BERT, Encoding())
    both = TrainSet(group_set, qa_set)[BatchIndex((1, 2), (0,))]
    assert both.groups is not None
    assert both.qa is not None
    assert both.groups.group_B.tolist() == [1, 2]
    assert both.qa.feature_B.tolist() == [0]
    assert TrainSet(group_set, qa_set)[BatchIndex((1,), ())].qa is None
    assert TrainSet(None, qa_set)[BatchIndex((), (0,))].groups is None
