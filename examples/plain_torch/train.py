import argparse
import csv

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ablate import must_match

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", default="metrics.csv")
args = parser.parse_args()

torch.manual_seed(args.seed)
torch.set_num_threads(1)
digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)
for_data = torch.Generator().manual_seed(args.seed)
train = DataLoader(TensorDataset(x[:300], y[:300]), batch_size=30, shuffle=True, generator=for_data)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(args.dropout), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

with open(args.out, "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["epoch", "train_loss", "val_loss", "val_acc"])
    for epoch in range(1, args.epochs + 1):
        model.train()
        for inputs, labels in train:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        must_match(f"last batch of epoch {epoch}", inputs.numpy().tobytes())
        model.eval()
        with torch.no_grad():
            logits = model(x[300:])
        val_loss = nn.functional.cross_entropy(logits, y[300:]).item()
        accuracy = (logits.argmax(1) == y[300:]).float().mean().item()
        table.writerow([epoch, loss.item(), val_loss, accuracy])
