// The memory that a block may touch, and the rules of touching it.
//
// Every load and store of a kernel is checked before it happens. It must be aligned to its size, as a GPU asks. Global memory must lie in a buffer that the launch was given;
// shared memory must lie in a variable of the block, must have been written before it is read, and two threads must not
// touch a byte, one of them writing, without a barrier between.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

#include "../simt.h"

namespace simt {

enum class Kind : uint8_t { read, write, atomic };

struct Access {
  uintptr_t address;
  size_t bytes;
  Kind kind;
  uintptr_t caller;  // return address: the line in the kernel
  size_t align;      // that the kernel's type promises
};

// A `__shared__` declaration. The id 0 is that of the launch's dynamic memory.
struct Declaration {
  unsigned id;
  const char* name;
  size_t bytes;
};

class Memory {
 public:
  explicit Memory(const Launch& launch);

  void set_stacks(const char* begin, size_t bytes);
  void begin_block();
  void* shared(const Declaration& declaration);

  // An empty text, or what is wrong with the access.
  std::string check(const Access& access, unsigned thread);

  void block_synced() { block_epoch_++; }
  void warp_synced(unsigned warp) { warp_epochs_[warp]++; }

 private:
  struct Variable {
    Declaration declaration;
    size_t offset;
  };

  // Who touched a byte of shared memory last. Epochs count barriers: what happened in an earlier one is over.
  struct Touch {
    uint32_t block_epoch = 0, warp_epoch = 0;
    uint16_t thread = 0, warp = 0;
    Kind kind = Kind::read;
    uintptr_t caller = 0;
  };
  struct Byte {
    Touch write, read;
  };

  std::string check_shared(const Access& access, unsigned thread);
  std::string check_global(const Access& access) const;
  std::string race(const Byte& byte, const Touch& touch) const;
  void note(Byte& byte, const Touch& touch) const;
  bool unordered(const Touch& earlier, const Touch& now) const;
  std::string describe(const Access& access, size_t offset) const;
  const Variable* variable_at(size_t offset, size_t bytes) const;

  const Launch& launch_;
  uintptr_t stacks_begin_ = 0, stacks_end_ = 0;
  uintptr_t arena_begin_ = 0;
  std::vector<char> arena_;
  size_t arena_used_ = 0;
  std::vector<Variable> variables_;
  std::vector<Byte> bytes_;
  uint32_t block_epoch_ = 1;
  std::vector<uint32_t> warp_epochs_;
};

// `{0x1234}`, which the caller of the launch turns into a file and a line.
std::string place(uintptr_t code);

}  // namespace simt
