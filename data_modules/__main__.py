"""Write data sets: `python -m data_modules COMMAND --help` (each with an example)."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from data_modules.interventions import perturb_command
from data_modules.schema import Group
from data_modules.tasks import condaqa_command, feature_bias_command
from storage.errors import DataError

if TYPE_CHECKING:
    from data_modules.groups.advice import Advice
    from data_modules.groups.unqover import Expansion

UNQOVER_EXAMPLE = """example:
  python -m data_modules unqover --subjects nouns/subjects/religion --templates slots/religion_noact \\
      --attributes activities/biased_religion --output source.json
"""
LEI_EXAMPLE = """examples:
  400 groups a class, of parts that no group of train.json has:
    python -m data_modules lei --subjects nouns/subjects/religion --templates slots/religion_noact \\
        --attributes activities/biased_religion --interventions religion_interventions.json \\
        --disjoint-from train.json --per-class 400 --output test.json
  the test third of everything:  ... --split test --output test.json
  held-out keys of the same parts:  ... --like train.json --exclude train.json --output held_out.json
"""
STORIES_EXAMPLE = """example:
  python -m data_modules stories --split dev --kind groups --seed 0 --output stories_dev.json
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0, or 2 after `error: ...` on stderr for a user's mistake."""
    arguments = _parser().parse_args(argv)
    try:
        for output in (arguments.output, getattr(arguments, "qa_output", None)):
            _refuse_overwrite(output, arguments.overwrite)
        print(arguments.run(arguments))
    except (DataError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _refuse_overwrite(output: Path | None, overwrite: bool) -> None:
    if output is not None and output.exists() and not overwrite:
        raise DataError(f"{output}: already exists; choose another --output or add --overwrite")


def write_unqover(arguments: argparse.Namespace) -> str:
    """UnQover's source.json from lists."""
    from data_modules.groups.unqover_source import write_source

    records = write_source(_expansion(arguments), arguments.output)
    return f"{arguments.output}: {records} records, {2 * records} questions, {records // 2} groups"


def write_groups(arguments: argparse.Namespace) -> str:
    """A LEI file from lists and interventions."""
    from data_modules.groups.lei import write_lei

    counts: Counter[str] = Counter()
    groups = _counted(_drawn_groups(arguments), counts)
    if arguments.specified is None:
        write_lei(groups, arguments.output)
        return _summary(arguments.output, counts)
    return _write_specified(arguments, groups, counts)


def _write_specified(arguments: argparse.Namespace, groups: Iterable[Group], counts: Counter[str]) -> str:
    from data_modules.groups import specified
    from data_modules.groups.lei import write_lei
    from data_modules.groups.word_lists import read_attributes, read_subjects
    from data_modules.questions.squad import write_squad

    sentences = specified.read_sentences(arguments.specified)
    names = {subject.name.lower() for subject in read_subjects(arguments.subjects[0])}
    first_list = names if len(arguments.subjects) == 2 else set()
    plain = list(groups)
    known = {attribute.name.lower() for attribute in read_attributes(arguments.attributes)}
    specified.check_sentences(sentences, {group.attribute for group in plain}, known, arguments.specified)
    items = list(specified.specify_all(plain, sentences, gold=arguments.gold, first_list=first_list))
    write_lei((item.group for item in items), arguments.output)
    if arguments.qa_output is None:
        return _summary(arguments.output, counts)
    questions = write_squad(specified.gold_examples(items), arguments.qa_output)
    return f"{_summary(arguments.output, counts)}; {arguments.qa_output}: {questions} questions with answers"


def _drawn_groups(arguments: argparse.Namespace) -> Iterator[Group]:
    """The groups that the options ask for; nothing is built before it is drawn."""
    from data_modules.groups import sets as lei_sets
    from data_modules.groups.splits import split_parts
    from data_modules.sources import read_groups

    expansion = _expansion(arguments)
    advice = _advice(arguments)
    if advice:
        lei_sets.check_categories(expansion, advice)
    if arguments.split:
        parts = split_parts(expansion, advice, seed=arguments.seed, weights=arguments.split_sizes)
        expansion, advice = lei_sets.restrict(expansion, advice, to=parts[arguments.split])
    forbidden = [lei_sets.parts_of(read_groups(source)) for source in arguments.disjoint_from]
    expansion, advice = lei_sets.restrict(expansion, advice, without=forbidden)
    if arguments.like:
        wanted = lei_sets.parts_of(read_groups(arguments.like))
        wanted = replace(wanted, advice_ids=wanted.advice_ids or None)  # a file without advice restricts none
        lei_sets.check_known(
            wanted, expansion, None if arguments.no_advice else advice, f"--like {arguments.like}"
        )
        expansion, advice = lei_sets.restrict(expansion, advice, to=wanted)
    pools: lei_sets.Pools = {"none": expansion}
    if not arguments.no_advice:
        pools = lei_sets.advised_pools(expansion, advice, arguments.lead_in)
    held_out = lei_sets.HeldOut(group for source in arguments.exclude for group in read_groups(source))
    if not any(len(pool) for pool in pools.values()):
        raise DataError("no group is left: the restrictions exclude every subject pair, attribute or advice")
    if arguments.per_class is None:
        return lei_sets.everything(pools, held_out)
    return lei_sets.sample(pools, arguments.per_class, seed=arguments.seed, exclude=held_out)


def _expansion(arguments: argparse.Namespace) -> Expansion:
    from data_modules.groups.unqover import read_expansion

    return read_expansion(
        arguments.subjects,
        arguments.templates,
        arguments.attributes,
        filler=arguments.filler,
        mask=getattr(arguments, "mask", None),
    )


def _advice(arguments: argparse.Namespace) -> tuple[Advice, ...]:
    from data_modules.groups.advice import read_advice

    if arguments.no_advice:
        return ()
    if arguments.interventions is None:
        raise DataError("--interventions: give the file of advice sentences, or --no-advice to do without")
    return read_advice(arguments.interventions, arguments.classes)


def write_stories(arguments: argparse.Namespace) -> str:
    """The embedded data in the formats of SQuAD (qa) or LEI (groups)."""
    from data_modules.groups.lei import write_lei
    from data_modules.questions.squad import write_squad
    from data_modules.sources import read_groups, read_questions

    source = f"stories:{arguments.split}?seed={arguments.seed}"
    if arguments.kind == "qa":
        return f"{arguments.output}: {write_squad(read_questions(source), arguments.output)} questions"
    counts: Counter[str] = Counter()
    write_lei(_counted(read_groups(source), counts), arguments.output)
    return _summary(arguments.output, counts)


def _counted(groups: Iterable[Group], counts: Counter[str]) -> Iterator[Group]:
    for group in groups:
        counts[group.advice_class] += 1
        yield group


def _summary(output: Path, counts: Counter[str]) -> str:
    classes = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"{output}: {counts.total()} groups ({classes})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m data_modules", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    unqover = _command(commands, "unqover", "write UnQover's source.json from word lists", UNQOVER_EXAMPLE)
    _add_lists(unqover)
    unqover.add_argument("--mask", metavar="TOKEN", help="put in place of [mask] in language-model templates")
    unqover.set_defaults(run=write_unqover)
    lei = _command(commands, "lei", "write a LEI file from word lists and interventions", LEI_EXAMPLE)
    _add_lists(lei)
    _add_lei_options(lei)
    lei.set_defaults(run=write_groups)
    stories = _command(commands, "stories", "write the embedded data to a file", STORIES_EXAMPLE)
    stories.add_argument("--split", required=True, help="split of the embedded data, such as train or dev")
    stories.add_argument(
        "--kind", required=True, choices=("qa", "groups"), help="questions (SQuAD) or groups (LEI)"
    )
    stories.add_argument("--seed", type=int, default=0, help="seed of the generator (default 0)")
    stories.set_defaults(run=write_stories)
    summary = "write questions with their stories truncated or their rationales deleted"
    perturb = _command(commands, "perturb", summary, perturb_command.EXAMPLE)
    perturb_command.add_arguments(perturb)
    perturb.set_defaults(run=perturb_command.run)
    summary = "write pairs of passages with opposite answers from CondaQA"
    condaqa = _command(commands, "condaqa", summary, condaqa_command.EXAMPLE)
    condaqa_command.add_arguments(condaqa)
    condaqa.set_defaults(run=condaqa_command.run)
    _add_feature_bias(commands)
    return parser


def _add_feature_bias(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    summary = "write a task that tells which of two features is learned, from labelled texts"
    task = _command(commands, "feature-bias", summary, feature_bias_command.EXAMPLE)
    feature_bias_command.add_arguments(task)
    task.set_defaults(run=feature_bias_command.run)
    summary = "write the demonstrations of such a task as rows to fine-tune on"
    rows = _command(commands, "feature-bias-rows", summary, feature_bias_command.ROWS_EXAMPLE)
    feature_bias_command.add_rows_arguments(rows)
    rows.set_defaults(run=feature_bias_command.run_rows)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, example: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=example,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="file to write")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it exists")
    return parser


def _add_lists(parser: argparse.ArgumentParser) -> None:
    lists = parser.add_argument_group("word lists, in UnQover's format")
    lists.add_argument(
        "--subjects",
        nargs="+",
        required=True,
        metavar="FILE",
        help="one list, or two to be paired with each other (female male)",
    )
    lists.add_argument("--templates", required=True, metavar="FILE", help="contexts and questions with slots")
    lists.add_argument("--attributes", required=True, metavar="FILE", help="attributes and their negations")
    lists.add_argument("--filler", metavar="FILE", help="one line that goes before every context")


def _add_lei_options(parser: argparse.ArgumentParser) -> None:
    from data_modules.groups.advice import CLASSES, LEAD_IN
    from data_modules.groups.splits import SPLITS, WEIGHTS

    def option(name: str, text: str, **settings: object) -> None:
        parser.add_argument(name, help=text, **settings)  # type: ignore[arg-type]

    many: dict[str, object] = {"nargs": "+", "default": [], "metavar": "FILE"}
    option("--interventions", "JSON {class: {category: [sentence, ...]}}", metavar="FILE")
    option("--no-advice", "groups without any advice (class none)", action="store_true")
    option("--classes", "classes of advice to use", nargs="+", choices=CLASSES, default=CLASSES)
    option("--lead-in", f"words before the advice (default {LEAD_IN!r})", default=LEAD_IN)
    option("--like", "only subjects, attributes and advice that this file of groups has", metavar="FILE")
    option("--exclude", "leave out the groups (keys) of these files", **many)
    option("--disjoint-from", "leave out subjects, attributes and advice of these files", **many)
    option("--split", "only the parts of this split; splits share nothing but templates", choices=SPLITS)
    sizes: dict[str, object] = {
        "nargs": 3,
        "type": int,
        "default": WEIGHTS,
        "metavar": ("TRAIN", "DEV", "TEST"),
    }
    option("--split-sizes", "proportions of the splits (default 4 3 4)", **sizes)
    option("--per-class", "sample N groups of each class (default: all)", type=_positive, metavar="N")
    option("--seed", "seed of --split and --per-class (default 0)", type=int, default=0)
    option("--specified", "TSV: attribute, sentence with [subj] that decides the question", metavar="FILE")
    option(
        "--gold",
        "with --specified: whom the sentence names (first, second: of two subject lists)",
        choices=("balanced", "first", "second"),
        default="balanced",
    )
    option(
        "--qa-output",
        "with --specified: also write questions with answers, as SQuAD",
        type=Path,
        metavar="FILE",
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, found {text}")
    return value


if __name__ == "__main__":
    sys.exit(main())
