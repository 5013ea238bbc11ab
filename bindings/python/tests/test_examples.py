"""The examples, and the code of the guide, run."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

from shared import InFolder

ROOT = pathlib.Path(__file__).parent.parent
FAKES = ROOT / "tests" / "fakes"
GUIDES = ROOT.parent.parent / "docs" / "guide"
GUIDE = GUIDES / "python.md"


def has(module: str) -> bool:
    """True if a package is installed."""
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # the stand-in of another test
        return False


class Examples(InFolder):
    def said(self, example: str) -> str:
        fakes = [str(FAKES)] if not has("mlflow") else []
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), *fakes])
        command = [sys.executable, str(ROOT / "examples" / f"{example}.py")]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, cwd=self.folder, env={**os.environ, "PYTHONPATH": path}
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_from_a_frame_to_errors(self) -> None:
        said = self.said("frame_to_errors")
        self.assertIn("whatever follows it", said)
        self.assertIn("no_change", said)
        self.assertIn("target4", said)

    def test_logging_by_a_callback(self) -> None:
        self.assertIn("mlflow 4 ['loss', 'lr'", self.said("log_to_mlflow"))
        self.assertIn("wandb finished", self.said("log_to_wandb"))

    def test_pruning(self) -> None:
        said = self.said("optuna_pruning")
        self.assertIn("hidden", said)
        if not has("optuna"):
            self.assertIn("pruned 1 at step 3", said)

    @unittest.skipUnless(has("torch") and has("lightning"), "PyTorch: cargo xtask python test --torch")
    def test_an_lstm_in_lightning(self) -> None:
        self.assertIn("tensor(", self.said("lstm_in_lightning"))


    @unittest.skipUnless(has("nbclient") and has("matplotlib"), "a notebook: cargo xtask python test --torch")
    def test_the_notebook(self) -> None:
        import nbclient
        import nbformat

        notebook = nbformat.read(ROOT / "examples" / "first_run.ipynb", as_version=4)
        nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(self.folder)}}).execute()
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        kinds = [kind for output in outputs for kind in output.get("data", {})]
        self.assertEqual(kinds.count("image/png"), 4)
        shown = [output["data"].get("text/html", "") for output in outputs if "data" in output]
        self.assertTrue(any("<iframe" in html for html in shown))
        self.assertTrue(any("/40 steps" in html or "<pre>" in html for html in shown))


class Guide(InFolder):
    def test_its_code_runs_from_top_to_bottom(self) -> None:
        blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
        blocks = [block for block in blocks if "torch" not in block and "lightning" not in block or has("torch")]
        self.assertGreater(len(blocks), 5)
        code = "\n".join(blocks)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        code = "\n".join(re.findall(r"^```python\n(.*?)^```", (GUIDES / "own-features.md").read_text(), re.M | re.S))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not proven: the targets label", done.stdout)
        self.bars(42).rename(self.folder / "bars.csv")
        for page in (ROOT / "README.md", ROOT.parent.parent / "README.md"):
            code = "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stderr)
