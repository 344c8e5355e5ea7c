"""Runs on a Ray cluster: each is a task with the CPUs and GPUs it needs, restarted elsewhere when its node dies.

docs/clusters.md explains the setup. Isthmus is installed on every node, because only configs and plain options are
sent; the nodes share ``ISTHMUS_HOME`` under the same path, so that any of them can resume a run and read its record.

To stop, tasks are cancelled: one that has not started never does, and a running one gets an interrupt, as by Ctrl-C,
saves its state and ends. Ray ends the tasks of a driver that is killed.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus.core.errors import UserError
from isthmus.core.files import data_dir, home
from isthmus.core.interrupts import keep_handlers, requests_to_stop
from isthmus.core.machine import code_version
from isthmus.core.record import METRICS, RECORD, read_metrics, runs_folder
from isthmus.studies.executors import Advanced, Ended, Event, Executor, Job, work
from isthmus.training.prepare import Options

_RETRIES = 1
"""Restarts by Ray itself when a process or its node dies. After that the study decides, and tries a few times more."""
_LOOK_EVERY = 2.0  # seconds between two looks at the nodes and at the logs of runs under way
_REACHED_WITHIN = 10.0
_SEEN_WITHIN = 60.0  # a network file system may show a new file this much later
_STOPPED_WITHIN = 30.0


class RayCluster(Executor):
    """An executor whose jobs are Ray tasks. Each needs ``threads`` CPUs and ``gpus`` GPUs."""

    def __init__(self, address: str, threads: int = 1, gpus: int = 0, patience: float = 300.0) -> None:
        self.address, self.threads, self.gpus, self.patience = address, threads, gpus, patience
        self.ray = _import_ray(address)
        self.is_guest = bool(self.ray.is_initialized())  # then it stays connected at the end
        if not self.is_guest:
            _connect(self.ray, address)
        variables = {"ISTHMUS_HOME": str(home().absolute())}
        if os.environ.get("ISTHMUS_DATA"):
            variables["ISTHMUS_DATA"] = str(data_dir().absolute())
        settings = {"max_retries": _RETRIES, "retry_exceptions": False, "runtime_env": {"env_vars": variables}}
        self.task = self.ray.remote(**settings)(_carry_out)
        self.running: dict[Any, Sequence[Job]] = {}
        self.cancelled: set[Any] = set()
        self.asked = False
        self.looked = self.fitted = time.monotonic()
        self._look_at_nodes()

    def __exit__(self, *error: object) -> None:
        self._cancel()
        if self.running:
            self.ray.wait(list(self.running), num_returns=len(self.running), timeout=_STOPPED_WITHIN)
        if not self.is_guest:
            self.ray.shutdown()

    def has_room(self) -> bool:
        return len(self.running) < self.slots

    def start(self, jobs: Sequence[Job], options: Options) -> None:
        options = replace(options, data_dir=options.data_dir and options.data_dir.absolute())
        task = self.task.options(name=f"isthmus {jobs[0].id}", num_cpus=self.threads, num_gpus=self.gpus)
        self.running[task.remote(jobs, options, code_version()["digest"])] = jobs

    def events(self, timeout: float) -> list[Event]:
        if self.asked:
            self._cancel()
        if not self.running:
            time.sleep(timeout)
            return []
        ready, _ = self.ray.wait(list(self.running), timeout=timeout)
        events: list[Event] = [event for reference in ready for event in self._collect(reference)]
        if time.monotonic() - self.looked > _LOOK_EVERY:
            self.looked = time.monotonic()
            self._look_at_nodes()
            events += self._progress()
        return events

    def stop(self) -> None:
        """Cancel at the next call of ``events``: a signal may have interrupted Ray itself."""
        self.asked = True

    def _cancel(self) -> None:
        for reference in self.running.keys() - self.cancelled:
            self.cancelled.add(reference)
            self.ray.cancel(reference, force=False)

    def _collect(self, reference: Any) -> list[Ended]:
        jobs, errors = self.running.pop(reference), self.ray.exceptions
        self.cancelled.discard(reference)
        try:
            ended: list[Ended] = self.ray.get(reference)
        except errors.TaskCancelledError:
            return [Ended(job.id, "stopped") for job in jobs]
        except (errors.RayTaskError, errors.RuntimeEnvSetupError) as error:
            # Errors of a run are part of its result. This is one of the node, which would fail every run.
            cause = getattr(error, "cause", None) or error
            return [
                Ended(job.id, "refused", f"a node of the cluster cannot train runs: {_line(cause)}") for job in jobs
            ]
        except errors.RayError as error:
            return [Ended(job.id, "crashed", f"its process or its node died: {_line(error)}") for job in jobs]
        return [_need_written(job, each) for job, each in zip(jobs, ended, strict=True)]

    def _look_at_nodes(self) -> None:
        """Count how many jobs fit now. Where none fits, wait for an autoscaler to add a node."""
        resources = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        needs = {"CPU": self.threads} | ({"GPU": self.gpus} if self.gpus else {})
        fitting = sum(min(int(node.get(name, 0) // need) for name, need in needs.items()) for node in resources)
        self.slots, now = max(1, fitting), time.monotonic()
        if fitting:
            self.fitted = now
        elif now - self.fitted > self.patience:
            most = max((int(node.get("CPU", 0)) for node in resources), default=0)
            wanted = " and ".join(f"{need} {name}s" for name, need in needs.items())
            raise UserError(
                f"no node of the Ray cluster has had {wanted} for {self.patience:.0f} s (the largest has {most} CPUs); "
                "base.threads and base.train.devices say what a run takes"
            )

    def _progress(self) -> Iterator[Advanced]:
        """Progress, read from the logs of the runs in the shared home."""
        for job in itertools.chain.from_iterable(self.running.values()):
            with contextlib.suppress(UserError):
                if lines := read_metrics(runs_folder() / job.id):
                    yield Advanced(job.id, lines[-1]["epoch"] / json.loads(job.settings)["train"]["epochs"])


def _need_written(job: Job, ended: Ended) -> Ended:
    """Refuse a run whose results were written to a place that this machine does not see."""
    written = runs_folder() / job.id / (RECORD if job.until is None else METRICS)
    if ended.how != "done" or _appears(written):
        return ended
    share = "all nodes must share ISTHMUS_HOME through a common file system, under the same path"
    return Ended(job.id, "refused", f"a node of the cluster trained it, but {written} is not here; {share}")


def _carry_out(jobs: Sequence[Job], options: Options, code: str) -> list[Ended]:
    """The task that Ray runs on a node."""
    node = socket.gethostname()
    if code_version()["digest"] != code:
        reason = f"{node} has another isthmus than the driver; install the same one everywhere"
        return [Ended(job.id, "refused", reason) for job in jobs]
    with requests_to_stop(second_ends=False) as is_asked:  # Ray cancels a task by an interrupt
        ended = work(jobs, options, lambda event: None, is_asked)
    return [replace(each, reason=f"{node}: {each.reason}") if each.how == "refused" else each for each in ended]


def _import_ray(address: str) -> Any:
    if (place := _place(address)) and _is_loopback(place[0]):
        # Otherwise Ray uses the machine's network address, where this cluster does not listen and others could.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    # Otherwise Ray prints messages about lost nodes among the results.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    try:
        import ray
    except ImportError as error:
        raise UserError(f"--cluster needs Ray: pip install 'isthmus[ray]' ({error})") from None
    return ray


def _connect(ray: Any, address: str) -> None:
    """Connect, after checking the address: Ray itself tries for a quarter of an hour."""
    if place := _place(address):
        try:
            socket.create_connection(place, _REACHED_WITHIN).close()
        except OSError as error:
            reason = f"nothing answers at {place[0]}:{place[1]} ({error.strerror or error})"
            raise UserError(_unreachable(address, reason)) from None
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")
    try:
        with keep_handlers():
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # a dozen kinds: no cluster, another version, another protocol
        raise UserError(_unreachable(address, _line(error))) from None


def _unreachable(address: str, reason: str) -> str:
    advice = "`ray start --head` starts one (docs/clusters.md says who can reach it), --cluster auto finds it"
    return f"the Ray cluster {address!r} cannot be used: {reason}; {advice}"


def _place(address: str) -> tuple[str, int] | None:
    """Host and port, if they are known without Ray."""
    if address == "auto":
        latest = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster")
        address = os.environ.get("RAY_ADDRESS") or (latest.read_text().strip() if latest.is_file() else "")
        if not address:
            return None
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) < 2**16):
        raise UserError(f"--cluster {address!r} is neither auto nor an address such as 10.0.0.1:6379")
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _appears(path: Path) -> bool:
    until = time.monotonic() + _SEEN_WITHIN
    while not path.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.5)
    return True


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
