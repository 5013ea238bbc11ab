// States that windows start from, of one timeframe. Source of carried_states.ptx; launched by carried_states.rs.
//
// A state is [layers, 2, H]: of each layer h, then c. `state_len` is 2·layers·H, `layer_start` the number of a layer's first unit in a state.
#include "mma.cuh"

#define NONE 0xffffffffu

// A state that a batch computes; the slot 0 stands for none, and 1 for the first one.
struct Note {
  unsigned slot, place, row;
};

// states: [slots, layers, 2, H].  starts: [windows], 0 for zero or the slot that a window starts from, counted from 1.  hidden, cell: [windows, H].  A thread takes a unit of a window.
template <class T>
__device__ inline void start_states(const float* states, const unsigned* starts, u64 state_len, u64 layer_start, unsigned H, u64 windows, T* hidden, float* cell) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= windows * H) return;
  unsigned start = starts[k / H];
  float h = 0.0f, c = 0.0f;
  if (start > 0) {
    const float* from = states + (start - 1) * state_len + layer_start + k % H;
    h = from[0];
    c = from[H];
  }
  narrow(h, hidden[k]);
  cell[k] = c;
}

// notes: [count], each slot once.  hidden, cell: [rows, H], the states of a layer.  pending: [places, layers, 2, H].  slots: [places], which learn their slot with the first layer.
// A thread takes a unit of a note.
template <class T>
__device__ inline void note_states(const Note* notes, u64 count, u64 state_len, u64 layer_start, unsigned H, const T* hidden, const float* cell, float* pending,
                                   unsigned* slots) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= count * H) return;
  Note note = notes[k / H];
  if (note.slot == 0) return;
  u64 unit = k % H, from = (u64)note.row * H + unit;
  float* to = pending + note.place * state_len + layer_start + unit;
  to[0] = widen(hidden[from]);
  to[H] = cell[from];
  if (layer_start == 0 && unit == 0) slots[note.place] = note.slot;
}

#define CARRIED(suffix, T)                                                                                                                       \
  extern "C" __global__ void start_states_##suffix(const float* states, const unsigned* starts, u64 state_len, u64 layer_start, unsigned H,      \
                                                   u64 windows, T* hidden, float* cell) {                                                        \
    start_states(states, starts, state_len, layer_start, H, windows, hidden, cell);                                                              \
  }                                                                                                                                              \
  extern "C" __global__ void note_states_##suffix(const Note* notes, u64 count, u64 state_len, u64 layer_start, unsigned H, const T* hidden,     \
                                                  const float* cell, float* pending, unsigned* slots) {                                          \
    note_states(notes, count, state_len, layer_start, H, hidden, cell, pending, slots);                                                          \
  }

CARRIED(f32, float)
CARRIED(f16, __half)
CARRIED(bf16, __nv_bfloat16)

// pending, slots: as above.  applied, bad_chunk, terms: [1], what became of the step: its weights were updated or, without a term of the loss, could not be.  states: [slots, layers, 2, H].
// A thread takes a number of a place.
extern "C" __global__ void commit_states(const float* pending, const unsigned* slots, u64 places, u64 state_len, const unsigned* applied,
                                         const unsigned* bad_chunk, const double* terms, float* states) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= places * state_len) return;
  unsigned slot = slots[k / state_len];
  bool is_accepted = *applied || (*bad_chunk == NONE && *terms == 0.0);
  if (slot > 0 && is_accepted) states[(slot - 1) * state_len + k % state_len] = pending[k];
}
