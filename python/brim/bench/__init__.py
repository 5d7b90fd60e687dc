"""python -m brim.bench: brim's ops, the libraries they compete with and plain copies of the same bytes, in turns.

docs/performance.md says how it measures. An op brings its cases and providers in one module (rope.py, norms.py), and stands
in cli.OPS.
"""
