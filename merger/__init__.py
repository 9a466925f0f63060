"""Merge: cut a plan's groups into tasks, run them in an engine, verify the written blocks, and commit or salvage them.

The words of this package. Each has one meaning:

| word | what it is | where |
|---|---|---|
| Draft | blocks that a policy proposes to merge; a planner makes groups of them | `selector/` |
| Group | blocks of a plan that are merged together; commits or fails alone | `selector/plan.py` |
| GroupRun | a group while a round carries it out: its state, results and outcome | `round/group_run.py` |
| CutTask | a group whose cuts between its tasks are to be found; `Cuts` are what is found | `cutting/cuts.py` |
| InputSplit | rows of one block, by their place in key order | `task/spec.py` |
| Task | `MergeTask`: splits of a group's blocks that are merged alone into whole blocks | `task/spec.py` |
| task attempt | one execution of a task; if there are several, the blocks of only one count | `engines/` |
| streamed | rows of a block in key order that are merged as they are read | `task/inputs.py` |
| presorted | rows that are sorted with others' before tasks merge them | `presort/` |
| SortTask | presorted rows that are read and sorted together | `presort/sort_tasks.py` |
| Portion | rows that one merge task takes of a sort task; read like a block in key order | `presort/portions.py` |
| Piece | one of several Arrow tables in a file or buffer; spilled rows are stored in pieces | `presort/spill.py` |
| Unit | tasks of a group that sort their rows together, or one task | `presort/decide.py` |
| Share | neighbouring tasks of a unit that one Spark worker runs, one after the other | `presort/decide.py` |
| Job | units, or cut tasks, that are one Spark job | `engines/spark/` |
| Window | consecutive rows of an output block that are in memory together | `task/merge.py` |
| spill | write rows to a temporary folder on the local disk because memory has no room | `presort/spill.py` |
"""
