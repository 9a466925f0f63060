"""What a table was asked lately: its log read for policies and people, and logs of engines imported into it.

`log.py` reads, `report.py` sums up, `importing.py` imports; the other modules read one kind of log each.
"""
