"""Write fixtures: small studies that were registered, run, decided and bundled by the version that stands here.

    PYTHONPATH=. python tests/written/write.py NAME...

A fixture says what a version wrote, so a name that has a folder is refused. To write one anew because a rule rightly
changes what it finds, remove its folder first; to add one that no fixture has, add its line to README.md.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

TRAINER = '''"""A trainer that learns nothing: its losses are drawn, one curve a seed and arm."""

import json
import os
import random
import sys

config = json.load(open(os.environ["ABLATE_CONFIG"]))
if os.environ.get("FAILS") == os.environ["ABLATE_VARIANT"]:
    sys.exit("told to fail")
draw = random.Random(f"{os.environ['ABLATE_SEED']} {config['name']}")
shared = random.Random(os.environ["ABLATE_SEED"]).gauss(0.0, 0.1)
with open("metrics.jsonl", "w") as out:
    for step in range(1, config["steps"] + 1):
        at = 3.0 - step / 10 + shared
        print(json.dumps({"step": step, "metric": "train/loss", "value": at + draw.gauss(0.0, 0.005)}), file=out)
    for metric, gain in (("val/loss", config["gain"]), ("val/accuracy", config["gain"] / 10)):
        value = 2.0 + shared - gain if metric == "val/loss" else 0.4 - shared / 10 + gain
        print(json.dumps({"step": config["steps"], "metric": metric, "value": value + draw.gauss(0, 0.01)}), file=out)
'''
GPT = {
    "model": {"layers": 2, "width": 16, "heads": 2, "context": 32},
    "data": {"corpus": "toy"},
    "optim": {"lr": 1.0e-3},
    "budget": {"steps": 8, "batch": 4},
}
RULE = [
    {"verdict": "take it", "when": "supported(gain)"},
    {"verdict": "leave it", "when": "refuted(gain)"},
    {"verdict": "inconclusive"},
]


def own(name: str, gain: float = 0.1, **changes: Any) -> dict[str, Any]:
    """A study of the trainer above."""
    return {
        "study": name,
        "title": f"A small study: {name}",
        "trainer": "command",
        "command": ["{python}", "train.py"],
        "base": {"name": "old", "steps": 4, "gain": 0.0},
        "baseline": "old",
        "variants": {"old": {}, "new": {"name": "new", "gain": gain}},
        "seeds": [1, 2, 3],
        "hypotheses": {"gain": {"claim": "new lowers val/loss", "smallest": 0.02}},
        "decision": RULE,
    } | changes


def built_in(name: str, **changes: Any) -> dict[str, Any]:
    """A study of the built-in trainer."""
    return own(name, base=GPT, variants={"old": {}, "new": {"optim.lr": 1.0e-2}}, **changes) | {
        "trainer": "gpt",
        "command": [],
        "measure": {"every": 4},
    }


def ablate(*words: str | Path, code: int = 0) -> str:
    """Run a verb in this process; what it said. Stops unless it ends with the code that the study was made for."""
    from ablate import cli

    sys.argv, ended = ["ablate", *map(str, words)], 0
    said = StringIO()
    try:
        with redirect_stdout(said):
            cli.main()
    except SystemExit as error:
        ended = int(error.code or 0)
    if ended != code:
        sys.exit(f"{said.getvalue()}\nablate {' '.join(map(str, words))} ended with {ended}, not {code}")
    return said.getvalue()


def put(document: dict[str, Any]) -> Path:
    """Write a study into the house that is the working directory."""
    path = Path("studies", f"{document['study']}.yaml")
    Path("train.py").write_text(TRAINER, encoding="utf-8")
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def runs(name: str, arm: str = "*", seed: str = "*") -> list[Path]:
    """Folders of runs."""
    return sorted(Path("data", "runs", name).glob(f"*/{arm}/{seed}"))


def fixed() -> None:
    """A claim with a margin, a guardrail, stability, a second test beside the first."""
    study = put(
        own(
            "fixed",
            question="Does the new way help?",
            hypotheses={
                "gain": {"claim": "new lowers val/loss by at least 0.02"},
                "no_harm": {
                    "claim": "new does_not_worsen val/accuracy",
                    "smallest": 0.05,
                    "role": "guardrail",
                },
            },
            analysis={"also": ["sign_flip"]},
            decision=[
                {"verdict": "take it", "when": "supported(gain) and supported(no_harm) and stable(new)"},
                *RULE[1:],
            ],
            assume={
                "metrics": {
                    "val/loss": {"sd": 0.015, "correlation": 0.9},
                    "val/accuracy": {"sd": 0.02, "correlation": 0},
                },
                "seconds_per_run": 1,
            },
        )
    )
    ablate("run", study)
    ablate("decide", study)


def sequential() -> None:
    """Goes on after its first look, and ends at its second."""
    study = put(own("sequential", 0.03, seeds=[1, 2, 3, 4, 5, 6, 7], stopping={"looks": [3, 7]}))
    ablate("run", study)
    ablate("decide", study, code=3)
    ablate("run", study)
    ablate("decide", study)


def items() -> None:
    """Judged over seeds and the items of a task pack of its own."""
    from harness_samples import TASKS, items_document, write_pack

    write_pack(Path(), n=8)
    document = items_document(study="items")
    Path("tiny.txt").write_text("the cat sat on the mat.\na hen ran to the sea.\nno rain fell on the plain.\n" * 40)
    ablate("corpus", "add", "tiny", "tiny.txt")
    Path("tiny.txt").unlink()
    assert document["measure"]["harness"]["tasks"] == TASKS
    study = put(document)
    Path("train.py").unlink()
    ablate("run", study, "--device", "cpu")
    ablate("decide", study, code=3)


def gpt() -> None:
    """The built-in trainer on the built-in corpus."""
    study = put(built_in("gpt"))
    Path("train.py").unlink()
    ablate("run", study, "--device", "cpu")
    ablate("decide", study)


def imported() -> None:
    """Half of the runs made elsewhere and brought in, the others here."""
    study = put(own("imported", seeds=[1, 2, 3, 4], analysis={"test": "bootstrap_t"}))
    ablate("register", study)
    home = Path.cwd()
    elsewhere = Path(shutil.copytree(home, home.with_name("elsewhere")))
    os.chdir(elsewhere)
    ablate("run", study)
    for folder in runs("imported", "*", "[34]"):
        shutil.rmtree(folder)
    (made,) = Path("data", "runs", "imported").glob("*/")
    os.chdir(home)
    ablate("import", study, Path("..", "elsewhere", made), "--note", "made on another machine")
    ablate("run", study)
    ablate("decide", study, code=7)


def amended() -> None:
    """Amended before any evidence, and again after the first runs were judged."""
    study = put(own("amended", hypotheses={"gain": {"claim": "new lowers val/loss", "smallest": 0.05}}))
    ablate("register", study)
    hypotheses = {
        "gain": {"claim": "new lowers val/loss", "smallest": 0.03},
        "better": {"claim": "new raises val/accuracy", "smallest": 0.001, "role": "secondary"},
    }
    put(own("amended", hypotheses=hypotheses))
    ablate("amend", study, "--reason", "a second metric, and a smaller difference matters", "--yes")
    ablate("run", study)
    ablate("decide", study)
    hypotheses["better"]["smallest"] = 0.002
    put(own("amended", hypotheses=hypotheses))
    ablate("amend", study, "--reason", "a larger difference in accuracy matters", "--yes")
    ablate("run", study)
    ablate("decide", study, code=7)


def sealed() -> None:
    """Signed with an ssh key and stamped by an authority; whom to believe lies beside the study."""
    from seal_samples import allow, ssh_key

    study = put(own("sealed"))
    keys = Path.cwd().with_name("keys")
    key = ssh_key(keys)
    allow(key, Path("studies", "allowed_signers"))
    ablate("register", study, "--sign", key)
    ablate("run", study)
    ablate("decide", study)


def lost() -> None:
    """Inadmissible: starts that failed were removed with their folders, and made again."""
    study = put(own("lost", analysis={"most_lost_starts": 2}))
    os.environ["FAILS"] = "new"
    ablate("run", study, code=5)
    del os.environ["FAILS"]
    for folder in runs("lost", "new"):
        shutil.rmtree(folder)
    ablate("run", study)
    ablate("decide", study, code=4)


def remade() -> None:
    """A run removed after its seal and made again, with the same outcome: told, and no reason against a verdict."""
    study = put(own("remade", seeds=[1, 2, 3, 4, 5], analysis={"test": "wilcoxon", "alpha": 0.1}))
    ablate("run", study)
    (folder,) = runs("remade", "new", "2")
    shutil.rmtree(folder)
    ablate("run", study)
    ablate("decide", study)


def peeked() -> None:
    """Inadmissible: somebody said after the decision that they had looked before it."""
    study = put(own("peeked", seeds=[1, 2, 3, 4, 5], analysis={"test": "sign_flip", "alpha": 0.1}))
    ablate("run", study)
    ablate("decide", study)
    ended = sorted(json.loads((run / "run.json").read_text())["ended_at"] for run in runs("peeked"))
    ablate("peek", study, "--past", ended[4], "--reason", "read a file while the runs went on")
    ablate("decide", study, code=4)


STUDIES: dict[str, Callable[[], None]] = {
    story.__name__: story for story in (fixed, sequential, items, gpt, imported, amended, sealed, lost, remade, peeked)
}
WITH_HTML = "fixed"
LEFT_OUT = shutil.ignore_patterns(".*.lock", ".lock", "*.safetensors", "*.log", "std*.txt", "work", "cache", "*.pt")


@contextmanager
def house() -> Iterator[Path]:
    """An empty house as the working directory, in no git repository, with no corpora but its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "house")
        Path(path, "studies").mkdir(parents=True)
        os.environ |= {"XDG_CACHE_HOME": f"{folder}/cache", "GIT_CEILING_DIRECTORIES": folder, "no_proxy": "*"}
        os.environ.pop("ABLATE_CORPORA", None)
        os.chdir(path)
        try:
            yield path
        finally:
            os.chdir(HERE)


def write(name: str) -> None:
    """Write one fixture, with what `ablate verify` said of it."""
    target = HERE / name
    if target.exists():
        sys.exit(f"{name} is written already; an earlier version's bytes are the point of it")
    with house() as path:
        STUDIES[name]()
        if name != WITH_HTML:
            Path("reports", name, "report.html").unlink()
        study = Path("studies", f"{name}.yaml")
        ablate("bundle", study, "--out", f"{name}.ablate.zip")
        code = 4 if json.loads(Path("reports", name, "verdict.json").read_text())["status"] == "inadmissible" else 0
        found = json.loads(ablate("verify", study, "--json", code=code))
        assert not any(item["faults"] for item in found["items"]), found
        ablate("verify", f"{name}.ablate.zip", code=code)
        told = {"verify": code, "seals": [f"{seal['kind']}: {seal['state']}" for seal in found["seals"]]}
        Path("written.json").write_text(json.dumps(told, indent=2) + "\n")
        shutil.copytree(path, target, ignore=LEFT_OUT)


if __name__ == "__main__":
    for asked in sys.argv[1:] or sys.exit(__doc__):
        write(asked)
        print(f"wrote {asked}")
