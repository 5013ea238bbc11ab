"""Settings as a checker of types sees them: a line that is marked is one that it must refuse."""

from __future__ import annotations

from typing import Any

import megabatch as mb

ds = mb.open("series.h5")
by_section: mb.Settings = {"model": {"hidden": 4, "cell": "gru"}, "data": {"split": (0.7, 0.2, 0.1), "purge": "8d"}}
computed: dict[str, Any] = {"model.hidden": 4}
mb.plan(ds, by_section)
mb.plan(ds, computed, training={"lr": 1, "thresholds": [-1, 0.5], "tasks": [{"targets": "0..1"}], "clip_norm": "none"})
mb.train(ds, {"model.hidden": 4}, model__hidden=4, training__clip_norm=0.5, distributed="off")
mb.train(ds, distributed={"backend": "mpi"}, distributed__library="libmpi.so", training=None)
mb.leak(ds, config=by_section)
ds.loader(64, shuffle=True, run_length=None, overlap=False)
mb.ingest("bars.csv", pip_size=0.01, on_error="skip", zone=None)

mb.ingest("bars.csv", on_error="never")  # type: ignore[arg-type]
ds.append("bars.csv", strides=3)  # type: ignore[arg-type]
ds.loader(64, seed="one")  # type: ignore[arg-type]
mb.train(ds, model={"hiden": 4})  # type: ignore[arg-type]
mb.train(ds, model={"cell": "rnn"})  # type: ignore[arg-type]
mb.train(ds, model__hiden=4)  # type: ignore[call-arg]
mb.plan(ds, training={"lr": "high"})  # type: ignore[arg-type]
mb.plan(ds, training__loss="l3")  # type: ignore[arg-type]
wrong: mb.Settings = {"model": {"hiden": 4}}  # type: ignore[typeddict-unknown-key]
