"""Writes numpy_fixture.json: graphs of nearest neighbours as numpy makes them, with corrcoef, cov and argsort.

    python crates/graph-cache/tests/numpy_fixture.py

Observations are integers over 1024, so that a text of them is exact; one that is missing is null. Edges are rows of [receiving node, sending node, value].
"""
import json
import pathlib

import numpy as np

NODES, DAYS, LOOKBACK, K = 14, 36, 24, 3


def panel():
    draw = np.random.default_rng(6)
    market = draw.normal(size=DAYS)
    values = np.round(200 * (draw.normal(size=(NODES, DAYS)) + 0.8 * market)) / 1024
    values[3, :20] = np.nan
    values[7, [15, 30, 31]] = np.nan
    values[9] = 0.25
    return values


def pearson(x, y, weights):
    """r over the days that both have, of weighted covariances."""
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < 10 or np.ptp(x[both]) == 0 or np.ptp(y[both]) == 0:
        return np.nan
    if weights is None:
        return np.corrcoef(x[both], y[both])[0, 1]
    c = np.cov(x[both], y[both], aweights=weights[both], ddof=0)
    return c[0, 1] / np.sqrt(c[0, 0] * c[1, 1])


def correlation(values, t, half_life=None, demean=False, absolute=False):
    window = values[:, t - LOOKBACK : t]
    nodes = [node for node in range(NODES) if np.isfinite(window[node]).sum() >= 10]
    if demean:
        window = window - np.nanmean(window, axis=0)
    weights = None if half_life is None else 0.5 ** (np.arange(LOOKBACK)[::-1] / half_life)
    r = np.array([[pearson(window[a], window[b], weights) for b in nodes] for a in nodes])
    return nodes, nearest(r, np.abs(r) if absolute else r)


def nearest(values, keys):
    """The K largest keys of each row, in the order of their columns."""
    keys = np.where(np.isnan(keys), -np.inf, keys)
    np.fill_diagonal(keys, -np.inf)
    edges = []
    for row, order in enumerate(np.argsort(-keys, axis=1, kind="stable")):
        edges += [[row, int(c), float(values[row, c])] for c in sorted(order[:K]) if keys[row, c] > -np.inf]
    return edges


def features(values):
    """Graphs over rows of features: those of the panel where it is whole."""
    rows = values[np.isfinite(values).all(axis=1)]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosine = unit @ unit.T
    distance = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    return {"cosine": nearest(cosine, cosine), "euclidean": nearest(distance, -distance)}


def main():
    values = panel()
    integers = [[None if np.isnan(x) else int(x * 1024) for x in row] for row in values]
    cases = {
        "plain": dict(t=DAYS),
        "earlier": dict(t=30),
        "half-life": dict(t=DAYS, half_life=8.0),
        "demeaned": dict(t=DAYS, demean=True),
        "absolute": dict(t=33, demean=True, absolute=True),
    }
    graphs = []
    for name, case in cases.items():
        nodes, edges = correlation(values, **case)
        graphs.append({"name": name, **case, "nodes": nodes, "edges": edges})
    answer = {"numpy": np.__version__, "lookback": LOOKBACK, "k": K, "panel": integers, "graphs": graphs, "features": features(values)}
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
