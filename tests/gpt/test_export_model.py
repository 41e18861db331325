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

import ablate as api
from ablate.cli import app
from ablate.data.tokenizers import BpeTokenizer, CharTokenizer, FileTokenizer, library_json, train_bpe
from ablate.gpt.export import transformers_model
from ablate.gpt.model import GPT, initialise
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from prereg.errors import CorpusError, EvidenceError, SpecError, StudyError
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
    "qwen3, heads that do not divide the width": LLAMA | {"qk_norm": True, "bias": False, "heads": 3, "head_size": 4},
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


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTED)
def test_transformers_computes_the_same_logits(tmp_path: Path, name: str) -> None:
    from transformers import AutoModelForCausalLM

    model = moved(EXPORTED[name])
    config, weights = transformers_model(model.config, {n: p.detach() for n, p in model.named_parameters()})
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
        (LLAMA | {"heads": 3, "head_size": 4}, "heads: 3"),
    ],
)
def test_a_model_of_no_known_architecture_is_refused_by_its_field(config: dict[str, object], field: str) -> None:
    model = moved(config)
    with pytest.raises(EvidenceError, match=f"model.{field} "):
        transformers_model(model.config, dict(model.named_parameters()))


TEXT = "It is a truth\n\n universally  acknowledged,\nthat a single man\n\n\nin possession of a good fortune.\n" * 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["char", "bpe", "file"])
def test_an_exported_tokenizer_gives_the_same_ids_and_the_text_back(tmp_path: Path, kind: str) -> None:
    from tokenizers import decoders
    from transformers import AutoTokenizer

    tokenizer: CharTokenizer | BpeTokenizer | FileTokenizer = train_bpe(TEXT, 280)
    if kind == "char":
        tokenizer = CharTokenizer.of(TEXT)
    if kind == "file":
        engine = train_bpe(TEXT, 280).engine  # without our cuts, as others make them
        engine.decoder = decoders.ByteLevel()
        (tmp_path / "their.json").write_text(engine.to_str())
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
    with pytest.raises(CorpusError, match="no token for a part"):
        words.encode("\u4e2d")


def engine_of(model: Any, **parts: Any) -> Any:
    from tokenizers import Tokenizer

    engine = Tokenizer(model)
    for name, part in parts.items():
        setattr(engine, name, part)
    return engine


def saved(folder: Path, engine: Any, **model: Any) -> FileTokenizer:
    """What a study reads of a tokenizer; `model` are fields of its model, changed in the file."""
    definition = json.loads(engine.to_str())
    definition["model"] |= model
    (folder / "saved.json").write_text(json.dumps(definition))
    return FileTokenizer.read(folder, "saved.json")


def test_no_text_is_left_out_or_replaced_without_an_error(tmp_path: Path) -> None:
    from tokenizers import models, pre_tokenizers

    pieces = [("<unk>", 0.0), ("a", -1.0), ("b", -1.0)]
    words = {"words": {"a": 0, "b": 1}, "pre_tokenizer": pre_tokenizers.Whitespace()}
    unable = [
        engine_of(models.Unigram(pieces, unk_id=0)),
        engine_of(models.Unigram(pieces[1:])),
        engine_of(models.WordLevel(words["words"]), pre_tokenizer=words["pre_tokenizer"]),
        engine_of(models.WordPiece({"a": 0, "b": 1}, unk_token="[UNK]")),
        engine_of(models.BPE({"a": 0, "b": 1, "?": 2}, [], unk_token="?")),
    ]
    for engine in unable:
        tokenizer = saved(tmp_path, engine)
        assert tokenizer.byte_lengths() is None
        assert len(tokenizer.encode("a")) == 1
        with pytest.raises(CorpusError):
            tokenizer.encode("a z")


def test_a_file_that_drops_text_or_merges_at_random_is_refused(tmp_path: Path) -> None:
    from tokenizers import models, normalizers, pre_tokenizers

    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for engine in (
        engine_of(models.BPE({"a": 0, "b": 1}, [])),
        engine_of(models.BPE({"a": 0, "b": 1}, []), pre_tokenizer=bytewise, normalizer=normalizers.NFC()),
    ):
        with pytest.raises(CorpusError, match="leave out"):
            saved(tmp_path, engine)
    with pytest.raises(CorpusError, match="at random"):
        saved(tmp_path, train_bpe(TEXT, 280).engine, dropout=0.5)
    vocabulary = dict(json.loads(train_bpe(TEXT, 280).engine.to_str())["model"]["vocab"])
    for wrong in ({"a": 300}, {"a": 0}, {"a": "1"}, {"a": None}):
        with pytest.raises(CorpusError, match="is no tokenizer"):
            saved(tmp_path, train_bpe(TEXT, 280).engine, vocab=vocabulary | wrong)


def test_bytes_are_known_only_where_nothing_of_a_text_is_changed(tmp_path: Path) -> None:
    from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers

    def changed(**parts: Any) -> FileTokenizer:
        engine = Tokenizer.from_str(train_bpe(TEXT, 280).engine.to_str())
        for name, part in parts.items():
            setattr(engine, name, part)
        return saved(tmp_path, engine)

    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    isolated, removed = (pre_tokenizers.Split(Regex(r"\s+"), how) for how in ("isolated", "removed"))
    kept = changed(pre_tokenizer=pre_tokenizers.Sequence([isolated, pre_tokenizers.Digits(), plain]))
    lengths = kept.byte_lengths()
    assert lengths is not None and int(lengths[kept.encode(TEXT)].sum()) == len(TEXT.encode())
    assert changed(normalizer=normalizers.NFC()).byte_lengths() is None
    assert changed(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)).byte_lengths() is None
    assert changed(pre_tokenizer=pre_tokenizers.Sequence([removed, plain])).byte_lengths() is None
    for greedy in (AddedToken("truth", lstrip=True), AddedToken("truth", rstrip=True), AddedToken("\nthat")):
        engine = Tokenizer.from_str(train_bpe(TEXT, 280).engine.to_str())
        engine.add_tokens([greedy])
        assert saved(tmp_path, engine).byte_lengths() is None


def test_a_tokenizer_that_marks_the_beginning_of_a_text_marks_it_once(tmp_path: Path) -> None:
    from tokenizers import models, pre_tokenizers

    vocabulary = {"<unk>": 0, "\u2581": 1, "a": 2, "\n": 3}
    engine = engine_of(models.BPE(vocabulary, [], unk_token="<unk>"), pre_tokenizer=pre_tokenizers.Metaspace())
    assert saved(tmp_path, engine).encode("a\na\na").tolist() == [1, 2, 3, 2, 3, 2]


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("gone.json", None, "is not there"),
        ("folder", None, "cannot be read"),
        ("link.json", None, "symbolic link"),
        ("linked/their.json", None, "symbolic link"),
        ("bad.json", '{"model": {"vocab": ["a"]}}', "'bad.json' is no tokenizer"),
        ("bad.json", '{"model": {"type": "BPE", "vocab": {"a": 0}, "unk_token": "a"}}', "'bad.json' is no tokenizer"),
        ("bad.json", "[" * 100_000, "'bad.json' is no tokenizer"),
        ("bad.json", "{}", "'bad.json' is no tokenizer"),
        ("bad.json", "[", "'bad.json' is no tokenizer"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, name: str, content: str | None, found: str) -> None:
    (tmp_path / "folder").mkdir()
    pretrained(tmp_path / "folder" / "their.json", "byte pairs")
    (tmp_path / "linked").symlink_to(tmp_path / "folder")
    (tmp_path / "link.json").symlink_to(tmp_path / "folder" / "their.json")
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(CorpusError, match=found):
        FileTokenizer.read(tmp_path, name)


def study_with_file(house: House, kind: str = "", **changes: Any) -> Path:
    if kind:
        (house.path / "tokenizers").mkdir(exist_ok=True)
        pretrained(house.path / "tokenizers" / "tiny.json", kind)
    base = tiny_document()["base"] | {"data": {"corpus": "tiny", "tokenizer": {"file": "tokenizers/tiny.json"}}}
    base["budget"] = {"steps": 4, "batch": 8}
    base["model"] = LLAMA | {"layers": 1, "context": 16}
    return house.write(base=base, seeds=[1, 2], measure={"every": 4}, **changes)


@pytest.mark.slow
def test_a_study_reads_a_tokenizer_file_and_exports_what_it_trained(house: House, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    study, out = study_with_file(house, "byte pairs"), tmp_path / "out"
    file = house.path / "tokenizers" / "tiny.json"
    quiet = PlainWatcher(StringIO())
    assert api.run(study, RunOptions(slots=1), workspace=api.Workspace(console=quiet)).summary.complete
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
    before = house.snapshot()
    for act in (
        lambda: api.run(study, workspace=api.Workspace(console=quiet)),
        lambda: api.export_model(study, "none/1", tmp_path / "other"),
    ):
        with pytest.raises(CorpusError, match="now another one"):
            act()
    assert house.snapshot() == before and not (tmp_path / "other").exists()


def test_check_refuses_what_a_tokenizer_file_cannot_do_before_anything_is_registered(house: House) -> None:
    study = study_with_file(house)
    with pytest.raises(CorpusError, match="is not there") as caught:
        api.check(study)
    assert caught.value.where.line is not None
    (house.path / "tokenizers").mkdir()
    (house.path / "tokenizers" / "tiny.json").write_text("{}")
    with pytest.raises(CorpusError, match="is no tokenizer"):
        api.check(study)
    gain = {"claim": "layernorm lowers val/bits_per_byte", "smallest": 0.05}
    with pytest.raises(CorpusError, match="val/bits_per_byte is required"):
        api.check(study_with_file(house, "words", hypotheses={"gain": gain}))
    assert api.check(study_with_file(house, "byte pairs", hypotheses={"gain": gain})).study.study == "tiny"
    assert not house.study.with_name("tiny.lock.json").exists()


@pytest.mark.parametrize("name", ["/etc/passwd", "../tokenizer.json", "tokenizers/../../x.json", ""])
def test_a_tokenizer_file_outside_the_root_is_refused_where_the_study_is_read(house: House, name: str) -> None:
    base = tiny_document()["base"] | {"data": {"corpus": "tiny", "tokenizer": {"file": name}}}
    with pytest.raises(SpecError) as caught:
        api.check(house.write(base=base))
    assert caught.value.where.field[:3] == ("base", "data", "tokenizer")
    assert not caught.value.required.startswith(";")


def test_sizes_use_the_number_of_ids_in_the_file(house: House) -> None:
    from prereg.study.training import parameters

    study = study_with_file(house, "byte pairs")
    context = api.check(study)
    planned = {arm.arm: arm.parameters for arm in api.plan_runs(study).arms}
    assert planned == {arm: parameters(context.study.training(arm).model, 301) for arm in planned}


def test_a_wrong_size_of_a_trained_tokenizer_is_named_alone(house: House) -> None:
    base = tiny_document()["base"] | {"data": {"corpus": "tiny", "tokenizer": {"bpe": 10}}}
    with pytest.raises(SpecError) as caught:
        api.check(house.write(base=base))
    assert caught.value.required == "at least 257"


@pytest.mark.slow
def test_weights_that_are_not_the_sealed_ones_are_not_exported(house: House, tmp_path: Path) -> None:
    study = house.write(base=tiny_document()["base"] | {"budget": {"steps": 4, "batch": 8}}, seeds=[1, 2])
    api.run(study, RunOptions(slots=1), workspace=api.Workspace(console=PlainWatcher(StringIO())))
    api.decide(study)
    (weights,) = house.path.glob("data/runs/tiny/*/none/1/weights.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(EvidenceError, match=r"is not what run\.json sealed"):
        api.export_model(study, "none/1", tmp_path / "out")
    with pytest.raises(EvidenceError, match=r"model.embedding_norm: layernorm"):
        api.export_model(study, "layernorm/1", tmp_path / "out")
    record = weights.with_name("run.json")
    record.write_bytes(record.read_bytes() + b"\n")
    with pytest.raises(EvidenceError, match="not what the ledger sealed"):
        api.export_model(study, "none/1", tmp_path / "out")
    assert not (tmp_path / "out").exists()
