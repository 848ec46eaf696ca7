"""`--trainer.strategy=fsdp`: parameters, gradients and optimizer states shared out over all processes.

Built on torch's `fully_shard` (FSDP2), which torch develops further. With its predecessor, behind Lightning's
own `fsdp`, Lightning refuses CPUs and cannot clip gradients by their norm, and parameters are views into flat
ones. Here every parameter is a DTensor under its own name, so that a checkpoint is the same one file as from
any other strategy, and goes on with any other number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.core.optimizer import LightningOptimizer
from pytorch_lightning.strategies import ModelParallelStrategy
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

STEPS = ("training_step", "validation_step", "test_step", "predict_step")


class FullyShardedStrategy(ModelParallelStrategy):
    """Shards each layer of the encoder, and the rest of the module as one more unit, over all processes.

    Every process needs room for the whole model once, while it is sharded and while it is evaluated.
    """

    model: Any

    def __init__(self) -> None:
        super().__init__(save_distributed_checkpoint=False)

    @property
    def lightning_restore_optimizer(self) -> bool:
        """Lightning may hand over optimizer states as for any other strategy."""
        return True

    def setup_environment(self) -> None:
        """One dimension: data parallel over everything."""
        self._data_parallel_size = self.num_nodes * self.num_processes
        self._tensor_parallel_size = 1
        super().setup_environment()

    def setup(self, trainer: pl.Trainer) -> None:
        """Shard the module, then let it build its optimizer over what is left here."""
        assert self.model is not None
        assert self.accelerator is not None
        self.accelerator.setup(trainer)
        self.model = self.precision_plugin.convert_module(self.model)
        self.model_to_device()
        shard(self.model, self.device_mesh["data_parallel"])
        for loop in (trainer.validate_loop, trainer.test_loop, trainer.predict_loop):
            loop.inference_mode = False  # tensors made there could not be part of a graph later
        self.barrier()
        if trainer.state.fn == TrainerFn.FITTING:
            self.setup_optimizers(trainer)
        self.setup_precision_plugin()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """The optimizer's own state with whole tensors on the CPU. All processes take part."""
        if isinstance(optimizer, LightningOptimizer):
            optimizer = optimizer._optimizer
        state = optimizer.state_dict()
        whole = {
            index: {name: _whole(value, keep=self.is_global_zero) for name, value in of_parameter.items()}
            for index, of_parameter in state["state"].items()
        }
        return {**state, "state": whole}

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Read the one file; the two methods below take their parts of it.

        Lightning would give optimizer states to parameters by their order in the module, which is not that of
        an optimizer with two groups.
        """
        return self.checkpoint_io.load_checkpoint(checkpoint_path)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Each process takes its shards of the whole weights."""
        assert self.model is not None
        options = StateDictOptions(full_state_dict=True, strict=strict)
        set_model_state_dict(self.model, checkpoint["state_dict"], options=options)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Each process takes its shards of the whole states."""
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            indices = [i for group in state["param_groups"] for i in group["params"]]
            shards = {
                index: {name: _shard_like(value, p) for name, value in state["state"][index].items()}
                for index, p in zip(indices, parameters, strict=True)
                if index in state["state"]
            }
            optimizer.load_state_dict({**state, "state": shards})

    def on_validation_start(self) -> None:
        """Collect the parameters once: then processes may have different numbers of batches."""
        self._gather()

    def on_validation_end(self) -> None:
        """Give them back."""
        self._release()

    def on_test_start(self) -> None:
        """As for validation."""
        self._gather()

    def on_test_end(self) -> None:
        """As for validation."""
        self._release()

    def on_predict_start(self) -> None:
        """As for validation."""
        self._gather()

    def on_predict_end(self) -> None:
        """As for validation."""
        self._release()

    def _gather(self) -> None:
        for unit in self._units():
            unit.unshard()
            unit.set_reshard_after_forward(False, recurse=False)

    def _release(self) -> None:
        for unit in self._units():
            unit.set_reshard_after_forward(unit is not self.model, recurse=False)
            unit.reshard()

    def _units(self) -> Iterator[FSDPModule]:
        assert self.model is not None
        return (module for module in self.model.modules() if isinstance(module, FSDPModule))


def shard(module: nn.Module, mesh: Any) -> None:
    """`fully_shard` every layer of the encoder, then the module around them; in place.

    Args:
        module: the LightningModule.
        mesh: one-dimensional device mesh.
    """
    for layer in encoder_layers(module):
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    for name in STEPS:
        # What collects the parameters hangs on forward(), and Lightning calls these.
        register_fsdp_forward_method(module, name)


def encoder_layers(module: nn.Module) -> list[nn.Module]:
    """The repeated layers: members of the outermost lists of two or more modules of one class, in
    `module.model.encoder` where there is one, else in all of `module`."""
    encoder = getattr(getattr(module, "model", None), "encoder", module)
    found: list[nn.Module] = []
    inside: set[nn.Module] = set()
    for part in encoder.modules():
        if part in inside or not isinstance(part, nn.ModuleList):
            continue
        if len(part) > 1 and len({type(layer) for layer in part}) == 1:
            found += list(part)
            inside |= {m for layer in part for m in layer.modules()}
    return found


def _whole(value: Any, *, keep: bool) -> Any:
    """A whole tensor on the CPU, on the process that keeps it."""
    if isinstance(value, DTensor):
        value = value.full_tensor()
    if not isinstance(value, Tensor):
        return value
    return value.cpu() if keep else torch.empty(0)


def _shard_like(value: Any, parameter: Tensor) -> Any:
    """This process's part of a state that has the shape of its parameter."""
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    local = value.to(parameter.device)
    # Everybody has read the whole file, so nobody has to send anything.
    return distribute_tensor(local, parameter.device_mesh, parameter.placements, src_data_rank=None)
