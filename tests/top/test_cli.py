"""The command line: which commands exist, and how errors reach the user."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
import types

import pytest

import warploom
from warploom import cli, command_help, completion
from warploom.command_line import INTERRUPTED
from warploom.errors import IllegalCombination
from warploom_bench import benchmarks


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: " ".join(command.words))
def test_every_command_is_a_main_that_takes_arguments(command):
    if command.run is not None:
        inspect.signature(command.run).bind([])
        return
    module = command.module or f"warploom_{command.words[0]}.__main__"
    inspect.signature(importlib.import_module(module).main).bind([])


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: " ".join(command.words))
def test_every_command_explains_itself(command, capsys):
    try:
        status = cli.main([*command.words, "--help"])
    except SystemExit as stop:
        status = stop.code
    assert status == 0
    assert f"warploom {' '.join(command.words)}" in "".join(capsys.readouterr())


def test_no_command_hides_another():
    words = [command.words for command in cli.COMMANDS]
    assert len(set(words)) == len(words)
    groups = {each[0] for each in words if len(each) == 2}
    assert not groups & {each[0] for each in words if len(each) == 1}


@pytest.fixture
def command(monkeypatch):
    """Installs a command ``try it`` whose ``main`` is the given function."""

    def install(main):
        module = types.ModuleType("warploom_test_command")
        module.main = main
        monkeypatch.setitem(sys.modules, module.__name__, module)
        entry = cli.Command(("try", "it"), module.__name__, "a command of this test")
        monkeypatch.setattr(cli, "COMMANDS", (entry,))

    return install


def test_a_package_beside_warploom_is_a_command(tmp_path, monkeypatch):
    package = tmp_path / "warploom_of_ours"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("def main(arguments):\n    return len(arguments)\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert cli.main(["of-ours", "bench", "--help"]) == 2
    assert cli.main(["of_ours"]) == 0


def test_a_command_whose_package_is_absent_names_what_to_install(run_python):
    """The benchmarks may be left out; all else works, and nothing has asked for them."""
    code = (
        "import sys\nfrom importlib import machinery\n"
        "class Without(machinery.PathFinder):\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        if name.startswith('warploom_'): return None\n"
        "        return super().find_spec(name, path, target)\n"
        "sys.meta_path = [one for one in sys.meta_path\n"
        "                 if one in (machinery.BuiltinImporter, machinery.FrozenImporter)]\n"
        "sys.meta_path.append(Without)\n"
        "from warploom import cli\n"
        "print(cli.main(['bench', 'gemm']), cli.main(['inspect', 'layout', 'wgmma-d']))\n"
    )
    result = run_python(code)
    assert result.stdout.splitlines()[-1] == "2 0", result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("warploom: `warploom bench` is the package warploom_bench, which is ")
    assert "pip install --force-reinstall --no-deps warploom" in line and "PYTHONPATH" in line


def test_the_command_gets_the_rest_and_gives_the_status(command):
    seen = []

    def main(arguments):
        seen.append(arguments)
        return 7

    command(main)
    assert cli.main(["try", "it", "--deep", "-x", "1", "--help"]) == 7
    assert seen == [["--deep", "-x", "1", "--help"]]


def test_a_mistake_of_the_user_is_one_line_and_status_2(command, capsys):
    def main(arguments):
        raise IllegalCombination("N = 12 is not a multiple of 8; allowed are 8, 16, ... 256.")

    command(main)
    assert cli.main(["try", "it"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "warploom: N = 12 is not a multiple of 8; allowed are 8, 16, ... 256.\n"
    )


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            ZeroDivisionError("zero"),
            r"ZeroDivisionError: zero \(.*test_cli.py:\d+\); TVM_BACK",
        ),
        (ZeroDivisionError(), "ZeroDivisionError: no message"),
        (RuntimeError("first\nsecond"), "RuntimeError: first "),
        (
            FileNotFoundError(2, "No such file or directory", "a.json"),
            "a.json: No such file or dir",
        ),
        (PermissionError(13, "Permission denied"), "Permission denied."),
        (ModuleNotFoundError("No module", name="torch.cuda"), "torch.cuda .* pip install torch$"),
        (MemoryError(), "not enough memory"),
    ],
)
def test_other_errors_are_one_sentence_too(command, capsys, monkeypatch, error, says):
    monkeypatch.delenv("TVM_BACKTRACE", raising=False)

    def main(arguments):
        raise error

    command(main)
    assert cli.main(["try", "it"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and re.search(f"^warploom: .*{says}", lines[0])
    monkeypatch.setenv("TVM_BACKTRACE", "1")
    with pytest.raises(type(error)):
        cli.main(["try", "it"])


def test_interrupting_is_no_error(command, capsys):
    def main(arguments):
        raise KeyboardInterrupt

    command(main)
    assert cli.main(["try", "it"]) == INTERRUPTED
    assert capsys.readouterr().err == "warploom: interrupted\n"


def test_a_pipe_that_is_closed_is_no_error(run_python):
    code = (
        "import sys\nfrom warploom.command_line import guarded\n"
        "def run():\n    print('x' * (1 << 20))\n    return 0\n"
        "import os\nread, write = os.pipe()\nos.close(read)\nos.dup2(write, 1)\n"
        "sys.exit(guarded('warploom', run))\n"
    )
    result = run_python(code)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("words", [["nonsense"], ["inspect"], ["inspect", "nonsense"]])
def test_unknown_commands_name_the_known_ones(words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert f"unknown command '{' '.join(words)}'" in error
    assert all(" ".join(command.words) in error for command in cli.COMMANDS)


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    flat = " ".join(text.split())
    for command in cli.COMMANDS:
        assert command.help[0].upper() + command.help[1:] + "." in flat
        assert command.example in text


@pytest.mark.parametrize("width", [40, 72, 200])
def test_help_is_as_wide_as_the_terminal(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    examples = [line for line in lines if line.lstrip().startswith("$ ")]
    assert len(examples) == len(cli.COMMANDS)
    assert max(len(line) for line in lines if line not in examples) <= max(width, 69)


def test_colours_are_for_terminals(monkeypatch):
    entry = command_help.Entry("word", "Does it.", "warploom word")
    plain = command_help.listing({"Group": [entry]}, 80, colour=False)
    coloured = command_help.listing({"Group": [entry]}, 80, colour=True)
    assert "\033" not in plain and re.sub(r"\033\[\d*m", "", coloured) == plain
    terminal = types.SimpleNamespace(isatty=lambda: True)
    file = types.SimpleNamespace(isatty=lambda: False)
    assert command_help.wants_colour(terminal, {}) and not command_help.wants_colour(file, {})
    assert not command_help.wants_colour(terminal, {"NO_COLOR": "1"})
    assert not command_help.wants_colour(terminal, {"TERM": "dumb"})
    assert command_help.wants_colour(file, {"FORCE_COLOR": "1"})


def _examples():
    for command in cli.COMMANDS:
        yield command.words, command.example
    for entries in benchmarks.groups().values():
        for entry in entries:
            yield ("bench", entry.words), entry.example


@pytest.mark.parametrize(
    ("words", "example"), [*_examples()], ids=lambda one: one[-1] if isinstance(one, tuple) else ""
)
def test_options_of_examples_exist(words, example, capsys):
    """An example names its own command, and options that the command's help has."""
    given = example.partition(" > ")[0].split()
    assert tuple(given[1 : 1 + len(words)]) == words
    beginning = list(words)
    if words == ("inspect", "layout") or words == ("tune", "db"):
        beginning.append(given[1 + len(words)])
    text = completion.help_of(beginning, cli.main)
    assert all(option in text for option in given if option.startswith("--")), example


def test_benchmarks_list_themselves(capsys):
    assert cli.main(["bench", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for entries in benchmarks.groups().values():
        assert all(entry.sentence in text and entry.example in text for entry in entries)
    assert cli.main(["bench"]) == 3
    assert "warploom bench gemm --shape" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [["doctor"], ["inspect", "choices"], ["inspect", "layout", "wgmma-d"],
     ["inspect", "layout", "smem", "--shape", "8x64"], ["tune", "db", "inspect"]],
    ids="-".join,
)  # fmt: skip
def test_json_can_be_read(words, capsys):
    cli.main([*words, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found
    if words[-1] == "wgmma-d":
        assert found["shape"] == [64, 8]
        assert found["places"][1][:3] == [[0, 4, 0], [0, 4, 1], [0, 5, 0]]
    if words[-1] == "8x64":
        assert found["places"][1][0] == 128 + 16  # the first chunk of row 1, xor 1


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"warploom {warploom.__version__}\n"


def test_the_command_starts_without_tvm(run_python):
    result = run_python(
        "import sys\nsys.argv[0] = '/usr/bin/warploom'\n"
        "import warploom.cli\nprint('tvm' in sys.modules)\n"
    )
    assert (result.returncode, result.stdout.strip()) == (0, "False"), result.stderr
