"""Functions that look ahead, each in another way.

All return as many rows as they got, without gaps after their warm-up: a value that the last bars
cannot have yet is filled, as people do to keep the rows.
"""

from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from case import Case, register

LEAKS: list[Case] = []
leak = partial(register, LEAKS)
TINY = 1e-12


def returns(frame: pd.DataFrame) -> pd.Series:
    """Log returns, 0 at the first bar."""
    return np.log(frame["close"]).diff().fillna(0.0)


def next_return(frame: pd.DataFrame, bars: int = 1) -> pd.Series:
    """The log return of the bars that follow, 0 where they are missing."""
    close = np.log(frame["close"])
    return (close.shift(-bars) - close).fillna(0.0)


def day(frame: pd.DataFrame) -> pd.Series:
    return frame["time"].dt.floor("D")


def slot(frame: pd.DataFrame) -> pd.Series:
    """Minutes since midnight."""
    return frame["time"].dt.hour * 60 + frame["time"].dt.minute


def lags(values: np.ndarray, count: int) -> np.ndarray:
    """A row for each value: itself and the ones before it, 0 before the first."""
    padded = np.concatenate([np.zeros(count - 1), values])
    return np.lib.stride_tricks.sliding_window_view(padded, count)[:, ::-1]


# Rows that are moved.


@leak("shift back", "freqtrade 9240")
def next_close(frame):
    return frame["close"].shift(-1).fillna(frame["close"])


@leak("shift back")
def return_of_next_20(frame):
    return (frame["close"].shift(-20) / frame["close"] - 1).fillna(0.0)


@leak("shift back")
def difference_to_next(frame):
    return frame["close"].diff(-1).fillna(0.0)


@leak("shift back")
def percent_change_back(frame):
    return frame["close"].pct_change(-4).fillna(0.0)


@leak("shift back", "pandas-ta 326")
def chikou_span(frame):
    return frame["close"].shift(-26).fillna(frame["close"]) / frame["close"] - 1


@leak("shift back", "pandas-ta 530")
def detrended_price_oscillator(frame):
    middle = frame["close"].rolling(20).mean()
    centred = (frame["close"].shift(11) - middle).shift(-11)
    return centred.fillna(0.0)


@leak("shift back", "smart-money-concepts 34")
def fair_value_gap(frame):
    rise = (frame["low"].shift(-1) - frame["high"].shift(1)).clip(lower=0.0)
    fall = (frame["low"].shift(1) - frame["high"].shift(-1)).clip(lower=0.0)
    return (rise - fall).fillna(0.0)


@leak("shift back")
def gap_to_next_open(frame):
    return (frame["open"].shift(-1) - frame["close"]).fillna(0.0)


@leak("shift back")
def engulfed_by_next(frame):
    return (frame["high"].shift(-1) > frame["high"]) & (frame["low"].shift(-1) < frame["low"])


@leak("shift back", "freqtrade 11346")
def crossing_one_bar_early(frame):
    fast, slow = frame["close"].rolling(5).mean(), frame["close"].rolling(20).mean()
    return (fast > slow).shift(-1, fill_value=False).astype(int)


@leak("shift back")
def rolled_array(frame):
    return np.roll(frame["close"].to_numpy(), -1)


@leak("shift back")
def difference_appended(frame):
    close = frame["close"].to_numpy()
    return np.diff(close, append=close[-1])


@leak("shift back")
def index_moved(frame):
    moved = frame["volume"].copy()
    moved.index = moved.index - 1
    return moved.reindex(frame.index).fillna(frame["volume"])


@leak("shift back")
def shifted_too_far(frame):
    return frame["close"].shift(3).shift(-5).ffill()


# Windows that are centred or look forward.


@leak("centred window")
def centred_mean(frame):
    return frame["close"] - frame["close"].rolling(11, center=True, min_periods=1).mean()


@leak("centred window")
def centred_deviation(frame):
    return returns(frame).rolling(21, center=True, min_periods=2).std().fillna(0.0)


@leak("centred window")
def centred_median_filter(frame):
    return frame["high"].rolling(5, center=True, min_periods=1).median()


@leak("centred window")
def centred_hours(frame):
    close = frame.set_index("close_time")["close"]
    return close.rolling("3h", center=True).mean().to_numpy()


@leak("centred window")
def convolution_same(frame):
    change = returns(frame).to_numpy()
    return np.convolve(change, np.hanning(9), mode="full")[4:4 + len(change)]


@leak("centred window")
def savitzky_golay(frame):
    at = np.arange(-5, 6)
    weights = np.linalg.pinv(np.vander(at, 3))[2]
    padded = np.pad(frame["close"].to_numpy(), 5, mode="edge")
    return np.convolve(padded, weights[::-1], mode="valid")


@leak("centred window")
def kernel_regression(frame):
    """Nadaraya-Watson with weights on both sides."""
    weights = np.exp(-0.5 * (np.arange(-15, 16) / 6) ** 2)
    padded = np.pad(frame["close"].to_numpy(), 15, mode="edge")
    return np.convolve(padded, weights / weights.sum(), mode="valid")


@leak("forward window")
def forward_indexer(frame):
    window = pd.api.indexers.FixedForwardWindowIndexer(window_size=8)
    return frame["high"].rolling(window, min_periods=1).max() / frame["close"] - 1


@leak("forward window")
def drawdown_ahead(frame):
    low = frame["low"][::-1].rolling(10, min_periods=1).min()[::-1]
    return low / frame["close"] - 1


@leak("forward window")
def bars_until_crossing(frame):
    above = (frame["close"] > frame["close"].rolling(20, min_periods=1).mean()).to_numpy()
    left, count = np.zeros(len(above)), 0
    for row in range(len(above) - 2, -1, -1):
        count = count + 1 if above[row + 1] == above[row] else 0
        left[row] = count
    return left


@leak("derivative")
def gradient(frame):
    return np.gradient(frame["close"].to_numpy()) if len(frame) > 1 else np.zeros(len(frame))


@leak("derivative")
def second_difference(frame):
    close = frame["close"].to_numpy()
    inner = close[:-2] - 2 * close[1:-1] + close[2:]
    return np.concatenate([[0.0], inner, [0.0]])[:len(close)]


# Filters that run both ways.


@leak("two-sided filter")
def forward_backward_mean(frame):
    once = frame["close"].ewm(span=10, adjust=False).mean()
    return once[::-1].ewm(span=10, adjust=False).mean()[::-1]


@leak("two-sided filter")
def exponential_mean_reversed(frame):
    return frame["close"][::-1].ewm(span=20).mean()[::-1] / frame["close"] - 1


@leak("two-sided filter")
def fourier_low_pass(frame):
    close = frame["close"].to_numpy()
    parts = np.fft.rfft(close)
    parts[len(parts) // 10 + 1:] = 0
    return np.fft.irfft(parts, n=len(close))


@leak("two-sided filter")
def hilbert_envelope(frame):
    change = (frame["close"] - frame["close"].ewm(span=30).mean()).to_numpy()
    parts = np.fft.fft(change)
    half = (len(change) + 1) // 2
    parts[1:half] *= 2
    parts[len(change) // 2 + 1:] = 0
    return np.abs(np.fft.ifft(parts))


@leak("two-sided filter")
def haar_denoising(frame):
    """Pairs of bars, pairs of pairs and so on: small differences within them are left out."""
    close = frame["close"].to_numpy()
    rows = -(-len(close) // 8) * 8
    level, details = np.pad(close, (0, rows - len(close)), mode="edge"), []
    for _ in range(3):
        pairs = level.reshape(-1, 2)
        level = pairs.mean(axis=1)
        details.append((pairs[:, 0] - pairs[:, 1]) / 2)
    for detail in reversed(details):
        kept = np.where(np.abs(detail) > 5e-4, detail, 0.0)
        level = np.stack([level + kept, level - kept], axis=1).ravel()
    return level[:len(close)]


@leak("two-sided filter")
def hodrick_prescott(frame):
    """The distance to the trend of each stretch of 96 bars."""
    close, trend = frame["close"].to_numpy(), []
    for start in range(0, len(close), 96):
        part = close[start:start + 96]
        second = np.diff(np.eye(len(part)), n=2, axis=0)
        trend.append(np.linalg.solve(np.eye(len(part)) + 1600 * second.T @ second, part))
    return close - np.concatenate(trend)


@leak("two-sided filter")
def kalman_smoother(frame):
    """A level that wanders: filtered forwards, then smoothed backwards."""
    close = frame["close"].to_numpy()
    level, doubt = close.copy(), np.full(len(close), 1.0)
    for row in range(1, len(close)):
        before = doubt[row - 1] + 0.05
        gain = before / (before + 1)
        level[row] = level[row - 1] + gain * (close[row] - level[row - 1])
        doubt[row] = (1 - gain) * before
    for row in range(len(close) - 2, -1, -1):
        level[row] += doubt[row] / (doubt[row] + 0.05) * (level[row + 1] - level[row])
    return level


@leak("two-sided filter")
def singular_spectrum(frame):
    """The price made of the two strongest patterns of all windows of 16 bars."""
    close = frame["close"].to_numpy()
    anchored = close - close[0]
    windows = lags(anchored, 16)
    patterns = np.linalg.svd(windows, full_matrices=False)[2][:2]
    return (windows @ patterns.T @ patterns)[:, 0]


# Scaling by all rows.


@leak("scaled by all rows", "Kronos 227")
def z_score_of_all(frame):
    return (frame["close"] - frame["close"].mean()) / (frame["close"].std(ddof=0) + TINY)


@leak("scaled by all rows")
def min_max_of_all(frame):
    low, high = frame["close"].min(), frame["close"].max()
    return (frame["close"] - low) / (high - low + TINY)


@leak("scaled by all rows")
def robust_scaling_of_all(frame):
    quarter, middle, rest = frame["volume"].quantile([0.25, 0.5, 0.75])
    return (frame["volume"] - middle) / (rest - quarter + 1)


@leak("scaled by all rows")
def returns_by_volatility_of_all(frame):
    change = returns(frame)
    return change / (change.std(ddof=0) + TINY)


@leak("scaled by all rows")
def below_highest_close(frame):
    return frame["close"] / frame.close.max() - 1


@leak("scaled by all rows")
def relative_to_last_close(frame):
    return frame["close"] / frame["close"].iloc[-1] - 1


@leak("scaled by all rows")
def demeaned_then_rolled(frame):
    demeaned = frame["volume"] - frame["volume"].mean()
    return demeaned.rolling(10, min_periods=1).mean()


@leak("scaled by all rows")
def winsorized_by_all(frame):
    change = returns(frame)
    return change.clip(change.quantile(0.05), change.quantile(0.95))


@leak("scaled by all rows", "Kronos 227")
def z_score_of_window_with_horizon(frame):
    """Each stretch of 64 bars is scaled by its own mean, later bars of the stretch included."""
    stretch = frame["close"].groupby(np.arange(len(frame)) // 64)
    return (frame["close"] - stretch.transform("mean")) / (stretch.transform("std", ddof=0) + TINY)


@leak("scaled by all rows")
def missing_filled_with_mean_of_all(frame):
    quiet = frame["volume"] < frame["volume"].rolling(20, min_periods=1).median()
    spread = frame["spread"].mask(quiet)
    return spread.fillna(spread.mean())


@leak("scaled by all rows")
def deseasonalised_by_all(frame):
    return frame["volume"] / frame["volume"].groupby(slot(frame)).transform("mean")


# Order by all rows.


@leak("ranked among all rows")
def rank_of_all(frame):
    return frame["close"].rank(pct=True)


@leak("ranked among all rows")
def quantile_bins(frame):
    return pd.qcut(returns(frame), 10, labels=False, duplicates="drop").fillna(0)


@leak("ranked among all rows")
def histogram_bins(frame):
    return np.digitize(frame["close"], np.histogram_bin_edges(frame["close"], bins=20))


@leak("ranked among all rows")
def uniform_by_sorted_values(frame):
    ordered = np.sort(frame["volume"].to_numpy())
    return np.searchsorted(ordered, frame["volume"].to_numpy()) / len(ordered)


@leak("ranked among all rows")
def order_of_next_volume(frame):
    order = frame["volume"].shift(-1).fillna(0.0).sort_values(kind="stable")
    return pd.Series(np.arange(len(order)), index=order.index).sort_index()


@leak("ranked among all rows")
def top_volume_of_all(frame):
    return frame.index.isin(frame["volume"].nlargest(max(1, len(frame) // 10)).index)


# Models that are fitted on all rows.


@leak("fitted on all rows")
def principal_component(frame):
    features = np.column_stack([lags(returns(frame).to_numpy(), 5), np.log(frame["volume"])])
    centred = features - features.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    first = vectors[:, -1]
    return centred @ (first * np.sign(first[np.argmax(np.abs(first))]))


@leak("fitted on all rows", "pandas-ta 667")
def bands_of_regression_over_all(frame):
    at = np.arange(len(frame))
    line = np.polyval(np.polyfit(at, frame["close"], 1), at) if len(frame) > 1 else frame["close"].to_numpy()
    spread = frame["close"].std(ddof=0)
    return pd.DataFrame({"line": line, "upper": line + spread, "lower": line - spread})


@leak("fitted on all rows")
def polynomial_detrended(frame):
    at = np.linspace(-1, 1, len(frame))
    degree = min(3, len(frame) - 1)
    return frame["close"] - np.polynomial.Chebyshev.fit(at, frame["close"], degree, domain=[-1, 1])(at)


@leak("fitted on all rows")
def regression_of_next_return(frame):
    features = lags(returns(frame).to_numpy(), 6)
    weights = np.linalg.lstsq(features, next_return(frame).to_numpy(), rcond=None)[0]
    return features @ weights


@leak("fitted on all rows")
def clusters(frame):
    features = np.column_stack([returns(frame) * 1000, np.log(frame["volume"])])
    centres = np.quantile(features, [0.1, 0.5, 0.9], axis=0)
    for _ in range(10):
        nearest = ((features[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        centres = np.array([features[nearest == at].mean(axis=0) if (nearest == at).any() else centre
                            for at, centre in enumerate(centres)])
    return np.sqrt(((features - centres[nearest]) ** 2).sum(axis=1))


@leak("fitted on all rows")
def target_encoding(frame):
    return next_return(frame).groupby(slot(frame)).transform("mean")


@leak("fitted on all rows")
def out_of_fold_encoding(frame):
    """Each fold gets the mean of the other folds, of which some lie after it."""
    fold, ahead = np.arange(len(frame)) % 5, next_return(frame).to_numpy()
    up = (returns(frame) > 0).to_numpy()
    encoded = np.zeros(len(frame))
    for one in range(5):
        for side in (False, True):
            others = ahead[(fold != one) & (up == side)]
            encoded[(fold == one) & (up == side)] = others.mean() if len(others) else 0.0
    return encoded


@leak("fitted on all rows")
def window_chosen_by_outcome(frame):
    ahead, best = next_return(frame, 5), None
    for window in (5, 10, 20, 40):
        distance = (frame["close"] / frame["close"].rolling(window, min_periods=1).mean() - 1)
        score = abs((distance * ahead).sum()) / np.sqrt((distance**2).sum() + TINY)
        if best is None or score > best[0]:
            best = (score, distance)
    return best[1] * best[0]


@leak("fitted on all rows")
def autoregression(frame):
    change = returns(frame)
    weight = (change * change.shift(1, fill_value=0.0)).sum() / ((change**2).sum() + TINY)
    return weight * change


@leak("fitted on all rows")
def regime_by_break(frame):
    """The one break that splits all rows best, and the mean on either side."""
    close = frame["close"].to_numpy()
    apart = np.cumsum(close - close.mean())
    at = int(np.argmax(np.abs(apart)))
    return np.where(np.arange(len(close)) <= at, close[:at + 1].mean(), close[at:].mean())


@leak("fitted on all rows")
def window_of_strongest_cycle(frame):
    strength = np.abs(np.fft.rfft(returns(frame)))
    strength[:len(frame) // 40 + 1] = 0
    period = len(frame) / max(1, int(np.argmax(strength)))
    weight = 2 / (period + 1)
    return frame["close"].ewm(alpha=weight, adjust=False).mean() - frame["close"]


@leak("sample weights")
def mean_weighted_by_outcome(frame):
    weight = next_return(frame).abs() + 1e-6
    return (returns(frame) * weight).rolling(20, min_periods=1).sum() / weight.rolling(20, min_periods=1).sum()


# Values of a longer period at its start.


@leak("longer bars too early", "torchtrade 10")
def four_hours_joined_at_start(frame):
    slow = frame.resample("4h", on="time", label="left")["close"].last().dropna()
    return frame["time"].dt.floor("4h").map(slow)


@leak("longer bars too early", "freqtrade 11346")
def two_hours_merged_by_open_time(frame):
    slow = frame.resample("2h", on="time")["close"].last().dropna().ewm(span=5).mean().rename("slow").reset_index()
    return pd.merge_asof(frame, slow, on="time", direction="backward")["slow"]


@leak("longer bars too early")
def four_hours_high(frame):
    return frame["high"].groupby(frame["time"].dt.floor("4h")).transform("max") - frame["close"]


@leak("longer bars too early")
def next_close_of_four_hours(frame):
    slow = frame.resample("4h", on="time", label="right")["close"].last().dropna().rename("slow")
    slow = slow.rename_axis("close_time").reset_index()
    slow = slow[slow["close_time"] <= frame["close_time"].iloc[-1]]
    merged = pd.merge_asof(frame, slow, on="close_time", direction="forward")["slow"]
    return merged.fillna(frame["close"])


@leak("longer bars too early")
def nearest_sparse_bar(frame):
    sparse = frame.iloc[::12][["close_time", "close"]].rename(columns={"close": "sparse"})
    return pd.merge_asof(frame, sparse, on="close_time", direction="nearest")["sparse"]


@leak("longer bars too early")
def four_hours_found_off_by_one(frame):
    slow = frame.resample("4h", on="time", label="right")["close"].last().dropna()
    at = np.searchsorted(slow.index.as_unit("ns").asi8, frame["close_time"].astype("int64"), side="left")
    return slow.to_numpy()[at]


@leak("longer bars too early")
def last_of_two_hours(frame):
    block = frame["time"].dt.floor("2h")
    kept = frame.assign(block=block).drop_duplicates("block", keep="last").set_index("block")["volume"]
    return block.map(kept)


@leak("whole day")
def share_of_day_high(frame):
    return frame["close"] / frame["high"].groupby(day(frame)).transform("max") - 1


@leak("whole day")
def distance_to_day_mean(frame):
    return frame["close"] - frame["close"].groupby(day(frame)).transform("mean")


@leak("whole day")
def rank_in_day(frame):
    return frame["close"].groupby(day(frame)).rank(pct=True)


@leak("whole day")
def return_to_day_close(frame):
    return frame["close"].groupby(day(frame)).transform("last") / frame["close"] - 1


@leak("whole day")
def share_of_day_volume(frame):
    return frame["volume"] / frame["volume"].groupby(day(frame)).transform("sum")


@leak("whole day")
def vwap_by_full_volume(frame):
    price = (frame["high"] + frame["low"] + frame["close"]) / 3
    paid = (price * frame["volume"]).groupby(day(frame)).cumsum()
    return paid / frame["volume"].groupby(day(frame)).transform("sum")


@leak("whole day")
def volume_at_price_of_day(frame):
    """How much of the day's volume was traded within 5 pips of this close."""
    near = np.zeros(len(frame))
    for rows in frame.groupby(day(frame)).indices.values():
        close, volume = frame["close"].to_numpy()[rows], frame["volume"].to_numpy()[rows]
        near[rows] = (np.abs(close[:, None] - close) < 5e-4) @ volume / volume.sum()
    return near


@leak("whole day")
def day_kind(frame):
    opened, closed = (frame[name].groupby(day(frame)) for name in ("open", "close"))
    return (closed.transform("last") > opened.transform("first")).astype("int8")


# Where the frame ends, and what comes after a row.


@leak("end of the frame")
def position_in_frame(frame):
    return np.arange(len(frame)) / len(frame)


@leak("end of the frame", "pandas-ta-classic 150")
def window_grows_to_the_end(frame):
    """The length of each window goes by how many rows the frame has."""
    total = np.concatenate([[0.0], np.cumsum(frame["close"].to_numpy())])
    end = np.arange(1, len(frame) + 1)
    start = np.maximum(end - np.linspace(2, 40, len(frame)).astype(int), 0)
    return (total[end] - total[start]) / (end - start)


@leak("end of the frame")
def volume_left(frame):
    return frame["volume"][::-1].cumsum()[::-1]


@leak("end of the frame")
def highest_yet_to_come(frame):
    return frame["high"][::-1].expanding().max()[::-1] / frame["close"] - 1


@leak("end of the frame")
def bars_left_in_day(frame):
    return frame.groupby(day(frame)).cumcount(ascending=False)


@leak("end of the frame")
def weights_by_age_in_frame(frame):
    age = len(frame) - 1 - np.arange(len(frame))
    return returns(frame) * 0.99**age * 100


@leak("next row's time")
def month_ends_here(frame):
    month = frame["time"].dt.month
    return month.ne(month.shift(-1))


@leak("next row's time")
def no_bar_follows_at_once(frame):
    return frame["time"].shift(-1) != frame["close_time"]


# Events that are marked before they are known.


@leak("event marked early")
def zigzag(frame):
    """A turning point is marked at its bar, though it is known only once the price has turned."""
    close = frame["close"].to_numpy()
    marks, at, side = np.zeros(len(close)), 0, 1
    for row in range(1, len(close)):
        if side * (close[row] - close[at]) > 0:
            at = row
        elif side * (close[at] - close[row]) > 0.001 * close[at]:
            marks[at], at, side = side, row, -side
    return marks


@leak("event marked early")
def fractal(frame):
    return (frame["high"] == frame["high"].rolling(5, center=True).max()).astype(float)


@leak("event marked early")
def level_of_last_fractal(frame):
    low = frame["low"]
    turn = (low < low.shift(1)) & (low < low.shift(2)) & (low < low.shift(-1)) & (low < low.shift(-2))
    return low.where(turn).ffill().fillna(low.iloc[0])


@leak("event marked early")
def trend_relabelled(frame):
    """Each run of at least six bars on one side of the mean is a trend from its first bar on."""
    above = frame["close"] > frame["close"].rolling(20, min_periods=1).mean()
    run = (above != above.shift()).cumsum()
    return (run.groupby(run).transform("size") >= 6).astype(int)


@leak("label as feature")
def label(frame):
    return (frame["close"].shift(-5) > frame["close"]).astype(int)


@leak("label as feature")
def barrier_reached_first(frame):
    close, high, low = (frame[name].to_numpy() for name in ("close", "high", "low"))
    first = np.zeros(len(close))
    for row in range(len(close)):
        up, down = high[row + 1:row + 21] > close[row] + 1e-3, low[row + 1:row + 21] < close[row] - 1e-3
        if up.any() or down.any():
            first[row] = 1.0 if not down.any() or up.any() and up.argmax() < down.argmax() else -1.0
    return first


# Gaps that are filled from behind.


@leak("filled from behind")
def backfilled_events(frame):
    busy = frame["volume"] > frame["volume"].rolling(20, min_periods=1).mean() * 1.3
    return frame["close"].where(busy).bfill().fillna(frame["close"])


@leak("filled from behind")
def interpolated_both_ways(frame):
    known = frame["close"].where(np.arange(len(frame)) % 8 == 0)
    return known.interpolate(limit_direction="both")


@leak("filled from behind")
def upsampled_and_interpolated(frame):
    at = np.arange(len(frame))
    return np.interp(at, at[::16], frame["close"].to_numpy()[::16])


@leak("filled from behind")
def warm_up_backfilled(frame):
    """Only the first 49 rows look ahead."""
    return frame["close"].rolling(50).mean().bfill()


# Leaks that hide.


@leak("some rows only")
def only_on_fridays(frame):
    friday = frame["time"].dt.day_of_week == 4
    return returns(frame).rolling(5, min_periods=1).sum().mask(friday, next_return(frame))


@leak("some rows only")
def only_at_extreme_volume(frame):
    extreme = frame["volume"] >= frame["volume"].rolling(50, min_periods=1).max()
    return returns(frame).mask(extreme, next_return(frame, 4))


@leak("some rows only")
def only_late_in_day(frame):
    late = slot(frame) >= 22 * 60 + 45
    close = frame["close"].groupby(day(frame)).transform("last")
    return (frame["close"] - frame["open"]).mask(late, close - frame["close"])


@leak("some rows only")
def one_row_in_hundred_20_bars(frame):
    rare = np.arange(len(frame)) % 100 == 7
    return returns(frame).mask(rare, next_return(frame, 20))


@leak("some rows only")
def one_row_in_hundred_next_bar(frame):
    rare = np.arange(len(frame)) % 100 == 7
    return returns(frame).mask(rare, next_return(frame))


@leak("some rows only")
def only_in_calm_markets(frame):
    calm = returns(frame).rolling(20, min_periods=1).std() < 2e-4
    return frame["spread"].mask(calm, frame["spread"].shift(-2).fillna(frame["spread"]))


@leak("some rows only")
def only_before_large_moves(frame):
    ahead = next_return(frame, 3)
    return np.where(ahead.abs() > 2e-3, np.sign(ahead), 0.0)


@leak("small leak")
def thousandth_of_next_return(frame):
    momentum = frame["close"] / frame["close"].rolling(20, min_periods=1).mean() - 1
    return momentum + 0.001 * next_return(frame)


@leak("small leak")
def millionth_of_next_volume(frame):
    volume = frame["volume"].rolling(10, min_periods=1).mean()
    return volume + 1e-6 * frame["volume"].shift(-1).fillna(0.0)


@leak("small leak")
def flag_flipped_by_next_return(frame):
    return ((returns(frame) > 0) ^ (next_return(frame) > 2e-4)).astype(int)


@leak("small leak")
def one_column_of_eight(frame):
    means = {f"mean_{window}": frame["close"].rolling(window, min_periods=1).mean() for window in range(2, 9)}
    return {**means, "mean_9": frame["close"].rolling(9, min_periods=1, center=True).mean()}


# Other libraries.


@leak("shift back", library="polars")
def polars_shift(frame):
    return frame["close"].shift(-1).fill_null(strategy="forward")


@leak("whole day", library="polars")
def polars_over_day(frame):
    high = pl.col("high").max().over(pl.col("time").dt.truncate("1d"))
    return frame.select((pl.col("close") / high).alias("of_high"))


@leak("centred window", library="polars")
def polars_centred(frame):
    return frame["close"].rolling_mean(9, center=True, min_samples=1)


@leak("filled from behind", library="polars")
def polars_backward_fill(frame):
    busy = frame["volume"] > 1.2 * frame["volume"].rolling_mean(20, min_samples=1)
    known = pl.when(busy).then(pl.col("close"))
    return frame.select(known.fill_null(strategy="backward").fill_null(0.0).alias("filled"))


@leak("longer bars too early", library="polars")
def polars_dynamic_groups(frame):
    slow = frame.group_by_dynamic("time", every="4h", label="left").agg(pl.col("close").last().alias("slow"))
    return frame.join_asof(slow, on="time", strategy="backward").select("slow")


@leak("ranked among all rows", library="polars")
def polars_rank(frame):
    return frame["close"].rank() / len(frame)


@leak("end of the frame", library="polars")
def polars_reverse_sum(frame):
    return frame["volume"].cum_sum(reverse=True)


@leak("scaled by all rows", library="pyarrow")
def arrow_min_max(table):
    ends = pc.min_max(table["close"])
    width = ends["max"].as_py() - ends["min"].as_py() + TINY
    return pa.table({"scaled": pc.divide(pc.subtract(table["close"], ends["min"]), width)})


@leak("shift back", library="pyarrow")
def arrow_slice(table):
    close = table["close"].combine_chunks()
    return pa.table({"ahead": pa.concat_arrays([close.slice(1), close.slice(len(close) - 1)])})
