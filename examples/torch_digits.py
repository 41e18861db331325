"""Plain PyTorch, as one writes it before knowing ablate: argparse, a flag without a value, a CSV log. No line changed."""

import argparse
import csv

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-norm", action="store_true")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", default="log.csv")
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(args.seed)
digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)
train = DataLoader(TensorDataset(x[:1200], y[:1200]), batch_size=60, shuffle=True)

# Batch normalization draws nothing, so both arms of a seed begin with the same weights and see the same batches.
norm = nn.BatchNorm1d(64) if args.batch_norm else nn.Identity()
model = nn.Sequential(nn.Linear(64, 64), norm, nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

with open(args.out, "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["epoch", "loss", "valid_loss", "valid_acc"])
    for epoch in range(1, args.epochs + 1):
        model.train()
        losses = []
        for inputs, labels in train:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            logits = model(x[1200:])
        valid = nn.functional.cross_entropy(logits, y[1200:]).item()
        accuracy = (logits.argmax(1) == y[1200:]).float().mean().item()
        table.writerow([epoch, sum(losses) / len(losses), valid, accuracy])
