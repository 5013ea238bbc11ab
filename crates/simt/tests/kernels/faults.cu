// Kernels that are wrong, each in one way. tests/faults.rs says what the report must tell; its lines are found by their marks.

extern "C" __global__ void stuck_barrier(int* out) {
  if (threadIdx.x < 40) __syncthreads();            // MARK block barrier
  else out[0] = __shfl_sync(~0u, (int)threadIdx.x, 0);  // MARK shuffle of the rest
}

extern "C" __global__ void warp_waits_for_itself(int* out) {
  if (threadIdx.x == 3) __syncthreads();  // MARK lane at the block barrier
  else __syncwarp();                      // MARK lanes at the warp barrier
  out[threadIdx.x] = 1;
}

extern "C" __global__ void divergent_shuffle(int* out) {
  int value = (int)threadIdx.x;
  if (threadIdx.x % 2 == 0) value = __shfl_xor_sync(~0u, value, 1);  // MARK even
  else value = __shfl_xor_sync(~0u, value, 1);                       // MARK odd
  out[threadIdx.x] = value;
}

extern "C" __global__ void differing_masks(int* out) {
  out[threadIdx.x] = __shfl_sync(threadIdx.x < 8 ? 0xffu : ~0u, 1, 0);  // MARK masks
  __syncthreads();
}

extern "C" __global__ void not_in_mask(int* out) { out[threadIdx.x] = __any_sync(0xfu, 1); }  // MARK outsider

extern "C" __global__ void divergent_barrier(int* out) {
  if (threadIdx.x < 32) __syncthreads();  // MARK one barrier
  else __syncthreads();                   // MARK other barrier
  out[threadIdx.x] = 1;
}

extern "C" __global__ void past_the_end(const float* x, float* out) {
  out[threadIdx.x] = x[threadIdx.x + 1];  // MARK past the end
}

extern "C" __global__ void writes_an_input(const float* x) {
  const_cast<float*>(x)[threadIdx.x] = 0.0f;  // MARK writes input
}

extern "C" __global__ void wide_load(const float* x, float* out) {
  float4 v = *reinterpret_cast<const float4*>(x + 4 * threadIdx.x);  // MARK wide load
  out[threadIdx.x] = v.x + v.w;
}

extern "C" __global__ void misaligned(const float* x, float* out) {
  float2 v = *reinterpret_cast<const float2*>(x + 1 + 2 * threadIdx.x);  // MARK misaligned
  out[threadIdx.x] = v.x + v.y;
}

extern "C" __global__ void past_shared(float* out) {
  __shared__ float tile[32];
  __shared__ float other[32];
  other[threadIdx.x] = 0.0f;
  tile[threadIdx.x + 1] = 1.0f;  // MARK past shared
  __syncwarp();
  out[threadIdx.x] = other[threadIdx.x];
}

extern "C" __global__ void unwritten_shared(float* out) {
  __shared__ float tile[32];
  if (threadIdx.x > 0) tile[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];  // MARK unwritten
}

extern "C" __global__ void race_across_warps(float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = 0.0f;
  __syncthreads();
  tile[threadIdx.x] = 1.0f;  // MARK racing write
  __syncwarp();
  out[threadIdx.x] = tile[threadIdx.x ^ 32];  // MARK racing read
}

extern "C" __global__ void race_in_a_warp(float* out) {
  __shared__ float tile[32];
  tile[threadIdx.x] = (float)threadIdx.x;
  __syncwarp();
  float next = tile[(threadIdx.x + 1) % 32];  // MARK reads the neighbour
  tile[threadIdx.x] = next;                   // MARK overwrites too early
  __syncwarp();
  out[threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void shuffle_in_place_of_a_barrier(float* out) {
  __shared__ float tile[32];
  tile[threadIdx.x] = (float)threadIdx.x;  // MARK before the shuffle
  float own = __shfl_sync(~0u, (float)threadIdx.x, 0);
  out[threadIdx.x] = own + tile[threadIdx.x ^ 1];  // MARK behind the shuffle
}

extern "C" __global__ void race_in_global_memory(float* x) {
  x[threadIdx.x] = 1.0f;       // MARK writes its own
  x[threadIdx.x ^ 32] = 2.0f;  // MARK writes another's
}

extern "C" __global__ void race_of_blocks(float* x) {
  x[threadIdx.x] = (float)blockIdx.x;  // MARK every block writes
}

// Reads what every block reads, and writes it in the last.
extern "C" __global__ void written_after_others_read(float* x, float* out) {
  out[blockIdx.x] = x[0];                       // MARK every block reads
  if (blockIdx.x == gridDim.x - 1) x[0] = 1.0f;  // MARK the last one writes
}

// A thread waits for another in a way that orders nothing.
extern "C" __global__ void waits_without_atomic(volatile unsigned* flag) {
  if (threadIdx.x == 0) while (*flag == 0) {}  // MARK reads the flag
  if (threadIdx.x == 1) *flag = 5;             // MARK sets the flag
}

// The second block reads what the first one wrote, for which a thread of it waits.  how: 0 as is right; 1 without a barrier before the release; 2 without a release; 3 without an
// acquire; 4 without a barrier behind the acquire.
extern "C" __global__ void hands_over(unsigned* arrived, float* numbers, float* out, unsigned how) {
  if (blockIdx.x == 0) {
    numbers[threadIdx.x] = 1.0f;  // MARK hands over
    if (how != 1) __syncthreads();
    if (threadIdx.x == 0) __nv_atomic_store_n(arrived, 1u, how == 2 ? __NV_ATOMIC_RELAXED : __NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_DEVICE);
    return;
  }
  if (threadIdx.x == 0 || how == 4) {
    int order = how == 3 || threadIdx.x != 0 ? __NV_ATOMIC_RELAXED : __NV_ATOMIC_ACQUIRE;
    while (__nv_atomic_load_n(arrived, order, __NV_THREAD_SCOPE_DEVICE) == 0) {}
  }
  if (how != 4) __syncthreads();
  out[threadIdx.x] = numbers[threadIdx.x];  // MARK takes over
}

// The same by fences around what orders nothing itself.
extern "C" __global__ void hands_over_by_fences(unsigned* arrived, float* numbers, float* out, unsigned has_fences) {
  if (blockIdx.x == 0) {
    numbers[0] = 1.0f;  // MARK hands over behind a fence
    if (has_fences) __threadfence();
    atomicExch(arrived, 1u);
    return;
  }
  while (atomicAdd(arrived, 0u) == 0) __nanosleep(20);
  if (has_fences) __threadfence();
  out[0] = numbers[0];  // MARK takes over behind a fence
}

extern "C" __global__ void deep_recursion(int* out) {
  volatile char frame[70000];
  for (int k = 0; k < 70000; k++) frame[k] = (char)k;
  out[0] = frame[out[0]];
}

extern "C" __global__ void never_set(volatile unsigned* flag, unsigned* lock) {
  while (atomicCAS(lock, 1u, 2u) != 1u) {}
  *flag = 1;
}

// Waits until as many blocks have come as `awaited`.
extern "C" __global__ void waits_for_blocks(unsigned* arrived, unsigned awaited) {
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1u);
    while (__nv_atomic_load_n(arrived, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_DEVICE) < awaited) {}
  }
  __syncthreads();  // MARK behind the wait
}

extern "C" __global__ void trap(int* out) {
  if (out[threadIdx.x] != 0) __trap();  // MARK trap
}
