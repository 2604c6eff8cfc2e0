"""How the gradients of DDP travel, where not as they are."""

# No postponed annotations: torch compares those of a hook with its own types.

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from torch.nn.parallel import DistributedDataParallel

from notebook_accel.strategies.options import DDPCommunicationHookType as Kind
from notebook_accel.strategies.options import DistributedDataParallelKwargs

Hook = Callable[[Any, dist.GradBucket], torch.futures.Future[torch.Tensor]]

_DTYPES = {Kind.FP16: torch.float16, Kind.BF16: torch.bfloat16}
_POWER: dict[Kind, Hook] = {
    Kind.POWER_SGD: power.powerSGD_hook,
    Kind.BATCHED_POWER_SGD: power.batched_powerSGD_hook,
}


def register(model: DistributedDataParallel, options: DistributedDataParallelKwargs) -> None:
    """Let the gradients of `model` travel as `options` ask."""
    if options.comm_hook in _DTYPES:
        model.register_comm_hook(None, _averaging(_DTYPES[options.comm_hook]))
    elif options.comm_hook in _POWER:
        hook = _POWER[options.comm_hook]
        if options.comm_wrapper in _DTYPES:
            hook = _narrowed(hook, _DTYPES[options.comm_wrapper])
        model.register_comm_hook(power.PowerSGDState(None, **options.comm_state_option), hook)


def _averaging(dtype: torch.dtype) -> Hook:
    """A hook that averages gradients as `dtype`. torch's own for bfloat16 refuses gloo, which can carry it."""

    def average(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        full = bucket.buffer()
        narrow = full.to(dtype).div_(dist.get_world_size())
        sent: Any = dist.all_reduce(narrow, async_op=True)

        def widen(received: Any) -> torch.Tensor:
            return full.copy_(received.value()[0])

        future: torch.futures.Future[torch.Tensor] = sent.get_future().then(widen)
        return future

    return average


def _narrowed(hook: Hook, dtype: torch.dtype) -> Hook:
    """`hook`, working on gradients of `dtype`."""

    def narrow(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        full = bucket.buffer()
        bucket.set_buffer(full.to(dtype))

        def widen(received: Any) -> torch.Tensor:
            return full.copy_(received.value())

        return hook(state, bucket).then(widen)

    return narrow
