"""Study files: what is read, what is refused, and how the place of a mistake is named."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from own_trainer import OwnHouse
from prereg_samples import COMMAND, EMBNORM, NORMPLACE, changed, load_text

from prereg import yaml_reader
from prereg.errors import ClaimError, RuleError, SpecError, StudyError, StudyFileError, dotted
from prereg.study.load import load_study
from prereg.study.training import Bpe, Training
from prereg.yaml_reader import parse_yaml


def scalar(text: str) -> object:
    return parse_yaml(f"a: {text}\n".encode(), {})["a"]


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def fault(tmp_path: Path, text: str, name: str = "embnorm") -> StudyError:
    """The error of a study text; an error must come."""
    with pytest.raises(StudyError) as caught:
        load_text(tmp_path, text, name)
    return caught.value


def test_the_worked_example_loads_and_keeps_its_bytes(tmp_path: Path) -> None:
    loaded = load_text(tmp_path, EMBNORM)
    assert loaded.source_bytes == EMBNORM.encode()
    assert loaded.path == tmp_path / "embnorm.yaml"
    assert isinstance(loaded.study.base, Training)
    assert loaded.study.base.optim.lr == 3e-4
    assert loaded.study.base.tokens == 614_400  # 300 steps x 16 x 128, as the comment in the file says
    assert loaded.study.question.startswith(
        "Does one normalization layer after the summed token and position embeddings change"
    )


def test_a_factorial_study_loads(tmp_path: Path) -> None:
    study = load_text(tmp_path, NORMPLACE, "normplace").study
    assert isinstance(study.base, Training)
    assert study.base.data.tokenizer == Bpe(bpe=4096)
    assert len(study.arms) == 8


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1.0e-3", 1e-3),
        (".5", 0.5),
        ("1.", 1.0),
        ("-2", -2),
        ("+3", 3),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("y", "y"),
        ("2026-01-02", "2026-01-02"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("0b11", "0b11"),
        ('"1"', "1"),
        ("'no'", "no"),
        ("val/loss", "val/loss"),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    # YAML 1.2.2, section 10.3.2
    read = scalar(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("text", [".inf", "-.inf", "+.Inf", ".nan", ".NaN", "1e999", "-1e999"])
def test_numbers_that_are_not_finite_are_refused(text: str) -> None:
    with pytest.raises(StudyFileError, match="not a finite number"):
        scalar(text)


@pytest.mark.parametrize("text", ["9007199254740992", "-9007199254740992", "9" * 6000, "0x" + "f" * 20])
def test_integers_that_a_double_cannot_hold_are_refused(text: str) -> None:
    assert scalar("9007199254740991") == 2**53 - 1
    with pytest.raises(StudyFileError, match=r"beyond 2\^53"):
        scalar(text)


def test_a_duplicate_key_is_refused_with_both_its_lines(tmp_path: Path) -> None:
    error = fault(tmp_path, EMBNORM + "baseline: layernorm\n")
    assert isinstance(error, StudyFileError)
    last = EMBNORM.count("\n") + 1
    first = EMBNORM[: EMBNORM.index("baseline: ")].count("\n") + 1
    assert f"'baseline' is given twice, on lines {first} and {last}" in str(error)
    assert error.where.line == last


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("layers: 8", "layers: &eight 8", "an anchor, &eight"),
        ("layers: 8", "layers: *eight", "an alias, .eight"),
        ("layers: 8", "layers: !!int 8", "a tag"),
        ("layers: 8", "layers: !<tag:yaml.org,2002:python/object> 8", "a tag"),
        ("layers: 8", "8: 8", "the key 8 is not text"),
        ("layers: 8", "<<: {layers: 8}", "a merge key"),
        ("title: Emb", "title: \u202eEmb", "U\\+202E"),
        ("title: Emb", "title: \u200bEmb", "U\\+200B"),
        ("title: Emb", "title: \x07Emb", "U\\+0007"),
        ("title: Emb", "title: e\u0301Emb", "normal form C, at column 8"),
        ("title: Emb", 'title: "\\u202e" # Emb', "U\\+202E"),
        ("title: Emb", 'title: "e\\u0301" # Emb', "normal form C"),
        ("title: Emb", 'title: "\\ud800" # Emb', "U\\+D800"),
        ("title: Emb", "title: [Emb", "not YAML"),
    ],
)
def test_ambiguous_text_is_refused_with_its_line(tmp_path: Path, old: str, new: str, found: str) -> None:
    text = changed(EMBNORM, old, new)
    with pytest.raises(StudyFileError, match=found) as caught:
        load_text(tmp_path, text)
    line = text[: text.index(new)].count("\n") + 1
    assert caught.value.where.line in (line, line + 1)  # a syntax error is noticed on the next line
    assert caught.value.where.file == tmp_path / "embnorm.yaml"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (b"", "the file is empty"),
        (b"# nothing\n", "the file is empty"),
        (b"- a\n", "does not hold a mapping"),
        (b"a: 1\n---\nb: 2\n", "a second document"),
        (b"a: \xff\n", "byte 3 is not UTF-8"),
        (b"%YAML 1.2\n---\na: 1\n", "a YAML directive"),
        (b"\xef\xbb\xbfa: 1\n", "FEFF"),
        (b"a: 1\rb: 2\n", "U\\+000D"),
        (b"a: " + b"[" * 100_000, "nested more than 32 deep"),
        (b"? [a]\n: 1\n", "a key that is not a word"),
        (b'a: "\\UFFFFFFFF"\n', "not YAML"),
        (b"a: \t- b\n\t- c", "not YAML"),
        (b"!!map {a: 1}", "an anchor or a tag"),
    ],
)
def test_a_document_that_is_not_one_plain_mapping_is_refused(source: bytes, found: str) -> None:
    with pytest.raises(StudyFileError, match=found):
        parse_yaml(source, {})


def test_windows_line_ends_are_read_like_any_other(tmp_path: Path) -> None:
    assert load_text(tmp_path, EMBNORM.replace("\n", "\r\n")).study == load_text(tmp_path, EMBNORM).study


def test_a_file_over_one_mebibyte_is_refused(tmp_path: Path) -> None:
    assert "larger than 1 MiB" in str(fault(tmp_path, EMBNORM + "#" * (1 << 20)))


@pytest.mark.parametrize(
    "case",
    [
        ("layers: 8", "layer: 8", "base.model.layer", "unknown field 'layer'", "did you mean 'layers'?"),
        ("layers: 8", "layers: eight", "base.model.layers", 'found "eight"', ""),
        ("layers: 8", "layers: 8.0", "base.model.layers", "found 8.0", ""),
        ("norm: pre,", "norm: prae,", "base.model.norm", 'found "prae"', "did you mean 'pre'?"),
        ("embedding_norm: none", "embedding_norm: nona", "base.model.embedding_norm", 'found "nona"', "mean 'none'?"),
        ("width: 128", "width: 100", "base.model", "heads (8) does not divide width (100)", "width: 96"),
        ("tokenizer: char", "tokenizer: cahr", "base.data.tokenizer", 'found "cahr"', "did you mean 'char'?"),
        ("tokenizer: char", "tokenizer: {bpe: 10}", "base.data.tokenizer.bpe", "found 10", ""),
        ("tokenizer: char", "tokenizer: {bp: 300}", "base.data.tokenizer.bp", "unknown field", "did you mean 'bpe'?"),
        ("betas: [0.9, 0.95]", "betas: [0.9]", "base.optim.betas[1]", "item 2 of the list is missing", ""),
        ("seeds: [", "seed: [", "seed", "unknown field 'seed'", "did you mean 'seeds'?"),
        ("seeds: [1,", "seeds: [1.5,", "seeds[0]", "found 1.5", ""),
        ("stopping: fixed", "stopping: fixd", "stopping", 'found "fixd"', "did you mean 'fixed'?"),
        ("stopping: fixed", "stopping: {looks: [3], spendin: pocock}", "stopping.spendin", "'spendin'", "'spending'?"),
        ("stopping: fixed", "stopping: {looks: [3, a]}", "stopping.looks[1]", 'found "a"', ""),
        ("tokenizer: char", "tokenizer: {bpe: x}", "base.data.tokenizer.bpe", 'found "x"', ""),
        ("smallest: 0.02", "smallest: -1", "hypotheses.gain_ln.smallest", "found -1", ""),
        ("role: primary", "role: main", "hypotheses.gain_ln.role", 'found "main"', ""),
        ("gain_ln:\n", "gain ln:\n", "hypotheses.gain ln", 'found "gain ln"', ""),
        ("title: E", "title: 5 #", "title", "found 5", ""),
        ("test: paired_t", "test: shift", "analysis.test", 'found "shift"', ""),
        ("verdict: inconclusive", "verdict: ''", "decision[5].verdict", 'found ""', ""),
    ],
)
def test_a_faulty_field_is_named_with_line_and_cure(tmp_path: Path, case: tuple[str, str, str, str, str]) -> None:
    old, new, field, found, fix = case
    text = changed(EMBNORM, old, new)
    error = fault(tmp_path, text)
    assert found in error.found
    assert fix in error.fix
    assert (error.where.line, dotted(error.where.field)) == (line_of(text, new), field)


@pytest.mark.parametrize("new", ["modle: {}", "model: 3", "model: {layers: -1}", "model: {heads: 7}", "5.0: 1"])
def test_no_message_ever_names_a_union_or_a_type_of_ours(tmp_path: Path, new: str) -> None:
    text = str(fault(tmp_path, changed(EMBNORM, "  numerics: {dtype: float32, deterministic: true}", f"  {new}")))
    for word in ("Training", "dict[", "literal[", "pydantic", "JsonValue", "Input should", "Bpe"):
        assert word not in text


def test_a_missing_required_field_is_named_with_its_meaning(tmp_path: Path) -> None:
    error = fault(tmp_path, changed(EMBNORM, "seeds: [1, 2, 3, 4, 5]", ""))
    assert error.found == "'seeds' is missing"
    assert "initial weights" in error.required


def test_errors_of_claims_and_rules_are_placed_too(tmp_path: Path) -> None:
    claim = fault(tmp_path, changed(EMBNORM, "layernorm lowers", "layernom lowers"))
    assert isinstance(claim, ClaimError)
    at = line_of(EMBNORM, "claim: layernorm lowers")
    assert str(claim).startswith(f"{tmp_path / 'embnorm.yaml'}:{at} hypotheses.gain_ln.claim: ")
    assert claim.fix == "did you mean 'layernorm'?"
    rule = fault(tmp_path, changed(EMBNORM, "supported(gain_rms)", "supported(gain_rsm)"))
    assert isinstance(rule, RuleError)
    at = line_of(EMBNORM, "supported(gain_rms)")
    assert str(rule).startswith(f"{tmp_path / 'embnorm.yaml'}:{at} decision[2].when: ")


def test_an_override_is_blamed_on_its_own_line(tmp_path: Path) -> None:
    error = fault(tmp_path, changed(EMBNORM, "{model.embedding_norm: rmsnorm}", "{model.embeding_norm: rmsnorm}"))
    at = line_of(EMBNORM, "rmsnorm:   {")
    assert str(error).startswith(f"{tmp_path / 'embnorm.yaml'}:{at} variants.rmsnorm.model.embeding_norm: ")


def test_the_study_must_be_named_like_its_file(tmp_path: Path) -> None:
    error = fault(tmp_path, EMBNORM, "embnorm2")
    assert isinstance(error, StudyFileError)
    assert error.fix == "study: embnorm2"


def test_a_missing_file_names_the_nearest_study(tmp_path: Path) -> None:
    load_text(tmp_path, EMBNORM)
    with pytest.raises(StudyFileError, match="no such file") as caught:
        load_study(tmp_path / "embnrm.yaml")
    assert caught.value.fix == f"did you mean '{tmp_path / 'embnorm.yaml'}'?"
    with pytest.raises(StudyFileError) as caught:
        load_study(tmp_path / "embnorm")
    assert caught.value.fix == str(tmp_path / "embnorm.yaml")
    for odd in (Path(), Path("/"), Path("a\0.yaml"), tmp_path / "no" / "where.yaml", tmp_path):
        with pytest.raises(StudyFileError):
            load_study(odd)
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(StudyFileError, match="cannot be read"):
        load_study(tmp_path / "folder.yaml")


def test_the_base_of_a_command_stays_as_it_was_written(tmp_path: Path) -> None:
    # The same mapping would fit the built-in trainer, and must not be filled up with its defaults.
    study = load_text(tmp_path, COMMAND, "own").study
    assert study.base == {"optim": {"lr": 1}}
    assert study.arms["fast"].config == {"optim": {"lr": 2}}


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, len(EMBNORM)), cut=st.integers(0, 12), insert=st.text(max_size=12))
def test_no_edit_of_a_study_gets_past_the_error_tree(tmp_path: Path, at: int, cut: int, insert: str) -> None:
    text = EMBNORM[:at] + insert + EMBNORM[at + cut :]
    path = tmp_path / "embnorm.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load_study(path)
    except StudyError as error:
        assert error.where.file == path
        assert error.found


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=80), st.text(alphabet="ab:{}[]-?|>&*!%@`'\"\\,#\n\t 01.e~<=", max_size=60).map(str.encode)
    )
)
def test_no_bytes_get_past_the_error_tree(tmp_path: Path, source: bytes) -> None:
    path = tmp_path / "any.yaml"
    path.write_bytes(source)
    with pytest.raises(StudyError):
        load_study(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    field=st.sampled_from(
        [
            "base",
            "variants",
            "factors",
            "seeds",
            "measure",
            "stable",
            "trainer",
            "hypotheses",
            "analysis",
            "stopping",
            "decision",
            "tie_breakers",
            "assume",
            "command",
        ]
    ),
    value=JSON,
)
def test_no_value_of_any_field_gets_past_the_error_tree(field: str, value: object) -> None:
    import yaml

    from prereg.study.spec import study_from_document

    document = yaml.safe_load(EMBNORM) | {field: value}
    document["base"]["optim"].update(lr=3e-4, eps=1e-8) if field != "base" else None
    try:
        study_from_document(document)
    except StudyError as error:
        assert not isinstance(error, StudyFileError)
    except ValueError as error:
        # NaN and infinities never reach this function: the reader refuses them.
        assert "not JSON compliant" in str(error) or "surrogates" in str(error)


def test_a_study_error_is_a_spec_error_unless_the_text_is_at_fault(tmp_path: Path) -> None:
    assert isinstance(fault(tmp_path, changed(EMBNORM, "baseline: none", "baseline: nne")), SpecError)


SAMPLES = """\
a: 1
===
b: 'x
  y'
===
c: "x\\
   y\\n"
===
d: >
  fold
  ed

  more
===
e: |-
  lit
   eral
===
f: [1, 2,
 3]
===
g: {a: 1, b: [x, y]}
===
h: plain
  multi
  line
===
i: >+
  keep


===
j: |2
    x
===
k:
- 1
- a b # c
-
===
l: ~
===
m: 'it''s'
===
n: "\\u00e9\\x41\\t"
===
o: - x
===
p: a:b
===
q: a #b
===
s: 1e3
===
u: "a

 b"
===
? v
: w
===
y: &a 1
===
z: *a
===
'aa': 1
===
ee: {a:1}
===
ff: {a: 1,}
===
gg: [a, , b]
===
hh: @x
===
mm: 'x' y
===
---
===
...
===
# c
===
ww: :x
===
yy: ''
===
zz:
"""


@pytest.mark.slow
def test_a_text_that_libyaml_and_pyyaml_both_read_is_the_same_data(monkeypatch: pytest.MonkeyPatch) -> None:
    libyaml = yaml_reader.LOADER
    if libyaml is yaml.SafeLoader:
        pytest.skip("this PyYAML has no libyaml")
    pieces = SAMPLES.split("===\n")
    random = Random(1)  # noqa: S311 (for tests)
    texts = ["".join(random.choice(pieces) for _ in range(random.randint(1, 6))) for _ in range(1500)]
    for at, text in enumerate(texts[::3]):  # and some that are damaged
        place = random.randrange(len(text))
        texts[3 * at] = text[:place] + random.choice(" \n:,[]{}#'\"-?|>&*!") + text[place + random.randint(0, 1) :]
    read = 0
    for text in texts:
        found = []
        for parser in (libyaml, yaml.SafeLoader):
            monkeypatch.setattr(yaml_reader, "LOADER", parser)
            lines: yaml_reader.Lines = {}
            try:
                found.append((parse_yaml(text.encode(), lines), lines))
            except StudyError:
                found.append(None)
        fast, slow = found
        assert fast == slow or None in (fast, slow), text
        read += fast is not None
    assert read > 100


def test_fresh_seeds_are_the_lowest_that_no_other_registered_study_uses(own_house: OwnHouse) -> None:
    assert load_study(own_house.write(seeds="fresh 3")).study.seeds == (1, 2, 3)
    own_house.register(study="first", seeds=[2, 3, 7])
    assert load_study(own_house.write(seeds="fresh 4")).study.seeds == (1, 4, 5, 6)
    own_house.write(study="draft", seeds=[1])  # of a study that is not registered nothing was seen
    registered = own_house.register(seeds="fresh 4").study.seeds
    assert registered == (1, 4, 5, 6)
    later = own_house.register(study="later", seeds="fresh 2").study.seeds
    assert later == (8, 9)
    path = own_house.path / "studies" / "own.yaml"
    assert load_study(path).study.seeds == registered  # its own lock has them
    assert load_study(own_house.write(seeds="fresh 6")).study.seeds == (*registered, 10, 11)
    assert load_study(own_house.write(seeds="fresh 2")).study.seeds == (1, 4)


@pytest.mark.parametrize("text", ["fresh", "fresh 0", "fresh five", "fresh 5001", "fresh 5 6", "Fresh 5", ""])
def test_other_words_in_place_of_seeds_are_refused(own_house: OwnHouse, text: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_study(own_house.write(seeds=text))
    assert caught.value.where.field == ("seeds",) and caught.value.where.line is not None
    assert caught.value.fix == "seeds: fresh 5"


@pytest.mark.parametrize("lock", ["", "{}", '{"study": {"seeds": ["x"]}}', '{"study": []}', "[" * 100_000])
def test_fresh_seeds_are_not_chosen_beside_a_lock_that_cannot_be_read(own_house: OwnHouse, lock: str) -> None:
    (own_house.path / "studies" / "other.lock.json").write_text(lock)
    with pytest.raises(StudyFileError, match=re.escape("other.lock.json")):
        load_study(own_house.write(seeds="fresh 3"))
    assert load_study(own_house.write(seeds=[1, 2])).study.seeds == (1, 2)
