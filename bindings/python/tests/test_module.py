"""The module itself: its import, its names."""

from __future__ import annotations

import megabatch as mb
from megabatch._wording import in_python
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
            ("--set training.epochs=0: training.epochs = 0", "training.epochs=0: training.epochs = 0"),
            ("holds a run already; --resume goes on", "holds a run already; resume=True goes on"),
            ("--split test: it is empty", "part test: it is empty"),
            ("`megabatch train --out a --resume` goes on", "`megabatch train --out a --resume` goes on"),
            ("write `--set a=1`; `export --format onnx` needs --stateless", "write `a=1`; `export --format onnx` needs stateless=True"),
            ("a--b.csv: line 3, -1 to --2", "a--b.csv: line 3, -1 to --2"),
        ):
            self.assertEqual(in_python(text), expected)
            self.assertEqual(str(mb.ConfigError(text)), expected)

    def test_all_names_are_there(self) -> None:
        for name in mb.__all__:
            self.assertTrue(hasattr(mb, name), name)
        self.assertRegex(mb.__version__, r"^\d+\.\d+\.\d+$")
        self.assertEqual(set(dir(mb)), {*mb.__all__, "ChunkDataLoader", "lightning", "scatter", "torch"})
        with self.assertRaises(AttributeError):
            mb.nothing  # type: ignore[attr-defined]
        code = "import sys\nsys.modules['torch'] = None\nfrom megabatch import *\nprint(graph.__name__)"
        self.assertEqual(self.python(code).strip(), "megabatch.graph")
