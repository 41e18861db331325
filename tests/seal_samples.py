"""Real makers of seals for tests: ssh keys and a time-stamping authority."""

from __future__ import annotations

import subprocess
from pathlib import Path

from prereg_samples import AT, PIN, house_with

from ablate.workspace import HERE, StudyContext
from prereg.registry.paths import Root
from prereg.registry.register import register_study
from prereg.registry.registration import Pins, Registration

# OpenSSL 3.0 writes two certificate hashes into a reply where `certs` is configured, and strict readers refuse that.
CONFIG = """\
[tsa]
default_tsa = authority
[authority]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.3.6.1.4.1.99999.1
digests = {digests}
accuracy = secs:1
"""
EXTENSIONS = """\
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = critical, timeStamping
"""


def ssh_key(folder: Path, name: str = "key", *, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new key pair; the path of its private half."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    words = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "", "-f", str(path)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return path


def allow(key: Path, signers: Path, *, options: str = "") -> None:
    """Vouch for a key."""
    public = key.with_name(f"{key.name}.pub").read_text().split()
    signers.write_text(" ".join(word for word in ("ada@example.org", options, *public[:2]) if word) + "\n")


def git(folder: Path, *words: str) -> str:
    """Run git as a user of its own."""
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def registered(tmp_path: Path) -> tuple[StudyContext, Registration]:
    """A registered study in a root of its own."""
    root, loaded = house_with(tmp_path)
    registration, _ = register_study(root, loaded, pins=Pins(corpus=PIN), design=None, tool={"ablate": "test"}, at=AT)
    return StudyContext(HERE, loaded.path, root, loaded), registration


def snapshot(root: Root) -> dict[str, bytes]:
    """Every file and its bytes, git's own left out."""
    files = (path for path in root.path.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {path.relative_to(root.path).as_posix(): path.read_bytes() for path in files}


class Authority:
    """A time-stamping authority made by `openssl ts`, with a root of its own."""

    def __init__(self, folder: Path, name: str = "Test Authority") -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.roots = folder / "root.pem"
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        self._openssl("req", "-x509", *key, "-keyout", "root.key", "-out", "root.pem", "-days", "30",
                      "-subj", f"/CN={name} Root", "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
        self._openssl("req", *key, "-keyout", "tsa.key", "-out", "tsa.csr", "-subj", f"/CN={name}")
        (folder / "extensions").write_text(EXTENSIONS)
        self._openssl("x509", "-req", "-in", "tsa.csr", "-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial",
                      "-out", "tsa.pem", "-days", "20", "-extfile", "extensions")  # fmt: skip
        (folder / "serial").write_text("01")
        for file, digests in (("tsa.cnf", "sha256, sha512"), ("refuses.cnf", "sha1")):
            (folder / file).write_text(CONFIG.format(folder=folder, digests=digests))

    def stamp(self, data: bytes, config: str = "tsa.cnf", digest: str = "sha256") -> bytes:
        """A timestamp of these bytes, asked for as docs/proof.md says."""
        (self.folder / "data").write_bytes(data)
        self._openssl("ts", "-query", "-data", "data", f"-{digest}", "-cert", "-out", "question")
        self._openssl("ts", "-reply", "-config", config, "-queryfile", "question", "-out", "reply")
        return (self.folder / "reply").read_bytes()

    def _openssl(self, *words: str) -> None:
        done = subprocess.run(["openssl", *words], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
