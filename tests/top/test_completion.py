"""``warploom completion``: the words that a shell offers are those of the commands."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from warploom import cli, completion

WORDS = {
    "": ["--help", "inspect", "bench"],
    "inspect": ["layout", "cubin"],
    "inspect layout": ["smem", "--help"],
    "inspect layout smem": ["--swizzle", "--shape"],
    "bench": ["gemm"],
    "bench gemm": ["--rounds"],
}


@pytest.fixture(scope="module")
def words():
    return completion.words_after(cli.COMMANDS, cli.main)


def test_every_command_is_offered_with_its_options(words):
    for command in cli.COMMANDS:
        beginning = " ".join(command.words)
        assert command.words[-1] in words[" ".join(command.words[:-1])]
        assert "--help" in words[beginning], beginning
    assert {"smem", "wgmma-d", "of"} <= set(words["inspect layout"])
    assert {"--svg", "--swizzle"} <= set(words["inspect layout smem"])
    assert {"inspect", "merge"} <= set(words["tune db"]) and "--out" in words["tune db merge"]
    assert "gallery" in words["bench"] and "--json" in words["bench gallery"]
    assert not any(re.fullmatch(r"sm_\d+a", word) for found in words.values() for word in found)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("warploom ins", "inspect"), ("warploom inspect la", "layout"),
        ("warploom inspect layout smem --sw", "--swizzle"),
        ("warploom bench gemm 12 --r", "--rounds"),
        ("warploom inspect no", ""),
    ],
)  # fmt: skip
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(line, found, tmp_path):
    parts = line.split()
    command = (
        f"{completion.script('bash', WORDS)}\nCOMP_WORDS=({' '.join(parts)}); "
        f'COMP_CWORD={len(parts) - 1}; _warploom; echo "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        ["bash", "-eu", "-c", command], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.strip() == found, done.stderr


def test_other_shells():
    assert "bashcompinit" in completion.script("zsh", WORDS)
    fish = completion.script("fish", WORDS)
    assert "complete -c warploom -n '__fish_seen_subcommand_from bench; and " in fish
    assert "-l swizzle" in fish and "-a inspect" in fish
    with pytest.raises(ValueError, match="allowed are bash, zsh, fish"):
        completion.script("csh", WORDS)
