// Turns the bytes of every element around. Source of byte_swap.ptx; launched by byte_swap.rs.

typedef unsigned long long u64;

__device__ inline unsigned short swapped(unsigned short x) { return (unsigned short)(x << 8 | x >> 8); }

__device__ inline unsigned swapped(unsigned x) {
  x = (x & 0x00ff00ffu) << 8 | (x >> 8 & 0x00ff00ffu);
  return x << 16 | x >> 16;
}

__device__ inline u64 swapped(u64 x) { return (u64)swapped((unsigned)x) << 32 | swapped((unsigned)(x >> 32)); }

// Sixteen bytes, which a thread takes.
template <class T>
struct alignas(16) Vector {
  T element[16 / sizeof(T)];
};

// data: `len` elements, from an address that is a multiple of 16.
template <class T>
__device__ inline void swap(T* data, u64 len) {
  const u64 n = 16 / sizeof(T);
  u64 start = n * (blockIdx.x * (u64)blockDim.x + threadIdx.x);
  if (start + n <= len) {
    Vector<T>* at = reinterpret_cast<Vector<T>*>(data + start);
    Vector<T> vector = *at;
    for (int k = 0; k < n; k++) vector.element[k] = swapped(vector.element[k]);
    *at = vector;
    return;
  }
  for (; start < len; start++) data[start] = swapped(data[start]);
}

extern "C" __global__ void swap_bytes_2(unsigned short* data, u64 len) { swap(data, len); }
extern "C" __global__ void swap_bytes_4(unsigned* data, u64 len) { swap(data, len); }
extern "C" __global__ void swap_bytes_8(u64* data, u64 len) { swap(data, len); }
