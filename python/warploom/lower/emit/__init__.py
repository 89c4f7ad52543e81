"""Statements that several passes write: mbarriers, loads of stages, named barriers, prints."""
