"""Training on several machines that meet only now and then, with checkpoints.

    torchrun --nnodes 2 --node-rank 0 --nproc-per-node 1 --master-addr node7 --master-port 29500 asynchronous.py
    torchrun --nnodes 2 --node-rank 1 --nproc-per-node 1 --master-addr node7 --master-port 29500 asynchronous.py

Each rank takes --period steps by itself; then the parameters are averaged. The average is under way while the next
steps are taken: what the ranks have moved on by in the meantime is added to it, so that nobody ever waits for the
slowest, unless he is a whole period behind. A checkpoint (rank 0 writes it, all ranks begin with what it holds by
broadcast) continues a training that was ended.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import digits
import tutti.torch  # registers the backend


def load(path, model):
    """The number of steps that the checkpoint has behind it; on every rank what rank 0 has read."""
    done = torch.zeros(1, dtype=torch.long)
    if dist.get_rank() == 0 and path and os.path.exists(path):
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        done += state["steps"]
    dist.broadcast(done, 0)
    for each in model.state_dict().values():
        dist.broadcast(each, 0)
    return done.item()


def save(path, model, steps):
    """Whole or not at all: it is renamed once it is written."""
    if path and dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "steps": steps}, path + ".new")
        os.replace(path + ".new", path)


class Average:
    """Of the ranks' parameters, under way while they go on."""

    def __init__(self, model):
        self.model, self.work = model, None

    @torch.no_grad()
    def start(self):
        self.sent = parameters_to_vector(self.model.parameters())
        self.sum = self.sent.clone()
        self.work = dist.all_reduce(self.sum, async_op=True)

    @torch.no_grad()
    def finish(self):
        if self.work is None:
            return
        self.work.wait()
        moved = parameters_to_vector(self.model.parameters()) - self.sent
        vector_to_parameters(self.sum / dist.get_world_size() + moved, self.model.parameters())
        self.work = None


def train(arguments):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    training, test = digits.load()
    images, labels = (each[rank::ranks] for each in training.tensors)  # a share of its own
    torch.manual_seed(3)
    model = digits.network()
    first = load(arguments.checkpoint, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.rate)
    average = Average(model)
    for step in range(first, first + arguments.steps):
        torch.manual_seed(1000 * step + rank)
        chosen = torch.randint(len(images), (arguments.batch,))
        optimizer.zero_grad()
        cross_entropy(model(images[chosen]), labels[chosen]).backward()
        optimizer.step()
        if (step + 1) % arguments.period == 0:
            average.finish()
            average.start()
    average.finish()
    with torch.no_grad():  # at the end all ranks have the same
        last = parameters_to_vector(model.parameters())
        dist.all_reduce(last)
        vector_to_parameters(last / ranks, model.parameters())
    save(arguments.checkpoint, model, first + arguments.steps)
    return first, digits.accuracy(model, test)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--period", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--checkpoint", default="")
    arguments = parser.parse_args()
    dist.init_process_group(arguments.backend)
    first, reached = train(arguments)
    if dist.get_rank() == 0:
        print(f"steps {first} to {first + arguments.steps}: accuracy on samples not trained on {reached:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
