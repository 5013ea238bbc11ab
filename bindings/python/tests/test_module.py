"""The module itself: its import, its names."""

from __future__ import annotations

import megabatch as mb
from shared import InFolder


class Module(InFolder):
    def test_an_import_is_quick_and_brings_numpy_alone(self) -> None:
        code = (
            "import numpy, sys, time\n"
            # Its bytecode is kept, as an installation does; the first of the children writes it.
            "sys.dont_write_bytecode, sys.pycache_prefix = False, sys.argv[1]\n"
            "start = time.process_time()\n"
            "import megabatch\n"
            "seconds = time.process_time() - start\n"
            "others = {'torch', 'pandas', 'polars', 'pyarrow', 'lightning', 'IPython'} & set(sys.modules)\n"
            "print(seconds, sorted(others))\n"
        )
        answers = [self.python(code, self.folder).split(maxsplit=1) for _ in range(5)]
        self.assertEqual({others.strip() for _, others in answers}, {"[]"})
        self.assertLess(min(float(seconds) for seconds, _ in answers), 0.1)

    def test_all_names_are_there(self) -> None:
        for name in mb.__all__:
            self.assertTrue(hasattr(mb, name), name)
        self.assertRegex(mb.__version__, r"^\d+\.\d+\.\d+$")
        self.assertEqual(set(dir(mb)), {*mb.__all__, "ChunkDataLoader", "lightning", "scatter", "torch"})
        with self.assertRaises(AttributeError):
            mb.nothing  # type: ignore[attr-defined]
        code = "import sys\nsys.modules['torch'] = None\nfrom megabatch import *\nprint(graph.__name__)"
        self.assertEqual(self.python(code).strip(), "megabatch.graph")
