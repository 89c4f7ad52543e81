"""Tiles of registers on their way to global memory."""
