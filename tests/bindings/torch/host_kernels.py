"""Executes PyTorch's operators on tensors of GPUs by its kernels for CPUs, on the stand-in for the driver, which has no others.

The memory of a GPU is the host's there, so that a tensor on the host can lie where one of a GPU lies. An operator waits until the
current stream has come to it, runs on such tensors, and has ended when it returns; while the stream is captured, a host function
that runs it becomes a node of the CUDA graph. Operators that move no element (views, empty tensors) stay PyTorch's own, and so
does all that is not in ATen: process groups, events, streams and the allocator.
"""

import ctypes
import functools
import os
import pathlib
import runpy
import sys
import traceback
import warnings

import torch
from torch.utils._pytree import tree_map

# These make or describe tensors, and launch no kernel. Operators whose result is a view of an operand are left alone, too.
_OWN = {"empty.memory_format", "empty_strided", "resize_", "set_", "set_.source_Storage", "set_.source_Storage_storage_offset",
        "set_.source_Tensor", "record_stream", "_local_scalar_dense", "is_pinned", "_pin_memory", "_fused_sdp_choice", "is_set_to"}
# These launch kernels for all devices from one function.
_COMMON = {"copy_"}


def on_host(value):
    """Returns a tensor on the host in the place of one on a GPU; what else names a GPU names the host."""
    if isinstance(value, torch.Tensor) and value.is_cuda:
        storage = value.untyped_storage()
        if storage.nbytes() == 0:
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cpu")
        here = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), torch.device("cpu"), storage.nbytes())
        view = torch.empty(0, dtype=value.dtype, device="cpu").set_(here, value.storage_offset(), value.size(), value.stride())
        view = view.conj() if value.is_conj() else view
        return torch._neg_view(view) if value.is_neg() else view
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, torch.Generator) and value.device.type == "cuda":
        return torch.default_generator
    return value


def on_gpu(value, device):
    """Returns a tensor on the GPU with what `value` has on the host."""
    if not isinstance(value, torch.Tensor) or value.is_cuda:
        return value
    copy = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=device)
    if value.numel():
        on_host(copy).copy_(value)
    return copy


def _devices(values):
    found = []
    tree_map(lambda each: found.append(each.device if isinstance(each, torch.Tensor) else each)
             if isinstance(each, (torch.Tensor, torch.device)) else None, values)
    return [each for each in found if each.type == "cuda"]


def _written(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


def _rest(tensor):
    """Returns the dimensions of a batch that are not its channels."""
    return [0, *range(2, tensor.dim())]


def _by_channel(values, like):
    return values.view(1, -1, *[1] * (like.dim() - 2))


def _batch_norm_stats(input, eps):
    wide = input.to(torch.promote_types(input.dtype, torch.float32))
    variance, mean = torch.var_mean(wide, _rest(input), correction=0)
    return mean, (variance + eps).rsqrt()


def _batch_norm_gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps, counts):
    share = (counts / counts.sum()).view(-1, 1).to(mean.dtype)
    whole = (share * mean).sum(0)
    variance = (share * (invstd.pow(-2) - eps + (mean - whole).square())).sum(0)
    if running_mean is not None:
        running_mean.lerp_(whole.to(running_mean.dtype), momentum)
        running_var.lerp_((variance * counts.sum() / (counts.sum() - 1)).to(running_var.dtype), momentum)
    return whole, (variance + eps).rsqrt()


def _batch_norm_elemt(input, weight, bias, mean, invstd, eps):
    result = (input - _by_channel(mean, input)) * _by_channel(invstd if weight is None else invstd * weight, input)
    return (result if bias is None else result + _by_channel(bias, input)).to(input.dtype)


def _batch_norm_backward_reduce(grad_out, input, mean, invstd, weight, input_g, weight_g, bias_g):
    sum_dy = grad_out.sum(_rest(input), dtype=mean.dtype)
    sum_dy_xmu = (grad_out * (input - _by_channel(mean, input))).sum(_rest(input), dtype=mean.dtype)
    return sum_dy, sum_dy_xmu, sum_dy_xmu * invstd if weight_g else None, sum_dy.clone() if bias_g else None


def _batch_norm_backward_elemt(grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count):
    slope = _by_channel(invstd.square() * sum_dy_xmu / count.sum(), input)
    whole = grad_out - _by_channel(sum_dy / count.sum(), input) - (input - _by_channel(mean, input)) * slope
    return (whole * _by_channel(invstd if weight is None else invstd * weight, input)).to(input.dtype)


def _softmax(input, dim, half_to_float):
    return torch.softmax(input.float() if half_to_float else input, dim)


def _log_softmax(input, dim, half_to_float):
    return torch.log_softmax(input.float() if half_to_float else input, dim)


# PyTorch has these for GPUs alone, or more of them there. What SyncBatchNorm computes is in its paper: Ioffe and Szegedy,
# "Batch Normalization" (2015), algorithm 1 and the derivatives after it.
_WRITTEN_HERE = {"batch_norm_stats": _batch_norm_stats, "batch_norm_elemt": _batch_norm_elemt,
                 "batch_norm_gather_stats_with_counts": _batch_norm_gather_stats_with_counts,
                 "batch_norm_backward_reduce": _batch_norm_backward_reduce,
                 "batch_norm_backward_elemt": _batch_norm_backward_elemt, "_softmax": _softmax, "_log_softmax": _log_softmax}


_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_in_graphs = []  # the functions that graphs call, which may be launched as long as the process lives


def _add_to_graph(stream, function):
    def run(_):
        try:
            function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    _in_graphs.append(_HostFunction(run))
    if ctypes.CDLL(None).cudaLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), _in_graphs[-1], None) != 0:
        raise RuntimeError("the stand-in captures no host function")


def _clone(value):
    return value.clone() if isinstance(value, torch.Tensor) else value


class HostKernel:
    """Stands for the kernels of one operator."""

    def __init__(self, operator):
        schema = operator._schema
        self.function = _WRITTEN_HERE.get(schema.name.removeprefix("aten::") if not schema.overload_name else "", operator)
        self.arguments = schema.arguments
        self.outs = [each.name for each in self.arguments if _written(each) and each.kwarg_only]
        # Each result that is a written operand is that operand.
        by_alias = {frozenset(each.alias_info.before_set): each.name for each in self.arguments if _written(each)}
        self.results = [by_alias.get(frozenset(each.alias_info.before_set)) if each.alias_info else None for each in schema.returns]

    def __call__(self, *args, **kwargs):
        named = dict(zip((each.name for each in self.arguments), args)) | kwargs
        gpus = _devices((args, kwargs))
        device = gpus[0] if gpus else torch.device("cuda", torch.cuda.current_device())
        device = device if device.index is not None else torch.device("cuda", torch.cuda.current_device())
        stream, captured = torch.cuda.current_stream(device), torch.cuda.is_current_stream_capturing()
        if not captured:
            stream.synchronize()
        host = {name: torch.empty(0, dtype=value.dtype, device="cpu") if name in self.outs and isinstance(value, torch.Tensor) else
                tree_map(on_host, value) for name, value in named.items()}
        used = tree_map(_clone, host) if captured else host  # In a capture, this run only tells the shapes of the results.
        results = self._run(used)
        for name in self.outs:
            self._put(named[name], used[name])
        answers = [named[name] if name else tree_map(functools.partial(on_gpu, device=device), each)
                   for name, each in zip(self.results, results)]
        if captured:
            written = {name: on_host(named[name]) for name in self.outs if isinstance(named[name], torch.Tensor)}
            _add_to_graph(stream, functools.partial(self._replay, host, tree_map(on_host, answers), written))
        return tuple(answers) if len(answers) > 1 else answers[0] if answers else None

    def _run(self, host):
        """Returns a list of the operator's results."""
        got = self.function(*[host[each.name] for each in self.arguments if not each.kwarg_only and each.name in host],
                            **{each.name: host[each.name] for each in self.arguments if each.kwarg_only and each.name in host})
        return list(got) if isinstance(got, tuple) and len(self.results) > 1 else [got]

    def _replay(self, host, places, written):
        used = host | {name: torch.empty_like(host[name]) for name in written}
        for place, alias, result in zip(places, self.results, self._run(used)):
            if not alias:
                tree_map(lambda to, source: to.copy_(source) if isinstance(to, torch.Tensor) else None, place, result)
        for name, place in written.items():
            place.copy_(used[name])

    @staticmethod
    def _put(there, here):
        if not isinstance(there, torch.Tensor):
            return
        if there.size() != here.size():
            there.resize_(here.size())
        if here.numel():
            on_host(there).copy_(here)


def _moves_elements(operator):
    return all(each.alias_info is None or each.alias_info.is_write for each in operator._schema.returns)


@functools.cache
def install():
    """Has this process execute every operator on GPUs by the host's kernels, as long as it lives."""
    torch.backends.cudnn.enabled = False  # Its operators have no kernels for the host.
    library = torch.library.Library("aten", "IMPL")
    names = {each.removeprefix("aten::") for each in torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
             if each.startswith("aten::")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It is on purpose that operators have another implementation then.
        for name in sorted(names | _COMMON):
            packet, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
            if name not in _OWN and _moves_elements(operator):
                library.impl(name, HostKernel(operator), "CUDA")
    return library


def with_kernels(body):
    """Returns a body whose tensors are on the rank's GPU unless it says otherwise, with operators that the host executes."""

    @functools.wraps(body)
    def called(*arguments):
        install()
        torch.set_default_device("cuda")
        body(*arguments)

    return called


if __name__ == "__main__":  # host_kernels.py PROGRAM [ARGUMENT ...]
    install()
    del sys.argv[0]
    sys.path[0] = str(pathlib.Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
