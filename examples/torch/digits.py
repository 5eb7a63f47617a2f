"""Reads handwritten digits from files in MNIST's format (IDX, gzip-compressed) as tensors."""

import gzip
import pathlib
import struct

import torch
from torch import nn
from torch.utils.data import TensorDataset

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "digits"


def read_idx(path):
    """Returns the array of an IDX file of bytes. Raises ValueError if the file is not one."""
    content = bytearray(gzip.open(path).read())
    kind, dimensions = struct.unpack_from(">HBB", content)[1:] if len(content) >= 4 else (None, 0)
    if kind != 8:
        raise ValueError(f"{path} is no IDX file of bytes")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    data = torch.frombuffer(content, dtype=torch.uint8, offset=4 + 4 * dimensions)
    if data.numel() != torch.Size(shape).numel():
        raise ValueError(f"{path} holds {data.numel()} bytes, and says {shape}")
    return data.view(shape)


def load(folder=FOLDER):
    """Returns the training set and the test set: images as rows of floats from 0 to 1, and their labels."""
    images = read_idx(pathlib.Path(folder) / "digits-images-idx3-ubyte.gz")
    labels = read_idx(pathlib.Path(folder) / "digits-labels-idx1-ubyte.gz")
    rows = images.flatten(1).float() / images.max()
    test = len(rows) // 6
    return TensorDataset(rows[test:], labels[test:].long()), TensorDataset(rows[:test], labels[:test].long())


def network(inputs=64, hidden=64, classes=10):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


@torch.no_grad()
def accuracy(model, dataset):
    images, labels = dataset.tensors
    return (model(images).argmax(1) == labels).float().mean().item()
