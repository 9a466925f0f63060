"""Merge: cut a plan's groups into tasks, run them in an engine, verify and commit what they wrote, or salvage it.

The words of this package, each of which has one meaning:

| word | what it is | where |
|---|---|---|
| Draft | blocks that a policy proposes to merge; a planner makes groups of them | `selector/` |
| Group | blocks of a plan that are merged together; commits or fails alone | `selector/plan.py` |
| GroupRun | a group while a round carries it out: its state, results and outcome | `round/group_run.py` |
| InputSplit | rows of one block, by their place in key order | `task/spec.py` |
| Task | `MergeTask`: splits of a group's blocks that are merged alone into whole blocks | `task/spec.py` |
| task attempt | one execution of a task; of several attempts, only one's blocks count | `engines/` |
| streamed | rows of a block in key order that are merged as they are read | `task/inputs.py` |
| presorted | rows that are sorted with others' before tasks merge them | `presort/` |
| SortTask | presorted rows that are read and sorted together | `presort/sort_tasks.py` |
| Portion | rows that one merge task takes of a sort task; read as a block in key order is | `presort/portions.py` |
| Piece | one Arrow table of several in a file or buffer; what is spilled is stored in pieces | `presort/spill.py` |
| Unit | tasks of a group that sort together what they take, or one task | `presort/decide.py` |
| Share | neighbouring tasks of a unit that one of Spark's workers runs, one after the other | `presort/decide.py` |
| Job | units that are one job of Spark's | `engines/spark/engine.py` |
| Window | rows that follow each other in an output block, and are in memory together | `task/merge.py` |
| spill | write rows to a temporary folder on the local disk, where memory has no room for them | `presort/spill.py` |
"""
