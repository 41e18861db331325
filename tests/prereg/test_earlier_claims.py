"""The same claim again: which earlier studies of a ledger are named, whatever was edited in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from committed_trainer import CommitHouse, commits_document
from ledger_samples import enter
from own_trainer import AT, SCRIPT, OwnHouse, own_document

from prereg.registry.earlier_claims import (
    ClaimShape,
    PromisedClaims,
    earlier_claims,
    entries_before,
    promised_claims,
    same_claims_before,
)
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import EarlierClaims, Entry
from prereg.registry.paths import Root
from prereg.registry.register import amend_study
from prereg.registry.registration import Pins
from prereg.study.command import pin_data, pin_scripts
from prereg.study.load import load_study


def found(house: OwnHouse, study: str) -> EarlierClaims:
    root = Root(house.path)
    entries = Ledger(root.ledger).entries()
    return earlier_claims(promised_claims(root, entries), entries, study)


def names(house: OwnHouse, study: str) -> list[str]:
    return [claim.study for claim in found(house, study).studies]


def decide(house: OwnHouse, study: str, **outcomes: str) -> Entry:
    body = {"status": "decided", "verdict": "take fast", "outcomes": outcomes}
    return enter(
        Ledger(Root(house.path).ledger), "decided", body if outcomes else {**body, "outcomes": {}}, study=study
    )


@pytest.fixture
def house(own_house: OwnHouse) -> OwnHouse:
    """A house with a registered study of two learning rates."""
    own_house.register()
    return own_house


EVASIONS: dict[str, dict[str, Any]] = {
    "new seeds": {"seeds": [11, 12, 13, 14]},
    "another value": {"variants": {"slow": {}, "fast": {"lr": 0.4 * 1.000006}}},
    "an unused field of both arms": {"base": {"lr": 0.1, "steps": 4, "note": "again"}},
    "an unused field of one arm": {
        "base": {"lr": 0.1, "steps": 4, "note": "a"},
        "variants": {"slow": {}, "fast": {"lr": 0.4, "note": "b"}},
    },
    "renamed arms": {
        "baseline": "a",
        "variants": {"a": {}, "b": {"lr": 0.4}},
        "hypotheses": {"gain": {"claim": "b lowers val/loss", "smallest": 0.05}},
        "decision": [{"verdict": "v", "when": "supported(gain)"}, {"verdict": "n"}],
    },
    "a swapped direction": {
        "hypotheses": {"gain": {"claim": "slow raises val/loss than fast", "smallest": 0.05}},
    },
    "a changed margin": {"hypotheses": {"gain": {"claim": "fast lowers val/loss", "smallest": 0.001}}},
    "another verb and name": {
        "hypotheses": {"other": {"claim": "fast does_not_worsen val/loss", "smallest": 0.05}},
        "decision": [{"verdict": "v", "when": "supported(other)"}, {"verdict": "n"}],
    },
    "one more claim before it": {
        "hypotheses": {
            "first": {"claim": "fast lowers other/loss", "smallest": 0.05},
            "gain": {"claim": "fast lowers val/loss", "smallest": 0.05},
        },
    },
    "one more arm": {"variants": {"slow": {}, "fast": {"lr": 0.4}, "third": {"lr": 0.7}}},
    "another metrics file and other words": {"title": "Something else", "metrics": {"file": "metrics.jsonl"}},
    "more words of the command": {"command": ["{python}", "-u", "./train.py"]},
    "another test": {"analysis": {"alpha": 0.1}},
}


@pytest.mark.parametrize("changes", EVASIONS.values(), ids=EVASIONS)
def test_a_trivial_edit_does_not_hide_an_earlier_study(changes: dict[str, Any], house: OwnHouse) -> None:
    decide(house, "own", gain="refuted")
    house.register(study="again", **changes)
    assert found(house, "again").words == "Claimed before in this repository: 1 study (own: refuted)"
    assert names(house, "own") == []


def test_a_comment_in_the_script_or_another_name_of_it_does_not_hide_one(house: OwnHouse) -> None:
    house.script(SCRIPT + "\n# a comment\n")
    house.register(study="comment")
    assert names(house, "comment") == ["own"]
    house.script(SCRIPT, "renamed.py")
    house.register(study="renamed", command=["{python}", "renamed.py"])
    assert names(house, "renamed") == ["own"]  # the bytes of `own`'s script; those of `comment` are others


def test_the_same_data_make_another_script_the_same_trainer(own_house: OwnHouse) -> None:
    own_house.script("1,2\n", "rows.csv")
    own_house.script(SCRIPT + "\n# other bytes\n", "other.py")
    own_house.register(data=["rows.csv"])
    other = own_document(study="other", command=["{python}", "other.py"])
    own_house.register({**other, "data": ["rows.csv"]})
    assert names(own_house, "other") == ["own"]
    own_house.script("1,3\n", "rows.csv")
    own_house.register({**other, "study": "third", "command": ["{python}", "third.py"]} | third(own_house))
    assert names(own_house, "third") == []


def third(house: OwnHouse) -> dict[str, Any]:
    house.script(SCRIPT + "\n# a third\n", "third.py")
    return {"data": ["rows.csv"]}


DIFFERENT: dict[str, dict[str, Any]] = {
    "another metric": {"hypotheses": {"gain": {"claim": "fast lowers val/other", "smallest": 0.05}}},
    "another setting": {"variants": {"slow": {}, "fast": {"steps": 5}}},
}


@pytest.mark.parametrize("changes", DIFFERENT.values(), ids=DIFFERENT)
def test_another_claim_is_another_claim(changes: dict[str, Any], house: OwnHouse) -> None:
    house.register(study="different", **changes)
    assert found(house, "different") == EarlierClaims(n=0, ended={}, studies=(), unknown=())
    assert not found(house, "different").words


def test_a_main_effect_is_about_its_own_factor(own_house: OwnHouse) -> None:
    factors = {"rate": {"low": {}, "high": {"lr": 0.4}}, "size": {"small": {}, "large": {"steps": 5}}}
    claims = {
        "rate": "mean(high-small, high-large) lowers val/loss than mean(low-small, low-large)",
        "size": "mean(low-large, high-large) lowers val/loss than mean(low-small, high-small)",
    }
    for name, claim in claims.items():
        rule = [{"verdict": "v", "when": f"supported({name})"}, {"verdict": "n"}]
        document = own_document(study=name, baseline="low-small", factors=factors, decision=rule)
        document["hypotheses"] = {name: {"claim": claim, "smallest": 0.05}}
        del document["variants"]
        own_house.register(document)
    assert names(own_house, "size") == []
    own_house.register(study="plain")  # of the rate alone
    assert names(own_house, "plain") == ["rate"]


def test_how_studies_ended_is_said_and_many_are_counted(house: OwnHouse) -> None:
    ledger = Ledger(Root(house.path).ledger)
    for at in range(1, 16):
        house.register(study=f"s{at}", seeds=[at * 10 + 1, at * 10 + 2, at * 10 + 3])
    decide(house, "own")
    decide(house, "s1", gain="inconclusive", unrelated="supported")
    enter(ledger, "decided", {"status": "inadmissible", "outcomes": {}}, study="s2")
    enter(ledger, "peeked", {}, study="s3")
    assert found(house, "s4").words == (
        "Claimed before in this repository: 4 studies (own: 'take fast', s1: inconclusive, s2: inadmissible, "
        "s3: looked at, never decided)"
    )
    last = found(house, "s15")
    assert (last.n, len(last.studies), last.studies[-1].study) == (15, 12, "s14")
    assert last.ended == {"decided": 1, "inconclusive": 1, "inadmissible": 1, "looked at, never decided": 1,
                          "never decided": 11}  # fmt: skip
    assert "15 studies (1 decided, 1 inconclusive, " in last.words


def test_of_studies_registered_together_the_last_one_decided_names_the_others(house: OwnHouse) -> None:
    # Copies that are all registered first, and run from the last one on until one wins.
    house.register(study="second", seeds=[4, 5, 6])
    assert names(house, "own") == []
    decide(house, "second", gain="refuted")
    assert found(house, "own").words == "Claimed before in this repository: 1 study (second: refuted)"
    # What is decided after this one was not known to it.
    decide(house, "own", gain="supported")
    house.register(study="later", seeds=[7, 8, 9])
    decide(house, "later", gain="refuted")
    assert names(house, "own") == ["second"]


def test_a_claim_that_an_amendment_took_away_or_brought_counts(house: OwnHouse) -> None:
    def amend(study: str, **changes: Any) -> None:
        loaded = load_study(house.write(study=study, **changes))
        root = Root(house.path)
        pins = Pins(scripts=pin_scripts(root, loaded.study), data_files=pin_data(root, loaded.study))
        amend_study(root, loaded, pins=pins, design=None, tool={}, at=AT, reason="x", evidence="none")

    other = {"hypotheses": {"gain": {"claim": "fast lowers val/other", "smallest": 0.05}}}
    decide(house, "own", gain="refuted")
    amend("own", **other)
    house.register(study="again")
    assert names(house, "again") == ["own"]
    # A study that was registered first, and took over the claim of a later one.
    house.register(study="placeholder", seeds=[4, 5, 6], **other)
    house.register(study="between", seeds=[7, 8, 9])
    amend("placeholder", seeds=[4, 5, 6])
    assert names(house, "placeholder") == ["own", "again", "between"]
    # A study does not repeat itself.
    amend("between", seeds=[7, 8, 9], title="Other words", analysis={"alpha": 0.1})
    assert names(house, "between") == ["own", "again"]


def test_a_lock_that_is_gone_or_changed_is_named(house: OwnHouse) -> None:
    house.register(study="again")
    lock = Root(house.path).lock("own")
    text = lock.read_text(encoding="utf-8")
    for change in (lock.unlink, lambda: lock.write_text(text.replace("val/loss", "val/xxxx"))):
        change()
        assert found(house, "again").words == "Registered before, with a lock that is gone or changed: own"


def test_what_is_known_at_an_entry_is_what_came_before_it(house: OwnHouse) -> None:
    house.register(study="again")
    entry = decide(house, "again", gain="supported")
    decide(house, "own", gain="refuted")
    root = Root(house.path)
    entries = Ledger(root.ledger).entries()
    known = entries_before(entries, entry)
    assert [entry.event for entry in known] == ["registered", "registered"]
    claims = earlier_claims(promised_claims(root, entries), known, "again")
    assert claims.words == "Claimed before in this repository: 1 study (own: never decided)"


def test_commits_of_one_script_are_compared_again(tmp_path: Path, no_own_corpora: None) -> None:
    import ablate as api
    from ablate.workspace import Workspace

    house = CommitHouse(tmp_path / "house")
    for study in ("own", "again"):
        path = house.write(commits_document(study=study, assume={"metrics": {"val/loss": {"sd": 0.01}}}))
        house.commit(study)
        api.register(path, workspace=Workspace(), accept_underpowered=None)
    assert names(house, "again") == ["own"]


def shape(metric: str = "loss", *settings: str) -> ClaimShape:
    return ClaimShape("h", metric, frozenset(settings or ("lr",)))


def promise(study: str, campaign: str | None = None, *claims: ClaimShape) -> PromisedClaims:
    return PromisedClaims(study, claims or (shape(),), frozenset({"script train.py"}), frozenset(), campaign)


def test_proposals_of_one_campaign_do_not_count_for_one_another() -> None:
    promises = [promise("first"), promise("a-p1", "a"), promise("b-p1", "b"), promise("a-p2", "a"), promise("last")]
    assert [*same_claims_before(promises, "a-p2")] == ["first", "b-p1"]
    assert [*same_claims_before(promises, "last")] == ["first", "a-p1", "b-p1", "a-p2"]
    assert [*same_claims_before(promises, "first", ended_before={"last"})] == ["last"]
    assert same_claims_before(promises, "unknown") == {}


def test_another_trainer_with_other_data_is_another_claim() -> None:
    one = PromisedClaims("one", (shape(),), frozenset({"script a.py"}), frozenset({"d1"}))
    for trainers, data, expected in (({"script b.py"}, {"d2"}, []), ({"script a.py"}, {"d2"}, ["one"]),
                                     ({"script b.py"}, {"d1", "d2"}, ["one"])):  # fmt: skip
        two = PromisedClaims("two", (shape(),), frozenset(trainers), frozenset(data))
        assert [*same_claims_before([one, two], "two")] == expected
    # Of claims with one side, nothing differs.
    sides = [promise("one", None, ClaimShape("h", "loss", frozenset())), promise("two", None, shape())]
    assert same_claims_before(sides, "two") == {}
