# Tells what this Python has, one line a fact and each line at once, so that a crash or a hang leaves what was found before it.
import json
import platform
import sys

# The folder in which this is run is no part of the environment.
sys.path[:] = [path for path in sys.path if path]


def tell(key, value):
    sys.stdout.write("megabatch-doctor " + json.dumps([key, value]) + "\n")
    sys.stdout.flush()


def attempt(action):
    """The error of `action`; nothing where it succeeds."""
    try:
        action()
    except BaseException as error:
        return "%s: %s" % (type(error).__name__, error)
    return None


def load(module):
    __import__(module)


def tell_torch():
    import torch

    cuda = torch.cuda
    devices = range(cuda.device_count()) if cuda.is_available() else []
    tell("torch", {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "compiled_for": cuda.get_arch_list() if torch.version.cuda else [],
        "is_available": cuda.is_available(),
        "gpus": [{"name": cuda.get_device_name(k), "capability": list(cuda.get_device_capability(k))} for k in devices],
        "cudnn": torch.backends.cudnn.version() if torch.version.cuda else None,
    })
    return ["cuda:%d" % k for k in devices] or ["cpu"]


def tell_extension(module):
    import importlib.util

    if importlib.util.find_spec(module) is None:
        return
    tell("step", "import " + module)
    error = attempt(lambda: load(module))
    cuda = None
    if error is None:
        import torch

        versions = []
        attempt(lambda: versions.append(getattr(torch.ops, module).cuda_version()))
        cuda = versions[0] if versions else None
    tell("extension", {"module": module, "cuda": cuda, "error": error})


def run_torch(device):
    import torch

    values = torch.tensor([1.0, 5.0, 2.0, 4.0], device=device)
    groups = torch.tensor([0, 0, 1, 1], device=device)
    largest = torch.zeros(2, device=device).scatter_reduce(0, groups, values, "amax")
    if largest.tolist() != [5.0, 4.0]:
        raise RuntimeError("scatter_reduce gave %s instead of [5.0, 4.0]" % largest.tolist())


def run_scatter_max(device):
    import torch
    from torch_scatter import scatter_max

    values = torch.tensor([1.0, 5.0, 2.0, 4.0], device=device)
    largest, _ = scatter_max(values, torch.tensor([0, 0, 1, 1], device=device))
    if largest.tolist() != [5.0, 4.0]:
        raise RuntimeError("scatter_max gave %s instead of [5.0, 4.0]" % largest.tolist())


def main():
    tell("python", platform.python_version())
    tell("machine", platform.machine())
    tell("sites", [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))])
    tell("step", "import torch")
    error = attempt(lambda: load("torch"))
    if error is not None:
        missing = error.startswith("ModuleNotFoundError") and "'torch'" in error
        tell("no_torch", None if missing else error)
        return
    tell("step", "look at the GPUs")
    devices = tell_torch()
    for module in ["torch_scatter", "torch_sparse", "torch_cluster", "pyg_lib"]:
        tell_extension(module)
    for device in devices:
        tell("step", "run torch.scatter_reduce on " + device)
        tell("run", {"operation": "torch.scatter_reduce", "device": device, "error": attempt(lambda: run_torch(device))})
        if "torch_scatter" in sys.modules:
            tell("step", "run torch_scatter.scatter_max on " + device)
            error = attempt(lambda: run_scatter_max(device))
            tell("run", {"operation": "torch_scatter.scatter_max", "device": device, "error": error})


main()
tell("step", None)
