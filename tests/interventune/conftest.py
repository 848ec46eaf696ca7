"""Tiny models as folders of transformers."""

from pathlib import Path

import pytest

from tests.evaluation.checkpoints import save_folder, save_llama


@pytest.fixture(scope="package")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    llama = save_llama(root / "llama", attention_dropout=0.5, pad_token_id=1, eos_token_id=2)
    return {"bert": save_folder(root / "bert"), "llama": llama}
