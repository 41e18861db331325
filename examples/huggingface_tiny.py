"""Hugging Face Trainer: a tiny GPT-2 with random weights learns to continue counting. Four changed lines, marked."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from ablate import config, seed
from ablate.huggingface import AblateCallback, last_checkpoint  # changed

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", default="checkpoints")
args = config(parser.parse_args())  # changed
args.seed = seed(args.seed)  # changed


def counting(n, first):
    """Sequences that count up by 1, 2 or 3, modulo 50."""
    return [
        {"input_ids": (ids := torch.tensor([(start + (1 + start % 3) * k) % 50 for k in range(16)])), "labels": ids}
        for start in range(first, first + n)
    ]


torch.set_num_threads(1)
set_seed(args.seed)  # weights are drawn from the seed, before anything else draws
model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=2))
trainer = Trainer(
    model,
    TrainingArguments(
        args.out,
        max_steps=args.steps,
        learning_rate=args.lr,
        per_device_train_batch_size=16,
        seed=args.seed,
        data_seed=args.seed,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=args.steps,
        save_steps=10,
        save_total_limit=1,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        logging_nan_inf_filter=False,  # a loss that is not finite is recorded as it is
    ),
    train_dataset=counting(600, 0),
    eval_dataset=counting(100, 600),
    callbacks=[AblateCallback()],
)
trainer.train(resume_from_checkpoint=last_checkpoint(args.out))  # changed
