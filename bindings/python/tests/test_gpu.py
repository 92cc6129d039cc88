"""Batches on a GPU: the same numbers as on the host, safe from reuse, and no harder to use."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy
import pytest

import brimful
from brimful import transforms as T
from conftest import write_shard

torch = pytest.importorskip("torch", reason="torch cannot be imported")
if not torch.cuda.is_available():
    if os.environ.get("REQUIRE_GPU"):
        pytest.fail("no GPU that torch can use", pytrace=False)
    pytest.skip("no GPU that torch can use", allow_module_level=True)

NORMALIZE = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def dataset(pattern: str, size: int = 64, *steps) -> brimful.ShardDataset:
    steps = [T.RandomResizedCrop(size), T.RandomHorizontalFlip(), *(steps or (T.ToTensor(), NORMALIZE))]
    return brimful.ShardDataset(pattern, fields=("jpg", "cls"), transform=T.Compose(steps))


def loader(pattern: str, **options) -> brimful.DataLoader:
    options = {"batch_size": 8, "shuffle": True, "seed": 3, "device": "cuda", **options}
    return brimful.DataLoader(dataset(pattern, options.pop("size", 64)), **options)


@pytest.mark.parametrize("layout", ["NCHW", "channels_last", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
def test_a_batch_has_the_same_bits_as_on_the_host(pattern, dtype, layout):
    steps = (T.PILToTensor(),) if dtype == "uint8" else (T.ToTensor(), NORMALIZE)
    data = dataset(pattern, 57, *steps)
    options = {"batch_size": 7, "shuffle": True, "seed": 5, "dtype": dtype, "layout": layout}
    on_host = brimful.DataLoader(data, **options)
    on_gpu = brimful.DataLoader(data, device="cuda", decoder="cpu", **options)
    batches = 0
    for (host, host_labels), (gpu, gpu_labels) in zip(on_host, on_gpu, strict=True):
        assert gpu.is_cuda and gpu_labels.is_cuda and gpu_labels.dtype == torch.int64
        assert (gpu.dtype, gpu.shape, gpu.stride()) == (host.dtype, host.shape, host.stride())
        bits = {4: torch.int32, 2: torch.int16, 1: torch.uint8}[host.element_size()]
        assert torch.equal(host.contiguous().view(bits), gpu.cpu().contiguous().view(bits))
        assert torch.equal(host_labels, gpu_labels.cpu())
        batches += 1
    assert batches == 7


def test_float32_equals_to_tensor_and_normalize_of_torchvision(pattern):
    transforms = pytest.importorskip("torchvision.transforms.functional")
    data = brimful.ShardDataset(pattern, fields="jpg", transform=T.Compose([T.CenterCrop(64), T.PILToTensor()]))
    floats = brimful.ShardDataset(
        pattern, fields="jpg", transform=T.Compose([T.CenterCrop(64), T.ToTensor(), NORMALIZE])
    )
    for pixels, images in zip(brimful.DataLoader(data, 16), brimful.DataLoader(floats, 16, device="cuda"), strict=True):
        expected = transforms.normalize(pixels.float().div(255), NORMALIZE.mean, NORMALIZE.std)
        assert torch.equal(expected, images.cpu())


def test_engines_make_the_same_batches_within_their_tolerance(pattern):
    data = dataset(pattern, 64, T.PILToTensor())
    options = {"batch_size": 7, "shuffle": True, "seed": 5, "device": "cuda"}
    on_engines = brimful.DataLoader(data, decoder="gpu", **options)
    try:
        made = list(on_engines)
    except brimful.DeviceError as error:
        pytest.skip(f"no JPEG engines: {error}")
    for (engine, labels), (thread, expected) in zip(
        made, brimful.DataLoader(data, decoder="cpu", **options), strict=True
    ):
        assert torch.equal(labels, expected)
        difference = (engine.int() - thread.int()).abs()
        # Repeated chroma shows at the edges of made-up pictures: far off in single pixels, hardly at all in the mean.
        far = (difference > 64).float().mean().item()
        assert far < 1e-4 and difference.float().mean().item() <= 2.0, (far, difference.max().item())
    device = on_engines.stats()["device"]
    assert device["engine_images"] + device["engine_refused"] > 0, "no image went to the engines"
    assert device["engine_bytes"] >= 2 * 64 << 20, "each of two servers has scratch of 64 MiB and more"


def test_bad_samples_are_left_out_of_batches_that_engines_make(tmp_path, samples):
    good = list(samples[:12])
    bad = {**good[3], "__key__": b"bad", "jpg": good[3]["jpg"][:200]}
    path = write_shard(tmp_path / "bad.tar", [*good[:5], bad, *good[5:]])
    data = dataset(str(path), 64, T.PILToTensor())
    batches = brimful.DataLoader(data, batch_size=13, device="cuda", decoder="gpu", on_error="skip")
    try:
        ((images, labels),) = list(batches)
    except brimful.DeviceError as error:
        pytest.skip(f"no JPEG engines: {error}")
    assert labels.tolist() == list(range(12)) and len(images) == 12
    reference = {label: image for image, label in dataset_rows(data)}
    for image, label in zip(images.cpu(), labels.tolist(), strict=True):
        assert (image.int() - reference[label].int()).abs().float().mean() <= 2.0, f"row of sample {label}"


def dataset_rows(data):
    """Each good sample of a data set as the CPU makes it in epoch 0."""
    for image, label in zip(*next(iter(brimful.DataLoader(data, batch_size=13, on_error="skip"))), strict=True):
        yield image, label.item()


def test_a_dropped_batch_survives_until_the_stream_is_through(pattern):
    reference = [images.clone() for images, _ in loader(pattern, shuffle=False, decoder="cpu")]
    batches, rounds = loader(pattern, shuffle=False, decoder="cpu"), 0
    sums = []
    while rounds < 1000:
        batches.set_epoch(0)
        for images, _ in batches:
            # The program runs far ahead of the GPU, and lets go of the batch before it is read.
            torch.cuda._sleep(200_000)
            sums.append((rounds % len(reference), images.double().sum(dim=(1, 2, 3)).view(-1)))
            del images
            rounds += 1
    for number, found in sums:
        assert torch.equal(found, reference[number].double().sum(dim=(1, 2, 3)))


def test_a_batch_may_be_used_on_a_side_stream(pattern):
    reference = [images.clone() for images, _ in loader(pattern, decoder="cpu")]
    side = torch.cuda.Stream()
    copies = []
    with torch.cuda.stream(side):
        for images, _ in loader(pattern, decoder="cpu"):
            torch.cuda._sleep(1_000_000)
            copies.append(images * 2)
    side.synchronize()
    for copy, images in zip(copies, reference, strict=True):
        assert torch.equal(copy, images * 2)


def test_a_consumer_that_holds_every_batch_is_told_how_many(pattern):
    held = []
    with pytest.raises(brimful.LimitError, match="batches are held on the GPU"):
        for _ in range(10):
            for batch in loader(pattern, batch_size=2, device_batches_max=1, prefetch_factor=2, num_workers=2):
                held.append(batch)
            held.clear()


def test_batches_that_are_held_for_a_while_make_the_ring_grow(pattern):
    batches = loader(pattern, batch_size=2, decoder="cpu")
    held = [images for images, _ in batches][:12]
    assert batches.stats()["device"]["slots"] > 3
    del held
    torch.cuda.synchronize()
    assert batches.release_idle() > 0
    assert sum(len(labels) for _, labels in batches) == 48


def test_habits_of_torch_users_cost_nothing(pattern):
    for images, labels in loader(pattern, pin_memory=True, num_workers=2, persistent_workers=True):
        assert images.to("cuda", non_blocking=True).data_ptr() == images.data_ptr()
        assert labels.cuda(non_blocking=True).data_ptr() == labels.data_ptr()


def test_more_than_the_gpu_has_is_refused_at_once(pattern):
    with pytest.raises(brimful.LimitError, match="bytes of GPU memory") as caught:
        loader(pattern, batch_size=48, size=20_000)
    assert "smaller batch size" in caught.value.hint


def test_a_gpu_that_is_not_there_is_named(pattern):
    with pytest.raises(brimful.DeviceError, match="no GPU number 99"):
        loader(pattern, device="cuda:99")


def test_leaving_early_leaks_no_memory(pattern):
    def leave() -> None:
        for _ in loader(pattern):
            break

    leave()
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(50):
        leave()
    torch.cuda.synchronize()
    assert free - torch.cuda.mem_get_info()[0] < 64 << 20


def test_a_graph_is_fed_through_a_static_tensor(pattern):
    static = torch.zeros(8, 3, 64, 64, device="cuda")
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        static.mul(2).sum()
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    batches = iter(loader(pattern, drop_last=True, decoder="cpu"))
    first = next(batches)[0]
    with torch.cuda.graph(graph):
        doubled = static.mul(2)
    for images in [first, *(images for images, _ in batches)]:
        static.copy_(images)
        graph.replay()
        assert torch.equal(doubled, images * 2)


def test_ranges_show_only_where_they_were_asked_for(pattern):
    try:
        assert sum(len(labels) for _, labels in loader(pattern, nvtx=True)) == 48
    except brimful.DeviceError as error:
        assert "nvtx" in str(error)
    with pytest.raises(brimful.InvalidOptionError, match="nvtx"):
        loader(pattern, device="cpu", nvtx=True)


def test_other_data_sets_are_copied_ahead():
    rows = [(torch.full((3,), float(n)), {"n": n}) for n in range(20)]
    seen = []
    for values, extra in brimful.DataLoader(rows, batch_size=4, device="cuda"):
        assert values.is_cuda and extra["n"].is_cuda
        seen += extra["n"].tolist()
    assert seen == list(range(20))


def column(pattern: str):
    data = brimful.ShardDataset(pattern, fields="jpg", transform=T.Compose([T.CenterCrop(64), T.ToTensor()]))
    return next(iter(brimful.Loader(data, 8, device="cuda", arrays="dlpack", dtype="float32")))


def test_cupy_and_jax_import_it_too(pattern):
    expected = torch.from_dlpack(column(pattern)).cpu().numpy()
    imported = 0
    try:
        import cupy
    except ImportError:
        print("cupy cannot be imported")
    else:
        numpy.testing.assert_array_equal(cupy.asnumpy(cupy.from_dlpack(column(pattern))), expected)
        imported += 1
    try:
        import jax
    except ImportError:
        print("jax cannot be imported")
    else:
        numpy.testing.assert_array_equal(numpy.asarray(jax.dlpack.from_dlpack(column(pattern))), expected)
        imported += 1
    if not imported:
        pytest.skip("neither CuPy nor JAX is here")


def test_both_capsules_are_given(pattern):
    tensor = column(pattern)
    legacy = tensor.__dlpack__(stream=1)
    versioned = tensor.__dlpack__(stream=1, max_version=(1, 0))
    assert '"dltensor"' in repr(legacy) and '"dltensor_versioned"' in repr(versioned)
    assert torch.equal(torch.utils.dlpack.from_dlpack(legacy), torch.from_dlpack(tensor))


def test_numpy_arrays_are_refused_with_advice(pattern):
    data = brimful.ShardDataset(pattern, fields="jpg", transform=T.Compose([T.CenterCrop(64), T.ToTensor()]))
    with pytest.raises(brimful.InvalidOptionError, match="host memory only"):
        brimful.Loader(data, 8, device="cuda")


@pytest.mark.parametrize("ending", ["pass", "del loader", "raise SystemExit(0)", "del batches, loader"])
def test_a_process_may_end_with_batches_in_its_hands(pattern, ending):
    program = f"""
        import torch, brimful
        from brimful import transforms as T
        data = brimful.ShardDataset({pattern!r}, fields=("jpg", "cls"),
                                    transform=T.Compose([T.RandomResizedCrop(64), T.ToTensor()]))
        loader = brimful.DataLoader(data, batch_size=4, device="cuda")
        batches = iter(loader)
        held = [next(batches) for _ in range(3)]
        later = held[0][0] + 1
        {ending}
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, timeout=120)
    assert ended.returncode == 0, ended.stderr.decode()


def test_no_other_gpu_gets_a_context(pattern):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    program = f"""
        import torch, brimful
        from brimful import transforms as T
        steps = T.Compose([T.CenterCrop(64), T.ToTensor()])
        data = brimful.ShardDataset({pattern!r}, fields="jpg", transform=steps)
        for images in brimful.DataLoader(data, batch_size=4, device="cuda:1"):
            assert images.device.index == 1
        import ctypes
        cuda, flags, active = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint(), ctypes.c_int()
        state = lambda n: cuda.cuDevicePrimaryCtxGetState(n, ctypes.byref(flags), ctypes.byref(active))
        print([state(n) or active.value for n in range(2)])
    """
    # Asked of the driver: whatever torch is asked about a GPU makes a context there.
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0 and ended.stdout.strip() == "[0, 1]", ended.stdout + ended.stderr
