"""Bases and healthy sets of the judged part: sources that no rule was written on.

To be written by someone who has not read the rules, with a construction of every ill in
`planted.py` and settings of `cured.py` of their own, before any of them is diagnosed; to be judged
on once. What was judged on before is in `once_judged.py` and `second_judged.py`.
"""
