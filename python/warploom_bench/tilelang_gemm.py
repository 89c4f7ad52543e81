"""A GEMM in TileLang, compiled in processes of their own and called here."""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from warploom.errors import WarploomError
from warploom.gemm_shape import GemmShape
from warploom_bench.operands import Operands

#: (tile of M, N, K, stages)
_TILES = ((128, 256, 64, 4), (128, 128, 64, 4), (64, 128, 64, 6))
#: Seconds that the compilation of all of them may take.
_TIMEOUT = 180.0


def gemms(torch: Any, shape: GemmShape) -> list[Callable[[Operands], object]]:
    """The GEMM of a shape with each tile that TileLang compiles.

    Raises
    ------
    WarploomError
        If TileLang is not installed, or compiles none of them; with its message.
    """
    if importlib.util.find_spec("tilelang") is None:
        raise WarploomError("TileLang is not installed.")
    folder = tempfile.TemporaryDirectory(prefix="warploom-tilelang-")
    atexit.register(folder.cleanup)  # the libraries are loaded until then
    names = [f"{Path(folder.name)}/{number}.so" for number in range(len(_TILES))]
    begun = [_begin(shape, tile, out) for tile, out in zip(_TILES, names, strict=True)]
    said = [process.communicate(timeout=_TIMEOUT)[0] for process in begun]
    able = [_load(torch, name) for name in names if Path(name).exists()]
    if not able:
        reason = said[0].strip().splitlines()[-1:] or ["no reason given"]
        raise WarploomError(f"TileLang compiles nothing for {shape}: {reason[0]}")
    return able


def _begin(shape: GemmShape, tile: Iterable[int], out: str) -> subprocess.Popen[str]:
    *extents, stages = tile
    wanted = {"m": shape.m, "n": shape.n, "k": shape.k, "dtype": shape.dtype,
              "tile": extents, "stages": stages, "out": out}  # fmt: skip
    script = str(Path(__file__).with_name("tilelang_kernel.py"))
    return subprocess.Popen(
        [sys.executable, script, json.dumps(wanted)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def _load(torch: Any, path: str) -> Callable[[Operands], object]:
    library = ctypes.CDLL(path)
    library.get_last_error.restype = ctypes.c_char_p

    def check(status: int) -> None:
        if status:
            raise WarploomError(f"TileLang's kernel fails: {library.get_last_error().decode()}")

    check(library.init())

    def run(operands: Operands) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        pointers = (operands.a.data_ptr(), operands.b.data_ptr(), operands.c.data_ptr(), stream)
        check(library.call(*map(ctypes.c_void_p, pointers)))

    return run
