"""Every code block of the README and every tutorial runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))
#: Seconds after which a program is considered hung.
LIMIT = 300


def run(*arguments: str, code: str | None = None, folder: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], input=code, capture_output=True, text=True, timeout=LIMIT,
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_readme_block_runs(index, tmp_path):
    script = tmp_path / f"block_{index}.py"  # a file: TVMScript reads its own source
    script.write_text(BLOCKS[index])
    run(str(script), folder=tmp_path)


def test_reports_in_the_readme_are_those_of_its_program(tmp_path):
    """What is wrong with which kernel, and the statements that are named."""
    (program,) = (block for block in BLOCKS if "emulator.run" in block)
    script = tmp_path / "kernels.py"
    script.write_text(program)
    (shown,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    expected = _findings(run(str(script)))
    assert len(expected) >= 5 and _findings(shown) == expected


def _findings(reports: str) -> set[str]:
    text = " ".join(reports.split())
    return set(re.findall(r"\w+ in kernel \w+|script kernels\.py:\d+ .*?\): ", text))


@pytest.mark.parametrize("path", TUTORIALS, ids=[path.name for path in TUTORIALS])
def test_tutorial_runs(path):
    assert run(str(path))


def test_readme_names_every_folder_of_the_package():
    package = ROOT / "python" / "warploom"
    folders = [p.name for p in package.iterdir() if (p / "__init__.py").exists()]
    assert folders and not [name for name in folders if f"`python/warploom/{name}/`" not in README]


def test_ci_runs_the_commands_of_the_readme():
    commands = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    script = (ROOT / ".ci" / "run").read_text()
    assert len(commands) == 3
    assert commands[1].strip() == "pytest"
    for command in [*commands[0].split("&&"), *commands[2].splitlines()]:
        assert command.strip() in script
