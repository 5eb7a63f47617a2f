"""Trains a network on handwritten digits with a GPU for each rank, as programs for NCCL are written. Any launcher starts it."""

import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "examples" / "torch"))
import digits

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
training, test = digits.load()
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(digits.network().cuda(), device_ids=[torch.cuda.current_device()])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
sampler = DistributedSampler(training, seed=1)
for epoch in range(int(sys.argv[1])):
    sampler.set_epoch(epoch)
    total = torch.zeros(2).cuda()
    for images, labels in DataLoader(training, batch_size=16, sampler=sampler):
        optimizer.zero_grad()
        loss = cross_entropy(model(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item() * len(labels), len(labels)], device="cuda")
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"epoch {epoch + 1}: loss {total[0] / total[1]:.4f}", flush=True)
images, labels = test.tensors
right = (model(images.cuda()).argmax(1) == labels.cuda()).float().mean()
if dist.get_rank() == 0:
    print(f"accuracy on samples not trained on: {right:.4f}")
dist.destroy_process_group()
