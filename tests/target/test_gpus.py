"""Facts of GPUs: targets that differ, clusters by brute force, devices matched by their drivers."""

from __future__ import annotations

import dataclasses
import itertools
import tokenize
import warnings
from pathlib import Path

import pytest
import tvm

import warploom
from warploom.errors import IllegalCombination, UnknownGpuWarning
from warploom.target import ARCHS, GPUS, SM90A, SM100A, cuda_target, device_gpu, gpu_of
from warploom.target.clusters_that_fit import MEASURED, clusters_that_fit, fewest_clusters
from warploom.target.gpus import USUAL, find_gpu, gpu_of_model, most_resident


@pytest.mark.parametrize("name", GPUS)
def test_a_target_leads_back_to_its_gpu(name):
    target = cuda_target(name.upper())
    assert gpu_of(target) is GPUS[name]
    # Also where it comes from a record of a search.
    assert gpu_of(tvm.target.Target(dict(target.export()))) is GPUS[name]
    with_host = tvm.target.Target(target, host="llvm")
    assert gpu_of(with_host) is GPUS[name]


def test_targets_of_different_gpus_differ():
    targets = {str(cuda_target(name)) for name in GPUS}
    assert len(targets) == len(GPUS)
    assert gpu_of(cuda_target("h100-pcie")).sms < gpu_of(cuda_target("h200")).sms


@pytest.mark.parametrize("arch", ARCHS)
def test_an_architecture_stands_for_the_usual_gpu(arch):
    assert gpu_of(cuda_target(arch)) is USUAL[arch] and USUAL[arch].arch is ARCHS[arch]


@pytest.mark.parametrize("facts", [{}, {"sms": 90}, {"clock": 1.0e9, "name": "NVIDIA H800, odd"}])
def test_a_gpu_that_is_not_in_the_table_comes_back_whole(facts):
    gpu = dataclasses.replace(GPUS["h20"], **{"name": "other", **facts})
    assert gpu_of_model(gpu.model, SM90A) == gpu


@pytest.mark.parametrize(
    "model", ["h300", "b200", "other; sms=90", "other; sms=x", GPUS["h20"].model + "; sms=3"]
)
def test_any_other_model_is_refused(model):
    with pytest.raises(IllegalCombination, match=r"model is .*; allowed with sm_90a are h100, "):
        gpu_of_model(model, SM90A)


@pytest.mark.parametrize(
    "changes", [{"name": ""}, {"sms": 0}, {"l2_bytes": 0}, {"clock": -1.0}, {"watts": -1}]
)
def test_wrong_facts_are_refused(changes):
    with pytest.raises(AssertionError):
        dataclasses.replace(GPUS["h200"], **changes)


#: Numbers of SMs that would tie code to one GPU.
SMS = {"132", "114"}
#: Folders and files whose choices are made for one GPU still.
TIED = ("kernels/", "decide/old_records.py")


def test_no_other_file_knows_how_many_sms_a_gpu_has():
    package = Path(warploom.__file__).parent
    found = []
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if name.startswith(TIED) or name in ("target/gpus.py", "target/clusters_that_fit.py"):
            continue
        with path.open("rb") as file:
            tokens = list(tokenize.tokenize(file.readline))
        found += [
            f"{name}:{one.start[0]}: {one.string}"
            for one in tokens
            if one.type == tokenize.NUMBER and one.string in SMS
        ]
    assert not found, "\n".join(found)


# --- clusters ---------------------------------------------------------------------------------


def spreads(sms: int, most: int, gpcs: int):
    """All ways to have so many SMs on so many GPCs, in pairs, the largest first."""
    if gpcs == 0:
        if sms == 0:
            yield ()
        return
    for first in range(min(most, sms), 1, -2):
        for rest in spreads(sms - first, first, gpcs - 1):
            yield (first, *rest)


@pytest.mark.parametrize("sms", [16, 32, 60, 64, 78, 114])
def test_so_many_clusters_fit_however_gpcs_are_made(sms):
    gpcs = -(-sms // SM90A.sms_per_gpc)
    for size in range(1, 17):
        fewest = min(
            sum(one // size for one in spread) for spread in spreads(sms, SM90A.sms_per_gpc, gpcs)
        )
        assert fewest_clusters(SM90A, sms, size) <= fewest
        if size <= 2:
            assert clusters_that_fit(SM90A, sms, size) == fewest == sms // size


def test_what_is_measured_leaves_few_ways_to_make_the_chip():
    measured = MEASURED[SM90A.name, GPUS["h200"].sms]
    possible = [
        spread
        for spread in spreads(GPUS["h200"].sms, SM90A.sms_per_gpc, 8)
        if all(sum(one // size for one in spread) == measured[size] for size in (4, 8))
    ]
    for size, count in measured.items():
        assert count == min(sum(one // size for one in spread) for spread in possible)


def test_clusters_leave_multiprocessors_idle():
    h200, b200 = GPUS["h200"], GPUS["b200"]
    assert [h200.resident(size) for size in (1, 2, 4, 8)] == [132, 132, 120, 120]
    # Each CTA of a cluster has an SM of its own, however many share it with others.
    assert [h200.resident(size, 2) for size in (1, 2, 4, 8)] == [264, 264, 240, 240]
    assert [b200.resident(size) for size in (1, 2, 4, 8)] == [148, 148, 148, 144]
    for gpu in GPUS.values():
        for size, per_sm in itertools.product(range(1, 17), (1, 2, 3, 4)):
            found = gpu.resident(size, per_sm)
            assert found % size == 0 and 0 <= found <= gpu.sms * per_sm
            assert found <= most_resident(gpu.arch, size, per_sm)
            assert found > 0 or size > 8


# --- devices ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "sms", "name"),
    [
        ("NVIDIA H100 80GB HBM3", 132, "h100"),
        ("NVIDIA H100 PCIe", 114, "h100-pcie"),
        ("NVIDIA H100 NVL", 132, "h100-nvl"),
        ("NVIDIA H200", 132, "h200"),
        ("NVIDIA H200 NVL", 132, "h200-nvl"),
        ("NVIDIA GH200 480GB", 132, "gh200"),
        ("NVIDIA H20", 78, "h20"),
        ("NVIDIA H20-3e", 78, "h20"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16, "h100-1g"),
        ("NVIDIA H200 MIG 3g.71gb", 60, "h200-3g"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.20gb", 26, None),
        ("NVIDIA H100 PCIe MIG 1g.10gb", 14, None),
        ("NVIDIA H800", 132, None),
        ("NVIDIA H100 80GB HBM3", 130, None),
    ],
)
def test_a_driver_names_a_gpu(driver, sms, name):
    gpu = find_gpu(driver, SM90A, sms)
    assert (gpu and gpu.name) == name
    assert find_gpu(driver, SM100A, sms) is None


class FakeDevice:
    """What a driver says of a GPU."""

    def __init__(self, name: str, sms: int) -> None:
        self.device_name, self.multi_processor_count, self.index = name, sms, 0
        self.l2_cache_size_bytes, self.max_clock_rate = 40 << 20, 1_500_000


def test_an_unknown_gpu_has_the_facts_of_its_driver_and_warns_once(monkeypatch):
    values = {36: 2_000_000, 37: 5120}
    monkeypatch.setattr(device_gpu, "_attribute", lambda number, device: values[number])
    monkeypatch.setattr(device_gpu, "_warned", set())
    device = FakeDevice("NVIDIA H901; odd", 96)
    with pytest.warns(UnknownGpuWarning, match=r"H901.* with 96 SMs.*`warploom bench machine`"):
        gpu = device_gpu.gpu_of_device(device, SM90A)
    assert (gpu.sms, gpu.l2_bytes, gpu.clock) == (96, 40 << 20, 1.5e9)
    assert gpu.dram_bandwidth == 2 * 2e9 * 640
    assert gpu_of_model(gpu.model, SM90A) == gpu
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert device_gpu.gpu_of_device(device, SM90A) == gpu


def test_a_silent_driver_is_filled_up_from_the_usual_gpu(monkeypatch):
    monkeypatch.setattr(device_gpu, "_attribute", lambda number, device: 0)
    monkeypatch.setattr(device_gpu, "_warned", {"NVIDIA H902"})
    device = FakeDevice("NVIDIA H902", 96)
    device.l2_cache_size_bytes = device.max_clock_rate = 0
    gpu = device_gpu.gpu_of_device(device, SM90A)
    usual = USUAL[SM90A.name]
    assert dataclasses.replace(gpu, name=usual.name, sms=usual.sms, watts=usual.watts) == usual
