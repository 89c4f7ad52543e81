"""Messages for the author of a program when something is wrong, in at most five lines.

:mod:`~warploom.messages.display` shows errors in Python, in notebooks and in ``warploom emulate``;
:mod:`~warploom.messages.advice` knows the fixes of mistakes that TVM's parser finds;
:mod:`~warploom.messages.frames` finds the author's line in a traceback.
"""
