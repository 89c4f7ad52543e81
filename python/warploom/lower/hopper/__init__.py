"""Roles on Hopper: a thread that loads, warpgroups that multiply and compute."""
