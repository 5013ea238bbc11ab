"""From a pandas frame to errors beside baselines, in seconds."""

from __future__ import annotations

import pathlib
import tempfile

import megabatch as mb
import pandas


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        csv = pathlib.Path(folder) / "EURUSD.csv"
        mb.synth.bars(csv, days=21)
        frame = pandas.read_csv(csv, parse_dates=[0])  # or bars of your own

        ds = mb.ingest(
            frame, symbol="EURUSD", timeframes={"M1": 30, "M5": 12}, target="log_return", horizon=4, stride=20
        )
        print(mb.leak(ds, samples=4))
        print(mb.plan(ds, model={"hidden": 8}, max_steps=40).steps, "steps")
        run = mb.train(ds, model={"hidden": 8}, max_steps=40)
        evaluation = run.evaluate()
        print(evaluation.to_pandas().pivot(index="horizon", columns="predictor", values="rmse"))
        train, validation, test = ds.split()
        print(run.predict(test).to_pandas()[["time", "h4", "target4"]].head())


if __name__ == "__main__":
    main()
