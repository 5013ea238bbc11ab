// Matrix products on the tensor cores, for tiles of any size: matmul.cu and matmul_large.cu.
//
//   block: takes a tile of the output and a range of the inner dimension; warp: a part of it, 32 columns wide
//   for each 128 bytes of inner indices:  tiles of both operands to shared memory, the next ones on their way;  multiply
//
// An operand lies with the inner dimension contiguous or, turned, with the other one; its tile in shared memory lies as it does, and is turned on the way to
// the registers. Elements out of range are zero. An element of the output is added up in one order whatever the tile's size.
#pragma once

#include "mma.cuh"

// Inner indices of a tile of an operand: 64 of 16 bits, 32 of f32. The next tile has as long to arrive as it takes to multiply one.
template <class T>
constexpr int DEPTH = 128 / sizeof(T);

// A tile of the output [ROWS, COLUMNS] and what of it a warp takes: [WARP_ROWS, 32]. Registers are to suffice for RESIDENT blocks of a multiprocessor.
template <int ROWS_, int COLUMNS_, int WARP_ROWS_, int RESIDENT_>
struct Tiling {
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, WARP_ROWS = WARP_ROWS_, RESIDENT = RESIDENT_, WARPS_ACROSS = COLUMNS / 32;
  static constexpr int THREADS = ROWS / WARP_ROWS * WARPS_ACROSS * 32;
};

// A matrix [outer, inner], or its transpose, with `contiguous` elements in each of its rows as they lie.
template <class T>
struct Operand {
  const T* elements;
  u64 outer, inner;
};

// Tiles of an operand with SIDE outer indices as they lie: [SIDE, DEPTH<T>], or [DEPTH<T>, SIDE] if turned, in chunks of 16 bytes. Rows are 16 bytes longer, so that they begin in
// different banks.
template <class T_, bool TURNED_, int SIDE, int THREADS_>
struct Shape {
  using T = T_;
  static constexpr bool TURNED = TURNED_;
  static constexpr int THREADS = THREADS_;
  static constexpr int IN_CHUNK = 16 / sizeof(T);
  static constexpr int COLUMNS = TURNED ? SIDE : DEPTH<T>, ROWS = TURNED ? DEPTH<T> : SIDE, STRIDE = COLUMNS + IN_CHUNK;
  static constexpr int CHUNKS = SIDE * DEPTH<T> / IN_CHUNK / THREADS;  // of each thread
};

// The chunks of this thread of the tile that begins at `outer`, `inner`. Nothing is read from `inner_end` on.
template <class S, class T>
__device__ inline void fetch(ulonglong2 (&chunks)[S::CHUNKS], Operand<T> of, u64 outer, u64 inner, u64 inner_end) {
  constexpr bool TURNED = S::TURNED;
  u64 row_len = TURNED ? of.outer : of.inner, rows = TURNED ? inner_end : of.outer, columns = TURNED ? of.outer : inner_end;
  u64 first_row = TURNED ? inner : outer, first_column = TURNED ? outer : inner;
  bool is_aligned = row_len % S::IN_CHUNK == 0 && (u64)of.elements % 16 == 0;
#pragma unroll
  for (int i = 0; i < S::CHUNKS; i++) {
    unsigned number = threadIdx.x + i * S::THREADS;
    u64 row = first_row + number / (S::COLUMNS / S::IN_CHUNK), column = first_column + number % (S::COLUMNS / S::IN_CHUNK) * S::IN_CHUNK;
    const T* from = of.elements + row * row_len + column;
    chunks[i] = make_ulonglong2(0, 0);
    if (row >= rows) continue;
    if (is_aligned && column + S::IN_CHUNK <= columns) {
      chunks[i] = *(const ulonglong2*)from;
    } else {
#pragma unroll 1
      for (unsigned e = 0; e < S::IN_CHUNK && column + e < columns; e++) {
        u64 element = (u64)bits(from[e]) << e * sizeof(T) * 8 % 64;
        if (e < S::IN_CHUNK / 2) chunks[i].x |= element;
        else chunks[i].y |= element;
      }
    }
  }
}

template <class S, class T>
__device__ inline void put(T* tile, const ulonglong2 (&chunks)[S::CHUNKS]) {
#pragma unroll
  for (int i = 0; i < S::CHUNKS; i++) {
    unsigned number = threadIdx.x + i * S::THREADS;
    *(ulonglong2*)&tile[number / (S::COLUMNS / S::IN_CHUNK) * S::STRIDE + number % (S::COLUMNS / S::IN_CHUNK) * S::IN_CHUNK] = chunks[i];
  }
}

// Element of a tile in shared memory.
template <class S, class T>
__device__ inline const T& tile_element(const T* tile, unsigned outer, unsigned inner) {
  return S::TURNED ? tile[inner * S::STRIDE + outer] : tile[outer * S::STRIDE + inner];
}

// Four matrices [8, 8] of an operand from `outer`, `inner` on. `across` tells which pair follows first: 8 outer indices on, or 8 inner ones.
template <class S, bool ACROSS, class T>
__device__ inline void load_fragment(unsigned (&to)[4], const T* tile, unsigned outer, unsigned inner) {
  unsigned lane = threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
  outer += (ACROSS ? matrix % 2 : matrix / 2) * 8;
  inner += (ACROSS ? matrix / 2 : matrix % 2) * 8;
  if (S::TURNED) {
    load_turned(to, &tile_element<S>(tile, outer, inner + line));
  } else {
    load_matrices(to, &tile_element<S>(tile, outer + line, inner));
  }
}

// What a warp adds to its part of the output, by the way it is computed: 16-bit operands, f32 rounded to TF32, and f32 as it is.
// sums[m][n]: rows 16 m + lane / 4 and + 8, columns 8 n + 2 (lane % 4) and + 1; of f32 as it is as row() and column() say, of the number i among all sums.
struct Fragments {
  template <class A>
  __device__ static unsigned row(unsigned lane, unsigned i) { return lane / 4 + i / 16 * 16 + i / 2 % 2 * 8; }
  template <class B>
  __device__ static unsigned column(unsigned lane, unsigned i) { return lane % 4 * 2 + i / 4 % 4 * 8 + i % 2; }
};

struct Narrowed : Fragments {
  template <class A, class B, int M, class T>
  __device__ static void add(float (&sums)[M][4][4], const T* a, const T* b, unsigned row, unsigned column) {
#pragma unroll
    for (int k = 0; k < DEPTH<T>; k += 16) {
      unsigned left[M][4], right[2][4];
#pragma unroll
      for (int m = 0; m < M; m++) load_fragment<A, true>(left[m], a, row + 16 * m, k);
#pragma unroll
      for (int n = 0; n < 2; n++) load_fragment<B, false>(right[n], b, column + 16 * n, k);
#pragma unroll
      for (int m = 0; m < M; m++) {
#pragma unroll
        for (int n = 0; n < 4; n++) multiply_add(sums[m][n], left[m], right[n / 2][n % 2 * 2], right[n / 2][n % 2 * 2 + 1], T());
      }
    }
  }
};

struct Tf32 : Fragments {
  template <class A, class B>
  __device__ static void add(float (&sums)[2][4][4], const float* a, const float* b, unsigned row, unsigned column) {
    unsigned line = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < DEPTH<float>; k += 8) {
      unsigned left[2][4], right[4][2];
#pragma unroll
      for (int part = 0; part < 4; part++) {
#pragma unroll
        for (int m = 0; m < 2; m++) {
          left[m][part] = tf32(tile_element<A>(a, row + 16 * m + line + part % 2 * 8, k + quad + part / 2 * 4));
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
          right[2 * n + part / 2][part % 2] =
              tf32(tile_element<B>(b, column + 16 * n + part / 2 * 8 + line, k + quad + part % 2 * 4));
        }
      }
#pragma unroll
      for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int n = 0; n < 4; n++) multiply_add(sums[m][n], left[m], right[n][0], right[n][1], 0.0f);
      }
    }
  }
};

// A thread has four rows and eight columns. Where an operand is turned its own lie side by side, so that one load brings four; else four inner indices do, and its rows lie as those of fragments, in different banks.
struct Exact {
  template <class A>
  __device__ static unsigned row(unsigned lane, unsigned i) {
    unsigned line = lane / 4, m = i / 16 * 2 + i / 2 % 2;
    return A::TURNED ? 4 * line + m : 8 * m + line;
  }
  template <class B>
  __device__ static unsigned column(unsigned lane, unsigned i) {
    unsigned quad = lane % 4, n = i / 4 % 4 * 2 + i % 2;
    return B::TURNED ? 8 * quad + n : n / 2 * 8 + 2 * quad + n % 2;
  }

  // Numbers of COUNT outer indices, the first of which lie at `place(0)` …, at four inner ones from `k` on.
  template <class S, int COUNT, class Place>
  __device__ static void take_four(float (&to)[4][COUNT], const float* tile, unsigned k, Place place) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      // Four side by side of one inner index, or four inner indices of one.
      unsigned first = S::TURNED ? i / 4 * 4 : i, inner = S::TURNED ? i % 4 : 0;
      float4 four = *(const float4*)&tile_element<S>(tile, place(first), k + inner);
      float numbers[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int j = 0; j < 4; j++) {
        if (S::TURNED) to[inner][first + j] = numbers[j];
        else to[j][i] = numbers[j];
      }
    }
  }

  template <class A, class B>
  __device__ static void add(float (&sums)[2][4][4], const float* a, const float* b, unsigned row_of_warp, unsigned column_of_warp) {
    unsigned lane = threadIdx.x % 32;
    auto row_place = [=](unsigned m) { return row_of_warp + row<A>(lane, m / 2 * 16 + m % 2 * 2); };
    auto column_place = [=](unsigned n) { return column_of_warp + column<B>(lane, n / 2 * 4 + n % 2); };
#pragma unroll 2
    for (int k = 0; k < DEPTH<float>; k += 4) {
      float left[4][4], right[4][8];
      take_four<A>(left, a, k, row_place);
      take_four<B>(right, b, k, column_place);
#pragma unroll
      for (int inner = 0; inner < 4; inner++) {
#pragma unroll
        for (int m = 0; m < 4; m++) {
#pragma unroll
          for (int n = 0; n < 8; n++) {
            float& sum = sums[m / 2][n / 2][m % 2 * 2 + n % 2];
            sum = fmaf(left[inner][m], right[inner][n], sum);
          }
        }
      }
    }
  }
};

// a: [M, K], or [K, M] if turned.  b: [N, K], or [K, N] if turned.  start: [N], or null.  out: [splits, M, N] f32; split s takes `inner_each` indices of the inner
// dimension from s · inner_each on.  Blocks: tiles of columns fastest, then of rows, then splits.
template <class How, class S, class T, bool A_TURNED, bool B_TURNED>
__device__ inline void multiply(const T* a, const T* b, const float* start, float* out, u64 M, u64 N, u64 K, u64 inner_each, unsigned adds) {
  using A = Shape<T, A_TURNED, S::ROWS, S::THREADS>;
  using B = Shape<T, B_TURNED, S::COLUMNS, S::THREADS>;
  constexpr int DOWN = S::WARP_ROWS / 16;
  __shared__ __align__(16) T a_tile[A::ROWS * A::STRIDE];
  __shared__ __align__(16) T b_tile[B::ROWS * B::STRIDE];
  u64 column_tiles = (N + S::COLUMNS - 1) / S::COLUMNS, row_tiles = (M + S::ROWS - 1) / S::ROWS;
  u64 first_column = blockIdx.x % column_tiles * S::COLUMNS, first_row = blockIdx.x / column_tiles % row_tiles * S::ROWS;
  u64 split = blockIdx.x / column_tiles / row_tiles;
  u64 inner = split * inner_each, inner_end = inner + inner_each < K ? inner + inner_each : K;
  Operand<T> left = {a, M, K}, right = {b, N, K};
  unsigned warp = threadIdx.x / 32, row = warp / S::WARPS_ACROSS * S::WARP_ROWS, column = warp % S::WARPS_ACROSS * 32;

  float sums[DOWN][4][4];
#pragma unroll
  for (int i = 0; i < 16 * DOWN; i++) sums[i / 16][i / 4 % 4][i % 4] = 0.0f;
  ulonglong2 a_next[A::CHUNKS], b_next[B::CHUNKS];
#pragma unroll 1
  for (u64 next = inner;; next += DEPTH<T>) {
    bool is_first = next == inner;
    if (!is_first) {
      __syncthreads();
      put<A>(a_tile, a_next);
      put<B>(b_tile, b_next);
      __syncthreads();
    }
    if (next < inner_end) {
      fetch<A>(a_next, left, first_row, next, inner_end);
      fetch<B>(b_next, right, first_column, next, inner_end);
    }
    if (!is_first) How::template add<A, B>(sums, a_tile, b_tile, row, column);
    if (next >= inner_end) break;
  }

  unsigned lane = threadIdx.x % 32;
  u64 corner_row = first_row + row, corner_column = first_column + column;
#pragma unroll
  for (int i = 0; i < 16 * DOWN; i++) {
    u64 at_row = corner_row + How::template row<A>(lane, i), at_column = corner_column + How::template column<B>(lane, i);
    if (at_row >= M || at_column >= N) continue;
    float* to = out + (split * M + at_row) * N + at_column;
    float sum = sums[i / 16][i / 4 % 4][i % 4] + (start ? start[at_column] : 0.0f);
    *to = adds ? *to + sum : sum;
  }
}

#define MULTIPLY(name, How, S, T, A_TURNED, B_TURNED)                                                                                   \
  extern "C" __global__ void __launch_bounds__(S::THREADS, S::RESIDENT) name(const T* a, const T* b, const float* start, float* out, u64 M, u64 N,   \
                                                                u64 K, u64 inner_each, unsigned adds) {                                 \
    multiply<How, S, T, A_TURNED, B_TURNED>(a, b, start, out, M, N, K, inner_each, adds);                                               \
  }
