"""Promises that amendments replaced: rebuilt from the ledger, and proven by their hash or not believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from prereg_samples import AT, EMBNORM, NORMPLACE, PIN, changed, house_with, load_text

from prereg.registry.history import past_registrations
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Difference, Entry
from prereg.registry.paths import Root
from prereg.registry.register import amend_study, register_study
from prereg.registry.registration import CorpusPin, Pins
from prereg.study.command import ScriptPin


def entries(root: Root) -> tuple[Entry, ...]:
    return Ledger(root.ledger).entries()


def first(root: Root, loaded: Any, corpus: CorpusPin = PIN) -> None:
    register_study(root, loaded, pins=Pins(corpus=corpus), design=None, tool={}, at=AT)


def then(root: Root, text: str, name: str = "embnorm", corpus: CorpusPin = PIN) -> None:
    loaded = load_text(root.studies, text, name)
    amend_study(root, loaded, pins=Pins(corpus=corpus), design=None, tool={}, at=AT, reason="why", evidence="none")


def test_a_study_that_was_never_amended_has_one_promise_and_its_lock_holds_it(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    first(root, loaded)
    (found,) = past_registrations(root, "embnorm", entries(root))
    assert found.proven
    assert found.document == loaded.study.model_dump(mode="json")
    assert past_registrations(root, "other", entries(root)) == ()


CHANGES = {
    "a value": ("smallest: 0.02", "smallest: 0.03"),
    "a list that grows": ("seeds: [1, 2, 3, 4, 5]", "seeds: [1, 2, 3, 4, 5, 6]"),
    "an arm with a dotted override": ("  rmsnorm:   {", "  third: {optim.lr: 0.1}\n  rmsnorm:   {"),
    "an override added": ("layernorm: {model.", "layernorm: {optim.lr: 0.1, model."),
    "a hypothesis added": ("hypotheses:\n", "hypotheses:\n  more: {claim: rmsnorm raises val/loss, smallest: 1}\n"),
    "a line of the rule": ('when: "refuted(gain_ln) and ', 'when: "not supported(gain_ln) and '),
    "a part of another kind": ("stopping: fixed", "stopping: {looks: [3, 5]}"),
    "a role": ("role: guardrail}", "role: secondary}"),
    "a free mapping": ("tie_breakers: [val", "assume: {metrics: {val/loss: {sd: 1}}}\ntie_breakers: [val"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("back", [False, True])
def test_an_amended_promise_is_rebuilt_to_its_hash(change: str, back: bool, tmp_path: Path) -> None:
    old, new = EMBNORM, changed(EMBNORM, *CHANGES[change])
    if back:
        old, new = new, old
    root, loaded = house_with(tmp_path, old)
    first(root, loaded)
    then(root, new)
    earlier, later = past_registrations(root, "embnorm", entries(root))
    assert (earlier.proven, later.proven) == (True, True)
    assert earlier.document == json.loads(json.dumps(loaded.study.model_dump(mode="json")))
    assert earlier.document != later.document


def test_a_hypothesis_that_was_dropped_and_three_amendments_are_told_too(tmp_path: Path) -> None:
    document = yaml.safe_load(EMBNORM)
    document["base"]["optim"].update(lr=3e-4, eps=1e-8)
    texts = [yaml.safe_dump(document, sort_keys=False)]
    del document["hypotheses"]["harm_rms"]
    document["decision"] = [{"verdict": "yes", "when": "supported(gain_ln)"}, {"verdict": "no"}]
    texts.append(yaml.safe_dump(document, sort_keys=False))
    document["seeds"] = document["seeds"][:-1]
    texts.append(yaml.safe_dump(document, sort_keys=False))
    texts.append(texts[0])
    root, loaded = house_with(tmp_path, texts[0])
    first(root, loaded)
    for text in texts[1:]:
        then(root, text)
    found = past_registrations(root, "embnorm", entries(root))
    assert [one.proven for one in found] == [True] * 4
    assert [len(one.document["hypotheses"]) for one in found if one.document] == [4, 3, 3, 4]  # type: ignore[arg-type]
    assert found[0].entry.registration == found[3].entry.registration


def test_another_order_of_factors_and_another_corpus_are_undone(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path, NORMPLACE, "normplace")
    first(root, loaded)
    lines = NORMPLACE.splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith("  norm:"))
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    text = "".join(lines)
    for arm in ("pre-deep-cold", "post-deep-cold", "post-shallow-cold", "pre-shallow-cold"):
        norm, depth, warmup = arm.split("-")
        text = text.replace(arm, f"{depth}-{norm}-{warmup}")
    then(root, text, "normplace", corpus=PIN)
    then(root, text, "normplace", corpus=PIN.model_copy(update={"sha256": "cd" * 32}))
    found = past_registrations(root, "normplace", entries(root))
    assert [one.document is not None for one in found] == [True, True, True]
    assert [one.proven for one in found[1:]] == [True, True]


def test_a_lock_that_is_gone_or_changed_leaves_promises_counted_and_untold(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    first(root, loaded)
    then(root, changed(EMBNORM, "smallest: 0.02", "smallest: 0.03"))
    lock = root.lock("embnorm")
    whole = lock.read_bytes()
    lock.write_bytes(whole.replace(b"0.03", b"0.04"))
    found = past_registrations(root, "embnorm", entries(root))
    assert [one.document for one in found] == [None, None]
    assert [one.unknown for one in found] == ["embnorm.lock.json is not as it was registered"] * 2
    lock.unlink()
    assert [one.unknown for one in past_registrations(root, "embnorm", entries(root))] == [
        "embnorm.lock.json is not here"
    ] * 2


def test_a_difference_that_does_not_fit_is_not_forced(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    first(root, loaded)
    then(root, changed(EMBNORM, "smallest: 0.02", "smallest: 0.03"))
    made = list(entries(root))
    for bad in (
        [{"field": "hypotheses.gain_ln.smallest", "registered": 0.02, "now": 0.5}],
        [{"field": "nowhere.at.all", "registered": 1, "now": 2}],
    ):
        differences = tuple(Difference(**difference) for difference in bad)
        made[1] = made[1].model_copy(update={"differences": differences})
        earlier, later = past_registrations(root, "embnorm", made)
        assert later.proven
        assert (earlier.document, earlier.proven) == (None, False)
        assert "do not fit" in earlier.unknown
    # A difference that fits and is not the whole truth gives a promise with another hash: told, and not proven.
    made[1] = made[1].model_copy(update={"differences": ()})
    earlier, _ = past_registrations(root, "embnorm", made)
    assert earlier.document is not None
    assert not earlier.proven
    assert "not to the hash" in earlier.unknown


def test_the_scripts_of_a_users_own_trainer_are_part_of_an_earlier_promise(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "studies" / "own-trainer.yaml").read_text(encoding="utf-8")
    root, _ = house_with(tmp_path)
    for number, digit in enumerate("abc"):
        loaded = load_text(root.studies, text, "own-trainer")
        pins = tuple(ScriptPin(path=f"studies/x{n}.v{n}.py", sha256=digit * 64) for n in range(number + 1))
        if not number:
            register_study(root, loaded, pins=Pins(scripts=pins), design=None, tool={}, at=AT)
        else:
            amend_study(
                root,
                loaded,
                pins=Pins(scripts=pins),
                design=None,
                tool={},
                at=AT,
                reason="why",
                evidence="none",
            )
    assert [one.proven for one in past_registrations(root, "own-trainer", entries(root))] == [True] * 3
