"""The tile program, the waist of the package: its statements, their effects, and its parts.

Everything above produces tile programs, and everything below consumes them.
"""
