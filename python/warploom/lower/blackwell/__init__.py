"""Roles on Blackwell: a thread that loads, one that multiplies, warpgroups; tensor memory."""
