"""The other side of turns.py: a peer's process as an object that is asked for turns, and beside it the work without a
loader, which the brimful command measures. It compares nothing.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# To import torch, start workers and fill queues.
START_LIMIT_S = 180


class PeerProcess:
    """It starts at the first question, and again after a failure; between its turns it idles with full queues."""

    def __init__(self, peer: str, job: dict) -> None:
        self.peer, self.job = peer, job
        self.process: subprocess.Popen | None = None
        self.answers = b""
        self.is_ready = False

    def start(self) -> None:
        """Starts the process without waiting for it."""
        self.messages = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it lives as long as the process
        command = [sys.executable, str(Path(__file__).with_name("turns.py")), self.peer, json.dumps(self.job)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.messages, start_new_session=True
        )
        self.answers, self.is_ready = b"", False

    def wait_until_ready(self) -> dict:
        """What the process says of its start; or `{"error": ...}`."""
        if self.process is None:
            self.start()
        if self.is_ready:
            return {}
        answer = self.read(START_LIMIT_S)
        self.is_ready = "error" not in answer
        return answer

    def ask(self, turn: dict) -> dict:
        """The result of a turn, or `{"error": ...}`."""
        started = self.wait_until_ready()
        if "error" in started:
            return started
        # Of a process that ended there is no answer, which tells.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(turn).encode() + b"\n")
            self.process.stdin.flush()
        # A slow peer's warm-up takes longer than what is measured.
        return {**started, **self.read(120 + 20 * turn["seconds"])}

    def read(self, limit_s: float) -> dict:
        deadline = time.monotonic() + limit_s
        while b"\n" not in self.answers:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.close()
                return {"error": f"no answer within {limit_s:.0f} s"}
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                message = self.last_message()
                self.close()
                return {"error": message}
            self.answers += part
        line, _, self.answers = self.answers.partition(b"\n")
        return json.loads(line)

    def last_message(self) -> str:
        self.process.wait()
        self.messages.seek(0)
        lines = [line.strip() for line in self.messages if line.strip()]
        return lines[-1] if lines else f"ended with code {self.process.returncode} and no message"

    def close(self) -> None:
        """Ends the process and its workers."""
        if self.process is not None:
            # A session of its own: the number of the group is that of the process.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


class NoLoader:
    """Decoding and transforming on as many threads, without queues, batches and order: what a CPU loader may reach."""

    def __init__(self, job: dict) -> None:
        self.job = job

    def start(self) -> None:
        pass

    def wait_until_ready(self) -> dict:
        return {}

    def ask(self, turn: dict) -> dict:
        seconds = max(turn["seconds"] / 3, 0.5)
        command = [sys.executable, "-m", "brimful", "bench", "loader", "--json", "--runs", "1"]
        command += ["--shards", f"{self.job['data']}/shards", "--threads", str(self.job["workers"])]
        command += ["--batch-size", str(self.job["batch_size"]), "--seconds", str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120 + 20 * seconds)
        if done.returncode != 0:
            return {"error": (done.stderr.strip() or "no message").splitlines()[-1]}
        report = json.loads(done.stdout)
        return {
            "images_per_s": round(report["no_loader_images_per_s"], 1),
            "host_loader_images_per_s": round(report["images_per_s"], 1),
        }

    def close(self) -> None:
        pass
