"""Wrong flags, configurations and output folders: one line names them, nothing is written."""

from pathlib import Path

import pytest

from tests.mistakes.conftest import everything_in, refused

LISTS = "--subjects {given}/subjects --templates {given}/templates --attributes {given}/attributes"
TINY = "--checkpoint {given}/bert.ckpt --device cpu"
RUN = "training fit -c lei_few_shot -c tiny_roberta -c {given}/small_run.yaml --run.root={out}/runs"
GOOD = {
    "unqover": f"data unqover {LISTS} --output {{out}}/x",
    "lei": f"data lei {LISTS} --interventions {{given}}/interventions.json --output {{out}}/x",
    "perturb": "data perturb --variant os --input {given}/squad.json --output {out}/x",
    "predictions": "evaluation bias --predictions {given}/lei.json --output {out}/x",
    "bias": f"evaluation bias --data {{given}}/groups.json {TINY} --output {{out}}/x",
    "faithfulness": f"evaluation faithfulness --data {{given}}/questions.json {TINY} --output "
    f"{{out}}/x",
    "ask": f"evaluation ask --context Café. --question Who? {TINY} --output {{out}}/x",
    "export": "models {given}/bert.ckpt {out}/x",
    "fit": RUN,
}
MISTAKES = [
    # a good command, what is wrong after it, and what the line names
    ("unqover", "--no-such-flag 1", "--no-such-flag"),
    ("lei", "--per-class 0", "--per-class"),
    ("lei", "--disjoint-from {given}/rows.jsonl", "rows.jsonl"),
    ("perturb", "--input {given}/none", "none"),
    ("perturb", "--input stories:nowhere", "nowhere"),
    ("perturb", "--input stories:dev?seed=x", "seed"),
    ("perturb", "--input {given}/lei.json", "lei.json"),
    ("predictions", "--predictions {given}/squad.json", "squad.json"),
    ("predictions", "--checkpoint {given}/bert.ckpt", "--checkpoint"),
    ("bias", "--checkpoint {given}/none.ckpt", "none.ckpt"),
    ("bias", "--checkpoint a={given}/bert.ckpt a={given}/bert.ckpt", "a"),
    ("bias", "--checkpoint openai:gpt", "openai:gpt"),
    ("bias", "--data {given}/squad.json", "squad.json"),
    ("bias", "--batch-size 0", "--batch-size"),
    ("bias", "--limit 100000000000000000000", "--limit"),
    ("bias", "--device cuda:99", "cuda:99"),
    ("faithfulness", "--data {given}/coqa.json --variants os", "bert.ckpt"),
    ("faithfulness", "--predictions {given}/small_run.yaml", "ends in .jsonl"),
    ("export", "{out}/y", "{out}/y"),
    ("fit", "--trainer.max_step=3", "--trainer.max_step"),
    ("fit", "--trainer.max_steps=many", "trainer.max_steps"),
    ("fit", "--model=interventune.training.modules.advice.LEIModul", "LEIModul"),
    ("fit", "--model.loss.ethical_wieght=2", "ethical_wieght"),
    ("fit", "--model.loss.ethical_weight=-1", "ethical_weight"),
    ("fit", "--model.learning_rate=-1", "model.learning_rate"),
    ("fit", "--model={{init_args: {{learning_rate: .nan}}}}", "learning_rate"),
    ("fit", "--seed_everything=-1", "seed_everything"),
    ("fit", "--backbone.architecture=gpt", "backbone.architecture"),
    ("fit", "--backbone.checkpoint=/no/such/folder", "/no/such/folder"),
    ("fit", "--backbone.config={{hidden_sizes: 3}}", "hidden_sizes"),
    ("fit", "--data.encoding.max_length=40", "max_length"),
    ("fit", "--data.interventions={{trian: [os]}}", "trian"),
    ("fit", "--data.train_qa=/no/such.json", "/no/such.json"),
    ("fit", "--data.train_groups=[/no/such/groups.json]", "/no/such/groups.json"),
    ("fit", "--run.name=../../elsewhere", "run.name"),
    ("fit", "--run.name=a\x1bb", "run.name"),
    ("fit", '--data.predict_qa={{"../x":"stories:dev"}}', "../x"),
    ("fit", "--checkpoint.save_top_k=0", "save_top_k=0"),
    ("fit", "--checkpoint.every_n_epochs=99 --checkpoint.monitor=null", "no best.ckpt"),
    ("fit", "--checkpoint.every_n_train_steps=1 --checkpoint.monitor=val/qa/f1", "monitor=null"),
    ("fit", "--ckpt_path=/no/such.ckpt", "/no/such.ckpt"),
    ("fit", "--ckpt_path={given}/squad.json", "squad.json: no readable checkpoint"),
    ("fit", "--ckpt_path=last", "ckpt_path"),
    ("fit", "--checkpoint.monitor=val/qa/f7", "val/qa/f7"),
    ("fit", "-c lei_fewshot", "lei_few_shot"),
]


@pytest.mark.parametrize(("command", "wrong", "named"), MISTAKES)
def test_a_wrong_flag_costs_one_line(
    command: str, wrong: str, named: str, given_files: Path, tmp_path: Path
) -> None:
    before = everything_in(given_files)
    places = {"given": given_files, "out": tmp_path}
    entry, *arguments = (word.format(**places) for word in f"{GOOD[command]} {wrong}".split())
    if "{{" in wrong:
        arguments = [*arguments[: -len(wrong.split())], wrong.format()]
    refused(entry, arguments, named.format(**places))
    assert everything_in(given_files) == before
    names = [path.name for path in tmp_path.rglob("*")]
    assert not any(name.endswith((".ckpt", ".tmp", "metrics.json")) for name in names)
    assert "x" not in names


@pytest.mark.parametrize("command", ["lei", "bias", "export"])
def test_nothing_is_written_over(command: str, given_files: Path, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "thesis.txt").write_text("precious")
    before = everything_in(tmp_path)
    entry, *arguments = (w.format(given=given_files, out=tmp_path) for w in GOOD[command].split())
    for over in ([], ["--overwrite"] * (command != "export")):
        refused(entry, arguments + over, str(tmp_path / "x"))
        assert everything_in(tmp_path) == before


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"data:\n  val_qa: {main: x", "bad.yaml"),
        (b"- 1\n- 2\n", "bad.yaml"),
        (b"nonsense: 1\n", "nonsense"),
        (b"# caf\xe9\n", "bad.yaml"),
        (b"[" * 5000, "bad.yaml"),
        (
            b"run:\n  name: a\n  root: b\n  name: c\n",
            "bad.yaml, line 4: not YAML: name occurs twice",
        ),
        (b"data: !!python/object/apply:os.system ['touch trapped']\n", "bad.yaml"),
        (b"model: {class_path: torch.nn.Linear}\n", "model"),
    ],
)
def test_a_broken_experiment_file_costs_one_line(
    content: bytes, named: str, given_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_bytes(content)
    words = f"{RUN} -c bad.yaml".format(given=given_files, out=tmp_path).split()
    refused("training", words[1:], named)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]
