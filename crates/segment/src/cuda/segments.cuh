// Segments of rows by a plan, `[segments + 2 + rows]`: the offsets of the segments; 1 if a list of the rows in their order follows, 0 if
// they lie so; the list. A segment of more than PIECE rows is cut into pieces, each of which has a slot for its result: every PIECE places
// of the order have two, for the first piece of a long segment and for a later one. No more begin there.
#pragma once
#include "place.cuh"

constexpr unsigned PIECE = 512;

struct Segments {
  const unsigned* offsets;
  const unsigned* order;
  u64 count;

  __device__ Segments(const unsigned* plan, u64 segments)
      : offsets(plan), order(plan[segments + 1] ? plan + segments + 2 : nullptr), count(segments) {}

  __device__ u64 row(u64 place) const { return order ? order[place] : place; }

  __device__ unsigned rows(u64 segment) const {
    unsigned first = offsets[segment], end = offsets[segment + 1];
    return end > first ? end - first : 0;
  }

  // The last segment that begins at a place or before it; `count` if none does.
  __device__ u64 at(u64 place) const {
    u64 first = 0, len = count;
    while (len > 0) {
      u64 half = len / 2;
      if (offsets[first + half] <= place) {
        first += half + 1;
        len -= half + 1;
      } else {
        len = half;
      }
    }
    return first > 0 ? first - 1 : count;
  }
};

// Places of the order from `first` to before `end`, in one segment.
struct Piece {
  u64 segment, first, end;
};

__device__ inline u64 slots(u64 rows) { return 2 * ((rows + PIECE - 1) / PIECE); }

// The slot of the piece that begins at a place.
__device__ inline u64 slot(u64 place, bool is_first) { return place / PIECE * 2 + is_first; }

// The piece of a slot, empty where it has none.
__device__ inline Piece piece(const Segments& segments, u64 slot) {
  const Piece none = {0, 0, 0};
  u64 begin = slot / 2 * PIECE;
  bool is_first = slot % 2;
  if (!is_first && begin == 0) return none;
  u64 segment = segments.at(is_first ? begin + PIECE - 1 : begin - 1);
  if (segment == segments.count || segments.rows(segment) <= PIECE) return none;
  u64 first = segments.offsets[segment], end = segments.offsets[segment + 1];
  if (is_first) return first < begin ? none : Piece{segment, first, first + PIECE};
  first += (begin - first + PIECE - 1) / PIECE * PIECE;
  if (first >= end) return none;
  return {segment, first, end - first > PIECE ? first + PIECE : end};
}

// The work of a thread on results of pieces, [batches, slots, columns], of which it has number k; the piece is empty where it has none.
struct PieceWork {
  Segments segments;
  u64 k, batch, column;
  Piece piece;

  __device__ PieceWork(const unsigned* plan, u64 segment_count, u64 rows, u64 columns, u64 len)
      : segments(plan, segment_count), k(thread_number()), batch(0), column(0), piece{0, 0, 0} {
    if (k >= len) return;
    Place at = place(k, columns);
    Place in_batch = place(at.row, slots(rows));
    batch = in_batch.row;
    column = at.column;
    piece = ::piece(segments, in_batch.column);
  }

  __device__ bool is_none() const { return piece.first == piece.end; }

  __device__ bool is_first() const { return piece.first == segments.offsets[piece.segment]; }

  // Where the first piece of the segment has its result.
  __device__ u64 first_k(u64 rows, u64 columns) const {
    return (batch * slots(rows) + slot(segments.offsets[piece.segment], true)) * columns + column;
  }
};

// The work of a thread on numbers of segments, [batches, segments, columns], of which it has number k: places from `first` to before `end`.
struct SegmentWork {
  Segments segments;
  u64 k, batch, column, first, end;

  __device__ SegmentWork(const unsigned* plan, u64 segment_count, u64 columns, u64 len)
      : segments(plan, segment_count), k(thread_number()), batch(0), column(0), first(0), end(0) {
    if (k >= len) return;
    Place at = place(k, columns);
    Place in_batch = place(at.row, segment_count);
    batch = in_batch.row;
    column = at.column;
    first = segments.offsets[in_batch.column];
    end = first + segments.rows(in_batch.column);
  }

  __device__ unsigned rows() const { return end - first; }
};
