// Copies a box of elements from one strided layout to another. Source of copy_strided.ptx; launched by copy_strided.rs.

#define DIMENSIONS_MAX 6

// The box, its outermost dimension first; unused dimensions come last and have the size 1. Counted in elements.
struct Box {
  unsigned long long len[DIMENSIONS_MAX];
  unsigned long long from_stride[DIMENSIONS_MAX];
  unsigned long long to_stride[DIMENSIONS_MAX];
  unsigned long long count;  // the product of the sizes
};

// A thread copies one element: the one of its number, the innermost dimension fastest.
template <class T>
__device__ inline void copy(const T* __restrict__ from, T* __restrict__ to, const Box& box) {
  unsigned long long rest = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  if (rest >= box.count) return;
  unsigned long long from_offset = 0, to_offset = 0;
  for (int k = DIMENSIONS_MAX - 1; k >= 0; k--) {
    unsigned long long index = rest % box.len[k];
    rest /= box.len[k];
    from_offset += index * box.from_stride[k];
    to_offset += index * box.to_stride[k];
  }
  to[to_offset] = from[from_offset];
}

extern "C" __global__ void copy_strided_1(const unsigned char* from, unsigned char* to, Box box) { copy(from, to, box); }
extern "C" __global__ void copy_strided_2(const unsigned short* from, unsigned short* to, Box box) { copy(from, to, box); }
extern "C" __global__ void copy_strided_4(const unsigned* from, unsigned* to, Box box) { copy(from, to, box); }
extern "C" __global__ void copy_strided_8(const unsigned long long* from, unsigned long long* to, Box box) { copy(from, to, box); }
