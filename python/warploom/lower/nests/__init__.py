"""Element-wise code of a program, as code of a thread on its registers."""
