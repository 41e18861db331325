"""scikit-learn: a random split per seed, one fit per run. Three lines know of ablate; it runs without a study too."""

import argparse

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split

from ablate import config, log, seed

parser = argparse.ArgumentParser()
parser.add_argument("--c", type=float, default=1.0)
parser.add_argument("--seed", type=int, default=0)
args = config(parser.parse_args())

data, labels = load_digits(return_X_y=True)
# The split is drawn from the seed alone, so that both arms of a seed see the same rows.
train, test, y_train, y_test = train_test_split(data / 16, labels, test_size=0.5, random_state=seed(args.seed))
model = LogisticRegression(C=args.c, max_iter=500).fit(train, y_train)
probabilities = model.predict_proba(test)
log(1, {"val/loss": log_loss(y_test, probabilities), "val/accuracy": accuracy_score(y_test, probabilities.argmax(1))})
