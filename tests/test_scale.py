"""A plan at scale: every number against a hand computation, the trainer itself, or a recorded run."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import House, tiny_text
from rich.console import Console
from typer.testing import CliRunner

from ablate import api
from ablate.cli import app
from ablate.reporting.summaries.study import scale_json, scale_sections
from ablate.reporting.terminal import show
from ablate.scale.target import CPU, KNOWN, SHAPES, ScaleTarget, activations, device_named, is_of, shaped, state_parts
from prereg.errors import StudyError
from prereg.study.sizes import flops_per_token, parameters
from prereg.study.training import Training

torch.set_num_threads(1)

XL = "1.3B x 50B tokens x 5 seeds on 64 H100"


def config_of(**parts: Any) -> Training:
    return Training.model_validate_json(json.dumps(parts))


@pytest.fixture
def study(house: House) -> Path:
    return house.write()


def test_the_1300_million_parameter_plan_is_that_of_a_pencil(study: Path) -> None:
    found = api.plan_at_scale(study, XL, mfu=0.4, numerics={"dtype": "bfloat16"}, price=2.0)
    # 24 layers of 12 h^2 weights, 9 h biases (4 of attention, 5 of the feed-forward layer) and 2 LayerNorms of 2 h;
    # embeddings of 50,257 tokens and 2,048 positions; the final LayerNorm; the arm's LayerNorm of embeddings.
    h = 2048
    p = 24 * (12 * h * h + 9 * h + 4 * h) + (50257 + 2048) * h + 2 * h + 2 * h
    assert found.value("parameters") == p == 1_315_727_360
    # 6 (12 h^2 L + v h) + 12 L h s (Chowdhery et al. 2022, app. B), s = h = 2048.
    flops = 6 * (24 * 12 * h * h + 50257 * h) + 12 * 24 * h * h
    assert found.value("flops_per_token") == flops == 9_073_274_880
    assert found.value("steps") == 47_684  # 50e9 / (512 x 2048) = 47,683.7
    assert found.value("runs") == 2 * 5
    rate = 0.4 * 989.4e12
    assert found.value("tokens_per_s") == pytest.approx(rate / flops)
    assert found.value("device_hours") == pytest.approx(10 * 50e9 * flops / rate / 3600, rel=1e-12)
    assert 3180 < (found.value("device_hours") or 0) < 3190
    assert found.value("cost") == pytest.approx(2.0 * 3184, rel=1e-3)
    assert found.value("weights") == 4 * p and found.value("gradients") == 4 * p and found.value("moments") == 8 * p
    assert found.value("copy") == 2 * p


def test_runs_take_the_devices_with_which_they_all_end_soonest(study: Path) -> None:
    def hours(devices: int | None) -> tuple[float | None, float | None]:
        found = api.plan_at_scale(study, XL, mfu=0.4, devices_per_run=devices, numerics={"recompute": "blocks"})
        return found.value("run_hours"), found.value("wall_hours")

    # 10 runs on 64 devices: by 1, 2 or 4 in one round, by 8 in two (8 at a time): 2 / 8 of a run's hours is 1 / 4.
    one, two, four, eight = (hours(n) for n in (1, 2, 4, 8))
    assert one[0] == one[1] == pytest.approx(4 * (four[0] or 0))
    assert four[1] == eight[1] == pytest.approx(2 * (eight[0] or 0))
    assert two[1] == pytest.approx(2 * (four[1] or 0))
    assert hours(None) == four  # as soon as eight, on fewer


def test_what_does_not_fit_whole_is_cut_and_what_fits_nowhere_is_said(study: Path) -> None:
    cut = api.plan_at_scale(study, "13B on 8 H100", mfu=0.4, numerics={"dtype": "bfloat16", "recompute": "blocks"})
    title = cut.sections[1].title
    assert "each of 8 devices (fsdp)" in title
    p = parameters(shaped(config_of(), "13B").model.model_copy(update={"embedding_norm": "layernorm"}), 50257)
    assert cut.value("moments") == 8 * p / 8
    assert (cut.value("memory_share") or 1) < 0.9
    never = api.plan_at_scale(study, "13B on 1 L4", mfu=0.4)
    line = next(line for line in never.sections[1].lines if line.key == "memory_share")
    assert line.value is not None and line.value > 1 and line.how.startswith("does not fit")


def test_without_a_measurement_or_an_assumption_there_is_no_time(study: Path) -> None:
    found = api.plan_at_scale(study, XL)
    for key in ("mfu", "tokens_per_s", "run_hours", "device_hours", "wall_hours"):
        assert found.value(key) is None, key
    assert found.value("flops_per_run") is not None and found.value("memory_none") is not None
    assumed = api.plan_at_scale(study, XL, mfu=0.4)
    assert any("MFU of 0.4 is an assumption" in note for note in assumed.notes)


@pytest.mark.slow
def test_a_recorded_run_gives_the_speed_of_its_kind_of_device_and_of_no_other(trained: House) -> None:
    study = trained.study
    records = [json.loads(path.read_text()) for path in trained.path.glob("data/runs/*/*/*/*/run.json")]
    found = api.plan_at_scale(study, "on 1 cpu")
    rates = [record["tokens"] / record["train_s"] for record in records]
    assert len(rates) == 6
    assert found.value("tokens_per_s") == pytest.approx(sum(rates) / 6)
    assert found.value("mfu") is None  # no peak is stated for a processor
    assert any("mean of 6 runs" in note for note in found.notes)
    seconds = 6 * 30 * 8 * 16 / (sum(rates) / 6)
    assert found.value("device_hours") == pytest.approx(seconds / 3600)
    share = api.plan_at_scale(study, "on 1 cpu", peak_tflops=0.1)
    flops = share.value("flops_per_token")
    assert flops is not None
    assert share.value("mfu") == pytest.approx(flops * sum(rates) / 6 / 0.1e12)
    assert api.plan_at_scale(study, "on 1 H100").value("tokens_per_s") is None


@pytest.mark.parametrize("micro_batch", [4, 8])
@pytest.mark.parametrize(
    "model",
    [
        {},
        {"activation": "swiglu", "norm": "post"},
        {"activation": "swiglu", "feed_width": 64},
        {"block_norm": "rmsnorm", "bias": False, "activation": "relu2"},
    ],
)
@pytest.mark.slow
def test_activations_of_a_layer_are_what_the_trainer_keeps_within_a_seventh(
    model: dict[str, Any], micro_batch: int
) -> None:
    from test_recompute import kept_bytes, trainer

    def both(layers: int, recompute: str) -> tuple[float, int]:
        run = trainer(recompute, batch=micro_batch, layers=layers, width=64, heads=4, context=32, **model)
        return activations(run.config, 7, micro_batch, recompute).size_bytes, kept_bytes(run)

    (told_6, kept_6), (told_5, kept_5) = both(6, "none"), both(5, "none")
    assert kept_6 - kept_5 == pytest.approx(told_6 - told_5, rel=1 / 7)
    (told_6, kept_6), (told_5, kept_5) = both(6, "blocks"), both(5, "blocks")
    assert kept_6 - kept_5 == told_6 - told_5 == 4 * micro_batch * 32 * 64


def test_scores_are_counted_where_the_trainer_keeps_them() -> None:
    # Korthikanti et al. 2022, equation 2: s b h (34 + 5 a s / h) a layer in 16 bits.
    s, b, h, a = 128, 2, 64, 8
    model = {"layers": 3, "width": h, "heads": a, "context": s}
    half = config_of(model=model, numerics={"dtype": "bfloat16"})
    outside = s * b * (8 * h + 12 * 50)
    assert activations(half, 50, b, "none").size_bytes == 3 * s * b * h * (34 + 5 * a * s / h) + outside
    whole = config_of(model=model)
    assert activations(whole, 50, b, "none").size_bytes == 3 * s * b * h * 34 * 2 + outside
    one = s * b * h * (34 + 5 * a * s / h)
    assert activations(half, 50, b, "blocks").size_bytes == 3 * 4 * s * b * h + one + outside


def test_the_state_is_what_the_trainer_holds() -> None:
    from test_recompute import trainer

    run = trainer("none", layers=2, width=16)
    run.step()
    held = {"weights": 0, "moments": 0}
    for p in run.model.parameters():
        held["weights"] += p.nbytes
        held["moments"] += sum(v.nbytes for k, v in run.optimizers[0].state[p].items() if k != "step")
    told = {part.key: part.size_bytes for part in state_parts(run.config, 7, 1, "ddp")}
    assert told["weights"] == held["weights"]
    assert told["moments"] == held["moments"]


def test_a_cut_state_is_a_part_of_the_whole_one_and_what_is_gathered_is_said() -> None:
    config = config_of(model={"layers": 4, "width": 64, "heads": 4}, numerics={"dtype": "bfloat16"})
    whole = {part.key: part.size_bytes for part in state_parts(config, 100, 1, "fsdp")}
    cut = {part.key: part.size_bytes for part in state_parts(config, 100, 4, "fsdp")}
    for key in ("weights", "gradients", "moments"):
        assert cut[key] == whole[key] / 4
    assert cut["copy"] == whole["copy"]
    four, five = (parameters(config.model.model_copy(update={"layers": n}), 100) for n in (4, 5))
    block = five - four
    assert cut["gathered"] == 8 * (2 * block + (four - 4 * block))
    assert "gathered" not in whole


@pytest.mark.parametrize("size", SHAPES)
def test_each_named_shape_has_about_the_parameters_of_its_name(size: str) -> None:
    named = float(size[:-1]) * {"M": 1e6, "B": 1e9}[size[-1]]
    # Brown et al. count without positions, and round: 760M has 760.3, 13B 13.0.
    assert parameters(shaped(config_of(), size).model, 50257) == pytest.approx(named, rel=0.03)


def test_a_wish_is_read_as_it_is_said() -> None:
    assert ScaleTarget.of(XL) == ScaleTarget(64, "H100", "1.3B", 50 * 10**9, 5)
    assert ScaleTarget.of("350M parameters x 1.5T tokens on 1,024 H200 SXM") == ScaleTarget(
        1024, "H200 SXM", "350M", 1500 * 10**9
    )
    assert ScaleTarget.of("3 seeds on 1 cpu") == ScaleTarget(1, "cpu", None, None, 3)
    assert ScaleTarget.of("on 2 A100 40GB") == ScaleTarget(2, "A100 40GB")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1.3B",
        "on H100",
        "on 0 H100",
        "1.3B x 350M on 1 H100",
        "1.31B on 1 H100",
        "1.5 seeds on 1 H100",
        "50B tokens x 1B tokens on 1 H100",
        "50B tokns on 1 H100",
        "1.3B, 50B tokens on 1 H100",
        "1..3B on 1 H100",
    ],
)
def test_a_wish_that_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(StudyError) as caught:
        ScaleTarget.of(text)
    assert caught.value.required and "--scale" in caught.value.fix


def test_devices_are_found_by_what_people_and_drivers_call_them() -> None:
    assert device_named("H100").name == device_named("h100-sxm").name == "H100 SXM"
    assert device_named("H100s").name == "H100 SXM"
    assert device_named("cpu") is CPU
    recorded = {
        "A100 40GB": "NVIDIA A100-SXM4-40GB",
        "A100 80GB": "NVIDIA A100 80GB PCIe",
        "H100 PCIe": "NVIDIA H100 PCIe",
        "H100 SXM": "NVIDIA H100 80GB HBM3",
        "H200 SXM": "NVIDIA H200",
        "L4": "NVIDIA L4",
        "L40S": "NVIDIA L40S",
        "MI300X": "AMD Instinct MI300X",
    }
    for device in KNOWN:
        assert [name for name, told in recorded.items() if is_of(device, told)] == [device.name]
        assert not is_of(device, "cpu") and device.source
    assert is_of(CPU, "cpu") and not is_of(CPU, "NVIDIA L4")


def test_a_device_that_is_not_known_needs_its_peak(study: Path) -> None:
    with pytest.raises(StudyError, match="the device 'TPU v9' is not known"):
        api.plan_at_scale(study, "on 4 TPU v9", mfu=0.5)
    found = api.plan_at_scale(study, "on 4 TPU v9", mfu=0.5, peak_tflops=100.0, memory_gb=16)
    flops = found.value("flops_per_token")
    assert flops is not None
    assert found.value("tokens_per_s") == pytest.approx(50e12 / flops)
    assert found.value("memory_share") is not None
    with pytest.raises(StudyError, match="--mfu is a share of a peak"):
        api.plan_at_scale(study, "on 1 cpu", mfu=0.5)


def test_what_contradicts_itself_is_refused(house: House, study: Path) -> None:
    for words, said in (
        ({"devices_per_run": 3}, "64 devices do not split into groups of 3"),
        ({"devices_per_run": 8, "micro_batch": 7}, "micro-batches of 7 do not divide the 64 sequences"),
        ({"shard": "zero"}, "--shard zero is not known"),
        ({"numerics": {"dtype": "fp8"}}, "--dtype fp8 is not known"),
    ):
        with pytest.raises(StudyError, match=said):
            api.plan_at_scale(study, XL, **words)  # type: ignore[arg-type]
    wide = house.write(variants={"none": {}, "layernorm": {"model.width": 32}})
    with pytest.raises(StudyError, match=r"arm layernorm sets model\.width, which the size 1\.3B would replace"):
        api.plan_at_scale(wide, XL)
    assert api.plan_at_scale(wide, "on 1 H100").value("runs") == 6


def test_arms_of_different_size_are_summed_and_the_heaviest_sets_the_memory(house: House) -> None:
    study = house.write(variants={"none": {}, "layernorm": {"model.layers": 3}})
    found = api.plan_at_scale(study, "on 1 H100", mfu=0.5)
    configs = [api.check(study).study.training(arm) for arm in ("none", "layernorm")]
    vocabulary = len(set(tiny_text()))
    assert found.value("parameters") == parameters(configs[1].model, vocabulary)
    flops = sum(flops_per_token(c.model, vocabulary) * c.tokens for c in configs) * 3
    assert found.value("device_hours") == pytest.approx(flops / (0.5 * 67e12) / 3600)


def test_the_table_fits_eighty_columns_and_the_json_holds_every_number(study: Path) -> None:
    found = api.plan_at_scale(study, XL, mfu=0.4, price=2.5)
    out = StringIO()
    show(Console(file=out, width=80, highlight=False), *scale_sections(found))
    assert max(len(line.rstrip()) for line in out.getvalue().splitlines()) <= 80
    assert "ASSUMED" in out.getvalue() and "64 x H100 SXM" in out.getvalue()
    read = json.loads(scale_json(found))
    keys = [line.key for section in found.sections for line in section.lines]
    assert list(read["numbers"]) == keys and len(keys) == len(set(keys))
    assert all(number["how"] for number in read["numbers"].values())
    assert read["numbers"]["mfu"]["value"] == 0.4


def test_the_verb_lists_the_runs_and_plans_them_at_scale_and_writes_nothing(house: House) -> None:
    study = house.write()
    before = house.snapshot()
    listed = CliRunner().invoke(app, ["plan", str(study)])
    assert listed.exit_code == 0 and "6 runs: 2 arms x 3 seeds" in listed.output
    arms = json.loads(CliRunner().invoke(app, ["plan", str(study), "--json"]).output)["arms"]
    assert [arm["arm"] for arm in arms] == ["none", "layernorm"]
    assert arms[0]["parameters"] + 32 == arms[1]["parameters"]
    scaled = CliRunner().invoke(app, ["plan", str(study), "--scale", XL, "--mfu", "0.4", "--json"])
    assert json.loads(scaled.output)["numbers"]["runs"]["value"] == 10
    assert house.snapshot() == before


def test_planning_loads_no_torch(study: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom ablate.cli import app\n"
        f"app(['plan', {str(study)!r}, '--scale', {XL!r}, '--mfu', '0.4'], standalone_mode=False)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
