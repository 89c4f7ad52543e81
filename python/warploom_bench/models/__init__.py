"""``warploom bench model NAME``: whole models from end to end, beside PyTorch and the roofline.

Data flows one way: sizes (``sizes.py``) -> rows to measure (``rows.py``) -> models as users write
them (``language.py``, ``images.py``, ``encoders.py``) -> a session that runs a model
(``session.py``, ``exported.py``) and its rival (``torch_language.py``, ``rivals.py``) -> times and
errors (``measure_*.py``) -> tables (``results.py``). ``command.py`` starts a process for each row.
"""
