// Multiplies each of `len` values by `factor`, whatever the grid.
extern "C" __global__ void scale(float* values, float factor, unsigned len) {
    unsigned step = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < len; i += step) values[i] *= factor;
}

// Counts every block's arrival, and waits until all have come.
extern "C" __global__ void meet(unsigned* arrived) {
    if (threadIdx.x != 0) return;
    unsigned before = atomicAdd(arrived, 1u), all = (before / gridDim.x + 1) * gridDim.x;
    while (__nv_atomic_load_n(arrived, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_DEVICE) < all) {}
}
