import argparse
import csv
import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from ablate import must_match

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", default="metrics.csv")
args = parser.parse_args()

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all processes are on this machine
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(args.seed * size + rank)  # masks of its own in each process; all take the weights of the first
torch.set_num_threads(1)
digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)
train_set = TensorDataset(x[:300], y[:300])
sampler = DistributedSampler(train_set, seed=args.seed)  # its order follows from its own seed and the epoch
train = DataLoader(train_set, batch_size=30 // size, sampler=sampler)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(args.dropout), nn.Linear(128, 10))
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

with open(args.out if rank == 0 else os.devnull, "w", newline="") as file:  # one process writes
    table = csv.writer(file)
    table.writerow(["epoch", "processes", "train_loss", "val_loss", "val_acc"])
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        model.train()
        for inputs, labels in train:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()  # averages the gradients of all processes
            optimizer.step()
        if rank == 0:
            must_match(f"last batch of epoch {epoch}", inputs.numpy().tobytes())
        model.eval()
        with torch.no_grad():
            logits = model.module(x[300:])
        val_loss = nn.functional.cross_entropy(logits, y[300:]).item()
        accuracy = (logits.argmax(1) == y[300:]).float().mean().item()
        table.writerow([epoch, size, loss.item(), val_loss, accuracy])
dist.destroy_process_group()
