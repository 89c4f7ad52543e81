"""Values of TIR expressions in numpy, for the interpreter and for rules."""
