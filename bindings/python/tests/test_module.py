"""The module itself: its import, its names."""

from __future__ import annotations

import megabatch as mb
from megabatch._wording import in_python, with_arguments
from shared import InFolder


class Module(InFolder):
    def test_an_import_is_quick_and_brings_numpy_alone(self) -> None:
        code = (
            "import sys, time\n"
            # Its bytecode is kept, as an installation does; the first of the children writes it.
            "sys.dont_write_bytecode, sys.pycache_prefix = False, sys.argv[1]\n"
            "start = time.process_time()\n"
            "import numpy\n"
            "own = time.process_time()\n"
            "import megabatch\n"
            "share = (time.process_time() - own) / (own - start)\n"
            "others = {'torch', 'pandas', 'polars', 'pyarrow', 'lightning', 'IPython'} & set(sys.modules)\n"
            "print(share, sorted(others))\n"
        )
        answers = [self.python(code, self.folder).split(maxsplit=1) for _ in range(5)]
        self.assertEqual({others.strip() for _, others in answers}, {"[]"})
        # It takes less time than numpy, on a machine with other work too.
        self.assertLess(min(float(share) for share, _ in answers), 1.5)

    def test_messages_name_arguments(self) -> None:
        for text, expected in (
            ("ask for fewer with --min-observations", "ask for fewer with min_observations"),
            ("--set training.epochs=0: training.epochs = 0: expected", "training.epochs = 0: expected"),
            (
                "--set a.b=1: unknown key `a.b`; (`megabatch config` lists them all)",
                "unknown key `a.b`; (`help(mb.Settings)` lists them all)",
            ),
            ("a.b = 1 (--set a.b=1) contradicts a.c = 2 (--set a.c=2): keep one", "a.b = 1 contradicts a.c = 2: keep one"),
            ("train one with --set a.b=N or a.c=N", "train one with a.b=N or a.c=N"),
            ("holds a run already; --resume goes on", "holds a run already; resume=True goes on"),
            ("--split test: it is empty", "part test: it is empty"),
            ("`megabatch train --out a b --resume` goes on", "`mb.train(out=\"a b\", resume=True)` goes on"),
            ("`megabatch convert a--b.h5 c.h5 --chunk-rows 512`", "`mb.convert(\"a--b.h5\", \"c.h5\", chunk_rows=512)`"),
            ("`megabatch convert` makes series; `ingest --features …`", "`mb.convert` makes series; `mb.ingest(features=…)`"),
            ("`export --format onnx` needs --stateless", "`run.export(\"model.onnx\")` needs stateless=True"),
            ("no `predict --follow`; expected `train`", "no `run.follow`; expected `train`"),
            ("no `predict --follow`: context D1; in Python, `run.follow(…, context=)`", "`run.follow(…, context=)` needs context D1"),
            ("`megabatch ticks` makes bars of them", "`mb.ticks_to_bars` makes bars of them"),
            ("are not there; give their new place with --data", "are not there; give their new place with data"),
            ("`megabatch memory snapshot a.json` shows it", "`mb.memory.snapshot(\"a.json\")` shows it"),
            ("`megabatch memory trace a.jsonl` writes it", "`megabatch memory trace a.jsonl` writes it"),
            ("`zcat a | megabatch predict --follow -`", "`zcat a | megabatch predict --follow -`"),
            ("use `--repeats first` or `last`, or `--base`", "use `repeats=\"first\"` or `last`, or `base`"),
            ("`--set distributed.idle_ranks=allow` lets them", "`distributed={\"idle_ranks\": \"allow\"}` lets them"),
            ("`--features \"default,column:a\"` makes one", "`features=\"default,column:a\"` makes one"),
            ("--resume needs the folder: --out FOLDER", "resume=True needs the folder: out"),
            ("no data: give --data FILE, or data.path", "no data: give a dataset, or data.path"),
            ("note: --k 5 makes neighbours", "note: k=5 makes neighbours"),
            ("3 more, which --json lists; add --force", "3 more, which facts lists; add changed_data=True"),
            ("`--all` prints 9 datasets", "`all=True` prints 9 datasets"),
            ("a--b.csv: line 3, -1 to --2", "a--b.csv: line 3, -1 to --2"),
            ('source = {"recipe":["--base=M1"]}', 'source = {"recipe":["--base=M1"]}'),
            ("name them with `--bid` and `--ask`", "name them with `bid` and `ask`"),
        ):
            self.assertEqual(in_python(text), expected)
            self.assertEqual(str(mb.ConfigError(text)), expected)

    def test_messages_name_the_arguments_that_are_settings(self) -> None:
        arguments = {"data.purge": "purge", "data.split": "fractions", "data.walk": "folds", "data.walk_window": "window"}
        for text, expected in (
            ("data.purge is auto", "purge is auto"),
            ("give data.purge=0s, which keeps", 'give purge="0s", which keeps'),
            ("use data.purge=auto.", 'use purge="auto".'),
            ("data.split=[0.7,0.2,0.1] or data.split", "fractions=[0.7,0.2,0.1] or fractions"),
            ("data.walk=3; data.walk_window=sliding", 'folds=3; window="sliding"'),
            ("data.walk_number, /a/data.split, data.splits", "data.walk_number, /a/data.split, data.splits"),
        ):
            self.assertEqual(with_arguments(text, arguments), expected)

    def test_all_names_are_there(self) -> None:
        for name in mb.__all__:
            self.assertTrue(hasattr(mb, name), name)
        self.assertRegex(mb.__version__, r"^\d+\.\d+\.\d+$")
        self.assertEqual(set(dir(mb)), {*mb.__all__, "ChunkDataLoader", "collate", "lightning", "scatter", "torch"})
        with self.assertRaises(AttributeError):
            mb.nothing  # type: ignore[attr-defined]
        code = "import sys\nsys.modules['torch'] = None\nfrom megabatch import *\nprint(graph.__name__)"
        self.assertEqual(self.python(code).strip(), "megabatch.graph")

    def test_without_pytorch_its_parts_say_what_to_install_and_what_works(self) -> None:
        code = (
            "import inspect, pydoc, sys\n"
            "sys.modules['torch'] = None\n"
            "import megabatch as mb\n"
            "import numpy as np\n"
            "lazy = [name for name in dir(mb) if name not in mb.__all__]\n"
            "print(len(lazy), [name for name in lazy if hasattr(mb, name)])\n"
            "members = {name for name, _ in inspect.getmembers(mb)}\n"
            "print(set(mb.__all__) <= members, 'trains LSTMs' in pydoc.render_doc(mb))\n"
            "graph = {'edge_index': np.array([[0], [1]]), 'x': np.array([[1.0], [2.0]])}\n"
            "graphs = mb.graph.save([graph], sys.argv[2])\n"
            "ds = mb.open(sys.argv[1])\n"
            "for call in (\n"
            "    lambda: mb.collate, lambda: mb.scatter, lambda: mb.torch, ds.torch, ds.tensors,\n"
            "    lambda: graphs.pyg(0), lambda: graphs.loader(device='cpu'), lambda: next(iter(graphs.loader(pyg=True))),\n"
            "):\n"
            "    try:\n"
            "        call()\n"
            "    except (AttributeError, ImportError) as error:\n"
            "        print(type(error).__name__, error)\n"
            # `cannot import name 'collate'` was all that it said.
            "for name in lazy:\n"
            "    try:\n"
            "        exec(f'from megabatch import {name}')\n"
            "    except ImportError as error:\n"
            "        print(type(error).__name__, error)\n"
            # `No module named 'torch'` was all that it said.
            "for name in lazy[2:]:\n"
            "    try:\n"
            "        exec(f'import megabatch.{name}')\n"
            "    except ImportError as error:\n"
            "        print(type(error).__name__, error)\n"
        )
        lines = self.python(code, self.series().path, self.folder / "graphs.mbg").splitlines()
        self.assertEqual(lines[:2], ["5 []", "True True"])
        arrays = "without it, {}.loader() gives batches as arrays of numpy"
        torch, own, graphs = "PyTorch, which is not installed: pip install torch", arrays.format("dataset"), arrays.format("graphs")
        modules = ("lightning", "scatter", "torch")
        expected = [
            f"AttributeError megabatch.collate needs {torch}; {own}",
            *(f"AttributeError megabatch.{name} needs {torch}" for name in ("scatter", "torch")),
            *(f"ModuleNotFoundError dataset.{name}() needs {torch}; {own}" for name in ("torch", "tensors")),
            f"ModuleNotFoundError graphs.pyg() needs {torch}; without it, graphs[which] gives a graph as arrays of numpy",
            *(f"ModuleNotFoundError graphs.loader({name}) needs {torch}; {graphs}" for name in ("device=...", "pyg=True")),
            *(f"ModuleNotFoundError megabatch.{name} needs {torch}; {own}" for name in ("ChunkDataLoader", "collate")),
            *(f"ModuleNotFoundError megabatch.{name} needs {torch}" for name in (*modules, *modules)),
        ]
        self.assertEqual(lines[2:], expected)
