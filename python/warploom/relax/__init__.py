"""Relax models with tensor-core GEMMs."""

from warploom.relax.insertion import with_warploom
from warploom.relax.pipeline import warploom_pipeline

__all__ = ["warploom_pipeline", "with_warploom"]
