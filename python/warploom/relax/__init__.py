"""Relax models with tensor-core GEMMs."""

from warploom.relax.call_graphs import GraphFunction, cuda_graph
from warploom.relax.insertion import with_warploom
from warploom.relax.pipeline import warploom_pipeline

__all__ = ["GraphFunction", "cuda_graph", "warploom_pipeline", "with_warploom"]
