"""Shares of a distributed job: who this process is, that nothing is split twice, and four real processes."""

from __future__ import annotations

import json
import warnings

import pytest

import brimful
from brimful import ranks
from brimful.ranks import Split
from conftest import SAMPLES
from job import output_of_ranks

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"RANK": "1"}, None),
        ({"RANK": "1", "WORLD_SIZE": "4"}, Split(1, 4)),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, Split(3, 8)),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "4"}, Split(3, 4)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, Split(2, 3)),
        ({"MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_SIZE": "2"}, Split(0, 2)),
        ({"PMI_RANK": "5", "PMI_SIZE": "6"}, Split(5, 6)),
        # torchrun on each machine of a Slurm job: Slurm counts machines.
        ({"RANK": "5", "WORLD_SIZE": "16", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, Split(5, 16)),
    ],
)
def test_a_rank_is_found_in_what_the_launcher_left(environment, expected):
    assert ranks.find(environment) == expected


@pytest.mark.parametrize(("rank", "world_size"), [("x", "2"), ("2", "2"), ("-1", "2"), ("", ""), ("0", "0")])
def test_an_environment_that_names_no_rank_is_an_error_that_says_where(pattern, monkeypatch, rank, world_size):
    monkeypatch.setenv("SLURM_PROCID", rank)
    monkeypatch.setenv("SLURM_NTASKS", world_size)
    dataset = brimful.ShardDataset(pattern, fields="cls")
    with pytest.raises(brimful.InvalidOptionError, match="SLURM_PROCID.*Slurm.*\nhint: unset"):
        brimful.DataLoader(dataset, 4, split="rank")
    brimful.DataLoader(dataset, 4)


def test_the_script_of_a_slurm_job_is_told_from_its_tasks(pattern, monkeypatch, recwarn):
    dataset = brimful.ShardDataset(pattern, fields="cls")
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}.items():
        monkeypatch.setenv(name, value)
    brimful.DataLoader(dataset, 4)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="srun"):
        brimful.DataLoader(dataset, 4, split="rank")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert len(brimful.DataLoader(dataset, 4, split="rank")) == 3
    assert not recwarn.list


def test_refused_arguments_say_what_to_use_instead(pattern):
    dataset = brimful.ShardDataset(pattern, fields="cls")
    for options, advice in [
        ({"split": "node"}, 'split="rank"'),
        ({"rank": 1}, "give both"),
        ({"world_size": 2}, "give both"),
        ({"rank": 2, "world_size": 2}, "ranks count from 0"),
        ({"remainder": "error", "rank": 0, "world_size": 2}, "pad"),
    ]:
        with pytest.raises(brimful.InvalidOptionError) as caught:
            brimful.DataLoader(dataset, 4, **options)
        assert advice in str(caught.value), options


def labels(loader):
    return [label for batch in loader for label in batch.tolist()]


def test_samples_that_a_sampler_shares_out_are_not_split_again(pattern, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    dataset = brimful.ShardDataset(pattern, fields="cls")
    sampler = torch.utils.data.DistributedSampler(dataset, 2, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = brimful.DataLoader(dataset, 4, sampler=sampler, split="rank")
    assert (len(loader), len(labels(loader))) == (6, SAMPLES // 2)
    with pytest.warns(UserWarning, match="share 1 of 2"):
        brimful.DataLoader(dataset, 4, sampler=sampler, rank=0, world_size=4)


def test_a_loader_shows_the_share_it_has_as_a_sampler(pattern):
    dataset = brimful.ShardDataset(pattern, fields="cls")
    data = torch.utils.data
    loader = brimful.DataLoader(dataset, 5, shuffle=True, rank=1, world_size=2, seed=3)
    assert isinstance(loader.sampler, data.DistributedSampler)
    assert isinstance(brimful.DataLoader(dataset, 5, shuffle=True).sampler, data.RandomSampler)
    assert isinstance(brimful.DataLoader(dataset, 5).sampler, data.SequentialSampler)
    for epoch in (0, 1, 7):
        loader.sampler.set_epoch(epoch)
        listed = list(loader.sampler)
        assert [label for batch in loader.batch_sampler for label in batch] == listed == labels(loader)
    assert len(loader.batch_sampler) == len(loader)
    # Whoever was told nothing is in the epoch that the loader is in.
    assert list(loader.sampler) == loader._engine.native.order(8) == labels(loader)


def test_an_epoch_told_between_the_iterator_and_its_first_batch_is_that_epoch(pattern):
    """A trainer makes the iterator first and tells samplers their epoch then, also after a state was loaded."""
    dataset = brimful.ShardDataset(pattern, fields="cls")
    loader = brimful.DataLoader(dataset, 8, shuffle=True, seed=3)
    epochs = [labels(loader) for _ in range(3)]
    batches = iter(loader)
    loader.sampler.set_epoch(1)
    assert labels(batches) == epochs[1]
    assert labels(loader) == epochs[2]
    loader.load_state_dict({**loader.state_dict(), "epoch": 1, "position": 16})
    batches = iter(loader)
    loader.sampler.set_epoch(1)
    assert labels(batches) == epochs[1][16:], "the place that was loaded stays"
    assert labels(loader) == epochs[2]


def test_fewer_shards_than_ranks_are_enough(pattern):
    dataset = brimful.ShardDataset(pattern.replace("{000..002}", "000"), fields="cls")
    parts = [labels(brimful.DataLoader(dataset, 2, rank=rank, world_size=5, shuffle=True)) for rank in range(5)]
    assert [len(part) for part in parts] == [4] * 5
    assert set(sum(parts, [])) == set(range(16))


JOB = """
import json

dist.init_process_group("gloo")
dataset = brimful.ShardDataset(sys.argv[1], fields="cls", index_cache=None)
loader = brimful.DataLoader(dataset, 5, shuffle=True, split="rank", seed=2, num_workers=1)
epochs = []
for epoch in range(2):
    loader.set_epoch(epoch)
    batches = [batch.tolist() for batch in loader]
    # Unequal numbers of batches would leave a rank waiting here.
    for _ in batches:
        dist.barrier()
    epochs.append(batches)
everyone = [None] * dist.get_world_size()
dist.all_gather_object(everyone, epochs)
if dist.get_rank() == 0:
    print(json.dumps(everyone), flush=True)
dist.destroy_process_group()
os._exit(0)
"""


def test_four_processes_of_one_job_read_every_sample_once(pattern):
    everyone = json.loads(output_of_ranks(JOB, 4, pattern).splitlines()[-1])
    for epoch in range(2):
        batches = [rank[epoch] for rank in everyone]
        assert [len(rank) for rank in batches] == [3] * 4
        assert sorted(label for rank in batches for batch in rank for label in batch) == list(range(SAMPLES))
    assert everyone[0][0] != everyone[0][1]
