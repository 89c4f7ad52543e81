"""Draws mutants of the package's sources and counts those that the tests tell from it.

    python -m tests.source_mutants --record                # once: which test executes which line
    python -m tests.source_mutants --count 40 --seed 1     # a table of 40 mutants
    python -m tests.source_mutants --count 40 --seed 1 --synchronisation lower ops

``tests/README.md`` says what the table means.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.shared.paths import ROOT
from tests.source_mutants import recordings
from tests.source_mutants.equivalents import EQUIVALENTS
from tests.source_mutants.judges import Coverage, record, watched
from tests.source_mutants.mutation import SourceMutant, modules, mutants
from tests.source_mutants.trial import LIMIT, PACKAGE, judge

#: Where ``--record`` writes.
RECORDED = ROOT / "build" / "source_coverage"
#: Parts of the package that write kernels.
DEFAULT = ("lower", "ops", "gemm", "language", "intrin", "schedulers", "kernels")


def draw(
    candidates: Sequence[SourceMutant], count: int, seed: int, synchronisation: bool
) -> list[SourceMutant]:
    """Mutants for a seed: of each module as many as it has functions that change."""
    rng = random.Random(seed)
    wanted = [one for one in candidates if one.synchronises or not synchronisation]
    functions: dict[tuple[str, str], list[SourceMutant]] = {}
    for one in wanted:
        functions.setdefault((one.module, one.function), []).append(one)
    chosen: list[SourceMutant] = []
    for some in rng.sample(list(functions.values()), min(count, len(functions))):
        chosen.append(rng.choice(some))
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its status is 1 if a mutant survived that is not known to be equivalent."""
    options = _options(arguments)
    if options.record:
        record(options.coverage, watched(), options.processes)
        return 0
    if options.keep:
        kept = recordings.keep(options.keep)
        fresh = [one for one in recordings.read() if one.find() is not None]
        recordings.write([*fresh, *kept])
        print(f"{len(kept)} mutants recorded, {len(fresh)} were already")
        return 0
    coverage = Coverage(options.coverage)
    if not coverage.by_module:
        sys.exit(f"{options.coverage} has no coverage; run {sys.argv[0]} --record first")
    found = [one for name in modules(PACKAGE, options.under) for one in mutants(PACKAGE, name)]
    if options.match:
        chosen = [one for one in found if options.match in str(one)]
    else:
        chosen = draw(found, options.count, options.seed, options.synchronisation)
    print(f"seed {options.seed}: {len(chosen)} of {len(found)} mutants", flush=True)
    states: Counter[str] = Counter()
    for mutant in chosen:
        start = time.monotonic()
        if (reason := EQUIVALENTS.get(mutant.key)) is not None:
            state, note = "equivalent", reason
        else:
            verdict = judge(mutant, coverage.judges(mutant, options.budget), options.limit)
            state, note = verdict.state, verdict.by
            if options.log:
                row = {"key": mutant.key, "digest": mutant.digest, "state": state, "by": note,
                       "synchronises": mutant.synchronises,
                       "seconds": round(time.monotonic() - start, 1)}  # fmt: skip
                with open(options.log, "a") as file:
                    file.write(json.dumps(row) + "\n")
        states[state] += 1
        mark = "sync" if mutant.synchronises else "    "
        seconds = time.monotonic() - start
        print(f"{state:10} {mark} {seconds:5.0f} s  {mutant}  {note}", flush=True)
    killed, judged = states["killed"] + states["hung"], len(chosen) - states["equivalent"]
    print(f"killed {killed} of {judged} that are not equivalent: {dict(states)}")
    return int(killed < judged)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.source_mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("under", nargs="*", default=DEFAULT, help="folders or modules")
    parser.add_argument("--count", type=int, default=20, help="mutants to draw (20)")
    parser.add_argument("--seed", type=int, default=0, help="draws others (0)")
    parser.add_argument("--synchronisation", action="store_true", help="only fences, waits, ...")
    parser.add_argument("--match", help="not drawn: all whose line of the table has this text")
    parser.add_argument("--budget", type=float, default=80, help="seconds of tests (80)")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"seconds, at most ({LIMIT})")
    parser.add_argument("--log", type=Path, help="a file of JSON lines to append to")
    parser.add_argument("--record", action="store_true", help="record which lines tests execute")
    parser.add_argument("--keep", type=Path, metavar="LOG", help="record what a log says is killed")
    parser.add_argument("--processes", type=int, default=2, help="that record (2)")
    parser.add_argument("--coverage", type=Path, default=RECORDED, help="what was recorded")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
