// What the lanes of a warp do together: shuffles, gathers, votes, matches and the warp's barrier.
#pragma once

namespace simt {

enum class Exchange { barrier, shuffle, gather, vote, match };

// What a lane may hand in to a gather.
struct Words {
  uint64_t words[4];
};

// One lane's part in an operation of the warp.
struct Request {
  Exchange exchange;
  const char* what;
  uint32_t mask;
  uint64_t value;       // handed in: the value to pass on, the address of the words to pass on, the predicate, the value to match
  unsigned source_lane; // of a shuffle: whose value this lane takes
  Site site;
};

// Waits for the lanes of the mask. Returns, by exchange: nothing; the source lane's value; the lanes that took part; the lanes
// whose predicate is set (in the upper half: the lanes that took part); the lanes that handed in the same value (upper half as
// for a vote).
uint64_t exchange(const Request& request);

// The words that a lane of this warp handed in to the last gather that it took part in.
Words gathered(unsigned lane);

unsigned lane();

template <class T>
T shuffle(const char* what, uint32_t mask, T value, unsigned source_lane, Site site) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most eight bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = exchange({Exchange::shuffle, what, mask, bits, source_lane, site});
  memcpy(&value, &bits, sizeof value);
  return value;
}

// What each lane handed in to a gather. The next operation of the warp ends it.
template <class T>
class Gathered {
 public:
  explicit Gathered(uint64_t taking_part) : taking_part_(taking_part) {}

  // All ones from a lane that took no part.
  T operator[](unsigned lane) const {
    Words words;
    memset(&words, 0xff, sizeof words);
    if (taking_part_ >> lane & 1) words = gathered(lane);
    T value;
    memcpy(&value, &words, sizeof value);
    return value;
  }

 private:
  uint64_t taking_part_;
};

// Hands `value` to all lanes of the mask at once, where shuffles would take an exchange for each lane that is asked. CUDA has no such
// operation: twins of the instructions of tensor cores are written with it.
template <class T>
Gathered<T> gather(const char* what, uint32_t mask, const T& value, Site site = Site::here()) {
  static_assert(sizeof(T) <= sizeof(Words), "a gather moves at most 32 bytes a lane");
  Words words = {};
  memcpy(&words, &value, sizeof value);
  return Gathered<T>(exchange({Exchange::gather, what, mask, (uint64_t)&words, 0, site}));
}

// First lane of this lane's segment of `width` lanes.
inline unsigned segment(int width) { return lane() & ~(unsigned)(width - 1); }

inline uint64_t vote(const char* what, uint32_t mask, bool predicate, Site site) {
  return exchange({Exchange::vote, what, mask, predicate, 0, site});
}

template <class T>
uint64_t match(const char* what, uint32_t mask, T value, Site site) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return exchange({Exchange::match, what, mask, bits, 0, site});
}

}  // namespace simt

inline void __syncwarp(unsigned mask = 0xffffffffu, simt::Site site = simt::Site::here()) {
  simt::exchange({simt::Exchange::barrier, "__syncwarp", mask, 0, 0, site});
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, simt::Site site = simt::Site::here()) {
  unsigned from = simt::segment(width) + ((unsigned)source & (unsigned)(width - 1));
  return simt::shuffle("__shfl_sync", mask, value, from, site);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, simt::Site site = simt::Site::here()) {
  unsigned own = simt::lane();
  unsigned from = own - simt::segment(width) >= delta ? own - delta : own;
  return simt::shuffle("__shfl_up_sync", mask, value, from, site);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, simt::Site site = simt::Site::here()) {
  unsigned own = simt::lane();
  unsigned from = own - simt::segment(width) + delta < (unsigned)width ? own + delta : own;
  return simt::shuffle("__shfl_down_sync", mask, value, from, site);
}

// A lane may read the segments before its own, but not those behind it, as PTX says of shfl.bfly.
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, simt::Site site = simt::Site::here()) {
  unsigned own = simt::lane();
  unsigned from = own ^ (unsigned)bits;
  from = from < simt::segment(width) + (unsigned)width ? from : own;
  return simt::shuffle("__shfl_xor_sync", mask, value, from, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, simt::Site site = simt::Site::here()) {
  return (unsigned)simt::vote("__ballot_sync", mask, predicate, site);
}

inline int __any_sync(unsigned mask, int predicate, simt::Site site = simt::Site::here()) {
  return (unsigned)simt::vote("__any_sync", mask, predicate, site) != 0;
}

inline int __all_sync(unsigned mask, int predicate, simt::Site site = simt::Site::here()) {
  uint64_t votes = simt::vote("__all_sync", mask, predicate, site);
  return (unsigned)votes == (unsigned)(votes >> 32);
}

template <class T>
unsigned __match_any_sync(unsigned mask, T value, simt::Site site = simt::Site::here()) {
  return (unsigned)simt::match("__match_any_sync", mask, value, site);
}

template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* all, simt::Site site = simt::Site::here()) {
  uint64_t lanes = simt::match("__match_all_sync", mask, value, site);
  *all = (unsigned)lanes == (unsigned)(lanes >> 32);
  return *all ? (unsigned)lanes : 0;
}

// Which lanes run together is the hardware's choice. The harness gives the least that it may: this lane alone.
inline unsigned __activemask() { return 1u << simt::lane(); }
