"""``warploom tutorials check FILE``: whether exercises are solved."""

from __future__ import annotations

from warploom.tutorials.exercises import check_main as main

__all__ = ["main"]
