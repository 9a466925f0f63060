"""Workloads of several columns that drift, and what policies cost on them: queries and rewriting, in seconds.

Only the bounds of blocks and the columns that queries ask for exist; a block of some hundred rows stands for a file of
32 MB. Policies that are ours run the code of the product (`tblctl.selector.workload`).

- `traces.py`: what arrives and what is asked, batch by batch.
- `table.py`: a table as arrays, and what its queries and rewrites cost.
- `contenders.py`: ours, and others as their papers describe them.
- `__main__.py`: all of them on all traces, as a table and a picture.
"""
