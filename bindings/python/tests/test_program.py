"""The program `megabatch` that a wheel brings, in Python's process."""

from __future__ import annotations

import json
import operator
import pathlib
import re
import signal
import subprocess
import sys
import threading

import megabatch as mb
from shared import CHILD_SECONDS_MAX, PROGRAM, InFolder

GUIDE = pathlib.Path(__file__).parents[3] / "docs" / "guide" / "python.md"
MODULE = [sys.executable, "-m", "megabatch"]


class Program(InFolder):
    def run_with(self, program: list[str], *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [*program, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=CHILD_SECONDS_MAX, cwd=self.folder)

    def test_it_answers_as_the_program_does(self) -> None:
        for arguments in (
            ["--version"],
            ["--help"],
            ["train", "--help"],
            ["trian"],
            ["train", "--set", "training.lr", "0.1"],
            ["inspect", "none.h5"],
            ["inspect", "none.h5", "--json"],
            ["train", "--json"],
            ["config"],
        ):
            own, other = self.run_with(MODULE, *arguments), self.run_with([PROGRAM], *arguments)
            with self.subTest(arguments):
                self.assertEqual((own.returncode, own.stdout, own.stderr), (other.returncode, other.stdout, other.stderr))
        self.assertEqual(self.run_with(MODULE, "trian").returncode, 2)
        self.assertEqual(self.run_with(MODULE, "inspect", "none.h5").returncode, 3)

    def test_the_guide_has_the_call_of_every_command(self) -> None:
        table = GUIDE.read_text().partition("## Commands and calls")[2].partition("\n## ")[0]
        rows = dict(line.split(" | ", 1) for line in table.splitlines() if line.startswith("| `"))

        def commands(*group: str) -> set[str]:
            text = self.program(*group, "--help").partition("Commands:\n")[2].partition("\n\n")[0]
            return {" ".join([*group, name]) for name in re.findall(r"^  ([a-z]+)  ", text, re.M) if name != "help"}

        known = (commands() - {"graph", "memory"}) | commands("graph") | commands("memory")
        self.assertEqual({name for row in rows for name in re.findall(r"`([a-z]+(?: [a-z]+)?)[ `]", row)}, known)
        calls = re.findall(r"`(mb|ds|run)\.([a-z_.]+[a-z])", " ".join(rows.values()))
        self.assertGreater(len(calls), 20)
        for name, call in calls:
            owner = {"mb": mb, "ds": mb.Dataset, "run": mb.Run}[name]
            self.assertTrue(callable(operator.attrgetter(call)(owner)), call)

    def test_it_trains_to_the_same_weights(self) -> None:
        self.series(layout="series", compression="none")
        weights = []
        for name, program in (("own", MODULE), ("other", [PROGRAM])):
            train = ["train", "--data", "series-none.h5", "--out", name, "--max-steps", 3, "--set", "model.hidden=4"]
            trained = self.run_with(program, *train)
            self.assertEqual(trained.returncode, 0, trained.stderr)
            exported = self.run_with(program, "export", "--run", name, "--format", "safetensors", "--out", f"{name}.safetensors")
            self.assertEqual(exported.returncode, 0, exported.stderr)
            weights.append((self.folder / f"{name}.safetensors").read_bytes())
        self.assertGreater(len(weights[0]), 500)
        self.assertEqual(*weights)

    def test_a_signal_ends_a_run_in_order(self) -> None:
        self.series(layout="series", compression="none")
        for number in (signal.SIGINT, signal.SIGTERM):
            train = ["train", "--data", "series-none.h5", "--out", number.name, "--max-steps", "50000"]
            command = [*MODULE, *train, "--json", "--set", "training.epochs=50000", "--set", "model.hidden=4"]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            with subprocess.Popen(command, cwd=self.folder, text=True, **pipes) as child:  # type: ignore[call-overload]
                killer = threading.Timer(CHILD_SECONDS_MAX, child.kill)
                killer.start()
                try:
                    # The checkpoint of the first epoch precedes this line.
                    self.assertTrue(any(line.startswith("epoch 2, ") for line in child.stderr))
                    child.send_signal(number)
                    answer, errors = child.communicate()
                finally:
                    killer.cancel()
                    child.kill()
            self.assertEqual(child.returncode, 128 + number, errors)
            answer = json.loads(answer)
            self.assertIs(answer["finished"], False)
            resume = ["train", "--out", number.name, "--resume", "--max-steps", answer["steps"] + 1, "--json"]
            resumed = self.run_with(MODULE, *resume)
            self.assertEqual(resumed.returncode, 0, resumed.stderr)
            self.assertEqual(json.loads(resumed.stdout)["steps"], answer["steps"] + 1)

    def test_an_interrupt_during_the_imports_has_no_traceback(self) -> None:
        script = self.folder / "megabatch"
        script.write_text("import sys\nfrom megabatch._program import main\nsys.exit(main())\n")
        (self.folder / "numpy.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
        done = self.run_with([sys.executable, str(script)], "--version")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (130, "", ""))

    def test_a_script_with_the_programs_name_keeps_its_handler_of_interrupts(self) -> None:
        script, default = self.folder / "megabatch", "signal.SIGINT, signal.default_int_handler"
        script.write_text(f"import signal\nsignal.signal({default})\nimport megabatch\nprint(signal.signal({default}).__name__)\n")
        done = self.run_with([sys.executable, str(script)])
        self.assertEqual((done.stdout, done.stderr), ("default_int_handler\n", ""))
