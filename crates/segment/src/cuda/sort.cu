// Plans of rows in segments, from an index by a stable sort, or from offsets. Source of sort.ptx; launched by sort.rs.
//
// The sort goes by digits of the segments' numbers from the lowest on (Knuth, The Art of Computer Programming, volume 3, 5.2.5, algorithm R):
// tiles of rows count their digits, the counts are added up in the order of digits and tiles, and a row's place is the sum before its tile
// and the number of equal digits before it in the tile. Nothing is placed by an atomic operation, so that the order is always the same.
// Kernels of the sort return at once where the rows lie in the order of their segments, which is known on the device alone.
//
// Faults are told in page-locked memory of the host, a word for each kind, which no other kernel reads.
#include "element.cuh"
#include "place.cuh"

constexpr unsigned WARPS = 8, THREADS = 32 * WARPS, ROWS_A_LANE = 16, TILE = THREADS * ROWS_A_LANE, DIGITS = 256;
constexpr unsigned BAD_INDEX = 0, UNSORTED = 1, BAD_OFFSET = 2;

// A place beside the lowest 32 bits of what is there.
__device__ inline void tell(u64* faults, unsigned kind, u64 place, i64 found) { faults[kind] = (place + 1) << 32 | (unsigned)found; }

__device__ inline unsigned key(i64 index, u64 segments) { return index < 0 || index >= (i64)segments ? segments : index; }

extern "C" __global__ void sort_clear(unsigned* plan, u64 segments) { plan[segments + 1] = 0; }

// index, keys: [rows], one a thread.  A row whose index is no segment's comes after all others.
extern "C" __global__ void sort_keys(const i64* __restrict__ index, unsigned* __restrict__ keys, unsigned* __restrict__ plan,
                                     u64* __restrict__ faults, unsigned is_sorted, u64 segments, u64 rows) {
  u64 row = thread_number();
  bool falls = false;
  if (row < rows) {
    unsigned own = key(index[row], segments);
    keys[row] = own;
    if (own == segments) tell(faults, BAD_INDEX, row, index[row]);
    falls = row + 1 < rows && key(index[row + 1], segments) < own;
    if (falls && is_sorted) tell(faults, UNSORTED, row + 1, index[row + 1]);
  }
  if (__syncthreads_or(falls) && threadIdx.x == 0) atomicOr(&plan[segments + 1], 1u);
}

__device__ inline unsigned digit(unsigned key, unsigned shift, unsigned bits) { return key >> shift & ((1u << bits) - 1); }

// counts: [digits, tiles].  A block counts a tile.
extern "C" __global__ void sort_count(const unsigned* __restrict__ plan, const unsigned* __restrict__ keys, unsigned* __restrict__ counts,
                                      unsigned shift, unsigned bits, u64 segments, u64 rows) {
  __shared__ unsigned count[DIGITS];
  if (!plan[segments + 1]) return;
  count[threadIdx.x] = 0;
  __syncthreads();
  u64 first = blockIdx.x * (u64)TILE + threadIdx.x;
  for (unsigned k = 0; k < ROWS_A_LANE; k++) {
    u64 row = first + k * THREADS;
    if (row < rows) atomicAdd(&count[digit(keys[row], shift, bits)], 1u);
  }
  __syncthreads();
  if (threadIdx.x >> bits == 0) counts[threadIdx.x * (u64)gridDim.x + blockIdx.x] = count[threadIdx.x];
}

// The sum of the numbers of the threads before this one, and of all.
struct Sums {
  unsigned before, all;
};

__device__ inline Sums sums(unsigned number, unsigned* warp_sums) {
  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, up_to = number;
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    unsigned other = __shfl_up_sync(0xffffffffu, up_to, distance);
    if (lane >= distance) up_to += other;
  }
  if (lane == 31) warp_sums[warp] = up_to;
  __syncthreads();
  Sums result = {up_to - number, 0};
  for (unsigned w = 0; w < WARPS; w++) {
    if (w < warp) result.before += warp_sums[w];
    result.all += warp_sums[w];
  }
  __syncthreads();
  return result;
}

// Replaces the counts of a digit by the sums of those before them.  totals: [digits], their sums.  A block takes a digit.
extern "C" __global__ void sort_add_up(const unsigned* __restrict__ plan, unsigned* __restrict__ counts, unsigned* __restrict__ totals,
                                       u64 segments, u64 tiles) {
  __shared__ unsigned warp_sums[WARPS];
  if (!plan[segments + 1]) return;
  counts += blockIdx.x * tiles;
  unsigned total = 0;
  for (u64 first = 0; first < tiles; first += THREADS) {
    u64 tile = first + threadIdx.x;
    Sums added = sums(tile < tiles ? counts[tile] : 0, warp_sums);
    if (tile < tiles) counts[tile] = total + added.before;
    total += added.all;
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

// keys, order: [rows], the order null where it is that of the rows.  to_keys, to_order: the same in the order of a digit.
extern "C" __global__ void sort_place(const unsigned* __restrict__ plan, const unsigned* __restrict__ keys,
                                      const unsigned* __restrict__ order, unsigned* __restrict__ to_keys, unsigned* __restrict__ to_order,
                                      const unsigned* __restrict__ counts, const unsigned* __restrict__ totals, unsigned shift,
                                      unsigned bits, u64 segments, u64 rows) {
  // Rows of each warp that have a digit; then the place of its next one.
  __shared__ unsigned next[WARPS][DIGITS];
  __shared__ unsigned warp_sums[WARPS];
  if (!plan[segments + 1]) return;
  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  bool has_digit = threadIdx.x >> bits == 0;
  unsigned place = sums(has_digit ? totals[threadIdx.x] : 0, warp_sums).before;
  if (has_digit) place += counts[threadIdx.x * (u64)gridDim.x + blockIdx.x];
  for (unsigned w = 0; w < WARPS; w++) next[w][threadIdx.x] = 0;
  __syncthreads();
  // A warp takes its rows of the tile in their order, 32 at a time.
  u64 first = blockIdx.x * (u64)TILE + warp * 32 * ROWS_A_LANE + lane;
  for (unsigned k = 0; k < ROWS_A_LANE; k++) {
    u64 row = first + k * 32;
    unsigned own = row < rows ? digit(keys[row], shift, bits) : DIGITS;
    unsigned equal = __match_any_sync(0xffffffffu, own);
    if (row < rows && lane + 1 == __ffs(equal)) next[warp][own] += __popc(equal);
    __syncwarp();
  }
  __syncthreads();
  for (unsigned w = 0; w < WARPS; w++) {
    unsigned count = next[w][threadIdx.x];
    next[w][threadIdx.x] = place;
    place += count;
  }
  __syncthreads();
  for (unsigned k = 0; k < ROWS_A_LANE; k++) {
    u64 row = first + k * 32;
    unsigned key = row < rows ? keys[row] : 0;
    unsigned own = row < rows ? digit(key, shift, bits) : DIGITS;
    unsigned equal = __match_any_sync(0xffffffffu, own);
    unsigned to = row < rows ? next[warp][own] + __popc(equal & ((1u << lane) - 1)) : 0;
    __syncwarp();
    if (row < rows && lane + 1 == __ffs(equal)) next[warp][own] += __popc(equal);
    __syncwarp();
    if (row >= rows) continue;
    to_keys[to] = key;
    to_order[to] = order ? order[row] : (unsigned)row;
  }
}

// Writes the offsets of the segments, one a thread: the first place whose key is not below a segment's number.
extern "C" __global__ void sort_offsets(unsigned* __restrict__ plan, const unsigned* __restrict__ keys,
                                        const unsigned* __restrict__ sorted_keys, u64 segments, u64 rows) {
  u64 segment = thread_number();
  if (segment > segments) return;
  if (plan[segments + 1]) keys = sorted_keys;
  u64 first = 0, len = rows;
  while (len > 0) {
    u64 half = len / 2;
    if (keys[first + half] < segment) {
      first += half + 1;
      len -= half + 1;
    } else {
      len = half;
    }
  }
  plan[segment] = first;
}

// indptr: [segments + 1], one a thread: the offsets, those of rows that there are not cut off.
extern "C" __global__ void sort_from_offsets(const i64* __restrict__ indptr, unsigned* __restrict__ plan, u64* __restrict__ faults,
                                             u64 segments, u64 rows) {
  u64 k = thread_number();
  if (k > segments) return;
  i64 offset = indptr[k];
  if (offset < 0 || offset > (i64)rows || (k > 0 && offset < indptr[k - 1])) tell(faults, BAD_OFFSET, k, offset);
  plan[k] = offset < 0 ? 0 : offset > (i64)rows ? rows : offset;
  if (k == 0) plan[segments + 1] = 0;
}
