"""The other side of tests/h5py.rs: files written and read by h5py.

    h5py_files.py write FOLDER         windows files NAME.h5 and, beside each, what h5py reads in them as NAME.f32
    h5py_files.py dump FILE FOLDER     every dataset and attribute of FILE as h5py reads it: raw little-endian values,
                                       strings and shapes in FOLDER/index.json
"""

import json
import sys
from pathlib import Path

import h5py
import numpy as np

LAYOUTS = {
    "contiguous": {},
    "chunked": {"chunks": True},
    "gzip": {"chunks": (2, 3, 2), "compression": "gzip"},
    "gzip-shuffle": {"chunks": (3, 4, 3), "compression": "gzip", "shuffle": True},
    "lzf-fletcher": {"chunks": (1, 4, 3), "compression": "lzf", "fletcher32": True},
}


def values(dtype):
    """[7, 4, 3] numbers with the awkward ones among them."""
    shape = (7, 4, 3)
    data = np.random.default_rng(5).normal(size=shape).astype(dtype)
    info = np.finfo(dtype)
    odd = [0.0, -0.0, np.inf, -np.inf, np.nan, info.max, info.min, info.tiny, info.smallest_subnormal, 1 / 3]
    odd += [65504.0, 6e-8, 1e-3, -2049.0]
    with np.errstate(over="ignore"):
        data.reshape(-1)[: len(odd)] = np.array(odd).astype(dtype)
    return data


def save(folder, name, features, targets, timestamps=None, **options):
    with h5py.File(folder / f"{name}.h5", "w") as file:
        for path, data in features.items():
            file.create_dataset(path, data=data, **options)
        file.create_dataset("targets", data=targets)
        if timestamps is not None:
            file.create_dataset("timestamps", data=timestamps)
    with h5py.File(folder / f"{name}.h5") as file, open(folder / f"{name}.f32", "wb") as out:
        with np.errstate(over="ignore"):
            for path in [*features, "targets"]:
                out.write(file[path][...].astype("<f4").tobytes())


def write(folder):
    for order in "<>":
        for width in (2, 4, 8):
            data = values(f"f{width}").astype(f"{order}f{width}")
            for layout, options in LAYOUTS.items():
                name = f"{'little' if order == '<' else 'big'}-f{width}-{layout}"
                save(folder, name, {"features": data}, np.arange(14, dtype=f"{order}f{width}").reshape(7, 2), **options)
    f4 = values("f4")
    finite = np.random.default_rng(6).normal(size=(7, 4, 3)).astype("f4")
    save(folder, "scale-offset", {"features": finite}, f4[:, 0, :2], chunks=(2, 4, 3), scaleoffset=3)
    save(folder, "int-targets", {"features": f4}, np.arange(-7, 7, dtype=">i2").reshape(7, 2))
    save(folder, "trailing-axis", {"features": f4}, f4[:, 0, :2, None], np.arange(7, dtype=">i8"))
    # Shortest first, whatever the order of creation or of the alphabet.
    several = {"sequences/M1": f4, "sequences/H1": f4[:, :2], "sequences/D1": f4[:, :1, :2]}
    save(folder, "sequences", several, f4[:, 0, :2], np.arange(7, dtype="<i8"))
    grouped = {"features/M5": f4.astype("f8"), "features/M30": f4[:, :3].astype("f2")}
    save(folder, "grouped", grouped, f4[:, 0, :2])
    with h5py.File(folder / "resized.h5", "w", libver="latest") as file:
        grown = file.create_dataset("features", (1, 4, 3), "f4", maxshape=(None, 4, 3), chunks=(2, 4, 3))
        grown.resize(7, axis=0)
        grown[...] = f4
        file["targets"] = f4[:, 0, :2]
    (folder / "resized.f32").write_bytes(f4.astype("<f4").tobytes() + f4[:, 0, :2].astype("<f4").tobytes())


def dump(path, folder):
    index = {"attributes": {}, "datasets": {}}

    def visit(name, node):
        for key, value in node.attrs.items():
            index["attributes"][f"/{name}@{key}".replace("//", "/")] = value if isinstance(value, str) else value.item()
        if not isinstance(node, h5py.Dataset):
            return
        entry = index["datasets"]["/" + name] = {"shape": node.shape, "dtype": node.dtype.str, "chunks": node.chunks}
        if h5py.check_string_dtype(node.dtype):
            entry["texts"] = list(node.asstr()[...])
        else:
            entry["file"] = name.replace("/", "-")
            (folder / entry["file"]).write_bytes(node[...].astype(node.dtype.newbyteorder("<")).tobytes())

    with h5py.File(path) as file:
        visit("", file)
        file.visititems(visit)
    (folder / "index.json").write_text(json.dumps(index))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]))
    else:
        dump(sys.argv[2], Path(sys.argv[3]))
