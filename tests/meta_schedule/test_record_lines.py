"""Lines of records say the whole problem."""

from __future__ import annotations

import json

import pytest

from tests.gemm.convolutions import CONVOLUTIONS
from warploom.gemm import recognise
from warploom.meta_schedule.record_lines import as_text, problem_line, problem_of_line


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_line_says_what_the_pixels_of_a_convolution_are(name: str) -> None:
    problem = recognise(CONVOLUTIONS[name].function().func).problem
    found = problem_of_line(json.loads(as_text(problem_line(problem))))
    assert found == problem and str(found) == str(problem)
