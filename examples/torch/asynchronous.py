"""Training on several machines that average their parameters from time to time, with checkpoints.

    torchrun --nnodes 2 --node-rank 0 --nproc-per-node 1 --master-addr node7 --master-port 29500 asynchronous.py
    torchrun --nnodes 2 --node-rank 1 --nproc-per-node 1 --master-addr node7 --master-port 29500 asynchronous.py

Each rank takes --period steps by itself; then the parameters are averaged. The average is computed while the ranks
take the next steps, and the progress that a rank makes meanwhile is added to it. So no rank waits for the slowest
one, unless that is a whole period behind. Rank 0 writes a checkpoint, from which an ended training continues: it
broadcasts the contents to all ranks.
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
    """Loads the checkpoint that rank 0 reads, on every rank, and returns the number of steps done so far."""
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
    """Writes the checkpoint to another file, which replaces `path` once it is complete."""
    if path and dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "steps": steps}, path + ".new")
        os.replace(path + ".new", path)


class Average:
    """Averages the ranks' parameters while the ranks continue."""

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
    images, labels = (each[rank::ranks] for each in training.tensors)  # each rank has a share of the samples
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
    with torch.no_grad():  # at the end all ranks have the same parameters
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
