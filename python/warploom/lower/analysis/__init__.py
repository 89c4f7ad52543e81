"""Analyses of a program for passes; nothing here changes it."""
