"""What a plan costs: rates of the work, the price of groups, and which of them a limit of seconds or money holds.

Pure. `rates.py` says what a unit of work takes, from stated defaults or from the last runs of the table; `predict.py`
counts the units of drafts; `price.py` has the resulting values; `cut.py` keeps a plan within its limits.
"""
