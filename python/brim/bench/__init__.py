"""python -m brim.bench: brim's ops, the libraries they compete with and plain copies of the same bytes, in turns.

docs/performance.md says how it measures. An op brings one module with its cases and providers (here rope.py), named in
cli.OPS.
"""
