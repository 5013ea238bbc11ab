"""`megabatch.scatter` on a GPU, with a fake driver that runs the kernels on the CPU; needs PyTorch and cargo: cargo xtask
python test --torch. What a GPU shows is in benches/peers/gpu_scatter.py."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from fake_torch import IS_REAL as HAS_TORCH
from test_scatter_callers import needs_checkout, run_torch_scatters_tests

TESTS = pathlib.Path(__file__).parent
ROOT = TESTS.parents[2]


@unittest.skipUnless(HAS_TORCH and sys.platform == "linux" and shutil.which("cargo"), "needs PyTorch, Linux and cargo")
class OnGpu(unittest.TestCase):
    environment: dict[str, str]

    @classmethod
    def setUpClass(cls) -> None:
        command = ["cargo", "run", "--quiet", "--package", "megabatch-simt", "--example", "fake_machine"]
        told = subprocess.run(
            [*command, "--", "crates/segment/src/cuda"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        machine = dict(pair.split("=", 1) for pair in told.stdout.split())
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(TESTS), str(TESTS / "fakes")])
        cls.environment = {**os.environ, **machine, "PYTHONPATH": path}

    def run_python(self, *words: str, **environment: str) -> None:
        environment = {**self.environment, **environment}
        subprocess.run([sys.executable, "-W", "ignore", *words], env=environment, check=True, timeout=1200)

    def run_code(self, code: str, **environment: str) -> None:
        start = "import megabatch as mb, scatter_on_gpu, torch\nfrom megabatch import scatter as ms\n"
        self.run_python("-c", f"{start}{code}", **environment)

    def test_functions_types_and_gradients(self) -> None:
        self.run_python(str(TESTS / "fakes" / "scatter_on_gpu.py"), "test_scatter", "test_scatter_callers.Plans")

    @needs_checkout
    def test_the_tests_of_torch_scatter_pass(self) -> None:
        run_torch_scatters_tests("import scatter_on_gpu; scatter_on_gpu.install()", self.environment)

    def test_results_have_the_bits_of_the_cpu(self) -> None:
        self.run_code(
            """
torch.manual_seed(3)
src, index, grad = torch.randn(5000, 7), torch.randint(0, 40, (5000,)), torch.randn(40, 7)
index[:2000] = 3
def results():
    found = []
    for name in ("sum", "mean", "mul", "max", "min"):
        x = src.clone().requires_grad_()
        result = getattr(ms, f"scatter_{name}")(x, index, 0, None, 40)
        values = result[0] if isinstance(result, tuple) else result
        values.backward(grad)
        found += [values.detach(), x.grad]
    x = src.clone().requires_grad_()
    y = ms.scatter_softmax(x, index, 0, 40)
    y.backward(src)
    return found + [y.detach(), x.grad]
expected = results()
scatter_on_gpu.install()
for one, other in zip(results(), expected):
    assert torch.equal(one, other)
"""
        )

    def test_faults_are_told(self) -> None:
        self.run_code(
            """
scatter_on_gpu.install()
def told(call, text):
    try:
        call()
        ms.scatter_sum(torch.ones(2), torch.tensor([0, 1]), 0, None, 2)
    except mb.DataError as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"{text} was not told")
    assert ms.scatter_sum(torch.ones(2), torch.tensor([0, 1]), 0, None, 2).tolist() == [1, 1]
for wrong, shown in ((2, 2), (-1, -1), (1 << 40, 0)):
    index = torch.tensor([0, wrong, 1, 1])
    told(lambda: ms.scatter_sum(torch.ones(4), index, 0, None, 2), f"index[1] is {shown}, which is none")
told(lambda: ms.segment_sum_coo(torch.ones(3), torch.tensor([0, 2, 1]), None, 3), "index[2] is 1, less than the one before")
told(lambda: ms.segment_sum_csr(torch.ones(3), torch.tensor([0, 2, 1])), "indptr[2] is 1: offsets begin at 0")
told(lambda: ms.segment_sum_csr(torch.ones(3), torch.tensor([0, 2, 9])), "indptr[2] is 9")
told(lambda: ms.scatter_sum(torch.ones(2, 2), torch.tensor([[0, 5], [1, 1]]), 1, None, 3), "index[1] is -1")
"""
        )

    def test_faults_are_told_at_once_where_programs_are_run_so(self) -> None:
        self.run_code(
            """
scatter_on_gpu.install()
try:
    ms.scatter_sum(torch.ones(2), torch.tensor([0, 2]), 0, None, 2)
except mb.DataError as error:
    assert "index[1] is 2" in str(error), error
else:
    raise AssertionError("the fault was not told")
""",
            CUDA_LAUNCH_BLOCKING="1",
        )
