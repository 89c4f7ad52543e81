"""``tvm.target.Target`` of the supported GPUs, and back to their facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warploom.errors import IllegalCombination
from warploom.target.arch import ARCHS, Arch
from warploom.target.device_gpu import gpu_of_device
from warploom.target.gpus import GPUS, USUAL, Gpu, gpu_of_model

if TYPE_CHECKING:
    from tvm.runtime import Device
    from tvm.target import Target


def _target(arch: Arch, **attributes: Any) -> Target:
    from tvm.target import Target

    config = {
        "kind": "cuda",
        "keys": ["cuda", "gpu"],
        "arch": arch.name,
        # TVM means the memory of a block that does not opt in to more, as do its own tags.
        "max_shared_memory_per_block": arch.static_shared_bytes,
        "max_threads_per_block": arch.threads_per_block,
        "max_num_threads": arch.threads_per_block,
        "thread_warp_size": arch.warp,
        "registers_per_block": arch.registers_per_sm,
    }
    return Target({**config, **attributes})


def _target_of(gpu: Gpu, **attributes: Any) -> Target:
    """The target of a GPU, which :func:`gpu_of` finds in it again."""
    facts = {"model": gpu.model, "l2_cache_size_bytes": gpu.l2_bytes}
    return _target(gpu.arch, **{**facts, **attributes})


def cuda_target(name: str) -> Target:
    """The target for a GPU or an architecture.

    Parameters
    ----------
    name : str
        A GPU (``h100``, ``h100-pcie``, ``h100-nvl``, ``h200``, ``h200-nvl``, ``gh200``, ``h20``,
        ``b200``), a MIG slice (``h100-1g``, ``h200-3g``: :data:`~warploom.target.gpus.GPUS` has
        all), or an architecture (``sm_90a``, ``sm_100a``), in any case.

    Raises
    ------
    IllegalCombination
        For any other name. ``sm_90`` is one of them: it has neither wgmma nor setmaxnreg.

    Examples
    --------
    >>> str(cuda_target("h200").attrs["arch"])
    'sm_90a'
    >>> gpu_of(cuda_target("h100-pcie")).sms
    114
    """
    key = name.lower()
    if key in GPUS:
        return _target_of(GPUS[key])
    arch = ARCHS.get(key)
    if arch is None:
        hint = f"; did you mean {key}a, which has the tensor cores" if f"{key}a" in ARCHS else ""
        raise IllegalCombination(
            f"No target for {name!r}; allowed are {', '.join([*GPUS, *ARCHS])}{hint}."
        )
    return _target(arch)


def target_from_device(device: Device | None = None) -> Target:
    """The target of a live device; ``tvm.target.Target.from_device`` would say ``sm_90``.

    Its GPU (:func:`gpu_of`) is one that warploom knows, or has the facts that the driver tells.

    Parameters
    ----------
    device : tvm.runtime.Device, optional
        By default ``tvm.cuda(0)``.

    Raises
    ------
    IllegalCombination
        If there is no such device or its architecture is not supported.

    Warns
    -----
    UnknownGpuWarning
        Once a process for a GPU that warploom has no facts of.

    Examples
    --------
    >>> executable = tvm.compile(mod, warploom.target_from_device())  # doctest: +SKIP
    """
    if device is None:
        import tvm

        device = tvm.cuda(0)
    if not device.exist:
        raise IllegalCombination(
            f"There is no device {device}; name a target with cuda_target('h100') instead."
        )
    version = str(device.compute_version)
    for arch in ARCHS.values():
        if version == "{}.{}".format(*arch.compute_capability):
            return _target_of(
                gpu_of_device(device, arch),
                max_shared_memory_per_block=int(device.max_shared_memory_per_block),
                l2_cache_size_bytes=int(device.l2_cache_size_bytes),
            )
    allowed = ", ".join("{}.{} ({})".format(*a.compute_capability, a.name) for a in ARCHS.values())
    raise IllegalCombination(
        f"{device.device_name} has compute capability {version}; supported are {allowed}."
    )


def default_target() -> tuple[Target, int]:
    """Target and number of SMs of this machine's GPU, or of an H200 where there is none.

    Raises
    ------
    IllegalCombination
        If the GPU is not supported.

    Examples
    --------
    >>> target, sms = default_target()
    """
    import tvm

    device = tvm.cuda(0)
    if device.exist:
        return target_from_device(device), int(device.multi_processor_count)
    usual = next(iter(USUAL.values()))
    return cuda_target(usual.name), usual.sms


def gpu_of(target: Target) -> Gpu:
    """The GPU that a target is for; the usual one of its architecture if it names none.

    Raises
    ------
    IllegalCombination
        If its architecture is not supported (:func:`arch_of`), or its ``model`` is no GPU.

    Examples
    --------
    >>> gpu_of(cuda_target("sm_90a")).name
    'h200'
    """
    return gpu_of_model(str(target.attrs.get("model", "")), arch_of(target))


def arch_of(target: Target) -> Arch:
    """The facts of a target's architecture.

    Raises
    ------
    IllegalCombination
        If the target is not CUDA, or its ``arch`` is none that :func:`cuda_target` gives.

    Examples
    --------
    >>> arch_of(cuda_target("h200")).name
    'sm_90a'
    """
    kind, name = str(target.kind.name), str(target.attrs.get("arch", ""))
    if kind != "cuda":
        raise IllegalCombination(f"The target's kind is {kind!r}, warploom needs 'cuda'.")
    if name not in ARCHS:
        raise IllegalCombination(
            f"The target's arch is {name!r}, warploom supports {', '.join(ARCHS)}; "
            "use warploom.target.cuda_target('h100')."
        )
    return ARCHS[name]
