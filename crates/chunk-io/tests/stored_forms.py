"""The other side of tests/stored_forms.rs: windows files in every form in which HDF5 stores a dataset.

    stored_forms.py FOLDER     NAME.h5 and, beside each, what h5py reads in it as NAME.f32: features by name, then targets

What a dataset's name ends in, behind the last dash, is who must read it: `position`, `chunk` or `library`.
"""

import sys
from pathlib import Path

import h5py
import numpy as np

FILTERS = {
    "plain": {},
    "gzip": {"compression": "gzip", "compression_opts": 4},
    "shufflegzip": {"compression": "gzip", "shuffle": True},
    "lzf": {"compression": "lzf"},
    "shufflelzf": {"compression": "lzf", "shuffle": True},
    "fletcher": {"fletcher32": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
}
RNG = np.random.default_rng(5)


def values(shape, dtype="<f4"):
    """Numbers with the awkward ones among them, wherever they fit."""
    kind = np.dtype(dtype).newbyteorder("=")
    data = RNG.normal(size=shape).round(2).astype(kind)
    info = np.finfo(kind)
    odd = [0.0, -0.0, np.inf, -np.inf, np.nan, info.max, info.min, info.tiny, info.smallest_subnormal, 1 / 3]
    odd += [65504.0, 6e-8, 1e-3, -2049.0]
    with np.errstate(over="ignore"):
        count = min(len(odd), data.size)
        data.reshape(-1)[:count] = np.array(odd[:count]).astype(kind)
    return data.astype(dtype)


class Windows:
    """A windows file that is being filled."""

    def __init__(self, folder, name, **options):
        self.folder, self.name = folder, name
        self.file = h5py.File(folder / f"{name}.h5", "w", **options)

    def __enter__(self):
        return self

    def add(self, name, data, read_by, **options):
        return self.file.create_dataset(f"features/{name}-{read_by}", data=data, **options)

    def __exit__(self, *_):
        samples = next(iter(self.file["features"].values())).shape[0] if "features" in self.file else 7
        if "targets" not in self.file:
            self.file["targets"] = values((samples, 2))
        self.file.close()
        with h5py.File(self.folder / f"{self.name}.h5") as file, open(self.folder / f"{self.name}.f32", "wb") as out:
            features = file["features"]
            features = [features] if isinstance(features, h5py.Dataset) else [features[n] for n in sorted(features)]
            with np.errstate(over="ignore"):
                for dataset in [*features, file["targets"]]:
                    out.write(dataset[...].astype("<f4").tobytes())


def matrix(folder):
    layouts = {"rows": (3, 4, 3), "split": (2, 3, 2), "auto": True}
    for order in "<>":
        for width in (2, 4, 8):
            dtype = f"{order}f{width}"
            data = values((7, 4, 3), dtype)
            with Windows(folder, f"matrix-{'little' if order == '<' else 'big'}-f{width}") as windows:
                windows.add("contiguous", data, "position")
                for layout, chunks in layouts.items():
                    for filters, options in FILTERS.items():
                        whole = layout != "split" and filters == "plain"
                        windows.add(f"{layout}-{filters}", data, "position" if whole else "chunk", chunks=chunks, **options)
                windows.file["targets"] = values((7, 2), dtype)


def shapes(folder):
    for shape in [(1, 4, 3), (7, 1, 3), (7, 4, 1), (1, 1, 1), (33, 9, 5), (130, 40, 30)]:
        n, t, f = shape
        data = values(shape)
        with Windows(folder, f"shape-{n}-{t}-{f}") as windows:
            windows.add("contiguous", data, "position")
            rows, split = (min(n, 4), t, f), (min(n, 4), (t + 1) // 2, (f + 1) // 2)
            windows.add("rows", data, "position", chunks=rows)
            windows.add("gzip", data, "chunk", chunks=rows, compression="gzip", shuffle=True)
            windows.add("lzf", data, "chunk", chunks=split, compression="lzf", shuffle=True)
            windows.add("steps", data, "chunk", chunks=(min(n, 4), (t + 1) // 2, f), compression="gzip")
            windows.add("columns", data, "chunk", chunks=(min(n, 4), t, (f + 1) // 2), fletcher32=True)
            windows.add("auto", data, "chunk", chunks=True, compression="gzip")
            windows.file.create_dataset("targets", data=values((n, 3, 1)), chunks=(min(n, 4), 2, 1), compression="lzf")


def library(folder):
    data = RNG.normal(size=(7, 4, 3)).astype("f4")
    with Windows(folder, "library") as windows:
        windows.add("scaleoffset", data, "library", chunks=(2, 4, 3), scaleoffset=3)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        low_level(windows, "compact-library", data, plist)
        windows.add("external", data, "library", external=[(str(folder / "external.raw"), 5, data.nbytes)])
        sources = h5py.VirtualLayout(shape=(7, 4, 3), dtype="f4")
        for k in range(7):
            with h5py.File(folder / f"virtual-{k}.source", "w") as file:
                file["x"] = data[k]
            sources[k] = h5py.VirtualSource(folder / f"virtual-{k}.source", "x", shape=(4, 3))
        windows.file.create_virtual_dataset("features/virtual-library", sources)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((2, 4, 3))
        # A filter that is not registered, with a name; nothing went through it, because nothing was ever written.
        plist.set_filter(h5py.h5z.FILTER_NBIT, 0, ())
        low_level(windows, "nbit-library", data, plist)
        bfloat = h5py.h5t.IEEE_F32LE.copy()
        bfloat.set_fields(15, 7, 8, 0, 7)
        bfloat.set_size(2)
        bfloat.set_ebias(127)
        space = h5py.h5s.create_simple((7, 4, 3))
        made = h5py.h5d.create(windows.file["features"].id, b"bfloat-library", bfloat, space)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(data), h5py.h5t.NATIVE_FLOAT)
        windows.file["targets"] = np.arange(-7, 7, dtype=">i2").reshape(7, 2)


def low_level(windows, name, data, plist):
    features = windows.file.require_group("features").id
    made = h5py.h5d.create(features, name.encode(), h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(data.shape), plist)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(data))


def links(folder):
    data = values((7, 4, 3))
    with h5py.File(folder / "linked.source", "w", userblock_size=512) as file:
        file["x"] = data
        file.create_dataset("y", data=data, chunks=(2, 4, 3), compression="gzip")
    with Windows(folder, "links") as windows:
        windows.file["elsewhere"] = data
        group = windows.file.create_group("features")
        group["soft-position"] = h5py.SoftLink("/elsewhere")
        group["hard-position"] = windows.file["elsewhere"]
        group["external-position"] = h5py.ExternalLink("linked.source", "/x")
        group["external-chunk"] = h5py.ExternalLink("linked.source", "/y")


def fills(folder):
    for userblock in (0, 1024):
        with Windows(folder, f"fill-{userblock}", userblock_size=userblock) as windows:
            for dtype in ("<f2", ">f4", ">f8"):
                fill = np.array(-1 / 3).astype(dtype)
                make = lambda name, read_by, **options: windows.file.create_dataset(
                    f"features/{dtype[1:]}{'big' if dtype[0] == '>' else ''}-{name}-{read_by}", (7, 4, 3), dtype, **options)
                make("never", "position", fillvalue=fill)
                make("zero", "position")
                make("chunks-never", "chunk", fillvalue=fill, chunks=(2, 3, 2), compression="gzip")
                make("rows-some", "position", fillvalue=fill, chunks=(2, 4, 3))[2:5] = values((3, 4, 3), dtype)
                some = make("chunks-some", "chunk", fillvalue=fill, chunks=(2, 3, 2), compression="lzf")
                some[1:3, 2:, 1:] = values((2, 2, 2), dtype)
                unset = make("unset", "chunk", chunks=(2, 4, 3), compression="gzip", fill_time="never", fillvalue=fill)
                unset[2:4] = values((2, 4, 3), dtype)
            windows.add("contiguous", values((7, 4, 3)), "position")
            windows.add("gzip", values((7, 4, 3)), "chunk", chunks=(2, 4, 3), compression="gzip")


def indices(folder):
    """Every kind of chunk index; the first file has B-trees of version 1."""
    data = values((7, 4, 3))
    for libver in ("earliest", "latest"):
        with Windows(folder, f"index-{libver}", libver=libver) as windows:
            for filters, read_by in (("plain", "position"), ("gzip", "chunk")):
                options = FILTERS[filters]
                windows.add(f"{filters}-single", data, read_by, chunks=(7, 4, 3), **options)
                windows.add(f"{filters}-fixed", data, read_by, chunks=(2, 4, 3), **options)
                windows.add(f"{filters}-extensible", data, read_by, chunks=(2, 4, 3), maxshape=(None, 4, 3), **options)
                windows.add(f"{filters}-btree", data, read_by, chunks=(2, 4, 3), maxshape=(None, None, 3), **options)
                middle = "chunk" if libver == "earliest" else "library"
                windows.add(f"{filters}-middle", data, middle, chunks=(2, 3, 2), maxshape=(7, None, 3), **options)
                grown = windows.file.create_dataset(f"features/{filters}-wide-chunk", (9, 4, 3), "f4", chunks=(16, 8, 4),
                                                    maxshape=(None, None, None), **options)
                grown[...] = values((9, 4, 3))
                grown.resize(7, axis=0)
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((2, 4, 3))
            plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            low_level(windows, "implicit-position", data, plist)
            many = windows.file.create_dataset("features/many-chunk", (7, 40, 30), "f4", chunks=(1, 1, 1), compression="lzf")
            many[...] = values((7, 40, 30))
            windows.file["features/many-chunk"].attrs["note"] = "x" * (60_000 if libver == "earliest" else 1_000_000)


def many(folder):
    with Windows(folder, "many", libver="latest") as windows:
        data = RNG.normal(size=(250_000, 1, 1)).astype("f2")
        windows.add("tiny", data, "chunk", chunks=(1, 1, 1), fletcher32=True)
        windows.file.create_dataset("targets", data=data[:, :, 0], chunks=(1000, 1))


if __name__ == "__main__":
    for write in (matrix, shapes, library, links, fills, indices, many):
        write(Path(sys.argv[1]))
