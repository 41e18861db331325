"""Trained models as `transformers` loads them: the same logits, and the same token ids."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import House, tiny_document
from safetensors.torch import save_file
from typer.testing import CliRunner

from ablate import api
from ablate.cli import app
from ablate.data.tokenizer_files import FileTokenizer, library_json
from ablate.data.tokenizers import BpeTokenizer, CharTokenizer, train_bpe
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from ablate.training.export import export
from ablate.training.model import GPT, initialise
from prereg.errors import CorpusError, EvidenceError, StudyError
from prereg.study.training import Model

GPT2 = {"layers": 2, "width": 16, "heads": 2, "context": 8}
LLAMA = GPT2 | {"positions": "rope", "block_norm": "rmsnorm", "activation": "swiglu"}
EXPORTED = {
    "gpt2": GPT2,
    "gpt2, exact GELU, no bias, own head": GPT2 | {"activation": "gelu", "bias": False, "tie_embeddings": False},
    "gpt2, squared ReLU, sinusoids": GPT2 | {"activation": "relu2", "positions": "sinusoidal"},
    "gpt2, scaled residuals": GPT2 | {"residual_scale": "depth", "feed_width": 24},
    "gpt2, learned residuals": GPT2 | {"residual_scale": "rezero", "final_norm": "layernorm"},
    "gpt2, centred embeddings": GPT2 | {"embedding_norm": "center"},
    "llama": LLAMA,
    "llama, no bias, wide heads": LLAMA | {"bias": False, "head_size": 12, "tie_embeddings": False},
    "llama, embedding norm": LLAMA | {"embedding_norm": "layernorm"},
    "llama, embedding RMSNorm, scaled residuals": LLAMA | {"embedding_norm": "rmsnorm", "residual_scale": "depth"},
    "qwen3": LLAMA | {"qk_norm": True, "bias": False},
}


def moved(config: dict[str, object]) -> GPT:
    """A model whose every parameter has left where it starts, norms and biases too."""
    model = GPT(Model.model_validate(config), 11)
    initialise(model, 1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize("name", EXPORTED)
def test_transformers_computes_the_same_logits(tmp_path: Path, name: str) -> None:
    from transformers import AutoModelForCausalLM

    model = moved(EXPORTED[name])
    config, weights = export(model.config, {n: p.detach() for n, p in model.named_parameters()})
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    theirs, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report  # nothing is missing, and nothing left over
    ids = torch.randint(0, 11, (3, 8), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        found, wanted = theirs(ids).logits, model(ids)
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-5), (found - wanted).abs().max()


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (GPT2 | {"norm": "post"}, "norm: post"),
        (GPT2 | {"positions": "none"}, "positions: none"),
        (GPT2 | {"block_norm": "rmsnorm"}, "block_norm: rmsnorm"),
        (GPT2 | {"final_norm": "none"}, "final_norm: none"),
        (GPT2 | {"activation": "swiglu"}, "activation: swiglu"),
        (GPT2 | {"qk_norm": True}, "qk_norm: True"),
        (GPT2 | {"head_size": 5}, "head_size: 5"),
        (GPT2 | {"embedding_norm": "layernorm"}, "embedding_norm: layernorm"),
        (LLAMA | {"qk_norm": True}, "bias: True"),
        (LLAMA | {"activation": "gelu"}, "activation: gelu"),
    ],
)
def test_a_model_of_no_known_architecture_is_refused_by_its_field(config: dict[str, object], field: str) -> None:
    model = moved(config)
    with pytest.raises(EvidenceError, match=f"model.{field} "):
        export(model.config, dict(model.named_parameters()))


TEXT = "It is a truth\n\n universally  acknowledged,\nthat a single man\n\n\nin possession of a good fortune.\n" * 8


@pytest.mark.parametrize("kind", ["char", "bpe", "file"])
def test_an_exported_tokenizer_gives_the_same_ids_and_the_text_back(tmp_path: Path, kind: str) -> None:
    from transformers import AutoTokenizer

    tokenizer: CharTokenizer | BpeTokenizer | FileTokenizer = train_bpe(TEXT, 280)
    if kind == "char":
        tokenizer = CharTokenizer.of(TEXT)
    if kind == "file":
        (tmp_path / "their.json").write_text(library_json(tokenizer))
        tokenizer = FileTokenizer.read(tmp_path, "their.json")
    (tmp_path / "tokenizer.json").write_text(library_json(tokenizer))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    ids = theirs(TEXT)["input_ids"]
    assert ids == tokenizer.encode(TEXT).tolist() and len(theirs) == tokenizer.size
    assert theirs.decode(ids, clean_up_tokenization_spaces=False) == tokenizer.decode(np.array(ids)) == TEXT


def pretrained(path: Path, kind: str) -> Path:
    """A tokenizer.json as others make them: byte pairs with an added token, or words."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

    if kind == "byte pairs":
        engine = Tokenizer.from_str(library_json(train_bpe(TEXT, 300)))
        engine.add_special_tokens([AddedToken("<|endoftext|>")])
    else:
        engine = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        engine.normalizer = normalizers.Lowercase()
        engine.pre_tokenizer = pre_tokenizers.Whitespace()
        engine.train_from_iterator([TEXT], trainers.WordPieceTrainer(vocab_size=90, special_tokens=["[UNK]"]))
    engine.enable_truncation(4)  # as files of models often have it
    path.write_text(engine.to_str())
    return path


def test_byte_pairs_of_a_file_know_their_bytes_and_other_tokens_do_not(tmp_path: Path) -> None:
    pretrained(tmp_path / "pairs.json", "byte pairs")
    pairs = FileTokenizer.read(tmp_path, "pairs.json")
    ids, lengths = pairs.encode(TEXT + "caf\u00e9"), pairs.byte_lengths()
    assert pairs.size == 301 and lengths is not None
    assert int(lengths[ids].sum()) == len((TEXT + "caf\u00e9").encode())
    assert int(lengths[300]) == len("<|endoftext|>")
    pretrained(tmp_path / "words.json", "words")
    words = FileTokenizer.read(tmp_path, "words.json")
    assert words.byte_lengths() is None and len(words.encode(TEXT)) > 4
    with pytest.raises(CorpusError, match=r"would write \[UNK\]"):
        words.encode("\u4e2d")


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("gone.json", None, "is not there"),
        ("../tokenizer.json", None, "tokenizer file '../tokenizer.json'"),
        ("/etc/passwd", None, "tokenizer file '/etc/passwd'"),
        ("bad.json", "{}", "'bad.json' is no tokenizer"),
        ("bad.json", "[", "'bad.json' is no tokenizer"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, name: str, content: str | None, found: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(CorpusError, match=found):
        FileTokenizer.read(tmp_path, name)


def study_with_file(house: House, **changes: Any) -> Path:
    base = tiny_document()["base"] | {"data": {"corpus": "tiny", "tokenizer": {"file": "tokenizers/tiny.json"}}}
    base["budget"] = {"steps": 4, "batch": 8}
    base["model"] = LLAMA | {"layers": 1, "context": 16}
    return house.write(base=base, seeds=[1, 2], measure={"every": 4}, **changes)


def test_a_study_reads_a_tokenizer_file_and_exports_what_it_trained(house: House, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (house.path / "tokenizers").mkdir()
    file = pretrained(house.path / "tokenizers" / "tiny.json", "byte pairs")
    study, out = study_with_file(house), tmp_path / "out"
    quiet = PlainWatcher(StringIO())
    assert api.run(study, RunOptions(slots=1), watcher=quiet).summary.complete
    run = CliRunner()
    with pytest.raises(EvidenceError, match="is not decided"):
        api.export_model(study, "layernorm/1", out)
    api.decide(study)
    done = run.invoke(app, ["export-model", str(study), "layernorm/1", str(out)])
    assert done.exit_code == 0, done.output
    names = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert [path.name for path in sorted(out.iterdir())] == names and not list(tmp_path.glob(".out-*"))
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    ids = torch.tensor([tokenizer("the cat")["input_ids"]])
    assert model(ids).logits.shape == (1, ids.shape[1], 301) and model.config.ablate["arm"] == "layernorm"
    for word, found in (("layernorm/1", "exists"), ("layernorm/9", "is not a run")):
        with pytest.raises(StudyError, match=found):
            api.export_model(study, word, out)
    assert run.invoke(app, ["verify", str(study)]).exit_code == 0
    file.write_text(file.read_text() + "\n")
    changed = run.invoke(app, ["verify", str(study)])
    assert changed.exit_code == 4 and "tokenizers/tiny.json" in changed.output


def test_bits_per_byte_need_a_tokenizer_that_knows_its_bytes(house: House) -> None:
    (house.path / "tokenizers").mkdir()
    pretrained(house.path / "tokenizers" / "tiny.json", "words")
    gain = {"claim": "layernorm lowers val/bits_per_byte", "smallest": 0.05}
    study = study_with_file(house, hypotheses={"gain": gain})
    with pytest.raises(CorpusError, match=r"does not say how many bytes|has no token for"):
        api.register(study)


def test_weights_that_are_not_the_sealed_ones_are_not_exported(house: House, tmp_path: Path) -> None:
    study = house.write(base=tiny_document()["base"] | {"budget": {"steps": 4, "batch": 8}}, seeds=[1, 2])
    api.run(study, RunOptions(slots=1), watcher=PlainWatcher(StringIO()))
    api.decide(study)
    (weights,) = house.path.glob("data/runs/tiny/*/none/1/weights.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(EvidenceError, match=r"is not what run\.json sealed"):
        api.export_model(study, "none/1", tmp_path / "out")
    with pytest.raises(EvidenceError, match=r"model.embedding_norm: layernorm"):
        api.export_model(study, "layernorm/1", tmp_path / "out")
    assert not (tmp_path / "out").exists()
