"""The chaos run: producers, workers and schedulers on a real server while things go wrong, and the books at the end.

`python -m bench.chaos --minutes 2 --server redis --seed 1` prints one JSON line; its exit code is 1 where the books
don't balance. The seed alone decides which faults come, when, and at whom; see `plan`.
"""
