"""examples/rope.py runs as it stands."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "rope.py"


@pytest.mark.skipif(not EXAMPLE.exists(), reason="the examples are not here")
def test_example_runs():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "gradient of the packed projection (2, 16, 12, 64)" in done.stdout
    assert "refused: rope_forward: cos has 8 rows, q has 16 tokens in a sequence" in done.stdout
