"""A distributed job for tests: one script on several ranks of this machine. What ranks do is the script's business."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import brimful

# Ranks are copies of one process: importing torch for each would take longer than all the rest.
_FORK = """
import os, sys
import torch.distributed as dist
import brimful

world = int(os.environ["WORLD_SIZE"])
children = []
for rank in range(world):
    child = os.fork()
    if child == 0:
        os.environ["RANK"] = str(rank)
        break
    children.append(child)
else:
    sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def output_of_ranks(script: str, world: int, *arguments: str) -> str:
    """What `script` prints on `world` ranks; it finds `brimful`, `dist`, `os`, `sys` and `world` imported and known."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # One thread each, as torchrun does: more would only fight for the cores.
    names = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    paths = [str(Path(brimful.__file__).parents[1]), *sys.path]
    environment = {**os.environ, **names, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", _FORK + script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
