"""What is distributed: the source archive, the templates, and the licences of what it needs."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import licenses
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="constraints.txt pins what Python 3.11 needs")
def test_the_page_of_licences_is_what_is_installed_under_the_pins() -> None:
    assert licenses.PAGE.read_text(encoding="utf-8") == licenses.page()
    pins = licenses.pinned()
    needed = (need for needs in licenses.project().values() for need in needs)
    for name in licenses.closure(needed, licenses.CUDA):
        if name in pins:
            assert distribution(name).version.partition("+")[0] == pins[name], name


def test_a_requirement_that_is_not_installed_is_named() -> None:
    with pytest.raises(PackageNotFoundError, match="no-such-package"):
        licenses.closure(["no-such-package>=1"])


def test_the_template_of_the_built_in_gpt_is_the_quickstart() -> None:
    """So that the wheel carries it."""
    template = yaml.safe_load((ROOT / "ablate" / "templates" / "gpt.yaml").read_text(encoding="utf-8"))
    quickstart = yaml.safe_load((ROOT / "studies" / "quickstart.yaml").read_text(encoding="utf-8"))
    del quickstart["question"]
    assert template | {"study": "quickstart"} == quickstart


@pytest.mark.slow
def test_the_source_archive_holds_the_packages_and_docs_and_no_records(tmp_path: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    tracked = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    for name in tracked:
        target = tmp_path / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "source", check=True, capture_output=True)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames() if opened.getmember(name).isfile()}
    packaged = {name for name in tracked if name.startswith(("prereg/", "ablate/", "docs/", "examples/"))}
    assert packaged | {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "constraints.txt"} <= names
    beside = names - set(tracked)
    assert {name.partition("/")[0] for name in beside} <= {"PKG-INFO", "setup.cfg", "ablate_prereg.egg-info"}
    assert not [name for name in names if name.startswith(("tests/", "reports/", "studies/", "data/", "benchmarks/"))]
