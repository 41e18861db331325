"""Documents of a registration: nothing promised is left out, nothing is answered for a person, and it reads well."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from export_samples import OPTIONS, ROOT, claim_facts, document, draft, hypotheses, registered, statement, study
from hypothesis import given, settings
from hypothesis import strategies as st

from prereg.documents.facts import StudyFacts, condition_in_words, registered_facts
from prereg.documents.forms import osf
from prereg.documents.page import markdown
from prereg.documents.sentences import fields_with_words
from prereg.errors import StudyError
from prereg.registry.paths import Root
from prereg.rule.condition import parse_condition
from prereg.study.load import load_study
from prereg.study.spec import Study, study_from_document
from prereg.text import ranged

DESIGN = {
    "hypotheses": [
        {
            "hypothesis": "gain",
            "detectable_sd_corrected": 1.16,
            "detectable": 0.021,
            "power": 0.78,
            "seeds_80": 9,
            "effect": -0.02,
        }
    ],
    "scenarios": [
        {
            "name": "no effect anywhere",
            "n_sims": 20000,
            "divergence": 0.1,
            "verdicts": [{"of": "inconclusive", "share": 0.95, "error": 0.002}],
        }
    ],
    "false_adoption": {"of": "false adoption", "share": 0.031, "error": 0.001},
    "worst": [{"name": "no effect anywhere", "n_sims": 20000}],
    "beliefs": [
        {"metric": "val/loss", "scale": "raw", "sd": 0.0123456, "correlation": 0.5, "source": "pilot 'p', 4 seeds"}
    ],
    "timed": "measured on 12 runs",
    "seconds_per_run": 150.0,
    "adopting": ["adopt wide"],
    "cost_s": 3600.0,
}


def told(source: StudyFacts) -> dict[str, str]:
    """Both documents."""
    return {
        "osf": osf(source).markdown(),
        "markdown": markdown(source),
    }


def in_the_repository() -> list[StudyFacts]:
    sources = []
    for path in sorted((ROOT / "studies").glob("*.yaml")):
        sources.append(registered_facts(Root(ROOT), path.stem) or StudyFacts(load_study(path).study))
    return sources


SOURCES = {
    **{option: draft(option) for option in OPTIONS},
    **{f"{option}, registered": registered(option, design=DESIGN) for option in OPTIONS},
    "amended": registered("plain", design=DESIGN, amended=True),
    **{source.study.study: source for source in in_the_repository()},
}


@cache
def documents(name: str) -> dict[str, str]:
    """All three of a source, written once."""
    return told(SOURCES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("form", ["osf", "markdown"])
def test_every_hypothesis_arm_verdict_and_number_of_seeds_stands_in_every_document(name: str, form: str) -> None:
    source = SOURCES[name]
    text, promised = documents(name)[form], source.study
    for hypothesis in promised.hypotheses:
        assert re.search(rf"\b{hypothesis}\b", text), hypothesis
    for arm in promised.arms:
        assert f'"{arm}"' in text, arm
    for line, condition in zip(promised.decision, promised.rule.conditions, strict=True):
        assert line.verdict in text
        assert condition is None or re.sub(r"\bis ", "", condition_in_words(condition)) in re.sub(r"\bis ", "", text)
    n = len(promised.seeds)
    # Seeds where arms are paired by them, runs of each arm where they are not.
    assert f"{n} seeds" in text or all(f"{n} of {arm} (" in text for arm in promised.arms)
    assert ranged(promised.seeds) in text


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("form", ["osf", "markdown"])
def test_a_document_is_plain_english(name: str, form: str) -> None:
    text = documents(name)[form]
    assert not re.search(
        r"(?<![\d.,])1 (seeds|runs|steps|arms|layers|tokens|items|heads|percentage points|fields are)", text
    )
    for raw in (
        "{'",
        "None,",
        "True",
        "False",
        "does_not",
        "exclude_pair",
        "obrien_fleming",
        "new_seeds",
        "embedding_norm",
    ):
        assert raw not in text, raw
    assert "  " not in text.replace("\n", " \n").replace(" \n", "\n") and ".." not in text
    assert not re.search(r" \.(?!\d)", text)  # " .05" is a number
    assert not re.search(r"\.(?=\?|!|,)|\?\.|, \.(?!\d)", text)
    prose = [line for line in text.splitlines() if not line.startswith(("|", "#"))]
    sentences = [s for line in prose for s in re.split(r"(?<=[.?!]) (?=[A-Z])", line.strip("- ")) if len(s) > 40]
    repeated = {sentence for sentence in sentences if sentences.count(sentence) > 1}
    assert not {s for s in repeated if not s.startswith("The smallest difference that matters")}, repeated


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_foreknowledge_is_never_answered(name: str) -> None:
    form = osf(SOURCES[name])
    blanks = {field.key for field in form.fields if field.blank}
    assert {"foreknowledge", "foreknowledge_explanation"} <= blanks
    text, answers = form.markdown(), json.loads(form.json())
    for field in form.fields:
        assert answers[field.key] == field.shown and field.shown in text.replace("\\*", "*")
        if field.blank:
            assert field.shown.startswith("[LEFT TO YOU: whoever registers must ")
    head = text[: text.index("\n## ")]
    assert f"{len(blanks)} fields are left to you" in head
    assert all(f'"{field.title}"' in head for field in form.fields if field.blank)
    assert "whoever registered can answer" in markdown(SOURCES[name]) or SOURCES[name].draft


@pytest.mark.parametrize("name", SOURCES)
def test_a_draft_says_so_in_its_first_line_and_a_registration_never(name: str) -> None:
    for text in documents(name).values():
        assert text.splitlines()[0].startswith("DRAFT" if SOURCES[name].draft else "Registered")
    assert json.loads(osf(SOURCES[name]).json())["status"].startswith("DRAFT") == SOURCES[name].draft


def test_the_form_has_its_fields() -> None:
    assert [field.key for field in osf(draft("plain")).fields] == [
        *("research_questions", "foreknowledge", "foreknowledge_explanation", "study_type", "causal_intention"),
        *("blinding", "additional_blinding", "design", "randomization", "data_collection", "sample_size"),
        *("sample_size_rationale", "starting_and_stopping", "manipulated", "measured", "indices", "models"),
        *("transformations", "inference_criteria", "inclusion_exclusion", "missing_data"),
        *("other_planned_analysis", "context"),
    ]


def test_a_draft_leaves_the_reason_for_its_size_to_a_person_and_a_frozen_design_gives_it() -> None:
    def rationale(source: StudyFacts) -> Any:
        return next(field for field in osf(source).fields if field.key == "sample_size_rationale")

    assert rationale(draft("assumed")).blank
    found = rationale(registered("assumed", design=DESIGN))
    assert not found.blank
    assert "the power at a true difference of 0.02 nats per token is 78.0%" in found.text
    assert "0.0123 nats per token and a correlation between arms of 0.5 (pilot 'p', 4 seeds)" in found.text
    assert "A run is taken to last 2 min 30 s (measured on 12 runs)." in found.text
    assert "20,000 studies" in found.text and "3.1% ± 0.1%" in found.text
    assert rationale(registered("plain", design={"power": 0.8})).blank, "a design that cannot be read gives no reason"


@pytest.mark.parametrize(
    ("option", "name", "sentence", "first", "second"),
    [
        ("plain", "gain", 'The validation loss is lower for arm "wide" than for arm "small".', "δ = 0", "δ ≤ −0.02"),
        ("verbs", "up", 'The validation accuracy is higher for arm "wide" than for arm "small".', "δ = 0", "δ ≥ 0.01"),
        (
            "plain",
            "harm",
            'The validation accuracy is not lower for arm "wide" than for arm "small" by 0.01 (1 percentage point) or '
            "more (non-inferiority).",
            "δ ≤ −0.01",
            "δ = 0",
        ),
        (
            "verbs",
            "same",
            'The norm of the first block\'s input for arm "deep" differs from that for arm "small" by less than 1.5 '
            "(equivalence).",
            "|δ| ≥ 1.5",
            "δ = 0",
        ),
        (
            "verbs",
            "mean",
            'The validation loss is lower for the mean of arms "wide" and "deep" than for arm "small".',
            "δ = 0",
            "δ ≤ −0.02",
        ),
        (
            "factors",
            "interaction",
            'In the validation loss, the difference "post-deep" minus "pre-deep" is higher than the difference '
            '"post-shallow" minus "pre-shallow" (an interaction).',
            "δ = 0",
            "δ ≥ 0.05",
        ),
        (
            "scales",
            "ratio",
            'The natural logarithm of the validation perplexity is lower for arm "wide" than for arm "small".',
            "δ = 0",
            "δ ≤ −0.05 in the natural logarithm",
        ),
        ("readings", "best", 'The highest validation accuracy of any evaluation is higher for arm "deep"', "δ", "δ ≥"),
        ("readings", "early", 'The validation loss at step 100 is lower for arm "deep"', "δ = 0", "δ ≤"),
    ],
)
def test_a_claim_is_a_sentence_and_its_nulls_are_those_of_the_judge(
    option: str, name: str, sentence: str, first: str, second: str
) -> None:
    one = study(option)
    assert statement(one, name).startswith(sentence)
    assert claim_facts(one, name).support.null.startswith(first)
    refuted = claim_facts(one, name).refutation
    assert refuted is not None and refuted.null.startswith(second)


def test_no_data_can_refute_a_change_of_any_size() -> None:
    assert claim_facts(study("verbs"), "any_change").refutation is None
    assert "no data can refute it" in markdown(draft("verbs"))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("looks", "after 3, 5 and 8 seeds and at no other time"),
        ("looks", "Pocock type"),
        ("uncorrected", "no correction for several hypotheses"),
        ("items", "new seeds and of new validation items"),
        ("items", "the first 50 items of each task, with 0 and 3 examples"),
        ("command", "`python train.py '--seed={seed}' '--out=a folder'`"),
        ("factors", 'Factor "depth" has 2 levels: "shallow" (the base, unchanged) and "deep" (16 layers and'),
    ],
)
def test_every_option_has_its_words(option: str, said: str) -> None:
    assert said in markdown(draft(option)) and said in osf(draft(option)).markdown()


def test_a_condition_keeps_its_grouping() -> None:
    assert condition_in_words(parse_condition("supported(a) and (stable(x) or not refuted(b))")) == (
        'a is supported and (arm "x" is stable or b is not refuted)'
    )
    assert condition_in_words(parse_condition("not (supported(a) or not stable(x))")) == (
        'it is not so that (a is supported or arm "x" is not stable)'
    )


def test_an_amendment_is_told_with_its_reason_its_evidence_and_what_changed() -> None:
    text = markdown(registered("plain", amended=True))
    assert "amending 787878787878" in text.splitlines()[0]
    assert "By then runs had been started, and no outcome had been read. Reason given: more seeds" in text
    assert "| seeds | [1, 2] | [1, 2, 3, 4, 5, 6, 7, 8] |" in text


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every place in plain data that holds a value, and the value."""
    below = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    if not isinstance(tree, dict | list) or not tree:
        yield path, tree
    for key, value in below:
        yield from leaves(value, (*path, key))


LITERALS = (
    *("gelu", "post", "rmsnorm", "layernorm", "linear", "cosine", "bfloat16", "log10", "log", "raw", "adam", "pocock"),
    *("secondary", "exploratory", "primary", "best", "area", "holm", "none", "new_seeds_and_items"),
    *("higher", "lower", "wilcoxon", "sign_flip", "bootstrap_t", "calibration", "obrien_fleming", "loss", "speed"),
)


def others(value: Any) -> list[Any]:
    """Values that a field might have instead."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, 2 * value, value - 1, 1.5 * value, value / 2, value + 0.25]
    if isinstance(value, str):
        return [value + "x", *LITERALS, value.replace("lowers", "raises"), value.replace("(gain)", "(harm)")]
    return [{"tasks": "zorro"}, "a text", 60.0] if value is None else [["val/bits_per_byte"], ["sign_flip"]]


def changed_studies(option: str) -> dict[str, Study]:
    """One study for every field of an option's resolved study that can be changed alone, by the field's path."""
    whole = study(option).model_dump(mode="json")
    found: dict[str, Study] = {}
    for path, value in leaves(whole):
        field = ".".join(map(str, path))
        if (
            NOT_PROMISED.match(field)
            or (ALIKE.match(field) and option not in ("plain", "command", "assumed"))
            or ((OF_GPT if option == "command" else OF_COMMANDS).match(field))
        ):
            continue
        for other in others(value):
            tree = deepcopy(whole)
            place = tree
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = other
            try:
                changed = study_from_document(tree)
            except StudyError:
                continue
            if changed.model_dump(mode="json") != whole:
                found[field] = changed
                break
    return found


NOT_PROMISED = re.compile(r"report\b")
"""What the report draws beside the findings: it changes nothing that a registration promises."""
OF_COMMANDS = re.compile(r"metrics\.(file|step)")
"""Means nothing for the built-in trainer."""
OF_GPT = re.compile(r"measure\.(every|suites|loss_level)|code|data")
"""Means nothing for a trainer of the user's own; its code and data are told as the files that registration pins."""
ALIKE = re.compile(r"(base|stable|measure\.(every|suites)|variants|assume)\b")
"""Printed alike whatever the option, and so changed in two of them only."""


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
def test_two_studies_that_differ_in_a_promised_field_are_told_differently(option: str) -> None:
    # Without the beliefs that a design holds of its own, those of the study file are told.
    believed = ("beliefs", "timed", "seconds_per_run")
    base = registered(option, design={key: value for key, value in DESIGN.items() if key not in believed})
    changes = changed_studies(option)
    assert len(changes) >= (60 if option == "plain" else 15), sorted(changes)
    before = told(base)
    for field, changed in changes.items():
        assert base.registration is not None
        after = told(StudyFacts(changed, base.registration.model_copy(update={"study": changed}), base.entries))
        assert after["markdown"] != before["markdown"], field
        assert after["osf"] != before["osf"], field


@given(smallest=st.floats(1e-6, 1e6), alpha=st.floats(0.001, 0.1), seeds=st.integers(2, 40))
@settings(max_examples=40, deadline=None)
def test_any_margin_alpha_and_number_of_seeds_can_be_told(smallest: float, alpha: float, seeds: int) -> None:
    gain = {"claim": "wide lowers val/loss", "smallest": smallest}
    one = study_from_document(
        document(hypotheses=hypotheses(gain=gain), analysis={"alpha": alpha}, seeds=list(range(seeds)))
    )
    for text in told(StudyFacts(one)).values():
        assert f"{seeds} seeds" in text and "nan" not in text and "e-0" not in text.replace("1e-08", "")


def test_every_field_of_a_training_has_words() -> None:
    whole = study("plain").model_dump(mode="json")["base"]
    paths = {f"{section}.{field}" for section, fields in whole.items() for field in fields}
    assert paths | {"numerics.compile"} == set(fields_with_words())  # written only where it is set
