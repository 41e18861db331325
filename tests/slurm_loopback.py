"""A Slurm of one node on the loopback, for tests: Debian's slurm-wlm and munge, as root, without systemd."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONF = """ClusterName=loop
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/run/slurmctld.pid
SlurmdPidFile={place}/run/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=20
SlurmdTimeout=30
InactiveLimit=0
JobRequeue=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def lacking() -> str:
    """Why a Slurm cannot be started here; empty where it can."""
    if os.geteuid() != 0:
        return "a Slurm for tests is started as root"
    absent = [name for name in ("slurmctld", "slurmd", "sbatch", "munged") if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)} (Debian: slurm-wlm munge)" if absent else ""


class Slurm:
    """A controller and a node."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.environment = {**os.environ, "SLURM_CONF": str(place / "slurm.conf")}
        self.host = socket.gethostname().partition(".")[0]
        for name in ("state", "spool", "run"):
            (place / name).mkdir(parents=True)
        conf = CONF.format(host=self.host, cores=os.cpu_count(), place=place, ports=(_free_port(), _free_port()))
        (place / "slurm.conf").write_text(conf)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start the controller (slurmctld) or the node (slurmd)."""
        words = {"slurmctld": ["slurmctld", "-D"], "slurmd": ["slurmd", "-D", "-N", self.host]}[name]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes[name] = subprocess.Popen(words, env=self.environment, **quiet)  # type: ignore[call-overload]

    def kill(self, name: str) -> None:
        """End one of the two at once."""
        self.processes[name].kill()
        self.processes[name].wait()

    def say(self, *words: str) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=150, check=False)
        return done.stdout + done.stderr

    def wait_idle(self, seconds: float = 150) -> bool:
        """Whether the node takes jobs within so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if "idle" in self.say("sinfo", "-h", "-o", "%T"):
                return True
            time.sleep(0.3)
        return False


@contextmanager
def slurm(place: Path) -> Iterator[Slurm | str]:
    """A running Slurm, or what is not installed. Raises `RuntimeError` where it is installed and does not start: a test
    that is then skipped could not fail."""
    if why := lacking():
        yield why
        return
    Path("/run/munge").mkdir(exist_ok=True)
    shutil.chown("/run/munge", "munge", "munge")
    place.mkdir(parents=True, exist_ok=True)
    log = place / "munged.log"
    # Left running, as the system's own: another Slurm of these tests may be using it when this one ends.
    if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode != 0:
        command = "/usr/sbin/munged --force --pid-file=/run/munge/munged.pid"
        with log.open("wb") as stream:
            words = ["su", "-s", "/bin/sh", "munge", "-c", command]  # which leaves a daemon
            subprocess.run(words, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, timeout=150, check=False)
    made_slurm = Slurm(place)
    try:
        deadline = time.monotonic() + 150
        while subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError("munge does not answer: " + log.read_text()[-300:])
            time.sleep(0.1)
        made_slurm.start("slurmctld")
        made_slurm.start("slurmd")
        if not made_slurm.wait_idle():
            controller_log = place / "slurmctld.log"
            last_lines = controller_log.read_text()[-500:] if controller_log.exists() else "no log"
            raise RuntimeError(f"slurmctld does not start: {last_lines}")
        yield made_slurm
    finally:
        made_slurm.say("scancel", "--full", "--user", "root")
        for process in made_slurm.processes.values():
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:  # it waits for a job that does not end
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
