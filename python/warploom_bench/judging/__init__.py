"""How ``bench judge`` compares a model's choice with the best config of a search.

| module | what it has |
|---|---|
| :mod:`case` | what a search asks of a kernel |
| :mod:`gemms` | cases that are functions in S-TIR: GEMMs and convolutions |
| :mod:`programs` | cases that are tile programs, of one of the :mod:`families` |
| :mod:`family`, :mod:`scaled`, :mod:`attention` | what a family is, and the families |
| :mod:`references`, :mod:`sampled` | the right results of tile programs |
| :mod:`changes` | configs of tile programs that are near to others |
| :mod:`cases` | the cases that options ask for |
| :mod:`search` | rounds of measurements |
| :mod:`lanes` | several GPUs side by side |
| :mod:`final` | the final round |
| :mod:`line`, :mod:`verdict` | lines of the output, and tables of them |
"""
