"""Limits of cgroups, read through a root that is made here."""

from __future__ import annotations

import pytest

from brimful.cgroup import Limits, limits

V2 = {"sys/fs/cgroup/cgroup.controllers": "cpu memory"}
GB = 1 << 30


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, Limits()),
        ({**V2, "proc/self/cgroup": "0::/"}, Limits()),
        (
            {
                **V2,
                "proc/self/cgroup": "0::/pod/train",
                "sys/fs/cgroup/pod/train/cpu.max": "max 100000",
                "sys/fs/cgroup/pod/cpu.max": "350000 100000",
                "sys/fs/cgroup/pod/train/memory.max": str(8 * GB),
                "sys/fs/cgroup/pod/memory.max": str(4 * GB),
            },
            Limits(3.5, 4 * GB),
        ),
        # A container sees the host's path, and its own group at the root.
        (
            {**V2, "proc/self/cgroup": "0::/docker/1f", "sys/fs/cgroup/cpu.max": "200000 100000"},
            Limits(2.0, None),
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/1f\n3:memory:/docker/1f",
                "sys/fs/cgroup/cpu,cpuacct/docker/1f/cpu.cfs_quota_us": "150000",
                "sys/fs/cgroup/cpu,cpuacct/docker/1f/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/memory/docker/1f/memory.limit_in_bytes": str(2 * GB),
            },
            Limits(1.5, 2 * GB),
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/\n3:memory:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            },
            Limits(),
        ),
        ({**V2, "proc/self/cgroup": "rubbish\n::\n0::/../up", "sys/fs/cgroup/cpu.max": "rubbish"}, Limits()),
    ],
)
def test_the_tightest_limit_holds(tmp_path, files, expected):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert limits(tmp_path) == expected
