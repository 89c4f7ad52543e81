"""Values of TIR expressions in numpy: what the interpreter computes, and what rules can know."""
