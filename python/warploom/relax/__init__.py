"""Relax models with tensor-core GEMMs."""

from warploom.relax.pipeline import legalize_passes, warploom_pipeline

__all__ = ["legalize_passes", "warploom_pipeline"]
