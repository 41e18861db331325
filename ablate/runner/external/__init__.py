"""The worker of a user's own trainer: its pinned code, its process, its metrics."""
