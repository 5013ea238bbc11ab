// One kernel for each thing that kernels may do. tests/features.rs says what each must give.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void coordinates(unsigned* out) {
  unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] = block << 16 | threadIdx.z << 12 | threadIdx.y << 8 | threadIdx.x;
}

extern "C" __global__ void __launch_bounds__(256) block_sum(const float* __restrict__ x, float* out, unsigned n) {
  __shared__ float partial[256], total;
  unsigned t = threadIdx.x;
  float sum = 0.0f;
  for (unsigned i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256) sum += x[i];
  partial[t] = sum;
  __syncthreads();
  for (unsigned stride = 128; stride > 0; stride /= 2) {
    if (t < stride) partial[t] += partial[t + stride];
    __syncthreads();
  }
  if (t == 0) total = partial[0];
  __syncthreads();
  if (t == 255) out[blockIdx.x] = total;
}

extern "C" __global__ void reverse_dynamic(int* x) {
  extern __shared__ __align__(16) int scratch[];
  scratch[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = scratch[blockDim.x - 1 - threadIdx.x];
}

// Two halves of a warp, each with its own mask, at its own pace.
extern "C" __global__ void half_warps(int* out) {
  unsigned lane = threadIdx.x;
  unsigned mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  int rounds = lane < 16 ? 1 : 3, value = (int)lane;
  for (int k = 0; k < rounds; k++) value = __shfl_sync(mask, value, (int)lane + 1, 16);
  out[lane] = value;
}

extern "C" __global__ void shuffles(int* out, int width) {
  int lane = (int)threadIdx.x;
  out[lane] = __shfl_sync(0xffffffffu, lane, 3, width);
  out[32 + lane] = __shfl_up_sync(0xffffffffu, lane, 2, width);
  out[64 + lane] = __shfl_down_sync(0xffffffffu, lane, 2, width);
  out[96 + lane] = __shfl_xor_sync(0xffffffffu, lane, 9, width);
}

extern "C" __global__ void wide_shuffle(double* x) { x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 31); }

// Each lane takes what the two lanes behind it handed in; the odd lanes have a gather of their own.
extern "C" __global__ void gathers(unsigned* out) {
  struct Three {
    unsigned a, b, c;
  };
  unsigned lane = threadIdx.x, mask = lane % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
  for (unsigned round = 0; round < 3; round++) {
    auto lanes = simt::gather("a pair", mask, Three{lane, 100 * lane + round, ~lane});
    Three next = lanes[(lane + 2) % 32], other = lanes[(lane + 1) % 32];
    out[lane * 3] = next.a, out[lane * 3 + 1] = next.b, out[lane * 3 + 2] = other.c;
  }
}

extern "C" __global__ void votes(const int* x, unsigned* out) {
  int value = x[threadIdx.x];
  unsigned ballot = __ballot_sync(0xffffffffu, value > 0);
  int any = __any_sync(0xffffffffu, value > 5), all = __all_sync(0xffffffffu, value >= 0), same = -1;
  unsigned alike = __match_any_sync(0xffffffffu, value);
  unsigned everyone = __match_all_sync(0xffffffffu, value / 100, &same);
  unsigned active = __activemask();
  unsigned* own = out + threadIdx.x * 7;
  own[0] = ballot, own[1] = any, own[2] = all, own[3] = alike, own[4] = everyone, own[5] = same, own[6] = active;
}

extern "C" __global__ void block_votes(const int* x, int* out) {
  int value = x[threadIdx.x];
  int count = __syncthreads_count(value > 0);
  int any = __syncthreads_or(value > 5), all = __syncthreads_and(value > 0);
  if (threadIdx.x == 0) out[0] = count, out[1] = any, out[2] = all;
}

// Lanes that return early leave the others free to go on.
extern "C" __global__ void early_exit(int* out) {
  if (threadIdx.x % 32 >= 20) return;
  int sum = 0;
  for (int k = 0; k < 20; k++) sum += __shfl_sync(0xfffffu, (int)threadIdx.x, k);
  __syncthreads();
  out[threadIdx.x] = sum;
}

extern "C" __global__ void atomics(int* i, unsigned* u, unsigned long long* l, float* f) {
  int t = (int)threadIdx.x;
  atomicAdd(&i[0], t), atomicMax(&i[1], t), atomicMin(&i[2], -t), atomicSub(&i[3], 1);
  atomicAdd(&u[0], 1u), atomicOr(&u[1], 1u << t % 32), atomicInc(&u[2], 9u), atomicMax(&u[3], (unsigned)t);
  atomicAdd(&l[0], 1ull << 40), atomicMax(&l[1], (unsigned long long)t << 40);
  atomicAdd(&f[0], 0.5f);
  if (t == 7) f[1] = atomicExch(&f[2], 3.0f);
}

extern "C" __global__ void shared_atomics(unsigned* out) {
  __shared__ unsigned bins[4];
  if (threadIdx.x < 4) bins[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&bins[threadIdx.x % 4], threadIdx.x);
  __syncthreads();
  if (threadIdx.x < 4) out[threadIdx.x] = bins[threadIdx.x];
}

// A lock that threads spin on: they take turns also without a barrier.
extern "C" __global__ void spin_lock(unsigned* lock, unsigned* count) {
  while (atomicCAS(lock, 0u, 1u) != 0) __nanosleep(20);
  __threadfence();
  *count = *count + 1;
  __threadfence();
  atomicExch(lock, 0u);
}

// Each block hands a number on to the next one, round after round; arrived: one a block.
extern "C" __global__ void relay(unsigned* arrived, unsigned* numbers, unsigned rounds) {
  __shared__ unsigned before;
  unsigned from = (blockIdx.x + gridDim.x - 1) % gridDim.x;
  for (unsigned round = 1; round <= rounds; round++) {
    if (threadIdx.x == 0) {
      while (__nv_atomic_load_n(arrived + from, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_DEVICE) < round) {}
      before = numbers[(round - 1) * gridDim.x + from];
    }
    __syncthreads();
    if (threadIdx.x == 7) numbers[round * gridDim.x + blockIdx.x] = before + blockIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) __nv_atomic_store_n(arrived + blockIdx.x, round + 1, __NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_DEVICE);
  }
}

extern "C" __global__ void to_half(const float* x, unsigned short* half, unsigned short* bfloat, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  half[i] = __half_as_ushort(__float2half_rn(x[i]));
  bfloat[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
}

extern "C" __global__ void from_half(float* half, float* bfloat) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  half[i] = __half2float(__ushort_as_half((unsigned short)i));
  bfloat[i] = __bfloat162float(__ushort_as_bfloat16((unsigned short)i));
}

extern "C" __global__ void vectors(const float4* x, float4* y, uint2* z) {
  float4 v = x[threadIdx.x];
  y[threadIdx.x] = make_float4(v.w, v.z, v.y, v.x);
  z[threadIdx.x] = make_uint2(threadIdx.x, __float_as_uint(v.x));
}

struct Line {
  double slope;
  float offset;
  unsigned char steps[3];
};

extern "C" __global__ void structs(Line line, uint4 words, double* out) {
  out[0] = line.slope * line.steps[2] + line.offset;
  out[1] = words.w;
}

__constant__ int primes[4] = {2, 3, 5, 7};

template <class T>
__device__ T tile_sum(T value) {
  __shared__ T tile[8];
  tile[threadIdx.x] = value;
  __syncthreads();
  T sum = 0;
  for (int k = 0; k < 8; k++) sum += tile[k];
  return sum;
}

extern "C" __global__ void templates_and_constants(double* out) {
  int integers = tile_sum(primes[threadIdx.x % 4]);
  __syncthreads();
  double reals = tile_sum(0.25);
  out[threadIdx.x] = integers + reals;
}

extern "C" __global__ void intrinsics(float* f, unsigned* u) {
  f[0] = __fmaf_rn(3.0f, 4.0f, 5.0f), f[1] = rsqrtf(4.0f), f[2] = __expf(0.0f), f[3] = fmaxf(NAN, 2.0f);
  u[0] = __popc(0xf0f0u), u[1] = __clz(1), u[2] = __ffs(8), u[3] = __brev(1u), u[4] = __umulhi(1u << 31, 6u);
  u[5] = __funnelshift_l(0x80000000u, 1u, 1u), u[6] = max(3u, 9u), u[7] = min(3u, 9u);
}
