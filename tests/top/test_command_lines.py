"""Wrong command lines: each is one sentence, at once, and before anything is compiled."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import tvm

from warploom import cli, emulator
from warploom.compiler import callback, report
from warploom_bench.__main__ import COMMANDS

#: Seconds of this process's CPU; modules that a command imports first are part of them.
AT_MOST = 3.0
INTEGER = "is no integer from [01] to 2147483647"
#: Command -> options and operands that take numbers; the rest of a right command line.
NUMBERS = {
    "demo": ("-m", "-n", "-k", "--seed"),
    "emulate": ("--seed", "--explore"),
    "profile gemm": ("", "--ctas", "--capacity", "--seed", "--picture-ctas"),
    "tune tir 512 512": ("",),
    "tune tir 512 512 512": ("--trials", "--workers", "--device", "--seed"),
    "tune program x.py:f": ("--trials", "--workers", "--device", "--seed"),
    "tune db export": ("--best",),
    "inspect layout wgmma-d": ("--m", "--n", "--lane", "--columns"),
    "inspect layout wgmma-a": ("--k",),
    "inspect relax x": ("--context",),
    "bench gemm": ("--rounds", "--seed", "--workers"),
    "bench attention": ("--tokens", "--head-dim", "--heads", "--rounds"),
    "bench dequant": ("--m", "--group", "--seed"),
    "bench block-scaled": ("--m", "--seed"),
    "bench grouped": ("--m", "--seed"),
    "bench convolution": ("--images",),
    "bench relax": ("--rows",),
    "bench ladder": ("--size", "--rounds"),
    "bench generated": ("--size", "--rounds"),
    "bench compile": ("--repeat",),
    "bench cold": ("--size", "--repeat"),
    "bench launch": ("--rounds",),
    "bench machine": ("--workers",),
    "bench exhaustive": ("--count", "--device"),
    "bench tuning": ("--trials", "--finalists", "--rounds", "--seed", "--faults"),
    "bench soak": ("--size", "--workers", "--seed", "--trials", "--one-in"),
    "bench profile": ("--size", "--tokens"),
}
#: Command with an option that takes one of several words -> what is said of another.
WORDS = {
    "demo --dtype": "'nonsense': allowed are .*'float16'",
    "demo --layout": "'nonsense'|NT",
    "emulate --schedule": "invalid choice: 'nonsense'",
    "emulate --arch": "invalid choice: 'nonsense' .*sm_90a",
    "profile gemm --arch": "invalid choice: 'nonsense' .*'sm_90a', 'sm_100a'",
    "profile": "'nonsense' is no program; allowed are gemm, attention, FILE.py:NAME",
    "tune tir 512 512 512 --dtype": "invalid choice: 'nonsense' .*'float16'",
    "tune tir 512 512 512 --out-dtype": "invalid choice: 'nonsense' .*'float16'",
    "tune tir 512 512 512 --target": "No target for 'nonsense'; allowed are h100",
    "tune program x.py:f --key": "'nonsense' of 'nonsense' is no NAME=VALUE",
    "tune db": "invalid choice: 'nonsense' .*'inspect', 'verify'",
    "inspect layout": "invalid choice: 'nonsense' .*wgmma-d",
    "inspect layout wgmma-d --dtype": "invalid choice: 'nonsense'",
    "inspect relax x --size": "'nonsense' is no NAME=N, such as n=2048",
    "inspect layout smem --swizzle": "swizzle is 'nonsense'; .*'none', '32B'",
    "inspect layout smem --shape": "'nonsense' is no shape, write for instance 64x128",
    "bench": "unknown benchmark 'nonsense'; allowed are goals, ",
    "bench gemm --suite": "There is no suite 'nonsense'",
    "bench gemm --dtype": "invalid choice: 'nonsense'",
    "bench gemm --shape": "'nonsense' is no shape; write MxNxK",
    "bench gemm --backend": "invalid choice: 'nonsense'",
    "bench goals --row": "nonsense",
    "bench dequant --layer": "'nonsense' is no NxK",
    "bench machine --only": "'nonsense' is no measurement; allowed are mbarrier, ",
    "bench grouped --layer": "'nonsense' is no GROUPSxNxK",
    "bench block-scaled --shape": "'nonsense' is no MxNxK",
    "bench convolution --layer": "'nonsense' is no SIZE,C,K,TAPS,STRIDE",
    "bench compile --dtype": "'nonsense': allowed are .*'float16'",
    "bench soak --minutes": "'nonsense' is no number of at least 0",
    "bench model": "invalid choice: 'nonsense'",
    "bench model llama-3-8b --gpu h100 --row": "There is no row 'nonsense'; allowed",
}
#: Command that reads a file -> what is said where there is none, and where it is of no such kind.
INPUTS = {
    "emulate": ("There is no file", None),
    "profile": ("is no program; allowed are|There is no file", "names nothing in the file"),
    "inspect relax": ("There is no file", "is no JSON of a module"),
    "inspect cubin": ("cannot be read: No such file", "contains no cubin"),
    "tune program": ("There is no file", "names nothing in the file"),
    "tune plot": ("has no trials", "has no trials|Not a directory"),
    "tune db inspect": ("has no database_tuning_record.json; it is no database", None),
    "tune db verify": ("has no database_tuning_record.json; it is no database", None),
    "tune db merge --out x": ("has no database_tuning_record.json; it is no data", "no database"),
    "tune db import --out x": ("No such file", "."),
    "tune db ship --out x": ("has no measurements; give the folder", "has no measurements"),
    "bench model-error": ("there is no file", "."),
    "bench goals --goals": ("there is no file", "."),
    "bench headline --run": ("there is no file", "is no collected run"),
    "bench gemm --baseline": ("there is no file", None),
    "bench ladder --paste": ("there is no file", "."),
    "bench exhaustive --exactly": ("there is no file", None),
    "tutorials export x --tutorials": ("has no tutorials", "has no tutorials"),
}
#: Commands that write, each up to the file or folder.
OUTPUTS = (
    "profile gemm --out", "tune tir 512 512 512 --work-dir",
    "tune program x.py:f --work-dir", "tutorials export",
    "tune db merge x --out", "tune db export x --out", "tune db import x --out",
    "tune db ship x --out", "inspect relax x --png", "inspect relax x --svg",
    "bench gemm --out", "bench goals --out", "bench cold --out", "bench headline --out",
    "bench compile --out", "bench model resnet-50 --out",
    "bench launch --out", "bench machine --json",
    "bench exhaustive --out", "bench tuning --out", "bench soak --out",
    "bench ladder --out",
    "bench generated --out",
)  # fmt: skip
#: Commands that need a GPU, or PyTorch with one.
NEED_GPU = ("tune tir 512 512 512", "bench model llama-3-8b --gpu h100", *(
    f"bench {name}" for name in COMMANDS
    if name not in ("compile", "hit-rate", "model", "model-error", "headline")
))  # fmt: skip


@pytest.fixture
def said(monkeypatch, capsys):
    """``said(words, ...)`` is the sentence that a wrong command line gets."""

    def compiled(*_: object, **__: object) -> None:
        raise AssertionError("something was compiled")

    monkeypatch.delenv("TVM_BACKTRACE", raising=False)
    for module in (callback, report):
        monkeypatch.setattr(module, "compile_cached", compiled)
    monkeypatch.setattr(emulator, "is_enabled", lambda: False)
    monkeypatch.setattr(tvm, "cuda", lambda number=0: SimpleNamespace(exist=False))

    def run(*words: str) -> str:
        begin = time.process_time()
        try:
            status = cli.main(words)
        except SystemExit as stop:
            status = stop.code
        assert time.process_time() - begin < AT_MOST
        assert status not in (0, None)
        lines = [
            one for one in capsys.readouterr().err.splitlines() if "times mean nothi" not in one
        ]
        assert len(lines) == 1 and lines[0].startswith("warploom"), lines
        assert "Error:" not in lines[0] and "TVM_BACKTRACE" not in lines[0], lines
        return lines[0]

    return run


def matches(text: str, says: str) -> bool:
    return re.search(says, text) is not None


@pytest.mark.parametrize("value", ["-5", "x", "1.5", "99999999999"])
@pytest.mark.parametrize("command", NUMBERS)
def test_wrong_numbers(command, value, said):
    for option in NUMBERS[command]:
        extra = ["x"] if command in ("emulate",) else []
        text = said(*command.split(), *filter(None, [option]), value, *extra)
        assert repr(value) in text and matches(text, "is no "), text


@pytest.mark.parametrize("command", WORDS)
def test_wrong_words(command, said):
    assert matches(text := said(*command.split(), "nonsense"), WORDS[command]), text


@pytest.mark.parametrize("command", INPUTS)
def test_files_that_are_missing_or_of_another_kind(command, said, tmp_path):
    missing, wrong = INPUTS[command]
    text = said(*command.split(), str(tmp_path / "nowhere"))
    assert matches(text, missing) and "nowhere" in text, text
    if wrong is not None:
        file = tmp_path / "text.txt"
        file.write_text("Some text.\n")
        text = said(*command.split(), str(file))
        assert matches(text, wrong) and "text.txt" in text, text


@pytest.mark.parametrize("command", OUTPUTS)
def test_places_that_cannot_be_written(command, said):
    text = said(*command.split(), "/dev/null/folder/out")
    assert matches(text, "/dev/null/folder/out cannot be written .*Not a directory"), text


@pytest.mark.parametrize("command", NEED_GPU)
def test_a_missing_gpu_is_noticed_first(command, said):
    text = said(*command.split())
    assert matches(text, "needs? a GPU|PyTorch with CUDA; install it with"), text
    if command.startswith("tune"):
        assert "--estimate" in text


@pytest.mark.parametrize("word", ["profile", "inspect"])
def test_names_of_another_kind_are_refused(word, said, tmp_path):
    file = tmp_path / "model.py"
    file.write_text("import tvm\nnumber = 3\n")
    command = ["inspect", "relax"] if word == "inspect" else ["profile"]
    wanted = "an IRModule" if word == "inspect" else "a PrimFunc"
    assert matches(text := said(*command, f"{file}:number"), f"is int; it must be {wanted}"), text
    assert matches(text := said(*command, f"{file}:nothing"), f"has no nothing; .* {wanted}"), text


def test_gemms_without_a_kernel_are_refused_at_once(said):
    for sizes in (("512", "512", "510"), ("512", "512", "509"), ("8", "16", "4")):
        for more in ((), ("--estimate",)):
            text = said("tune", "tir", *sizes, *more)
            assert matches(text, "No kernel .* TMA wants multiples of 16 bytes, so pad"), text


def test_a_gpu_of_another_architecture_is_refused(said, monkeypatch):
    device = SimpleNamespace(
        exist=True,
        compute_version="9.0",
        l2_cache_size_bytes=1 << 20,
        max_shared_memory_per_block=49152,
        multi_processor_count=132,
        device_name="NVIDIA H200",
    )
    monkeypatch.setattr(tvm, "cuda", lambda number=0: device)
    text = said("tune", "tir", "512", "512", "512", "--target", "b200")
    assert "GPU 0 is sm_90a and the target sm_100a" in text
    nothing = SimpleNamespace(exist=False)
    monkeypatch.setattr(tvm, "cuda", lambda number=0: nothing if number else device)
    assert "There is no GPU 7" in said("tune", "tir", "512", "512", "512", "--device", "7")


def test_files_that_are_no_ptx(said, tmp_path):
    file = tmp_path / "kernel.ptx"
    file.write_bytes(b"\xff\xfe")
    assert matches(text := said("emulate", str(file)), "kernel.ptx is no PTX: 'utf-8'"), text
    file.write_text("garbage")
    assert "cannot load this PTX: line 1" in said("emulate", str(file))


def test_every_parser_of_a_command_is_ours():
    """Parsers of argparse itself say what is wrong below several lines of usage."""
    sources = Path(cli.__file__).parents[1]
    for file in [*sources.glob("warploom/**/*.py"), *sources.glob("warploom_*/**/*.py")]:
        if file.name != "command_line.py":
            for call in re.findall(r"argparse\.ArgumentParser\((.*)", file.read_text()):
                assert call.startswith("add_help=False"), file


def test_modules_of_another_kind_are_refused(said, tmp_path):
    file = tmp_path / "module.json"
    file.write_text(tvm.ir.save_json(tvm.ir.Range(0, 4)))
    assert "holds Range; it must be an IRModule" in said("inspect", "relax", str(file))
    file.write_text(json.dumps({"shapes": []}))
    assert "is no JSON of a module" in said("inspect", "relax", str(file))
