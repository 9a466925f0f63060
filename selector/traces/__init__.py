"""Traces of appends and deletes, replayed on tables of keys: what a policy rewrites, and how deep its table is.

    trace = TRACES["uniform"]
    found = replayed(trace.events(rng), by_policy("runs", target_depth=5))
    found.rewritten, found.depth

`events` makes traces, `table` is the table, `replay` lets a policy run after every event, `curve` compares policies at
equal depth, `rivals` are published rules of others. Chance is an argument: a numpy Generator.
"""
