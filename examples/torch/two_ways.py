"""Trains one network on several ranks in two ways, which give the same parameters.

    torchrun --nproc-per-node 2 two_ways.py

Data parallel: each rank has the whole model and a share of the batch, and gradients are averaged. Model parallel:
each rank has a share of the hidden units and the whole batch. The forward pass sums the ranks' contributions to the
output. The backward pass needs no sum, since the input of the first layer is data, which has no gradient.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

import digits
import tutti.torch  # registers the backend

HIDDEN = 48


def whole_network():
    torch.manual_seed(7)
    return digits.network(hidden=HIDDEN).double()


def batches(dataset, epochs, size):
    """Yields the same batches on every rank, since it has a seeded generator of its own."""
    order = torch.Generator().manual_seed(11)
    images, labels = dataset.tensors
    for _ in range(epochs):
        for chosen in torch.randperm(len(dataset), generator=order).split(size):
            if len(chosen) == size:
                yield images[chosen].double(), labels[chosen]


def data_parallel(dataset, epochs, size, rate):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = whole_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for images, labels in batches(dataset, epochs, size):
        optimizer.zero_grad()
        cross_entropy(model(images.chunk(ranks)[rank]), labels.chunk(ranks)[rank]).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        optimizer.step()
    return model


class SumOfRanks(torch.autograd.Function):
    """Sums the tensors of all ranks. The gradient of each rank's tensor is that of the sum."""

    @staticmethod
    def forward(context, share):
        total = share.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context, gradient):
        return gradient


class ShareOfHiddenUnits(nn.Module):
    """This rank's hidden units: rows of the first layer and columns of the second. Every rank has the last bias."""

    def __init__(self, whole):
        super().__init__()
        rank, ranks = dist.get_rank(), dist.get_world_size()
        first, _, second = whole
        self.rows = nn.Parameter(first.weight.detach().chunk(ranks)[rank].clone())
        self.row_bias = nn.Parameter(first.bias.detach().chunk(ranks)[rank].clone())
        self.columns = nn.Parameter(second.weight.detach().chunk(ranks, dim=1)[rank].clone())
        self.bias = nn.Parameter(second.bias.detach().clone())

    def forward(self, images):
        hidden = torch.relu(images @ self.rows.t() + self.row_bias)
        return SumOfRanks.apply(hidden @ self.columns.t()) + self.bias

    @torch.no_grad()
    def gathered(self):
        """Returns the whole network, on every rank."""
        whole, ranks = whole_network(), dist.get_world_size()
        for share, target, dimension in ((self.rows, whole[0].weight, 0), (self.row_bias, whole[0].bias, 0),
                                         (self.columns, whole[2].weight, 1)):
            shares = [torch.empty_like(share) for _ in range(ranks)]
            dist.all_gather(shares, share.detach().contiguous())
            target.copy_(torch.cat(shares, dim=dimension))
        whole[2].bias.copy_(self.bias)
        return whole


def model_parallel(dataset, epochs, size, rate):
    model = ShareOfHiddenUnits(whole_network())
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for images, labels in batches(dataset, epochs, size):
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model.gathered()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--rate", type=float, default=0.2)
    arguments = parser.parse_args()
    dist.init_process_group(arguments.backend)
    if HIDDEN % dist.get_world_size() or arguments.batch % dist.get_world_size():
        parser.error(f"{HIDDEN} hidden units and batches of {arguments.batch} are to be shared evenly")
    training, test = digits.load()
    test.tensors = (test.tensors[0].double(), test.tensors[1])
    models = [way(training, arguments.epochs, arguments.batch, arguments.rate) for way in (data_parallel, model_parallel)]
    apart = max((one - other).abs().max().item() for one, other in zip(*(list(each.parameters()) for each in models)))
    if dist.get_rank() == 0:
        for name, model in zip(("data parallel", "model parallel"), models):
            print(f"{name}: accuracy on samples not trained on {digits.accuracy(model, test):.4f}")
        print(f"their parameters are at most {apart:.1e} apart")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
