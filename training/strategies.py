"""`--trainer.strategy=fsdp`: parameters, gradients and optimizer states sharded over all processes.

Lightning's ModelParallelStrategy with torch's `fully_shard` (FSDP2), which also runs on CPUs. A
checkpoint is the same one file as from any other strategy. Evaluation needs room for the whole
model on every device.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pytorch_lightning import LightningModule
from pytorch_lightning.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from interventune.models.backbones import encoder_layers
from interventune.storage.documents import Values

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def shard(module: LightningModule, mesh: Any) -> None:
    """Shard every layer of the encoder over a one-dimensional mesh, then the remaining modules; in
    place.

    A layer is sharded on its device before the next one follows, so no device ever holds the whole
    model.
    """
    for layer in encoder_layers(module.model.encoder):
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    for name in ("training_step", "validation_step", "test_step", "predict_step"):
        # Sharding hooks into forward(), but Lightning calls these.
        register_fsdp_forward_method(module, name)


class FullyShardedStrategy(ModelParallelStrategy):
    """Data parallel over all processes, with single-file checkpoints. Optimizer states are numbered
    in the optimizer's order; Lightning uses the module's order, which differs if there are two
    groups.
    """

    model: Any

    def __init__(self) -> None:
        super().__init__(save_distributed_checkpoint=False)

    @property
    def lightning_restore_optimizer(self) -> bool:
        """Let Lightning pass optimizer states as for any other strategy."""
        return True

    def setup_environment(self) -> None:
        self._data_parallel_size = self.num_nodes * self.num_processes
        self._tensor_parallel_size = 1
        super().setup_environment()

    def optimizer_state(self, optimizer: Any) -> Values:
        """Return the optimizer's own state with whole tensors on the first process's CPU.
        Collective.
        """
        plain = getattr(optimizer, "optimizer", optimizer)  # Lightning wraps it
        state: Values = get_optimizer_state_dict(self.model, plain, options=WHOLE)
        if not self.is_global_zero:
            return {}
        names = [name for group in state["param_groups"] for name in group["params"]]
        return _renamed(state, {name: number for number, name in enumerate(names)})

    def lightning_module_state_dict(self) -> Values:
        """Return whole weights on the first process, without those that an adapter's checkpoint
        omits.
        """
        options = StateDictOptions(
            full_state_dict=True,
            cpu_offload=True,
            ignore_frozen_params=bool(self.model.model.adapter.get("base")),
        )
        return dict(get_model_state_dict(self.model, options=options))

    def load_checkpoint(self, checkpoint_path: Any, **_: Any) -> Values:
        return self.checkpoint_io.load_checkpoint(checkpoint_path)

    def load_model_state_dict(self, checkpoint: Values, strict: bool = True) -> None:
        options = StateDictOptions(full_state_dict=True, strict=strict)
        set_model_state_dict(self.model, checkpoint["state_dict"], options=options)

    def load_optimizer_state_dict(self, checkpoint: Values) -> None:
        name_of = {id(parameter): name for name, parameter in self.model.named_parameters()}
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            names = [name_of[id(p)] for group in optimizer.param_groups for p in group["params"]]
            numbers = [number for group in state["param_groups"] for number in group["params"]]
            by_name = _renamed(state, dict(zip(numbers, names, strict=True)))
            set_optimizer_state_dict(self.model, optimizer, by_name, options=WHOLE)

    def on_validation_start(self) -> None:
        self.evaluation = ExitStack()
        self.evaluation.enter_context(whole(self.model))

    def on_validation_end(self) -> None:
        self.evaluation.close()

    on_test_start = on_predict_start = on_validation_start
    on_test_end = on_predict_end = on_validation_end


@contextmanager
def whole(model: nn.Module) -> Iterator[None]:
    """Within this context, every process holds all parameters, so that processes may have different
    numbers of batches; afterwards, every FSDP2 unit is sharded, and resharded after its forward, as
    it was.
    """
    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for unit in units:  # roots, which come before their parts, prepare these
        unit._get_fsdp_state()._lazy_init()
    before = [
        (unit, part, part.post_forward_mesh_info, part.is_unsharded)
        for unit in units
        for part in _parameter_groups(unit)
    ]
    try:
        for unit in units:
            unit.unshard()
            unit.set_reshard_after_forward(False, recurse=False)
        yield
    finally:
        for unit, part, mesh, is_whole in before:
            part.post_forward_mesh_info = mesh
            if not is_whole:
                unit.reshard()


def _parameter_groups(unit: FSDPModule) -> list[Any]:
    """The groups of parameters of a unit; before torch 2.12, a unit had at most one."""
    state = unit._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [state._fsdp_param_group] if state._fsdp_param_group else []


def _renamed(state: Values, new: dict[Any, Any]) -> Values:
    """An optimizer's state with other names of its parameters."""
    groups = [
        {**group, "params": [new[name] for name in group["params"]]}
        for group in state["param_groups"]
    ]
    return {
        "state": {new[name]: value for name, value in state["state"].items()},
        "param_groups": groups,
    }
