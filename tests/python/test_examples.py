"""The examples in Python run as they stand."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
PRINTED = {
    "rope.py": (
        "gradient of the packed projection (2, 16, 12, 64)",
        "refused: rope_forward: cos has 8 rows, q has 16 tokens in a sequence",
    ),
    "rms_norm.py": (
        "gradient of the tokens (2, 16, 256)",
        "refused: rms_norm_forward: weight has 255 elements, last dimension of x is 256",
    ),
}


@pytest.mark.skipif(not EXAMPLES.exists(), reason="the examples are not here")
@pytest.mark.parametrize("name", PRINTED)
def test_example_runs(name):
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for line in PRINTED[name]:
        assert line in done.stdout
