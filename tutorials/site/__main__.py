"""``python -m tutorials.site [OUT]``: build the site from the repository.

It executes the tutorials and the gallery (on a GPU, or on the emulator where there is none), makes
all pages, and lets Sphinx turn them into HTML. Every warning is an error.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from tutorials.site import gallery, notebooks, stage


def main() -> int:
    """Build, and return the exit status: 0, or 1 where a link leads nowhere or Sphinx warns."""
    parser = argparse.ArgumentParser(prog="python -m tutorials.site", description=__doc__)
    parser.add_argument(
        "out", type=Path, nargs="?", default=Path("build/site"),
        help="folder of the site (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--no-execute", action="store_true", help="show tutorials without their outputs"
    )
    parser.add_argument("--builder", default="html", help="Sphinx's builder, or linkcheck")
    options = parser.parse_args()
    if importlib.util.find_spec("sphinx") is None:
        parser.error("Sphinx is not installed; run: pip install '.[docs]'")
    out = options.out.resolve()
    sources = out / "source"
    outputs = None
    if not options.no_execute:
        outputs = notebooks.Outputs(out / "outputs")
        outputs.record(
            [
                *notebooks.tutorials(stage.ROOT / "tutorials"),
                *gallery.kernels(stage.ROOT / "tutorials" / "gallery"),
            ]
        )
    stage.write(sources, outputs)
    broken = list(stage.broken_links(stage.pages(outputs)))
    if broken:
        print("\n".join(broken), file=sys.stderr)
        return 1
    command = ["-m", "sphinx", "-q", "-b", options.builder, "-W", "--keep-going"]
    folders = ["-c", str(stage.SITE), str(sources), str(out / options.builder)]
    environ = {**os.environ, "WARPLOOM_EMULATOR": "0"}
    done = subprocess.run([sys.executable, *command, *folders], env=environ, check=False)
    if done.returncode == 0 and options.builder == "html":
        print(out / options.builder / "index.html")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
