"""Which blocks to regroup for the queries that a table is asked: pure, on arrays of numbers.

The policies for tables (`policies/workload.py`) and the simulator (`benchmarks/workload`) run this code alike.
"""
