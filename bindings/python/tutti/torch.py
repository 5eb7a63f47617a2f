"""tutti as a backend of torch.distributed.

    import torch.distributed as dist
    import tutti.torch

    dist.init_process_group("tutti")

Importing this module registers the backend "tutti" for tensors in the memory of the host and of CUDA's GPUs.
Another backend may have one of them: ``init_process_group("cpu:tutti,cuda:nccl")``.
"""

import atexit
import os

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    raise ImportError("tutti.torch needs PyTorch: pip install torch") from error

_REBUILD = (
    "build tutti where PyTorch is installed: pip install meson-python nanobind, then "
    "pip install --no-build-isolation --force-reinstall <tutti's sources>"
)


def _import_extension():
    try:
        from . import _torch
    except ModuleNotFoundError as error:
        raise ImportError(f"this tutti was built without PyTorch; {_REBUILD}") from error
    except ImportError as error:
        raise ImportError(
            f"this tutti was built for another PyTorch than {torch.__version__}; {_REBUILD}"
        ) from error
    built_for = _torch.TORCH_VERSION.split(".")[:2]
    if torch.__version__.split(".")[:2] != built_for:
        raise ImportError(
            f"this tutti was built for PyTorch {_torch.TORCH_VERSION}, and {torch.__version__} is"
            f" installed; {_REBUILD}"
        )
    return _torch


if not dist.is_available():
    raise ImportError("tutti.torch needs a PyTorch that has torch.distributed")

_backends = _import_extension().Backends()
atexit.register(_backends.shutdown)


def _make(store, rank, size, timeout):
    # DistributedDataParallel takes its buckets from the backend only if this variable says so, and reads it at this
    # time.
    os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")
    return _backends.make(store, rank, size, timeout)


dist.Backend.register_backend("tutti", _make, devices=["cpu", "cuda"])
