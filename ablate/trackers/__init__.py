"""MLflow, TensorBoard and W&B: what `--mirror` sends there, and what `ablate import` reads there."""
