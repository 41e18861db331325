"""Signatures by real ssh keys: what is sound, what is not, and every key that cannot sign."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from seal_samples import allow, ssh_key

from prereg.errors import SealError
from prereg.seals import ssh

LOCK = b'{\n  "study": "tiny"\n}\n'
AT = "2026-06-01T12:00:00+00:00"


def signed(tmp_path: Path, message: bytes = LOCK, *, kind: str = "ed25519") -> tuple[Path, Path, str]:
    key = ssh_key(tmp_path, kind=kind)
    signature = ssh.sign(message, key)
    path = tmp_path / "tiny.sig"
    path.write_bytes(signature.data)
    return key, path, signature.fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_signature_holds_for_whom_the_reader_vouches(kind: str, tmp_path: Path) -> None:
    key, path, fingerprint = signed(tmp_path, kind=kind)
    signers = tmp_path / "allowed_signers"
    allow(key, signers)
    found = ssh.examine_signature(LOCK, path, signers, at=AT)
    assert (found.state, found.says) == ("holds", f"signed by ada@example.org, key {fingerprint}")


def test_ssh_keygen_itself_accepts_the_file(tmp_path: Path) -> None:
    key, path, _ = signed(tmp_path)
    signers = tmp_path / "allowed_signers"
    allow(key, signers)
    words = ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", "ada@example.org", "-n", "ablate-registration"]
    done = subprocess.run([*words, "-s", path], input=LOCK, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_fingerprint_is_the_one_ssh_keygen_prints(tmp_path: Path) -> None:
    key, _, fingerprint = signed(tmp_path)
    listed = subprocess.run(["ssh-keygen", "-l", "-f", f"{key}.pub"], capture_output=True, text=True, check=True)
    assert fingerprint == listed.stdout.split()[1]


def test_a_stranger_s_signature_is_told_by_its_key_and_is_no_fault(tmp_path: Path) -> None:
    _, path, fingerprint = signed(tmp_path)
    found = ssh.examine_signature(LOCK, path, tmp_path / "nobody", at=AT)
    assert found.state == "unvouched"
    assert found.says == f"signed by key {fingerprint}, which nobody here vouches for"


def test_another_key_in_allowed_signers_does_not_vouch(tmp_path: Path) -> None:
    _, path, fingerprint = signed(tmp_path)
    signers = tmp_path / "allowed_signers"
    allow(ssh_key(tmp_path, "other"), signers)
    found = ssh.examine_signature(LOCK, path, signers, at=AT)
    assert found.state == "unvouched"
    assert found.says == f"signed by key {fingerprint}, which allowed_signers does not vouch for"


def test_changed_bytes_break_a_signature(tmp_path: Path) -> None:
    key, path, _ = signed(tmp_path)
    signers = tmp_path / "allowed_signers"
    allow(key, signers)
    assert ssh.examine_signature(LOCK + b" ", path, signers, at=AT).state == "broken"


def test_a_changed_signature_breaks(tmp_path: Path) -> None:
    _, path, _ = signed(tmp_path)
    whole = path.read_bytes()
    for spoilt in (
        whole[:100],
        b"",
        whole.replace(b"SSH SIGNATURE", b"SSH SIGNATURF"),
        whole[:90] + b"AAAA" + whole[94:],
    ):
        path.write_bytes(spoilt)
        assert ssh.examine_signature(LOCK, path, None, at=AT).state == "broken", spoilt


def test_a_signature_made_for_another_purpose_is_none(tmp_path: Path) -> None:
    key = ssh_key(tmp_path)
    words = ["ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", key]
    other = subprocess.run(words, input=LOCK, capture_output=True, check=True).stdout
    path = tmp_path / "tiny.sig"
    path.write_bytes(other)
    signers = tmp_path / "allowed_signers"
    allow(key, signers)
    assert ssh.examine_signature(LOCK, path, signers, at=AT).state == "broken"


def test_a_key_allowed_for_something_else_only_does_not_vouch(tmp_path: Path) -> None:
    key, path, _ = signed(tmp_path)
    signers = tmp_path / "allowed_signers"
    allow(key, signers, options='namespaces="git"')
    found = ssh.examine_signature(LOCK, path, signers, at=AT)
    assert found.state == "unvouched"
    assert "not permitted" in found.says


def test_a_key_is_believed_if_it_was_valid_when_it_signed(tmp_path: Path) -> None:
    key, path, _ = signed(tmp_path)
    signers = tmp_path / "allowed_signers"
    allow(key, signers, options='valid-before="20260701"')
    assert ssh.examine_signature(LOCK, path, signers, at=AT).state == "holds"
    late = ssh.examine_signature(LOCK, path, signers, at="2026-08-01T12:00:00+00:00")
    assert late.state == "unvouched"
    assert "expired" in late.says


def test_allowed_signers_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    _, path, _ = signed(tmp_path)
    signers = tmp_path / "allowed_signers"
    signers.write_text("rubbish\n")
    found = ssh.examine_signature(LOCK, path, signers, at=AT)
    assert found.state == "unvouched"
    assert "missing key" in found.says


def refusal(key: Path) -> SealError:
    with pytest.raises(SealError) as caught:
        ssh.sign(LOCK, key)
    return caught.value


def test_a_key_with_a_passphrase_is_refused_at_once_and_nothing_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An askpass program would be started where there is a display: it must not be.
    asked = tmp_path / "asked"
    program = tmp_path / "askpass"
    program.write_text(f"#!/bin/sh\ntouch {asked}\necho secret\n")
    program.chmod(0o700)
    monkeypatch.setenv("SSH_ASKPASS", str(program))
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    begun = time.monotonic()
    error = refusal(ssh_key(tmp_path, passphrase="secret"))
    assert time.monotonic() - begun < 50  # it would wait for a minute
    assert "passphrase" in error.found
    assert error.fix.startswith("ssh-add")
    assert not asked.exists()


@pytest.mark.slow
def test_a_terminal_is_not_asked_either(tmp_path: Path) -> None:
    # In a child that has a terminal, a program that opened /dev/tty would wait for ever.
    key = ssh_key(tmp_path, passphrase="secret")
    code = (
        "import pty, sys, os\n"
        "child, terminal = pty.fork()\n"
        "if child == 0:\n"
        "    from pathlib import Path\n"
        "    from prereg.errors import SealError\n"
        "    from prereg.seals import ssh\n"
        "    try:\n"
        f"        ssh.sign(b'x', Path({str(key)!r}))\n"
        "    except SealError as error:\n"
        "        os._exit(7 if 'passphrase' in error.found else 8)\n"
        "    os._exit(9)\n"
        "said = b''\n"
        "try:\n"
        "    while piece := os.read(terminal, 1000): said += piece\n"
        "except OSError: pass\n"
        "status = os.waitpid(child, 0)[1]\n"
        "print(os.waitstatus_to_exitcode(status), b'passphrase' in said)\n"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout.split() == ["7", "False"]


def test_an_agent_s_key_signs_by_its_public_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = ssh_key(tmp_path, passphrase="")
    socket = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        for _ in range(200):
            if socket.exists():
                break
            time.sleep(0.02)
        subprocess.run(["ssh-add", "-q", key], check=True)
        key.unlink()
        assert ssh.sign(LOCK, key.with_name("key.pub")).fingerprint.startswith("SHA256:")
    finally:
        agent.terminate()
        agent.wait()


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    assert "no such key" in refusal(tmp_path / "none").found
    assert "no such key" in refusal(tmp_path).found


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rubbish"
    path.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nrubbish\n")
    path.chmod(0o600)
    assert "cannot sign with this key" in refusal(path).found


def test_a_public_key_alone_cannot_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = ssh_key(tmp_path)
    key.unlink()
    error = refusal(key.with_name("key.pub"))
    assert "No private key found" in error.found


def test_a_key_that_others_may_read_is_refused_with_the_way_out(tmp_path: Path) -> None:
    key = ssh_key(tmp_path)
    key.chmod(0o644)
    assert refusal(key).fix == f"chmod 600 {key}"


def test_a_key_of_an_unknown_type_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "key"
    words = ["openssl", "genpkey", "-algorithm", "X25519", "-out", str(key)]
    subprocess.run(words, check=True, capture_output=True)
    key.chmod(0o600)
    assert "cannot sign with this key" in refusal(key).found


def test_without_ssh_keygen_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, path, _ = signed(tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    error = refusal(tmp_path / "key")
    assert "ssh-keygen is not on this machine" in error.found
    assert error.fix == "install openssh-client"
    found = ssh.examine_signature(LOCK, path, None, at=AT)
    assert (found.state, found.says) == ("unchecked", "ssh-keygen is not on this machine")
