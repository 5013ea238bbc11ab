"""Functions that use nothing after a bar's close: usual indicators, and some that only look guilty.

The guilty-looking ones move rows back and forth, correlate with what follows because prices trend,
or round differently when other bars follow. None of them uses a value of a later bar.
"""

from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from case import Case, register

CLEAN: list[Case] = []
clean = partial(register, CLEAN)
TINY = 1e-12


def day(frame: pd.DataFrame) -> pd.Series:
    return frame["time"].dt.floor("D")


def slot(frame: pd.DataFrame) -> pd.Series:
    """Minutes since midnight."""
    return frame["time"].dt.hour * 60 + frame["time"].dt.minute


def returns(frame: pd.DataFrame) -> pd.Series:
    """Log returns, 0 at the first bar."""
    return np.log(frame["close"]).diff().fillna(0.0)


def typical(frame: pd.DataFrame) -> pd.Series:
    return (frame["high"] + frame["low"] + frame["close"]) / 3


def wilder(values: pd.Series, window: int) -> pd.Series:
    return values.ewm(alpha=1 / window, adjust=False).mean()


def true_range(frame: pd.DataFrame) -> pd.Series:
    before = frame["close"].shift().fillna(frame["open"])
    return np.maximum(frame["high"], before) - np.minimum(frame["low"], before)


def weighted(values: pd.Series, weights: np.ndarray) -> pd.Series:
    """The weighted mean of as many last values as there are weights, the oldest first."""
    parts = (values.shift(len(weights) - 1 - at) * weight for at, weight in enumerate(weights))
    return sum(parts) / weights.sum()


def linear(values: pd.Series, window: int) -> pd.Series:
    return weighted(values, np.arange(1.0, window + 1))


def trailing(values: np.ndarray, window: int) -> np.ndarray:
    """A row for each value: the window that ends with it, the first value repeated before it."""
    padded = np.concatenate([np.full(window - 1, values[0]), values])
    return np.lib.stride_tricks.sliding_window_view(padded, window)


# Moving averages.


@clean("moving average", window=(5, 10, 20, 50))
def sma(frame, window):
    return frame["close"].rolling(window).mean()


@clean("moving average", window=(8, 20, 40))
def sma_distance(frame, window):
    return frame["close"] / frame["close"].rolling(window).mean() - 1


@clean("moving average", span=(5, 12, 26, 50), adjust=(True, False))
def ema(frame, span, adjust):
    return frame["close"].ewm(span=span, adjust=adjust).mean()


@clean("moving average", window=(10, 30))
def wma(frame, window):
    return linear(frame["close"], window)


@clean("moving average", window=(12, 30))
def wma_by_apply(frame, window):
    weights = np.arange(1.0, window + 1)
    return frame["close"].rolling(window).apply(lambda part: part @ weights / weights.sum(), raw=True)


@clean("moving average", span=(10, 20))
def dema(frame, span):
    once = frame["close"].ewm(span=span, adjust=False).mean()
    return 2 * once - once.ewm(span=span, adjust=False).mean()


@clean("moving average", span=(10, 20))
def tema(frame, span):
    once = frame["close"].ewm(span=span, adjust=False).mean()
    twice = once.ewm(span=span, adjust=False).mean()
    return 3 * once - 3 * twice + twice.ewm(span=span, adjust=False).mean()


@clean("moving average", window=(16, 36))
def hull(frame, window):
    fast, slow = linear(frame["close"], window // 2), linear(frame["close"], window)
    return linear(2 * fast - slow, int(window**0.5))


@clean("moving average", "bukosabino/ta 181", window=(10, 20))
def kama(frame, window):
    close = frame["close"].to_numpy()
    steps = np.abs(np.diff(close, prepend=close[0]))
    mean = close.copy()
    for row in range(1, len(close)):
        first = max(0, row - window)
        speed = abs(close[row] - close[first]) / (steps[first + 1:row + 1].sum() + TINY)
        weight = (speed * (2 / 3 - 2 / 31) + 2 / 31) ** 2
        mean[row] = mean[row - 1] + weight * (close[row] - mean[row - 1])
    return mean


@clean("moving average", window=(10, 20))
def triangular(frame, window):
    return frame["close"].rolling(window).mean().rolling(window).mean()


@clean("moving average", window=(10, 30))
def volume_weighted(frame, window):
    return (frame["close"] * frame["volume"]).rolling(window).sum() / frame["volume"].rolling(window).sum()


@clean("moving average", window=(10, 20))
def zero_lag(frame, window):
    moved = 2 * frame["close"] - frame["close"].shift((window - 1) // 2).fillna(frame["close"].iloc[0])
    return moved.ewm(span=window, adjust=False).mean()


@clean("moving average")
def alligator(frame):
    """Smoothed means moved forward, that is to later bars."""
    middle = (frame["high"] + frame["low"]) / 2
    return {"jaw": wilder(middle, 13).shift(8), "teeth": wilder(middle, 8).shift(5), "lips": wilder(middle, 5).shift(3)}


@clean("moving average", windows=((5, 20), (10, 50)))
def crossing(frame, windows):
    fast, slow = (frame["close"].rolling(window).mean() for window in windows)
    return (fast > slow) & (fast.shift() <= slow.shift())


# Oscillators.


@clean("oscillator", window=(7, 14, 21))
def rsi_wilder(frame, window):
    change = frame["close"].diff().fillna(0.0)
    up, down = wilder(change.clip(lower=0.0), window), wilder(-change.clip(upper=0.0), window)
    return 100 * up / (up + down + TINY)


@clean("oscillator", window=(7, 14))
def rsi_simple(frame, window):
    change = frame["close"].diff()
    up, all_of_it = change.clip(lower=0.0).rolling(window).sum(), change.abs().rolling(window).sum()
    return 100 * up / (all_of_it + 1e-9)


@clean("oscillator", window=(5, 14, 30))
def stochastic(frame, window):
    low, high = frame["low"].rolling(window).min(), frame["high"].rolling(window).max()
    k = 100 * (frame["close"] - low) / (high - low + TINY)
    return pd.DataFrame({"stoch_k": k, "stoch_d": k.rolling(3).mean()})


@clean("oscillator", window=(14,))
def stochastic_rsi(frame, window):
    value = rsi_wilder(frame, window)
    low, high = value.rolling(window).min(), value.rolling(window).max()
    return (value - low) / (high - low + 1e-6)


@clean("oscillator", spans=((12, 26, 9), (5, 35, 5)))
def macd_lines(frame, spans):
    fast, slow = (frame["close"].ewm(span=span, adjust=False).mean() for span in spans[:2])
    line = fast - slow
    after = line.ewm(span=spans[2], adjust=False).mean()
    return {"macd_line": line, "macd_after": after, "macd_bars": line - after}


@clean("oscillator")
def percentage_price(frame):
    fast, slow = (frame["close"].ewm(span=span, adjust=False).mean() for span in (12, 26))
    return 100 * (fast - slow) / slow


@clean("oscillator", window=(14, 20))
def cci(frame, window):
    price = typical(frame)
    middle = price.rolling(window).mean()
    spread = price.rolling(window).apply(lambda part: np.abs(part - part.mean()).mean(), raw=True)
    return (price - middle) / (0.015 * spread + 1e-9)


@clean("oscillator", window=(14, 28))
def williams_r(frame, window):
    low, high = frame["low"].rolling(window).min(), frame["high"].rolling(window).max()
    return -100 * (high - frame["close"]) / (high - low + TINY)


@clean("oscillator", window=(1, 5, 20))
def rate_of_change(frame, window):
    return frame["close"].pct_change(window)


@clean("oscillator", window=(9, 20))
def chande_momentum(frame, window):
    change = frame["close"].diff()
    return 100 * change.rolling(window).sum() / (change.abs().rolling(window).sum() + 1e-9)


@clean("oscillator")
def true_strength(frame):
    change = frame["close"].diff().fillna(0.0)
    once = [part.ewm(span=25, adjust=False).mean() for part in (change, change.abs())]
    moved, path = (part.ewm(span=13, adjust=False).mean() for part in once)
    return 100 * moved / (path + TINY)


@clean("oscillator")
def trix(frame):
    value = np.log(frame["close"])
    for _ in range(3):
        value = value.ewm(span=15, adjust=False).mean()
    return value.diff()


@clean("oscillator")
def ultimate(frame):
    low = np.minimum(frame["low"], frame["close"].shift().fillna(frame["open"]))
    pressure, width = frame["close"] - low, true_range(frame)
    parts = [pressure.rolling(window).sum() / (width.rolling(window).sum() + TINY) for window in (7, 14, 28)]
    return 100 * (4 * parts[0] + 2 * parts[1] + parts[2]) / 7


@clean("oscillator")
def awesome(frame):
    middle = (frame["high"] + frame["low"]) / 2
    return middle.rolling(5).mean() - middle.rolling(34).mean()


@clean("oscillator")
def coppock(frame):
    return linear(frame["close"].pct_change(14) + frame["close"].pct_change(11), 10)


@clean("oscillator")
def know_sure_thing(frame):
    changes = (frame["close"].pct_change(lag).rolling(10).mean() for lag in (10, 15, 20, 30))
    return sum(weight * change for weight, change in enumerate(changes, 1))


@clean("oscillator", window=(10, 20))
def fisher_transform(frame, window):
    middle = (frame["high"] + frame["low"]) / 2
    low, high = middle.rolling(window).min(), middle.rolling(window).max()
    place = (2 * (middle - low) / (high - low + TINY) - 1).clip(-0.99, 0.99)
    return np.arctanh(place)


@clean("oscillator", window=(14, 28))
def detrended_price_causal(frame, window):
    """Compares an earlier close with the mean of now."""
    return frame["close"].shift(window // 2 + 1) - frame["close"].rolling(window).mean()


@clean("oscillator")
def balance_of_power(frame):
    return (frame["close"] - frame["open"]) / (frame["high"] - frame["low"] + TINY)


@clean("oscillator")
def elder_ray(frame):
    middle = frame["close"].ewm(span=13, adjust=False).mean()
    return {"bulls": frame["high"] - middle, "bears": frame["low"] - middle}


@clean("oscillator", gamma=(0.5, 0.8))
def laguerre(frame, gamma):
    close = frame["close"].to_numpy()
    levels, value = [close[0]] * 4, np.zeros(len(close))
    for row, price in enumerate(close):
        before = list(levels)
        levels[0] = (1 - gamma) * price + gamma * before[0]
        for at in range(1, 4):
            levels[at] = before[at - 1] - gamma * levels[at - 1] + gamma * before[at]
        steps = -np.diff(levels)
        value[row] = steps.clip(min=0).sum() / (np.abs(steps).sum() + 1e-9)
    return value


# Volatility.


@clean("volatility", window=(7, 14, 28))
def atr(frame, window):
    return wilder(true_range(frame), window)


@clean("volatility", window=(10, 20))
def atr_simple_relative(frame, window):
    return true_range(frame).rolling(window).mean() / frame["close"]


@clean("volatility", window=(10, 20, 50))
def bollinger(frame, window):
    middle, spread = frame["close"].rolling(window).mean(), frame["close"].rolling(window).std(ddof=0)
    place = (frame["close"] - middle) / (spread + 1e-6)
    return pd.DataFrame({"bands_width": 4 * spread / middle, "bands_place": place})


@clean("volatility", window=(10, 20))
def keltner(frame, window):
    middle, reach = frame["close"].ewm(span=window, adjust=False).mean(), 2 * wilder(true_range(frame), window)
    return pd.DataFrame({"keltner_upper": middle + reach, "keltner_lower": middle - reach})


@clean("volatility", window=(10, 20, 50))
def donchian(frame, window):
    upper, lower = frame["high"].rolling(window).max(), frame["low"].rolling(window).min()
    return {"channel_upper": upper, "channel_lower": lower, "channel_middle": (upper + lower) / 2}


@clean("volatility", window=(20, 40))
def garman_klass(frame, window):
    high_low, close_open = np.log(frame["high"] / frame["low"]), np.log(frame["close"] / frame["open"])
    return (0.5 * high_low**2 - (2 * np.log(2) - 1) * close_open**2).rolling(window).mean()


@clean("volatility", window=(20, 40))
def parkinson(frame, window):
    return np.sqrt((np.log(frame["high"] / frame["low"]) ** 2).rolling(window).mean().clip(lower=0.0) / (4 * np.log(2)))


@clean("volatility", window=(20, 40))
def rogers_satchell(frame, window):
    opened, high, low, close = (np.log(frame[name]) for name in ("open", "high", "low", "close"))
    return ((high - close) * (high - opened) + (low - close) * (low - opened)).rolling(window).mean()


@clean("volatility", window=(20,))
def yang_zhang(frame, window):
    night = np.log(frame["open"] / frame["close"].shift().fillna(frame["open"]))
    bar = np.log(frame["close"] / frame["open"])
    weight = 0.34 / (1.34 + (window + 1) / (window - 1))
    within = rogers_satchell(frame, window)
    return night.rolling(window).var() + weight * bar.rolling(window).var() + (1 - weight) * within


@clean("volatility", window=(10, 30))
def realised(frame, window):
    return np.sqrt((returns(frame) ** 2).rolling(window).sum().clip(lower=0.0))


@clean("volatility", span=(20, 40))
def exponential_deviation(frame, span):
    return returns(frame).ewm(span=span).std().fillna(0.0)


@clean("volatility")
def garch_with_fixed_weights(frame):
    change, value = returns(frame).to_numpy(), 1e-7
    made = np.zeros(len(change))
    for row, one in enumerate(change):
        value = 1e-9 + 0.08 * one**2 + 0.9 * value
        made[row] = value
    return np.sqrt(made)


@clean("volatility", window=(14, 28))
def choppiness(frame, window):
    width = frame["high"].rolling(window).max() - frame["low"].rolling(window).min()
    return 100 * np.log10(true_range(frame).rolling(window).sum() / (width + TINY)) / np.log10(window)


@clean("volatility")
def ulcer(frame):
    fall = frame["close"] / frame["close"].rolling(14).max() - 1
    return np.sqrt((fall**2).rolling(14).mean().clip(lower=0.0))


@clean("volatility")
def mass_index(frame):
    width = (frame["high"] - frame["low"]).ewm(span=9, adjust=False).mean()
    return (width / (width.ewm(span=9, adjust=False).mean() + TINY)).rolling(25).sum()


@clean("volatility")
def corwin_schultz(frame):
    """The spread by the ranges of two bars."""
    one = np.log(frame["high"] / frame["low"]) ** 2
    two = np.log(frame["high"].rolling(2).max() / frame["low"].rolling(2).min()) ** 2
    both, base = one + one.shift(), 3 - 2 * 2**0.5
    alpha = (np.sqrt(2 * both) - np.sqrt(both)) / base - np.sqrt(two / base)
    return (2 * (np.exp(alpha) - 1) / (1 + np.exp(alpha))).clip(lower=0.0)


# Trend.


@clean("trend", window=(7, 14))
def adx(frame, window):
    up, down = frame["high"].diff().fillna(0.0), -frame["low"].diff().fillna(0.0)
    reach = wilder(true_range(frame), window) + TINY
    plus = 100 * wilder(up.where((up > down) & (up > 0), 0.0), window) / reach
    minus = 100 * wilder(down.where((down > up) & (down > 0), 0.0), window) / reach
    strength = wilder(100 * (plus - minus).abs() / (plus + minus + 1e-6), window)
    return pd.DataFrame({"di_plus": plus, "di_minus": minus, "adx_value": strength})


@clean("trend", window=(14, 25))
def aroon(frame, window):
    up = frame["high"].rolling(window + 1).apply(np.argmax, raw=True)
    down = frame["low"].rolling(window + 1).apply(np.argmin, raw=True)
    return pd.DataFrame({"aroon_up": 100 * up / window, "aroon_down": 100 * down / window})


@clean("trend", window=(14,))
def vortex(frame, window):
    reach = true_range(frame).rolling(window).sum()
    plus = (frame["high"] - frame["low"].shift()).abs().rolling(window).sum()
    minus = (frame["low"] - frame["high"].shift()).abs().rolling(window).sum()
    return {"vortex_plus": plus / reach, "vortex_minus": minus / reach}


@clean("trend", "pandas-ta 326")
def ichimoku_without_lookahead(frame):
    def middle(window):
        return (frame["high"].rolling(window).max() + frame["low"].rolling(window).min()) / 2

    return {"tenkan": middle(9), "kijun": middle(26), "span_a": ((middle(9) + middle(26)) / 2).shift(26),
            "span_b": middle(30).shift(26), "chikou": frame["close"] / frame["close"].shift(26) - 1}


@clean("trend")
def parabolic_sar(frame):
    high, low = frame["high"].to_numpy(), frame["low"].to_numpy()
    stop, best, step, up = low[0], high[0], 0.02, True
    made = np.zeros(len(high))
    for row in range(len(high)):
        stop += step * (best - stop)
        if up and low[row] < stop or not up and high[row] > stop:
            up, stop, step = not up, best, 0.02
            best = high[row] if up else low[row]
        elif up and high[row] > best or not up and low[row] < best:
            best, step = (high[row] if up else low[row]), min(step + 0.02, 0.2)
        made[row] = stop
    return made


@clean("trend", factor=(2, 3))
def supertrend(frame, factor):
    middle, reach = ((frame["high"] + frame["low"]) / 2).to_numpy(), factor * wilder(true_range(frame), 10).to_numpy()
    close, up = frame["close"].to_numpy(), True
    upper, lower = middle + reach, middle - reach
    line = np.zeros(len(close))
    for row in range(len(close)):
        if row:
            lower[row] = max(lower[row], lower[row - 1]) if close[row - 1] > lower[row - 1] else lower[row]
            upper[row] = min(upper[row], upper[row - 1]) if close[row - 1] < upper[row - 1] else upper[row]
            up = close[row] > lower[row] if up else close[row] > upper[row]
        line[row] = lower[row] if up else upper[row]
    return line


@clean("trend")
def heikin_ashi(frame):
    close = frame[["open", "high", "low", "close"]].mean(axis=1).to_numpy()
    opened = close.copy()
    for row in range(1, len(close)):
        opened[row] = (opened[row - 1] + close[row - 1]) / 2
    return {"ha_body": close - opened, "ha_up": close > opened}


@clean("trend", brick=(5e-4, 2e-3))
def renko(frame, brick):
    close = frame["close"].to_numpy()
    level, made = close[0], np.zeros(len(close))
    for row, price in enumerate(close):
        level += np.trunc((price - level) / brick) * brick
        made[row] = level
    return made


@clean("trend", window=(10, 20, 50))
def slope(frame, window):
    weights = np.arange(window) - (window - 1) / 2
    close = np.log(frame["close"])
    return sum(weight * close.shift(window - 1 - at) for at, weight in enumerate(weights)) / (weights**2).sum()


@clean("trend", window=(20, 50))
def efficiency(frame, window):
    change = frame["close"].diff()
    return frame["close"].diff(window).abs() / (change.abs().rolling(window).sum() + 1e-9)


@clean("correlates with what follows", window=(20, 50))
def momentum(frame, window):
    """Prices trend in these bars, so that this correlates with the returns that follow."""
    return np.log(frame["close"]).diff(window)


@clean("correlates with what follows")
def drift_estimated(frame):
    change = returns(frame)
    return change.ewm(span=60, adjust=False).mean() / (change.abs().ewm(span=60, adjust=False).mean() + 1e-7)


@clean("correlates with what follows")
def side_of_means(frame):
    return sum(np.sign(frame["close"] - frame["close"].rolling(window).mean()) for window in (10, 20, 30, 40, 50))


# Volume.


@clean("volume")
def on_balance_volume(frame):
    return (np.sign(frame["close"].diff().fillna(0.0)) * frame["volume"]).cumsum()


@clean("volume")
def accumulation(frame):
    place = (2 * frame["close"] - frame["high"] - frame["low"]) / (frame["high"] - frame["low"] + TINY)
    return (place * frame["volume"]).cumsum()


@clean("volume", window=(20,))
def chaikin_money_flow(frame, window):
    place = (2 * frame["close"] - frame["high"] - frame["low"]) / (frame["high"] - frame["low"] + TINY)
    return (place * frame["volume"]).rolling(window).sum() / frame["volume"].rolling(window).sum()


@clean("volume", window=(14, 28))
def money_flow(frame, window):
    price = typical(frame)
    flow, change = price * frame["volume"], price.diff()
    up, down = flow.where(change > 0, 0.0).rolling(window).sum(), flow.where(change < 0, 0.0).rolling(window).sum()
    return 100 * up / (up + down + 1)


@clean("volume")
def vwap_of_day_so_far(frame):
    groups = day(frame)
    paid = (typical(frame) * frame["volume"]).groupby(groups).cumsum()
    return paid / frame["volume"].groupby(groups).cumsum()


@clean("volume", window=(20, 50))
def vwap_rolling(frame, window):
    return (typical(frame) * frame["volume"]).rolling(window).sum() / frame["volume"].rolling(window).sum()


@clean("volume")
def force(frame):
    return (frame["close"].diff().fillna(0.0) * frame["volume"]).ewm(span=13, adjust=False).mean()


@clean("volume")
def price_volume_trend(frame):
    return (frame["close"].pct_change().fillna(0.0) * frame["volume"]).cumsum()


@clean("volume")
def ease_of_movement(frame):
    moved = ((frame["high"] + frame["low"]) / 2).diff().fillna(0.0)
    return (moved * (frame["high"] - frame["low"]) / frame["volume"] * 1e6).rolling(14).mean()


@clean("volume")
def negative_volume_index(frame):
    change = frame["close"].pct_change().fillna(0.0).where(frame["volume"].diff() < 0, 0.0)
    return 1000 * (1 + change).cumprod()


@clean("volume", window=(20,))
def amihud(frame, window):
    return (returns(frame).abs() / frame["volume"]).rolling(window).mean()


@clean("volume", window=(20, 50))
def relative_volume_mean(frame, window):
    return frame["volume"] / frame["volume"].rolling(window).mean()


@clean("volume")
def volume_against_same_slot_before(frame):
    """The mean of earlier days at this time of the day, 1 on the first day."""
    before = frame["volume"].groupby(slot(frame)).transform(lambda part: part.shift().rolling(5, min_periods=1).mean())
    return (frame["volume"] / before).fillna(1.0)


@clean("volume", window=(30,))
def kyle_lambda(frame, window):
    signed = np.sign(returns(frame)) * np.sqrt(frame["volume"])
    return (returns(frame) * signed).rolling(window).mean() / ((signed**2).rolling(window).mean() + 1)


@clean("volume")
def spread_relative(frame):
    return frame["spread"] / (frame["spread"].rolling(30).mean() + 1e-9)


# Statistics of windows and of all bars so far.


@clean("statistic", window=(20, 50))
def rolling_z_score(frame, window):
    part = frame["close"].rolling(window)
    return (frame["close"] - part.mean()) / (part.std() + 1e-6)


@clean("statistic", window=(20, 50))
def rolling_rank(frame, window):
    return frame["close"].rolling(window).rank(pct=True)


@clean("statistic", "pandas-ta 667", window=(20, 50))
def rolling_skew(frame, window):
    return frame["volume"].rolling(window).skew()


@clean("statistic", "pandas-ta 667", window=(20, 50))
def rolling_kurtosis(frame, window):
    return frame["volume"].rolling(window).kurt()


@clean("statistic", share=(0.1, 0.9))
def rolling_quantile(frame, share):
    return frame["close"].rolling(30).quantile(share)


@clean("statistic", window=(20, 50))
def correlation_of_close_and_volume(frame, window):
    return frame["close"].rolling(window).corr(frame["volume"])


@clean("statistic", window=(50,))
def beta_to_volume(frame, window):
    change = np.log(frame["volume"]).diff().fillna(0.0)
    return returns(frame).rolling(window).cov(change) / (change.rolling(window).var() + 1e-6)


@clean("statistic", lag=(1, 5))
def autocorrelation(frame, lag):
    change = returns(frame)
    return change.rolling(40).corr(change.shift(lag))


@clean("statistic", window=(20, 40))
def entropy_of_signs(frame, window):
    share = (returns(frame) > 0).rolling(window).mean().clip(0.01, 0.99)
    return -(share * np.log(share) + (1 - share) * np.log(1 - share))


@clean("statistic")
def hurst_of_window(frame):
    """How the deviation grows with the distance."""
    close = np.log(frame["close"])
    short, long = (close.diff(lag).rolling(40).std() + 1e-9 for lag in (2, 8))
    return np.log(long / short) / np.log(4)


@clean("statistic", window=(30,))
def median_deviation(frame, window):
    middle = frame["close"].rolling(window).median()
    return (frame["close"] - middle) / ((frame["close"] - middle).abs().rolling(window // 3).median() + 1e-5)


@clean("statistic")
def expanding_z_score(frame):
    part = frame["close"].expanding(min_periods=10)
    return (frame["close"] - part.mean()) / (part.std() + 1e-6)


@clean("statistic")
def expanding_rank(frame):
    return frame["close"].expanding().rank(pct=True)


@clean("statistic")
def drawdown_so_far(frame):
    return frame["close"] / frame["close"].cummax() - 1


@clean("statistic", share=(0.25, 0.5))
def expanding_quantile(frame, share):
    return frame["volume"] / frame["volume"].expanding().quantile(share)


@clean("statistic")
def expanding_min_max(frame):
    low, high = frame["low"].cummin(), frame["high"].cummax()
    return (frame["close"] - low) / (high - low + TINY)


@clean("statistic")
def winsorized_by_the_past(frame):
    change = returns(frame)
    past = change.expanding(min_periods=20)
    return change.clip(past.quantile(0.05), past.quantile(0.95)).where(past.count() >= 20)


@clean("statistic")
def bins_of_the_past(frame):
    """In which tenth of the values so far this one is."""
    return np.ceil(frame["volume"].expanding().rank(pct=True) * 10).astype("int16")


# Models that see the past alone.


@clean("model of the past", doubt=(0.01, 0.1))
def kalman_filter(frame, doubt):
    close = frame["close"].to_numpy()
    level, made, variance = close[0], np.zeros(len(close)), 1.0
    for row, price in enumerate(close):
        variance += doubt
        gain = variance / (variance + 1)
        level += gain * (price - level)
        variance *= 1 - gain
        made[row] = level
    return made


@clean("model of the past")
def kalman_filter_of_trend(frame):
    close = frame["close"].to_numpy()
    state, cover = np.array([close[0], 0.0]), np.eye(2)
    move, noise = np.array([[1.0, 1.0], [0.0, 1.0]]), np.diag([0.05, 0.001])
    made = np.zeros((len(close), 2))
    for row, price in enumerate(close):
        state, cover = move @ state, move @ cover @ move.T + noise
        gain = cover[:, 0] / (cover[0, 0] + 1)
        state = state + gain * (price - state[0])
        cover = cover - np.outer(gain, cover[0])
        made[row] = state
    return {"level": made[:, 0], "trend": made[:, 1]}


@clean("model of the past")
def recursive_least_squares(frame):
    """Predicts the return from the four before it, and learns from the error."""
    change = returns(frame).to_numpy() * 1000
    weights, inverse, made = np.zeros(4), np.eye(4), np.zeros(len(change))
    for row in range(4, len(change)):
        inputs = change[row - 4:row]
        error = change[row] - inputs @ weights
        gain = inverse @ inputs / (0.99 + inputs @ inverse @ inputs)
        weights = weights + gain * error
        inverse = (inverse - np.outer(gain, inputs @ inverse)) / 0.99
        inverse = (inverse + inverse.T) / 2
        made[row] = change[row - 3:row + 1] @ weights
    return made


@clean("model of the past")
def regression_fitted_again_every_50_bars(frame):
    change = returns(frame).to_numpy()
    inputs, made = trailing(change, 5), np.full(len(change), np.nan)
    for start in range(50, len(change), 50):
        weights = np.linalg.lstsq(inputs[:start - 1], change[1:start], rcond=None)[0]
        made[start:start + 50] = inputs[start:start + 50] @ weights
    return made


@clean("model of the past")
def principal_component_of_the_past(frame):
    """Two columns, and the covariance of the bars so far."""
    first, second = returns(frame) * 1000, np.log(frame["volume"]).diff().fillna(0.0)
    a, b, c = ((left * right).cumsum() for left, right in ((first, first), (first, second), (second, second)))
    angle = 0.5 * np.arctan2(2 * b, a - c)
    return first * np.cos(angle) + second * np.sin(angle)


@clean("model of the past")
def clusters_one_by_one(frame):
    """Each bar moves the centre that is nearest to it."""
    features = np.column_stack([returns(frame) * 1000, np.log(frame["volume"])])
    centres, made = np.array([[-1.0, 6.0], [0.0, 7.0], [1.0, 8.0]]), np.zeros(len(features))
    for row, one in enumerate(features):
        apart = ((centres - one) ** 2).sum(axis=1)
        at = apart.argmin()
        centres[at] += 0.02 * (one - centres[at])
        made[row] = apart[at]
    return made


@clean("model of the past")
def mean_of_hour_so_far(frame):
    """The mean of the earlier returns at this time of the day, 0 on the first day."""
    return returns(frame).groupby(slot(frame)).transform(lambda part: part.shift().expanding().mean()).fillna(0.0)


@clean("model of the past")
def mean_of_weekday_so_far(frame):
    groups = returns(frame).groupby(frame["time"].dt.day_of_week)
    return groups.transform(lambda part: part.shift().expanding().mean()).fillna(0.0)


@clean("model of the past")
def known_outcome_of_label(frame):
    """The label of five bars ago is known by now."""
    won = (frame["close"].shift(-5) > frame["close"]).astype(float)
    return won.shift(5).rolling(20).mean()


@clean("model of the past", window=(32, 48))
def energy_of_trailing_spectrum(frame, window):
    strength = np.abs(np.fft.rfft(trailing(returns(frame).to_numpy(), window), axis=1)) ** 2
    return {"slow_energy": strength[:, 1:4].sum(axis=1), "fast_energy": strength[:, 4:].sum(axis=1)}


@clean("model of the past")
def hodrick_prescott_at_the_end(frame):
    """The trend at the last of 40 bars."""
    second = np.diff(np.eye(40), n=2, axis=0)
    weights = np.linalg.inv(np.eye(40) + 1600 * second.T @ second)[-1]
    return trailing(frame["close"].to_numpy(), 40) @ weights


@clean("model of the past", degree=(1, 2))
def savitzky_golay_at_the_end(frame, degree):
    weights = np.linalg.pinv(np.vander(np.arange(-10, 1), degree + 1))[-1]
    return trailing(frame["close"].to_numpy(), 11) @ weights


@clean("model of the past", order=(0.3, 0.6))
def fractional_difference(frame, order):
    weights = [1.0]
    for lag in range(1, 40):
        weights.append(-weights[-1] * (order - lag + 1) / lag)
    return weighted(np.log(frame["close"]), np.array(weights[::-1])) * sum(weights)


@clean("model of the past", "pandas-ta 667", period=(10, 20))
def super_smoother(frame, period):
    close = frame["close"].to_numpy()
    decay = np.exp(-1.414 * np.pi / period)
    second, third = 2 * decay * np.cos(1.414 * np.pi / period), -decay * decay
    made = close.copy()
    for row in range(2, len(close)):
        made[row] = ((1 - second - third) * (close[row] + close[row - 1]) / 2
                     + second * made[row - 1] + third * made[row - 2])
    return made


# Days, hours and longer bars, each known when it is used.


@clean("calendar")
def range_of_day_so_far(frame):
    groups = day(frame)
    high, low = frame["high"].groupby(groups).cummax(), frame["low"].groupby(groups).cummin()
    return {"day_high_so_far": high, "day_low_so_far": low}


@clean("calendar")
def return_since_day_open(frame):
    return frame["close"] / frame["open"].groupby(day(frame)).transform("first") - 1


@clean("calendar")
def high_of_previous_day(frame):
    days = frame.groupby(day(frame).rename("day"))["high"].max().shift().rename("before").reset_index()
    merged = frame.assign(day=day(frame)).merge(days, on="day", how="left")
    return merged["before"] / merged["close"] - 1


@clean("calendar")
def mean_of_previous_day_by_map(frame):
    means = frame["close"].groupby(day(frame)).mean().shift()
    return day(frame).map(means)


@clean("calendar")
def share_of_previous_day_volume(frame):
    groups = day(frame)
    so_far = frame["volume"].groupby(groups).cumsum()
    return so_far / groups.map(frame["volume"].groupby(groups).sum().shift())


@clean("calendar")
def pivot_points_of_previous_day(frame):
    days = frame.groupby(day(frame)).agg(high=("high", "max"), low=("low", "min"), close=("close", "last")).shift()
    pivot = day(frame).map(days.mean(axis=1))
    return {"pivot": pivot, "first_resistance": 2 * pivot - day(frame).map(days["low"])}


@clean("calendar")
def count_in_day(frame):
    return frame.groupby(day(frame)).cumcount()


@clean("calendar")
def bars_in_day_so_far_by_transform(frame):
    return frame["close"].groupby(day(frame)).transform(lambda part: np.arange(1, len(part) + 1)).astype("int64")


@clean("calendar")
def rank_in_day_so_far(frame):
    return frame["close"].groupby(day(frame)).transform(lambda part: part.expanding().rank(pct=True))


@clean("calendar")
def time_of_day(frame):
    turn = 2 * np.pi * slot(frame) / 1440
    return {"turn_sin": np.sin(turn), "turn_cos": np.cos(turn)}


@clean("calendar")
def day_of_week(frame):
    return frame["time"].dt.day_of_week


@clean("calendar")
def hour_of_close(frame):
    return frame["close_time"].dt.hour.astype("int8")


@clean("calendar", hours=((7, 16), (13, 21)))
def session(frame, hours):
    return frame["time"].dt.hour.between(*hours)


@clean("calendar")
def minutes_since_bar_before(frame):
    return (frame["time"] - frame["close_time"].shift().fillna(frame["time"])).dt.total_seconds() / 60


@clean("calendar")
def first_bar_of_day(frame):
    return day(frame).ne(day(frame).shift()).astype(int)


@clean("calendar")
def last_hour_of_day_by_clock(frame):
    return frame["time"].dt.hour == 23


@clean("calendar")
def days_left_in_month_by_calendar(frame):
    return frame["time"].dt.days_in_month - frame["time"].dt.day


@clean("longer bars", every=("1h", "4h"))
def longer_close_merged_when_closed(frame, every):
    """A bar sees the last bin that ended by its close."""
    slow = frame.resample(every, on="time", label="right")["close"].last().dropna().rename("slow")
    slow = slow.ewm(span=4, adjust=False).mean().rename_axis("close_time").reset_index()
    slow["close_time"] = slow["close_time"].astype(frame["close_time"].dtype)
    return pd.merge_asof(frame, slow, on="close_time", direction="backward")["slow"]


@clean("longer bars", every=("2h", "4h"))
def longer_close_found_by_search(frame, every):
    slow = frame.resample(every, on="time", label="right")["close"].last().dropna()
    closed = slow.index.as_unit("ns").asi8
    at = np.searchsorted(closed, frame["close_time"].astype("int64"), side="right") - 1
    return np.where(at >= 0, slow.to_numpy()[at.clip(min=0)], np.nan)


@clean("longer bars")
def previous_four_hours_high(frame):
    block = frame["time"].dt.floor("4h")
    return block.map(frame["high"].groupby(block).max().shift())


@clean("longer bars")
def four_hours_so_far(frame):
    block = frame["time"].dt.floor("4h")
    return frame["high"].groupby(block).cummax() - frame["low"].groupby(block).cummin()


@clean("longer bars", window=("2h", "6h"))
def rolling_by_time(frame, window):
    return frame.set_index("close_time")["close"].rolling(window).mean().to_numpy()


@clean("longer bars")
def every_12th_bar_carried_forward(frame):
    return frame["close"].where(np.arange(len(frame)) % 12 == 0).ffill()


# Events, each marked when it is known.


@clean("event")
def fractal_confirmed(frame):
    """Marked two bars after its bar."""
    return (frame["high"].shift(2) == frame["high"].rolling(5).max()).astype(int)


@clean("event")
def level_of_confirmed_fractal(frame):
    turn = frame["low"].shift(2) == frame["low"].rolling(5).min()
    return frame["low"].shift(2).where(turn).ffill().fillna(frame["low"].iloc[0])


@clean("event")
def bars_since_confirmed_pivot(frame):
    turn = frame["high"].shift(3) == frame["high"].rolling(7).max()
    return turn.groupby(turn.cumsum()).cumcount()


@clean("event")
def zigzag_side_when_known(frame):
    close = frame["close"].to_numpy()
    made, best, side = np.zeros(len(close)), close[0], 1
    for row, price in enumerate(close):
        if side * (price - best) > 0:
            best = price
        elif side * (best - price) > 0.001 * best:
            best, side = price, -side
        made[row] = side * (best - price) / best + side
    return made


@clean("event", window=(20, 40))
def bars_since_high(frame, window):
    return window - 1 - frame["high"].rolling(window).apply(np.argmax, raw=True)


@clean("event")
def price_of_last_crossing(frame):
    above = frame["close"] > frame["close"].rolling(20, min_periods=1).mean()
    return frame["close"].where(above != above.shift()).ffill() / frame["close"] - 1


@clean("event")
def busy_bars_carried_forward(frame):
    busy = frame["volume"] > 1.3 * frame["volume"].rolling(20, min_periods=1).mean()
    return frame["close"].where(busy).ffill().fillna(frame["close"].iloc[0])


@clean("event")
def shocks_that_fade(frame):
    change = returns(frame)
    shock = change.abs() > 2 * change.abs().rolling(40, min_periods=1).mean()
    return change.where(shock, 0.0).ewm(halflife=6, adjust=False).mean()


@clean("event")
def length_of_run(frame):
    up = frame["close"] > frame["open"]
    run = (up != up.shift()).cumsum()
    return (run.groupby(run).cumcount() + 1) * np.where(up, 1, -1)


@clean("event")
def gap_behind(frame):
    """The gap between the bar before last and this one."""
    return (frame["low"] - frame["high"].shift(2)).clip(lower=0.0)


@clean("bar pattern")
def up_bar(frame):
    return frame["close"] > frame["open"]


@clean("bar pattern")
def side_as_small_integer(frame):
    return np.sign(frame["close"] - frame["open"]).astype("int8")


@clean("bar pattern")
def inside_bar(frame):
    return (frame["high"] < frame["high"].shift()) & (frame["low"] > frame["low"].shift())


@clean("bar pattern")
def engulfing(frame):
    body = frame["close"] - frame["open"]
    return ((body.abs() > body.shift().abs()) & (body * body.shift() < 0)).astype("uint8")


@clean("bar pattern")
def doji(frame):
    return (frame["close"] - frame["open"]).abs() < 0.1 * (frame["high"] - frame["low"])


@clean("bar pattern")
def hammer(frame):
    body = (frame["close"] - frame["open"]).abs()
    return (np.minimum(frame["open"], frame["close"]) - frame["low"] > 2 * body).astype(float)


@clean("bar pattern")
def narrowest_of_seven(frame):
    width = frame["high"] - frame["low"]
    return width == width.rolling(7).min()


@clean("bar pattern")
def three_of_one_side(frame):
    up = (frame["close"] > frame["open"]).astype(int)
    return (up.rolling(3).sum() == 3).astype(int) - (up.rolling(3).sum() == 0).astype(int)


@clean("bar pattern")
def shadows(frame):
    top, bottom = frame[["open", "close"]].max(axis=1), frame[["open", "close"]].min(axis=1)
    return {"shadow_above": frame["high"] - top, "shadow_below": bottom - frame["low"]}


# Values moved to later bars, and moved back and forth.


@clean("moved rows", lags=((1, 2, 3), (5, 10, 20, 50)))
def lagged(frame, lags):
    return pd.DataFrame({f"lag_{lag}": returns(frame).shift(lag) for lag in lags})


@clean("moved rows", window=(5, 21))
def centred_then_moved_forward(frame, window):
    return frame["close"].rolling(window, center=True).mean().shift(window // 2)


@clean("moved rows", by=(1, 3))
def back_and_forth(frame, by):
    return frame["close"].shift(-by).shift(by)


@clean("moved rows")
def reversed_twice(frame):
    return frame["close"][::-1].to_numpy()[::-1] / frame["open"].to_numpy() - 1


@clean("moved rows")
def sorted_and_sorted_back(frame):
    return frame.sort_values("volume").eval("close - open").sort_index()


@clean("moved rows")
def difference_back_then_moved(frame):
    return -frame["close"].diff(-1).shift(1)


@clean("moved rows")
def forward_window_moved(frame):
    window = pd.api.indexers.FixedForwardWindowIndexer(window_size=6)
    return frame["high"].rolling(window, min_periods=6).max().shift(5)


@clean("moved rows")
def rolled_array_with_its_start_cut(frame):
    moved = np.roll(frame["close"].to_numpy(), 4)
    moved[:4] = np.nan
    return moved


@clean("moved rows")
def each_row_by_itself(frame):
    """Each row is computed from a slice that ends with it."""
    close = frame["close"].to_numpy()
    return np.array([close[max(0, row - 9):row + 1].std() for row in range(len(close))])


# Rounding that depends on what follows.


@clean("rounding", window=(10, 30))
def convolution_cut(frame, window):
    change = returns(frame).to_numpy()
    return np.convolve(change, np.hanning(window + 2)[1:-1])[:len(change)]


@clean("rounding", window=(8, 20, 45))
def fourier_convolution(frame, window):
    """The same as a direct sum over the last bars, but all bars take part in the rounding."""
    change = returns(frame).to_numpy()
    size = 2 ** int(np.ceil(np.log2(len(change) + window)))
    parts = np.fft.rfft(change, size) * np.fft.rfft(np.ones(window) / window, size)
    return np.fft.irfft(parts, size)[:len(change)]


@clean("rounding")
def fourier_convolution_of_price(frame):
    close = frame["close"].to_numpy()
    size = len(close) + 64
    kernel = np.exp(-np.arange(30) / 8)
    return np.fft.irfft(np.fft.rfft(close, size) * np.fft.rfft(kernel / kernel.sum(), size), size)[:len(close)]


@clean("rounding", window=(10, 30, 50))
def mean_by_running_sum(frame, window):
    total = np.concatenate([np.zeros(window), np.cumsum(frame["close"].to_numpy())])
    return np.where(np.arange(len(frame)) < window - 1, np.nan, (total[window:] - total[:-window]) / window)


@clean("rounding")
def total_less_what_follows(frame):
    """The running sum of volume, by way of the sum of all bars."""
    volume = frame["volume"] * 0.1
    return volume.sum() - volume[::-1].cumsum()[::-1] + volume


@clean("rounding")
def mean_subtracted_and_added(frame):
    mean = frame["volume"].mean()
    return (frame["volume"] - mean).rolling(20).mean() + mean


@clean("rounding")
def scaled_and_scaled_back(frame):
    deviation = frame["close"].std(ddof=0) + 1
    return (frame["close"] / deviation).ewm(span=20, adjust=False).mean() * deviation


@clean("rounding")
def ratio_of_scaled_prices(frame):
    """The scale of all rows cancels."""
    scaled = frame["close"] / frame["close"].max()
    return scaled / scaled.rolling(20).mean() - 1


@clean("rounding", window=(16, 48))
def matrix_times_weights(frame, window):
    return np.ascontiguousarray(trailing(returns(frame).to_numpy(), window)) @ np.linspace(0.1, 1.0, window)


@clean("rounding")
def matrix_times_matrix(frame):
    weights = np.random.default_rng(3).normal(size=(12, 4)) / 12
    made = np.ascontiguousarray(trailing(returns(frame).to_numpy(), 12)) @ weights
    return pd.DataFrame(made, columns=["first", "second", "third", "fourth"])


@clean("rounding")
def sum_by_triangular_matrix(frame):
    """Every row of the matrix takes the bars up to its own."""
    return np.tri(len(frame)) @ returns(frame).to_numpy()


@clean("rounding")
def einsum_of_windows(frame):
    windows = trailing(returns(frame).to_numpy(), 20)
    return np.sqrt(np.einsum("ij,ij->i", windows, windows))


@clean("rounding")
def mean_of_windows_by_axis(frame):
    return trailing(frame["close"].to_numpy(), 33).mean(axis=1)


@clean("rounding")
def logarithm_of_product(frame):
    return np.log(np.cumprod(1 + frame["close"].pct_change().fillna(0.0)))


@clean("rounding")
def running_sum_in_blocks(frame):
    """Sums of 16 bars, and the sums of those."""
    change = returns(frame).to_numpy()
    blocks = np.pad(change, (0, -len(change) % 16)).reshape(-1, 16)
    before = np.concatenate([[0.0], np.cumsum(blocks.sum(axis=1))[:-1]])
    return (before[:, None] + blocks.cumsum(axis=1)).ravel()[:len(change)]


@clean("single precision")
def running_sum_in_single(frame):
    return returns(frame).to_numpy().astype(np.float32).cumsum()


@clean("single precision", window=(10, 40))
def rolling_in_single(frame, window):
    return (frame["close"] / frame["close"].iloc[0] - 1).astype("float32").rolling(window).mean().astype("float32")


@clean("single precision")
def fourier_in_single(frame):
    change = (returns(frame) * 100).to_numpy().astype(np.float32)
    parts = np.fft.rfft(change, 4096) * np.fft.rfft(np.ones(16, np.float32), 4096)
    return np.fft.irfft(parts, 4096)[:len(change)].astype(np.float32)


@clean("single precision")
def matrix_in_single(frame):
    windows = np.ascontiguousarray(trailing(returns(frame).to_numpy().astype(np.float32), 24))
    return windows @ np.hanning(24).astype(np.float32)


# Numbers that go by the row's place alone.


@clean("noise")
def seeded_noise(frame):
    return np.random.default_rng(0).normal(size=len(frame))


@clean("noise")
def seeded_noise_added(frame):
    return returns(frame) + np.random.default_rng(5).normal(scale=1e-4, size=len(frame))


@clean("noise")
def wave_by_place(frame):
    return np.sin(np.arange(len(frame)) / 7)


@clean("noise")
def wave_by_time(frame):
    hours = frame["time"].astype("int64") / 3.6e12
    return np.cos(hours * 2 * np.pi / 60)


@clean("noise")
def logarithms(frame):
    return {"log_of_volume": np.log1p(frame["volume"]), "log_of_range": np.log(frame["high"] / frame["low"] + 1e-6)}


@clean("noise")
def place_in_pips(frame):
    return np.floor(frame["close"] * 1e4) % 100


# Other libraries.


@clean("polars", library="polars", window=(10, 30))
def polars_mean(frame, window):
    return frame["close"].rolling_mean(window)


@clean("polars", library="polars")
def polars_deviation(frame):
    return frame.select((pl.col("close").log().diff().rolling_std(20)).alias("deviation"))


@clean("polars", library="polars", span=(12, 26))
def polars_exponential(frame, span):
    return frame["close"].ewm_mean(span=span, adjust=False)


@clean("polars", library="polars")
def polars_day_so_far(frame):
    today = pl.col("time").dt.truncate("1d")
    return frame.select(
        (pl.col("close") / pl.col("high").cum_max().over(today)).alias("of_high_so_far"),
        (pl.col("volume").cum_sum().over(today)).alias("volume_so_far"))


@clean("polars", library="polars")
def polars_lags(frame):
    return frame.select([pl.col("close").pct_change().shift(lag).alias(f"change_{lag}") for lag in (0, 1, 2)])


@clean("polars", library="polars")
def polars_quantile(frame):
    return frame["volume"].rolling_quantile(0.8, window_size=25)


@clean("polars", library="polars")
def polars_rows_by_time(frame):
    return frame.rolling("time", period="5h").agg(pl.col("close").mean().alias("five_hours")).select("five_hours")


@clean("polars", library="polars")
def polars_carried_forward(frame):
    busy = frame["volume"] > 1.2 * frame["volume"].rolling_mean(20, min_samples=1)
    return frame.select(pl.when(busy).then(pl.col("close")).fill_null(strategy="forward").alias("at_busy"))


@clean("polars", library="polars")
def polars_centred_then_moved(frame):
    return frame["close"].rolling_mean(9, center=True).shift(4)


@clean("pyarrow", library="pyarrow")
def arrow_running_sum(table):
    return pa.table({"volume_so_far": pc.cumulative_sum(table["volume"])})


@clean("pyarrow", library="pyarrow")
def arrow_change(table):
    close = table["close"].to_numpy()
    return {"change": np.concatenate([[np.nan], np.diff(np.log(close))])}


@clean("pyarrow", library="pyarrow")
def arrow_range(table):
    return pa.table({"relative_range": pc.divide(pc.subtract(table["high"], table["low"]), table["close"])})
