// Who touched the bytes of a memory last, and which two touches race: two threads touch a byte, one of them writing, and nothing orders them.
//
// Threads of a block are ordered by its barriers, those of a warp by __syncwarp, too. All others are ordered where one releases a number that another acquires, or stores it behind a
// fence and loads it before one: what the one did, and all threads of its block before their last barrier, has then happened for the other, and behind the next barrier for all of
// its warp or block.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace simt {

enum class Kind : uint8_t { read, write, atomic };

// A touch of a byte. Epochs count barriers: what happened in an earlier one is over. That of a block begins at 1; 0 is no touch.
struct Touch {
  uint32_t block = 0, block_epoch = 0, warp_epoch = 0;
  uint32_t releases = 0;  // of the thread before
  uint16_t thread = 0, warp = 0;
  Kind kind = Kind::read;
  uintptr_t caller = 0;
};

// What has happened: of each block all that it did before an epoch, of single threads what they did before a number of their releases.
class Clock {
 public:
  bool is_empty() const { return epochs_.empty(); }
  bool covers(const Touch& touch) const;

  // What has happened for a thread that made this touch, and what it did itself.
  void learn(const Touch& last);
  void learn(const Clock& other);

 private:
  void learn_block(uint32_t block, uint32_t epoch);
  void learn_thread(uint64_t thread, uint32_t releases);

  std::vector<uint32_t> epochs_;
  std::vector<std::pair<uint64_t, uint32_t>> threads_;  // block and thread, releases
};

// The touches of a byte that the next one is held against.
class Byte {
 public:
  bool is_written() const { return write_.block_epoch != 0; }

  // What races with `touch` by a thread that knows of `known`, or null.
  const Touch* rival(const Touch& touch, const Clock& known) const;
  void note(const Touch& touch, const Clock& known);

 private:
  Touch write_, read_;
};

// The global memory of a launch, which all its blocks share.
class Global {
 public:
  // The bytes from `address` on to the end of the page, of which there is at least one.
  Byte* bytes(uintptr_t address, size_t& count);

  // What a thread makes known by a number that it stores at `address`, and what is known by those that were stored there.
  void release(uintptr_t address, const Clock& clock) { released_[address].learn(clock); }
  const Clock& released(uintptr_t address) const;

 private:
  std::unordered_map<uintptr_t, std::vector<Byte>> pages_;
  std::unordered_map<uintptr_t, Clock> released_;
  uintptr_t page_ = 0;  // that was asked for last
  std::vector<Byte>* bytes_ = nullptr;
};

const char* verb(Kind kind);

// `, and no barrier lies between that and …`.
std::string race_with(const Touch& rival, const Touch& touch);

// `{0x1234}`, which the caller of the launch turns into a file and a line.
std::string place(uintptr_t code);

}  // namespace simt
