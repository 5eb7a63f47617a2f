"""Has a model whose arithmetic is the host's, for tests of DistributedDataParallel on stand-ins, which have no kernels of PyTorch."""

import torch
import torch.distributed as dist


def expect(tensor, wanted):
    wanted = torch.as_tensor(wanted, dtype=tensor.dtype)
    assert torch.equal(tensor.cpu(), wanted), f"{tensor.cpu()} where {wanted} is expected"


class OnHost(torch.autograd.Function):
    """Computes input · weight on the host, since there are no kernels."""

    @staticmethod
    def forward(context, weight, input):
        input = input.cpu()  # DistributedDataParallel brings it to the GPU.
        context.save_for_backward(input)
        return input @ weight.detach().cpu()

    @staticmethod
    def backward(context, gradient):
        (input,) = context.saved_tensors
        gradient = gradient.cpu()
        return (input.t() @ gradient).cuda(), None


class Linear(torch.nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((4, 2), float(rank + 1)).cuda())

    def forward(self, input):
        return OnHost.apply(self.weight, input)


def train_in_parallel(device):
    """DistributedDataParallel averages what it would compute on the whole batch. The current stream is the one to use."""
    rank, size = dist.get_rank(), dist.get_world_size()
    model = torch.nn.parallel.DistributedDataParallel(Linear(rank), device_ids=[device])
    expect(model.module.weight.detach(), torch.ones(4, 2))  # It is rank 0's.

    def average(state, bucket):
        work = dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    model.register_comm_hook(None, average)  # The default one multiplies by a kernel.
    batch = torch.arange(4.0 * size).reshape(size, 4)
    for step in range(3):
        model.module.weight.grad = None
        model(batch[rank : rank + 1] + step).sum().backward()
        expect(model.module.weight.grad, (batch + step).mean(0).reshape(4, 1).expand(4, 2))
