"""Every code block of the README and of the guide runs, and every tutorial.

What a block is made of says what happens with it:

- ``python``: a program by itself, executed in an empty folder;
- ``sh``: commands, executed in the root of the repository. The first two of the README install and
  test the package: ``.ci/run`` executes them;
- ``text`` right after ``python``: what the program prints. Reports of the emulator in it must be
  those of the program: what is wrong with which kernel, and the statements that are named;
- ``text`` elsewhere: not executed.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.shared.paths import ROOT

README = (ROOT / "README.md").read_text()
GUIDE = ROOT / "tutorials" / "guide"
#: What only the site has: home, concepts, how-to.
SITE = ROOT / "tutorials" / "site" / "pages"
PAGES = {"README": README} | {
    f"guide/{path.stem}": path.read_text() for path in sorted(GUIDE.glob("*.md"))
}
SITE_PAGES = {
    f"site/{path.relative_to(SITE).with_suffix('').as_posix()}": path.read_text()
    for path in sorted(SITE.rglob("*.md"))
}
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))
#: Seconds after which a program is considered hung, however busy the machine is.
LIMIT = 1800


@dataclass(frozen=True)
class Block:
    """A code block of a page; ``shown`` is the text right after it, if that is a block, too."""

    page: str
    line: int
    language: str
    text: str
    shown: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str) -> list[Block]:
    """The code blocks of a page, in their order."""
    text = {**PAGES, **SITE_PAGES}[page]
    pattern = r"^```(\w*)\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?"
    return [
        Block(page, text[: one.start()].count("\n") + 1, one[1], one[2], one[3] or "")
        for one in re.finditer(pattern, text, re.DOTALL | re.MULTILINE)
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PROGRAMS = [block for block in BLOCKS if block.language == "python"]
COMMANDS = [block for block in BLOCKS if block.language == "sh"]


def run(*command: str, folder: Path | None = None, **environ: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, cwd=folder,
        env={**os.environ, **environ},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_program_runs(block, tmp_path):
    script = tmp_path / "kernels.py"  # a file: TVMScript reads its own source
    script.write_text(block.text)
    printed = run(sys.executable, str(script), folder=tmp_path)
    assert _findings(block.shown) == (_findings(printed) if block.shown else set())


def _findings(reports: str) -> set[str]:
    text = " ".join(reports.split())
    return set(re.findall(r"\w+ in kernel \w+|script kernels\.py:\d+ .*?\): ", text))


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "block",
    [one for page in SITE_PAGES for one in blocks_of(page) if one.language == "python"],
    ids=str,
)
def test_program_of_the_site_runs(block, tmp_path):
    test_program_runs(block, tmp_path)


def test_pages_show_reports():
    for page in ("README", "guide/emulator"):
        assert any(len(_findings(block.shown)) >= 3 for block in blocks_of(page)), page


@pytest.mark.parametrize("block", COMMANDS[2:], ids=str)
def test_commands_run(block):
    # The command of the package that is tested, which need not be installed.
    main = "import sys; from warploom.cli import main; sys.exit(main(sys.argv[1:]))"
    own = f"warploom() {{ {sys.executable} -c '{main}' \"$@\"; }}\n"
    assert run("bash", "-euo", "pipefail", "-c", own + block.text, folder=ROOT)


def test_every_block_is_of_a_known_kind():
    assert {block.language for block in BLOCKS} <= {"python", "sh", "text"}
    assert sum(page.count("```") for page in PAGES.values()) == 2 * (
        len(BLOCKS) + sum(bool(block.shown) for block in BLOCKS)
    )


@pytest.mark.parametrize("path", TUTORIALS, ids=[path.name for path in TUTORIALS])
def test_tutorial_runs(path):
    assert run(sys.executable, str(path))


def test_readme_is_short():
    assert len(README.splitlines()) <= 220


def test_guide_names_every_folder_of_the_package():
    package = ROOT / "python" / "warploom"
    folders = [p.name for p in package.iterdir() if (p / "__init__.py").exists()]
    page = PAGES["guide/architecture"]
    assert folders and not [name for name in folders if f"`python/warploom/{name}/`" not in page]
    beside = [path.parent.name for path in package.parent.glob("*/__init__.py")]
    assert not [name for name in {*beside} - {"warploom"} if f"`python/{name}/`" not in page]


def test_links_between_pages_lead_to_files():
    for name, page in PAGES.items():
        folder = GUIDE if name.startswith("guide/") else ROOT
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", page, flags=re.DOTALL)
        targets = re.findall(r"\]\((?!https?:)([^)#]+)", prose)
        missing = [target for target in targets if not (folder / target).exists()]
        assert not missing, (name, missing)


def test_guide_lists_every_page():
    listed = set(re.findall(r"\]\((\S+\.md)\)", PAGES["guide/README"]))
    assert {path.name for path in GUIDE.glob("*.md")} - {"README.md"} <= listed


def test_the_first_commands_of_the_readme_install_and_test():
    """``.ci/run`` takes them from there."""
    install, test = COMMANDS[:2]
    assert (install.page, test.page) == ("README", "README")
    assert install.text.startswith("pip install ") and test.text.strip() == "pytest"
    script = ROOT / ".ci" / "run"
    if script.exists():  # a source distribution has none
        lines = [line.strip() for line in script.read_text().splitlines()]
        assert not [line for line in lines if line.startswith(("pip ", "pytest", "step pip"))]
        printed = run("bash", str(script), "--commands", folder=ROOT)
        assert printed == install.text + test.text
