"""A causal language model of 0.4 M parameters, trained in minutes, to try `evaluation consistency` on.

    python -m docs.tiny_causal_model --prompts challenging.jsonl neutral.jsonl --output tiny_gpt2

Reads prompts as `evaluation consistency` does, makes a byte-level BPE of 2,000 tokens from them and trains a
GPT-2 on prompts that are strung together, one file a row, so that a text goes on as its file does. It
babbles, but challenging prompts get challenging continuations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tqdm.auto import tqdm
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed

from data_modules.tasks.toxicity_prompts import read_prompts

END = "<|endoftext|>"
TOKENS, ROWS = 96, 16


def byte_pairs(texts: list[str], size: int = 2000) -> PreTrainedTokenizerFast:
    """A tokenizer like GPT-2's, of these texts."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=END, eos_token=END, unk_token=END)


def row(texts: list[list[int]], joints: list[list[int]], rng: Random) -> list[int]:
    """TOKENS ids of prompts strung together, half of the time from the middle of one."""
    ids: list[int] = []
    while len(ids) < 2 * TOKENS:
        ids += rng.choice(texts) + rng.choice(joints)
    start = 0 if rng.random() < 0.5 else rng.randrange(TOKENS)
    return ids[start : start + TOKENS]


def make_parser() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR")
    parser.add_argument(
        "--skip-last", type=float, default=0.2, help="share held out, at the end of each file"
    )
    parser.add_argument("--steps", type=int, default=3000, help="0: random weights, for a control")
    parser.add_argument("--positions", type=int, default=192, help="longest text, in tokens")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Train, or leave as it is, and write; 0."""
    args = make_parser().parse_args(argv)
    set_seed(args.seed)
    rng = Random(args.seed)
    files = [[prompt.text for prompt in read_prompts(path)] for path in args.prompts]
    files = [texts[: round(len(texts) * (1 - args.skip_last))] for texts in files]
    tokenizer = byte_pairs([text for texts in files for text in texts])
    ids = [[tokenizer(text)["input_ids"] for text in texts] for texts in files]
    joints = [tokenizer(joint)["input_ids"] for joint in (". ", " ", "\n")]
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=args.positions,
            n_embd=80,
            n_layer=3,
            n_head=4,
            # A random model of the usual spread says nearly the same of everything; this one has opinions.
            initializer_range=0.02 if args.steps else 0.3,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)

    def rate(step: int) -> float:
        return min(1.0, (step + 1) / 50) * max(0.05, 1 - step / max(1, args.steps))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    for _ in (bar := tqdm(range(args.steps), disable=None)):
        batch = torch.tensor([row(ids[i % len(ids)], joints, rng) for i in range(ROWS)])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        bar.set_postfix(loss=f"{loss.item():.2f}", refresh=False)
    model.eval().save_pretrained(args.output)
    tokenizer.save_pretrained(args.output)
    print(f"{args.output}: " + (f"loss {loss.item():.2f} nats a token" if args.steps else "random weights"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
