"""How spread out vectors are: norms, mean pairwise cosine, effective rank. Float64 whatever the model computes in."""

from __future__ import annotations

import torch
from torch import Tensor


def norms(vectors: Tensor) -> Tensor:
    """L2 norm of each vector (the last dimension)."""
    lengths: Tensor = vectors.float().norm(dim=-1).double()
    return lengths


def mean_cosine(vectors: Tensor) -> float | None:
    """Mean cosine of two different vectors of a set (..., n, width), mean over sets; none for fewer than two.

    The sum over all pairs is |sum of unit vectors|^2 - n, so that no n x n matrix is needed. A zero vector has cosine 0
    with every other.
    """
    n = vectors.shape[-2]
    if n < 2:
        return None
    units = vectors.double()
    lengths = units.norm(dim=-1, keepdim=True)
    units = torch.where(lengths > 0.0, units / torch.where(lengths > 0.0, lengths, 1.0), 0.0)
    pairs = units.sum(dim=-2).square().sum(dim=-1) - units.square().sum(dim=(-2, -1))
    return float((pairs / (n * (n - 1))).mean())


def effective_rank(vectors: Tensor) -> float:
    """exp of the entropy of the singular values divided by their sum (Roy and Vetterli 2007); 0 for the zero matrix.

    The singular values are the roots of the eigenvalues of the smaller Gram matrix.
    """
    matrix = vectors.double().reshape(-1, vectors.shape[-1])
    gram = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    squares = torch.linalg.eigvalsh(gram)
    # Rounding leaves eigenvalues of the size of eps times the largest where the true ones are 0.
    squares = squares[squares > squares.max() * torch.finfo(torch.float64).eps * max(gram.shape)]
    singular = squares.clamp(min=0.0).sqrt()
    if not singular.numel() or float(singular.sum()) == 0.0:
        return 0.0
    shares = singular / singular.sum()
    return float((-(shares * shares.log()).sum()).exp())
