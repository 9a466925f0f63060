"""What overlap and depth are expected to be once a plan is carried out.

The keys of rows are not read; only the bounds, rows and bytes of blocks are known. So this is an estimate, in steps:

1. **Outputs** (`outputs.py`). How many blocks a group becomes, and with which of its rows, counted in key order, each
   begins, follows from the rows and bytes of its inputs (`cut.py`). All rows are taken to be of one width.
2. **Keys** (`intervals.py`). The rows of an input are taken as spread evenly between its bounds. Adding up the inputs
   tells at which place in key order each output begins. That place may lie between two of the known bounds.
3. **Shared keys** (`intervals.py`). Two outputs that follow each other share a key if the cut between them parts the
   rows of one. A cut may move back by its *slack*, so it parts only keys with more rows than that. Where it may happen,
   it is taken to happen as often as keys of average size have it (`rows_of_a_key`). That decides between depth 1 and 2.
4. **Figures** (`forecast.py`). The outputs are intervals then. They are measured together with the blocks that stay.

Ranks of different partitions lie apart on the axis (`inputs.py`) on which all this is done, so that nothing meets
across partitions.
"""
