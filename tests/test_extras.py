"""Libraries that come with an extra: a missing one is named, and none tells its makers that it is used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from oneway.common.errors import UserError
from oneway.tools.export import export_model
from small_runs import QUIET

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.mark.parametrize(
    ("lacking", "to", "extra"), [("onnxscript", "model.onnx", "export"), ("openvino", "model.xml", "openvino")]
)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    trained_run, tmp_path, monkeypatch, lacking, to, extra
):
    """In the words to paste."""
    monkeypatch.setitem(sys.modules, lacking, None)
    with pytest.raises(UserError, match=rf"pip install 'oneway\[{extra}\]'"):
        export_model(trained_run, tmp_path / to, "labels", QUIET)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_libraries_report_nothing_to_their_makers(library, tmp_path):
    """Before they send anything, they note a number for this user below the home folder."""
    pytest.importorskip(library)
    code = f"from oneway.common.extras import import_extra; import_extra({library!r}, 'export', 'A test')"
    alone = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=alone, check=True)
    assert list(tmp_path.iterdir()) == []
