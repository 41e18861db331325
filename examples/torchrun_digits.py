"""One run by several processes that torchrun starts: each takes its rows of the same batches. No line knows ablate."""

import argparse
import csv
import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", default="log.csv")
args = parser.parse_args()

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all processes are on this machine
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
torch.manual_seed(args.seed)  # the same in every process: equal weights, and equal orders of the digits
digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

rows = []
for epoch in range(1, args.epochs + 1):
    total = torch.zeros(())
    for batch in torch.randperm(1200).split(60):
        mine = batch[rank::size]
        loss = nn.functional.cross_entropy(model(x[mine]), y[mine])
        optimizer.zero_grad()
        loss.backward()  # averages the gradients of all processes
        optimizer.step()
        total += loss.detach()
    dist.all_reduce(total)  # 20 batches in each process
    with torch.no_grad():
        valid = nn.functional.cross_entropy(model.module(x[1200:]), y[1200:]).item()
    rows.append([epoch, size, total.item() / (20 * size), valid])

if rank == 0:  # one process writes
    with open(args.out, "w", newline="") as file:
        csv.writer(file).writerows([["epoch", "processes", "loss", "valid_loss"], *rows])
dist.destroy_process_group()
