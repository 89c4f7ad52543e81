"""The documents of the project agree with the package: versions, paths, what an issue asks for."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement

from tests.shared.paths import ROOT
from warploom._version import REQUIREMENTS, __version__

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _text(path: str) -> str:
    return (ROOT / path).read_text()


def test_the_changelog_and_the_citation_have_this_version():
    assert re.search(r"^## (\S+?),? ", _text("CHANGELOG.md"), re.MULTILINE)[1] == __version__
    assert re.search(r"^version: (\S+)$", _text("CITATION.cff"), re.MULTILINE)[1] == __version__


def test_supported_versions_are_those_that_are_checked():
    page = _text("tutorials/guide/stability.md")
    for name, bounds in REQUIREMENTS.items():
        version = re.search(r"\d+(\.\d+)+", bounds)[0].removesuffix(".*")
        assert f"`{name}` {version}" in page
    assert _PROJECT["requires-python"].removeprefix(">=") in page


def test_paths_that_contributors_are_sent_to_exist():
    page = _text("CONTRIBUTING.md")
    spans = set(re.findall(r"`([\w./-]+/[\w./-]*)`", page))
    bases = ("", "python/warploom", "python/warploom_bench")
    missing = [
        span for span in spans if not any((ROOT / base / span).exists() for base in bases)
    ]
    assert len(spans) > 20 and not missing


def test_an_issue_asks_for_the_doctor_and_the_emulator():
    template = _text(".github/ISSUE_TEMPLATE/bug.yml")
    assert "`warploom doctor`" in template and "`warploom emulate" in template


def test_extras_are_those_that_the_documents_name():
    extras = _PROJECT["optional-dependencies"]
    assert {*extras} == {"bench", "docs", "notebooks", "plot", "test", "tune"}
    for name, texts in extras.items():
        for each in map(Requirement, texts):
            own = each.name == _PROJECT["name"]
            assert own or any(one.operator in ("<", "==") for one in each.specifier), (name, each)
            assert not own or each.extras <= {*extras} - {name}


def test_the_license_is_an_spdx_expression():
    assert _PROJECT["license"] == "Apache-2.0"
    assert not [one for one in _PROJECT["classifiers"] if one.startswith("License ::")]
