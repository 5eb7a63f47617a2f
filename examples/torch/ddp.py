"""Data-parallel training with DistributedDataParallel and DistributedSampler.

    torchrun --nproc-per-node 2 ddp.py
    python -m tutti.run -n 2 ddp.py          # or any launcher that sets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT

Each rank has the whole model and a share of each epoch's samples; gradients are averaged while backward runs.
"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import digits
import tutti.torch  # registers the backend


def train(epochs, batch, rate):
    training, test = digits.load()
    torch.manual_seed(dist.get_rank())  # DDP begins with rank 0's parameters on all ranks
    model = DistributedDataParallel(digits.network())
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    sampler = DistributedSampler(training, shuffle=True, seed=1)
    loader = DataLoader(training, batch_size=batch // dist.get_world_size(), sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # without it every epoch would have the same order
        total = torch.zeros(2)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(labels), len(labels)])
        dist.all_reduce(total)  # the mean over the ranks' samples, not one rank's
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: loss {total[0] / total[1]:.4f}", flush=True)
    return digits.accuracy(model.module, test)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32, help="samples a step, of all ranks together")
    parser.add_argument("--rate", type=float, default=0.1)
    arguments = parser.parse_args()
    dist.init_process_group(arguments.backend)  # env://
    reached = train(arguments.epochs, arguments.batch, arguments.rate)
    if dist.get_rank() == 0:
        print(f"accuracy on samples not trained on: {reached:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
