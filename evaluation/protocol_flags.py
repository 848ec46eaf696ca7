"""Flags that protocols share. No heavy imports: `--help` must answer at once."""

from __future__ import annotations

import argparse


def add_prediction_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that every protocol with a checkpoint has."""
    parser.add_argument(
        "--device", default="auto", help="cpu, cuda, cuda:1, ... (default: cuda if there is one)"
    )
    parser.add_argument("--precision", choices=("32", "bf16"), default="32", help="of the forward pass")
    parser.add_argument("--batch-size", type=int, default=64, help="rows in a batch (default: 64)")
