"""Runs trained together: their own weights, batches, masks, norms and fates; as alone but for rounding."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ablate.data.batches import Mixture, Pooled, Split
from ablate.training.cohort import joint as compiling
from ablate.training.cohort import trainer as cohorts
from ablate.training.cohort.joint import Made
from ablate.training.cohort.trainer import CohortTrainer, read_cohort
from ablate.training.trainer import Step, Trainer
from prereg.errors import EvidenceError
from prereg.study.training import Training

torch.set_num_threads(1)
SEEDS = (1, 2, 5)
TOKENS = np.random.default_rng(0).integers(0, 7, 2000)
SPLIT = Split.of(TOKENS, 0.1, 8)

AGREES = 2e-5
"""Largest difference of any loss or weight over 50 steps in float32 that ARCHITECTURE.md states for cohorts."""
MUON_AGREES = 1e-3
"""The same of Muon's weights, whose orthogonalisation computes in bfloat16 and so turns a last digit into more."""


def configuration(steps: int = 50, **changes: Any) -> Training:
    model = {"layers": 2, "width": 16, "heads": 2, "context": 8} | changes.pop("model", {})
    numerics = changes.pop("numerics", {})
    return Training.model_validate_json(
        json.dumps(
            {
                "model": model,
                "budget": {"steps": steps, "batch": 4},
                "optim": {"lr": 1e-3, "warmup": 5, "schedule": "cosine", **changes},
                "numerics": numerics,
            }
        )
    )


def cohort(config: Training, live: tuple[int, ...] = SEEDS) -> CohortTrainer:
    made = CohortTrainer(config, SPLIT, 7, SEEDS)
    made.begin(live)
    return made


def alone(config: Training, seed: int, steps: int) -> tuple[Trainer, list[Step]]:
    run = Trainer(config, SPLIT, 7)
    run.begin(seed)
    return run, [run.step() for _ in range(steps)]


def weights(of: Trainer | Any) -> dict[str, torch.Tensor]:
    with of.evaluated() as model:
        return {name: p.detach().clone() for name, p in model.named_parameters()}


OPTIMIZERS: list[dict[str, Any]] = [
    {},
    {"name": "adam", "weight_decay": 0.0},
    {"name": "sgd", "lr": 1e-2},
    {"name": "sgd", "betas": [0.0, 0.9]},
    {"name": "muon"},
    {"ema": 0.9},
    {"clip": 0.05, "weight_decay": 0.5},
]
MODELS: list[dict[str, Any]] = [
    {"dropout": 0.2},
    {"norm": "post", "block_norm": "rmsnorm", "positions": "rope", "qk_norm": True, "activation": "swiglu"},
    {"norm": "sandwich", "positions": "sinusoidal", "residual_scale": "rezero", "tie_embeddings": False},
    {"embedding_norm": "center", "norm": "none", "bias": False, "activation": "relu2", "positions": "none"},
]
WITH_MODELS = [{**OPTIMIZERS[at], "model": model} for at, model in zip((2, 3, 5, 6), MODELS, strict=True)]
"""A model and an optimizer meet in the gradient alone, so one configuration tries one of each."""


@pytest.mark.slow
@pytest.mark.parametrize("changes", [OPTIMIZERS[0], OPTIMIZERS[1], OPTIMIZERS[4], *WITH_MODELS], ids=json.dumps)
def test_a_cohort_agrees_with_separate_runs_within_the_stated_tolerance(changes: dict[str, Any]) -> None:
    config = configuration(**json.loads(json.dumps(changes)))
    together = cohort(config)
    taken = [together.step() for _ in range(50)]
    for seed in SEEDS:
        run, steps = alone(config, seed, 50)
        losses = np.array([step[seed].loss - one.loss for step, one in zip(taken, steps, strict=True)])
        norms = np.array([step[seed].grad_norm / one.grad_norm - 1 for step, one in zip(taken, steps, strict=True)])
        apart = max(
            float((one - other).abs().max())
            for one, other in zip(weights(run).values(), weights(together.member(seed)).values(), strict=True)
        )
        assert abs(losses).max() <= AGREES and abs(norms).max() <= 1e-3
        assert apart <= (MUON_AGREES if config.optim.name == "muon" else AGREES)
        progress, its = run.progress, together.progress[seed]
        assert (its.batches, its.dropout, its.tokens) == (progress.batches, progress.dropout, progress.tokens)
        means, others = run.mean_grad_norms(), together.member(seed).mean_grad_norms()
        assert set(means) == {"grad/norm", "grad/layer_0", "grad/layer_1"}
        assert others == pytest.approx(means, rel=1e-3)


def test_micro_batches_and_a_mixture_in_a_cohort_give_what_they_give_separate_runs() -> None:
    sources = {"a": TOKENS[:900], "b": TOKENS[900:1800]}
    split = Split(Mixture(sources, {"a": 0.7, "b": 0.3}), Pooled({name: part[:90] for name, part in sources.items()}))
    plain = configuration(10, model={"dropout": 0.2})
    config = plain.model_copy(update={"budget": plain.budget.model_copy(update={"micro_batch": 1})})
    whole, together = (CohortTrainer(one, split, 7, SEEDS) for one in (plain, config))
    apart = []
    for cohort_of in (whole, together):
        cohort_of.begin(SEEDS)
    together.vacate(SEEDS[0])
    for _ in range(10):
        at_once, summed = whole.step(), together.step()
        apart.append(max(abs(at_once[seed].loss - summed[seed].loss) for seed in SEEDS[1:]))
    assert 0.0 < max(apart) <= AGREES, "the sums are taken in another order"
    for seed in SEEDS[1:]:
        run = Trainer(config, split, 7)
        run.begin(seed)
        losses = [run.step().loss for _ in range(10)]
        assert losses[-1] == pytest.approx(summed[seed].loss, abs=AGREES)
        progress, its = run.progress, together.progress[seed]
        assert (its.batches, its.dropout, its.tokens) == (progress.batches, progress.dropout, progress.tokens)
        assert its.dropout == whole.progress[seed].dropout


def test_runs_of_a_cohort_start_from_the_very_bytes_of_separate_runs() -> None:
    config = configuration()
    together = CohortTrainer(config, SPLIT, 7, SEEDS)
    hashes = together.begin(SEEDS)
    for seed in SEEDS:
        run = Trainer(config, SPLIT, 7)
        assert run.begin(seed) == hashes[seed]
        assert run.weights() == together.member(seed).weights()
    assert len({json.dumps(found) for found in hashes.values()}) == len(SEEDS)


def test_bfloat16_differs_by_its_own_rounding_and_no_more() -> None:
    config = configuration(20, numerics={"dtype": "bfloat16"}, model={"dropout": 0.1})
    together = cohort(config)
    taken = [together.step() for _ in range(20)]
    for seed in SEEDS:
        run, steps = alone(config, seed, 20)
        assert max(abs(a[seed].loss - b.loss) for a, b in zip(taken, steps, strict=True)) < 5e-3
        assert together.progress[seed].dropout == run.progress.dropout


@pytest.mark.slow
@pytest.mark.parametrize("optim", OPTIMIZERS, ids=json.dumps)
@pytest.mark.parametrize("spoilt", ["weights", "gradient"])
def test_what_is_not_finite_in_one_seat_changes_no_bit_of_the_others(optim: dict[str, Any], spoilt: str) -> None:
    calm, wild = cohort(configuration(**optim)), cohort(configuration(**optim))
    for number in range(4):
        with torch.no_grad():
            if number == 1:
                name = "token.weight" if spoilt == "weights" else "blocks.1.feed.out.bias"
                wild.stacked[name][1] = math.nan if spoilt == "weights" else 1e38
        expected, found = calm.step(), wild.step()
        assert {seed: found[seed] for seed in (1, 5)} == {seed: expected[seed] for seed in (1, 5)}
    assert wild.member(2).diverged(found[2], 2.0)
    wild.vacate(2)
    for _ in range(3):
        expected, found = calm.step(), wild.step()
        assert found == {seed: expected[seed] for seed in (1, 5)}
    for seed in (1, 5):
        assert wild.member(seed).weights() == calm.member(seed).weights()
    assert all(bool(value.isfinite().all()) for value in wild.stacked.values())


@pytest.mark.parametrize("optim", OPTIMIZERS, ids=json.dumps)
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_resumed_cohort_is_the_uninterrupted_one_to_the_last_bit(
    tmp_path: Path, optim: dict[str, Any], dropout: float
) -> None:
    config = configuration(**optim, model={"dropout": dropout})
    whole = cohort(config)
    for _ in range(3):
        whole.step()
    path = tmp_path / "cohort.safetensors"
    path.write_bytes(whole.checkpoint())
    rest = [whole.step() for _ in range(4)]
    other = cohort(config)
    other.restore(path)
    assert [other.step() for _ in range(4)] == rest
    assert other.progress == whole.progress
    assert other.checkpoint() == whole.checkpoint()


@pytest.mark.parametrize("optim", OPTIMIZERS, ids=json.dumps)
def test_a_cohort_resumed_without_a_run_that_has_ended_gives_the_others_the_same_bits(
    tmp_path: Path, optim: dict[str, Any]
) -> None:
    config = configuration(**optim)
    whole = cohort(config)
    for _ in range(3):
        whole.step()
    path = tmp_path / "cohort.safetensors"
    path.write_bytes(whole.checkpoint())
    assert sorted(read_cohort(path)) == list(SEEDS)
    rest = [whole.step() for _ in range(4)]
    other = cohort(config, live=(1, 5))
    other.restore(path)
    for expected in rest:
        assert other.step() == {seed: expected[seed] for seed in (1, 5)}
    assert other.member(5).weights() == whole.member(5).weights()


def test_one_run_made_again_in_its_seat_gives_the_bits_that_it_had_in_full_company() -> None:
    full, lonely = cohort(configuration()), cohort(configuration(), live=(2,))
    for _ in range(5):
        assert lonely.step() == {2: full.step()[2]}
    assert lonely.member(2).weights() == full.member(2).weights()


def test_decay_falls_on_what_is_a_matrix_of_one_run_although_every_bias_is_one_in_the_stack() -> None:
    groups = cohort(configuration(weight_decay=0.1)).optimizers[0].param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert all(p.dim() >= 3 for p in groups[0]["params"])
    assert all(p.dim() < 3 for p in groups[1]["params"]) and groups[1]["params"]


def test_each_run_is_clipped_by_its_own_norm() -> None:
    config = configuration(clip=1e-3, name="sgd", betas=[0.0, 0.9], weight_decay=0.0, warmup=0, schedule="constant")
    together = cohort(config)
    before = {seed: weights(together.member(seed)) for seed in SEEDS}
    norms = [step.grad_norm for step in together.step().values()]
    assert len(set(norms)) == 3 and min(norms) > 1e-3
    for seed in SEEDS:
        after = weights(together.member(seed))
        moved = math.sqrt(sum(float((after[n] - before[seed][n]).double().square().sum()) for n in after))
        assert moved == pytest.approx(1e-3 * config.optim.lr, rel=2e-2)


def test_a_damaged_checkpoint_of_a_cohort_is_refused_with_what_to_do(tmp_path: Path) -> None:
    together = cohort(configuration())
    path = tmp_path / "cohort.safetensors"
    path.write_bytes(together.checkpoint()[:-10])
    with pytest.raises(EvidenceError, match=r"cannot be read.*"):
        together.restore(path)


@pytest.mark.slow
def test_what_the_compiler_is_handed_computes_the_eager_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The traced operations are carried out one by one: no compiler is needed. What it makes: `test_compiling.py`."""
    made: list[str] = []

    def traced(work: Any, examples: Any, folder: Path, *, deterministic: bool) -> Made:
        made.append(folder.name)
        assert deterministic
        return Made(make_fx(work, tracing_mode="fake")(*examples), 0.0, found=False)

    monkeypatch.setattr(compiling, "compile_once", traced)
    monkeypatch.setattr(cohorts, "compiler_name", lambda _device: "a stand-in")
    monkeypatch.setattr(cohorts, "compiled_folder", Path)
    plain = configuration(clip=0.05, ema=0.9, model={"layers": 1, "dropout": 0.2})
    config = plain.model_copy(update={"budget": plain.budget.model_copy(update={"micro_batch": 2})})
    eager, compiled = cohort(config), CohortTrainer(config, SPLIT, 7, SEEDS, step="compiled")
    compiled.begin(SEEDS)
    assert len(compiled.prepare()) == 2 and compiled.compiler == "a stand-in"
    for number in range(12):
        if number == 6:
            eager.vacate(2)
            compiled.vacate(2)
        expected, found = eager.step(), compiled.step()
        assert all(abs(found[seed].loss - step.loss) <= AGREES for seed, step in expected.items())
    assert made == ["cpu", "cpu"], "once each, for every part of a batch and with a vacant member"
