"""What passes ask of a program; nothing here changes it."""
