"""Passes over whole modules, after TVM has split them into host and device."""
