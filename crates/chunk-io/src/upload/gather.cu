// Windows out of a series. Source of gather.ptx; launched by gather.rs.

typedef unsigned long long u64;

// Numbers that a thread moves at once, aligned as they lie in memory.
template <int N>
struct alignas(N * sizeof(float)) Vector {
  float number[N];
};

// series: [bars, F], `bar_len` vectors a bar.  ends: index of each window's last bar.
// out: [windows, T, F], `out_len` vectors, `window_len` a window, one a thread. Neighbouring threads move neighbours: a window's bars lie
// side by side in the series, too. A window that reaches outside the series is NaN.
template <int N>
__device__ inline void gather(const float* __restrict__ series, const long long* __restrict__ ends,
                              float* __restrict__ out, u64 bars, u64 bar_len, u64 window_len, u64 out_len) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= out_len) return;
  u64 window = k / window_len;
  // An end below 0 is beyond any series as an unsigned number.
  u64 end = (u64)ends[window];
  Vector<N> value;
  if (end < bars && (end + 1) * bar_len >= window_len) {
    u64 at = (end + 1) * bar_len - window_len + (k - window * window_len);
    value = reinterpret_cast<const Vector<N>*>(series)[at];
  } else {
    for (int n = 0; n < N; n++) value.number[n] = __int_as_float(0x7fc00000);
  }
  reinterpret_cast<Vector<N>*>(out)[k] = value;
}

#define GATHER(N)                                                                                                   \
  extern "C" __global__ void gather_windows_##N(const float* series, const long long* ends, float* out, u64 bars,   \
                                                u64 bar_len, u64 window_len, u64 out_len) {                         \
    gather<N>(series, ends, out, bars, bar_len, window_len, out_len);                                               \
  }

GATHER(1)
GATHER(2)
GATHER(4)
