"""Graphs of a file as arrays and as batches."""

from __future__ import annotations

import importlib.util
import multiprocessing
import pickle
import shutil
import types
import unittest
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_torch
import h5py
import megabatch as mb
import numpy as np
from shared import InFolder, resident_bytes

HAS_PYG = fake_torch.IS_REAL and importlib.util.find_spec("torch_geometric") is not None


def sums_of(path: Path, results: Any) -> None:
    """In another process: the sum of all features, by two loops over a file that was opened there and here."""
    results.put([sum(float(batch["x"].sum()) for batch in graphs.loader(3)) for graphs in (OPENED[0], mb.graph.open(path))])


OPENED: list[Any] = []


class Items:
    """Graphs as a dataset whose items are `Data` objects."""

    def __init__(self, graphs: Any) -> None:
        self.graphs = graphs

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, number: int) -> Any:
        return self.graphs.pyg(number)


class HeteroData:
    """A graph of several types, as PyTorch Geometric has it."""


class Unknown:
    """A class that a file of `torch.save` may have objects of."""


class Graphs(InFolder):
    def setUp(self) -> None:
        super().setUp()
        # Paths of 2 to 9 nodes, both ways, with an attribute of edges and two features of nodes; 40 of them.
        rng = np.random.default_rng(0)
        self.plain: list[dict[str, Any]] = []
        folder = self.folder / "paths"
        folder.mkdir()
        edges, indicator, attributes, lengths, labels, first = [], [], [], [], [], 1
        for number in range(40):
            nodes = 2 + number % 8
            x = rng.integers(-9, 9, (nodes, 2))
            self.plain.append({"nodes": nodes, "x": x, "label": number % 3})
            for node in range(nodes - 1):
                edges += [(first + node, first + node + 1), (first + node + 1, first + node)]
                lengths += [number + node, number + node]
            indicator += [number + 1] * nodes
            attributes += [", ".join(map(str, row)) for row in x]
            labels.append(number % 3)
            first += nodes
        for name, lines in (
            ("A", [f"{a}, {b}" for a, b in edges]),
            ("graph_indicator", indicator),
            ("graph_labels", labels),
            ("node_attributes", attributes),
            ("edge_attributes", lengths),
        ):
            (folder / f"paths_{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        self.path = self.folder / "paths.mbg"
        mb.graph.build(folder, self.path, kind="tu")
        self.graphs = mb.graph.open(self.path)

    def test_a_graph_is_what_the_files_say(self) -> None:
        self.assertEqual(len(self.graphs), 40)
        for number, plain in enumerate(self.plain):
            graph = self.graphs[number]
            self.assertEqual((graph.num_nodes, graph.edge_index.shape), (plain["nodes"], (2, 2 * plain["nodes"] - 2)))
            assert graph.x is not None and graph.y is not None and graph.edge_attr is not None
            np.testing.assert_array_equal(graph.x, plain["x"])
            self.assertEqual(graph.y.shape[0], 1)
            self.assertEqual(graph.edge_attr.shape, (graph.edge_index.shape[1], 1))
            # Edges lie by the node that they go to; their attribute is that of the lower node.
            lower = graph.edge_index.min(axis=0)
            np.testing.assert_array_equal(graph.edge_attr[:, 0], number + lower)
            self.assertTrue(np.all(np.diff(graph.edge_index[1]) >= 0))
        key = self.graphs.keys[7]
        np.testing.assert_array_equal(self.graphs[key].edge_index, self.graphs[7].edge_index)
        self.assertIn(key, self.graphs)
        self.assertEqual(len(list(self.graphs)), 40)

    def test_floats_lie_in_the_memory_of_the_file(self) -> None:
        first, again = self.graphs[3], mb.graph.open(self.path)[3]
        assert first.x is not None and first.edge_attr is not None and first.y is not None and again.x is not None
        for array in (first.x, first.edge_attr, first.y):
            with self.assertRaises(ValueError):
                array[:] = 1000
            with self.assertRaises(ValueError):
                array.flags.writeable = True
        own = self.graphs[3].x
        assert own is not None
        self.assertEqual(own.ctypes.data, first.x.ctypes.data)
        self.assertNotEqual(again.x.ctypes.data, first.x.ctypes.data)
        # The others are made anew.
        first.edge_index[:] = 0
        self.assertTrue(np.any(self.graphs[3].edge_index))
        # They outlive the file.
        del self.graphs
        self.path.unlink()
        np.testing.assert_array_equal(first.x, self.plain[3]["x"])

    def test_half_precision_is_widened(self) -> None:
        half = self.folder / "half.mbg"
        self.program("graph", "build", self.folder / "paths", "--kind", "tu", "--out", half, "--feature-width", "f16", "--edge-width", "f16")
        graph = mb.graph.open(half)[3]
        np.testing.assert_array_equal(graph.x, self.plain[3]["x"])
        np.testing.assert_array_equal(graph.edge_attr, self.graphs[3].edge_attr)

    def test_graphs_go_to_new_processes(self) -> None:
        some = self.graphs[[4, 9, 2]]
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            again: Any = pool.apply(pickle.loads, (pickle.dumps(some),))
        self.assertEqual(again.keys, some.keys)
        np.testing.assert_array_equal(again[1].x, some[1].x)
        held = pickle.dumps(some)
        mb.graph.save([{"edge_index": np.array([[0], [1]]), "x": np.ones((2, 1), np.float32)}], self.path)
        with self.assertRaisesRegex(mb.DataError, "other graphs than when it was opened before"):
            pickle.loads(held)

    def test_a_batch_is_its_graphs_one_after_the_other(self) -> None:
        batch = self.graphs.arrays([5, 0, 5])
        first = 0
        for place, number in enumerate([5, 0, 5]):
            graph, here = self.graphs[number], batch["batch"] == place
            np.testing.assert_array_equal(batch["x"][here], graph.x)
            edges = here[batch["edge_index"][0]]
            np.testing.assert_array_equal(batch["edge_index"][:, edges] - first, graph.edge_index)
            np.testing.assert_array_equal(batch["edge_attr"][edges], graph.edge_attr)
            self.assertEqual(batch["ptr"][place], first)
            first += graph.num_nodes
        self.assertEqual((batch["ptr"][-1], batch["y"].shape), (first, (3, len(self.graphs.targets))))
        np.testing.assert_array_equal(batch["graph"], [5, 0, 5])
        mask = np.isin(np.arange(len(self.graphs)), [0, 5])
        np.testing.assert_array_equal(self.graphs.arrays(mask)["graph"], [0, 5])
        with self.assertRaisesRegex(mb.ConfigError, f"a value for each of the {len(self.graphs)} graphs, found .* shape 2$"):
            self.graphs.arrays(mask[:2])
        # Keys are no places, as in graphs[which]: "2" is graph 1.
        key = self.graphs.keys[1]
        for which, numbers in (([key, self.graphs.keys[4]], [1, 4]), (key, [1]), (slice(0, 3), [0, 1, 2]), (-1, [39]), ([], [])):
            some: Any = which
            self.assertEqual(self.graphs.arrays(some)["graph"].tolist(), numbers)
            if not isinstance(which, (int, str)):
                self.assertEqual(self.graphs[some].keys, [self.graphs.keys[number] for number in numbers])
        for which in ([1.5], 1.5, [[1, 2]], [[0, 1], [2]], [None], np.array([1.0]), True, np.array([True, False], object)):
            wrong: Any = which
            for call in (self.graphs.arrays, self.graphs.__getitem__):
                with self.assertRaisesRegex(mb.ConfigError, "^which=.*: expected places of graphs, keys, a slice or a mask$"):
                    call(wrong)

    def test_an_epoch_has_every_graph_once_in_an_order_of_its_own(self) -> None:
        loader = self.graphs.loader(batch_size=7, shuffle=True, seed=3)
        epochs = [np.concatenate([batch["graph"] for batch in loader]) for _ in range(2)]
        for epoch in epochs:
            np.testing.assert_array_equal(np.sort(epoch), np.arange(40))
        self.assertFalse(np.array_equal(*epochs))
        other = self.graphs.loader(batch_size=7, shuffle=True, seed=3)
        other.set_epoch(1)
        np.testing.assert_array_equal(np.concatenate([batch["graph"] for batch in other]), epochs[1])
        self.assertEqual([len(batch["graph"]) for batch in self.graphs.loader(16)], [16, 16, 8])
        self.assertEqual([len(batch["graph"]) for batch in self.graphs.loader(16, drop_last=True)], [16, 16])

    def test_batches_are_bounded_by_nodes_and_edges(self) -> None:
        for bounds in ({"nodes": 20}, {"edges": 30}, {"nodes": 25, "edges": 33, "batch_size": 4}):
            loader = self.graphs.loader(shuffle=True, **bounds)
            batches = list(loader)
            for batch in batches:
                sizes = {"nodes": len(batch["batch"]), "edges": batch["edge_index"].shape[1], "batch_size": len(batch["graph"])}
                self.assertTrue(all(sizes[name] <= bound for name, bound in bounds.items()), (bounds, sizes))
            np.testing.assert_array_equal(np.sort(np.concatenate([batch["graph"] for batch in batches])), np.arange(40))
            # The first graph of a batch did not fit into the one before.
            for batch, after in zip(batches, batches[1:]):
                together = {
                    "nodes": len(batch["batch"]) + after["ptr"][1],
                    "edges": batch["edge_index"].shape[1] + (after["edge_index"][1] < after["ptr"][1]).sum(),
                    "batch_size": len(batch["graph"]) + 1,
                }
                self.assertTrue(any(together[name] > bound for name, bound in bounds.items()))

    def test_a_loader_goes_on_where_another_stood(self) -> None:
        whole = [batch["graph"] for batch in self.graphs.loader(7, shuffle=True)]
        half = self.graphs.loader(7, shuffle=True)
        batches = iter(half)
        next(batches), next(batches)
        other = self.graphs.loader(7, shuffle=True)
        other.load_state_dict(half.state_dict())
        rest = [batch["graph"] for batch in other]
        self.assertEqual([list(batch) for batch in rest], [list(batch) for batch in whole[2:]])
        self.assertEqual(other.epoch, 1)
        with self.assertRaisesRegex(mb.ConfigError, "seed=0, and this one has 4"):
            self.graphs.loader(7, shuffle=True, seed=4).load_state_dict(half.state_dict())
        for key, value in (("epoch", -1), ("batch", 99)):
            with self.assertRaisesRegex(mb.ConfigError, f"^{key}={value}: expected"):
                self.graphs.loader(7, shuffle=True).load_state_dict({**half.state_dict(), key: value})
        with self.assertRaisesRegex(mb.ConfigError, "other graphs"):
            self.graphs[:39].loader(7, shuffle=True).load_state_dict(half.state_dict())
        # Another file with as many graphs of these sizes.
        edges = [np.array([[0], [1]])] * 40
        saved = [
            mb.graph.save([{"edge_index": one, "x": np.full((2, 1), x, np.float32)} for one in edges], self.folder / f"{x}.mbg")
            for x in (1, 2)
        ]
        own = saved[0].loader(7, shuffle=True).state_dict()
        mb.graph.open(saved[0].path).loader(7, shuffle=True).load_state_dict(own)
        with self.assertRaisesRegex(mb.ConfigError, "the state is of a loader with other data"):
            saved[1].loader(7, shuffle=True).load_state_dict(own)

    def test_ranks_share_an_epoch(self) -> None:
        parts = [[batch["graph"] for batch in self.graphs.loader(10, shuffle=True, rank=rank, world_size=3)] for rank in range(3)]
        whole = [batch["graph"] for batch in self.graphs.loader(10, shuffle=True)]
        for batch, part in zip(whole, zip(*parts)):
            np.testing.assert_array_equal(np.concatenate(part), batch)
        by_nodes = [list(self.graphs.loader(nodes=20, rank=rank, world_size=3)) for rank in range(3)]
        self.assertEqual(len({len(own) for own in by_nodes}), 1)
        seen = np.concatenate([batch["graph"] for own in by_nodes for batch in own])
        self.assertEqual(len(set(seen)), len(seen))

    def test_another_number_of_ranks_goes_on_with_whole_batches(self) -> None:
        def loader(rank: int = 0, ranks: int = 1) -> mb.graph.GraphLoader:
            return self.graphs[2:].loader(nodes=20, shuffle=True, seed=2, rank=rank, world_size=ranks)

        def standing(ranks: int, batches: int) -> dict[str, Any]:
            other = loader(0, ranks)
            for _ in zip(range(batches), other):
                pass
            return other.state_dict()

        def rest(state: dict[str, Any], rank: int = 0, ranks: int = 1) -> list[list[int]]:
            other = loader(rank, ranks)
            other.load_state_dict(state)
            return [batch["graph"].tolist() for batch in other]

        whole = [batch["graph"].tolist() for batch in loader()]
        # From one rank to two, and from two to one.
        for rank in range(2):
            end = len(whole) // 2 * 2
            self.assertEqual(rest(standing(1, 4), rank, 2), whole[4 + rank : end : 2])
        self.assertEqual(rest(standing(2, 2)), whole[4:])
        self.assertEqual(rest({**standing(1, 4), "batch": 0}, 1, 2), whole[1 : len(whole) // 2 * 2 : 2])
        with self.assertRaisesRegex(mb.ConfigError, "world_size=1, whose ranks have had 3 batches together, and 2 ranks cannot"):
            rest(standing(1, 3), 0, 2)

    def test_some_graphs_are_chosen(self) -> None:
        some = self.graphs[[4, 9, 2]]
        self.assertEqual(some.keys, [self.graphs.keys[number] for number in (4, 9, 2)])
        np.testing.assert_array_equal(some.arrays([1])["x"], self.graphs[9].x)
        self.assertEqual(len(self.graphs[10:20][::2]), 5)
        np.testing.assert_array_equal(some.sizes[:, 0], [self.plain[number]["nodes"] for number in (4, 9, 2)])
        keys = some.keys
        with self.assertRaisesRegex(KeyError, f"{self.graphs.keys[0]} is none of these 3 graphs of .*; they go from {keys[0]} to {keys[2]}"):
            some[self.graphs.keys[0]]
        # The keys of many graphs took a look through all graphs each.
        self.assertEqual(some[keys[::-1]].keys, keys[::-1])
        self.assertEqual((some.index(keys[1]), some.index(some[2])), (1, 2))
        with self.assertRaisesRegex(ValueError, f"^'{self.graphs.keys[0]}' is none of these 3 graphs of .*; they go from"):
            some.index(self.graphs.keys[0])

    def test_what_is_wrong_is_named(self) -> None:
        with self.assertRaisesRegex(mb.ConfigError, "^batch_size=0: expected a whole number from 1 on$"):
            self.graphs.loader(0)
        for name in ("shuffle", "drop_last", "pyg"):
            flag: dict[str, Any] = {name: "no"}
            with self.assertRaisesRegex(mb.ConfigError, f"^{name}='no': expected True or False$"):
                self.graphs.loader(4, **flag)
        with self.assertRaisesRegex(mb.ConfigError, "nodes is 5, and graph .* has 9: give 9 or more"):
            self.graphs.loader(nodes=5)
        with self.assertRaisesRegex(mb.ConfigError, "rank=2: expected 0 to 1"):
            self.graphs.loader(4, rank=2, world_size=2)
        with self.assertRaisesRegex(mb.ConfigError, "^rank=0.5: expected a whole number from 0 on$"):
            self.graphs.loader(4, rank=0.5)  # type: ignore[arg-type]
        with self.assertRaisesRegex(mb.ConfigError, "batch_size=2: expected 3 or more, one of the graphs for each of"):
            self.graphs.loader(2, world_size=3)
        with self.assertRaisesRegex(TypeError, "leave out num_workers, .*: all cores gather"):
            self.graphs.loader(4, **{"num_workers": 2})
        with self.assertRaises(IndexError):
            self.graphs[40]
        with self.assertRaisesRegex(mb.ConfigError, f'there is no graph "no such graph"; the last is "{self.graphs.keys[-1]}"$'):
            self.graphs["no such graph"]
        with self.assertRaises(mb.MegabatchError):
            mb.graph.open(self.folder / "missing.mbg")
        damaged = self.folder / "damaged.mbg"
        content = bytearray(self.path.read_bytes())
        content[len(content) // 2] ^= 1
        damaged.write_bytes(content)
        with self.assertRaises(mb.DataError):
            mb.graph.verify(damaged)

    @unittest.skipUnless(fake_torch.IS_REAL, "PyTorch: cargo xtask python test --torch")
    def test_a_device_is_refused_when_the_loader_is_made(self) -> None:
        import torch

        with self.assertRaisesRegex(mb.ConfigError, "device='gpu': expected cpu, or a GPU of NVIDIA: cuda"):
            self.graphs.loader(4, device="gpu")
        if not torch.cuda.is_available():
            with self.assertRaisesRegex(mb.DeviceError, "finds no GPU: give device='cpu'"):
                self.graphs.loader(4, device="cuda")

    @unittest.skipUnless(fake_torch.IS_REAL, "PyTorch: cargo xtask python test --torch")
    def test_processes_with_unequal_parts_of_a_batch_of_tensors_are_warned_of(self) -> None:
        with self.assertWarnsRegex(UserWarning, "batch_size=7 is no multiple of world_size=2"):
            self.graphs.loader(7, world_size=2, device="cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.graphs.loader(7, world_size=2)
            self.graphs.loader(8, world_size=2, device="cpu")
            # Ranks take whole batches in turn.
            self.graphs.loader(7, nodes=1000, world_size=2, device="cpu")

    def test_processes_read_the_same_file(self) -> None:
        expected = float(sum(plain["x"].sum() for plain in self.plain))
        OPENED[:] = [self.graphs]
        results: Any = multiprocessing.get_context("fork").Queue()
        process = multiprocessing.get_context("fork").Process(target=sums_of, args=(self.path, results))
        process.start()
        self.assertEqual(results.get(timeout=30), [expected, expected])
        process.join(30)

    def test_a_forked_process_does_not_verify(self) -> None:
        mb.graph.verify(self.path)
        answers: Any = multiprocessing.get_context("fork").Queue()

        def verify() -> None:
            try:
                answers.put(str(mb.graph.verify(self.path)))
            except mb.ForkError:
                answers.put("refused")

        process = multiprocessing.get_context("fork").Process(target=verify)
        process.start()
        self.assertEqual(answers.get(timeout=30), "refused")
        process.join(30)

    def test_a_thousand_epochs_take_no_more_memory(self) -> None:
        loader = self.graphs.loader(20, shuffle=True)
        for _ in range(100):
            for _ in loader:
                pass
        before = resident_bytes()
        for _ in range(1000):
            for _ in loader:
                pass
        self.assertLess(resident_bytes() - before, 2 << 20)

    def test_what_is_saved_comes_back(self) -> None:
        rng = np.random.default_rng(1)
        given: list[dict[str, Any]] = []
        for number in range(12):
            nodes = 1 + number
            # Some of all pairs, in any order.
            pairs = rng.permutation(nodes * nodes)[: 3 * number]
            edges = len(pairs)
            given.append(
                {
                    "edge_index": np.stack([pairs % nodes, pairs // nodes]),
                    "edge_weight": rng.random(edges, dtype=np.float32),
                    "edge_attr": rng.random((edges, 3), dtype=np.float32),
                    "x": rng.random((nodes, 4), dtype=np.float32),
                    "y": rng.random((1, 2), dtype=np.float32),
                    "num_nodes": nodes,
                }
            )
        path = self.folder / "saved.mbg"
        graphs = mb.graph.save(given, path, keys=[f"g{number}" for number in range(12)])
        for number, one in enumerate(given):
            found: Any = graphs[f"g{number}"]
            order = np.lexsort(one["edge_index"])
            ordered = {"edge_index": one["edge_index"][:, order], "x": one["x"], "y": one["y"]}
            ordered.update({name: one[name][order] for name in ("edge_weight", "edge_attr")})
            for name, array in ordered.items():
                np.testing.assert_array_equal(getattr(found, name), array, f"{number} {name}")
        self.assertEqual([child.name for child in self.folder.glob(".megabatch-*")], [])
        by_node = mb.graph.save([{**one, "y": one["x"][:, :1]} for one in given], path)
        np.testing.assert_array_equal(by_node[5].y, given[5]["x"][:, :1])
        # Parts are graphs, and what is predicted are nodes.
        model = {"encoder": "none", "readout": "node", "hidden": 4}
        run = mb.train(path, model=model, out=self.folder / "run", max_steps=1)
        _, _, test = mb.open(path).split()
        with self.assertRaisesRegex(mb.ConfigError, 'parts of whole graphs, .*part="test"'):
            run.predict(test)
        nodes = sum(len(by_node[graph].x) for graph in test.indices.tolist())
        self.assertEqual(len(run.predict(part="test")), nodes)
        # Graphs have no bars: none is the latest, and none follows.
        for call, message in (
            (lambda: run.predict(samples="latest"), r"graphs have no bars after their samples; .*`run\.predict\(data=\"FILE\"\)`"),
            (lambda: run.follow(), r"a model over graphs predicts whole graphs, .* cannot follow them; `run\.predict\("),
            (lambda: mb.leak(path), r"saved\.mbg: a file of graphs, which this command does not read; use `mb\.graph\.inspect\("),
            (lambda: mb.convert(path, self.folder / "out.h5"), r"saved\.mbg: a file of graphs, "),
        ):
            with self.assertRaisesRegex(mb.MegabatchError, message):
                call()
        classes = mb.graph.save(({**one, "y": np.array(k % 3)} for k, one in enumerate(given)), path)
        np.testing.assert_array_equal(classes.arrays(range(12))["y"], np.arange(12) % 3)

    def test_what_is_saved_comes_back_in_its_type_and_dimensions(self) -> None:
        path, edges = self.folder / "saved.mbg", np.array([[0, 1, 2], [1, 2, 0]])
        floats, numbers = np.ones((3, 2), np.float32), np.arange(6).reshape(3, 2)
        wanted = (
            ({"y": lambda k: k % 3}, "y", np.int64, (12,)),
            ({"y": lambda k: np.array([k - 1])}, "y", np.int64, (12,)),
            ({"y": lambda k: k / 10}, "y", np.float32, (12,)),
            ({"y": lambda k: np.array([[k / 2]])}, "y", np.float32, (12, 1)),
            ({"y": lambda k: np.array([[k, 1, 0]])}, "y", np.int64, (12, 3)),
            ({"y": lambda k: np.array([5000 + k])}, "y", np.int64, (12,)),
            ({"y": lambda k: np.array([k % 2 == 0])}, "y", np.bool_, (12,)),
            ({"y": lambda k: np.array([0, 1, k % 4])}, "y", np.int64, (36,)),
            ({"x": lambda _: numbers}, "x", np.int64, (36, 2)),
            ({"x": lambda k: np.full((3, 2), k / 10)}, "x", np.float32, (36, 2)),
            ({"x": lambda k: numbers if k else floats}, "x", np.float32, (36, 2)),
            ({"edge_attr": lambda k: np.arange(3) + k}, "edge_attr", np.int64, (36,)),
        )
        for made, name, kind, shape in wanted:
            given = [{"edge_index": edges, "x": floats, **{key: make(k) for key, make in made.items()}} for k in range(12)]
            graphs = mb.graph.save(given, path)
            found = graphs.arrays(range(12))[name]
            self.assertEqual((found.dtype, found.shape), (kind, shape), name)
            # Edges that go to node 0 come first.
            order = [2, 0, 1] if name == "edge_attr" else slice(None)
            rows = [np.atleast_1d(np.asarray(one[name]))[order] for one in given]
            np.testing.assert_array_equal(found, np.concatenate(rows).astype(kind))
            np.testing.assert_array_equal(getattr(graphs[7], name), rows[7].astype(kind))
            again = self.folder / "again.safetensors"
            mb.graph.export(path, again)
            mb.graph.build(again, self.folder / "again.mbg", kind="edge-index")
            np.testing.assert_array_equal(mb.graph.open(self.folder / "again.mbg").arrays(range(12))[name], found)

    @unittest.skipUnless(HAS_PYG, "PyTorch Geometric: cargo xtask python test --torch")
    def test_targets_are_those_of_pytorch_geometric(self) -> None:
        import torch
        from torch_geometric.data import Batch, Data

        edges = torch.tensor([[0, 1], [1, 0]])
        for y in (lambda k: torch.tensor([k % 3]), lambda k: torch.tensor(k / 2), lambda k: torch.tensor([[k, 1]])):
            data = [Data(x=torch.arange(4).view(2, 2), edge_index=edges, y=y(k)) for k in range(6)]
            graphs, theirs = mb.graph.save(data, self.folder / "saved.mbg"), Batch.from_data_list(data)
            ours: Any = next(iter(graphs.loader(6, pyg=True)))
            tensors = next(iter(graphs.loader(6, device="cpu")))
            for name in ("x", "y"):
                for found in (ours[name], tensors[name]):
                    self.assertEqual(found.dtype, theirs[name].dtype)
                    self.assertTrue(torch.equal(found, theirs[name]))
            self.assertTrue(torch.equal(ours.to_data_list()[4].y, graphs.pyg(4).y))

    def test_what_cannot_be_saved_is_named(self) -> None:
        path, good = self.folder / "saved.mbg", {"edge_index": np.array([[0, 1], [1, 0]]), "x": np.ones((2, 3), np.float32)}
        for graphs, error, text in (
            ([{**good, "pos": np.ones((2, 3))}], mb.ConfigError, r"graph 0 has pos, which .* ignore=\['pos'\]"),
            ([good, {**good, "x": np.ones((2, 4))}], mb.DataError, r"graph 1: x is \[2, 4\] of float64, and in those before \[rows, 3\]"),
            (good, mb.ConfigError, r"graphs is one graph: expected several; give a list, \[graph\]"),
            ([{**good, "y": np.array([-100])}], mb.DataError, "expected some from 0 on, and -1 for an unknown one"),
            ([{**good, "y": np.array(["a"])}], mb.DataError, "graph 0: y is .* expected numbers of 1 or 2 dimensions"),
            ([good, {"edge_index": good["edge_index"]}], mb.DataError, "graph 1 has edge_index, and those before have edge_index, x"),
            ([{**good, "edge_index": np.array([[0, 2], [1, 0]])}], mb.DataError, "nodes 0 to 2, and there are 2"),
            ([{**good, "x": np.full((2, 3), 1e39)}], mb.DataError, "x of float64 has numbers that float32 cannot hold"),
            ([{**good, "edge_weight": np.ones(3)}], mb.DataError, "edge_weight has 3 rows, expected 2"),
            ([{"x": good["x"]}], mb.DataError, "graph 0 has no edge_index"),
            ([], mb.DataError, "there are no graphs"),
        ):
            with self.assertRaisesRegex(error, text):
                mb.graph.save(graphs, path)
        listed: Any = [good]
        array: Any = np.zeros(3)
        hetero: Any = HeteroData()
        calls: list[tuple[Callable[[], object], str]] = [
            (lambda: mb.graph.save(path, listed), r"path a list: the arguments are exchanged; .* mb.graph.save\(graphs, '.*'\)$"),
            (lambda: mb.graph.save(path, 5), "path an int: the arguments are exchanged"),  # type: ignore[arg-type]
            (lambda: mb.graph.save(listed, array), "^path is a ndarray: expected the path of the file to write, .mbg$"),
            (lambda: mb.graph.build(5, path, kind="correlation"), "^inputs=5: expected a frame, frames by symbol, or paths of files"),
            (lambda: mb.graph.build([self.path], path, kind="molecule", targets=5), "^targets is an int: expected the path"),  # type: ignore[arg-type]
            (lambda: mb.graph.open(self.path).loader(dataset=5), "^dataset=5: expected a dataset of the instruments"),  # type: ignore[arg-type]
            (lambda: mb.graph.save([3], path), "^graph 0 is an int: expected a Data of PyTorch Geometric, or a dictionary"),
            (lambda: mb.graph.save([hetero], path), r"^graph 0 is a HeteroData, .*: give graph.to_homogeneous\(\)"),
            (lambda: mb.graph.save(hetero, path), "^graphs is a HeteroData, and .* nodes and edges of one type"),
            (lambda: mb.graph.open(array), "^path is a ndarray: expected the path of a file of graphs, .mbg"),
            (lambda: mb.graph.verify(array), "^path is a ndarray: expected the path of a file of graphs"),
            (lambda: mb.graph.export(self.path, array), "^out is a ndarray: expected the path of the file or folder to write$"),
        ]
        for call, text in calls:
            with self.assertRaisesRegex(mb.ConfigError, text):
                call()
        self.assertFalse(path.exists())
        self.assertEqual(len(mb.graph.save([{**good, "pos": np.ones((2, 3))}], path, ignore=["pos"])), 1)
        with self.assertRaisesRegex(mb.ConfigError, "keys has 2 names for 1 graphs"):
            mb.graph.save([good], path, keys=["a", "b"])

    @unittest.skipUnless(HAS_PYG, "PyTorch Geometric: cargo xtask python test --torch")
    def test_a_folder_of_torch_files_is_read_without_running_code(self) -> None:
        import torch

        folder = self.folder / "files"
        folder.mkdir()
        data = [self.graphs.pyg(number) for number in range(12)]
        for number, graph in enumerate(data):
            torch.save(graph, folder / f"graph_{number}.pt")
        again = mb.graph.save(folder, self.folder / "again.mbg")
        for number, graph in enumerate(data):
            for name in ("x", "edge_index", "edge_attr", "y"):
                self.assertTrue(torch.equal(again.pyg(number)[name], graph[name]), (number, name))
        torch.save({"edge_index": data[0].edge_index, "x": data[0].x, "who": Unknown()}, folder / "graph_12.pt")
        with self.assertRaisesRegex(mb.DataError, r"graph_12.pt: it has an object of .*Unknown"):
            mb.graph.save(folder, self.folder / "again.mbg")

    @unittest.skipUnless(HAS_PYG, "PyTorch Geometric: cargo xtask python test --torch")
    def test_objects_are_those_of_pytorch_geometric(self) -> None:
        import torch
        from torch_geometric.data import Batch

        data = [self.graphs.pyg(number) for number in (3, 8, 1)]
        theirs: Any = Batch.from_data_list(data)
        ours: Any = next(iter(self.graphs[[3, 8, 1]].loader(3, pyg=True)))
        for name in ("x", "edge_index", "edge_attr", "y", "batch", "ptr"):
            self.assertTrue(torch.equal(ours[name], theirs[name]), name)
        self.assertEqual((ours.num_graphs, ours.num_nodes), (theirs.num_graphs, theirs.num_nodes))
        for one, other in zip(ours.to_data_list(), data):
            for name in ("x", "edge_index", "edge_attr", "y"):
                self.assertTrue(torch.equal(one[name], other[name]), name)
            self.assertEqual(one.num_nodes, other.num_nodes)
        tensors = next(iter(self.graphs.loader(4, device="cpu")))
        self.assertIsInstance(tensors["x"], torch.Tensor)

    @unittest.skipUnless(HAS_PYG, "PyTorch Geometric: cargo xtask python test --torch")
    def test_what_is_written_to_a_tensor_is_seen_by_no_batch_and_no_process(self) -> None:
        import torch

        written = self.graphs.pyg(3)
        for name in ("x", "edge_attr", "y", "edge_index"):
            written[name][:] = 1000
        # As in a dataset in memory, it stays; edges are made anew.
        self.assertTrue(bool((self.graphs.pyg(3).x == 1000).all()))
        self.assertFalse(bool((self.graphs.pyg(3).edge_index == 1000).any()))
        # A tensor on a read-only array may be written by mistake: that does not end the process.
        array = self.graphs[5].x
        assert array is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            torch.from_numpy(array)[:] = 1000
        for number in (3, 5):
            np.testing.assert_array_equal(self.graphs.arrays([number])["x"], self.plain[number]["x"])
            np.testing.assert_array_equal(mb.graph.open(self.path).pyg(number).x, self.plain[number]["x"])
        mb.graph.verify(self.path)

    def test_a_dataloader_is_told_what_to_loop_over(self) -> None:
        # As torch/utils/data/_utils/fetch.py asks for a batch.
        fetch: dict[str, Any] = {"__name__": "torch.utils.data._utils.fetch"}
        exec("def fetch(self, places):\n    return self.collate_fn(self.dataset.__getitems__(places))\n", fetch)

        def keys(graphs: Any) -> list[str]:
            return [graph.key for graph in graphs]

        fetcher = types.SimpleNamespace(dataset=self.graphs, collate_fn=keys)
        self.assertEqual(fetch["fetch"](fetcher, [3, 5]), [self.graphs.keys[3], self.graphs.keys[5]])
        for module, line in (
            ("torch.utils.data._utils.collate", r'loop over graphs\.loader\(2, device="cpu"\)'),
            ("torch_geometric.loader.dataloader", r"loop over graphs\.loader\(2, pyg=True\), which gives Batch"),
        ):
            keys.__module__ = module
            with self.assertRaisesRegex(mb.ConfigError, line):
                fetch["fetch"](fetcher, [3, 5])

    @unittest.skipUnless(HAS_PYG, "PyTorch Geometric: cargo xtask python test --torch")
    def test_workers_of_a_dataloader_share_the_file(self) -> None:
        from torch_geometric.loader import DataLoader

        with self.assertRaisesRegex(mb.ConfigError, r"graphs\.loader\(8, pyg=True\)"):
            next(iter(DataLoader(self.graphs, 8)))
        batches: Any = DataLoader(Items(self.graphs), 8, num_workers=2, multiprocessing_context="spawn")
        found = np.concatenate([batch.x.numpy() for batch in batches])
        np.testing.assert_array_equal(found, np.concatenate([plain["x"] for plain in self.plain]))


if __name__ == "__main__":
    unittest.main()

    def test_graphs_are_exported_and_come_back(self) -> None:
        out = self.folder / "two.safetensors"
        keys = [self.graphs.keys[7], self.graphs.keys[3]]
        told = mb.graph.export(self.path, out, keys=keys)
        self.assertEqual(told["graphs"], 2)
        mb.graph.build(out, self.folder / "two.mbg", kind="edge-index")
        for key, graph in zip(keys, mb.graph.open(self.folder / "two.mbg")):
            np.testing.assert_array_equal(graph.x, self.graphs[key].x)
            np.testing.assert_array_equal(graph.edge_index, self.graphs[key].edge_index)
        self.assertEqual(mb.graph.inspect(self.path)["graphs"], 40)
        with self.assertRaisesRegex(mb.ConfigError, "format=gml: expected one of edge-index, tu"):
            mb.graph.export(self.path, out, format="gml")
        with self.assertRaisesRegex(mb.MegabatchError, "positions"):
            mb.graph.export(self.path, self.folder / "a.sdf", format="sdf")


class CrossSections(InFolder):
    """Shares and graphs between them, joined by day."""

    def setUp(self) -> None:
        super().setUp()
        rng = np.random.default_rng(4)
        days = np.arange(np.datetime64("2020-01-01"), np.datetime64("2020-08-01"))
        days = days[np.is_busday(days)]
        folder = self.folder / "shares"
        folder.mkdir()
        common = rng.normal(size=len(days))
        for number, name in enumerate(("AAA", "BBB", "CCC", "DDD", "EEE")):
            close = 100 * np.exp(np.cumsum(0.01 * (common * (number % 2) + rng.normal(size=len(days)))))
            rows = [f"{day},{c:.4f},{c * 1.01:.4f},{c * 0.99:.4f},{c:.4f},1000" for day, c in zip(days, close)]
            # One share comes later.
            rows = rows[60:] if name == "EEE" else rows
            (folder / f"{name}.csv").write_text("\n".join(["date,open,high,low,close,volume", *rows, ""]))
        paths = sorted(folder.glob("*.csv"))
        options: Any = {"timeframes": {"D1": 3}, "horizon": 2, "target": "log_return", "features": ["log_return"]}
        self.ds = mb.ingest(paths, out=self.folder / "shares.h5", **options)
        mb.graph.build(folder, self.folder / "shares.mbg", kind="correlation", lookback=15, k=2)
        self.graphs = mb.graph.open(self.folder / "shares.mbg")

    def expected(self, dataset: mb.Dataset) -> list[tuple[list[int], int, dict[tuple[int, int], float]]]:
        """For each time its samples in the order of the instruments, the graph, and weights of edges by their ends."""
        times, instruments = dataset.times, dataset.sample_instruments
        assert times is not None and instruments is not None
        sections = []
        for time in sorted(set(times.tolist())):
            places = sorted(np.flatnonzero(times.astype(np.int64) == time), key=lambda place: instruments[place])
            known = [k for k, since in enumerate(self.graphs.known_times.astype(np.int64)) if since <= time]
            if not known:
                continue
            number = max(known, key=lambda k: self.graphs.known_times[k])
            graph = self.graphs[number]
            assert graph.names is not None and graph.edge_weight is not None
            node = {dataset.instruments[instruments[place]]: k for k, place in enumerate(places)}
            weights = {}
            for (source, to), weight in zip(graph.edge_index.T.tolist(), graph.edge_weight.tolist()):
                ends = (node.get(graph.names[source]), node.get(graph.names[to]))
                if ends[0] is not None and ends[1] is not None:
                    weights[ends[0], ends[1]] = weight
            sections.append(([int(dataset.indices[place]) for place in places], number, weights))
        return sections

    def check(self, batches: Any, dataset: mb.Dataset) -> None:
        sections = self.expected(dataset)
        self.assertGreater(len(sections), 20)
        self.assertTrue(any(len(weights) for _, _, weights in sections))
        found = 0
        for batch in batches:
            arrays = {name: np.asarray(batch[name]) for name in ("edge_index", "edge_weight", "ptr", "batch", "graph", "sample")}
            self.assertTrue(np.all(np.diff(arrays["edge_index"][1]) >= 0))
            for k, number in enumerate(arrays["graph"].tolist()):
                samples, graph, weights = sections[found]
                found += 1
                first, end = arrays["ptr"][k : k + 2]
                self.assertEqual((arrays["sample"][first:end].tolist(), number), (samples, graph))
                self.assertEqual(set(arrays["batch"][first:end].tolist()), {k})
                own = (arrays["edge_index"][1] >= first) & (arrays["edge_index"][1] < end)
                ends = (arrays["edge_index"][:, own] - first).T.tolist()
                self.assertEqual({tuple(pair): w for pair, w in zip(ends, arrays["edge_weight"][own].tolist())}, weights)
            same = self.ds[arrays["sample"]]
            for name in ("D1", "targets"):
                np.testing.assert_array_equal(np.asarray(batch[name]), same[name])
        self.assertEqual(found, len(sections))

    def test_a_batch_has_the_samples_of_days_and_their_graphs(self) -> None:
        train, _, _ = self.ds.split()
        for dataset in (self.ds, train):
            for bounds in ({"batch_size": 1}, {"batch_size": 7}, {"nodes": 13}):
                self.check(self.graphs.loader(**bounds, dataset=dataset), dataset)
        loader = self.graphs.loader(4, shuffle=True, seed=1, dataset=train)
        whole = [batch["sample"].tolist() for batch in loader]
        self.assertNotEqual(whole[0], next(iter(self.graphs.loader(4, dataset=train)))["sample"].tolist())
        other = self.graphs.loader(4, shuffle=True, seed=1, dataset=train)
        own = iter(other)
        next(own)
        rest = self.graphs.loader(4, shuffle=True, seed=1, dataset=train)
        rest.load_state_dict(other.state_dict())
        self.assertEqual([batch["sample"].tolist() for batch in rest], whole[1:])

    def test_a_state_of_another_series_without_a_mark_is_refused(self) -> None:
        # The two files together had no mark then, and any state was taken.
        paths = [self.folder / f"unmarked-{number}.h5" for number in range(2)]
        for number, path in enumerate(paths):
            shutil.copy(self.ds.path, path)
            with h5py.File(path, "r+") as file:
                del file["checksums"]
                file["targets"][0, 0] = float(number)
        loaders = [self.graphs.loader(4, shuffle=True, dataset=mb.open(path)) for path in (*paths, paths[0])]
        state = loaders[0].state_dict()
        loaders[2].load_state_dict(state)
        with self.assertRaisesRegex(mb.ConfigError, "the state is of a loader with other data"):
            loaders[1].load_state_dict(state)

    def test_graphs_are_built_from_frames(self) -> None:
        import pandas
        import polars

        paths = sorted((self.folder / "shares").glob("*.csv"))
        by_symbol = {path.stem: pandas.read_csv(path, parse_dates=["date"]) for path in paths}
        rows = pandas.concat([frame.assign(symbol=name) for name, frame in by_symbol.items()])
        for frames in (by_symbol, rows, polars.from_pandas(rows)):
            path = self.folder / "frames.mbg"
            path.unlink(missing_ok=True)
            facts = mb.graph.build(frames, path, kind="correlation", lookback=15, k=2, progress=False)
            self.assertEqual(facts["data"], self.graphs.facts["data"])
            self.assertEqual(path.read_bytes(), Path(self.graphs.path).read_bytes())
        nothing = dict.fromkeys(("open", "high", "low", "close"), np.nan)
        failed = {**by_symbol, "ZZZ": by_symbol["AAA"].assign(**nothing)}
        path.unlink()
        with self.assertRaisesRegex(mb.DataError, "^ZZZ: all [0-9]+ rows are empty"):
            mb.graph.build(failed, path, kind="correlation", lookback=15, k=2)
        with self.assertLogs("megabatch", "WARNING") as logs:
            facts = mb.graph.build(failed, path, kind="correlation", lookback=15, k=2, on_error="skip", progress=False)
        self.assertIn("left out: ZZZ: all", logs.output[0])
        self.assertEqual(facts["data"], self.graphs.facts["data"])
        # Graphs of one node each were built, without a word.
        alone = "is the only share with returns: expected the bars of two shares or more, .*, or rows with a column `symbol`"
        for frame in (by_symbol["AAA"], {"AAA": by_symbol["AAA"]}, rows[rows["symbol"] == "AAA"]):
            with self.assertRaisesRegex(mb.DataError, alone):
                mb.graph.build(frame, self.folder / "alone.mbg", kind="correlation", lookback=15, k=2)
        # A split was a return of a share without a word.
        split = by_symbol["AAA"].copy()
        prices = split.columns.isin(("open", "high", "low", "close"))
        split.loc[split.index >= len(split) // 2, prices] /= 10
        with self.assertLogs("megabatch", "WARNING") as logs:
            mb.graph.build({**by_symbol, "AAA": split}, path, kind="correlation", lookback=15, k=2, progress=False)
        self.assertRegex("\n".join(logs.output), "AAA: the price goes from .*, which no range of the bars around explains")
        named = self.folder / "named"
        named.mkdir()
        for file in paths:
            (named / f"x_{file.stem}_2020.csv").write_bytes(file.read_bytes())
        path.unlink()
        facts = mb.graph.build(named, path, kind="correlation", lookback=15, k=2, symbol_pattern="x_{}_*")
        self.assertEqual((facts["data"], facts["found"]["symbols"][0]), (self.graphs.facts["data"], "AAA"))
        by_symbol["BBB"].loc[7, "high"] = 0.001
        with self.assertRaisesRegex(mb.DataError, r"^row 7 of the frame \(BBB\): ") as raised:
            mb.graph.build(by_symbol, path, kind="correlation", lookback=15, k=2)
        self.assertEqual(raised.exception.fields["row"], 7)

    def test_the_graphs_of_a_file_stand_for_its_path_and_times_for_keys(self) -> None:
        import pandas

        settings = {"hidden": 4, "graph_layers": 1}
        by_path = mb.plan(self.ds, model={**settings, "graph": self.graphs.path})
        for graphs in (self.graphs, self.graphs[:]):
            self.assertEqual(mb.plan(self.ds, model={**settings, "graph": graphs}).facts["model"], by_path.facts["model"])
        with self.assertRaisesRegex(mb.ConfigError, "these are 3 of the .* graphs of .*: expected the whole file, .*samples=…"):
            mb.plan(self.ds, model={**settings, "graph": self.graphs[:3]})
        key = self.graphs.keys[4]
        day = pandas.Timestamp(key)
        for time in (day, day.tz_localize("UTC"), day.to_pydatetime(), day.date(), np.datetime64(key), day.to_datetime64()):
            self.assertEqual(self.graphs[time].key, key)
            self.assertEqual(self.graphs.index(time), 4)
            self.assertIn(time, self.graphs)
            self.assertNotIn(time, self.graphs[:3])
        for own in (key, self.graphs[4]):
            self.assertIn(own, self.graphs)
            self.assertNotIn(own, self.graphs[:3])
        for other in (day + pandas.Timedelta(hours=1), pandas.NaT, np.datetime64("NaT"), "none", 4, None):
            self.assertNotIn(other, self.graphs)
        with self.assertRaisesRegex(mb.ConfigError, "there is no graph"):
            self.graphs[day + pandas.Timedelta(hours=1)]
        with self.assertRaisesRegex(ValueError, f"^'{key}' is none of these 3 graphs of .*; they go from"):
            self.graphs[:3].index(day)
        self.assertEqual(dir(mb.graph), sorted(mb.graph.__all__))
        # Samples of an instrument are had by a mask.
        with self.assertRaisesRegex(mb.ConfigError, "samples are chosen by their places, and 'BBB' is none; .* are (.*)$") as caught:
            self.ds["BBB"]  # type: ignore[index]
        batch = eval(str(caught.exception).split(" are ")[-1], {"dataset": self.ds})
        assert self.ds.sample_instruments is not None
        np.testing.assert_array_equal(batch["sample"], np.flatnonzero(self.ds.sample_instruments == 1))

    def test_options_of_a_wrong_type_are_named(self) -> None:
        shares, path = self.folder / "shares", self.folder / "none.mbg"
        for options, message in (
            ({"lookback": "60D"}, "^lookback='60D': expected a whole number of bars from 0 on$"),
            ({"lookback": 15, "k": 2.5}, r"^k=2\.5: expected a whole number from 0 on$"),
            ({"lookback": 15, "half_life": "10"}, "^half_life='10': expected a number$"),
            ({"lookback": 15, "absolute": "no"}, "^absolute='no': expected True or False$"),
            ({"lookback": 15, "progress": "no"}, "^progress='no': expected True or False$"),
        ):
            with self.assertRaisesRegex(mb.ConfigError, message):
                mb.graph.build(shares, path, kind="correlation", **options)

    def test_points_come_from_frames(self) -> None:
        import pandas

        points = pandas.DataFrame({"x": [0.1, 1.1, 0.1], "node": ["A", "B", "C"], "y": [1 / 3, 0.0, 1e-17], "z": [0, 0, 9]})
        path, file = self.folder / "points.mbg", self.folder / "points.csv"
        mb.graph.build(points, path, kind="radius", radius=2.0)
        points[["node", "x", "y", "z"]].to_csv(file, index=False)
        again = self.folder / "file.mbg"
        mb.graph.build(file, again, kind="radius", radius=2.0)
        self.assertEqual(path.read_bytes(), again.read_bytes())
        self.assertEqual(mb.graph.open(path)[0].edge_index.tolist(), [[1, 0], [0, 1]])
        with self.assertRaisesRegex(mb.ConfigError, "kind is tu, and inputs are frames: graph.build takes a frame of points"):
            mb.graph.build(points, path, kind="tu")

    @unittest.skipUnless(HAS_PYG, "PyTorch Geometric: cargo xtask python test --torch")
    def test_tensors_and_batches_of_geometric(self) -> None:
        self.check(self.graphs.loader(5, dataset=self.ds, device="cpu"), self.ds)
        for device in (None, "cpu"):
            self.check(self.graphs.loader(5, dataset=self.ds, pyg=True, device=device), self.ds)
        batch = next(iter(self.graphs.loader(5, dataset=self.ds, pyg=True)))
        apart = batch.to_data_list()
        self.assertEqual(len(apart), 5)
        for one, first, end in zip(apart, batch.ptr[:-1], batch.ptr[1:]):
            np.testing.assert_array_equal(one["D1"], batch["D1"][first:end])
            self.assertTrue(bool((one.edge_index < end - first).all()))

    def test_what_cannot_be_joined_is_named(self) -> None:
        mb.synth.samples(self.folder / "one.h5", samples=50, timeframes={"D1": 3}, features=2, targets=1)
        with self.assertRaisesRegex(mb.ConfigError, "no series of several instruments"):
            self.graphs.loader(dataset=mb.open(self.folder / "one.h5"))
        with self.assertRaisesRegex(mb.ConfigError, "older than its first graph"):
            self.graphs[len(self.graphs) - 1 :].loader(dataset=self.ds.split()[0])
