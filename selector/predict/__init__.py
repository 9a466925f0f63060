"""Predict overlap and depth after a plan is carried out.

The keys of rows are not read; only the bounds, rows and bytes of blocks are known. So this is an estimate, in steps:

1. **Outputs** (`outputs.py`). The rows and bytes of a group's inputs give the number of its outputs, and the row, in
   key order, with which each begins (`cut.py`). All rows are assumed to be of one width.
2. **Keys** (`intervals.py`). The rows of an input are assumed to spread evenly between its bounds. The sum of the
   inputs gives the place in key order where each output begins. That place may lie between two known bounds.
3. **Shared keys** (`intervals.py`). Neighbouring outputs share a key if the cut between them splits the rows of one
   key. A cut may move back by its *slack*, so it splits only keys with more rows than that. Where that is possible, it
   is assumed to happen as often as for keys of average size (`rows_of_a_key`). This decides between depth 1 and 2.
4. **Figures** (`forecast.py`). The outputs are then intervals. They are measured together with the blocks that stay.

All this is done on one axis (`inputs.py`). Ranks of different partitions lie apart on it, so that blocks of different
partitions never meet.
"""
