"""Study texts that the tests of `prereg` share: the worked example of the format, and a factorial one."""

from __future__ import annotations

from pathlib import Path

from prereg.registry.paths import Root
from prereg.registry.registration import CorpusPin
from prereg.study.load import Loaded, load_study

EMBNORM = """\
study: embnorm
title: Embedding normalization in a small Pre-LN GPT
question: >
  Does one normalization layer after the summed token and position embeddings
  change the quality or the stability of a 1.6M-parameter Pre-LN GPT?

trainer: gpt
base:
  model:   {layers: 8, width: 128, heads: 8, context: 128, norm: pre, block_norm: layernorm,
            embedding_norm: none, positions: learned, tie_embeddings: true, dropout: 0.0}
  data:    {corpus: tinyshakespeare, tokenizer: char, validation: 0.1}
  optim:   {name: adamw, lr: 3.0e-4, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1, clip: 1.0,
            warmup: 0, schedule: constant}
  budget:  {steps: 300, batch: 16}          # 614,400 tokens a run
  numerics: {dtype: float32, deterministic: true}

baseline: none
variants:
  none: {}
  layernorm: {model.embedding_norm: layernorm}
  rmsnorm:   {model.embedding_norm: rmsnorm}

seeds: [1, 2, 3, 4, 5]

measure:
  every: 25
  suites: [loss, activations, gradients, speed]

stable:
  loss_spike: {above: 6.0, window: 20}
  diverged: {loss_above: 2.0}

hypotheses:
  gain_ln:
    claim: layernorm lowers val/loss
    smallest: 0.02
    role: primary
  gain_rms:
    claim: rmsnorm lowers val/loss
    smallest: 0.02
    role: primary
  harm_ln:
    claim: layernorm does_not_worsen val/accuracy
    smallest: 0.005
    role: guardrail
  harm_rms: {claim: rmsnorm does_not_worsen val/accuracy, smallest: 0.005, role: guardrail}

analysis:
  test: paired_t
  alpha: 0.05
  correct: holm
  also: [bootstrap_t, sign_flip]

stopping: fixed

decision:
  - {verdict: keep none,       when: "refuted(harm_ln) and refuted(harm_rms) and stable(none)"}
  - {verdict: adopt layernorm, when: "supported(gain_ln) and supported(harm_ln)"}
  - {verdict: adopt rmsnorm,   when: "supported(gain_rms) and supported(harm_rms)"}
  - {verdict: adopt layernorm, when: "not stable(none) and stable(layernorm) and not refuted(harm_ln)"}
  - {verdict: keep none,       when: "refuted(gain_ln) and refuted(gain_rms)"}
  - {verdict: inconclusive}
tie_breakers: [val/bits_per_byte, speed/tokens_per_s]
"""

NORMPLACE = """\
study: normplace
title: Pre- and post-norm, shallow and deep, with and without warmup
base:
  model: {width: 128, heads: 4, context: 128, dropout: 0.1, norm: pre, layers: 5}
  data:  {corpus: wikitext-2, tokenizer: {bpe: 4096}}
  optim: {name: adam, lr: 1.0e-3, weight_decay: 0.0, schedule: linear}
  budget: {steps: 902, batch: 32}
  numerics: {dtype: bfloat16}
factors:
  norm:   {pre: {model.norm: pre}, post: {model.norm: post}}
  depth:  {shallow: {model.layers: 5}, deep: {model.layers: 20}}
  warmup: {cold: {optim.warmup: 0}, warm: {optim.warmup: 500}}
baseline: post-deep-cold
seeds: [42, 43, 44]
hypotheses:
  pre_helps_deep: {claim: pre-deep-cold lowers val/loss than post-deep-cold, smallest: 0.05, role: primary}
  depth_interacts:
    claim: "(post-deep-cold - pre-deep-cold) raises val/loss than (post-shallow-cold - pre-shallow-cold)"
    smallest: 0.05
decision:
  - {verdict: pre-norm, when: supported(pre_helps_deep)}
  - {verdict: inconclusive}
"""

COMMAND = """\
study: own
title: A trainer of one's own
trainer: command
command: [python, train.py, "--seed={seed}", "--lr={optim.lr}"]
base: {optim: {lr: 1}}
variants: {slow: {}, fast: {optim.lr: 2}}
baseline: slow
seeds: [1, 2, 3]
hypotheses: {gain: {claim: fast lowers dev/loss, smallest: 0.1}}
decision: [{verdict: fast, when: supported(gain)}, {verdict: inconclusive}]
"""

PIN = CorpusPin(name="tinyshakespeare", sha256="ab" * 32, size_bytes=1115394, characters=1115394)
AT = "2026-01-02T03:04:05+00:00"


def changed(text: str, old: str, new: str) -> str:
    """The text with one place changed; the place must exist."""
    assert text.count(old) >= 1, old
    return text.replace(old, new, 1)


def load_text(folder: Path, text: str, name: str = "embnorm") -> Loaded:
    """Write a study file and load it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_bytes(text.encode())
    return load_study(path)


def house_with(tmp_path: Path, text: str = EMBNORM, name: str = "embnorm") -> tuple[Root, Loaded]:
    """A root with one study file."""
    return Root(tmp_path), load_text(tmp_path / "studies", text, name)
