"""Evaluate a TVM layout at all coordinates of a shape at once (help for the layout tests)."""

import numpy as np
import tvm


def evaluate_layout(layout, shape):
    """Value of each axis of ``layout`` (name -> int array of ``shape``) at every coordinate.

    The layout is applied to variables, and the resulting expression, which TVM prints as Python,
    is evaluated by numpy. The last coordinate is compared with TVM's own evaluation.
    """
    variables = [tvm.tirx.Var(f"i{d}", "int32") for d in range(len(shape))]
    grid = {f"i{d}": index for d, index in enumerate(np.indices(shape))}
    corner = layout.apply(*(extent - 1 for extent in shape), shape=list(shape))
    values = {}
    for axis, expression in layout.apply(*variables, shape=list(shape)).items():
        value = np.broadcast_to(eval(str(expression), {}, grid), shape)
        assert value.ravel()[-1] == int(corner[axis])
        values[str(axis)] = value
    return values
